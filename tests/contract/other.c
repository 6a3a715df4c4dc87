/* Arguments, deadlines, presigned URLs, counters, the probe. */
#include "base/clock.h"
#include "tests/contract/contract.h"

static void
bad_etags(struct ctx *ctx)
{
    const char *key = key_of(ctx, "e");

    CHECK(ctx, put(ctx, key, TEXT("x")) == 0);
    CHECK_ERROR(ctx, get_range(ctx, key, 0, 0, ""), ERR_INVAL);
    CHECK_ERROR(ctx, get_range(ctx, key, 0, 0, "\"quoted\""), ERR_INVAL);
    CHECK_ERROR(ctx, get_range(ctx, key, 0, 0, "line\r\nbreak"), ERR_INVAL);
    CHECK_ERROR(ctx, copy(ctx, key, key_of(ctx, "to"), "a\nb", NULL), ERR_INVAL);
}

static void
bad_content_type(struct ctx *ctx)
{
    char longest[200];

    memset(longest, 't', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    CHECK_ERROR(ctx, put_meta(ctx, key_of(ctx, "c"), NULL, longest), ERR_INVAL);
    CHECK_ERROR(ctx, put_meta(ctx, key_of(ctx, "c"), NULL, "a/b\r\nx: y"), ERR_INVAL);
    CHECK(ctx, is_absent(ctx, key_of(ctx, "c")));
}

static void
bad_range(struct ctx *ctx)
{
    CHECK(ctx, put(ctx, key_of(ctx, "r"), TEXT("x")) == 0);
    CHECK_ERROR(ctx, get_range(ctx, key_of(ctx, "r"), UINT64_MAX, 2, NULL), ERR_INVAL);
}

static void
too_large(struct ctx *ctx)
{
    const struct store_caps *caps = &ctx->store->caps;
    uint64_t max = caps->multipart != STORE_NO ? LIMIT_FILE_SIZE : caps->max_put_bytes;
    struct store_put req = {
        .key = key_of(ctx, "large"),
        .body = { .mem = "", .fd = -1, .size = max + 1 },
    };

    CHECK_ERROR(ctx, store_put(ctx->store, &req, &ctx->res, &ctx->err), ERR_TOO_LARGE);
    CHECK(ctx, ctx->res.outcome == STORE_NOT_DONE);
}

/* Every call with a deadline that is over ends at once, and nothing has happened. */
static void
deadline_over(struct ctx *ctx)
{
    int64_t start = clock_mono_ns();
    int64_t over = start - 1;
    struct store_put put_req = { .key = key_of(ctx, "late"),
                                 .body = { .mem = "x", .fd = -1, .size = 1 },
                                 .deadline_ns = over };
    struct store_delete del_req = { .key = key_of(ctx, "kept"), .deadline_ns = over };
    struct store_list list_req = { .prefix = ctx->base, .deadline_ns = over };
    struct store_get get_req = { .key = key_of(ctx, "kept"), .deadline_ns = over };

    CHECK(ctx, put(ctx, key_of(ctx, "kept"), TEXT("x")) == 0);
    CHECK_ERROR(ctx, store_put(ctx->store, &put_req, &ctx->res, &ctx->err), ERR_STORE_TIMEOUT);
    CHECK(ctx, ctx->res.outcome == STORE_NOT_DONE);
    CHECK_ERROR(ctx, store_delete(ctx->store, &del_req, &ctx->outcome, &ctx->err),
                ERR_STORE_TIMEOUT);
    CHECK(ctx, ctx->outcome == STORE_NOT_DONE);
    CHECK_ERROR(ctx, store_list(ctx->store, &list_req, &ctx->err), ERR_STORE_TIMEOUT);
    CHECK_ERROR(ctx, store_get(ctx->store, &get_req, NULL, &ctx->err), ERR_STORE_TIMEOUT);
    CHECK_ERROR(ctx, store_head(ctx->store, get_req.key, over, NULL, &ctx->err), ERR_STORE_TIMEOUT);
    CHECK(ctx, is_absent(ctx, put_req.key));
    CHECK(ctx, holds(ctx, del_req.key, TEXT("x")));
    CHECK(ctx, clock_mono_ns() - start < 10 * NS_PER_S);
}

static void
deadline_ahead(struct ctx *ctx)
{
    struct store_put req = {
        .key = key_of(ctx, "in-time"),
        .body = { .mem = "x", .fd = -1, .size = 1 },
        .deadline_ns = clock_mono_ns() + 20 * NS_PER_S,
    };

    CHECK(ctx, store_put(ctx->store, &req, &ctx->res, &ctx->err) == 0);
    CHECK(ctx, holds(ctx, req.key, TEXT("x")));
}

static void
presign(struct ctx *ctx)
{
    struct store_presign req = { .method = "GET",
                                 .key = key_of(ctx, "a b!*'().txt"),
                                 .expires_s = 60 };
    bool can = has_cap(ctx, ctx->store->caps.presign, "presign");
    struct buf url;

    if (ctx->skipped)
        return;
    buf_init(&url, 16384);
    if (can) {
        CHECK(ctx, store_presign(ctx->store, &req, &url, &ctx->err) == 0);
        CHECK(ctx, strncmp(buf_cstr(&url), "http", 4) == 0);
        CHECK(ctx, strstr(buf_cstr(&url), "a%20b%21%2A%27%28%29.txt"));
        CHECK(ctx, strstr(buf_cstr(&url), "X-Amz-Expires=60"));
        CHECK(ctx, strstr(buf_cstr(&url), "X-Amz-Signature="));
    } else {
        CHECK_ERROR(ctx, store_presign(ctx->store, &req, &url, &ctx->err), ERR_STORE_UNSUPPORTED);
        CHECK(ctx, url.len == 0);
    }
    buf_release(&url);
}

static void
presign_bad(struct ctx *ctx)
{
    struct store_presign req = { .method = "GET", .key = key_of(ctx, "x"), .expires_s = 0 };
    struct buf url;

    buf_init(&url, 16384);
    CHECK_ERROR(ctx, store_presign(ctx->store, &req, &url, &ctx->err), ERR_INVAL);
    req.expires_s = 604801;
    CHECK_ERROR(ctx, store_presign(ctx->store, &req, &url, &ctx->err), ERR_INVAL);
    req.expires_s = 60;
    req.method = "DELETE";
    CHECK_ERROR(ctx, store_presign(ctx->store, &req, &url, &ctx->err), ERR_INVAL);
    CHECK(ctx, url.len == 0);
    buf_release(&url);
}

static void
counters(struct ctx *ctx)
{
    struct store_counters before;
    struct store_counters after;

    store_counters(ctx->store, &before);
    CHECK(ctx, put(ctx, key_of(ctx, "c"), TEXT("12345")) == 0);
    CHECK(ctx, get(ctx, key_of(ctx, "c")) == 0);
    CHECK(ctx, head(ctx, key_of(ctx, "c")) == 0);
    CHECK(ctx, copy(ctx, key_of(ctx, "c"), key_of(ctx, "d"), NULL, NULL) == 0);
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, "c\nd\n"));
    CHECK(ctx, del(ctx, key_of(ctx, "c"), NULL) == 0);
    store_counters(ctx->store, &after);
    CHECK(ctx, after.puts > before.puts && after.gets > before.gets);
    CHECK(ctx, after.heads > before.heads && after.copies > before.copies);
    CHECK(ctx, after.lists > before.lists && after.deletes > before.deletes);
    CHECK(ctx, after.requests >= before.requests + 6);
    CHECK(ctx, after.bytes_up >= before.bytes_up + 5);
    CHECK(ctx, after.bytes_down >= before.bytes_down + 5);
}

static int
count_entry(void *arg, const struct store_list_entry *entry, struct err *err)
{
    (void)entry;
    (void)err;
    ++*(unsigned *)arg;
    return 0;
}

static void
probe_cleans_up(struct ctx *ctx)
{
    unsigned left = 0;
    struct store_list req = { .prefix = ".holdfast/probe/", .fn = count_entry, .arg = &left };

    CHECK(ctx, store_probe(ctx->store, &ctx->err) == 0);
    settle(ctx);
    CHECK(ctx, store_list(ctx->store, &req, &ctx->err) == 0 && left == 0);
    CHECK(ctx, ctx->store->caps.put_if_absent != STORE_NOT_PROBED);
    CHECK(ctx, ctx->store->caps.put_if_match != STORE_NOT_PROBED);
    CHECK(ctx, ctx->store->caps.max_put_bytes > 0);
}

/* The explanation has a line for each capability that is missing. */
static void
caps_are_explained(struct ctx *ctx)
{
    const struct store_caps *caps = &ctx->store->caps;
    struct buf text;

    buf_init(&text, 16384);
    CHECK(ctx, store_caps_explain(caps, &text, &ctx->err) == 0);
    CHECK(ctx, !strstr(buf_cstr(&text), "If-Match") == (caps->put_if_match == STORE_YES));
    CHECK(ctx, !strstr(buf_cstr(&text), "presigned") == (caps->presign == STORE_YES));
    buf_release(&text);
}

static void
url_holds_no_secret(struct ctx *ctx)
{
    const char *secret = getenv("AWS_SECRET_ACCESS_KEY"); /* NOLINT(concurrency-mt-unsafe) */

    CHECK(ctx, ctx->store->url[0] != '\0');
    CHECK(ctx, !secret || !*secret || !strstr(ctx->store->url, secret));
}

const struct contract_case other_cases[] = {
    { "bad ETags are refused", bad_etags },
    { "bad content types are refused", bad_content_type },
    { "bad ranges are refused", bad_range },
    { "too large bodies are refused", too_large },
    { "deadline that is over", deadline_over },
    { "deadline ahead", deadline_ahead },
    { "presigned URL", presign },
    { "bad presigned URLs are refused", presign_bad },
    { "counters", counters },
    { "probe cleans up", probe_cleans_up },
    { "capabilities are explained", caps_are_explained },
    { "the store's URL holds no secret", url_holds_no_secret },
    { NULL, NULL },
};
