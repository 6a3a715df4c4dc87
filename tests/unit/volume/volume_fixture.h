#ifndef TESTS_UNIT_VOLUME_VOLUME_FIXTURE_H
#define TESTS_UNIT_VOLUME_VOLUME_FIXTURE_H

/* What the tests of the volume share: a service over mem: with hooks around each request, and short forms of the calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "s3/open.h"
#include "volume/service_impl.h"

#define RUN_OK(err, call)                         \
    do {                                          \
        if ((call) != 0)                          \
            fail_msg("%s: %s", #call, (err).msg); \
    } while (0)

enum hook_op { HOOK_HEAD, HOOK_GET, HOOK_PUT, HOOK_DELETE, HOOK_COPY, HOOK_LIST, HOOK_OPS };

typedef int hook_get_fn(struct store *store, const struct store_get *req, struct store_object *out,
                        struct err *err);

/* A store around mem: that holds, fails or interrupts what the test says. */
struct hook_store {
    struct store base;
    atomic_int hold[HOOK_OPS];      /* calls wait while it is not 0 */
    atomic_int waiting[HOOK_OPS];   /* calls that wait */
    atomic_int fail[HOOK_OPS];      /* so many next calls do not reach the store; < 0: all */
    atomic_int fail_code[HOOK_OPS]; /* how they fail: an enum err_code, 0: as a store that is away */
    atomic_int count[HOOK_OPS];
    atomic_int lose[HOOK_OPS]; /* so many next answers get lost: it is done, and nobody knows */
    _Atomic(void (*)(enum hook_op op,
                     const char *key)) after; /* called once, before the answer is passed on */
    _Atomic(hook_get_fn *) get;               /* a test's own GET, before hook_get() */
    bool weak_delete;                         /* as RGW: DELETE and COPY ignore conditions */
    atomic_int list_pause_ms;                 /* before each entry of a listing */
    char placed[512]; /* how the last PUT of a file asked to be kept: "class encryption key" */
};

struct rig {
    char dir[128];
    struct store *mem;
    struct hook_store *hook;
    struct volume_service *service;
    struct volume_ctx ctx;
    int64_t volume, root;
    struct err err;
};
static struct rig rig;

static inline struct hook_store *
hook_of(struct store *store)
{
    return (struct hook_store *)(void *)store;
}

static inline bool
hook_fails(struct hook_store *hook, enum hook_op op, struct err *err)
{
    atomic_fetch_add(&hook->count[op], 1);
    while (atomic_load(&hook->hold[op]) != 0) {
        atomic_fetch_add(&hook->waiting[op], 1);
        while (atomic_load(&hook->hold[op]) != 0)
            clock_sleep_ns(NS_PER_MS);
        atomic_fetch_sub(&hook->waiting[op], 1);
    }
    int left = atomic_load(&hook->fail[op]);
    if (left == 0)
        return false;
    if (left > 0)
        atomic_fetch_sub(&hook->fail[op], 1);
    int code = atomic_load(&hook->fail_code[op]);
    if (code != 0)
        (void)err_set(err, (enum err_code)code, "the store refuses this");
    else
        (void)err_set(err, ERR_STORE_AWAY, "the store answers 503");
    return true;
}

static inline bool
hook_loses(struct hook_store *hook, enum hook_op op, struct err *err)
{
    if (atomic_load(&hook->lose[op]) == 0)
        return false;
    atomic_fetch_sub(&hook->lose[op], 1);
    (void)err_set(err, ERR_STORE_TIMEOUT, "no answer within the deadline");
    return true;
}

static inline void
hook_after(struct hook_store *hook, enum hook_op op, const char *key)
{
    void (*after)(enum hook_op, const char *) = atomic_load(&hook->after);
    if (after != NULL)
        after(op, key);
}

static inline int
hook_head(struct store *store, const char *key, int64_t deadline, struct store_object *out,
          struct err *err)
{
    struct hook_store *hook = hook_of(store);
    if (hook_fails(hook, HOOK_HEAD, err))
        return -1;
    int rc = store_head(rig.mem, key, deadline, out, err);
    hook_after(hook, HOOK_HEAD, key);
    return rc;
}

static inline int
hook_get(struct store *store, const struct store_get *req, struct store_object *out,
         struct err *err)
{
    if (hook_fails(hook_of(store), HOOK_GET, err))
        return -1;
    int rc = store_get(rig.mem, req, out, err);
    hook_after(hook_of(store), HOOK_GET, req->key);
    return rc;
}

static inline int
hook_get_any(struct store *store, const struct store_get *req, struct store_object *out,
             struct err *err)
{
    hook_get_fn *get = atomic_load(&hook_of(store)->get);
    return get != NULL ? get(store, req, out, err) : hook_get(store, req, out, err);
}

static inline int
hook_put(struct store *store, const struct store_put *req, struct store_put_result *res,
         struct err *err)
{
    struct hook_store *hook = hook_of(store);
    bool ours = strncmp(req->key, ".holdfast/", 10) == 0 &&
                strncmp(req->key, ".holdfast/conflicts/", 20) != 0 &&
                strncmp(req->key, ".holdfast/history/", 18) != 0;
    if (!ours && hook_fails(hook, HOOK_PUT, err)) {
        res->outcome = STORE_NOT_DONE;
        return -1;
    }
    int rc = store_put(rig.mem, req, res, err);
    const struct store_placement *placed = req->placement;
    static pthread_mutex_t placed_lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&placed_lock);
    if (!ours)
        (void)snprintf(hook->placed, sizeof(hook->placed), "%s %s %s",
                       placed && placed->storage_class ? placed->storage_class : "",
                       placed && placed->encryption ? placed->encryption : "",
                       placed && placed->kms_key_id ? placed->kms_key_id : "");
    pthread_mutex_unlock(&placed_lock);
    if (!ours)
        hook_after(hook, HOOK_PUT, req->key);
    if (!ours && hook_loses(hook, HOOK_PUT, err)) {
        res->outcome = STORE_UNKNOWN;
        return -1;
    }
    return rc;
}

static inline int
hook_del(struct store *store, const struct store_delete *req, enum store_outcome *outcome,
         struct err *err)
{
    struct hook_store *hook = hook_of(store);
    struct store_delete blind = *req;
    if (hook_fails(hook, HOOK_DELETE, err)) {
        *outcome = STORE_NOT_DONE;
        return -1;
    }
    if (hook->weak_delete)
        blind.if_match = NULL;
    int rc = store_delete(rig.mem, &blind, outcome, err);
    hook_after(hook, HOOK_DELETE, req->key);
    if (hook_loses(hook, HOOK_DELETE, err)) {
        *outcome = STORE_UNKNOWN;
        return -1;
    }
    return rc;
}

static inline int
hook_copy(struct store *store, const struct store_copy *req, struct store_put_result *res,
          struct err *err)
{
    struct hook_store *hook = hook_of(store);
    struct store_copy blind = *req;
    if (hook_fails(hook, HOOK_COPY, err)) {
        res->outcome = STORE_NOT_DONE;
        return -1;
    }
    if (hook->weak_delete)
        blind.from_if_match = NULL;
    return store_copy(rig.mem, &blind, res, err);
}

struct slow_list {
    const struct store_list *req;
    struct hook_store *hook;
};

static inline int
slow_entry(void *arg, const struct store_list_entry *entry, struct err *err)
{
    const struct slow_list *slow = arg;
    int pause = atomic_load(&slow->hook->list_pause_ms);
    if (pause > 0)
        clock_sleep_ns(pause * NS_PER_MS);
    return slow->req->fn(slow->req->arg, entry, err);
}

static inline int
hook_list(struct store *store, const struct store_list *req, struct err *err)
{
    struct hook_store *hook = hook_of(store);
    struct slow_list slow = { .req = req, .hook = hook };
    struct store_list passed = *req;
    if (hook_fails(hook, HOOK_LIST, err))
        return -1;
    passed.fn = slow_entry;
    passed.arg = &slow;
    int rc = store_list(rig.mem, &passed, err);
    hook_after(hook, HOOK_LIST, req->prefix);
    return rc;
}

static inline int
hook_probe(struct store *store, struct store_caps *caps, struct err *err)
{
    if (store_probe(rig.mem, err) != 0)
        return -1;
    *caps = rig.mem->caps;
    if (hook_of(store)->weak_delete)
        caps->delete_if_match = caps->copy_source_if_match = caps->copy_dest_conditions = STORE_NO;
    return 0;
}

static inline void
hook_counters(struct store *store, struct store_counters *out)
{
    (void)store;
    memset(out, 0, sizeof(*out));
}

static inline void
hook_free(struct store *store)
{
    free(store); /* mem: stays the test's */
}

static inline struct store *
hook_wrap(bool weak_delete)
{
    static const struct store_ops ops = { .name = "hook",
                                          .head = hook_head,
                                          .get = hook_get_any,
                                          .put = hook_put,
                                          .del = hook_del,
                                          .copy = hook_copy,
                                          .list = hook_list,
                                          .probe = hook_probe,
                                          .counters = hook_counters,
                                          .free = hook_free };
    struct hook_store *hook = calloc(1, sizeof(*hook));
    assert_non_null(hook);
    hook->base.ops = &ops;
    hook->base.caps = rig.mem->caps;
    hook->weak_delete = weak_delete;
    (void)snprintf(hook->base.url, sizeof(hook->base.url), "mem:");
    return &hook->base;
}

/* ---- the service ---- */

struct rig_options {
    bool weak_delete;
    uint64_t quota;
    uint64_t cache_bytes;
    bool sync_close;
    int64_t list_ttl_ns, sync_open_ns, sync_rest_ns, change_log_ns;
    const struct volume_carried *carried;
};

/* Changes the store before a service uses it; survives rig_open(). */
static void (*rig_adapt)(struct hook_store *hook);

static inline void
rig_serve(const struct rig_options *options)
{
    struct store *store = hook_wrap(options->weak_delete);
    rig.hook = hook_of(store);
    struct volume_service_args args = {
        .state_dir = rig.dir,
        .store = store,
        .cache = { .max_bytes = options->cache_bytes > 0 ? options->cache_bytes : 256u << 20,
                   .floor_bytes = 1,
                   .reserve_bytes = 4096 },
        .upload_threads = 4,
        .list_ttl_ns = options->list_ttl_ns > 0 ? options->list_ttl_ns : 3600 * NS_PER_S,
        .sync_open_ns = options->sync_open_ns,
        .change_log_ns = options->change_log_ns,
        .sync_rest_ns = options->sync_rest_ns,
        .carried = options->carried,
    };
    if (rig_adapt != NULL)
        rig_adapt(rig.hook);
    rig.service = volume_service_open(&args, &rig.err);
    if (rig.service == NULL)
        fail_msg("volume_service_open: %s", rig.err.msg);
    RUN_OK(rig.err, volume_service_start(rig.service, &rig.err));
}

static inline void
rig_open(const struct rig_options *options)
{
    struct volume_info info;
    const char *base = secure_getenv("TMPDIR");
    memset(&rig, 0, sizeof(rig));
    rig.ctx = (struct volume_ctx){ .actor = "test", .connection = 1 };
    (void)snprintf(rig.dir, sizeof(rig.dir), "%s/hf-volume-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(rig.dir));
    rig.mem = mem_store_open(&rig.err);
    assert_non_null(rig.mem);
    rig_serve(options);
    struct volume_settings settings = { .name = "v",
                                        .quota = options->quota,
                                        .sync_close = options->sync_close };
    RUN_OK(rig.err, volume_create(rig.service, &settings, &info, &rig.err));
    rig.volume = info.id;
    rig.root = info.root;
}

static inline int
rig_remove(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st;
    (void)kind;
    (void)walk;
    return remove(path);
}

static inline int
rig_setup(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .weak_delete = false });
    return 0;
}

static inline int
rig_setup_weak(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .weak_delete = true });
    return 0;
}

static inline int
rig_teardown(void **state)
{
    (void)state;
    for (int op = 0; rig.hook != NULL && op < HOOK_OPS; op++) /* a test may have failed meanwhile */
        atomic_store(&rig.hook->hold[op], 0);
    if (rig.service != NULL)
        volume_service_close(rig.service, 0);
    store_free(rig.mem);
    (void)nftw(rig.dir, rig_remove, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

/* ---- short forms ---- */

static inline int64_t
node_of(const char *path)
{
    struct volume_attr attr;
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, path, &attr, &rig.err));
    return attr.node;
}

static inline enum err_code
resolve_code(const char *path)
{
    struct volume_attr attr;
    struct err err = ERR_INIT;
    return volume_resolve(rig.service, &rig.ctx, rig.volume, path, &attr, &err) == 0
               ? ERR_CODE_COUNT
               : err.code;
}
#define assert_gone(path) assert_int_equal(resolve_code(path), ERR_NOT_FOUND)

/* The last component of a path, below its folder. */
static inline struct volume_name
name_at(const char *path)
{
    const char *slash = strrchr(path, '/');
    char dir[LIMIT_PATH + 1] = "";
    if (slash != NULL)
        (void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
    const char *name = slash == NULL ? path : slash + 1;
    return (struct volume_name){ .parent = node_of(dir), .name = name, .len = strlen(name) };
}

static inline struct volume_file *
open_at(const char *path, int flags)
{
    struct volume_file *file = NULL;
    struct volume_attr attr;
    struct volume_name at = name_at(path);
    if ((flags & O_CREAT) != 0)
        RUN_OK(rig.err,
               volume_file_create(rig.service, &rig.ctx,
                                  &(struct volume_new){ .at = at, .mode = 0644, .flags = flags },
                                  &attr, &file, &rig.err));
    else
        RUN_OK(rig.err,
               volume_file_open(rig.service, &rig.ctx, node_of(path), flags, &file, &rig.err));
    return file;
}

static inline void
write_at(struct volume_file *file, const char *text, uint64_t off)
{
    RUN_OK(rig.err, volume_file_write(file, &rig.ctx, text, strlen(text), off, &rig.err));
}

static inline void
close_file(struct volume_file *file)
{
    RUN_OK(rig.err, volume_file_flush(file, &rig.ctx, &rig.err));
    volume_file_close(file, &rig.ctx);
}

static inline void
save(const char *path, const char *text)
{
    struct volume_file *file = open_at(path, O_CREAT | O_TRUNC | O_RDWR);
    write_at(file, text, 0);
    close_file(file);
}

static inline void
make_dir(const char *path)
{
    struct volume_attr attr;
    struct volume_name at = name_at(path);
    RUN_OK(rig.err, volume_mkdir(rig.service, &rig.ctx, &at, 0755, &attr, &rig.err));
}

static inline void
move(const char *from, const char *to, unsigned flags)
{
    struct volume_name a = name_at(from), b = name_at(to);
    RUN_OK(rig.err, volume_rename(rig.service, &rig.ctx, &a, &b, flags, &rig.err));
}

static inline void
unlink_at(const char *path)
{
    struct volume_name at = name_at(path);
    RUN_OK(rig.err, volume_remove(rig.service, &rig.ctx, &at, false, NULL, &rig.err));
}

/* What the volume says a file holds. */
static inline void
assert_reads(const char *path, const char *text)
{
    char out[4096] = "";
    struct volume_file *file = open_at(path, O_RDONLY);
    ssize_t got = volume_file_read(file, &rig.ctx, out, sizeof(out) - 1, 0, &rig.err);
    if (got < 0)
        fail_msg("read '%s': %s", path, rig.err.msg);
    volume_file_close(file, &rig.ctx);
    assert_string_equal(out, text);
}

/* What the bucket holds at a key below the volume. */
static inline void
assert_bucket(const char *path, const char *text)
{
    char key[LIMIT_KEY + 8];
    char *data = NULL;
    size_t len;
    struct err err = ERR_INIT;
    (void)snprintf(key, sizeof(key), "v/%s", path);
    if (store_get_small(rig.mem, key, 1u << 20, &data, &len, NULL, &err) != 0)
        fail_msg("the bucket has no '%s': %s", key, err.msg);
    assert_string_equal(data, text);
    free(data);
}

static inline bool
in_bucket(const char *path)
{
    char key[LIMIT_KEY + 8];
    struct err err = ERR_INIT;
    (void)snprintf(key, sizeof(key), "v/%s", path);
    return store_head(rig.mem, key, 0, NULL, &err) == 0;
}

/* Another client's write, which asks nobody. */
static inline void
foreign_put_meta(const char *path, const char *text, const struct meta *meta)
{
    char key[LIMIT_KEY + 8];
    (void)snprintf(key, sizeof(key), "v/%s", path);
    struct store_put put = { .key = key, .meta = meta };
    put.body = (struct store_body){ .mem = text, .size = strlen(text), .fd = -1 };
    struct store_put_result res;
    RUN_OK(rig.err, store_put(rig.mem, &put, &res, &rig.err));
}

static inline void
foreign_put(const char *path, const char *text)
{
    foreign_put_meta(path, text, NULL);
}

static inline void
foreign_delete(const char *path)
{
    char key[LIMIT_KEY + 8];
    enum store_outcome outcome;
    (void)snprintf(key, sizeof(key), "v/%s", path);
    struct store_delete del = { .key = key };
    RUN_OK(rig.err, store_delete(rig.mem, &del, &outcome, &rig.err));
}

/* The folder is listed anew, as after its time to live. */
static inline void
relist(const char *path)
{
    RUN_OK(rig.err, bucket_list_dir(rig.service, &rig.ctx, node_of(path), &rig.err));
}

static inline int
flush_within(int64_t ns, struct volume_barrier *out)
{
    return volume_flush(rig.service, rig.volume, clock_mono_ns() + ns, out, &rig.err);
}

static inline void
flush(void)
{
    struct volume_barrier barrier;
    RUN_OK(rig.err, flush_within(60 * NS_PER_S, &barrier));
}

static inline void
hold(enum hook_op op)
{
    atomic_store(&rig.hook->hold[op], 1);
}

static inline void
release(enum hook_op op)
{
    atomic_store(&rig.hook->hold[op], 0);
}

static inline void
wait_for_waiting(enum hook_op op)
{
    for (int i = 0; i < 60000 && atomic_load(&rig.hook->waiting[op]) == 0; i++)
        clock_sleep_ns(NS_PER_MS);
    assert_int_not_equal(atomic_load(&rig.hook->waiting[op]), 0);
}

struct conflict_count {
    unsigned count;
    struct index_conflict last;
};

static inline int
count_one(void *arg, const struct index_conflict *row, struct err *err)
{
    struct conflict_count *call = arg;
    (void)err;
    call->count++;
    call->last = *row;
    return 0;
}

static inline unsigned
conflicts(struct index_conflict *last)
{
    struct conflict_count call = { 0 };
    RUN_OK(rig.err, volume_conflict_each(rig.service, rig.volume, count_one, &call, &rig.err));
    if (last != NULL)
        *last = call.last;
    return call.count;
}

#endif
