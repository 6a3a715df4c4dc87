#include "volume/grep.h"

#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "base/path.h"
#include "gateway/router.h"

/* Lines of files that a pattern matches. */

#define GREP_DEFAULT 200
#define GREP_MOST 10000
#define FETCH_DEFAULT (64u << 20)

struct grep_page {
    struct volume_grep want;
    struct exchange_list list;
    char folder[LIMIT_PATH + 1], after[LIMIT_PATH + 1];
    struct buf pattern, include;
};

/* HEX-LINE: a place in the order of all lines. */
static int
read_cursor(struct exchange *x, struct grep_page *page, struct err *err)
{
    scope_buf text;
    struct err ignored = ERR_INIT;
    buf_init(&text, 2 * LIMIT_PATH + 24);
    int found = gateway_find_text(x, "cursor", &text, err);
    if (found <= 0)
        return found;
    const char *dash = strchr(buf_cstr(&text), '-');
    size_t hex = dash ? (size_t)(dash - buf_cstr(&text)) : 0;
    if (!dash || hex % 2 != 0 || hex > 2 * LIMIT_PATH ||
        !hex_decode(buf_cstr(&text), hex, page->after, hex / 2) ||
        path_check(page->after, hex / 2, &ignored) < 0 ||
        !parse_u64(dash + 1, &page->want.after_line))
        return err_set(err, ERR_INVAL, "the cursor is not one that a page gave");
    page->after[hex / 2] = '\0';
    return 0;
}

static json_t *
next_json(const struct volume_grep_result *result)
{
    char text[2 * LIMIT_PATH + 24];
    size_t len = strlen(result->last);
    if (!result->more)
        return json_null();
    hex_encode(result->last, len, text);
    (void)snprintf(text + 2 * len, sizeof(text) - 2 * len, "-%llu",
                   (unsigned long long)result->last_line);
    return json_string(text);
}

static int
read_mode(struct exchange *x, struct grep_page *page, struct err *err)
{
    scope_buf mode;
    bool regex = true;
    buf_init(&mode, 16);
    int found = gateway_find_text(x, "mode", &mode, err);
    if (found < 0 || exchange_query_bool(x, "regex", &regex, err) < 0 ||
        exchange_query_bool(x, "ignore_case", &page->want.ignore_case, err) < 0)
        return -1;
    page->want.fixed = !regex;
    if (found == 0 || strcmp(buf_cstr(&mode), "lines") == 0)
        page->want.mode = VOLUME_GREP_LINES;
    else if (strcmp(buf_cstr(&mode), "files") == 0)
        page->want.mode = VOLUME_GREP_FILES;
    else if (strcmp(buf_cstr(&mode), "count") == 0)
        page->want.mode = VOLUME_GREP_COUNT;
    else
        return err_set(err, ERR_INVAL, "the parameter 'mode' must be lines, files or count");
    return 0;
}

static int
read_page(struct exchange *x, struct grep_page *page, struct err *err)
{
    uint64_t context = 0;
    int pattern = gateway_find_text(x, "q", &page->pattern, err);
    int include = pattern < 0 ? -1 : gateway_find_text(x, "include", &page->include, err);
    page->want.fetch = FETCH_DEFAULT;
    if (include < 0 || read_mode(x, page, err) < 0 || read_cursor(x, page, err) < 0 ||
        exchange_query_uint(x, "context", &context, err) < 0 ||
        exchange_query_uint(x, "fetch", &page->want.fetch, err) < 0 ||
        exchange_query_uint(x, "limit", &page->list.limit, err) < 0 ||
        gateway_tree_prefix(x, page->folder, err) < 0)
        return -1;
    if (pattern == 0)
        return err_set(err, ERR_INVAL, "the parameter 'q' is missing: what is looked for");
    if (page->list.limit < 1 || page->list.limit > GREP_MOST)
        return err_set(err, ERR_INVAL, "limit must be 1 to %d", GREP_MOST);
    if (context > GREP_CONTEXT_MAX)
        return err_set(err, ERR_INVAL, "context must be 0 to %u", GREP_CONTEXT_MAX);
    page->want.limit = (unsigned)page->list.limit;
    page->want.context = (unsigned)context;
    page->want.folder = page->folder;
    page->want.after = page->after;
    page->want.pattern = buf_cstr(&page->pattern);
    page->want.include = include > 0 ? buf_cstr(&page->include) : NULL;
    page->list.limit = UINT64_MAX; /* lines beside a hit do not count */
    return 0;
}

static int
add_line(void *arg, const struct volume_grep_line *line, struct err *err)
{
    struct grep_page *page = arg;
    json_t *item = json_object();
    int rc = item ? gateway_tree_text(item, "path", line->path, strlen(line->path)) : -1;
    if (rc == 0 && page->want.mode == VOLUME_GREP_COUNT)
        rc = json_object_set_new(item, "count", json_integer((json_int_t)line->count));
    if (rc == 0 && page->want.mode == VOLUME_GREP_LINES) {
        rc = json_object_set_new(item, "line", json_integer((json_int_t)line->line));
        if (rc == 0 && !line->context)
            rc = json_object_set_new(item, "column", json_integer((json_int_t)line->column));
        if (rc == 0)
            rc = json_object_set_new(item, "text", json_bytes(line->text, line->len));
        if (rc == 0 && line->clipped)
            rc = json_object_set_new(item, "clipped", json_true());
        if (rc == 0 && line->context)
            rc = json_object_set_new(item, "context", json_true());
    }
    if (rc != 0) {
        json_decref(item);
        item = NULL;
    }
    return exchange_list_add(&page->list, item, err);
}

static int
add_skipped(json_t *skipped, const char *why, const struct volume_grep_count *count)
{
    if (count->files == 0)
        return 0;
    json_t *item = json_pack("{s:I, s:I}", "files", (json_int_t)count->files, "bytes",
                             (json_int_t)count->bytes);
    if (!item || gateway_tree_text(item, "path", count->path, strlen(count->path)) < 0) {
        json_decref(item);
        return -1;
    }
    return json_object_set_new(skipped, why, item);
}

static json_t *
skipped_json(const struct volume_grep_result *result)
{
    json_t *skipped = json_object();
    if (skipped && (add_skipped(skipped, "binary", &result->binary) < 0 ||
                    add_skipped(skipped, "too_large", &result->large) < 0 ||
                    add_skipped(skipped, "not_fetched", &result->absent) < 0 ||
                    add_skipped(skipped, "too_hard", &result->hard) < 0 ||
                    add_skipped(skipped, "failed", &result->failed) < 0)) {
        json_decref(skipped);
        return NULL;
    }
    return skipped;
}

static int
answer(struct exchange *x, const struct grep_page *page, const struct volume_grep_result *result,
       struct err *err)
{
    json_t *reply =
        json_pack("{s:s, s:o, s:O, s:I, s:I, s:I, s:o, s:b, s:o}", "volume", x->name, "prefix",
                  json_bytes(page->folder, strlen(page->folder)), "matches", page->list.items,
                  "hits", (json_int_t)result->hits, "files", (json_int_t)result->files, "searched",
                  (json_int_t)result->searched, "skipped", skipped_json(result), "truncated",
                  (int)result->more, "next", next_json(result));
    uint64_t missing = result->absent.files + result->hard.files + result->failed.files;
    if (gateway_find_unlisted(reply, result->unlisted, result->unlisted_path) < 0 ||
        (missing > 0 && json_object_set_new(reply, "complete", json_false()) < 0)) {
        json_decref(reply);
        return err_nomem(err);
    }
    return exchange_reply_json(x, 200, reply, err);
}

int
gateway_grep_lines(struct exchange *x, struct err *err)
{
    struct volume_info info;
    struct volume_ctx ctx;
    struct volume_grep_result result;
    scope_json *items = json_array();
    struct grep_page page = {
        .list = { .items = items, .limit = GREP_DEFAULT, .room = EXCHANGE_LIST_ROOM },
    };
    buf_init(&page.pattern, LIMIT_HTTP_TARGET);
    buf_init(&page.include, LIMIT_PATH);
    exchange_ctx(x, 30, &ctx);
    int rc = items ? 0 : err_nomem(err);
    if (rc == 0 && read_page(x, &page, err) == 0 && gateway_volume_of(x, &info, err) == 0) {
        page.want.volume = info.id;
        page.want.fn = add_line;
        page.want.arg = &page;
        rc = volume_grep(x->gateway->service, &ctx, &page.want, &result, err);
        rc = rc == 0 ? answer(x, &page, &result, err) : -1;
    } else {
        rc = -1;
    }
    buf_release(&page.pattern);
    buf_release(&page.include);
    return rc;
}
