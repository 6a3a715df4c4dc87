/*
 * The store in a directory: every object is a plain file with exactly its bytes. See s3/file_impl.h for what lies where.
 * A write is staged in .hf~tmp and synced without any lock; then, under the key's lock, the condition is judged and the
 * file renamed into place; then the directory is synced; only then is it done.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "base/sys.h"
#include "s3/file_impl.h"

#define COPY_CHUNK (256u << 10)

static struct file_store *
file_of(struct store *store)
{
    return (struct file_store *)store;
}

static void
count(struct file_store *fs, uint64_t *kind)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&fs->mutex);
    (void)held;
    fs->counters.requests++;
    (*kind)++;
}

static int
count_end(struct file_store *fs, int rc, uint64_t up, uint64_t down)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&fs->mutex);
    (void)held;
    fs->counters.bytes_up += up;
    fs->counters.bytes_down += down;
    if (rc < 0)
        fs->counters.errors++;
    return rc;
}

static int
differs(const char *key, const char *etag, struct err *err)
{
    return err_set(err, ERR_CONFLICT, "'%.200s' is no longer version %s", key, etag);
}

/* ---- reading ---- */

/* Opens the object and fills `out`; ERR_NOT_FOUND when there is none. */
static int
open_key(struct file_store *fs, const char *key, struct file_found *found, struct store_object *out,
         struct err *err)
{
    struct file_path path;
    int rc;

    file_name_of_key(key, &path);
    rc = file_tree_find(fs, &path, found, err);
    if (rc == 1)
        return err_set(err, ERR_NOT_FOUND, "no object '%.200s' in '%s'", key, fs->store.url);
    if (rc < 0)
        return -1;
    return file_meta_read(fs, found->fd, true, &found->st, out, err);
}

static int
head_key(struct file_store *fs, const char *key, struct store_object *out, struct err *err)
{
    scope_found found = FILE_FOUND_INIT;

    return open_key(fs, key, &found, out, err);
}

static int
file_head(struct store *store, const char *key, int64_t deadline_ns, struct store_object *out,
          struct err *err)
{
    struct file_store *fs = file_of(store);

    (void)deadline_ns;
    count(fs, &fs->counters.heads);
    return count_end(fs, head_key(fs, key, out, err), 0, 0);
}

/* Somebody wrote into the file while it was read: what the sink got is no version of anything (INV-1). */
static int
check_unchanged(const struct file_found *found, const char *key, struct err *err)
{
    struct stat now;

    if (fstat(found->fd, &now) < 0)
        return file_fail(err, errno, "cannot look at '%.200s'", key);
    if (now.st_size != found->st.st_size || now.st_mtim.tv_sec != found->st.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != found->st.st_mtim.tv_nsec)
        return err_set(err, ERR_STORE_RACE, "'%.200s' was written while it was read", key);
    return 0;
}

static int
send_bytes(const struct file_store *fs, const struct file_found *found, const struct store_get *req,
           uint64_t len, struct err *err)
{
    scope_free char *chunk = malloc(COPY_CHUNK);
    uint64_t done = 0;

    if (!chunk)
        return err_nomem(err);
    while (done < len) {
        size_t want = len - done < COPY_CHUNK ? (size_t)(len - done) : COPY_CHUNK;
        ssize_t got = sys_read_full(found->fd, chunk, want, (off_t)(req->off + done), err);
        if (got < 0)
            return file_fail_again(err, "cannot read an object");
        if ((size_t)got < want)
            return err_set(err, ERR_STORE_RACE, "'%.200s' was cut while it was read", req->key);
        if (req->sink(req->sink_arg, chunk, want, err) < 0)
            return -1;
        done += want;
        if (file_check_time(fs, req->deadline_ns, err) < 0)
            return -1;
    }
    return check_unchanged(found, req->key, err);
}

static int
get_key(struct file_store *fs, const struct store_get *req, struct store_object *out,
        uint64_t *sent, struct err *err)
{
    scope_found found = FILE_FOUND_INIT;
    uint64_t len;

    if (open_key(fs, req->key, &found, out, err) < 0)
        return -1;
    if (req->if_match && strcmp(req->if_match, out->etag) != 0)
        return differs(req->key, req->if_match, err);
    if (req->off >= out->size && (req->off > 0 || req->len > 0))
        return err_set(err, ERR_RANGE, "range starts beyond the %llu bytes of '%.200s'",
                       (unsigned long long)out->size, req->key);
    len = out->size - req->off;
    if (req->len != 0 && req->len < len)
        len = req->len;
    if (send_bytes(fs, &found, req, len, err) < 0)
        return -1;
    *sent = len;
    return 0;
}

static int
file_get(struct store *store, const struct store_get *req, struct store_object *out,
         struct err *err)
{
    struct file_store *fs = file_of(store);
    uint64_t sent = 0;
    int rc;

    count(fs, &fs->counters.gets);
    rc = get_key(fs, req, out, &sent, err);
    return count_end(fs, rc, 0, sent);
}

/* ---- placing ---- */

static int
judge(struct file_store *fs, const struct store_put *req, struct file_found *found, struct err *err)
{
    struct store_object old;
    int rc;

    if (req->cond.kind == STORE_COND_NONE)
        return 0;
    if (req->cond.kind == STORE_COND_ABSENT)
        return found->fd < 0 ? 0 : err_set(err, ERR_CONFLICT, "'%.200s' exists already", req->key);
    if (found->fd < 0)
        return differs(req->key, req->cond.etag, err);
    store_object_init(&old);
    rc = file_meta_read(fs, found->fd, true, &found->st, &old, err);
    if (rc == 0 && strcmp(old.etag, req->cond.etag) != 0)
        rc = differs(req->key, req->cond.etag, err);
    store_object_release(&old);
    return rc;
}

/* Whether a new object can have its plain name in `dir`. 1 yes, 0 no, -1 error. */
static int
plain_is_free(const struct file_store *fs, int dir, const char *plain, struct err *err)
{
    struct stat st;

    if (!plain[0])
        return 0;
    if (fstatat(dir, plain, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT
                   ? 1
                   : file_fail(err, errno, "cannot look at '%.200s' in '%s'", plain, fs->dir);
    if (S_ISDIR(st.st_mode))
        return 0;
    if (S_ISREG(st.st_mode))
        return 1;
    return err_set(err, ERR_STORE_AWAY,
                   "'%.200s' in '%s' is neither a file nor a directory and is in the way", plain,
                   fs->dir);
}

/* A staged object on its way to its name. */
struct placing {
    const struct store_put *req;
    struct file_stage *stage;
    struct file_path path;
    int dir; /* where it was put, to be synced */
    struct store_put_result *res;
};

/* The directory and the name for the staged file. 0, 1 when directories are missing and !make, -1 error. */
static int
choose_place(struct placing *placing, const struct file_found *found, bool make, const char **name,
             struct err *err)
{
    struct file_store *fs = placing->stage->fs;
    const struct file_path *path = &placing->path;
    char odd[FILE_LAST_MAX];
    scope_fd int top = -1;
    char *slash;
    int rc = file_tree_walk_durable(fs, fs->root, path->dir, make, &top, err);
    int plain;

    if (rc != 0)
        return rc;
    plain = found->fd >= 0 ? !found->odd : plain_is_free(fs, top, path->plain, err);
    if (plain < 0)
        return -1;
    if (plain) {
        *name = path->plain;
        placing->dir = steal_fd(&top);
        return 0;
    }
    (void)snprintf(odd, sizeof(odd), "%s", path->odd);
    slash = strrchr(odd, '/');
    *name = slash ? path->odd + (slash - odd) + 1 : path->odd;
    if (slash)
        *slash = '\0';
    return file_tree_walk_durable(fs, top, slash ? odd : "", make, &placing->dir, err);
}

/* With the locks held: judges, finds the place, renames. 0, 1 when the tree must be changed first (!make), -1 error. */
static int
place_locked(struct placing *placing, bool make, struct err *err)
{
    struct file_store *fs = placing->stage->fs;
    scope_found found = FILE_FOUND_INIT;
    const char *name = NULL;
    int rc = file_tree_find(fs, &placing->path, &found, err);

    if (rc < 0)
        return -1;
    if (judge(fs, placing->req, &found, err) < 0) {
        if (err->code == ERR_CONFLICT)
            placing->res->outcome = STORE_REFUSED;
        return -1;
    }
    rc = choose_place(placing, &found, make, &name, err);
    if (rc != 0)
        return rc;
    if (sys->renameat2(fs->tmp, placing->stage->name, placing->dir, name, 0) < 0) {
        int sys_errno = errno;
        scope_close_fd(&placing->dir);
        if (!make && (sys_errno == ENOENT || sys_errno == EISDIR)) /* pruned, or a new directory */
            return 1;
        return file_fail(err, sys_errno, "cannot name '%.200s' in '%s'", placing->req->key,
                         fs->dir);
    }
    placing->stage->name[0] = '\0';
    if (found.fd >= 0)
        file_meta_forget(fs, &found.st);
    return 0;
}

static int
place_shared(struct placing *placing, struct err *err)
{
    const struct store_put *req = placing->req;
    scope_locks locks = FILE_LOCKS_INIT;

    if (file_lock_shared(placing->stage->fs, req->key, req->deadline_ns, &locks, err) < 0)
        return -1;
    return place_locked(placing, false, err);
}

static int
place_exclusive(struct placing *placing, struct err *err)
{
    scope_locks locks = FILE_LOCKS_INIT;
    int rc;

    if (file_lock_exclusive(placing->stage->fs, placing->req->deadline_ns, &locks, err) < 0)
        return -1;
    rc = place_locked(placing, true, err);
    return rc == 1 ? err_set(err, ERR_INTERNAL, "no place for '%.200s'", placing->req->key) : rc;
}

static int
place(struct placing *placing, struct err *err)
{
    struct file_store *fs = placing->stage->fs;
    int rc = place_shared(placing, err);

    if (rc == 1)
        rc = place_exclusive(placing, err);
    if (rc < 0)
        return -1;
    if (sys->fsync(placing->dir) < 0) {
        placing->res->outcome = STORE_UNKNOWN; /* visible, but perhaps not after a power cut */
        return file_fail(err, errno, "cannot keep the name of '%.200s' in '%s'", placing->req->key,
                         fs->dir);
    }
    memcpy(placing->res->etag, placing->stage->etag, sizeof(placing->res->etag));
    placing->res->outcome = STORE_DONE;
    return 0;
}

static int
put_key(struct file_store *fs, const struct store_put *req, struct store_put_result *res,
        struct err *err)
{
    scope_stage stage = { .fs = fs, .fd = -1 };
    struct placing placing = { .req = req, .stage = &stage, .dir = -1, .res = res };
    int rc;

    if (file_tree_check_root(fs, err) < 0 || file_stage_put(&stage, req, err) < 0)
        return -1;
    file_name_of_key(req->key, &placing.path);
    rc = place(&placing, err);
    scope_close_fd(&placing.dir);
    return rc;
}

static int
file_put(struct store *store, const struct store_put *req, struct store_put_result *res,
         struct err *err)
{
    struct file_store *fs = file_of(store);

    count(fs, &fs->counters.puts);
    return count_end(fs, put_key(fs, req, res, err), req->body.size, 0);
}

/* ---- copying and deleting ---- */

static int
copy_key(struct file_store *fs, const struct store_copy *req, struct store_object *from,
         struct store_put_result *res, struct err *err)
{
    scope_found found = FILE_FOUND_INIT;
    struct store_put put = {
        .key = req->to,
        .content_type = from->content_type,
        .meta = req->meta ? req->meta : &from->meta,
        .deadline_ns = req->deadline_ns,
    };
    uint8_t md5_sum[MD5_SIZE];

    if (open_key(fs, req->from, &found, from, err) < 0)
        return -1;
    if (req->from_if_match && strcmp(req->from_if_match, from->etag) != 0) {
        res->outcome = STORE_REFUSED;
        return differs(req->from, req->from_if_match, err);
    }
    put.body = (struct store_body){ .fd = found.fd, .size = from->size };
    if (hex_decode(from->etag, strlen(from->etag), md5_sum, sizeof(md5_sum)))
        put.body.md5 = md5_sum; /* ours: a copy of bytes that went bad on the disk is refused */
    if (put_key(fs, &put, res, err) < 0)
        return -1;
    if (check_unchanged(&found, req->from, err) < 0) {
        res->outcome = STORE_UNKNOWN;
        return -1;
    }
    return 0;
}

static int
file_copy(struct store *store, const struct store_copy *req, struct store_put_result *res,
          struct err *err)
{
    struct file_store *fs = file_of(store);
    struct store_object from;
    int rc;

    count(fs, &fs->counters.copies);
    store_object_init(&from);
    rc = copy_key(fs, req, &from, res, err);
    store_object_release(&from);
    return count_end(fs, rc, 0, 0);
}

static int
judge_delete(struct file_store *fs, const struct store_delete *req, struct file_found *found,
             enum store_outcome *outcome, struct err *err)
{
    struct store_put as_put = {
        .key = req->key,
        .cond = { .kind = req->if_match ? STORE_COND_MATCH : STORE_COND_NONE,
                  .etag = req->if_match },
    };

    if (judge(fs, &as_put, found, err) == 0)
        return 0;
    if (err->code == ERR_CONFLICT)
        *outcome = STORE_REFUSED;
    return -1;
}

/* Takes the name away; 0, or 1 when there was none. */
static int
remove_found(struct file_store *fs, const struct file_path *path, const struct store_delete *req,
             enum store_outcome *outcome, struct err *err)
{
    scope_found found = FILE_FOUND_INIT;
    int rc = file_tree_find(fs, path, &found, err);

    if (rc < 0 || judge_delete(fs, req, &found, outcome, err) < 0)
        return -1;
    if (rc == 1)
        return 1;
    if (sys->unlinkat(found.dir, found.name, 0) < 0 && errno != ENOENT)
        return file_fail(err, errno, "cannot delete '%.200s' in '%s'", req->key, fs->dir);
    file_meta_forget(fs, &found.st);
    if (sys->fsync(found.dir) < 0) {
        *outcome = STORE_UNKNOWN;
        return file_fail(err, errno, "cannot keep the deletion of '%.200s' in '%s'", req->key,
                         fs->dir);
    }
    return 0;
}

/* The directories that the object leaves empty go with it. */
static void
prune(struct file_store *fs, const struct file_path *path)
{
    const char *slash = strrchr(path->odd, '/');
    char dirs[FILE_PATH_MAX + FILE_LAST_MAX];

    if (slash) {
        (void)snprintf(dirs, sizeof(dirs), "%s%s%.*s", path->dir, path->dir[0] ? "/" : "",
                       (int)(slash - path->odd), path->odd);
        file_tree_prune(fs->root, dirs);
    }
    file_tree_prune(fs->root, path->dir);
}

static int
delete_key(struct file_store *fs, const struct store_delete *req, enum store_outcome *outcome,
           struct err *err)
{
    struct store_delete again = { .key = req->key };
    scope_locks locks = FILE_LOCKS_INIT;
    struct file_path path;
    int rc;

    if (file_lock_shared(fs, req->key, req->deadline_ns, &locks, err) < 0)
        return -1;
    file_name_of_key(req->key, &path);
    rc = remove_found(fs, &path, req, outcome, err);
    /* A plain file that somebody laid over an odd one must not uncover it. */
    while (rc == 0)
        rc = remove_found(fs, &path, &again, outcome, err);
    if (rc < 0)
        return -1;
    prune(fs, &path);
    *outcome = STORE_DONE;
    return 0;
}

static int
file_delete(struct store *store, const struct store_delete *req, enum store_outcome *outcome,
            struct err *err)
{
    struct file_store *fs = file_of(store);

    count(fs, &fs->counters.deletes);
    return count_end(fs, delete_key(fs, req, outcome, err), 0, 0);
}

/* ---- the rest of the contract ---- */

static int
file_list_op(struct store *store, const struct store_list *req, struct err *err)
{
    struct file_store *fs = file_of(store);

    count(fs, &fs->counters.lists);
    return count_end(fs, file_list(fs, req, err), 0, 0);
}

static int
file_presign(struct store *store, const struct store_presign *req, struct buf *url, struct err *err)
{
    (void)req;
    (void)url;
    return err_set(err, ERR_STORE_UNSUPPORTED, "store '%s' has no presigned URLs", store->url);
}

/* Known by construction, as long as the directory is there. */
static int
file_probe(struct store *store, struct store_caps *caps, struct err *err)
{
    if (file_tree_check_root(file_of(store), err) < 0)
        return -1;
    *caps = (struct store_caps){
        .put_if_absent = STORE_YES,
        .put_if_match = STORE_YES,
        .put_atomic = STORE_YES,
        .delete_if_match = STORE_YES,
        .copy_source_if_match = STORE_YES,
        .copy_dest_conditions = STORE_NO,
        .server_side_copy = STORE_YES,
        .etag_quoted = STORE_NO,
        .list_consistent = STORE_YES,
        .presign = STORE_NO,
        .folds_names = STORE_NO,
        .any_bytes = STORE_YES,
        .long_meta = STORE_YES,
        .delete_many = STORE_YES,
        .max_put_bytes = LIMIT_FILE_SIZE,
    };
    return 0;
}

static void
file_counters(struct store *store, struct store_counters *out)
{
    struct file_store *fs = file_of(store);
    scope_unlock pthread_mutex_t *held = scope_lock(&fs->mutex);

    (void)held;
    *out = fs->counters;
}

static void
file_free(struct store *store)
{
    struct file_store *fs = file_of(store);

    scope_close_fd(&fs->open_lock);
    scope_close_fd(&fs->meta);
    scope_close_fd(&fs->lock);
    scope_close_fd(&fs->tmp);
    scope_close_fd(&fs->root);
    pthread_mutex_destroy(&fs->mutex);
    free(fs->dir);
    free(fs);
}

const struct store_ops file_store_ops = {
    .name = "file",
    .head = file_head,
    .get = file_get,
    .put = file_put,
    .del = file_delete,
    .copy = file_copy,
    .list = file_list_op,
    .presign = file_presign,
    .probe = file_probe,
    .counters = file_counters,
    .free = file_free,
};
