#include "gateway/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "base/sys.h"
#include "base/ticker.h"
#include "base/ulid.h"
#include "gateway/gateway.h"
#include "gateway/guard.h"
#include "gateway/keys.h"
#include "gateway/launcher.h"
#include "gateway/listen.h"
#include "gateway/privilege.h"
#include "gateway/server.h"
#include "gateway/settings.h"
#include "gateway/share.h"
#include "gateway/takeover.h"
#include "s3/open.h"
#include "s3/url.h"

#define FILES_WANTED 65536

#define LOCK_PATIENCE_NS (30 * NS_PER_S) /* for a gateway that is ending */
#define LAST_ANSWERS_NS (200 * NS_PER_MS)
#define EXIT_AGAIN 75 /* for a service manager: start me again (sysexits.h, EX_TEMPFAIL) */

/* What a gateway is started with; the guard starts the next one with the same. */
struct start {
    const struct config *config;
    const char *program;
    enum gateway_takeover takeover;
    bool again; /* after a death */
    int heir;   /* >= 0: an upgrade has started us */
};

struct daemon {
    struct start *start;
    struct gateway_guard *guard;
    const struct config *config;
    int lock_fd;
    bool carried; /* the mounter lived already */
    struct mount_carried *carried_mounts;
    char state[PATH_MAX];
    char store_url[PATH_MAX];
    char ca_file[PATH_MAX]; /* of --store-ca, absolute; "" for none */
    struct gateway_user user;
    int mounter;
    pid_t mounter_pid;
    struct gateway_launcher launcher;
    struct gateway gateway;
    struct gateway_server *local;
    struct gateway_server *tcp;
    char local_path[PATH_MAX];
    char launcher_path[PATH_MAX];
};

/* ---- places ---- */
static int
path_in(const char *dir, const char *name, char *out, size_t size, struct err *err)
{
    int len = snprintf(out, size, "%s/%s", dir, name);
    if (len < 0 || (size_t)len >= size)
        return err_set(err, ERR_USAGE, "the path '%.64s...' is too long", dir);
    return 0;
}

int
gateway_daemon_store_url(const struct config *config, const char *state_dir, char *out, size_t size,
                         struct err *err)
{
    const char *given = config_str(config, "store.url");
    int len = given && given[0] != '\0' ? snprintf(out, size, "%s", given)
                                        : snprintf(out, size, "file://%s/bucket", state_dir);
    if (len < 0 || (size_t)len >= size)
        return err_set(err, ERR_USAGE, "the store's URL is too long");
    return 0;
}

/* The directory of a file: store, or NULL. */
static const char *
store_dir(const char *url)
{
    return strncmp(url, "file://", 7) == 0 ? url + 7 : NULL;
}

static int
prepare_places(struct daemon *d, struct err *err)
{
    char given[PATH_MAX];
    if (gateway_settings_state(d->config, given, sizeof(given), err) < 0 ||
        gateway_privilege_own(given, &d->user, err) < 0)
        return -1;
    if (!realpath(given, d->state))
        return err_sys(err, errno, "cannot find the state directory '%s'", given);
    if (gateway_daemon_store_url(d->config, d->state, d->store_url, sizeof(d->store_url), err) < 0)
        return -1;
    const char *ca_file = config_str(d->config, "store.ca");
    if (ca_file && *ca_file && !realpath(ca_file, d->ca_file))
        return err_sys(err, errno, "cannot find the file of authorities '%s'", ca_file);
    const char *dir = store_dir(d->store_url);
    if (dir && dir[0] == '/' && gateway_privilege_own(dir, &d->user, err) < 0)
        return err_wrap(err, "store");
    return path_in(d->state, "holdfast.sock", d->local_path, sizeof(d->local_path), err) < 0 ||
                   path_in(d->state, "launcher.sock", d->launcher_path, sizeof(d->launcher_path),
                           err) < 0
               ? -1
               : 0;
}

/* ---- helpers with other rights ---- */
static bool
find_mounter(const char *program, char *out, size_t size)
{
    static const char *const places[] = { "holdfast-mounter",
                                          "../libexec/holdfast/holdfast-mounter" };
    const char *named = secure_getenv("HOLDFAST_MOUNTER");
    const char *slash = strrchr(program, '/');
    if (named && named[0] == '/') {
        (void)snprintf(out, size, "%s", named);
        return access(out, X_OK) == 0;
    }
    for (size_t i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
        (void)snprintf(out, size, "%.*s/%s", (int)(slash - program), program, places[i]);
        if (access(out, X_OK) == 0)
            return true;
    }
    return false;
}

static int
start_mounter(struct daemon *d, const char *program, struct err *err)
{
    char path[PATH_MAX];
    d->mounter = -1;
    if (geteuid() != 0)
        return 0;
    if (!find_mounter(program, path, sizeof(path))) {
        log_warn(gateway,
                 "holdfast-mounter is not installed beside '%s': this gateway cannot mount",
                 program);
        return 0;
    }
    struct gateway_takeover_mounter mounter = { .config = d->config,
                                                .mode = d->start->takeover,
                                                .state_dir = d->state,
                                                .program = path,
                                                .user = &d->user };
    if (gateway_takeover_mounter(&mounter, err) < 0)
        return -1;
    d->mounter = mounter.socket;
    d->mounter_pid = mounter.pid;
    d->carried = mounter.carried;
    return 0;
}

/* An heir waits until the gateway whose place it takes has ended; from "ready" on that happens. */
static int
take_lock(struct daemon *d, struct err *err)
{
    bool patient = d->start->again || d->start->heir >= 0;
    if (d->start->heir >= 0 && gateway_takeover_check(d->state, err) < 0)
        return -1;
    gateway_guard_heir_ready(d->start->heir);
    if (volume_state_lock(d->state, patient ? clock_mono_ns() + LOCK_PATIENCE_NS : 0, &d->lock_fd,
                          err) < 0)
        return -1;
    if (geteuid() == 0 && fchown(d->lock_fd, d->user.uid, d->user.gid) < 0)
        return err_sys(err, errno, "cannot give the lock to user '%s'", d->user.name);
    return 0;
}

/* ca=FILE of the store's URL, "" when it has none. */
static void
ca_of_url(const char *text, char *out, size_t size)
{
    struct url url;
    struct err ignored = ERR_INIT;
    out[0] = '\0';
    if (url_parse(text, &url, &ignored) < 0)
        return;
    const char *file = url_param(&url, "ca");
    (void)snprintf(out, size, "%s", file ? file : "");
    url_release(&url);
}

/* Root's child became somebody else; an ordinary user needs fusermount3 and its set-uid bit, which no_new_privs takes away. */
static void
give_up_privilege(struct daemon *d, bool was_root)
{
    char url_ca[PATH_MAX];
    const char *writable[] = { d->state, store_dir(d->store_url), NULL };
    const char *readable[] = { d->ca_file, url_ca, NULL };
    ca_of_url(d->store_url, url_ca, sizeof(url_ca));
    if (was_root && config_bool(d->config, "harden"))
        gateway_privilege_harden(writable, readable, d->gateway.hardening,
                                 sizeof(d->gateway.hardening));
    else
        (void)snprintf(
            d->gateway.hardening, sizeof(d->gateway.hardening), "user %u, %s", (unsigned)geteuid(),
            was_root ? "hardening is switched off" : "not hardened: started without root");
    log_info(gateway, "%s", d->gateway.hardening);
}

/* Connections, live files and mounts each hold some. */
static void
raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max < FILES_WANTED ? limit.rlim_max : FILES_WANTED;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* A directory above may be closed to the user that we are now. */
static int
check_reach(const struct daemon *d, const char *dir, struct err *err)
{
    if (!dir || access(dir, R_OK | W_OK | X_OK) == 0)
        return 0;
    if (errno != EACCES)
        return err_sys(err, errno, "cannot write to '%s'", dir);
    return err_set(err, ERR_DENIED,
                   "user '%s' may not write to '%s', or not enter a directory above it: choose "
                   "another place, change the rights, or give --user",
                   d->user.name, dir);
}

static int
become_gateway(struct daemon *d, const char *program, struct err *err)
{
    bool was_root = geteuid() == 0;
    const char *listen = config_str(d->config, "http.listen");
    if (strcmp(listen, "none") != 0 && gateway_listen_check(listen, err) < 0)
        return -1;
    if (gateway_privilege_user(config_str(d->config, "user"), &d->user, err) < 0 ||
        prepare_places(d, err) < 0)
        return -1;
    raise_file_limit();
    if (gateway_keys_prepare(err) < 0)
        return -1;
    if (chdir("/") < 0)
        return err_sys(err, errno, "cannot leave the working directory");
    if (take_lock(d, err) < 0 || start_mounter(d, program, err) < 0 ||
        gateway_launcher_start(&d->user, d->state, &d->launcher, err) < 0 ||
        gateway_privilege_drop(&d->user, err) < 0)
        return -1;
    if (check_reach(d, d->state, err) < 0 || check_reach(d, store_dir(d->store_url), err) < 0)
        return -1;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no thread exists yet */
    (void)setenv("SQLITE_TMPDIR", d->state, 1);
    (void)prctl(PR_SET_DUMPABLE, 0);
    give_up_privilege(d, was_root);
    return 0;
}

/* ---- the product ---- */
static int
open_volumes(struct daemon *d, struct err *err)
{
    const struct config *c = d->config;
    const struct store_open_args store_args = {
        .url = d->store_url,
        .process = gateway_keys_ask,
        .process_arg = &d->launcher.control,
        .provider = config_str(c, "store.provider"),
        .ca_file = d->ca_file[0] ? d->ca_file : NULL,
        .limits = { .requests_per_s = config_uint(c, "store.limit-requests"),
                    .bytes_up_per_s = config_uint(c, "store.limit-up"),
                    .bytes_down_per_s = config_uint(c, "store.limit-down") },
    };
    struct store *store = store_open(&store_args, err);
    if (!store)
        return -1;
    struct volume_service_args args = {
        .state_dir = d->state,
        .lock_fd = d->lock_fd,
        .carried = mount_carried_opens(d->carried_mounts),
        .store = store,
        .cache = { .max_bytes = config_uint(c, "cache.size"),
                   .floor_bytes = config_uint(c, "cache.floor"),
                   .reserve_bytes = config_uint(c, "cache.reserve") },
        .upload_threads = (unsigned)config_uint(c, "store.threads"),
        .fetch_threads = (unsigned)config_uint(c, "store.threads"),
        .list_ttl_ns = config_duration(c, "store.list-ttl"),
        .change_log_ns = config_duration(c, "store.change-log"),
        .sync_rest_ns = config_duration(c, "sync.rest"),
        .sync_open_ns = config_duration(c, "sync.open"),
        .offline_start = config_bool(c, "store.offline-start"),
    };
    d->lock_fd = -1;
    d->gateway.service = volume_service_open(&args, err);
    return d->gateway.service ? 0 : -1;
}

static int
open_mounts(struct daemon *d, bool was_root, struct err *err)
{
    if (was_root && d->mounter < 0)
        return 0;
    struct mount_service_args args = { .volumes = d->gateway.service,
                                       .mounter = d->mounter,
                                       .mounter_pid = d->mounter_pid,
                                       .carried = d->carried_mounts,
                                       .state_dir = d->state,
                                       .default_parent = config_str(d->config, "mount.parent") };
    d->mounter = -1;
    d->carried_mounts = NULL;
    d->gateway.mounts = mount_service_open(&args, err);
    if (!d->gateway.mounts)
        return -1;
    mount_service_adopt(d->gateway.mounts);
    return 0;
}

static int
open_product(struct daemon *d, bool was_root, struct err *err)
{
    if (d->carried) {
        d->carried_mounts = mount_carried_load(d->mounter, err);
        if (!d->carried_mounts)
            return -1;
    }
    if (open_volumes(d, err) < 0 || open_mounts(d, was_root, err) < 0 ||
        !(d->gateway.feed = feed_open(d->gateway.service, d->state, err)) ||
        volume_service_start(d->gateway.service, err) < 0)
        return -1;
    return d->gateway.mounts ? mount_service_restore(d->gateway.mounts, err) : 0;
}

/* ---- faces ---- */
static int
make_token(struct daemon *d, struct err *err)
{
    uint8_t random[(GATEWAY_TOKEN_SIZE - 1) / 2];
    size_t len = 0;
    scope_fd int dir = open(d->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scope_free char *text = NULL;
    struct err missing = ERR_INIT;
    if (dir < 0)
        return err_sys(err, errno, "cannot open '%s'", d->state);
    if (sys_read_file(dir, "token", 256, &text, &len, &missing) == 0) {
        while (len > 0 && text[len - 1] == '\n')
            text[--len] = '\0';
        if (len == GATEWAY_TOKEN_SIZE - 1) {
            memcpy(d->gateway.token, text, len + 1);
            return 0;
        }
    }
    if (random_bytes(random, sizeof(random), err) < 0)
        return -1;
    hex_encode(random, sizeof(random), d->gateway.token);
    return sys_replace_file(dir, "token", d->gateway.token, GATEWAY_TOKEN_SIZE - 1, 0600, err);
}

static int
start_tcp(struct daemon *d, struct err *err)
{
    const char *address = config_str(d->config, "http.listen");
    if (strcmp(address, "none") == 0)
        return 0;
    int fd = gateway_listen_tcp(address, &d->gateway.port, err);
    if (fd < 0)
        return -1;
    struct gateway_server_args args = { .gateway = &d->gateway, .listen_fd = fd };
    d->tcp = gateway_server_start(&args, err);
    return d->tcp ? 0 : -1;
}

static int
start_local(struct daemon *d, struct err *err)
{
    scope_fd int launcher = gateway_listen_unix(d->launcher_path, SOCK_SEQPACKET, err);
    if (launcher < 0 || gateway_launcher_listen(&d->launcher, launcher, err) < 0)
        return -1;
    int fd = gateway_listen_unix(d->local_path, SOCK_STREAM, err);
    if (fd < 0)
        return -1;
    struct gateway_server_args args = {
        .gateway = &d->gateway, .listen_fd = fd, .local = true, .peer_uid = d->user.uid
    };
    d->local = gateway_server_start(&args, err);
    return d->local ? 0 : -1;
}

static int
open_faces(struct daemon *d, struct err *err)
{
    d->gateway.state_dir = d->state;
    d->gateway.hosts = config_str(d->config, "http.hosts");
    d->gateway.started_ns = clock_wall_ns();
    d->gateway.uid = geteuid();
    d->gateway.gid = getegid();
    d->gateway.sweeper = gateway_share_sweeper(&d->gateway, err);
    if (!d->gateway.sweeper || make_token(d, err) < 0 || start_tcp(d, err) < 0)
        return -1;
    return start_local(d, err);
}

static void
say_ready(const struct daemon *d)
{
    const char *address = config_str(d->config, "http.listen");
    if (d->tcp)
        (void)fprintf(stderr, "holdfast: ready at http://%.*s:%u (state %s, store %s)\n",
                      (int)(strrchr(address, ':') - address), address, d->gateway.port, d->state,
                      d->store_url);
    else
        (void)fprintf(stderr, "holdfast: ready at %s (store %s)\n", d->local_path, d->store_url);
}

/* ---- the end ---- */
/* True: leave the place to the next gateway, which is on its way. */
static bool
wait_for_end(const sigset_t *signals)
{
    int signal_number;
    for (;;) {
        if (sigwait(signals, &signal_number) != 0)
            return false;
        if (signal_number != SIGHUP)
            break;
    }
    if (signal_number != SIGUSR2)
        log_info(gateway, "ending on signal %d", signal_number);
    return signal_number == SIGUSR2;
}

/* As after a death, but for the answers under way: what is not synced is journaled, what is mounted waits for the next one. */
static _Noreturn void
hand_over(const struct daemon *d)
{
    if (d->tcp)
        gateway_server_quiesce(d->tcp);
    gateway_server_quiesce(d->local);
    clock_sleep_ns(LAST_ANSWERS_NS);
    log_info(gateway, "handing over to the next gateway");
    gateway_guard_hand_over(d->guard);
    _exit(d->guard->control >= 0 ? 0 : EXIT_AGAIN);
}

static void
last_flush(const struct daemon *d, int64_t deadline)
{
    struct err err = ERR_INIT;
    struct volume_barrier barrier = { 0 };
    if (volume_flush(d->gateway.service, 0, deadline, &barrier, &err) < 0 &&
        err.code != ERR_CONFLICT)
        log_warn(
            gateway,
            "%llu changes are not in the bucket yet, they are kept and go on at the next start: %s",
            (unsigned long long)barrier.pending, err.msg);
}

static void
close_all(struct daemon *d, bool flush)
{
    int64_t deadline = clock_mono_ns() + config_duration(d->config, "sync.stop-timeout");
    if (d->tcp)
        gateway_server_quiesce(d->tcp);
    if (d->local)
        gateway_server_quiesce(d->local);
    if (flush)
        last_flush(d, deadline);
    feed_wake(d->gateway.feed);
    gateway_server_stop(d->tcp);
    gateway_server_stop(d->local);
    if (d->local)
        (void)unlink(d->local_path);
    ticker_stop(d->gateway.sweeper);
    mount_service_close(d->gateway.mounts, deadline);
    volume_service_close(d->gateway.service, deadline);
    feed_close(d->gateway.feed);
    if (d->launcher.control >= 0 && d->local)
        (void)unlink(d->launcher_path);
    gateway_launcher_stop(&d->launcher);
    mount_carried_free(d->carried_mounts);
    if (d->mounter >= 0)
        (void)close(d->mounter);
    if (flush && d->state[0] != '\0')
        gateway_takeover_forget(d->state);
    if (d->lock_fd >= 0)
        (void)close(d->lock_fd);
}

static void
block_signals(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGHUP);
    sigaddset(signals, SIGUSR2);
    (void)pthread_sigmask(SIG_BLOCK, signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

static int
run(struct start *start, struct gateway_guard *guard, struct err *err)
{
    sigset_t signals;
    struct daemon *d = calloc(1, sizeof(*d));
    bool was_root = geteuid() == 0;
    if (!d)
        return err_nomem(err);
    d->start = start;
    d->guard = d->gateway.guard = guard;
    d->gateway.takeover = start->takeover;
    d->config = start->config;
    d->mounter = d->lock_fd = -1;
    (void)umask(077);
    int rc = become_gateway(d, start->program, err);
    block_signals(&signals);
    if (rc == 0)
        rc = open_product(d, was_root, err);
    if (rc == 0)
        rc = open_faces(d, err);
    bool over = false;
    if (rc == 0) {
        say_ready(d);
        gateway_guard_ready(guard);
        gateway_guard_heir_serves(&start->heir);
        over = wait_for_end(&signals);
    }
    if (over)
        hand_over(d);
    close_all(d, rc == 0);
    free(d);
    return rc;
}

/* In a child of the guard. A start that fails is tried again: it may be the store that is away, or the disk that is full. */
static int
run_again(void *arg, struct gateway_guard *guard)
{
    struct err err = ERR_INIT;
    struct start start = *(const struct start *)arg;
    start.again = true;
    if (run(&start, guard, &err) < 0) {
        log_error(gateway, "the gateway cannot be started again: %s", err.msg);
        return 1;
    }
    gateway_guard_end(guard);
    return 0;
}

int
gateway_daemon_run(const struct config *config, const char *program, struct err *err)
{
    struct gateway_guard guard = { .control = -1 };
    struct start start = { .config = config, .program = program };
    start.heir = gateway_guard_heir();
    if (log_configure(config_str(config, "log.levels"), err) < 0 ||
        gateway_takeover_mode(config, &start.takeover, err) < 0)
        return -1;
    if (start.takeover == GATEWAY_TAKEOVER_RESPAWN &&
        gateway_guard_start(run_again, &start, &guard, err) < 0)
        return -1;
    int rc = run(&start, &guard, err);
    gateway_guard_end(&guard);
    return rc;
}
