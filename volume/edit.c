#include "volume/edit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/scope.h"
#include "base/text.h"
#include "volume/merge.h"

#define PIECE (1u << 20)

/* ---- the bytes of a version ---- */
struct source {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    int64_t volume;
    const char *path, *base;
    struct volume_attr attr;
};

static int
other_version(const struct source *source, struct err *err)
{
    return err_set(err, ERR_CONFLICT, "'%s' is no longer at version %s, but at %s", source->path,
                   source->base, source->attr.version);
}

/* What is there, when it is a file at rest with the version that is meant. */
static int
look(struct source *source, struct err *err)
{
    struct volume_attr *attr = &source->attr;
    if (volume_resolve(source->service, source->ctx, source->volume, source->path, attr, err) != 0)
        return -1;
    if (attr->kind == INDEX_DIR)
        return err_set(err, ERR_IS_DIR, "'%s' is a folder", source->path);
    if (attr->kind != INDEX_FILE)
        return err_set(err, ERR_UNSUPPORTED, "'%s' is no regular file", source->path);
    if (source->base != NULL && strcmp(source->base, attr->version) != 0)
        return other_version(source, err);
    if (attr->writing)
        return err_set(err, ERR_BUSY, "'%s' is being written by a program", source->path);
    return 0;
}

typedef int take_fn(void *arg, const void *data, size_t len, struct err *err);

static int
read_pieces(struct source *source, struct volume_file *file, char *piece, take_fn *take, void *arg,
            struct err *err)
{
    ssize_t got;
    uint64_t off = 0;
    while ((got = volume_file_read(file, source->ctx, piece, PIECE, off, err)) > 0) {
        if (take(arg, piece, (size_t)got, err) != 0)
            return -1;
        off += (uint64_t)got;
    }
    return got < 0 ? -1 : 0;
}

/* A program may have begun to write meanwhile: then the bytes may be of both. */
static int
read_version(struct source *source, take_fn *take, void *arg, struct err *err)
{
    struct volume_file *file = NULL;
    scope_free char *piece = malloc(PIECE);
    if (piece == NULL)
        return err_nomem(err);
    if (volume_file_open(source->service, source->ctx, source->attr.node, O_RDONLY, &file, err) !=
        0)
        return -1;
    int rc = read_pieces(source, file, piece, take, arg, err);
    volume_file_close(file, source->ctx);
    if (rc != 0)
        return -1;
    char seen[LIMIT_ETAG];
    text_set(seen, source->attr.version);
    source->base = seen;
    rc = look(source, err);
    source->base = NULL;
    return rc;
}

/* ---- edit ---- */
static int
take_text(void *arg, const void *data, size_t len, struct err *err)
{
    return buf_append(arg, data, len, err);
}

static int
make_diff(const struct volume_edit *want, const struct buf *before, const struct buf *after,
          struct volume_edited *out, struct err *err)
{
    const struct merge_text from = { want->path, buf_cstr(before), before->len };
    const struct merge_text to = { want->path, buf_cstr(after), after->len };
    if (merge_diff(&from, &to, want->diff, err) == 0)
        return 0;
    if (err->code != ERR_TOO_LARGE)
        return -1;
    buf_clear(want->diff);
    out->cut = true;
    return 0;
}

static int
write_text(const struct source *source, const struct volume_edit *want, const struct buf *text,
           struct volume_attr *attr, struct err *err)
{
    char version[ULID_SIZE] = "";
    bool created;
    struct volume_commit_args args = { .pre = { .kind = PRECONDITION_MATCH, .count = 1 },
                                       .wait_synced = want->wait_synced,
                                       .version = version };
    text_set(args.pre.tag[0], want->base);
    struct volume_upload *upload =
        volume_upload_begin(source->service, source->ctx, want->volume, want->path, err);
    if (upload == NULL)
        return -1;
    if (volume_upload_write(upload, buf_cstr(text), text->len, err) != 0) {
        volume_upload_abort(upload);
        return -1;
    }
    if (volume_commit(upload, source->ctx, &args, attr, &created, err) == 0)
        return 0;
    return err->code == ERR_NOT_SYNCED ? 0 : -1;
}

int
volume_edit(struct volume_service *service, const struct volume_ctx *ctx,
            const struct volume_edit *want, struct volume_edited *out, struct err *err)
{
    struct source source = { service, ctx, want->volume, want->path, want->base, { 0 } };
    scope_buf before;
    scope_buf after;
    buf_init(&before, EDITS_TEXT_MAX + PIECE);
    buf_init(&after, EDITS_TEXT_MAX);
    *out = (struct volume_edited){ .unchanged = false };
    int rc = look(&source, err);
    out->attr = source.attr;
    if (rc != 0)
        return -1;
    if (source.attr.size > EDITS_TEXT_MAX) {
        out->result.reason = EDITS_TOO_LARGE;
        return err_set(err, ERR_TOO_LARGE, "'%s' has over %u bytes: write it anew", want->path,
                       EDITS_TEXT_MAX);
    }
    rc = read_version(&source, take_text, &before, err);
    out->attr = source.attr;
    if (rc != 0)
        return -1;
    if (edits_apply(&before, want->edits, want->count, &after, &out->result, err) != 0)
        return err_wrap(err, "'%s'", want->path);
    if (make_diff(want, &before, &after, out, err) != 0)
        return -1;
    out->unchanged =
        before.len == after.len && memcmp(buf_cstr(&before), buf_cstr(&after), after.len) == 0;
    if (out->unchanged || want->dry_run)
        return 0;
    return write_text(&source, want, &after, &out->attr, err);
}

/* ---- copy ---- */
static int
take_upload(void *arg, const void *data, size_t len, struct err *err)
{
    return volume_upload_write(arg, data, len, err);
}

int
volume_copy_file(struct volume_service *service, const struct volume_ctx *ctx,
                 const struct volume_copying *want, struct volume_attr *out, bool *created,
                 struct err *err)
{
    struct source source = { service, ctx, want->volume, want->from, want->base, { 0 } };
    struct volume_commit_args args = { .pre = want->pre, .wait_synced = want->wait_synced };
    if (look(&source, err) != 0)
        return -1;
    args.mode = source.attr.mode & 07777;
    args.mtime_ns = source.attr.mtime_ns;
    struct volume_upload *upload = volume_upload_begin(service, ctx, want->volume, want->to, err);
    if (upload == NULL)
        return -1;
    if (read_version(&source, take_upload, upload, err) != 0) {
        volume_upload_abort(upload);
        return -1;
    }
    if (volume_commit(upload, ctx, &args, out, created, err) == 0)
        return 0;
    return err->code == ERR_NOT_SYNCED ? 0 : -1;
}
