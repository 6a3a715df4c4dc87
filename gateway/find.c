#include "volume/find.h"

#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "gateway/router.h"

/* Paths by a glob, from the index. */

#define FIND_DEFAULT 200
#define FIND_MOST 10000

struct find_page {
    struct volume_find want;
    struct exchange_list list;
    char folder[LIMIT_PATH + 1], after[LIMIT_PATH + 1];
};

int
gateway_find_cursor(struct exchange *x, char out[LIMIT_PATH + 1], struct err *err)
{
    scope_buf text;
    struct err ignored = ERR_INIT;
    buf_init(&text, 2 * LIMIT_PATH);
    out[0] = '\0';
    int found = gateway_request_query(&x->target, "cursor", &text, err);
    if (found <= 0)
        return found;
    if (text.len % 2 != 0 || !hex_decode(buf_cstr(&text), text.len, out, text.len / 2) ||
        path_check(out, text.len / 2, &ignored) < 0)
        return err_set(err, ERR_INVAL, "the cursor is not one that a page gave");
    out[text.len / 2] = '\0';
    return 0;
}

json_t *
gateway_find_next(const char *path)
{
    char hex[2 * LIMIT_PATH + 1];
    hex_encode(path, strlen(path), hex);
    return json_string(hex);
}

int
gateway_find_text(struct exchange *x, const char *name, struct buf *out, struct err *err)
{
    int found = gateway_request_query(&x->target, name, out, err);
    if (found < 0)
        return -1;
    if (found > 0 && memchr(buf_cstr(out), '\0', out->len) != NULL)
        return err_set(err, ERR_INVAL, "the parameter '%s' has a NUL byte", name);
    return found;
}

static int
read_kind(struct exchange *x, unsigned *kinds, struct err *err)
{
    scope_buf kind;
    buf_init(&kind, 16);
    int found = gateway_find_text(x, "kind", &kind, err);
    if (found <= 0)
        return found;
    if (strcmp(buf_cstr(&kind), "file") == 0)
        *kinds = VOLUME_FIND_FILES;
    else if (strcmp(buf_cstr(&kind), "dir") == 0)
        *kinds = VOLUME_FIND_DIRS;
    else if (strcmp(buf_cstr(&kind), "any") != 0)
        return err_set(err, ERR_INVAL, "the parameter 'kind' must be file, dir or any");
    return 0;
}

static int
read_newer(struct exchange *x, int64_t *newer_ns, struct err *err)
{
    scope_buf text;
    buf_init(&text, 64);
    int found = gateway_find_text(x, "newer", &text, err);
    if (found <= 0)
        return found;
    int64_t ns;
    if (time_parse_rfc3339(buf_cstr(&text), &ns) == 0)
        *newer_ns = ns;
    else if (parse_duration(buf_cstr(&text), &ns) && ns <= clock_wall_ns())
        *newer_ns = clock_wall_ns() - ns;
    else
        return err_set(
            err, ERR_INVAL,
            "the parameter 'newer' must be a time as in 2026-07-01T10:00:00Z, or how long "
            "ago, as 2h");
    return 0;
}

static int
read_filters(struct exchange *x, struct find_page *page, struct err *err)
{
    uint64_t none = UINT64_MAX;
    page->want.larger = none;
    if (read_kind(x, &page->want.kinds, err) < 0 || read_newer(x, &page->want.newer_ns, err) < 0 ||
        exchange_query_uint(x, "larger", &page->want.larger, err) < 0 ||
        exchange_query_bool(x, "list", &page->want.list, err) < 0 ||
        exchange_query_uint(x, "limit", &page->list.limit, err) < 0 ||
        gateway_tree_prefix(x, page->folder, err) < 0 ||
        gateway_find_cursor(x, page->after, err) < 0)
        return -1;
    if (page->list.limit < 1 || page->list.limit > FIND_MOST)
        return err_set(err, ERR_INVAL, "limit must be 1 to %d", FIND_MOST);
    page->want.by_size = page->want.larger != none;
    page->want.folder = page->folder;
    page->want.after = page->after;
    page->want.limit = (unsigned)page->list.limit;
    return 0;
}

static const char *
kind_of(const struct volume_attr *attr)
{
    if (attr->kind == INDEX_DIR)
        return "dir";
    if (attr->kind == INDEX_SPECIAL)
        return "special";
    return attr->kind == INDEX_SYMLINK ? "symlink" : "file";
}

static int
add_found(void *arg, const char *path, const struct volume_attr *attr, struct err *err)
{
    struct find_page *page = arg;
    char mtime[TIME_RFC3339_SIZE];
    time_rfc3339(attr->mtime_ns, mtime, sizeof(mtime));
    json_t *item = json_pack("{s:s, s:I, s:s, s:s, s:b}", "kind", kind_of(attr), "size",
                             (json_int_t)attr->size, "mtime", mtime, "version", attr->version,
                             "synced", (int)attr->synced);
    if (item && gateway_tree_text(item, "path", path, strlen(path)) < 0) {
        json_decref(item);
        item = NULL;
    }
    return exchange_list_add(&page->list, item, err);
}

int
gateway_find_unlisted(json_t *answer, uint64_t count, const char *path)
{
    if (!answer || json_object_set_new(answer, "complete", json_boolean(count == 0)) < 0)
        return -1;
    if (count == 0)
        return 0;
    if (json_object_set_new(answer, "unlisted", json_integer((json_int_t)count)) < 0)
        return -1;
    return gateway_tree_text(answer, "unlisted_path", path, strlen(path));
}

int
gateway_find_paths(struct exchange *x, struct err *err)
{
    struct volume_info info;
    struct volume_ctx ctx;
    scope_buf glob;
    scope_json *items = json_array();
    struct find_page page = {
        .list = { .items = items, .limit = FIND_DEFAULT, .room = EXCHANGE_LIST_ROOM },
    };
    struct volume_find_result result = { .more = false };
    buf_init(&glob, LIMIT_PATH);
    if (!items)
        return err_nomem(err);
    exchange_ctx(x, 30, &ctx);
    int found = gateway_find_text(x, "glob", &glob, err);
    if (found < 0 || read_filters(x, &page, err) < 0 || gateway_volume_of(x, &info, err) < 0)
        return -1;
    page.want.volume = info.id;
    page.want.fn = add_found;
    page.want.arg = &page;
    page.want.glob = found > 0 ? buf_cstr(&glob) : "**";
    if (volume_find_paths(x->gateway->service, &ctx, &page.want, &result, err) < 0)
        return -1;
    json_t *answer = json_pack("{s:s, s:o, s:o, s:O, s:b, s:o}", "volume", x->name, "prefix",
                               json_bytes(page.folder, strlen(page.folder)), "glob",
                               json_bytes(page.want.glob, strlen(page.want.glob)), "files", items,
                               "truncated", (int)result.more, "next",
                               result.more ? gateway_find_next(result.last) : json_null());
    if (gateway_find_unlisted(answer, result.unlisted, result.unlisted_path) < 0) {
        json_decref(answer);
        return err_nomem(err);
    }
    return exchange_reply_json(x, 200, answer, err);
}
