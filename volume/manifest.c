#include "volume/manifest_impl.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/scope.h"
#include "base/sys.h"
#include "base/text.h"

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

/* ---- reading ---- */

#define LINE_MAX_BYTES 65536u

struct manifest_reader {
    struct manifest_readers fns;
    ZSTD_DCtx *zstd;
    struct buf line;
    bool has_head;
    struct manifest_line entry;
    char out[65536];
};

struct manifest_reader *
manifest_reader_new(const struct manifest_readers *fns, struct err *err)
{
    struct manifest_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL) {
        err_nomem(err);
        return NULL;
    }
    reader->fns = *fns;
    buf_init(&reader->line, LINE_MAX_BYTES);
    reader->zstd = ZSTD_createDCtx();
    if (reader->zstd != NULL)
        return reader;
    manifest_reader_free(reader);
    err_nomem(err);
    return NULL;
}

void
manifest_reader_free(struct manifest_reader *reader)
{
    if (reader == NULL)
        return;
    ZSTD_freeDCtx(reader->zstd);
    buf_release(&reader->line);
    free(reader);
}

static int
read_head(struct manifest_reader *reader, const json_t *doc, struct err *err)
{
    struct manifest_found head = { .at_ns = 0 };
    int64_t format, files, bytes;
    if (json_need_int(doc, "format", &format, err) != 0 ||
        json_need_int(doc, "at_ns", &head.at_ns, err) != 0 ||
        json_need_int(doc, "files", &files, err) != 0 ||
        json_need_int(doc, "bytes", &bytes, err) != 0)
        return -1;
    if (format != 1)
        return err_set(err, ERR_NEWER_FORMAT,
                       "the manifest has format %lld: use the newer holdfast", (long long)format);
    head.files = (uint64_t)(files < 0 ? 0 : files);
    head.bytes = (uint64_t)(bytes < 0 ? 0 : bytes);
    reader->has_head = true;
    int rc = reader->fns.head == NULL ? 0 : reader->fns.head(reader->fns.arg, &head, err);
    return rc == 0 && reader->fns.line == NULL ? 1 : rc;
}

static int
take_text(const json_t *doc, const char *name, char *out, size_t size, struct err *err)
{
    const char *text = "";
    if (json_opt_str(doc, name, &text, err) != 0)
        return -1;
    if (strlen(text) >= size)
        return err_set(err, ERR_CORRUPT, "'%s' is too long", name);
    text_copy(out, size, text);
    return 0;
}

static int
take_path(const json_t *doc, struct manifest_line *out, struct err *err)
{
    scope_buf path;
    const char *coded = NULL;
    buf_init(&path, LIMIT_PATH);
    if (json_opt_str(doc, "path_b64", &coded, err) != 0)
        return -1;
    if (coded == NULL)
        return take_text(doc, "path", out->path, sizeof(out->path), err);
    if (base64_decode(coded, strlen(coded), &path, err) != 0)
        return -1;
    text_set(out->path, buf_cstr(&path));
    return 0;
}

static int
take_numbers(const json_t *doc, struct manifest_line *out, struct err *err)
{
    int64_t size = 0, mode = 0, uid = 0, gid = 0;
    if (json_opt_int(doc, "size", &size, err) != 0 || json_opt_int(doc, "mode", &mode, err) != 0 ||
        json_opt_int(doc, "uid", &uid, err) != 0 || json_opt_int(doc, "gid", &gid, err) != 0 ||
        json_opt_int(doc, "mtime_ns", &out->mtime_ns, err) != 0)
        return -1;
    out->size = (uint64_t)(size < 0 ? 0 : size);
    out->mode = (uint32_t)mode;
    out->uid = (uint32_t)uid;
    out->gid = (uint32_t)gid;
    return 0;
}

static int
read_entry(struct manifest_reader *reader, const json_t *doc, struct err *err)
{
    struct manifest_line *out = &reader->entry;
    const char *kind;
    memset(out, 0, sizeof(*out));
    if (json_need_str(doc, "kind", &kind, err) != 0 || take_path(doc, out, err) != 0 ||
        take_text(doc, "version", out->version, sizeof(out->version), err) != 0 ||
        take_text(doc, "sha256", out->sha256, sizeof(out->sha256), err) != 0 ||
        take_text(doc, "history", out->copy, sizeof(out->copy), err) != 0 ||
        take_numbers(doc, out, err) != 0 || path_check(out->path, strlen(out->path), err) != 0)
        return -1;
    out->kind = strcmp(kind, "folder") == 0    ? INDEX_DIR
                : strcmp(kind, "symlink") == 0 ? INDEX_SYMLINK
                : strcmp(kind, "special") == 0 ? INDEX_SPECIAL
                                               : INDEX_FILE;
    return reader->fns.line(reader->fns.arg, out, err);
}

static int
read_line(struct manifest_reader *reader, struct err *err)
{
    struct err bad = ERR_INIT;
    scope_json *doc = json_parse(reader->line.data, reader->line.len, &bad);
    if (doc == NULL)
        return err_set(err, bad.code == ERR_NOMEM ? ERR_NOMEM : ERR_CORRUPT,
                       "the manifest is damaged: %s", bad.msg);
    return reader->has_head ? read_entry(reader, doc, err) : read_head(reader, doc, err);
}

static int
split(struct manifest_reader *reader, const char *data, size_t len, struct err *err)
{
    while (len > 0) {
        const char *end = memchr(data, '\n', len);
        size_t part = end != NULL ? (size_t)(end - data) : len;
        if (buf_append(&reader->line, data, part, err) != 0)
            return -1;
        if (end == NULL)
            return 0;
        int rc = read_line(reader, err);
        buf_clear(&reader->line);
        if (rc != 0)
            return rc;
        data += part + 1;
        len -= part + 1;
    }
    return 0;
}

int
manifest_feed(struct manifest_reader *reader, const void *data, size_t len, struct err *err)
{
    ZSTD_inBuffer in = { data, len, 0 };
    bool full;
    do {
        ZSTD_outBuffer out = { reader->out, sizeof(reader->out), 0 };
        size_t left = ZSTD_decompressStream(reader->zstd, &out, &in);
        if (ZSTD_isError(left))
            return err_set(err, ERR_CORRUPT, "the manifest is damaged: %s",
                           ZSTD_getErrorName(left));
        full = out.pos == out.size;
        int rc = split(reader, reader->out, out.pos, err);
        if (rc != 0)
            return rc;
    } while (in.pos < in.size || full);
    return 0;
}
