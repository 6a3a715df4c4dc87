#include <errno.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/audit.h"
#include "volume/extra_impl.h"
#include "volume/form_impl.h"
#include "volume/link_impl.h"
#include "volume/preserve_impl.h"
#include "volume/reads_impl.h"

/*
 * Whole files from HTTP, the command line and restores: stage → rows and work item in one transaction → conditional PUT by
 * the engine → one transaction → the staged file is the cache's → watchers. The bytes are fdatasynced before their row
 * (INV-2); nothing of a cut upload is ever visible.
 */

struct volume_upload {
    struct volume_service *service;
    int64_t volume;
    char path[LIMIT_PATH + 1];
    char actor[64], run[64];
    int64_t number;
    struct cache_file *file;
    uint64_t size;
    struct hash *sha256, *md5;
};

void
volume_upload_abort(struct volume_upload *upload)
{
    if (upload == NULL)
        return;
    if (upload->file != NULL) {
        cache_put(upload->file);
        cache_remove(upload->service->cache, upload->number);
    }
    hash_free(upload->sha256);
    hash_free(upload->md5);
    free(upload);
}

struct begin_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    struct volume_upload *upload;
};

static int
begin_upload_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct begin_call *call = arg;
    struct index_volume volume;
    char key[LIMIT_KEY + 1];
    if (index_volume_get(tx, call->upload->volume, &volume, err) != 0 ||
        service_may_write(call->service, call->ctx, &volume, err) != 0 ||
        key_of_path(&volume, call->upload->path, false, key, err) != 0)
        return -1;
    return index_content_number(tx, &call->upload->number, err);
}

struct volume_upload *
volume_upload_begin(struct volume_service *service, const struct volume_ctx *ctx, int64_t volume,
                    const char *path, struct err *err)
{
    struct volume_upload *upload = calloc(1, sizeof(*upload));
    if (upload == NULL) {
        err_nomem(err);
        return NULL;
    }
    upload->service = service;
    upload->volume = volume;
    text_set(upload->path, path);
    text_set(upload->actor, ctx->actor == NULL ? "" : ctx->actor);
    text_set(upload->run, ctx->run == NULL ? "" : ctx->run);
    struct begin_call call = { .service = service, .ctx = ctx, .upload = upload };
    struct cache_meta meta = { .live = true };
    bool ok = path_check(path, strlen(path), err) == 0;
    if (ok && path[0] == '\0') {
        (void)err_set(err, ERR_IS_DIR, "the root of a volume is a folder");
        ok = false;
    }
    ok = ok && index_write(service->index, INDEX_NORMAL, begin_upload_tx, &call, err) == 0;
    ok = ok && (upload->sha256 = hash_new(HASH_SHA256, err)) != NULL;
    ok = ok && (upload->md5 = hash_new(HASH_MD5, err)) != NULL;
    /* Without a volume in its .meta a rebuild knows that nobody was promised these bytes. */
    ok = ok &&
         (upload->file = cache_create(service->cache, upload->number, &meta, true, err)) != NULL;
    if (ok)
        return upload;
    volume_upload_abort(upload);
    return NULL;
}

int
volume_upload_write(struct volume_upload *upload, const void *data, size_t len, struct err *err)
{
    if (len > LIMIT_FILE_SIZE - upload->size)
        return err_set(err, ERR_TOO_LARGE, "files end at %llu bytes",
                       (unsigned long long)LIMIT_FILE_SIZE);
    if (cache_file_write(upload->file, data, len, upload->size, err) != 0 ||
        hash_update(upload->sha256, data, len, err) != 0 ||
        hash_update(upload->md5, data, len, err) != 0)
        return -1;
    upload->size += len;
    return 0;
}

/* ---- the transaction ---- */

struct commit_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    struct volume_upload *upload;
    const struct volume_commit_args *args;
    struct index_content content;
    struct index_node node;
    struct index_volume volume;
    int64_t parent;
    const char *name;
    size_t name_len;
    bool existed;
    int64_t replaced; /* the node whose place the new one takes, 0: none */
    bool other_kind;  /* the same node was a link */
    bool stale;       /* its run had read what others changed meanwhile */
    struct volume_attr *attr;
    struct drop_list drop;
    char key[LIMIT_KEY + 1];
    char now_version[LIMIT_ETAG];
    char was[LIMIT_ETAG]; /* the version that was there */
};

static int
find_place(struct index_tx *tx, struct commit_call *call, struct err *err)
{
    const char *rest = call->upload->path;
    size_t rest_len = strlen(rest);
    struct index_node dir;
    call->parent = call->volume.root;
    while (path_next(&rest, &rest_len, &call->name, &call->name_len) && rest_len > 0) {
        if (index_node_child(tx, call->parent, call->name, call->name_len, &dir, err) != 0)
            return err->code == ERR_NOT_FOUND
                       ? err_set(err, ERR_NOT_FOUND, "no such folder: '%.*s'", (int)call->name_len,
                                 call->name)
                       : -1;
        if (dir.kind != INDEX_DIR)
            return err_set(err, ERR_NOT_DIR, "'%.*s' is not a folder", (int)call->name_len,
                           call->name);
        call->parent = dir.id;
    }
    return 0;
}

static int
judge_precondition(struct index_tx *tx, struct commit_call *call, struct err *err)
{
    struct err missing = ERR_INIT;
    call->existed =
        index_node_child(tx, call->parent, call->name, call->name_len, &call->node, &missing) == 0;
    if (!call->existed && missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    if (call->existed && call->node.kind == INDEX_DIR)
        return err_set(err, ERR_IS_DIR, "'%s' is a folder", call->upload->path);
    if (call->existed && attr_fill(tx, &call->node, call->attr, err) != 0)
        return -1;
    text_set(call->was, call->existed ? call->attr->version : "");
    if (precondition_holds(&call->args->pre, call->existed ? call->attr->version : NULL))
        return 0;
    if (call->args->pre.kind == PRECONDITION_NONE)
        return err_set(err, ERR_PRECONDITION,
                       "'%s' exists: say which version this replaces (If-Match)",
                       call->upload->path);
    if (!call->existed)
        return err_set(err, ERR_CONFLICT, "'%s' does not exist any more", call->upload->path);
    return err_set(err, ERR_CONFLICT, "'%s' was changed meanwhile (now version %s)",
                   call->upload->path, call->attr->version);
}

static void
fill_content(struct commit_call *call)
{
    struct index_content *row = &call->content;
    row->id = call->upload->number;
    row->node = call->node.id;
    row->volume = call->upload->volume;
    row->state = CONTENT_FROZEN;
    row->flags = CONTENT_COMPLETE | CONTENT_ACKED | CONTENT_DURABLE;
    row->size = call->upload->size;
    text_set(row->base_version, call->node.version);
    text_set(row->base_etag, call->node.etag);
    text_set(row->boot_id, call->service->boot_id);
    text_set(row->actor, call->upload->actor);
    text_set(row->run, call->upload->run);
}

/* Somebody has the present file open: it goes on as an orphan, like rename-over (docs/mechanisms.md section 2). One with other
 * names goes on under them. */
static int
make_room(struct index_tx *tx, struct commit_call *call, struct err *err)
{
    struct index_node old = call->node;
    bool linked = (old.flags & (INDEX_NODE_LINK | INDEX_NODE_LINKED)) != 0;
    if (!call->existed || (!linked && inode_open_count(&call->service->inodes, old.id) == 0))
        return 0;
    uint32_t mode = call->attr->mode;
    call->existed = false;
    if ((!linked && node_mark_loser(tx, &old, err) != 0) ||
        node_unname(call->service, tx, &old, true, &call->drop, err) != 0)
        return -1;
    if ((old.flags & INDEX_NODE_LOSER) != 0)
        inode_tell_loser(call->service, old.id);
    memset(&call->node, 0, sizeof(call->node));
    call->node.mode = mode;
    call->replaced = call->attr->node;
    return 0;
}

static int
be_like(struct index_tx *tx, struct commit_call *call, struct err *err)
{
    const struct volume_like *like = call->args->like;
    if (like == NULL)
        return 0;
    if (like->has_owner) {
        call->node.uid = like->uid;
        call->node.gid = like->gid;
    }
    return extra_save(tx, call->node.id, like->extra, err);
}

static int
write_rows(struct index_tx *tx, struct commit_call *call, struct err *err)
{
    struct volume_name at = { .parent = call->parent, .name = call->name, .len = call->name_len };
    uint32_t old_mode = call->existed ? call->attr->mode : 0;
    if (make_room(tx, call, err) != 0)
        return -1;
    if (!call->existed) {
        uint32_t mode = call->args->mode != 0 ? call->args->mode
                        : old_mode != 0       ? old_mode & 07777u
                                              : 0644u;
        if (form_check(call->service, tx, &at, err) != 0 ||
            node_make(tx, call->ctx, &at,
                      &(struct node_kind){ .kind = INDEX_FILE, .mode = S_IFREG | (mode & 07777) },
                      &call->node, err) != 0 ||
            (call->replaced != 0 && xattrs_copy(tx, call->replaced, call->node.id, err) != 0))
            return -1;
    } else if (call->args->mode != 0) {
        call->node.mode = S_IFREG | (call->args->mode & 07777);
    }
    call->other_kind = call->existed && call->node.kind != INDEX_FILE;
    if (call->existed && !call->other_kind &&
        preserve_staged(call->service, tx, call->ctx, &call->node, "write", err) != 0)
        return -1;
    call->node.kind = INDEX_FILE;
    if (!S_ISREG(call->node.mode))
        call->node.mode = S_IFREG | 0644;
    call->node.target[0] = '\0';
    fill_content(call);
    if (index_content_insert(tx, &call->content, err) != 0)
        return -1;
    call->node.content = call->content.id;
    call->node.size = call->content.size;
    call->node.mtime_ns = call->content.mtime_ns;
    call->node.ctime_ns = clock_wall_ns();
    if (be_like(tx, call, err) != 0 || index_node_update(tx, &call->node, err) != 0 ||
        key_of_node(tx, &call->node, call->key, err) != 0)
        return -1;
    return key_want_sync(tx, call->node.volume, call->key, 0, err);
}

static int
commit_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct commit_call *call = arg;
    if (index_volume_get(tx, call->upload->volume, &call->volume, err) != 0 ||
        service_may_write(call->service, call->ctx, &call->volume, err) != 0 ||
        find_place(tx, call, err) != 0 || judge_precondition(tx, call, err) != 0)
        return -1;
    bool existed = call->existed;
    uint64_t before = existed ? call->node.size : 0;
    uint64_t more = call->upload->size > before ? call->upload->size - before : 0;
    if (more > 0 && service_may_grow(tx, &call->volume, more, err) != 0)
        return -1;
    const struct reads_written written = { .volume = call->volume.id,
                                           .run = call->upload->run,
                                           .version = call->content.version };
    if (write_rows(tx, call, err) != 0 || attr_fill(tx, &call->node, call->attr, err) != 0 ||
        reads_mark(call->service, tx, &written, &call->stale, err) != 0)
        return -1;
    call->existed = existed;
    return 0;
}

/* ---- waiting for the bucket ---- */

struct outcome_call {
    const struct index_content *content;
    int64_t node;
    bool synced, lost, replaced;
    bool kept, coming; /* in the history; on its way there */
    struct volume_attr *attr;
};

static int
match_mine(void *arg, const struct index_conflict *row, struct err *err)
{
    struct outcome_call *call = arg;
    (void)err;
    if (strcmp(row->mine_version, call->content->version) == 0)
        call->lost = true;
    return 0;
}

static int
match_kept(void *arg, const struct index_history *row, struct err *err)
{
    struct outcome_call *call = arg;
    (void)err;
    call->kept |= row->state == INDEX_HISTORY_KEPT;
    call->coming |= row->state != INDEX_HISTORY_KEPT;
    return 0;
}

/* Somebody may have gone on from it: who wrote this version must not take that one for its own. */
static int
describe_synced(struct index_tx *tx, struct outcome_call *call, struct err *err)
{
    struct index_node node;
    struct volume_attr now;
    struct err missing = ERR_INIT;
    call->synced = true;
    if (index_node_get(tx, call->node, &node, &missing) != 0)
        return 0;
    if (attr_fill(tx, &node, &now, err) != 0)
        return -1;
    if (strcmp(now.version, call->content->version) == 0)
        *call->attr = now;
    call->attr->synced = true;
    return 0;
}

static int
outcome_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct outcome_call *call = arg;
    struct index_content row;
    struct index_version landed;
    struct err missing = ERR_INIT;
    if (index_content_get(tx, call->content->id, &row, &missing) == 0 &&
        row.state == CONTENT_FROZEN && row.node != 0)
        return 0;
    if (index_conflict_each(tx, call->content->volume, match_mine, call, err) != 0)
        return -1;
    if (call->lost)
        return 0;
    /* No longer staged: it landed, perhaps to be replaced at once, or somebody here replaced it before it could. */
    if (index_version_find(tx, call->content->version, &landed, &missing) == 0)
        return describe_synced(tx, call, err);
    if (missing.code != ERR_NOT_FOUND)
        return err_set(err, missing.code, "%s", missing.msg);
    if (index_history_of_version(tx, call->content->version, match_kept, call, err) != 0)
        return -1;
    if (call->kept)
        return describe_synced(tx, call, err);
    call->replaced = !call->coming;
    return 0;
}

static int
wait_synced(struct commit_call *call, int64_t deadline_ns, struct err *err)
{
    struct volume_service *service = call->service;
    for (;;) {
        uint64_t seen = sync_progress(service);
        struct outcome_call outcome = { .content = &call->content,
                                        .node = call->node.id,
                                        .attr = call->attr };
        if (index_read(service->index, outcome_tx, &outcome, err) != 0)
            return -1;
        if (outcome.lost)
            return err_set(
                err, ERR_CONFLICT,
                "the bucket held a newer version of '%s'; yours is kept: see /v1/conflicts",
                call->upload->path);
        if (outcome.replaced)
            return err_set(err, ERR_CONFLICT,
                           "'%s' was replaced on this gateway before the bucket had your version",
                           call->upload->path);
        if (outcome.synced)
            return 0;
        if (!sync_wait(service, seen, deadline_ns))
            return err_set(
                err, ERR_NOT_SYNCED,
                "'%s' is kept here, but the bucket did not take it in time: see holdfast status",
                call->upload->path);
    }
}

static int
volume_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct commit_call *call = arg;
    return index_volume_get(tx, call->upload->volume, &call->volume, err);
}

/* The bytes, and what a rebuild has to know of them, are durable before their row is. */
static int
keep_upload(struct commit_call *call, struct err *err)
{
    struct volume_upload *upload = call->upload;
    struct index_content *row = &call->content;
    struct cache_meta meta = { .live = false, .size = upload->size };
    if (index_read(call->service->index, volume_tx, call, err) != 0 ||
        ulid_new(row->version, err) != 0)
        return -1;
    row->mtime_ns = call->args->mtime_ns != 0 ? call->args->mtime_ns : clock_wall_ns();
    text_set(meta.volume, call->volume.name);
    text_set(meta.path, upload->path);
    text_set(meta.version, row->version);
    text_set(meta.sha256, row->sha256);
    text_set(meta.actor, upload->actor);
    text_set(meta.run, upload->run);
    meta.mode = S_IFREG | (call->args->mode != 0 ? call->args->mode & 07777 : 0644u);
    meta.uid = call->ctx->uid;
    meta.gid = call->ctx->gid;
    meta.mtime_ns = row->mtime_ns;
    if (cache_meta_write(upload->file, &meta, err) != 0)
        return -1;
    return cache_file_sync(upload->file, err);
}

static int
seal_upload(struct volume_upload *upload, struct index_content *content, struct err *err)
{
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    struct hash *sha_hash = steal(&upload->sha256), *md_hash = steal(&upload->md5);
    if (hash_final(sha_hash, sha, err) != 0) {
        hash_free(md_hash);
        return -1;
    }
    if (hash_final(md_hash, md, err) != 0)
        return -1;
    hex_encode(sha, sizeof(sha), content->sha256);
    hex_encode(md, sizeof(md), content->md5);
    return 0;
}

static int
prepare_place(struct commit_call *call, struct err *err)
{
    struct volume_attr attr;
    struct err local = ERR_INIT;
    const char *path = call->upload->path;
    const char *slash = strrchr(path, '/');
    if (call->args->make_dirs && slash != NULL) {
        char dir[LIMIT_PATH + 1];
        (void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
        if (volume_make_dirs(call->service, call->ctx, call->upload->volume, dir, &attr, err) != 0)
            return -1;
    }
    /* The bucket's side of the folder has to be known, or an object of others would be overwritten unseen. */
    if (volume_resolve(call->service, call->ctx, call->upload->volume, path, &attr, &local) == 0 ||
        local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

static void
describe_present(struct commit_call *call)
{
    struct err ignored = ERR_INIT;
    if (volume_resolve(call->service, call->ctx, call->upload->volume, call->upload->path,
                       call->attr, &ignored) != 0)
        memset(call->attr, 0, sizeof(*call->attr));
}

static void
tell_readers(const struct commit_call *call)
{
    if (call->existed)
        reads_changed(call->service, call->replaced != 0 ? call->replaced : call->node.id,
                      call->upload->run);
    if (call->stale)
        event_emit(call->service, VOLUME_EVENT_STALE, &call->node, 0);
    volume_audit_act(call->service, call->ctx,
                     (struct audit_record){ .verb = call->existed ? "write" : "create",
                                            .volume_name = call->volume.name,
                                            .path = call->upload->path,
                                            .before = call->was,
                                            .after = call->content.version,
                                            .bytes = (int64_t)call->content.size,
                                            .detail = call->stale ? "stale reads" : NULL });
}

int
volume_commit(struct volume_upload *upload, const struct volume_ctx *ctx,
              const struct volume_commit_args *args, struct volume_attr *out, bool *created,
              struct err *err)
{
    struct volume_service *service = upload->service;
    struct commit_call call = {
        .service = service, .ctx = ctx, .upload = upload, .args = args, .attr = out
    };
    int rc = prepare_place(&call, err);
    if (rc == 0)
        rc = seal_upload(upload, &call.content, err);
    if (rc == 0)
        rc = keep_upload(&call, err);
    if (rc == 0)
        rc = index_write(service->index, INDEX_FULL, commit_tx, &call, err);
    if (rc != 0) {
        if (err->code == ERR_CONFLICT || err->code == ERR_PRECONDITION)
            describe_present(&call);
        free(call.drop.number);
        volume_upload_abort(upload);
        return -1;
    }
    drop_run(service, &call.drop);
    if (args->version != NULL)
        text_copy(args->version, ULID_SIZE, call.content.version);
    *created = !call.existed;
    cache_put(steal(&upload->file));
    sync_kick(service);
    tell_readers(&call);
    bool anew = call.existed && (call.replaced != 0 || call.other_kind);
    if (anew)
        event_emit(service, VOLUME_EVENT_REMOVED, &call.node, ctx->connection);
    event_emit(service, call.existed && !anew ? VOLUME_EVENT_CHANGED : VOLUME_EVENT_CREATED,
               &call.node, ctx->connection);
    event_settle(service, ctx);
    if (args->wait_synced) {
        rest_suspend(service);
        rc = wait_synced(&call, service_deadline(ctx), err);
        rest_resume(service);
        if (rc != 0 && err->code == ERR_CONFLICT)
            describe_present(&call);
    }
    volume_upload_abort(upload);
    return rc;
}
