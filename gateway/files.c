#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/parse.h"
#include "gateway/range.h"
#include "gateway/router.h"
#include "volume/history.h"

/* How long a PUT waits for the bucket when the client does not say (Prefer: wait=S): this, and a second per 4 MiB. */
#define SYNC_WAIT_SECONDS 30
#define SYNC_BYTES_PER_SECOND (4u << 20)

int
gateway_volume_of(struct exchange *x, struct volume_info *out, struct err *err)
{
    return volume_find(x->gateway->service, x->name, out, err);
}

/* ---- reading ---- */
struct reader {
    struct volume_service *service;
    struct volume_file *file;
    struct volume_ctx ctx;
    struct gateway_part part;
    char version[LIMIT_ETAG]; /* that the answer named, "": none */
};

/* Whether what was just read is of the version that the answer named: a row says LIVE before its bytes change. */
static int
reader_check(struct reader *reader, struct err *err)
{
    struct volume_attr now;
    if (reader->version[0] == '\0')
        return 0;
    if (volume_getattr(reader->service, &reader->ctx, volume_file_node(reader->file), &now, err) <
        0)
        return -1;
    if (!now.writing && strcmp(now.version, reader->version) == 0)
        return 0;
    return err_set(err, ERR_AGAIN, "the file was changed while it was read");
}

static ssize_t
reader_read(void *arg, uint64_t off, void *out, size_t max, struct err *err)
{
    struct reader *reader = arg;
    uint64_t left = reader->part.size - off;
    reader->ctx.deadline_ns = clock_mono_ns() + 60 * NS_PER_S;
    ssize_t got = volume_file_read(reader->file, &reader->ctx, out, left < max ? (size_t)left : max,
                                   reader->part.first + off, err);
    return got > 0 && reader_check(reader, err) < 0 ? -1 : got;
}

static void
reader_free(void *arg)
{
    struct reader *reader = arg;
    volume_file_close(reader->file, &reader->ctx);
    free(reader);
}

/* Opens the file so that `attr` describes the version that the handle reads: without that a change between the two calls would
 * send the bytes of one version under the ETag of another (INV-1). */
static struct volume_file *
open_version(struct exchange *x, const struct volume_ctx *ctx, int64_t volume,
             struct volume_attr *attr, struct err *err)
{
    struct volume_service *service = x->gateway->service;
    for (int tries = 0; tries < 5; tries++) {
        struct volume_file *file = NULL;
        struct volume_attr after;
        if (volume_resolve(service, ctx, volume, x->path, attr, err) < 0)
            return NULL;
        if (attr->kind != INDEX_FILE) {
            (void)err_set(err, attr->kind == INDEX_DIR ? ERR_IS_DIR : ERR_UNSUPPORTED,
                          "'%s' is not a plain file", x->path);
            return NULL;
        }
        if (volume_file_open(service, ctx, attr->node, O_RDONLY, &file, err) < 0)
            return NULL;
        if (volume_getattr(service, ctx, attr->node, &after, err) < 0) {
            volume_file_close(file, ctx);
            return NULL;
        }
        if (strcmp(after.version, attr->version) == 0 && after.size == attr->size &&
            after.writing == attr->writing)
            return file;
        volume_file_close(file, ctx);
    }
    (void)err_set(err, ERR_AGAIN, "'%s' is being changed all the time, try again", x->path);
    return NULL;
}

/* The version that the bytes are: none while somebody writes, for then they are not the last version any more (INV-1). */
static const char *
tag_of(const struct volume_attr *attr)
{
    return attr->writing ? "" : attr->version;
}

static int
file_headers(struct exchange *x, const struct volume_attr *attr, struct err *err)
{
    char when[TIME_HTTP_SIZE];
    time_http(attr->mtime_ns, when, sizeof(when));
    const char *tag = tag_of(attr);
    if (tag[0] != '\0' && exchange_reply_header(x, "ETag", err, "\"%s\"", tag) < 0)
        return -1;
    if (attr->mtime_ns != 0 && exchange_reply_header(x, "Last-Modified", err, "%s", when) < 0)
        return -1;
    if (exchange_reply_header(x, "Accept-Ranges", err, "bytes") < 0)
        return -1;
    return exchange_reply_header(x, "Holdfast-Synced", err, "%s", attr->synced ? "true" : "false");
}

/* What stands under this name now, for a client whose base is another version. */
static int
tell_current(struct exchange *x, const struct volume_attr *attr, struct err *err)
{
    char tag[LIMIT_ETAG + 2];
    (void)snprintf(tag, sizeof(tag), "\"%s\"", attr->version);
    json_decref(x->extra);
    x->extra = json_pack("{s:{s:s, s:s, s:I}}", "current", "etag", tag, "version", attr->version,
                         "size", (json_int_t)attr->size);
    return x->extra ? 0 : err_nomem(err);
}

/* Sets status and what goes with it. */
static int
choose_part(struct exchange *x, struct gateway_part *part, const struct volume_attr *attr,
            struct err *err)
{
    const char *range = exchange_header(x, "Range");
    uint64_t first = 0;
    uint64_t last = 0;
    if (!gateway_range_applies(exchange_header(x, "If-Range"), tag_of(attr), attr->mtime_ns))
        range = NULL;
    x->reply.status = 200;
    part->size = attr->size;
    switch (gateway_range_parse(range, attr->size, &first, &last)) {
    case GATEWAY_RANGE_WHOLE:
        return 0;
    case GATEWAY_RANGE_UNSATISFIABLE:
        x->whole_size = attr->size;
        return err_set(err, ERR_RANGE, "the file has %llu bytes", (unsigned long long)attr->size);
    case GATEWAY_RANGE_PART:
        break;
    }
    x->reply.status = 206;
    part->first = first;
    part->size = last - first + 1;
    return exchange_reply_header(x, "Content-Range", err, "bytes %llu-%llu/%llu",
                                 (unsigned long long)first, (unsigned long long)last,
                                 (unsigned long long)attr->size);
}

int
gateway_files_answer(struct exchange *x, struct gateway_part *part, const struct volume_attr *attr,
                     bool fixed, struct err *err)
{
    struct gateway_conditions conditions = {
        .if_match = exchange_header(x, "If-Match"),
        .if_none_match = exchange_header(x, "If-None-Match"),
        .if_modified_since = exchange_header(x, "If-Modified-Since"),
        .if_unmodified_since = exchange_header(x, "If-Unmodified-Since"),
    };
    enum gateway_condition_result result;
    if (gateway_range_judge(&conditions, tag_of(attr), attr->mtime_ns, &result, err) < 0)
        return -1;
    if (result == GATEWAY_CONDITION_FAILED) {
        if (tell_current(x, attr, err) < 0)
            return -1;
        return err_set(err, ERR_CONFLICT, "'%s' has another version", x->path);
    }
    if (file_headers(x, attr, err) < 0 ||
        exchange_reply_header(x, "Cache-Control", err,
                              fixed ? "private, max-age=31536000, immutable"
                                    : "private, no-cache") < 0)
        return -1;
    if (result == GATEWAY_CONDITION_NOT_MODIFIED) {
        x->reply.status = 304;
        return 0;
    }
    if (exchange_reply_header(x, "Content-Type", err, "application/octet-stream") < 0)
        return -1;
    return choose_part(x, part, attr, err);
}

/* 1: `wanted` (NULL: any) is not what is there now. */
static int
get_present(struct exchange *x, const struct volume_info *info, const char *wanted, struct err *err)
{
    struct volume_attr attr;
    struct reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return err_nomem(err);
    exchange_ctx(x, 30, &reader->ctx);
    if (strcmp(x->method, "HEAD") == 0)
        reader->ctx.run = ""; /* reads nothing */
    reader->file = open_version(x, &reader->ctx, info->id, &attr, err);
    reader->ctx.run = reader->ctx.actor = ""; /* the request's headers go before the bytes do */
    if (!reader->file) {
        free(reader);
        return -1;
    }
    int rc = wanted && strcmp(wanted, attr.version) != 0;
    if (rc == 0 && wanted && attr.writing)
        rc = err_set(err, ERR_BUSY,
                     "'%s' is being written in a mount: its version is read when it "
                     "is closed",
                     x->path);
    if (rc == 0)
        rc = gateway_files_answer(x, &reader->part, &attr, wanted != NULL, err);
    if (rc != 0 || x->reply.status == 304 || reader->part.size == 0) {
        reader_free(reader);
        return rc;
    }
    reader->service = x->gateway->service;
    (void)snprintf(reader->version, sizeof(reader->version), "%s", tag_of(&attr));
    x->reply.stream =
        (struct exchange_stream){ reader_read, reader_free, reader, reader->part.size };
    return 0;
}

/* ---- versions that are no more ---- */
#define OLD_BLOCK (1u << 20) /* one request to the store */

struct old_reader {
    struct volume_service *service;
    struct volume_ctx ctx;
    char id[ULID_SIZE];
    struct gateway_part part;
    uint64_t at; /* where in the version the block begins */
    size_t have;
    char block[OLD_BLOCK];
};

static int
fill_block(struct old_reader *old, uint64_t pos, struct err *err)
{
    uint64_t left = old->part.first + old->part.size - pos;
    old->ctx.deadline_ns = clock_mono_ns() + 60 * NS_PER_S;
    ssize_t got = volume_history_read(old->service, &old->ctx, old->id, old->block,
                                      left < sizeof(old->block) ? (size_t)left : sizeof(old->block),
                                      pos, err);
    if (got < 0)
        return -1;
    if (got == 0)
        return err_set(err, ERR_CORRUPT, "the copy '%s' is shorter than it should be", old->id);
    old->at = pos;
    old->have = (size_t)got;
    return 0;
}

static ssize_t
old_read(void *arg, uint64_t off, void *out, size_t max, struct err *err)
{
    struct old_reader *old = arg;
    uint64_t pos = old->part.first + off;
    if (off >= old->part.size)
        return 0;
    if ((pos < old->at || pos >= old->at + old->have) && fill_block(old, pos, err) < 0)
        return -1;
    size_t len = old->have - (size_t)(pos - old->at);
    len = len < max ? len : max;
    memcpy(out, old->block + (pos - old->at), len);
    return (ssize_t)len;
}

static int
get_old(struct exchange *x, const struct volume_version *version, struct err *err)
{
    struct volume_attr attr = { .size = version->size,
                                .mtime_ns = version->made_ns,
                                .synced = true };
    struct old_reader *old = calloc(1, sizeof(*old));
    if (!old)
        return err_nomem(err);
    (void)snprintf(attr.version, sizeof(attr.version), "%s", version->version);
    (void)snprintf(old->id, sizeof(old->id), "%s", version->id);
    old->service = x->gateway->service;
    exchange_ctx(x, 60, &old->ctx);
    old->ctx.run = old->ctx.actor = ""; /* they outlive the request */
    int rc = gateway_files_answer(x, &old->part, &attr, true, err);
    if (rc < 0 || x->reply.status == 304 || old->part.size == 0) {
        free(old);
        return rc;
    }
    x->reply.stream = (struct exchange_stream){ old_read, free, old, old->part.size };
    return 0;
}

/* One round: 1 when what was the present version is one of the past by now. */
static int
get_version(struct exchange *x, const struct volume_info *info, const char *which, struct err *err)
{
    struct volume_attr attr;
    struct volume_version version;
    struct volume_ctx ctx;
    struct err seen = ERR_INIT;
    struct volume_history_want want = { .volume = info->id,
                                        .path = x->path,
                                        .within = gateway_access_within(&x->access) };
    exchange_ctx(x, 30, &ctx);
    bool there = volume_resolve(x->gateway->service, &ctx, info->id, x->path, &attr, &seen) == 0;
    if (there && attr.kind == INDEX_FILE && strcmp(attr.version, which) == 0)
        return get_present(x, info, which, err);
    if (volume_history_find(x->gateway->service, &ctx, &want, which, &version, err) < 0)
        return -1;
    return version.present ? get_present(x, info, version.version, err) : get_old(x, &version, err);
}

int
gateway_files_get(struct exchange *x, struct err *err)
{
    struct volume_info info;
    scope_buf version;
    int rc = 1;
    buf_init(&version, LIMIT_ETAG);
    int asked = gateway_request_query(&x->target, "version", &version, err);
    if (asked < 0 || gateway_volume_of(x, &info, err) < 0)
        return -1;
    if (!asked && gateway_past_asked(x))
        return gateway_past_get(x, err);
    if (!asked)
        return get_present(x, &info, NULL, err);
    if (version.len == 0)
        return err_set(err, ERR_INVAL, "'version' is empty");
    for (int tries = 0; tries < 5 && rc == 1; tries++)
        rc = get_version(x, &info, buf_cstr(&version), err);
    return rc == 1
               ? err_set(err, ERR_AGAIN, "'%s' is being changed all the time, try again", x->path)
               : rc;
}

/* ---- writing ---- */
struct writer {
    struct volume_upload *upload;
    struct volume_ctx ctx;
    struct volume_commit_args args;
    int64_t volume;
    uint64_t size;
};

static void
writer_free(void *state)
{
    struct writer *writer = state;
    if (writer->upload)
        volume_upload_abort(writer->upload);
    free(writer);
}

/* Never a silent overwrite (promise 2): every change of a name says what it believes to be there. */
static int
read_precondition(const struct exchange *x, struct precondition *pre, struct err *err)
{
    /* Who has a link for a new file need not know that this is how it is said. */
    bool fresh = x->link[0] != '\0';
    if (precondition_parse(fresh ? NULL : exchange_header(x, "If-Match"),
                           fresh ? "*" : exchange_header(x, "If-None-Match"), pre, err) < 0)
        return -1;
    if (pre->kind == PRECONDITION_NONE || pre->kind == PRECONDITION_NONE_MATCH)
        return err_set(
            err, ERR_PRECONDITION,
            "say what is there now: If-Match with the ETag, or If-None-Match: * for a new file");
    return 0;
}

static int
read_attributes(const struct exchange *x, struct volume_commit_args *args, struct err *err)
{
    const char *mode = exchange_header(x, "Holdfast-Mode");
    const char *mtime = exchange_header(x, "Holdfast-Mtime");
    if (mode && (!parse_octal_u32(mode, &args->mode) || args->mode > 07777))
        return err_set(err, ERR_INVAL, "Holdfast-Mode must be octal permission bits");
    if (mtime && !parse_decimal_seconds(mtime, &args->mtime_ns))
        return err_set(err, ERR_INVAL, "Holdfast-Mtime must be decimal seconds");
    return 0;
}

/* Refuses before the body is read what the commit would refuse after it; the commit judges again. */
static int
judge_early(struct exchange *x, const struct writer *writer, struct err *err)
{
    struct err seen = ERR_INIT;
    struct volume_attr attr;
    bool there = volume_resolve(x->gateway->service, &writer->ctx, writer->volume, x->path, &attr,
                                &seen) == 0;
    if (!there && seen.code != ERR_NOT_FOUND && seen.code != ERR_NOT_DIR)
        return 0;
    if (there && attr.kind != INDEX_FILE)
        return err_set(err, ERR_IS_DIR, "'%s' is not a plain file", x->path);
    /* What a mount's writer has not closed yet is no version that anybody could have named: replacing it now would lose it. */
    if (there && attr.writing)
        return err_set(err, ERR_BUSY,
                       "'%s' is open for writing in a mount: try again when it is closed", x->path);
    if (precondition_holds(&writer->args.pre, there ? attr.version : NULL))
        return 0;
    if (there && tell_current(x, &attr, err) < 0)
        return -1;
    return err_set(err, ERR_CONFLICT, there ? "'%s' has another version" : "'%s' is not there",
                   x->path);
}

int
gateway_files_put_begin(struct exchange *x, struct err *err)
{
    struct volume_info info;
    struct writer *writer = calloc(1, sizeof(*writer));
    if (!writer)
        return err_nomem(err);
    x->state = writer;
    x->state_free = writer_free;
    if (read_precondition(x, &writer->args.pre, err) < 0 ||
        read_attributes(x, &writer->args, err) < 0 || gateway_volume_of(x, &info, err) < 0)
        return -1;
    if (info.read_only)
        return err_set(err, ERR_READ_ONLY, "volume '%s' is read-only", info.name);
    exchange_ctx(x, SYNC_WAIT_SECONDS, &writer->ctx);
    writer->volume = info.id;
    if (judge_early(x, writer, err) < 0)
        return -1;
    writer->args.make_dirs = true;
    writer->args.wait_synced = !exchange_prefers(x, "respond-async", NULL);
    writer->upload = volume_upload_begin(x->gateway->service, &writer->ctx, info.id, x->path, err);
    return writer->upload ? 0 : -1;
}

int
gateway_files_put_chunk(struct exchange *x, const void *data, size_t len, struct err *err)
{
    struct writer *writer = x->state;
    writer->size += len;
    uint64_t most = x->put_most != 0 ? x->put_most : LIMIT_PUT_BODY;
    if (writer->size > most)
        return err_set(err, ERR_TOO_LARGE, "the body is larger than %llu bytes",
                       (unsigned long long)most);
    return volume_upload_write(writer->upload, data, len, err);
}

static int
put_failed(struct exchange *x, const struct volume_attr *attr, struct err *err)
{
    if (err->code == ERR_CONFLICT && attr->version[0] != '\0') {
        struct err ignored = ERR_INIT;
        (void)tell_current(x, attr, &ignored);
    }
    if (err->code == ERR_NOT_SYNCED) {
        json_decref(x->extra);
        x->extra = json_pack("{s:b, s:s}", "staged", 1, "version", attr->version);
        return err_wrap(err, "staged and safe on this machine, but not in the bucket yet");
    }
    return -1;
}

int
gateway_files_put_end(struct exchange *x, struct err *err)
{
    struct writer *writer = x->state;
    struct volume_attr attr = { 0 };
    bool created = false;
    uint64_t wait = SYNC_WAIT_SECONDS + writer->size / SYNC_BYTES_PER_SECOND;
    (void)exchange_prefers(x, "wait", &wait);
    writer->ctx.deadline_ns = clock_mono_ns() + (int64_t)(wait < 3600 ? wait : 3600) * NS_PER_S;
    if (judge_early(x, writer, err) < 0) /* the body may have taken hours */
        return -1;
    if (volume_commit(steal(&writer->upload), &writer->ctx, &writer->args, &attr, &created, err) <
        0)
        return put_failed(x, &attr, err);
    int status = created ? 201 : 200;
    if (!writer->args.wait_synced)
        status = 202;
    if (file_headers(x, &attr, err) < 0 ||
        exchange_reply_header(x, "Cache-Control", err, "private, no-cache") < 0)
        return -1;
    const char *name = strrchr(x->path, '/');
    name = name ? name + 1 : x->path;
    return exchange_reply_json(x, status, gateway_tree_json(name, strlen(name), &attr), err);
}

/* ---- removing ---- */
struct first_child {
    char name[LIMIT_NAME + 1];
    size_t len;
    bool dir;
    int64_t node;
    bool found;
};

static int
take_first(void *arg, const struct volume_entry *entry, struct err *err)
{
    struct first_child *child = arg;
    (void)err;
    memcpy(child->name, entry->name, entry->name_len);
    child->name[entry->name_len] = '\0';
    child->len = entry->name_len;
    child->dir = entry->attr.kind == INDEX_DIR;
    child->node = entry->attr.node;
    child->found = true;
    return 1;
}

/* Empties a folder, deepest first, without recursion: always the first entry of the folder we stand in. */
static int
empty_dir(struct volume_service *service, const struct volume_ctx *ctx, int64_t top,
          struct err *err)
{
    int64_t at = top;
    for (;;) {
        struct first_child child = { .found = false };
        struct volume_attr attr;
        if (clock_mono_ns() > ctx->deadline_ns)
            return err_set(err, ERR_AGAIN,
                           "the folder is being filled, or is too large for one call: try again");
        if (volume_list(service, ctx, &(struct volume_page){ .dir = at, .after = 0, .limit = 1 },
                        take_first, &child, err) < 0)
            return -1;
        if (child.found && child.dir) {
            at = child.node;
        } else if (child.found) {
            struct volume_name name = { at, child.name, child.len };
            if (volume_remove(service, ctx, &name, false, NULL, err) < 0)
                return -1;
        } else if (at == top) {
            return 0;
        } else {
            char path[LIMIT_PATH + 1];
            if (volume_getattr(service, ctx, at, &attr, err) < 0 ||
                volume_path(service, at, path, sizeof(path), err) < 0)
                return -1;
            const char *base = strrchr(path, '/');
            base = base ? base + 1 : path;
            struct volume_name name = { attr.parent, base, strlen(base) };
            if (volume_remove(service, ctx, &name, true, NULL, err) < 0)
                return -1;
            at = attr.parent;
        }
    }
}

static int
remove_node(struct exchange *x, const struct volume_ctx *ctx, const struct volume_attr *attr,
            const struct precondition *pre, struct err *err)
{
    const char *base = strrchr(x->path, '/');
    base = base ? base + 1 : x->path;
    struct volume_name name = { attr->parent, base, strlen(base) };
    bool dir = attr->kind == INDEX_DIR;
    bool recursive = false;
    if (exchange_query_bool(x, "recursive", &recursive, err) < 0)
        return -1;
    if (dir && recursive && empty_dir(x->gateway->service, ctx, attr->node, err) < 0)
        return -1;
    return volume_remove(x->gateway->service, ctx, &name, dir, dir ? NULL : pre, err);
}

int
gateway_files_delete(struct exchange *x, struct err *err)
{
    struct volume_info info;
    struct volume_attr attr;
    struct volume_ctx ctx;
    struct precondition pre;
    exchange_ctx(x, 30, &ctx);
    if (read_precondition(x, &pre, err) < 0 || gateway_volume_of(x, &info, err) < 0)
        return -1;
    if (info.read_only)
        return err_set(err, ERR_READ_ONLY, "volume '%s' is read-only", info.name);
    if (volume_resolve(x->gateway->service, &ctx, info.id, x->path, &attr, err) < 0)
        return -1;
    if (!precondition_holds(&pre, attr.version)) {
        if (tell_current(x, &attr, err) < 0)
            return -1;
        return err_set(err, ERR_CONFLICT, "'%s' has another version", x->path);
    }
    if (remove_node(x, &ctx, &attr, &pre, err) < 0)
        return -1;
    x->reply.status = 204;
    return 0;
}
