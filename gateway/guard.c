#include "gateway/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"

#define HEIR_VARIABLE "HOLDFAST_HEIR"
#define HEIR_SECONDS 30
#define SHORT_LIFE_NS \
    (300 * NS_PER_MS)   /* who dies sooner after getting ready died of itself, most likely */
#define SHORT_LIVES 20u /* so many of them in a row, and it is given up */
#define LONGEST_PAUSE_NS (5 * NS_PER_S)

/* Gateway to guard, and back; heir to guard. */
enum word {
    WORD_READY = 'R',
    WORD_END = 'E',
    WORD_UPGRADE = 'U',
    WORD_GO = 'G',
    WORD_FAILED = 'F',
    WORD_OVER = 'O', /* the gateway leaves its place to the heir */
};

struct guard {
    gateway_guard_fn *again;
    void *arg;
    int control;
    pid_t child; /* 0: the first gateway, which is our parent */
    bool was_ready;
    int64_t ready_ns;
    unsigned short_lives;
    int heir; /* control of the program that an upgrade has started, -1 */
    pid_t heir_pid;
};

static void
say(int fd, char word)
{
    if (fd >= 0)
        (void)!send(fd, &word, 1, MSG_NOSIGNAL);
}

/* 0 at the end or after `seconds` (0: for ever). */
static char
hear(int fd, int seconds)
{
    char word = 0;
    struct pollfd pfd = { .fd = fd, .events = POLLIN };
    int got;
    do
        got = poll(&pfd, 1, seconds > 0 ? seconds * 1000 : -1);
    while (got < 0 && errno == EINTR);
    return got > 0 && recv(fd, &word, 1, 0) == 1 ? word : 0;
}

/* ---- the guard's process ---- */

static void
reap(pid_t *pid)
{
    while (*pid > 0 && waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *pid = 0;
}

static int64_t
pause_after(const struct guard *guard)
{
    int64_t pause = guard->short_lives < 2 ? 0 : 20 * NS_PER_MS;
    for (unsigned i = 2; i < guard->short_lives && pause < LONGEST_PAUSE_NS; i++)
        pause *= 2;
    return pause > LONGEST_PAUSE_NS ? LONGEST_PAUSE_NS : pause;
}

static void
count_life(struct guard *guard)
{
    bool short_life = !guard->was_ready || clock_mono_ns() - guard->ready_ns < SHORT_LIFE_NS;
    guard->short_lives = short_life ? guard->short_lives + 1 : 0;
    guard->was_ready = false;
}

/* In the child: a gateway like the first one. */
static _Noreturn void
become_gateway(const struct guard *guard, int control)
{
    struct gateway_guard own = { .control = control };
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGHUP, SIG_DFL);
    (void)prctl(PR_SET_NAME, "holdfast");
    (void)close(guard->control);
    _exit(guard->again(guard->arg, &own));
}

static void
respawn(struct guard *guard)
{
    int pair[2];
    clock_sleep_ns(pause_after(guard));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        _exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(pair[0]);
        become_gateway(guard, pair[1]);
    }
    (void)close(pair[1]);
    (void)close(guard->control);
    guard->control = pair[0];
    guard->child = pid > 0 ? pid : 0;
}

/* A died gateway: the heir is on its way already, or the next one is made. */
static void
replace(struct guard *guard)
{
    reap(&guard->child);
    count_life(guard);
    if (guard->short_lives > SHORT_LIVES) {
        log_error(gateway, "the gateway dies again and again: it is not started any more");
        _exit(1);
    }
    log_error(gateway, "the gateway has died: starting it again");
    respawn(guard);
}

/* ---- an upgrade ---- */

/* The words of our own command line, in `text`. */
static int
read_command_line(char *text, size_t size, char **argv, size_t max)
{
    scope_fd int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, size - 1);
    size_t count = 0;
    if (len <= 0)
        return -1;
    text[len] = '\0';
    for (char *at = text; at < text + len && count + 1 < max; at += strlen(at) + 1)
        argv[count++] = at;
    argv[count] = NULL;
    return 0;
}

static _Noreturn void
exec_heir(int fd)
{
    static char text[65536];
    static char *argv[256];
    char program[4096];
    char number[16];
    ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (len <= 0 || read_command_line(text, sizeof(text), argv, 256) < 0)
        _exit(127);
    program[len] = '\0';
    /* The file that was started may have been replaced: that is the point. */
    char *deleted = strstr(program, " (deleted)");
    if (deleted)
        *deleted = '\0';
    int high = fcntl(fd, F_DUPFD, 10);
    (void)snprintf(number, sizeof(number), "%d", high);
    (void)setenv(HEIR_VARIABLE, number, 1); /* NOLINT(concurrency-mt-unsafe): one thread */
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGHUP, SIG_DFL);
    (void)execv(program, argv);
    _exit(127);
}

static void
start_heir(struct guard *guard)
{
    int pair[2];
    if (guard->heir >= 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        say(guard->control, WORD_FAILED);
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        exec_heir(pair[1]);
    (void)close(pair[1]);
    if (pid > 0 && hear(pair[0], HEIR_SECONDS) == WORD_READY) {
        guard->heir = pair[0];
        guard->heir_pid = pid;
        say(guard->control, WORD_GO);
        return;
    }
    (void)close(pair[0]);
    if (pid > 0)
        (void)kill(pid, SIGKILL);
    reap(&pid);
    say(guard->control, WORD_FAILED);
}

/* The old one has left. If the new one fails now, the old program goes on. */
static void
await_heir(struct guard *guard)
{
    reap(&guard->child);
    bool serves = hear(guard->heir, 2 * HEIR_SECONDS) == WORD_READY;
    (void)close(guard->heir);
    guard->heir = -1;
    if (serves)
        _exit(0); /* it has a guard of its own */
    log_error(gateway, "the new program failed: going on with the old one");
    (void)kill(guard->heir_pid, SIGKILL);
    reap(&guard->heir_pid);
    respawn(guard);
}

/* Nothing of the gateway's may stay open here, least of all a lock. */
static void
keep_only_control(struct guard *guard)
{
    if (guard->control != 3 && dup3(guard->control, 3, O_CLOEXEC) < 0)
        _exit(1);
    guard->control = 3;
    (void)syscall(SYS_close_range, 4u, ~0u, 0);
}

static _Noreturn void
guard_main(struct guard *guard)
{
    keep_only_control(guard);
    (void)setsid();
    (void)prctl(PR_SET_NAME, "holdfast-guard");
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    bool ever_ready = false;
    for (;;) {
        switch (hear(guard->control, 0)) {
        case WORD_READY:
            guard->was_ready = ever_ready = true;
            guard->ready_ns = clock_mono_ns();
            break;
        case WORD_UPGRADE:
            start_heir(guard);
            break;
        case WORD_OVER:
            await_heir(guard);
            break;
        case WORD_END:
            reap(&guard->child);
            _exit(0);
        default:
            if (guard->heir >= 0)
                await_heir(guard);
            else if (ever_ready)
                replace(guard);
            else
                _exit(1);
        }
    }
}

int
gateway_guard_start(gateway_guard_fn *again, void *arg, struct gateway_guard *out, struct err *err)
{
    int pair[2];
    struct guard guard = { .again = again, .arg = arg, .heir = -1 };
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "cannot start the guard");
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(pair[1]);
        guard.control = pair[0];
        guard_main(&guard);
    }
    (void)close(pair[0]);
    if (pid < 0) {
        (void)close(pair[1]);
        return err_sys(err, errno, "cannot start the guard");
    }
    out->control = pair[1];
    return 0;
}

/* ---- the gateway's end ---- */

void
gateway_guard_ready(const struct gateway_guard *guard)
{
    say(guard->control, WORD_READY);
}

void
gateway_guard_end(struct gateway_guard *guard)
{
    say(guard->control, WORD_END);
    if (guard->control >= 0)
        (void)close(guard->control);
    guard->control = -1;
}

int
gateway_guard_upgrade(struct gateway_guard *guard, struct err *err)
{
    if (guard->control < 0)
        return err_set(err, ERR_UNSUPPORTED, "nobody guards this gateway: restart it");
    say(guard->control, WORD_UPGRADE);
    if (hear(guard->control, 2 * HEIR_SECONDS) == WORD_GO)
        return 0;
    return err_set(err, ERR_INTERNAL,
                   "the new program could not be started, the old one goes on: see the log");
}

void
gateway_guard_hand_over(struct gateway_guard *guard)
{
    say(guard->control, WORD_OVER);
}

/* ---- the heir's end ---- */

int
gateway_guard_heir(void)
{
    uint64_t fd;
    const char *text = secure_getenv(HEIR_VARIABLE);
    bool is_heir = text && parse_u64(text, &fd) && fd > 2 && fd < 65536 &&
                   fcntl((int)fd, F_SETFD, FD_CLOEXEC) == 0;
    (void)unsetenv(HEIR_VARIABLE); /* NOLINT(concurrency-mt-unsafe): no thread exists yet */
    return is_heir ? (int)fd : -1;
}

void
gateway_guard_heir_ready(int fd)
{
    say(fd, WORD_READY);
}

void
gateway_guard_heir_serves(int *fd)
{
    say(*fd, WORD_READY);
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}
