#include "gateway/takeover.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "gateway/exchange.h"
#include "gateway/gateway.h"
#include "gateway/listen.h"
#include "mount/mount.h"

#define SOCKET_NAME "mounter.sock"
#define TURN_NS (10 * NS_PER_S) /* a dead gateway's process ends within that time */
#define FOREIGN_NS \
    (90 * NS_PER_S) /* a mounter of another version ends by itself within that time */

static bool
is_service(void)
{
    return secure_getenv("INVOCATION_ID") != NULL && getppid() == 1; /* systemd.exec(5) */
}

int
gateway_takeover_mode(const struct config *config, enum gateway_takeover *out, struct err *err)
{
    const char *word = config_str(config, "takeover");
    const char *obstacle = mount_takeover_obstacle();
    if (strcmp(word, "auto") == 0)
        *out = is_service() ? GATEWAY_TAKEOVER_WAIT : GATEWAY_TAKEOVER_RESPAWN;
    else if (strcmp(word, "respawn") == 0)
        *out = GATEWAY_TAKEOVER_RESPAWN;
    else if (strcmp(word, "wait") == 0)
        *out = GATEWAY_TAKEOVER_WAIT;
    else if (strcmp(word, "off") == 0)
        *out = GATEWAY_TAKEOVER_OFF;
    else
        return err_set(err, ERR_USAGE, "takeover is respawn, wait, off or auto, not '%s'", word);
    if (geteuid() != 0 || obstacle[0] != '\0')
        *out = GATEWAY_TAKEOVER_OFF;
    return 0;
}

static int
socket_path(const char *state_dir, char *out, size_t size, struct err *err)
{
    int len = snprintf(out, size, "%s/" SOCKET_NAME, state_dir);
    if (len < 0 || (size_t)len >= size)
        return err_set(err, ERR_USAGE, "the state directory's path is too long");
    return 0;
}

/* A mounter of another build cannot be spoken to; it ends when nobody came to it in time. */
static int
connect_living(const char *path, int *socket_out, struct err *err)
{
    int64_t until = clock_mono_ns() + FOREIGN_NS;
    bool told = false;
    for (;;) {
        struct err why = ERR_INIT;
        if (mounter_connect(path, clock_mono_ns() + TURN_NS, socket_out, &why) == 0)
            return 0;
        if (why.code != ERR_INTERNAL || clock_mono_ns() >= until) {
            *err = why;
            return -1;
        }
        if (!told)
            log_warn(gateway, "waiting for a mounter of another version to end");
        told = true;
        clock_sleep_ns(200 * NS_PER_MS);
    }
}

static int
start_new(struct gateway_takeover_mounter *m, const char *path, struct err *err)
{
    int64_t wait = config_duration(m->config, "mount.wait");
    scope_fd int listen = -1;
    if (m->mode != GATEWAY_TAKEOVER_OFF && wait > 0) {
        listen = gateway_listen_unix(path, SOCK_SEQPACKET, err);
        if (listen < 0)
            return -1;
    }
    struct mounter_spawn args = { .exe_path = m->program,
                                  .default_parent = config_str(m->config, "mount.parent"),
                                  .listen = listen,
                                  .wait_s = (unsigned)((wait + NS_PER_S - 1) / NS_PER_S),
                                  .owner = m->user->uid };
    return mounter_spawn(&args, &m->socket, &m->pid, err);
}

int
gateway_takeover_mounter(struct gateway_takeover_mounter *m, struct err *err)
{
    char path[PATH_MAX];
    struct err why = ERR_INIT;
    m->carried = false;
    m->pid = 0;
    if (socket_path(m->state_dir, path, sizeof(path), err) < 0)
        return -1;
    if (connect_living(path, &m->socket, &why) == 0) {
        m->carried = true;
        return 0;
    }
    if (why.code == ERR_NOT_FOUND || why.code == ERR_NAME_TOO_LONG)
        return start_new(m, path, err);
    *err = why;
    return -1;
}

static json_t *
counts_json(const uint64_t counts[MOUNT_OPCODES])
{
    json_t *out = json_object();
    for (unsigned i = 0; out && i < MOUNT_OPCODES; i++) {
        if (counts[i] > 0)
            (void)json_object_set_new(out, mount_opcode_name(i),
                                      json_integer((json_int_t)counts[i]));
    }
    return out;
}

json_t *
gateway_takeover_json(const struct gateway *gateway)
{
    static const char *const modes[] = { "off", "wait", "respawn" };
    struct mount_takeovers takeovers = { .count = 0 };
    const char *why = "this gateway cannot mount";
    if (gateway->mounts)
        mount_service_takeovers(gateway->mounts, &takeovers, &why);
    if (why[0] == '\0' && gateway->takeover == GATEWAY_TAKEOVER_OFF)
        why = "switched off (takeover=off)";
    return json_pack("{s:b, s:s, s:s, s:I, s:I, s:o, s:o}", "possible", (int)(why[0] == '\0'),
                     "why", why, "mode", modes[gateway->takeover], "count",
                     (json_int_t)takeovers.count, "met", (json_int_t)takeovers.met, "resent",
                     counts_json(takeovers.resent), "replayed", counts_json(takeovers.replayed));
}

int
gateway_takeover_check(const char *state_dir, struct err *err)
{
    char path[PATH_MAX];
    struct err why = ERR_INIT;
    int socket = -1;
    if (socket_path(state_dir, path, sizeof(path), err) < 0)
        return -1;
    if (mounter_connect(path, 0, &socket, &why) == 0)
        (void)close(socket);
    if (why.code != ERR_INTERNAL)
        return 0; /* taken by the old gateway, or there is none */
    *err = why;
    return -1;
}

int
gateway_takeover_upgrade(struct exchange *x, struct err *err)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    static bool leaving;
    if (x->gateway->takeover == GATEWAY_TAKEOVER_OFF)
        return err_set(err, ERR_UNSUPPORTED,
                       "no takeover here (see 'holdfast doctor'): restart the gateway instead");
    scope_unlock pthread_mutex_t *held = scope_lock(&once);
    (void)held;
    if (leaving)
        return err_set(err, ERR_BUSY, "an upgrade is under way");
    if (x->gateway->takeover == GATEWAY_TAKEOVER_RESPAWN &&
        gateway_guard_upgrade(x->gateway->guard, err) < 0)
        return -1;
    json_t *answer = json_pack("{s:i, s:s}", "pid", (int)getpid(), "version", HOLDFAST_VERSION);
    if (exchange_reply_json(x, 202, answer, err) < 0)
        return -1;
    leaving = true;
    /* The main thread waits for signals; it gives this answer time to leave. */
    return kill(getpid(), SIGUSR2) < 0 ? err_sys(err, errno, "end for the next gateway") : 0;
}

void
gateway_takeover_forget(const char *state_dir)
{
    char path[PATH_MAX];
    struct err ignored = ERR_INIT;
    if (socket_path(state_dir, path, sizeof(path), &ignored) == 0)
        (void)unlink(path);
}
