#include "gateway/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "gateway/fdpass.h"
#include "s3/credentials_local.h"

#define TIME_LIMIT (60 * NS_PER_S)
#define POLL_MS 200
#define WORDS_MAX 4096 /* of standard error */

/* ---- environment ---- */

static int
make_absolute(const char *name, struct err *err)
{
    char cwd[PATH_MAX];
    char path[2 * PATH_MAX];
    const char *value = secure_getenv(name);
    if (!value || !*value || value[0] == '/')
        return 0;
    if (!getcwd(cwd, sizeof(cwd)))
        return err_set(err, ERR_USAGE, "%s needs an absolute path here", name);
    (void)snprintf(path, sizeof(path), "%s/%s", cwd, value);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no thread exists yet */
    return setenv(name, path, 1) < 0 ? err_nomem(err) : 0;
}

int
gateway_keys_prepare(struct err *err)
{
    static const char *const names[] = { "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
                                         "AWS_CA_BUNDLE",
                                         "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (make_absolute(names[i], err) < 0)
            return -1;
    }
    return 0;
}

static bool
is_secret(const char *entry)
{
    static const char *const names[] = { "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=",
                                         "AWS_SESSION_TOKEN=",
                                         "AWS_CONTAINER_AUTHORIZATION_TOKEN=" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strncmp(entry, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

char **
gateway_keys_environment(void)
{
    size_t count = 0;
    while (environ[count])
        count++;
    char **copy = calloc(count + 1, sizeof(*copy));
    size_t kept = 0;
    for (size_t i = 0; copy && i < count; i++) {
        if (is_secret(environ[i]))
            continue;
        copy[kept] = strdup(environ[i]);
        if (!copy[kept++])
            return NULL;
    }
    return copy;
}

/* ---- one run ---- */

struct run {
    char command[CREDENTIALS_COMMAND_MAX];
    char *argv[CREDENTIALS_WORDS_MAX + 1];
    pid_t pid;
    int out, words; /* -1 after their end */
    int watch;
    int64_t end_ns;
    struct buf said; /* on standard error */
};

static _Noreturn void
exec_process(const struct run *run, int out, int words)
{
    sigset_t none;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)setsid(); /* so that all of it can be ended */
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(words, 2) < 0)
        _exit(126);
    (void)execvp(run->argv[0], run->argv);
    int why = errno;
    (void)dprintf(2, "cannot run '%.200s': %s\n", run->argv[0],
                  why == ENOENT ? "there is no such program" : strerrordesc_np(why));
    _exit(127);
}

static int
start(struct run *run, struct err *err)
{
    int out[2];
    int words[2];
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_sys(err, errno, "cannot run credential_process");
    if (pipe2(words, O_CLOEXEC) < 0) {
        int why = errno;
        (void)close(out[0]);
        (void)close(out[1]);
        return err_sys(err, why, "cannot run credential_process");
    }
    run->pid = fork();
    if (run->pid == 0)
        exec_process(run, out[1], words[1]);
    int why = errno;
    (void)close(out[1]);
    (void)close(words[1]);
    run->out = out[0];
    run->words = words[0];
    return run->pid < 0 ? err_sys(err, why, "cannot run credential_process") : 0;
}

/* Takes what is there; closes at the end. What does not fit is dropped from standard error, and an error on the other. */
static int
take(int *fd, struct buf *into, bool strict, struct err *err)
{
    char piece[4096];
    struct err own = ERR_INIT;
    ssize_t got = read(*fd, piece, sizeof(piece));
    if (got < 0 && errno == EINTR)
        return 0;
    if (got <= 0) {
        (void)close(*fd);
        *fd = -1;
        return 0;
    }
    int result = buf_append(into, piece, (size_t)got, &own);
    secret_wipe(piece, sizeof(piece));
    if (result < 0 && strict)
        return err_set(err, ERR_STORE_DENIED, "it printed more than %u bytes",
                       CREDENTIALS_OUTPUT_MAX);
    return 0;
}

/* Until both pipes are closed. */
static int
listen_to(struct run *run, struct buf *out, struct err *err)
{
    while (run->out >= 0 || run->words >= 0) {
        struct pollfd fds[3] = { { .fd = run->out, .events = POLLIN },
                                 { .fd = run->words, .events = POLLIN },
                                 { .fd = run->watch, .events = 0 } };
        if (clock_mono_ns() >= run->end_ns)
            return err_set(err, ERR_STORE_DENIED, "it did not end within %d seconds",
                           (int)(TIME_LIMIT / NS_PER_S));
        if (poll(fds, 3, POLL_MS) < 0 && errno != EINTR)
            return err_sys(err, errno, "cannot listen to it");
        if (fds[2].revents)
            return err_set(err, ERR_CANCELED, "nobody waits for its answer any more");
        if (fds[1].revents && take(&run->words, &run->said, false, err) < 0)
            return -1;
        if (fds[0].revents && take(&run->out, out, true, err) < 0)
            return -1;
    }
    return 0;
}

/* Its pipes are closed, and still it may go on. */
static bool
has_ended(struct run *run, int *status)
{
    while (clock_mono_ns() < run->end_ns) {
        pid_t got = waitpid(run->pid, status, WNOHANG);
        if (got == run->pid)
            return true;
        if (got < 0 && errno != EINTR)
            return false;
        clock_sleep_ns(5 * NS_PER_MS);
    }
    return false;
}

static void
end_by_force(struct run *run)
{
    (void)kill(-run->pid, SIGKILL);
    (void)kill(run->pid, SIGKILL); /* before its setsid() */
    while (waitpid(run->pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* Each line goes to the log; answers the last one. */
static const char *
log_words(struct run *run)
{
    char *line = NULL;
    char *rest = NULL;
    const char *last = "";
    if (!run->said.data)
        return last;
    for (line = strtok_r(run->said.data, "\r\n", &rest); line;
         line = strtok_r(NULL, "\r\n", &rest)) {
        char shown[256];
        (void)text_escape(line, strlen(line), shown, sizeof(shown));
        log_warn(run, "credential_process says: %s", shown);
        last = line;
    }
    return last;
}

static int
judge(struct run *run, int status, const struct buf *out, struct err *err)
{
    const char *last = log_words(run);
    const char *mark = *last ? ": " : "";
    if (WIFSIGNALED(status))
        return err_set(err, ERR_STORE_DENIED, "'%.80s' was ended by signal %d%s%.160s",
                       run->argv[0], WTERMSIG(status), mark, last);
    if (WEXITSTATUS(status) != 0)
        return err_set(err, ERR_STORE_DENIED, "'%.80s' ended with %d%s%.160s", run->argv[0],
                       WEXITSTATUS(status), mark, last);
    if (out->len == 0)
        return err_set(err, ERR_STORE_DENIED, "'%.80s' printed nothing%s%.160s", run->argv[0], mark,
                       last);
    return 0;
}

static int
run_command(struct run *run, struct buf *out, struct err *err)
{
    int status = 0;
    if (start(run, err) < 0)
        return -1;
    int result = listen_to(run, out, err);
    if (result == 0 && !has_ended(run, &status))
        result = err_set(err, ERR_STORE_DENIED, "it did not end within %d seconds",
                         (int)(TIME_LIMIT / NS_PER_S));
    if (result < 0) {
        end_by_force(run);
        (void)log_words(run);
        return err_wrap(err, "'%.80s'", run->argv[0]);
    }
    return judge(run, status, out, err);
}

int
gateway_keys_run(int watch_fd, struct buf *out, struct err *err)
{
    struct run run = {
        .out = -1, .words = -1, .watch = watch_fd, .end_ns = clock_mono_ns() + TIME_LIMIT
    };
    int found = credentials_local_command(run.command, err);
    if (found == 0)
        return err_set(err, ERR_STORE_DENIED, "the profile has no credential_process any more");
    if (found < 0 || credentials_split(run.command, run.argv, err) < 0)
        return -1;
    buf_init(&run.said, WORDS_MAX);
    int result = run_command(&run, out, err);
    if (run.out >= 0)
        (void)close(run.out);
    if (run.words >= 0)
        (void)close(run.words);
    buf_release(&run.said);
    return result;
}

int
gateway_keys_run_here(void *unused, const atomic_bool *cancel, struct buf *out, struct err *err)
{
    (void)unused;
    (void)cancel;
    return gateway_keys_run(-1, out, err);
}

/* ---- between launcher and gateway: "K" and what was printed, or "E" and why not ---- */

static void
write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t put = write(fd, data, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return;
        data += put;
        len -= (size_t)put;
    }
}

_Noreturn void
gateway_keys_serve(int fd, char **environment)
{
    struct err err = ERR_INIT;
    struct buf out;
    environ = environment;
    (void)prctl(PR_SET_NAME, "holdfast-keys");
    (void)signal(SIGCHLD, SIG_DFL);
    buf_init(&out, CREDENTIALS_OUTPUT_MAX);
    if (gateway_keys_run(fd, &out, &err) == 0) {
        write_all(fd, "K", 1);
        write_all(fd, out.data, out.len);
    } else {
        write_all(fd, "E", 1);
        write_all(fd, err.msg, strlen(err.msg));
    }
    secret_wipe(out.data, out.len);
    _exit(0);
}

static int
read_answer(int fd, const atomic_bool *cancel, struct buf *out, struct err *err)
{
    int64_t end = clock_mono_ns() + TIME_LIMIT + 5 * NS_PER_S;
    while (fd >= 0) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        if (atomic_load(cancel))
            return err_set(err, ERR_CANCELED, "the gateway ends");
        if (clock_mono_ns() >= end)
            return err_set(err, ERR_STORE_DENIED, "the launcher does not answer");
        if (poll(&ready, 1, POLL_MS) <= 0)
            continue;
        if (take(&fd, out, true, err) < 0) {
            (void)close(fd);
            return -1;
        }
    }
    return 0;
}

static int
ask_with(int control, int answer, const int *give, const atomic_bool *cancel, struct buf *out,
         struct err *err)
{
    struct err own = ERR_INIT;
    int sent = gateway_fdpass_send(control, "K", 1, give, 1, &own);
    (void)close(*give);
    if (sent < 0) {
        (void)close(answer);
        return err_set(err, ERR_STORE_DENIED, "the launcher is gone, restart the gateway: %s",
                       own.msg);
    }
    return read_answer(answer, cancel, out, err);
}

int
gateway_keys_ask(void *control, const atomic_bool *cancel, struct buf *out, struct err *err)
{
    int pipe_fds[2];
    scope_buf text;
    buf_init(&text, CREDENTIALS_OUTPUT_MAX + 1);
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return err_sys(err, errno, "cannot ask the launcher");
    int result = ask_with(*(const int *)control, pipe_fds[0], &pipe_fds[1], cancel, &text, err);
    if (result == 0 && text.len > 1 && text.data[0] == 'K')
        result = buf_append(out, text.data + 1, text.len - 1, err);
    else if (result == 0)
        result = err_set(err, ERR_STORE_DENIED, "%s",
                         text.len > 1 ? text.data + 1 : "the launcher gave no answer");
    secret_wipe(text.data, text.len);
    return result;
}
