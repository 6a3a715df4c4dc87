#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/conflicts_impl.h"

/*
 * A conflict ends: the bytes that are kept go to where they should be by volume_commit(), under a precondition on what lies there,
 * and when the bucket has them one transaction ends the record and discards the loser's object. Cut anywhere before that, the
 * conflict is as it was; made again, the call finds its bytes in place and only ends the record.
 */

bool
volume_keep_parse(const char *word, enum volume_keep *out)
{
    static const char *const words[] = { [VOLUME_KEEP_MINE] = "mine",
                                         [VOLUME_KEEP_THEIRS] = "theirs",
                                         [VOLUME_KEEP_BOTH] = "both",
                                         [VOLUME_KEEP_MERGE] = "merge" };
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(words[i], word) != 0)
            continue;
        *out = (enum volume_keep)i;
        return true;
    }
    return false;
}

struct resolve {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    const struct volume_resolve *how;
    struct conflict_place place;
    char path[LIMIT_PATH + 1]; /* where the bytes go, */
    struct precondition pre;   /* and what has to lie there */
    struct buf merged;         /* VOLUME_KEEP_MERGE: the bytes; else they are the loser's */
    uint64_t size;
    char sha256[SHA256_HEX];
    char version[ULID_SIZE]; /* of these bytes, once they are staged at the path */
    struct volume_attr attr; /* of the path, */
    bool there;              /* where something lies */
    bool same;               /* and it has these bytes */
    bool again;              /* they lost to yet another version */
    struct drop_list drop;
    bool early; /* conflict_copy=on: the record stays, and nobody waits for the bucket */
    struct volume_like like; /* of the file, where something lies beside it */
    uint32_t mode;
};

/* ---- the end of a record ---- */

static int
end_row(struct index_tx *tx, struct resolve *call, const struct index_conflict *row,
        struct err *err)
{
    char key[LIMIT_KEY + 1];
    (void)snprintf(key, sizeof(key), CONFLICT_PREFIX "%s/%s", call->place.volume.name, row->id);
    if (row->content != 0 && (index_content_delete(tx, row->content, err) != 0 ||
                              drop_add(&call->drop, row->content, err) != 0))
        return -1;
    struct index_content base;
    struct err none = ERR_INIT;
    if (conflict_base(tx, row->id, &base, &none) == 0 &&
        (index_content_delete(tx, base.id, err) != 0 || drop_add(&call->drop, base.id, err) != 0))
        return -1;
    if (index_conflict_delete(tx, row->id, err) != 0)
        return -1;
    /* An upload of it that is under way finds that nobody wants the object, and discards it (versioning/sync.h). */
    return key_discard(tx, row->volume, key, err);
}

static void
tell_resolved(struct resolve *call)
{
    const char *path = call->place.row.path, *slash = strrchr(path, '/');
    struct index_node node = { .volume = call->place.volume.id };
    /* Where nothing lies, the path is told from the root. */
    node.id = call->there ? call->attr.node : 0;
    node.parent = call->there ? call->attr.parent : call->place.volume.root;
    text_set(node.name, call->there && slash != NULL ? slash + 1 : path);
    event_emit(call->service, VOLUME_EVENT_RESOLVED, &node, 0);
}

static int
end_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct resolve *call = arg;
    struct index_conflict row;
    struct index_volume volume;
    if (index_volume_get(tx, call->place.volume.id, &volume, err) != 0 ||
        service_may_write(call->service, call->ctx, &volume, err) != 0 ||
        index_conflict_get(tx, call->how->id, &row, err) != 0 || end_row(tx, call, &row, err) != 0)
        return -1;
    tell_resolved(call);
    return 0;
}

static int
write_durable(struct resolve *call, index_fn *fn, struct err *err)
{
    int rc = index_write(call->service->index, INDEX_FULL, fn, call, err);
    if (rc == 0)
        drop_run(call->service, &call->drop);
    free(call->drop.number);
    call->drop = (struct drop_list){ 0 };
    return rc;
}

static int
end_record(struct resolve *call, struct err *err)
{
    if (write_durable(call, end_tx, err) != 0)
        return -1;
    sync_kick(call->service);
    return 0;
}

/* ---- what lies at the path ---- */

static int
sha_of_node(struct index_tx *tx, const struct index_node *node, char out[SHA256_HEX],
            struct err *err)
{
    struct index_content content;
    struct index_key key;
    struct err missing = ERR_INIT;
    out[0] = '\0';
    if (node->content != 0) {
        if (index_content_get(tx, node->content, &content, err) != 0)
            return -1;
        if (content.state != CONTENT_LIVE)
            text_copy(out, SHA256_HEX, content.sha256);
        return 0;
    }
    if (node->key[0] != '\0' && index_key_get(tx, node->key, &key, &missing) == 0 &&
        strcmp(key.etag, node->etag) == 0)
        text_copy(out, SHA256_HEX, key.sha256);
    return 0;
}

static int
same_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct resolve *call = arg;
    struct index_node node;
    char sha256[SHA256_HEX];
    if (index_node_get(tx, call->attr.node, &node, err) != 0 ||
        sha_of_node(tx, &node, sha256, err) != 0)
        return -1;
    call->same = node.kind == INDEX_FILE && node.size == call->size && sha256[0] != '\0' &&
                 strcmp(sha256, call->sha256) == 0;
    return 0;
}

/* Fills call->attr, there and same. */
static int
look(struct resolve *call, struct err *err)
{
    struct err local = ERR_INIT;
    call->same = false;
    call->there = volume_resolve(call->service, call->ctx, call->place.volume.id, call->path,
                                 &call->attr, &local) == 0;
    if (!call->there) {
        memset(&call->attr, 0, sizeof(call->attr));
        if (local.code == ERR_NOT_FOUND || local.code == ERR_NOT_DIR)
            return 0;
        *err = local;
        return -1;
    }
    if (call->attr.kind != INDEX_FILE ||
        index_read(call->service->index, same_tx, call, &local) == 0)
        return 0;
    if (local.code == ERR_NOT_FOUND) /* it went a moment ago */
        return 0;
    *err = local;
    return -1;
}

static int
changed(const struct resolve *call, struct err *err)
{
    if (!call->there)
        return err_set(
            err, ERR_CONFLICT,
            "'%s' was removed since this conflict was found: look at it, then resolve it "
            "with what is there now as the base",
            call->path);
    return err_set(
        err, ERR_CONFLICT,
        "'%s' was changed since this conflict was found (now version %s): look at it, then "
        "resolve it with that version as the base",
        call->path, call->attr.version);
}

/* The bytes lie at the path already; are they in the bucket? */
static int
await_same(struct resolve *call, struct err *err)
{
    struct volume_service *service = call->service;
    int64_t deadline = service_deadline(call->ctx);
    sync_kick(service);
    for (;;) {
        uint64_t seen = sync_progress(service);
        if (look(call, err) != 0)
            return -1;
        if (!call->same)
            return changed(call, err);
        if (call->attr.synced || call->early)
            return 0;
        if (!sync_wait(service, seen, deadline))
            return err_set(
                err, ERR_NOT_SYNCED,
                "'%s' is kept here, but the bucket did not take it in time; the conflict "
                "ends when it is resolved again",
                call->path);
    }
}

/* ---- the bytes ---- */

#define PIECE (256u << 10)

typedef int piece_fn(void *arg, const void *data, size_t len, struct err *err);

static int
pour_mine(struct resolve *call, piece_fn *fn, void *arg, struct err *err)
{
    ssize_t size = conflict_read_at(call->service, call->ctx, &call->place, NULL, 0, 0, err);
    scope_free char *piece = malloc(PIECE);
    if (size < 0)
        return -1;
    if (piece == NULL)
        return err_nomem(err);
    for (uint64_t off = 0; off < (uint64_t)size;) {
        ssize_t got =
            conflict_read_at(call->service, call->ctx, &call->place, piece, PIECE, off, err);
        if (got < 0 || (got > 0 && fn(arg, piece, (size_t)got, err) != 0))
            return -1;
        if (got == 0)
            return err_set(err, ERR_IO, "the bytes of conflict '%s' end early", call->how->id);
        off += (uint64_t)got;
    }
    call->size = (uint64_t)size;
    return 0;
}

static int
pour(struct resolve *call, piece_fn *fn, void *arg, struct err *err)
{
    if (call->how->keep != VOLUME_KEEP_MERGE)
        return pour_mine(call, fn, arg, err);
    call->size = call->merged.len;
    return call->merged.len == 0 ? 0 : fn(arg, call->merged.data, call->merged.len, err);
}

static int
hash_piece(void *arg, const void *data, size_t len, struct err *err)
{
    return hash_update(arg, data, len, err);
}

/* Size and sha256 of what is kept: from a row where one says so, else from the bytes. */
static int
measure(struct resolve *call, struct err *err)
{
    const struct conflict_place *place = &call->place;
    bool local = place->row.content != 0;
    const char *known = local ? place->content.sha256 : place->known ? place->object.sha256 : "";
    uint8_t sum[SHA256_SIZE];
    if (call->how->keep != VOLUME_KEEP_MERGE && known[0] != '\0') {
        call->size = local ? place->content.size : place->object.size;
        text_set(call->sha256, known);
        return 0;
    }
    struct hash *hash = hash_new(HASH_SHA256, err);
    if (hash == NULL)
        return -1;
    if (pour(call, hash_piece, hash, err) != 0) {
        hash_free(hash);
        return -1;
    }
    if (hash_final(hash, sum, err) != 0)
        return -1;
    hex_encode(sum, sizeof(sum), call->sha256);
    return 0;
}

static int
upload_piece(void *arg, const void *data, size_t len, struct err *err)
{
    return volume_upload_write(arg, data, len, err);
}

/* They become the path's version, and the bucket has them. */
static int
commit(struct resolve *call, struct err *err)
{
    bool created;
    struct volume_commit_args args = {
        .pre = call->pre,
        .wait_synced = !call->early,
        .make_dirs = true,
        .mode = call->mode,
        .like = call->like.has_owner ? &call->like : NULL,
        .version = call->version,
    };
    struct volume_upload *upload =
        volume_upload_begin(call->service, call->ctx, call->place.volume.id, call->path, err);
    if (upload == NULL)
        return -1;
    if (pour(call, upload_piece, upload, err) != 0) {
        volume_upload_abort(upload);
        return -1;
    }
    return volume_commit(upload, call->ctx, &args, &call->attr, &created, err);
}

/* ---- lost again ---- */

struct find_lost {
    const char *version;
    struct index_conflict row;
    bool found;
};

static int
match_lost(void *arg, const struct index_conflict *row, struct err *err)
{
    struct find_lost *find = arg;
    (void)err;
    if (strcmp(row->mine_version, find->version) != 0)
        return 0;
    find->row = *row;
    find->found = true;
    return 0;
}

/* The bucket held yet another version, and what was committed was kept as a conflict of its own. Its bytes are the record's, or come
 * of them: one record is enough, and it says what it lost to now. */
static int
fold_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct resolve *call = arg;
    struct index_conflict row;
    struct find_lost lost = { .version = call->version };
    call->again = false;
    if (index_conflict_each(tx, call->place.volume.id, match_lost, &lost, err) != 0 ||
        index_conflict_get(tx, call->how->id, &row, err) != 0)
        return -1;
    if (!lost.found || strcmp(lost.row.id, row.id) == 0)
        return 0;
    call->again = true;
    if (call->how->keep != VOLUME_KEEP_BOTH) {
        text_set(row.reason, lost.row.reason);
        text_set(row.theirs_version, lost.row.theirs_version);
        text_set(row.theirs_etag, lost.row.theirs_etag);
        if (index_conflict_put(tx, &row, err) != 0)
            return -1;
    }
    return end_row(tx, call, &lost.row, err);
}

/* Who commits under a name that is taken meanwhile learns it in two ways: at once, or when the bucket refuses the PUT. */
static int
lost_again(struct resolve *call, struct err *err)
{
    struct err local = ERR_INIT;
    if (call->version[0] != '\0' && write_durable(call, fold_tx, &local) != 0)
        log_warn(volume, "two conflicts stand for one id=%s why=%s", call->how->id, local.msg);
    if (look(call, &local) != 0) {
        *err = local;
        return -1;
    }
    return changed(call, err);
}

/* ---- each way ---- */

/* What the conflict was lost to has to be there still, unless the caller says what he saw. */
static void
expect(struct resolve *call)
{
    const struct index_conflict *row = &call->place.row;
    const char *theirs = row->theirs_version[0] != '\0' ? row->theirs_version : row->theirs_etag;
    call->pre = call->how->pre;
    if (call->pre.kind != PRECONDITION_NONE)
        return;
    if (theirs[0] == '\0' && strcmp(row->reason, "deleted") != 0 && call->there)
        theirs =
            call->attr
                .version; /* a torn save, or a writer that had lost its name: whatever is there */
    call->pre.kind = theirs[0] == '\0' ? PRECONDITION_ABSENT : PRECONDITION_MATCH;
    call->pre.count = theirs[0] == '\0' ? 0 : 1;
    text_set(call->pre.tag[0], theirs);
}

static int
place_bytes(struct resolve *call, struct err *err)
{
    if (look(call, err) != 0)
        return -1;
    if (call->same)
        return await_same(call, err);
    if (call->there && call->attr.writing)
        return err_set(err, ERR_BUSY, "'%s' is open for writing: try again when it is closed",
                       call->path);
    if (call->there && call->attr.kind == INDEX_DIR)
        return err_set(err, ERR_IS_DIR, "'%s' is a folder now: keep both, or theirs", call->path);
    if (call->how->keep == VOLUME_KEEP_MINE)
        expect(call);
    if (!precondition_holds(&call->pre, call->there ? call->attr.version : NULL))
        return changed(call, err);
    return commit(call, err);
}

static int
keep_at_path(struct resolve *call, struct volume_resolved *out, struct err *err)
{
    text_set(call->path, call->place.row.path);
    if (measure(call, err) != 0)
        return -1;
    if (place_bytes(call, err) != 0)
        return err->code == ERR_CONFLICT ? lost_again(call, err) : -1;
    out->written = call->version[0] != '\0';
    call->there = true;
    return 0;
}

static int
keep_merged(struct resolve *call, struct volume_resolved *out, struct err *err)
{
    struct volume_merged merged = { .text = &call->merged };
    const char *path = call->place.row.path;
    if (volume_conflict_merge(call->service, call->ctx, call->how->id, &merged, err) != 0)
        return -1;
    if (merged.how == VOLUME_MERGE_OVERLAPS)
        return err_set(
            err, ERR_NO_MERGE,
            "both changed the same lines of '%s': put the right text there from 'merged', or "
            "keep mine, theirs or both",
            path);
    if (merged.how != VOLUME_MERGE_CLEAN)
        return err_set(err, ERR_NO_MERGE, "'%s' cannot be merged (%s): keep mine, theirs or both",
                       path, volume_merge_word(merged.how));
    call->pre = (struct precondition){ .kind = PRECONDITION_MATCH, .count = 1 };
    text_set(call->pre.tag[0], merged.theirs);
    return keep_at_path(call, out, err);
}

/* It has the owner and the mode of the file that it lies beside. */
static int
be_like_it(struct resolve *call, struct err *err)
{
    text_set(call->path, call->place.row.path);
    if (look(call, err) != 0)
        return -1;
    if (!call->there || call->attr.kind != INDEX_FILE)
        return 0;
    call->like = (struct volume_like){
        .has_owner = true, .uid = call->attr.uid, .gid = call->attr.gid, .extra = ""
    };
    call->mode = call->attr.mode & 07777;
    return 0;
}

static int
keep_beside(struct resolve *call, struct volume_resolved *out, struct err *err)
{
    int rc = -1;
    if (measure(call, err) != 0 || be_like_it(call, err) != 0)
        return -1;
    call->pre = (struct precondition){ .kind = PRECONDITION_ABSENT };
    for (unsigned nth = 0; nth < 4; nth++) {
        if (beside_name(call->place.row.path, call->how->id, nth, call->path, err) != 0)
            return -1;
        call->version[0] = '\0';
        rc = place_bytes(call, err);
        out->written = rc == 0 && call->version[0] != '\0';
        if (rc == 0 || (err->code != ERR_CONFLICT && err->code != ERR_IS_DIR))
            break;
        if (err->code == ERR_CONFLICT)
            (void)lost_again(call, err); /* the name is another file's */
    }
    call->there = rc == 0;
    return rc != 0 && err->code == ERR_CONFLICT
               ? err_set(err, ERR_EXISTS, "every name for it beside '%s' is taken",
                         call->place.row.path)
               : rc;
}

static int
keep(struct resolve *call, struct volume_resolved *out, struct err *err)
{
    switch (call->how->keep) {
    case VOLUME_KEEP_THEIRS:
        text_set(call->path, call->place.row.path);
        return look(call, err);
    case VOLUME_KEEP_MINE:
        return keep_at_path(call, out, err);
    case VOLUME_KEEP_MERGE:
        return keep_merged(call, out, err);
    case VOLUME_KEEP_BOTH:
        return keep_beside(call, out, err);
    }
    return err_set(err, ERR_INVAL, "keep what?");
}

static int
resolve(struct resolve *call, struct volume_resolved *out, struct err *err)
{
    if (conflict_place(call->service, call->how->id, &call->place, err) != 0 ||
        service_may_write(call->service, call->ctx, &call->place.volume, err) != 0)
        return -1;
    text_set(out->volume, call->place.volume.name);
    int rc = keep(call, out, err);
    text_set(out->path, call->path);
    text_set(out->version, call->there ? call->attr.version : "");
    return rc == 0 ? end_record(call, err) : -1;
}

int
volume_conflict_resolve(struct volume_service *service, const struct volume_ctx *ctx,
                        const struct volume_resolve *how, struct volume_resolved *out,
                        struct err *err)
{
    struct resolve *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return err_nomem(err);
    memset(out, 0, sizeof(*out));
    call->service = service;
    call->ctx = ctx;
    call->how = how;
    buf_init(&call->merged, VOLUME_MERGED_MAX);
    rest_suspend(service);
    int rc = resolve(call, out, err);
    rest_resume(service);
    buf_release(&call->merged);
    free(call);
    return rc;
}

/* ---- conflict_copy=on ---- */

void
conflict_beside(struct volume_service *service, const char *key)
{
    struct err err = ERR_INIT;
    struct volume_resolved done;
    struct volume_resolve how = { .id = strrchr(key, '/') + 1, .keep = VOLUME_KEEP_BOTH };
    struct volume_ctx ctx = { .connection = -1 }; /* nobody waits for kernels to be told */
    scope_free struct resolve *call = calloc(1, sizeof(*call));
    if (call == NULL || conflict_place(service, how.id, &call->place, &err) != 0)
        return;
    const struct index_conflict *row = &call->place.row;
    if ((call->place.volume.options & INDEX_VOLUME_CONFLICT_COPY) == 0 || row->synced ||
        row->content == 0)
        return;
    ctx.actor = row->actor;
    ctx.run = row->run;
    call->service = service;
    call->ctx = &ctx;
    call->how = &how;
    call->early = true;
    if (keep_beside(call, &done, &err) != 0)
        log_warn(volume, "no copy lies beside the path of a conflict id=%s why=%s", row->id,
                 err.msg);
}
