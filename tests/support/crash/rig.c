#include "support/crash/rig.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/sys.h"
#include "s3/open.h"

static atomic_uint broken;

void
rig_die(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    flockfile(stdout);
    (void)fputs("TROUBLE: ", stdout);
    (void)vprintf(fmt, args);
    (void)fputs("\n", stdout);
    funlockfile(stdout);
    va_end(args);
    (void)fflush(stdout);
    _exit(RIG_STATUS_TROUBLE);
}

void
rig_break(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    atomic_fetch_add(&broken, 1);
    flockfile(stdout);
    (void)fputs("BROKEN: ", stdout);
    (void)vprintf(fmt, args);
    (void)fputs("\n", stdout);
    funlockfile(stdout);
    va_end(args);
    (void)fflush(stdout);
}

unsigned
rig_broken(void)
{
    return atomic_load(&broken);
}

const char *
rig_env(const char *name)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): only children that have one thread set any */
    return getenv(name);
}

/* ---- random numbers ---- */

uint64_t
rig_random(struct rig_random *random)
{
    uint64_t z = (random->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t
rig_below(struct rig_random *random, uint64_t below)
{
    return rig_random(random) % below;
}

bool
rig_once_in(struct rig_random *random, unsigned n)
{
    return rig_below(random, n) == 0;
}

uint64_t
rig_seed(void)
{
    uint64_t seed;
    const char *given = rig_env("HOLDFAST_SEED");
    if (given != NULL && parse_u64(given, &seed))
        return seed;
    return (uint64_t)clock_wall_ns() / 1000 % 1000000007u;
}

/* ---- places ---- */

static void
join(char *out, const char *dir, const char *name)
{
    if (snprintf(out, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
        rig_die("path too long: %s/%s", dir, name);
}

static void
make_dir(const char *path)
{
    if (mkdir(path, 0700) != 0)
        rig_die("mkdir %s: %m", path);
}

void
rig_at(struct rig *rig, const char *dir, const char *name)
{
    join(rig->dir, dir, name);
    make_dir(rig->dir);
    join(rig->state, rig->dir, "state");
    join(rig->bucket, rig->dir, "bucket");
}

void
rig_make(struct rig *rig)
{
    char made[PATH_MAX];
    const char *tmp = rig_env("TMPDIR");
    join(made, tmp != NULL && tmp[0] == '/' ? tmp : "/tmp", "holdfast-crash.XXXXXX");
    if (mkdtemp(made) == NULL || realpath(made, rig->dir) == NULL)
        rig_die("mkdtemp %s: %m", made);
    join(rig->state, rig->dir, "state");
    join(rig->bucket, rig->dir, "bucket");
    make_dir(rig->state);
    make_dir(rig->bucket);
}

static int
remove_one(const char *path, const struct stat *st, int what, struct FTW *where)
{
    (void)st;
    (void)what;
    (void)where;
    return remove(path);
}

void
rig_delete(const char *path)
{
    struct stat st;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread */
    if (lstat(path, &st) == 0 && nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS) != 0)
        rig_die("cannot remove %s: %m", path);
}

void
rig_remove(const struct rig *rig)
{
    rig_delete(rig->dir);
}

void
rig_copy(const char *from, const char *to)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)execlp("cp", "cp", "-a", "--", from, to, (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || rig_wait(pid, 120) != 0)
        rig_die("cannot copy %s to %s", from, to);
}

/* ---- the service ---- */

struct store *
rig_store(const struct rig *rig)
{
    struct err err = ERR_INIT;
    struct store *store = file_store_open(rig->bucket, &err);
    if (store == NULL)
        rig_die("file store: %s", err.msg);
    return store;
}

/* ---- a store that outlives the service ---- */

struct borrowed {
    struct store store;
    struct store *inner;
};

static struct store *
inner_of(struct store *store)
{
    return ((struct borrowed *)store)->inner;
}

static int
borrow_head(struct store *store, const char *key, int64_t deadline_ns, struct store_object *out,
            struct err *err)
{
    return store_head(inner_of(store), key, deadline_ns, out, err);
}

static int
borrow_get(struct store *store, const struct store_get *req, struct store_object *out,
           struct err *err)
{
    return store_get(inner_of(store), req, out, err);
}

static int
borrow_put(struct store *store, const struct store_put *req, struct store_put_result *res,
           struct err *err)
{
    return store_put(inner_of(store), req, res, err);
}

static int
borrow_del(struct store *store, const struct store_delete *req, enum store_outcome *outcome,
           struct err *err)
{
    return store_delete(inner_of(store), req, outcome, err);
}

static int
borrow_copy(struct store *store, const struct store_copy *req, struct store_put_result *res,
            struct err *err)
{
    return store_copy(inner_of(store), req, res, err);
}

static int
borrow_list(struct store *store, const struct store_list *req, struct err *err)
{
    return store_list(inner_of(store), req, err);
}

static int
borrow_presign(struct store *store, const struct store_presign *req, struct buf *url,
               struct err *err)
{
    return store_presign(inner_of(store), req, url, err);
}

static int
borrow_probe(struct store *store, struct store_caps *caps, struct err *err)
{
    if (store_probe(inner_of(store), err) != 0)
        return -1;
    *caps = inner_of(store)->caps;
    return 0;
}

static void
borrow_counters(struct store *store, struct store_counters *out)
{
    store_counters(inner_of(store), out);
}

static void
borrow_free(struct store *store)
{
    free(store);
}

struct store *
rig_borrow(struct store *inner)
{
    static const struct store_ops ops = { .name = "borrowed",
                                          .head = borrow_head,
                                          .get = borrow_get,
                                          .put = borrow_put,
                                          .del = borrow_del,
                                          .copy = borrow_copy,
                                          .list = borrow_list,
                                          .presign = borrow_presign,
                                          .probe = borrow_probe,
                                          .counters = borrow_counters,
                                          .free = borrow_free };
    struct borrowed *borrowed = calloc(1, sizeof(*borrowed));
    if (borrowed == NULL)
        rig_die("out of memory");
    borrowed->store.ops = &ops;
    borrowed->store.caps = inner->caps;
    borrowed->inner = inner;
    (void)snprintf(borrowed->store.url, sizeof(borrowed->store.url), "%s", inner->url);
    return &borrowed->store;
}

struct volume_service *
rig_open(const char *state, struct store *store, struct err *err)
{
    struct volume_service_args args = { .state_dir = state,
                                        .store = store,
                                        .cache = { .max_bytes = 1u << 30,
                                                   .reserve_bytes = 1u << 16 },
                                        .list_ttl_ns = 200 * NS_PER_MS,
                                        .upload_threads = 3,
                                        .fetch_threads = 2,
                                        .sync_open_ns = 300 * NS_PER_MS,
                                        .sync_rest_ns = 50 * NS_PER_MS };
    struct volume_service *service = volume_service_open(&args, err);
    if (service == NULL)
        return NULL;
    if (volume_service_start(service, err) == 0)
        return service;
    volume_service_close(service, 0);
    return NULL;
}

void
rig_close(struct volume_service *service)
{
    volume_service_close(service, clock_mono_ns() + 5 * NS_PER_S);
}

int64_t
rig_volume(struct volume_service *service, const char *name)
{
    struct volume_info info;
    struct err err = ERR_INIT;
    struct volume_settings settings = { .name = name };
    if (volume_find(service, name, &info, &err) == 0)
        return info.id;
    if (err.code != ERR_NOT_FOUND || volume_create(service, &settings, &info, &err) != 0)
        rig_die("volume '%s': %s", name, err.msg);
    return info.id;
}

struct volume_ctx
rig_ctx(int64_t connection)
{
    return (struct volume_ctx){
        .actor = "mount", .run = "", .connection = connection, .uid = 1000, .gid = 1000
    };
}

/* ---- processes ---- */

/* NOLINTBEGIN(concurrency-mt-unsafe): a child of one thread */
static void
set_child_env(const char *const *env)
{
    const char *asan = rig_env("ASAN_OPTIONS");
    char text[512];
    /* The preloaded library comes before the sanitizer's; it needs nothing from it. Leaks of a killed program are none. */
    (void)snprintf(text, sizeof(text), "%s:verify_asan_link_order=0", asan == NULL ? "" : asan);
    (void)setenv("ASAN_OPTIONS", text, 1);
    (void)setenv("LD_PRELOAD", CRASH_IO_LIBRARY, 1);
    for (; *env != NULL; env++) {
        const char *equals = strchr(*env, '=');
        char name[64];
        (void)snprintf(name, sizeof(name), "%.*s", (int)(equals - *env), *env);
        (void)setenv(name, equals + 1, 1);
    }
}
/* NOLINTEND(concurrency-mt-unsafe) */

pid_t
rig_spawn(const char *const *args, const char *const *env)
{
    char *argv[16] = { NULL };
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len <= 0)
        rig_die("readlink: %m");
    self[len] = '\0';
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        rig_die("fork: %m");
    if (pid > 0)
        return pid;
    argv[0] = self;
    for (size_t i = 0; args[i] != NULL && i < 14; i++)
        argv[i + 1] = strdup(args[i]);
    set_child_env(env);
    (void)execv(self, argv);
    _exit(127);
}

int
rig_wait(pid_t pid, unsigned seconds)
{
    int status = 0;
    for (unsigned ms = 0; ms < seconds * 1000; ms += ms < 50 ? 1 : 10) {
        pid_t done = waitpid(pid, &status, WNOHANG);
        if (done == pid)
            return status;
        if (done < 0 && errno != EINTR)
            rig_die("waitpid: %m");
        clock_sleep_ns((ms < 50 ? 1 : 10) * NS_PER_MS);
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    return -1;
}
