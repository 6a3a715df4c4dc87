/*
 * Seeded random operations through volume.h, compared with a simple tree in memory after each step, and with the bucket
 * behind each barrier: every file's bytes under its key, no other key. Then the service is closed, opened, compared again.
 * Threads work below folders of their own and read a shared one.
 *
 *   --seed N  --steps N (of each thread)  --threads N  --faults N (failing calls in a thousand)  --file (file: store)
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parse.h"
#include "model.h"
#include "s3/fault.h"
#include "s3/open.h"
#include "support/crash/crash.h"
#include "support/crash/tree.h"

#define THREADS_MAX 8u
#define HANDLES 4u
#define SHARED 8u
#define ROUND 60u /* steps between two barriers */
#define VOLUME "model"

struct handle {
    struct volume_file *file;
    struct model_node *node;
    bool writable;
};

struct worker {
    struct test *test;
    unsigned number;
    struct rig_random random;
    struct volume_ctx ctx;
    struct model_node *root;
    struct handle handle[HANDLES];
    char last[200]; /* what was done last, for messages */
    uint64_t done;
};

struct test {
    struct rig rig;
    struct store *bottom; /* borrowed by each life of the service */
    struct store *fault;  /* NULL: none; the service's */
    uint64_t seed;
    unsigned steps, threads, faults;
    struct volume_service *service;
    int64_t volume;
    struct worker worker[THREADS_MAX];
    struct model_node *shared;
    pthread_barrier_t meet;
    bool over, trace;
    unsigned rounds, lives, held;
};

/* ---- checks ---- */

__attribute__((format(printf, 2, 3))) static void
wrong(struct worker *worker, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    rig_break("thread %u, step %llu, %s: %s", worker->number, (unsigned long long)worker->done,
              worker->last, text);
}

__attribute__((format(printf, 2, 3))) static void
note(struct worker *worker, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(worker->last, sizeof(worker->last), fmt, args);
    va_end(args);
    if (worker->test->trace)
        (void)fprintf(stderr, "thread %u step %llu: %s\n", worker->number,
                      (unsigned long long)worker->done, worker->last);
}

/* True when both went well. With failing stores an answer that says "try again" is one. */
static bool
agree(struct worker *worker, int rc, const struct err *err, int expected)
{
    int got = rc == 0 ? 0 : err_errno(err->code);
    if (got != expected)
        wrong(worker, "answers %d (%s), expected %d", got, rc == 0 ? "fine" : err->msg, expected);
    return got == 0 && expected == 0;
}

#define WITH_RETRY(worker, call)                                                                   \
    __extension__({                                                                                \
        int retry_rc_ = (call);                                                                    \
        for (unsigned retry_i_ = 0; retry_rc_ != 0 && err_retryable(err.code) && retry_i_ < 200 && \
                                    (worker)->test->fault != NULL;                                 \
             retry_i_++) {                                                                         \
            clock_sleep_ns(2 * NS_PER_MS);                                                         \
            retry_rc_ = (call);                                                                    \
        }                                                                                          \
        retry_rc_;                                                                                 \
    })

/* ---- places ---- */

struct spot {
    char path[LIMIT_PATH + 1];
    char dir_path[LIMIT_PATH + 1];
    char name[MODEL_NAME];
    struct model_node *dir;
    struct model_node *node; /* NULL: nothing there */
    struct volume_name at;
};

static bool
resolve(struct worker *worker, const char *path, struct volume_attr *attr)
{
    struct err err = ERR_INIT;
    int rc = WITH_RETRY(worker, volume_resolve(worker->test->service, &worker->ctx,
                                               worker->test->volume, path, attr, &err));
    if (rc != 0)
        wrong(worker, "'%s' cannot be found: %s", path, err.msg);
    return rc == 0;
}

static bool
pick(struct worker *worker, struct spot *out)
{
    struct model_node *dir = worker->root;
    struct volume_attr attr;
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->dir_path, sizeof(out->dir_path), "t%u", worker->number);
    for (unsigned depth = 0; depth < 3 && dir->count > 0 && !rig_once_in(&worker->random, 3);
         depth++) {
        size_t at = rig_below(&worker->random, dir->count);
        if (dir->child[at].node->kind != INDEX_DIR)
            break;
        size_t len = strlen(out->dir_path);
        (void)snprintf(out->dir_path + len, sizeof(out->dir_path) - len, "/%s",
                       dir->child[at].name);
        dir = dir->child[at].node;
    }
    (void)snprintf(out->name, sizeof(out->name), "%c%s",
                   (char)('a' + rig_below(&worker->random, 6)),
                   rig_once_in(&worker->random, 5) ? "~1 x" : "");
    (void)snprintf(out->path, sizeof(out->path), "%.900s/%s", out->dir_path, out->name);
    out->dir = dir;
    out->node = model_child(dir, out->name);
    if (!resolve(worker, out->dir_path, &attr))
        return false;
    out->at =
        (struct volume_name){ .parent = attr.node, .name = out->name, .len = strlen(out->name) };
    return true;
}

static void
fill_random(struct worker *worker, uint8_t *out, size_t len)
{
    for (size_t i = 0; i < len; i++)
        out[i] = (uint8_t)(rig_random(&worker->random) >> 24);
}

static size_t
random_size(struct worker *worker)
{
    if (rig_once_in(&worker->random, 40))
        return (1u << 20) + rig_below(&worker->random, 1u << 20);
    return rig_below(&worker->random, rig_once_in(&worker->random, 4) ? 100000 : 5000);
}

/* ---- handles ---- */

static void
close_handle(struct worker *worker, struct handle *handle)
{
    struct err err = ERR_INIT;
    if (handle->file == NULL)
        return;
    if (volume_file_flush(handle->file, &worker->ctx, &err) != 0)
        wrong(worker, "close: %s", err.msg);
    volume_file_close(handle->file, &worker->ctx);
    handle->node->handles--;
    model_unref(handle->node);
    *handle = (struct handle){ 0 };
}

static struct handle *
free_handle(struct worker *worker)
{
    for (unsigned i = 0; i < HANDLES; i++)
        if (worker->handle[i].file == NULL)
            return &worker->handle[i];
    struct handle *victim = &worker->handle[rig_below(&worker->random, HANDLES)];
    close_handle(worker, victim);
    return victim;
}

static void
keep_handle(struct handle *handle, struct volume_file *file, struct model_node *node, bool writable)
{
    *handle = (struct handle){ .file = file, .node = model_ref(node), .writable = writable };
    node->handles++;
}

static struct handle *
any_handle(struct worker *worker)
{
    struct handle *handle = &worker->handle[rig_below(&worker->random, HANDLES)];
    return handle->file == NULL ? NULL : handle;
}

/* ---- operations ---- */

static int
open_errno(const struct model_node *node)
{
    if (node == NULL)
        return ENOENT;
    if (node->kind == INDEX_DIR)
        return EISDIR;
    return node->kind == INDEX_SYMLINK ? ELOOP : 0;
}

static void
op_create(struct worker *worker)
{
    struct spot spot;
    struct volume_attr attr;
    struct volume_file *file = NULL;
    struct err err = ERR_INIT;
    static const uint32_t modes[] = { 0644, 0600, 0755 };
    uint32_t mode = modes[rig_below(&worker->random, 3)];
    bool excl = rig_once_in(&worker->random, 3), trunc = rig_once_in(&worker->random, 2);
    if (!pick(worker, &spot))
        return;
    struct handle *handle = free_handle(worker);
    int flags = O_RDWR | (excl ? O_EXCL : 0) | (trunc ? O_TRUNC : 0);
    note(worker, "create '%s'%s%s", spot.path, excl ? " excl" : "", trunc ? " trunc" : "");
    int expected = spot.node == NULL ? 0 : excl ? EEXIST : open_errno(spot.node);
    int rc = WITH_RETRY(
        worker,
        volume_file_create(worker->test->service, &worker->ctx,
                           &(struct volume_new){ .at = spot.at, .mode = mode, .flags = flags },
                           &attr, &file, &err));
    if (!agree(worker, rc, &err, expected))
        return;
    if (spot.node == NULL) {
        spot.node = model_new(INDEX_FILE, mode);
        model_truncate(spot.node, 0);
        model_add(spot.dir, spot.name, spot.node);
    } else if (trunc) {
        model_truncate(spot.node, 0);
    }
    keep_handle(handle, file, spot.node, true);
}

static void
op_open(struct worker *worker)
{
    struct spot spot;
    struct volume_attr attr;
    struct volume_file *file = NULL;
    struct err err = ERR_INIT;
    if (!pick(worker, &spot) || spot.node == NULL)
        return;
    int how = (int)rig_below(&worker->random, 4);
    int flags = how == 0 ? O_RDONLY : how == 1 ? O_WRONLY | O_TRUNC : O_RDWR;
    struct handle *handle = free_handle(worker);
    note(worker, "open '%s' flags %d", spot.path, flags);
    if (!resolve(worker, spot.path, &attr))
        return;
    int rc = WITH_RETRY(worker, volume_file_open(worker->test->service, &worker->ctx, attr.node,
                                                 flags, &file, &err));
    if (!agree(worker, rc, &err, open_errno(spot.node)))
        return;
    if ((flags & O_TRUNC) != 0)
        model_truncate(spot.node, 0);
    keep_handle(handle, file, spot.node, how != 0);
}

static void
op_write(struct worker *worker)
{
    struct handle *handle = any_handle(worker);
    struct err err = ERR_INIT;
    if (handle == NULL || !handle->writable)
        return;
    size_t len = 1 + random_size(worker);
    size_t off = rig_once_in(&worker->random, 3)
                     ? handle->node->len
                     : rig_below(&worker->random, handle->node->len + 3000);
    uint8_t *bytes = malloc(len);
    if (bytes == NULL)
        rig_die("out of memory");
    fill_random(worker, bytes, len);
    note(worker, "write %zu at %zu of %zu", len, off, handle->node->len);
    if (agree(worker, volume_file_write(handle->file, &worker->ctx, bytes, len, off, &err), &err,
              0))
        model_write(handle->node, off, bytes, len);
    free(bytes);
}

static void
op_read(struct worker *worker)
{
    struct handle *handle = any_handle(worker);
    struct err err = ERR_INIT;
    if (handle == NULL)
        return;
    size_t off = rig_below(&worker->random, handle->node->len + 100);
    size_t len = 1 + rig_below(&worker->random, 50000), have = 0;
    size_t expected = off >= handle->node->len        ? 0
                      : handle->node->len - off < len ? handle->node->len - off
                                                      : len;
    uint8_t *bytes = malloc(len);
    if (bytes == NULL)
        rig_die("out of memory");
    note(worker, "read %zu at %zu of %zu", len, off, handle->node->len);
    while (have < len) {
        ssize_t got = -1;
        (void)WITH_RETRY(worker, (got = volume_file_read(handle->file, &worker->ctx, bytes + have,
                                                         len - have, off + have, &err)) < 0);
        if (got < 0)
            wrong(worker, "fails: %s", err.msg);
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    if (have != expected)
        wrong(worker, "answers %zu bytes, expected %zu", have, expected);
    else if (have > 0 && memcmp(bytes, handle->node->bytes + off, have) != 0)
        wrong(worker, "answers other bytes");
    free(bytes);
}

static void
op_punch(struct worker *worker)
{
    struct handle *handle = any_handle(worker);
    struct err err = ERR_INIT;
    if (handle == NULL || !handle->writable || handle->node->len == 0)
        return;
    size_t off = rig_below(&worker->random, handle->node->len);
    size_t len = 1 + rig_below(&worker->random, 20000);
    note(worker, "punch %zu at %zu of %zu", len, off, handle->node->len);
    if (!agree(worker,
               volume_file_allocate(handle->file, &worker->ctx,
                                    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len, &err),
               &err, 0))
        return;
    size_t end = off + len < handle->node->len ? off + len : handle->node->len;
    memset(handle->node->bytes + off, 0, end - off);
    handle->node->mtime_known = false;
}

static void
op_fsync(struct worker *worker)
{
    struct handle *handle = any_handle(worker);
    struct err err = ERR_INIT;
    if (handle == NULL)
        return;
    note(worker, "fsync");
    (void)agree(worker, volume_file_fsync(handle->file, &worker->ctx, &err), &err, 0);
}

static void
op_close(struct worker *worker)
{
    struct handle *handle = any_handle(worker);
    if (handle == NULL)
        return;
    note(worker, "close");
    close_handle(worker, handle);
}

static void
op_mkdir(struct worker *worker)
{
    struct spot spot;
    struct volume_attr attr;
    struct err err = ERR_INIT;
    if (!pick(worker, &spot) || spot.dir->count > 20)
        return;
    note(worker, "mkdir '%s'", spot.path);
    int rc = WITH_RETRY(
        worker, volume_mkdir(worker->test->service, &worker->ctx, &spot.at, 0755, &attr, &err));
    if (agree(worker, rc, &err, spot.node == NULL ? 0 : EEXIST))
        model_add(spot.dir, spot.name, model_new(INDEX_DIR, 0755));
}

static void
op_symlink(struct worker *worker)
{
    struct spot spot;
    struct volume_attr attr;
    struct err err = ERR_INIT;
    char target[64];
    if (!pick(worker, &spot))
        return;
    (void)snprintf(target, sizeof(target), "../%llu/where",
                   (unsigned long long)rig_below(&worker->random, 1000));
    note(worker, "symlink '%s'", spot.path);
    int rc = WITH_RETRY(
        worker, volume_symlink(worker->test->service, &worker->ctx, &spot.at, target, &attr, &err));
    if (!agree(worker, rc, &err, spot.node == NULL ? 0 : EEXIST))
        return;
    struct model_node *node = model_new(INDEX_SYMLINK, 0777);
    model_write(node, 0, target, strlen(target));
    model_add(spot.dir, spot.name, node);
}

static void
op_remove(struct worker *worker)
{
    struct spot spot;
    struct err err = ERR_INIT;
    if (!pick(worker, &spot))
        return;
    bool dir = spot.node != NULL && spot.node->kind == INDEX_DIR;
    if (rig_once_in(&worker->random, 10))
        dir = !dir;
    note(worker, "remove '%s'%s", spot.path, dir ? " (folder)" : "");
    int rc = WITH_RETRY(
        worker, volume_remove(worker->test->service, &worker->ctx, &spot.at, dir, NULL, &err));
    (void)agree(worker, rc, &err, model_remove(spot.dir, spot.name, dir));
}

static void
op_rename(struct worker *worker)
{
    struct spot from, to;
    struct err err = ERR_INIT;
    static const unsigned choices[] = { 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE };
    unsigned flags = choices[rig_below(&worker->random, 5)];
    if (!pick(worker, &from) || !pick(worker, &to) || to.dir->count > 20 ||
        (from.node != NULL && from.node == to.node))
        return;
    note(worker, "rename '%s' to '%s' flags %u", from.path, to.path, flags);
    int rc = WITH_RETRY(
        worker, volume_rename(worker->test->service, &worker->ctx, &from.at, &to.at, flags, &err));
    struct model_place source = { from.dir, from.name }, target = { to.dir, to.name };
    (void)agree(worker, rc, &err, model_rename(&source, &target, flags));
}

static void
op_setattr(struct worker *worker)
{
    struct spot spot;
    struct volume_attr attr;
    struct err err = ERR_INIT;
    struct volume_change change = { 0 };
    if (!pick(worker, &spot) || spot.node == NULL || spot.node->kind == INDEX_SYMLINK ||
        !resolve(worker, spot.path, &attr))
        return;
    if (rig_once_in(&worker->random, 2)) {
        change.bits |= VOLUME_SET_MODE;
        change.mode = rig_once_in(&worker->random, 2) ? 0640 : 0700;
    }
    if (spot.node->kind == INDEX_FILE && rig_once_in(&worker->random, 3)) {
        change.bits |= VOLUME_SET_SIZE;
        change.size = rig_below(&worker->random, spot.node->len * 2 + 10);
    }
    if (rig_once_in(&worker->random, 2)) {
        change.bits |= VOLUME_SET_MTIME;
        change.mtime_ns = 1600000000ll * NS_PER_S + (int64_t)rig_below(&worker->random, 1u << 30);
    }
    if (change.bits == 0)
        return;
    note(worker, "setattr '%s' bits %u size %llu", spot.path, change.bits,
         (unsigned long long)change.size);
    int rc = WITH_RETRY(worker, volume_setattr(worker->test->service, &worker->ctx, attr.node,
                                               &change, &attr, &err));
    if (!agree(worker, rc, &err, 0))
        return;
    if ((change.bits & VOLUME_SET_MODE) != 0)
        spot.node->mode = change.mode;
    if ((change.bits & VOLUME_SET_SIZE) != 0)
        model_truncate(spot.node, change.size);
    if ((change.bits & VOLUME_SET_MTIME) != 0) {
        spot.node->mtime_known = spot.node->kind == INDEX_FILE;
        spot.node->mtime_ns = change.mtime_ns;
    }
}

/* What a commit with this precondition has to answer. */
static int
commit_errno(const struct model_node *node, const struct precondition *pre, bool stale)
{
    if (node != NULL && node->kind == INDEX_DIR)
        return EISDIR;
    switch (pre->kind) {
    case PRECONDITION_NONE:
        return node == NULL ? 0 : EINVAL;
    case PRECONDITION_ABSENT:
        return node == NULL ? 0 : ESTALE;
    case PRECONDITION_EXISTS:
        return node != NULL ? 0 : ESTALE;
    case PRECONDITION_MATCH:
        return node != NULL && !stale ? 0 : ESTALE;
    default:
        return 0;
    }
}

static void
committed(struct spot *spot, const struct volume_commit_args *args, const uint8_t *bytes,
          size_t len)
{
    struct model_node *node = spot->node;
    uint32_t mode = args->mode != 0                            ? args->mode
                    : node != NULL && node->kind == INDEX_FILE ? node->mode
                                                               : 0644;
    /* Who has it open keeps the old file. */
    if (node != NULL && (node->handles > 0 || node->kind == INDEX_SYMLINK)) {
        model_cut(spot->dir, spot->name);
        node = NULL;
    }
    if (node == NULL) {
        node = model_new(INDEX_FILE, mode);
        model_add(spot->dir, spot->name, node);
    }
    node->mode = mode;
    model_truncate(node, 0);
    model_write(node, 0, bytes, len);
    node->mtime_known = args->mtime_ns != 0;
    node->mtime_ns = args->mtime_ns;
}

static bool
is_written(const struct worker *worker, const struct model_node *node)
{
    for (unsigned i = 0; i < HANDLES; i++)
        if (node != NULL && worker->handle[i].node == node && worker->handle[i].writable)
            return true;
    return false;
}

static void
op_upload(struct worker *worker)
{
    struct spot spot;
    struct volume_attr attr = { 0 };
    struct err err = ERR_INIT;
    struct volume_commit_args args = { .wait_synced = rig_once_in(&worker->random, 6),
                                       .mode = rig_once_in(&worker->random, 3) ? 0604 : 0,
                                       .make_dirs = true };
    bool created = false, stale = false;
    /* A whole file over one that is being written makes its writer a loser: tests/unit/volume/conflict.c. */
    if (!pick(worker, &spot) || is_written(worker, spot.node))
        return;
    args.pre.kind = (enum precondition_kind)rig_below(&worker->random, PRECONDITION_ANY + 1);
    if (args.pre.kind == PRECONDITION_NONE_MATCH)
        args.pre.kind = PRECONDITION_ANY;
    if (rig_once_in(&worker->random, 3))
        args.mtime_ns = 1500000000ll * NS_PER_S + (int64_t)rig_below(&worker->random, 1u << 30);
    if (args.pre.kind == PRECONDITION_MATCH) {
        stale =
            spot.node == NULL || spot.node->kind == INDEX_DIR || rig_once_in(&worker->random, 3);
        args.pre.count = 1;
        if (!stale && !resolve(worker, spot.path, &attr))
            return;
        /* A new file that never was closed has no version yet. */
        stale |= attr.version[0] == '\0';
        (void)snprintf(args.pre.tag[0], LIMIT_ETAG, "%s", stale ? "nothing-like-it" : attr.version);
    }
    size_t len = random_size(worker);
    uint8_t *bytes = malloc(len + 1);
    if (bytes == NULL)
        rig_die("out of memory");
    fill_random(worker, bytes, len);
    note(worker, "upload %zu to '%s' pre %d%s%s", len, spot.path, (int)args.pre.kind,
         stale ? " stale" : "", args.wait_synced ? " wait" : "");
    int rc = -1;
    for (unsigned i = 0; i < 200; i++) {
        struct volume_upload *up = volume_upload_begin(worker->test->service, &worker->ctx,
                                                       worker->test->volume, spot.path, &err);
        if (up == NULL || volume_upload_write(up, bytes, len, &err) != 0) {
            wrong(worker, "staging fails: %s", err.msg);
            volume_upload_abort(up);
            break;
        }
        rc = volume_commit(up, &worker->ctx, &args, &attr, &created, &err);
        /* A file that moved, or whose attributes changed, gets a new version when it is sent again. */
        if (rc != 0 && err.code == ERR_CONFLICT && args.pre.kind == PRECONDITION_MATCH && !stale &&
            attr.version[0] != '\0') {
            (void)snprintf(args.pre.tag[0], LIMIT_ETAG, "%s", attr.version);
            continue;
        }
        if (rc == 0 || !err_retryable(err.code) || worker->test->fault == NULL)
            break;
    }
    if (agree(worker, rc, &err, commit_errno(spot.node, &args.pre, stale))) {
        if (created != (spot.node == NULL))
            wrong(worker, "says created=%d", (int)created);
        committed(&spot, &args, bytes, len);
    }
    free(bytes);
}

static void
op_shared(struct worker *worker)
{
    char path[64];
    uint8_t *data;
    size_t len;
    struct err err = ERR_INIT;
    size_t at = rig_below(&worker->random, worker->test->shared->count);
    const struct model_node *node = worker->test->shared->child[at].node;
    (void)snprintf(path, sizeof(path), "shared/%s", worker->test->shared->child[at].name);
    note(worker, "read '%s'", path);
    int rc = WITH_RETRY(worker, tree_read_file(worker->test->service, worker->test->volume, path,
                                               &data, &len, &err));
    if (!agree(worker, rc, &err, 0))
        return;
    if (len != node->len || memcmp(data, node->bytes, len) != 0)
        wrong(worker, "answers other bytes (%zu of %zu)", len, node->len);
    free(data);
}

struct seen {
    const struct model_node *dir;
    struct worker *worker;
    size_t count;
};

static int
see_entry(void *arg, const struct volume_entry *entry, struct err *err)
{
    struct seen *seen = arg;
    char name[LIMIT_NAME + 1];
    (void)err;
    (void)snprintf(name, sizeof(name), "%.*s", (int)entry->name_len, entry->name);
    const struct model_node *node = model_child(seen->dir, name);
    seen->count++;
    if (node == NULL)
        wrong(seen->worker, "lists '%s', which is not there", name);
    else if (node->kind != entry->attr.kind)
        wrong(seen->worker, "lists '%s' as another kind", name);
    else if (node->kind == INDEX_FILE && entry->attr.size != node->len)
        wrong(seen->worker, "lists '%s' with %llu bytes, it has %zu", name,
              (unsigned long long)entry->attr.size, node->len);
    return 0;
}

static void
op_list(struct worker *worker)
{
    struct spot spot;
    struct err err = ERR_INIT;
    if (!pick(worker, &spot))
        return;
    struct seen seen = { .dir = spot.dir, .worker = worker };
    note(worker, "list '%s'", spot.dir_path);
    int rc = WITH_RETRY(
        worker,
        (seen.count = 0,
         volume_list(worker->test->service, &worker->ctx,
                     &(struct volume_page){ .dir = spot.at.parent, .after = 0, .limit = 1000 },
                     see_entry, &seen, &err)));
    if (agree(worker, rc, &err, 0) && seen.count != spot.dir->count)
        wrong(worker, "lists %zu entries, there are %zu", seen.count, spot.dir->count);
}

static void
op_getattr(struct worker *worker)
{
    struct spot spot;
    struct volume_attr attr;
    struct err err = ERR_INIT;
    if (!pick(worker, &spot))
        return;
    note(worker, "stat '%s'", spot.path);
    int rc = WITH_RETRY(
        worker, volume_lookup(worker->test->service, &worker->ctx,
                              &(struct volume_name){ spot.at.parent, spot.name, spot.at.len },
                              &attr, &err));
    if (!agree(worker, rc, &err, spot.node == NULL ? ENOENT : 0))
        return;
    if (attr.kind != spot.node->kind)
        wrong(worker, "is of another kind");
    else if (attr.kind != INDEX_SYMLINK && (attr.mode & 07777) != spot.node->mode)
        wrong(worker, "has mode %o, expected %o", attr.mode & 07777, spot.node->mode);
    else if (attr.kind == INDEX_FILE && attr.size != spot.node->len)
        wrong(worker, "has %llu bytes, expected %zu", (unsigned long long)attr.size,
              spot.node->len);
    else if (spot.node->mtime_known && attr.mtime_ns != spot.node->mtime_ns)
        wrong(worker, "has mtime %lld, expected %lld", (long long)attr.mtime_ns,
              (long long)spot.node->mtime_ns);
}

typedef void operation(struct worker *worker);
static operation *const operations[] = { op_create,  op_create, op_open,   op_open,   op_write,
                                         op_write,   op_write,  op_read,   op_read,   op_punch,
                                         op_fsync,   op_close,  op_close,  op_mkdir,  op_symlink,
                                         op_remove,  op_remove, op_rename, op_rename, op_rename,
                                         op_upload,  op_upload, op_shared, op_list,   op_getattr,
                                         op_getattr, op_setattr };
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

/* ---- barriers ---- */

/* The tree of the model as a list. */
/* NOLINTBEGIN(misc-no-recursion): as deep as the model's tree */
static void
flatten(const struct model_node *dir, const char *path, struct tree *out)
{
    for (size_t i = 0; i < dir->count; i++) {
        const struct model_node *node = dir->child[i].node;
        uint8_t sum[SHA256_SIZE];
        struct err err = ERR_INIT;
        struct tree_entry *entry = tree_add(out);
        char below[LIMIT_PATH + 1];
        (void)snprintf(below, sizeof(below), "%.900s%s%s", path, path[0] == '\0' ? "" : "/",
                       dir->child[i].name);
        (void)snprintf(entry->path, sizeof(entry->path), "%s", below);
        entry->kind = node->kind;
        entry->mode = node->mode;
        entry->mtime_ns = node->mtime_known ? node->mtime_ns : 0;
        entry->size = node->len;
        if (node->kind == INDEX_DIR) {
            flatten(node, below, out);
            continue;
        }
        if (sha256(node->len == 0 ? (const uint8_t *)"" : node->bytes, node->len, sum, &err) != 0)
            rig_die("sha256: %s", err.msg);
        hex_encode(sum, sizeof(sum), entry->sha256);
    }
}

/* NOLINTEND(misc-no-recursion) */

/* Every entry of the model is in `tree` with its attributes, and nothing else is. */
static void
compare(const struct tree *model, const struct tree *tree, const char *what)
{
    for (size_t i = 0; i < model->count; i++) {
        const struct tree_entry *mine = &model->entry[i];
        const struct tree_entry *theirs = tree_find(tree, mine->path);
        if (theirs == NULL) {
            if (mine->kind != INDEX_DIR)
                rig_break("%s: '%s' is missing", what, mine->path);
            continue;
        }
        if (mine->kind != theirs->kind ||
            (mine->kind != INDEX_DIR && strcmp(mine->sha256, theirs->sha256) != 0))
            rig_break("%s: '%s' has other bytes (%llu, expected %llu)", what, mine->path,
                      (unsigned long long)theirs->size, (unsigned long long)mine->size);
        else if (mine->kind == INDEX_FILE && (theirs->mode & 07777) != mine->mode)
            rig_break("%s: '%s' has mode %o, expected %o", what, mine->path, theirs->mode & 07777,
                      mine->mode);
        else if (mine->kind == INDEX_FILE && mine->mtime_ns != 0 &&
                 theirs->mtime_ns != mine->mtime_ns)
            rig_break("%s: '%s' has mtime %lld, expected %lld", what, mine->path,
                      (long long)theirs->mtime_ns, (long long)mine->mtime_ns);
    }
    for (size_t i = 0; i < tree->count; i++)
        if (tree_find(model, tree->entry[i].path) == NULL)
            rig_break("%s: '%s' should not be there", what, tree->entry[i].path);
}

static void
model_tree(struct test *test, struct tree *out)
{
    struct model_node *top = model_new(INDEX_DIR, 0777);
    char name[MODEL_NAME];
    for (unsigned i = 0; i < test->threads; i++) {
        (void)snprintf(name, sizeof(name), "t%u", i);
        model_add(top, name, model_ref(test->worker[i].root));
    }
    model_add(top, "shared", model_ref(test->shared));
    flatten(top, "", out);
    model_unref(top);
    tree_sort(out);
}

static int
see_conflict(void *arg, const struct index_conflict *row, struct err *err)
{
    (void)arg;
    (void)err;
    rig_break("a conflict nobody made: '%s', %s: base %s, mine %s, theirs %s %s", row->path,
              row->reason, row->base_version, row->mine_version, row->theirs_version,
              row->theirs_etag);
    return 0;
}

static int
see_unsynced(void *arg, const struct volume_unsynced *row, struct err *err)
{
    (void)arg;
    (void)err;
    printf("  unsynced: '%s' (path '%s', %s, %llu bytes, %u tries) %s\n", row->key, row->path,
           row->what, (unsigned long long)row->size, row->tries, row->last_error);
    return 0;
}

static void
open_service(struct test *test)
{
    struct err err = ERR_INIT;
    struct fault_plan quiet = { .seed = test->seed + test->lives };
    struct store *store = rig_borrow(test->bottom);
    test->fault = NULL;
    if (test->faults > 0) {
        store = test->fault = fault_store_wrap(store, &quiet, &err);
        if (store == NULL)
            rig_die("fault store: %s", err.msg);
    }
    test->service = rig_open(test->rig.state, store, &err);
    if (test->service == NULL)
        rig_die("the service does not open: %s", err.msg);
    test->volume = rig_volume(test->service, VOLUME);
    test->lives++;
}

/* Where answers were lost, a request may still land and meet its condition again, so its key waits for 20 minutes
 * (versioning/sync.h, `late`). A service that is opened anew has forgotten it, and here nothing lands late. */
static bool
flush_all(struct test *test, struct err *err)
{
    struct volume_barrier barrier;
    if (test->fault != NULL)
        fault_store_set_plan(test->fault, &(struct fault_plan){ .seed = test->seed });
    for (unsigned tries = 0;; tries++) {
        int64_t deadline = clock_mono_ns() + (test->faults > 0 ? 10 : 60) * NS_PER_S;
        if (volume_flush(test->service, test->volume, deadline, &barrier, err) == 0)
            return true;
        if (tries > 0 || test->faults == 0 || err->code != ERR_NOT_SYNCED)
            return false;
        test->held++;
        rig_close(test->service);
        open_service(test);
    }
}

static void
check_everything(struct test *test, const char *when)
{
    struct tree model = { 0 }, volume = { 0 }, bucket = { 0 };
    struct err err = ERR_INIT;
    if (!flush_all(test, &err))
        rig_break("%s: the barrier fails: %s%s", when, err.msg,
                  volume_unsynced_each(test->service, 0, 20, see_unsynced, NULL, &err) == 0 ? ""
                                                                                            : "!");
    else if (tree_of_volume(test->service, test->volume, &volume, &err) != 0 ||
             tree_of_bucket(test->bottom, VOLUME "/", &bucket, &err) != 0 ||
             volume_conflict_each(test->service, 0, see_conflict, NULL, &err) != 0)
        rig_break("%s: cannot read everything: %s", when, err.msg);
    else {
        model_tree(test, &model);
        compare(&model, &volume, "volume");
        compare(&model, &bucket, "bucket");
        (void)tree_compare(&volume, &bucket, when);
    }
    tree_release(&model);
    tree_release(&volume);
    tree_release(&bucket);
}

static void
set_faults(struct test *test)
{
    struct fault_plan plan = { .seed = test->seed + test->rounds };
    if (test->fault == NULL)
        return;
    plan.per_mille[FAULT_ERROR] = plan.per_mille[FAULT_LOST_ANSWER] = test->faults / 2;
    plan.per_mille[FAULT_SHORT_BODY] = test->faults / 2;
    fault_store_set_plan(test->fault, &plan);
}

/* By one thread, while the others wait. */
static void
between_rounds(struct test *test)
{
    test->rounds++;
    if (rig_broken() == 0)
        check_everything(test, "barrier");
    if (rig_broken() == 0 && test->rounds % 3 == 0) {
        rig_close(test->service);
        open_service(test);
        check_everything(test, "reopened");
    }
    set_faults(test);
    test->over = rig_broken() > 0 || test->rounds * ROUND >= test->steps;
}

static void *
worker_main(void *arg)
{
    struct worker *worker = arg;
    struct test *test = worker->test;
    while (!test->over) {
        for (unsigned i = 0; i < ROUND && rig_broken() == 0; i++, worker->done++)
            operations[rig_below(&worker->random, OPERATIONS)](worker);
        /* Handles do not outlive the service; with faults it may be opened anew at any barrier. */
        bool keep = (test->rounds + 1) % 3 != 0 && test->faults == 0;
        for (unsigned i = 0; i < HANDLES; i++)
            if (!keep || rig_once_in(&worker->random, 2))
                close_handle(worker, &worker->handle[i]);
        (void)pthread_barrier_wait(&test->meet);
        if (worker->number == 0)
            between_rounds(test);
        (void)pthread_barrier_wait(&test->meet);
    }
    for (unsigned i = 0; i < HANDLES; i++)
        close_handle(worker, &worker->handle[i]);
    return NULL;
}

/* ---- setting up ---- */

static void
make_shared(struct worker *worker)
{
    struct volume_commit_args args = { .pre = { .kind = PRECONDITION_ANY }, .make_dirs = true };
    for (unsigned i = 0; i < SHARED; i++) {
        char path[32];
        struct volume_attr attr;
        bool created;
        struct err err = ERR_INIT;
        struct model_node *node = model_new(INDEX_FILE, 0644);
        size_t len = i == 0 ? 3u << 20 : random_size(worker);
        model_truncate(node, len);
        fill_random(worker, node->bytes, len);
        (void)snprintf(path, sizeof(path), "shared/f%u", i);
        struct volume_upload *up = volume_upload_begin(worker->test->service, &worker->ctx,
                                                       worker->test->volume, path, &err);
        if (up == NULL || volume_upload_write(up, node->bytes, len, &err) != 0 ||
            volume_commit(up, &worker->ctx, &args, &attr, &created, &err) != 0)
            rig_die("cannot make '%s': %s", path, err.msg);
        model_add(worker->test->shared, path + 7, node);
    }
}

static void
set_up(struct test *test)
{
    struct volume_attr attr;
    struct err err = ERR_INIT;
    open_service(test);
    test->shared = model_new(INDEX_DIR, 0755);
    for (unsigned i = 0; i < test->threads; i++) {
        struct worker *worker = &test->worker[i];
        char path[16];
        *worker = (struct worker){ .test = test, .number = i, .ctx = rig_ctx(i + 1) };
        worker->random.state = test->seed * 1000 + i;
        worker->root = model_new(INDEX_DIR, 0755);
        (void)snprintf(path, sizeof(path), "t%u", i);
        if (volume_make_dirs(test->service, &worker->ctx, test->volume, path, &attr, &err) != 0)
            rig_die("cannot make '%s': %s", path, err.msg);
    }
    make_shared(&test->worker[0]);
    set_faults(test);
}

static void
tear_down(struct test *test)
{
    struct err err = ERR_INIT;
    if (rig_broken() > 0 && volume_conflict_each(test->service, 0, see_conflict, NULL, &err) != 0)
        rig_break("conflicts cannot be listed: %s", err.msg);
    rig_close(test->service);
    store_free(test->bottom);
    for (unsigned i = 0; i < test->threads; i++)
        model_unref(test->worker[i].root);
    model_unref(test->shared);
    (void)pthread_barrier_destroy(&test->meet);
    rig_remove(&test->rig);
}

int
main(int argc, char **argv)
{
    static struct test test;
    pthread_t thread[THREADS_MAX];
    struct err err = ERR_INIT;
    test.trace = rig_env("HOLDFAST_MODEL_TRACE") != NULL;
    test.seed = crash_option(argc, argv, "--seed", rig_seed());
    test.threads = (unsigned)crash_option(argc, argv, "--threads", 1);
    test.steps =
        (unsigned)crash_option(argc, argv, "--steps", crash_long(argc, argv) ? 20000 : 900);
    test.faults = (unsigned)crash_option(argc, argv, "--faults", 0);
    if (test.threads == 0 || test.threads > THREADS_MAX)
        rig_die("--threads: 1 to %u", THREADS_MAX);
    printf("seed %llu, %u threads, %u steps, %u faults in 1000\n", (unsigned long long)test.seed,
           test.threads, test.steps, test.faults);
    if (log_configure(rig_env("HOLDFAST_LOG") == NULL ? "error" : rig_env("HOLDFAST_LOG"), &err) !=
        0)
        rig_die("%s", err.msg);
    rig_make(&test.rig);
    bool file = argc > 1 && strcmp(argv[argc - 1], "--file") == 0;
    test.bottom = file ? rig_store(&test.rig) : mem_store_open(&err);
    if (test.bottom == NULL || pthread_barrier_init(&test.meet, NULL, test.threads) != 0)
        rig_die("cannot begin: %s", err.msg);
    set_up(&test);
    for (unsigned i = 0; i < test.threads; i++)
        if (pthread_create(&thread[i], NULL, worker_main, &test.worker[i]) != 0)
            rig_die("cannot start a thread");
    for (unsigned i = 0; i < test.threads; i++)
        (void)pthread_join(thread[i], NULL);
    uint64_t done = 0;
    for (unsigned i = 0; i < test.threads; i++)
        done += test.worker[i].done;
    printf("%llu operations, %u barriers (%u held by late requests), %u lives, %u broken (seed "
           "%llu)\n",
           (unsigned long long)done, test.rounds, test.held, test.lives, rig_broken(),
           (unsigned long long)test.seed);
    tear_down(&test);
    return rig_broken() == 0 ? 0 : 1;
}
