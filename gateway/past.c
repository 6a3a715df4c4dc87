#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "gateway/router.h"
#include "volume/snapshot.h"

/* Folders and files as they were (`?at=`): a time, how long ago, or the name of a snapshot. */

#define PAGE_DEFAULT 1000
#define PAGE_MOST 10000

bool
gateway_past_asked(const struct exchange *x)
{
    struct err ignored = ERR_INIT;
    scope_buf text;
    buf_init(&text, 128);
    return gateway_request_query(&x->target, "at", &text, &ignored) != 0;
}

static int
open_past(struct exchange *x, struct volume_past **out, struct err *err)
{
    struct volume_info info;
    int64_t at_ns;
    scope_buf text;
    buf_init(&text, 128);
    if (gateway_request_query(&x->target, "at", &text, err) < 0 ||
        gateway_volume_of(x, &info, err) < 0 ||
        volume_snapshot_time(x->gateway->service, info.id, buf_cstr(&text), &at_ns, err) < 0)
        return -1;
    if (at_ns > clock_wall_ns())
        return err_set(err, ERR_INVAL, "'%s' has not come yet", buf_cstr(&text));
    return volume_past_open(x->gateway->service, info.id, at_ns, out, err);
}

/* Of an entry that was looked at. */
static void
fill_attr(const struct volume_past_entry *entry, struct volume_attr *out)
{
    *out = (struct volume_attr){ .kind = entry->kind,
                                 .mode = entry->mode,
                                 .uid = entry->uid,
                                 .gid = entry->gid,
                                 .size = entry->size,
                                 .mtime_ns = entry->mtime_ns,
                                 .synced = true };
    (void)snprintf(out->version, sizeof(out->version), "%s", entry->version);
}

/* ---- a folder ---- */

struct listing {
    struct exchange *x;
    struct volume_ctx ctx;
    struct volume_past *past;
    struct exchange_list list;
    size_t at; /* the next page's cursor */
};

static int
add_child(struct listing *call, const struct volume_past_entry *child, struct err *err)
{
    struct volume_past_entry seen;
    struct volume_attr attr;
    const char *slash = strrchr(child->path, '/');
    const char *name = slash ? slash + 1 : child->path;
    if (volume_past_look(call->x->gateway->service, &call->ctx, child, &seen, err) < 0)
        return -1;
    fill_attr(&seen, &attr);
    return exchange_list_add(&call->list, gateway_tree_json(name, strlen(name), &attr), err);
}

static int
fill_list(struct listing *call, uint64_t cursor, struct err *err)
{
    const struct volume_past_entry *child;
    const char *path = call->x->path;
    size_t count = 0;
    const struct volume_past_entry *dir = volume_past_find(call->past, path);
    if (!dir)
        return err_set(err, ERR_NOT_FOUND, "there was no '%s' then", path);
    if (dir->kind != INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "'%s' was not a folder", path);
    while (volume_past_next(call->past, &count) != NULL)
        continue;
    size_t at = cursor < count ? (size_t)cursor : count;
    int rc = 0;
    while (rc == 0 && (child = volume_past_child(call->past, path, &at)) != NULL) {
        rc = add_child(call, child, err);
        if (rc == 0)
            call->at = at;
    }
    return rc < 0 ? -1 : 0;
}

static int
reply_list(struct listing *call, struct err *err)
{
    char next[24], at[TIME_RFC3339_SIZE];
    time_rfc3339(volume_past_time(call->past), at, sizeof(at));
    (void)snprintf(next, sizeof(next), "%zu", call->at);
    return exchange_reply_json(call->x, 200,
                               json_pack("{s:s, s:o, s:s, s:O, s:s?}", "volume", call->x->name,
                                         "path", json_bytes(call->x->path, strlen(call->x->path)),
                                         "at", at, "entries", call->list.items, "next",
                                         call->list.truncated ? next : NULL),
                               err);
}

int
gateway_past_list(struct exchange *x, struct err *err)
{
    scope_json *entries = json_array();
    uint64_t cursor = 0;
    struct listing call = {
        .x = x, .list = { .items = entries, .limit = PAGE_DEFAULT, .room = EXCHANGE_LIST_ROOM }
    };
    if (!entries)
        return err_nomem(err);
    if (exchange_query_uint(x, "limit", &call.list.limit, err) < 0 ||
        exchange_query_uint(x, "cursor", &cursor, err) < 0)
        return -1;
    if (call.list.limit < 1 || call.list.limit > PAGE_MOST)
        return err_set(err, ERR_INVAL, "limit must be 1 to %d", PAGE_MOST);
    if (open_past(x, &call.past, err) < 0)
        return -1;
    exchange_ctx(x, 60, &call.ctx);
    int rc = fill_list(&call, cursor, err);
    if (rc == 0)
        rc = reply_list(&call, err);
    volume_past_close(call.past);
    return rc;
}

/* ---- a file ---- */

#define BLOCK (1u << 20) /* one request to the store */

struct reader {
    struct volume_service *service;
    struct volume_ctx ctx;
    struct volume_past *past;
    const struct volume_past_entry *entry;
    struct gateway_part part;
    uint64_t at; /* where in the file the block begins */
    size_t have;
    char block[BLOCK];
};

static void
reader_free(void *arg)
{
    struct reader *reader = arg;
    volume_past_close(reader->past);
    free(reader);
}

static int
fill_block(struct reader *reader, uint64_t pos, struct err *err)
{
    uint64_t left = reader->part.first + reader->part.size - pos;
    reader->ctx.deadline_ns = clock_mono_ns() + 60 * NS_PER_S;
    ssize_t got = volume_past_read(reader->service, &reader->ctx, reader->entry, reader->block,
                                   left < BLOCK ? (size_t)left : BLOCK, pos, err);
    if (got < 0)
        return -1;
    if (got == 0)
        return err_set(err, ERR_CORRUPT, "'%s' is shorter than it should be", reader->entry->path);
    reader->at = pos;
    reader->have = (size_t)got;
    return 0;
}

static ssize_t
reader_read(void *arg, uint64_t off, void *out, size_t max, struct err *err)
{
    struct reader *reader = arg;
    uint64_t pos = reader->part.first + off;
    if (off >= reader->part.size)
        return 0;
    if ((pos < reader->at || pos >= reader->at + reader->have) && fill_block(reader, pos, err) < 0)
        return -1;
    size_t len = reader->have - (size_t)(pos - reader->at);
    len = len < max ? len : max;
    memcpy(out, reader->block + (pos - reader->at), len);
    return (ssize_t)len;
}

static int
find_file(struct exchange *x, struct reader *reader, struct volume_attr *attr, struct err *err)
{
    struct volume_past_entry seen;
    if (open_past(x, &reader->past, err) < 0)
        return -1;
    reader->entry = volume_past_find(reader->past, x->path);
    if (!reader->entry)
        return err_set(err, ERR_NOT_FOUND, "there was no '%s' then", x->path);
    if (volume_past_look(reader->service, &reader->ctx, reader->entry, &seen, err) < 0)
        return -1;
    if (seen.kind != INDEX_FILE)
        return err_set(err, seen.kind == INDEX_DIR ? ERR_IS_DIR : ERR_UNSUPPORTED,
                       "'%s' was not a plain file", x->path);
    fill_attr(&seen, attr);
    return 0;
}

int
gateway_past_get(struct exchange *x, struct err *err)
{
    struct volume_attr attr;
    struct reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return err_nomem(err);
    reader->service = x->gateway->service;
    exchange_ctx(x, 60, &reader->ctx);
    reader->ctx.run = reader->ctx.actor = ""; /* they outlive the request */
    int rc = find_file(x, reader, &attr, err);
    if (rc == 0)
        rc = gateway_files_answer(x, &reader->part, &attr, false, err);
    if (rc < 0 || x->reply.status == 304 || reader->part.size == 0) {
        reader_free(reader);
        return rc;
    }
    x->reply.stream =
        (struct exchange_stream){ reader_read, reader_free, reader, reader->part.size };
    return 0;
}
