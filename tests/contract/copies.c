/* Copies inside the store. */
#include "tests/contract/contract.h"

#define BIG ((8u << 20) + 1)

static int
put_with_one_meta(struct ctx *ctx, const char *key, const char *value)
{
    struct meta meta;
    int rc;

    meta_init(&meta);
    rc = meta_set(&meta, "kind", value, &ctx->err);
    if (rc == 0)
        rc = put_meta(ctx, key, &meta, "text/plain");
    meta_release(&meta);
    return rc;
}

static void
copy_keeps_metadata(struct ctx *ctx)
{
    const char *to = key_of(ctx, "deep/er/to");
    const char *kind;

    CHECK(ctx, put_with_one_meta(ctx, key_of(ctx, "from"), "Grüße") == 0);
    CHECK(ctx, copy(ctx, key_of(ctx, "from"), to, NULL, NULL) == 0);
    CHECK(ctx, ctx->res.outcome == STORE_DONE);
    CHECK(ctx, holds(ctx, to, TEXT("meta")));
    CHECK(ctx, strcmp(ctx->object.etag, ctx->res.etag) == 0);
    kind = meta_get(&ctx->object.meta, "kind");
    CHECK(ctx, kind && strcmp(kind, "Grüße") == 0);
    CHECK(ctx, strcmp(ctx->object.content_type, "text/plain") == 0);
    CHECK(ctx, holds(ctx, key_of(ctx, "from"), TEXT("meta")));
}

static void
copy_replaces_metadata(struct ctx *ctx)
{
    const char *kind;
    struct meta meta;
    int rc;

    CHECK(ctx, put_with_one_meta(ctx, key_of(ctx, "from"), "old") == 0);
    meta_init(&meta);
    CHECK(ctx, meta_set(&meta, "other", "new", &ctx->err) == 0);
    rc = copy(ctx, key_of(ctx, "from"), key_of(ctx, "to"), NULL, &meta);
    meta_release(&meta);
    CHECK(ctx, rc == 0);
    CHECK(ctx, holds(ctx, key_of(ctx, "to"), TEXT("meta")));
    CHECK(ctx, !meta_get(&ctx->object.meta, "kind"));
    kind = meta_get(&ctx->object.meta, "other");
    CHECK(ctx, kind && strcmp(kind, "new") == 0);
}

static void
copy_missing(struct ctx *ctx)
{
    CHECK_ERROR(ctx, copy(ctx, key_of(ctx, "nothing"), key_of(ctx, "to"), NULL, NULL),
                ERR_NOT_FOUND);
    CHECK(ctx, ctx->res.outcome == STORE_NOT_DONE || ctx->res.outcome == STORE_REFUSED);
    CHECK(ctx, is_absent(ctx, key_of(ctx, "to")));
}

static void
copy_zero(struct ctx *ctx)
{
    CHECK(ctx, put(ctx, key_of(ctx, "from"), "", 0) == 0);
    CHECK(ctx, copy(ctx, key_of(ctx, "from"), key_of(ctx, "to"), NULL, NULL) == 0);
    CHECK(ctx, holds(ctx, key_of(ctx, "to"), "", 0));
}

/* B073 */
static void
copy_odd_names(struct ctx *ctx)
{
    const char *from = key_of(ctx, "a b+c%41/ü中?&=#'(*)");
    const char *to = key_of(ctx, "to/!~ü //x");

    CHECK(ctx, put(ctx, from, TEXT("odd")) == 0);
    CHECK(ctx, copy(ctx, from, to, NULL, NULL) == 0);
    CHECK(ctx, holds(ctx, to, TEXT("odd")));
}

static void
copy_big(struct ctx *ctx)
{
    scope_free char *bytes = new_bytes(BIG, 9);

    CHECK(ctx, bytes && put(ctx, key_of(ctx, "from"), bytes, BIG) == 0);
    CHECK(ctx, copy(ctx, key_of(ctx, "from"), key_of(ctx, "to"), ctx->res.etag, NULL) == 0);
    CHECK(ctx, holds(ctx, key_of(ctx, "to"), bytes, BIG));
}

static void
copy_if_match_old(struct ctx *ctx)
{
    const char *from = key_of(ctx, "from");
    bool can = has_cap(ctx, ctx->store->caps.copy_source_if_match, "copy_source_if_match");
    char old[LIMIT_ETAG];
    int rc;

    if (ctx->skipped)
        return;
    CHECK(ctx, put(ctx, from, TEXT("old")) == 0);
    memcpy(old, ctx->res.etag, sizeof(old));
    CHECK(ctx, put(ctx, from, TEXT("new")) == 0);
    rc = copy(ctx, from, key_of(ctx, "to"), old, NULL);
    if (can) {
        CHECK_ERROR(ctx, rc, ERR_CONFLICT);
        CHECK(ctx, ctx->res.outcome == STORE_REFUSED);
        CHECK(ctx, is_absent(ctx, key_of(ctx, "to")));
    } else if (rc == 0) {
        /* The store ignores the condition: the answer must tell which bytes were copied. */
        CHECK(ctx, strcmp(ctx->res.etag, old) != 0);
        CHECK(ctx, holds(ctx, key_of(ctx, "to"), TEXT("new")));
    } else {
        CHECK_ERROR(ctx, rc, ERR_CONFLICT);
    }
}

const struct contract_case copy_cases[] = {
    { "copy keeps metadata", copy_keeps_metadata },
    { "copy replaces metadata", copy_replaces_metadata },
    { "copy a missing key", copy_missing },
    { "copy zero bytes", copy_zero },
    { "copy odd names", copy_odd_names },
    { "copy 8 MiB and 1 byte", copy_big },
    { "copy if match of an old version", copy_if_match_old },
    { NULL, NULL },
};
