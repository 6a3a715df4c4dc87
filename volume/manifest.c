#include "volume/manifest_impl.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/parse.h"
#include "base/scope.h"
#include "base/sys.h"

struct writing {
    ZSTD_CCtx *zstd;
    int fd;
    uint64_t off;
    struct buf line;
    char out[65536];
};

static int
feed(struct writing *call, ZSTD_EndDirective how, struct err *err)
{
    ZSTD_inBuffer in = { call->line.data, call->line.len, 0 };
    size_t left;
    do {
        ZSTD_outBuffer out = { call->out, sizeof(call->out), 0 };
        left = ZSTD_compressStream2(call->zstd, &out, &in, how);
        if (ZSTD_isError(left))
            return err_set(err, ERR_INTERNAL, "cannot compress: %s", ZSTD_getErrorName(left));
        if (out.pos > 0 && sys_write_full(call->fd, call->out, out.pos, (off_t)call->off, err) != 0)
            return -1;
        call->off += out.pos;
    } while (how == ZSTD_e_end ? left != 0 : in.pos < in.size);
    return 0;
}

static int
put_line(struct writing *call, json_t *doc, struct err *err)
{
    scope_json *owned = doc;
    buf_clear(&call->line);
    if (doc == NULL)
        return err_nomem(err);
    if (json_print(owned, &call->line, err) != 0 || buf_append_str(&call->line, "\n", err) != 0)
        return -1;
    return feed(call, ZSTD_e_continue, err);
}

static const char *
kind_name(const struct volume_past_entry *entry)
{
    return entry->kind == INDEX_DIR       ? "folder"
           : entry->kind == INDEX_SYMLINK ? "symlink"
           : entry->kind == INDEX_SPECIAL ? "special"
                                          : "file";
}

static int
set_text(json_t *doc, const char *name, const char *text, struct err *err)
{
    if (text[0] == '\0')
        return 0;
    return json_object_set_new(doc, name, json_string(text)) == 0 ? 0 : err_nomem(err);
}

/* Names are any bytes, JSON is UTF-8. */
static int
set_path(json_t *doc, const char *path, struct err *err)
{
    scope_buf coded;
    if (json_object_set_new(doc, "path", json_string(path)) == 0)
        return 0;
    buf_init(&coded, 2 * LIMIT_PATH + 16);
    if (base64_encode(path, strlen(path), &coded, err) != 0)
        return -1;
    return set_text(doc, "path_b64", buf_cstr(&coded), err);
}

static int
put_entry(struct writing *call, const struct volume_past_entry *entry, struct err *err)
{
    scope_json *doc = json_pack("{s:s}", "kind", kind_name(entry));
    if (doc == NULL)
        return err_nomem(err);
    if (set_path(doc, entry->path, err) != 0 ||
        set_text(doc, "version", entry->version, err) != 0 ||
        set_text(doc, "sha256", entry->sha256, err) != 0 ||
        set_text(doc, "history", entry->copy, err) != 0)
        return -1;
    if (entry->kind != INDEX_DIR &&
        json_object_set_new(doc, "size", json_integer((json_int_t)entry->size)) != 0)
        return err_nomem(err);
    if (entry->mode != 0 &&
        (json_object_set_new(doc, "mode", json_integer(entry->mode)) != 0 ||
         json_object_set_new(doc, "uid", json_integer(entry->uid)) != 0 ||
         json_object_set_new(doc, "gid", json_integer(entry->gid)) != 0 ||
         json_object_set_new(doc, "mtime_ns", json_integer(entry->mtime_ns)) != 0))
        return err_nomem(err);
    return put_line(call, json_incref(doc), err);
}

static int
put_all(struct writing *call, const struct volume_past *past, const struct manifest_head *head,
        struct err *err)
{
    const struct volume_past_entry *entry;
    uint64_t files, bytes;
    char at[TIME_RFC3339_SIZE];
    volume_past_usage(past, &files, &bytes);
    time_rfc3339(volume_past_time(past), at, sizeof(at));
    if (put_line(call,
                 json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:I}", "format", 1, "volume",
                           head->volume, "name", head->name, "at", at, "at_ns",
                           (json_int_t)volume_past_time(past), "files", (json_int_t)files, "bytes",
                           (json_int_t)bytes),
                 err) != 0)
        return -1;
    for (size_t i = 0; (entry = volume_past_next(past, &i)) != NULL;)
        if (entry->path[0] != '\0' && put_entry(call, entry, err) != 0)
            return -1;
    buf_clear(&call->line);
    return feed(call, ZSTD_e_end, err);
}

int
manifest_write(const struct volume_past *past, const struct manifest_head *head, int fd,
               uint64_t *size, struct err *err)
{
    scope_free struct writing *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return err_nomem(err);
    call->fd = fd;
    call->zstd = ZSTD_createCCtx();
    buf_init(&call->line, 65536);
    int rc = call->zstd == NULL ? err_nomem(err) : put_all(call, past, head, err);
    ZSTD_freeCCtx(call->zstd);
    buf_release(&call->line);
    *size = call->off;
    return rc;
}
