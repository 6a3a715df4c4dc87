#include "gateway/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/scope.h"
#include "gateway/fdpass.h"
#include "gateway/keys.h"
#include "gateway/sandbox.h"

#define STDIO_COUNT 3
#define TIMEOUT_MAX_S 86400

struct launcher {
    char mounts[4096];
    uid_t owner; /* of the state directory */
    int control;
    int listen_fd;
    char **environment; /* for the process that gives the store's keys; without keys */
};

/* What the keeper of one sandbox knows. */
struct job {
    int conn;
    int stdio[STDIO_COUNT];
    const json_t *spec;
    int64_t timeout_s;
    pid_t pid;
    int pid_fd;
    int status_fd; /* bubblewrap's own account */
    bool timed_out;
};

/* ---- the sandbox's process ---- */
static int
text_fd(const char *name, const char *text)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    size_t len = strlen(text);
    if (fd >= 0 && (write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) < 0)) {
        (void)close(fd);
        return -1;
    }
    return fd < 0 || fcntl(fd, F_SETFD, 0) < 0 ? -1 : fd; /* for bubblewrap */
}

static int
user_files(struct sandbox_fds *fds)
{
    char passwd[256];
    char group[256];
    unsigned uid = (unsigned)geteuid();
    unsigned gid = (unsigned)getegid();
    (void)snprintf(passwd, sizeof(passwd), "agent:x:%u:%u:agent:/workspace:/bin/sh\n", uid, gid);
    (void)snprintf(group, sizeof(group), "agent:x:%u:\n", gid);
    fds->passwd = text_fd("passwd", passwd);
    fds->group = text_fd("group", group);
    return fds->passwd >= 0 && fds->group >= 0 ? 0 : -1;
}

static const char *
find_bwrap(void)
{
    static const char *const places[] = { "/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap" };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (access(places[i], X_OK) == 0)
            return places[i];
    }
    return NULL;
}

/* bubblewrap's options as "a\0b\0": its own command line is readable inside, and they hold paths of the host. */
static int
options_fd(const struct sandbox_args *args)
{
    int fd = memfd_create("options", MFD_CLOEXEC);
    for (size_t i = 0; fd >= 0 && i < args->command; i++) {
        size_t len = strlen(args->argv[i]) + 1;
        if (write(fd, args->argv[i], len) != (ssize_t)len) {
            (void)close(fd);
            return -1;
        }
    }
    if (fd >= 0 && lseek(fd, 0, SEEK_SET) < 0) {
        (void)close(fd);
        return -1;
    }
    return fd < 0 || fcntl(fd, F_SETFD, 0) < 0 ? -1 : fd;
}

static _Noreturn void
exec_sandbox(const struct job *job, const char *program, struct sandbox_args *args)
{
    char number[12];
    int options = options_fd(args);
    static char *const environment[] = { (char *)(uintptr_t) "PATH=/usr/bin:/bin", NULL };
    struct rlimit no_core = { 0, 0 };
    sigset_t none;
    sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)umask(022);
    (void)snprintf(number, sizeof(number), "%d", options);
    for (int i = 0; i < STDIO_COUNT; i++) {
        if (options < 0 || dup2(job->stdio[i], i) < 0)
            _exit(125);
    }
    const char **argv =
        args->argv + args->command - 3; /* over the last options, which are in the descriptor now */
    argv[0] = "bwrap";
    argv[1] = "--args";
    argv[2] = number;
    (void)execve(program, (char *const *)(uintptr_t)argv, environment);
    _exit(125);
}

static int
start_sandbox(struct job *job, const char *mounts, struct err *err)
{
    struct sandbox_fds fds = { -1, -1, -1 };
    int pipe_fds[2];
    const char *program = find_bwrap();
    if (!program)
        return err_set(err, ERR_UNSUPPORTED,
                       "bubblewrap is not installed: install the package 'bubblewrap'");
    scope_free struct sandbox_args *args = calloc(1, sizeof(*args));
    if (!args)
        return err_nomem(err);
    if (user_files(&fds) < 0 || pipe2(pipe_fds, O_CLOEXEC) < 0)
        return err_sys(err, errno, "cannot prepare the sandbox");
    job->status_fd = pipe_fds[0];
    fds.status = fcntl(pipe_fds[1], F_DUPFD, 10); /* without CLOEXEC: for bubblewrap */
    (void)close(pipe_fds[1]);
    int rc = gateway_sandbox_args(job->spec, mounts, &fds, args, err);
    if (rc == 0) {
        job->pid = fork();
        if (job->pid == 0)
            exec_sandbox(job, program, args);
        rc = job->pid < 0 ? err_sys(err, errno, "cannot start the sandbox") : 0;
    }
    (void)close(fds.status);
    (void)close(fds.passwd);
    (void)close(fds.group);
    return rc;
}

/* ---- the keeper: one process for each sandbox ---- */
static void
watch_sandbox(struct job *job)
{
    int64_t end = job->timeout_s ? clock_mono_ns() + job->timeout_s * NS_PER_S : INT64_MAX;
    struct pollfd fds[2] = { { .fd = job->pid_fd, .events = POLLIN },
                             { .fd = job->conn, .events = POLLIN } };
    for (;;) {
        int64_t left = (end - clock_mono_ns()) / NS_PER_MS + 1;
        int wait_ms = left > 60000 ? 60000 : (int)left;
        if (left <= 0) {
            job->timed_out = true;
            return;
        }
        if (poll(fds, 2, wait_ms) < 0 && errno != EINTR)
            return;
        if (fds[0].revents || fds[1].revents)
            return; /* ended, or the client is gone */
    }
}

/* Whether bubblewrap got as far as running the command, and how that ended. */
static bool
read_exit_code(int status_fd, int *code)
{
    char text[1024];
    size_t len = 0;
    ssize_t got;
    while (len < sizeof(text) - 1 &&
           (got = read(status_fd, text + len, sizeof(text) - 1 - len)) > 0)
        len += (size_t)got;
    text[len] = '\0';
    const char *at = strstr(text, "\"exit-code\":");
    if (!at)
        return false;
    *code = (int)strtol(at + strlen("\"exit-code\":"), NULL, 10);
    return true;
}

static void
answer(int conn, const char *outcome, int status, const char *message)
{
    struct err err = ERR_INIT;
    scope_buf text;
    buf_init(&text, 8192);
    scope_json *value =
        json_pack("{s:s, s:i, s:s}", "outcome", outcome, "status", status, "message", message);
    if (!value || json_print(value, &text, &err) < 0 ||
        gateway_fdpass_send(conn, buf_cstr(&text), text.len, NULL, 0, &err) < 0)
        log_debug(run, "a client left before its answer: %s", err.msg);
}

/* The sandbox's own first process comes to us when bubblewrap ends (subreaper); its end is the end of all others in there, and
 * only then is no mount in use any more. */
static void
reap_rest(void)
{
    int64_t end = clock_mono_ns() + 5 * NS_PER_S;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && clock_mono_ns() < end) {
        if (pid == 0)
            clock_sleep_ns(2 * NS_PER_MS);
    }
}

static void
finish_job(struct job *job)
{
    int status = 0;
    int code = 0;
    (void)kill(job->pid, SIGKILL); /* bubblewrap takes its whole pid namespace with it */
    while (waitpid(job->pid, &status, 0) < 0 && errno == EINTR)
        ;
    reap_rest();
    if (job->timed_out)
        answer(job->conn, "timeout", 124, "the time limit ran out");
    else if (read_exit_code(job->status_fd, &code))
        answer(job->conn, "exited", code, "");
    else
        answer(job->conn, "failed", 125, "the sandbox could not be made");
}

static int
run_job(struct job *job, const struct launcher *launcher, struct err *err)
{
    if (json_opt_int(job->spec, "timeout_s", &job->timeout_s, err) < 0)
        return -1;
    if (job->timeout_s < 0 || job->timeout_s > TIMEOUT_MAX_S)
        return err_set(err, ERR_INVAL, "a time limit is 0 to %d seconds", TIMEOUT_MAX_S);
    if (start_sandbox(job, launcher->mounts, err) < 0)
        return -1;
    job->pid_fd = (int)syscall(SYS_pidfd_open, job->pid, 0);
    watch_sandbox(job);
    finish_job(job);
    return 0;
}

static int
receive_job(struct job *job, char *text, size_t size, size_t *len, struct err *err)
{
    size_t count = STDIO_COUNT;
    ssize_t got = gateway_fdpass_receive(job->conn, text, size, job->stdio, &count, err);
    if (got < 0)
        return -1;
    if (got == 0 || count != STDIO_COUNT)
        return err_set(err, ERR_INVAL, "the launcher wants a specification and three descriptors");
    *len = (size_t)got;
    return 0;
}

static _Noreturn void
keeper_main(const struct launcher *launcher, int conn)
{
    struct err err = ERR_INIT;
    struct job job = { .conn = conn, .pid_fd = -1, .status_fd = -1, .timeout_s = 60 };
    size_t len = 0;
    char *text = malloc(LAUNCHER_SPEC_MAX);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)prctl(PR_SET_NAME, "holdfast-keeper");
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (text && receive_job(&job, text, LAUNCHER_SPEC_MAX, &len, &err) == 0) {
        job.spec = json_parse(text, len, &err);
        if (job.spec && run_job(&job, launcher, &err) == 0)
            _exit(0);
    }
    answer(conn, "failed", 125, err.msg);
    _exit(1);
}

/* ---- the launcher ---- */
static bool
peer_allowed(const struct launcher *launcher, int conn)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (getsockopt(conn, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return false;
    return peer.uid == 0 || peer.uid == geteuid() || peer.uid == launcher->owner;
}

static void
accept_client(const struct launcher *launcher)
{
    scope_fd int conn = accept4(launcher->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (conn < 0)
        return;
    if (!peer_allowed(launcher, conn)) {
        answer(conn, "failed", 125, "this socket is for root and the owner of the state directory");
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(launcher->listen_fd);
        (void)close(launcher->control);
        keeper_main(launcher, steal_fd(&conn));
    }
    if (pid < 0)
        answer(conn, "failed", 125, "no more processes");
}

/* "L" with the listening socket, or "K" with a pipe for the store's keys. False when the gateway is gone. */
static bool
take_order(struct launcher *launcher)
{
    struct err err = ERR_INIT;
    char order;
    int fd = -1;
    size_t count = 1;
    ssize_t got = gateway_fdpass_receive(launcher->control, &order, 1, &fd, &count, &err);
    if (got != 1 || count != 1)
        return false;
    if (order == 'L' && launcher->listen_fd < 0) {
        launcher->listen_fd = fd;
        return true;
    }
    if (order == 'K' && fork() == 0) {
        if (launcher->listen_fd >= 0)
            (void)close(launcher->listen_fd);
        (void)close(launcher->control);
        gateway_keys_serve(fd, launcher->environment);
    }
    (void)close(fd);
    return true;
}

static _Noreturn void
launcher_main(struct launcher *launcher)
{
    (void)prctl(PR_SET_NAME, "holdfast-launch");
    (void)signal(SIGCHLD, SIG_IGN); /* keepers are reaped by the kernel */
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    for (;;) {
        struct pollfd fds[2] = { { .fd = launcher->listen_fd, .events = POLLIN },
                                 { .fd = launcher->control, .events = POLLIN } };
        if (poll(fds, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            _exit(1);
        }
        if (fds[1].revents && !take_order(launcher))
            _exit(0); /* the gateway is gone */
        if (fds[0].revents)
            accept_client(launcher);
    }
}

/* Keeps nothing of the gateway's descriptors but stdio and the control socket. */
static void
become_launcher(struct launcher *launcher, int control)
{
    launcher->control = 3;
    if (control != launcher->control && dup2(control, launcher->control) < 0)
        _exit(1);
    (void)fcntl(launcher->control, F_SETFD, FD_CLOEXEC);
    (void)syscall(SYS_close_range, (unsigned)launcher->control + 1, ~0u, 0);
    (void)setpgid(0, 0);
}

/* Keys of the store stand in there. */
static int
drop_environment(void)
{
    return clearenv() == 0 ? 0 : -1; /* NOLINT(concurrency-mt-unsafe): one thread */
}

int
gateway_launcher_start(const struct gateway_user *user, const char *state_dir,
                       struct gateway_launcher *out, struct err *err)
{
    int pair[2];
    struct launcher launcher = { .owner = user->uid, .listen_fd = -1 };
    (void)snprintf(launcher.mounts, sizeof(launcher.mounts), "%s/mnt", state_dir);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "cannot start the launcher");
    pid_t pid = fork();
    if (pid == 0) {
        become_launcher(&launcher, pair[1]);
        if (gateway_privilege_drop(user, err) < 0)
            _exit(1);
        launcher.environment = gateway_keys_environment();
        if (!launcher.environment || drop_environment() < 0 || chdir("/") < 0)
            _exit(1);
        launcher_main(&launcher);
    }
    (void)close(pair[1]);
    if (pid < 0) {
        (void)close(pair[0]);
        return err_sys(err, errno, "cannot start the launcher");
    }
    *out = (struct gateway_launcher){ .pid = pid, .control = pair[0] };
    return 0;
}

int
gateway_launcher_listen(struct gateway_launcher *launcher, int listen_fd, struct err *err)
{
    return gateway_fdpass_send(launcher->control, "L", 1, &listen_fd, 1, err);
}

void
gateway_launcher_stop(struct gateway_launcher *launcher)
{
    if (launcher->pid <= 0)
        return;
    (void)close(launcher->control);
    while (waitpid(launcher->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    launcher->pid = 0;
}
