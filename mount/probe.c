#include "mount/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/scope.h"

struct answer {
    int error;
    struct stat st;
};

/* In the forked process: async-signal-safe calls only. */
static void
ask(const char *path, int to)
{
    struct answer answer = { 0 };
    struct statx seen;
    if (to > 0)
        (void)close_range(0, (unsigned)to - 1, 0);
    (void)close_range((unsigned)to + 1, ~0u, 0);
    /* Asks the server: what the kernel remembers would also be told of a dead mount. */
    if (statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &seen) < 0) {
        answer.error = errno;
    } else {
        answer.st.st_dev = makedev(seen.stx_dev_major, seen.stx_dev_minor);
        answer.st.st_ino = seen.stx_ino;
        answer.st.st_mode = seen.stx_mode;
    }
    (void)!write(to, &answer, sizeof(answer));
    _exit(0);
}

/* Forks twice, so that nobody has to wait for a process that hangs: init reaps it. */
static int
start(const char *path, int to)
{
    int status;
    pid_t pid = fork();
    if (pid < 0)
        return -1;
    if (pid == 0) {
        pid_t second = fork();
        if (second == 0)
            ask(path, to);
        _exit(second < 0 ? 1 : 0);
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return errno == ECHILD
                       ? 0
                       : -1; /* somebody else reaps our children: the answer will tell */
    }
    errno = EAGAIN;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* Answers 1 with an answer, 0 when none came in time. */
static int
await(int from, int64_t deadline_ns, struct answer *out)
{
    for (;;) {
        int64_t left = deadline_ns - clock_mono_ns();
        struct pollfd pfd = { .fd = from, .events = POLLIN };
        int got = poll(&pfd, 1, left > 0 ? (int)(left / NS_PER_MS) + 1 : 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        return read(from, out, sizeof(*out)) == (ssize_t)sizeof(*out);
    }
}

int
probe_stat(const char *path, int64_t wait_ns, struct stat *out, struct err *err)
{
    int ends[2];
    struct answer answer;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, errno, "pipe");
    scope_fd int from = ends[0];
    scope_fd int to = ends[1];
    if (start(path, to) < 0)
        return err_sys(err, errno, "fork");
    scope_close_fd(&to);
    to = -1;
    if (!await(from, clock_mono_ns() + wait_ns, &answer))
        return err_set(err, ERR_BUSY, "'%s' does not answer: a mount that hangs is in the way",
                       path);
    if (answer.error != 0)
        return err_sys(err, answer.error, "'%s'", path);
    *out = answer.st;
    return 0;
}
