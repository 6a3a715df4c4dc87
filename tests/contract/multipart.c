/*
 * Uploads and copies in parts, batch deletes. The limits beyond which a store goes in parts are lowered meanwhile, so that a
 * few MiB do. S3 wants 5 MiB for each part but the last.
 */
#include <unistd.h>

#include "tests/contract/contract.h"

#define MIB (1u << 20)
#define PART (5u * MIB)

/* ---- lower limits ---- */

struct limits {
    struct store_caps before[4];
};

static void
lower(struct ctx *ctx, struct limits *limits)
{
    int i = 0;

    for (struct store *store = ctx->store; store && i < 4; store = store->next, i++) {
        limits->before[i] = store->caps;
        store->caps.max_put_bytes = store->caps.max_copy_bytes = store->caps.part_bytes = PART;
    }
}

static void
restore(struct ctx *ctx, const struct limits *limits)
{
    int i = 0;

    for (struct store *store = ctx->store; store && i < 4; store = store->next, i++)
        store->caps = limits->before[i];
}

/* ---- what the store is told and tells ---- */

struct told {
    struct ctx *ctx;
    const char *key;
    unsigned times;
    bool listed;       /* the upload was in the list of uploads when it was told */
    bool refuse;       /* answer with an error */
    unsigned abort_at; /* end the upload behind the store's back this time */
    char id[1024];
};

static int
find_upload(void *arg, const struct store_upload *upload, struct err *err)
{
    struct told *told = arg;

    (void)err;
    if (strcmp(upload->key, told->key) == 0 && strcmp(upload->upload_id, told->id) == 0)
        told->listed = true;
    return 0;
}

static int
on_upload(void *arg, const char *id, struct err *err)
{
    struct told *told = arg;
    struct store *store = told->ctx->store;

    told->times++;
    (void)snprintf(told->id, sizeof(told->id), "%s", id);
    if (store->caps.list_uploads == STORE_YES &&
        store_uploads(store, told->key, find_upload, told, err) < 0)
        return -1;
    if (told->times == told->abort_at && store_upload_abort(store, told->key, id, 0, err) < 0)
        return -1;
    return told->refuse ? err_set(err, ERR_NO_SPACE, "no room to note an upload") : 0;
}

static int
count_upload(void *arg, const struct store_upload *upload, struct err *err)
{
    unsigned *count = arg;

    (void)upload;
    (void)err;
    ++*count;
    return 0;
}

/* Nothing may be left below the case's own prefix. */
static bool
no_uploads(struct ctx *ctx)
{
    unsigned count = 0;

    return ctx->store->caps.list_uploads != STORE_YES ||
           (store_uploads(ctx->store, ctx->base, count_upload, &count, &ctx->err) == 0 &&
            count == 0);
}

static int
put_with_limits(struct ctx *ctx, const struct store_put *wanted, struct told *told)
{
    struct store_put req = *wanted;
    static unsigned writes;
    struct limits limits;
    struct meta meta;
    char id[32];
    int rc = -1;

    (void)snprintf(id, sizeof(id), "01PARTS%u", ++writes);
    *told = (struct told){
        .ctx = ctx, .key = req.key, .refuse = told->refuse, .abort_at = told->abort_at
    };
    meta_init(&meta);
    req.content_type = "text/x-parts";
    req.meta = &meta;
    req.on_upload = on_upload;
    req.on_upload_arg = told;
    lower(ctx, &limits);
    if (meta_set(&meta, "holdfast-version", id, &ctx->err) == 0 &&
        meta_set(&meta, "kind", "Grüße", &ctx->err) == 0)
        rc = store_put(ctx->store, &req, &ctx->res, &ctx->err);
    restore(ctx, &limits);
    meta_release(&meta);
    return rc;
}

static bool
is_whole(struct ctx *ctx, const char *key, const char *bytes, size_t len)
{
    const char *kind;

    if (!holds(ctx, key, bytes, len) || strcmp(ctx->object.etag, ctx->res.etag) != 0)
        return false;
    kind = meta_get(&ctx->object.meta, "kind");
    return kind && strcmp(kind, "Grüße") == 0 &&
           strcmp(ctx->object.content_type, "text/x-parts") == 0;
}

/* Skips where the store was not asked; false also where it has no parts. */
static bool
has_parts(struct ctx *ctx)
{
    return has_cap(ctx, ctx->store->caps.multipart, "multipart");
}

/* ---- PUT ---- */

static void
put_sizes(struct ctx *ctx)
{
    /* One byte more than a part, exact multiples of it, and a short last part. The ETag told is the one that reads need
     * (B089). */
    const size_t sizes[] = { PART + 1, 2 * PART, 2 * PART + MIB + 3 };
    scope_free char *bytes = new_bytes(3 * PART, 21);

    CHECK(ctx, bytes);
    if (!has_parts(ctx))
        return;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const char *key = key_of(ctx, "a b+ü/parts");
        struct told told = { 0 };
        struct store_put req = { .key = key, .body = { .mem = bytes, .fd = -1, .size = sizes[i] } };
        CHECK(ctx, put_with_limits(ctx, &req, &told) == 0);
        CHECK(ctx, ctx->res.outcome == STORE_DONE);
        CHECK(ctx, told.times == 1);
        CHECK(ctx, told.listed || ctx->store->caps.list_uploads != STORE_YES);
        CHECK(ctx, is_whole(ctx, key, bytes, sizes[i]));
    }
    CHECK(ctx, no_uploads(ctx));
}

static void
put_from_file(struct ctx *ctx)
{
    scope_free char *bytes = new_bytes(2 * PART + 100, 22);
    FILE *file = tmpfile();
    struct told told = { 0 };
    struct store_put req = { .key = key_of(ctx, "file") };
    int rc = -1;

    CHECK(ctx, bytes && file);
    if (has_parts(ctx)) {
        req.body = (struct store_body){ .fd = fileno(file), .off = 33, .size = 2 * PART + 50 };
        if (pwrite(req.body.fd, bytes, 2 * PART + 100, 0) == (ssize_t)(2 * PART + 100))
            rc = put_with_limits(ctx, &req, &told);
    }
    (void)fclose(file);
    if (ctx->store->caps.multipart != STORE_YES)
        return;
    CHECK(ctx, rc == 0);
    CHECK(ctx, is_whole(ctx, req.key, bytes + 33, 2 * PART + 50));
}

static void
put_parts_absent(struct ctx *ctx)
{
    scope_free char *bytes = new_bytes(PART + 9, 23);
    const char *key = key_of(ctx, "k");
    struct told told = { 0 };
    struct store_put req = { .key = key,
                             .body = { .mem = bytes, .fd = -1, .size = PART + 9 },
                             .cond = { .kind = STORE_COND_ABSENT } };

    CHECK(ctx, bytes);
    if (!has_parts(ctx) || !has_cap(ctx, ctx->store->caps.put_if_absent, "put_if_absent"))
        return;
    CHECK(ctx, put_with_limits(ctx, &req, &told) == 0);
    CHECK(ctx, is_whole(ctx, key, bytes, PART + 9));
    CHECK(ctx, put(ctx, key, TEXT("theirs")) == 0);
    CHECK_ERROR(ctx, put_with_limits(ctx, &req, &told), ERR_CONFLICT);
    CHECK(ctx, ctx->res.outcome == STORE_REFUSED);
    CHECK(ctx, holds(ctx, key, TEXT("theirs")));
    CHECK(ctx, no_uploads(ctx));
}

static void
put_parts_match(struct ctx *ctx)
{
    scope_free char *bytes = new_bytes(PART + 9, 24);
    const char *key = key_of(ctx, "k");
    char etag[LIMIT_ETAG];
    struct told told = { 0 };
    struct store_put req = { .key = key,
                             .body = { .mem = bytes, .fd = -1, .size = PART + 9 },
                             .cond = { .kind = STORE_COND_MATCH, .etag = etag } };

    CHECK(ctx, bytes);
    if (!has_parts(ctx) || !has_cap(ctx, ctx->store->caps.put_if_match, "put_if_match"))
        return;
    CHECK(ctx, put(ctx, key, TEXT("old")) == 0);
    memcpy(etag, ctx->res.etag, sizeof(etag));
    CHECK(ctx, put_with_limits(ctx, &req, &told) == 0);
    CHECK(ctx, is_whole(ctx, key, bytes, PART + 9));
    /* The same condition no longer holds, nor does any on a key that is gone. */
    CHECK_ERROR(ctx, put_with_limits(ctx, &req, &told), ERR_CONFLICT);
    CHECK(ctx, ctx->res.outcome == STORE_REFUSED);
    CHECK(ctx, holds(ctx, key, bytes, PART + 9));
    CHECK(ctx, del(ctx, key, NULL) == 0);
    CHECK_ERROR(ctx, put_with_limits(ctx, &req, &told), ERR_CONFLICT);
    CHECK(ctx, is_absent(ctx, key));
    CHECK(ctx, no_uploads(ctx));
}

static void
put_not_noted(struct ctx *ctx)
{
    scope_free char *bytes = new_bytes(PART + 9, 25);
    const char *key = key_of(ctx, "k");
    struct told told = { .refuse = true };
    struct store_put req = { .key = key, .body = { .mem = bytes, .fd = -1, .size = PART + 9 } };

    CHECK(ctx, bytes);
    if (!has_parts(ctx))
        return;
    CHECK_ERROR(ctx, put_with_limits(ctx, &req, &told), ERR_NO_SPACE);
    CHECK(ctx, ctx->res.outcome == STORE_NOT_DONE);
    CHECK(ctx, is_absent(ctx, key));
    CHECK(ctx, no_uploads(ctx));
}

/* B098: an upload that the store has lost is begun anew from the local bytes. */
static void
put_upload_lost(struct ctx *ctx)
{
    scope_free char *bytes = new_bytes(2 * PART, 26);
    const char *key = key_of(ctx, "k");
    struct told told = { .abort_at = 1 };
    struct store_put req = { .key = key, .body = { .mem = bytes, .fd = -1, .size = 2 * PART } };

    CHECK(ctx, bytes);
    if (!has_parts(ctx))
        return;
    CHECK(ctx, put_with_limits(ctx, &req, &told) == 0);
    CHECK(ctx, told.times == 2);
    CHECK(ctx, is_whole(ctx, key, bytes, 2 * PART));
    CHECK(ctx, no_uploads(ctx));
}

static void
uploads_unknown(struct ctx *ctx)
{
    unsigned count = 0;

    if (ctx->store->caps.multipart == STORE_NO) {
        CHECK_ERROR(ctx, store_uploads(ctx->store, "", count_upload, &count, &ctx->err),
                    ERR_STORE_UNSUPPORTED);
        CHECK_ERROR(ctx, store_upload_abort(ctx->store, "k", "none", 0, &ctx->err),
                    ERR_STORE_UNSUPPORTED);
        return;
    }
    if (!has_parts(ctx))
        return;
    CHECK(ctx, no_uploads(ctx));
    CHECK_ERROR(ctx, store_upload_abort(ctx->store, "", "none", 0, &ctx->err), ERR_BAD_NAME);
    CHECK_ERROR(ctx, store_upload_abort(ctx->store, "k", "", 0, &ctx->err), ERR_INVAL);
    CHECK_ERROR(ctx, store_upload_abort(ctx->store, "k", "a\nb", 0, &ctx->err), ERR_INVAL);
}

/* ---- copy ---- */

static int
copy_with_limits(struct ctx *ctx, const char *from, uint64_t size, const char *to,
                 const char *if_match, const struct meta *meta)
{
    struct store_copy req = {
        .from = from, .from_if_match = if_match, .to = to, .meta = meta, .from_size = size
    };
    struct limits limits;
    int rc;

    lower(ctx, &limits);
    rc = store_copy(ctx->store, &req, &ctx->res, &ctx->err);
    restore(ctx, &limits);
    return rc;
}

/* B016, B017: ranges end at size - 1, for an exact multiple of the parts and for any other size. */
static void
copy_sizes(struct ctx *ctx)
{
    const size_t sizes[] = { 2 * PART, 2 * PART + 7, PART + 1 };
    scope_free char *bytes = new_bytes(3 * PART, 27);
    const char *from = key_of(ctx, "a b+c%20d#e?f&g=h"); /* B073 */
    const char *to = key_of(ctx, "to/ü?&");

    CHECK(ctx, bytes);
    if (!has_cap(ctx, ctx->store->caps.copy_parts, "copy_parts"))
        return;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct told told = { 0 };
        struct store_put req = { .key = from,
                                 .body = { .mem = bytes, .fd = -1, .size = sizes[i] } };
        CHECK(ctx, put_with_limits(ctx, &req, &told) == 0);
        /* The size is told, or asked for. */
        CHECK(ctx, copy_with_limits(ctx, from, i ? sizes[i] : 0, to, ctx->res.etag, NULL) == 0);
        CHECK(ctx, ctx->res.outcome == STORE_DONE);
        CHECK(ctx, is_whole(ctx, to, bytes, sizes[i]));
        CHECK(ctx, del(ctx, to, NULL) == 0);
    }
    CHECK(ctx, no_uploads(ctx));
}

static void
copy_parts_meta(struct ctx *ctx)
{
    scope_free char *bytes = new_bytes(PART + 1, 28);
    const char *from = key_of(ctx, "from");
    const char *to = key_of(ctx, "to");
    struct meta meta;
    const char *kind;
    int rc;

    CHECK(ctx, bytes);
    if (!has_cap(ctx, ctx->store->caps.copy_parts, "copy_parts"))
        return;
    CHECK(ctx, put(ctx, from, bytes, PART + 1) == 0);
    meta_init(&meta);
    CHECK(ctx, meta_set(&meta, "kind", "new", &ctx->err) == 0);
    rc = copy_with_limits(ctx, from, PART + 1, to, NULL, &meta);
    meta_release(&meta);
    CHECK(ctx, rc == 0);
    CHECK(ctx, holds(ctx, to, bytes, PART + 1));
    kind = meta_get(&ctx->object.meta, "kind");
    CHECK(ctx, kind && strcmp(kind, "new") == 0);
}

static void
copy_parts_old(struct ctx *ctx)
{
    scope_free char *bytes = new_bytes(PART + 1, 29);
    const char *from = key_of(ctx, "from");
    char old[LIMIT_ETAG];

    CHECK(ctx, bytes);
    if (!has_cap(ctx, ctx->store->caps.copy_parts, "copy_parts"))
        return;
    CHECK(ctx, put(ctx, from, TEXT("old")) == 0);
    memcpy(old, ctx->res.etag, sizeof(old));
    CHECK(ctx, put(ctx, from, bytes, PART + 1) == 0);
    CHECK_ERROR(ctx, copy_with_limits(ctx, from, PART + 1, key_of(ctx, "to"), old, NULL),
                ERR_CONFLICT);
    CHECK(ctx, ctx->res.outcome == STORE_REFUSED);
    CHECK(ctx, is_absent(ctx, key_of(ctx, "to")));
    CHECK_ERROR(ctx,
                copy_with_limits(ctx, key_of(ctx, "none"), PART + 1, key_of(ctx, "to"), NULL, NULL),
                ERR_NOT_FOUND);
    CHECK(ctx, no_uploads(ctx));
}

/* ---- many deletes ---- */

struct deleted {
    unsigned good, bad;
};

static void
note_deleted(void *arg, const char *key, enum err_code code, const char *message)
{
    struct deleted *deleted = arg;

    if (code != 0)
        fprintf(stderr, "not deleted: '%s': %s\n", key, message);
    deleted->good += code == 0;
    deleted->bad += code != 0;
}

/* Every store deletes many, in one request or one by one. XML cannot carry the last ones. */
static void
delete_odd(struct ctx *ctx)
{
    static const char *const names[] = {
        "plain",     "a b+c%41",    "<&>\"'",   "ü中\U0001f600", "dir/",
        "tab\there", "line\nend\r", "\x01\x1f", "]]>&amp;&#1;",
    };
    const char *keys[16];
    const char *stays = key_of(ctx, "stays");
    struct deleted deleted = { 0 };
    size_t count = 0;

    CHECK(ctx, put(ctx, stays, TEXT("here")) == 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        keys[count] = key_of(ctx, names[i]);
        /* Some stores refuse control characters; what they do not have needs no deleting. */
        if (put(ctx, keys[count], TEXT("bytes")) == 0)
            count++;
    }
    CHECK(ctx, count >= 6);
    keys[count++] = key_of(ctx, "was never there");
    CHECK(ctx,
          store_delete_many(ctx->store, keys, count, 0, note_deleted, &deleted, &ctx->err) == 0);
    CHECK(ctx, deleted.good == count && deleted.bad == 0);
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, "stays\n"));
    CHECK(ctx, store_delete_many(ctx->store, keys, 0, 0, NULL, NULL, &ctx->err) == 0);
}

/* More than one batch. */
static void
delete_1002(struct ctx *ctx)
{
    static char keys[1002][96];
    const char *names[1002];
    struct deleted deleted = { 0 };

    for (int i = 0; i < 1002; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "%sn/%d", ctx->base, i);
        names[i] = keys[i];
    }
    /* One in each batch is there, and one twice in the call. */
    CHECK(ctx, put(ctx, names[0], TEXT("first")) == 0 && put(ctx, names[999], TEXT("x")) == 0 &&
                   put(ctx, names[1001], TEXT("last")) == 0);
    names[1] = names[999];
    CHECK(ctx,
          store_delete_many(ctx->store, names, 1002, 0, note_deleted, &deleted, &ctx->err) == 0);
    CHECK(ctx, deleted.good == 1002);
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, ""));
}

static void
delete_bad_key(struct ctx *ctx)
{
    const char *keys[] = { key_of(ctx, "here"), "" };

    CHECK(ctx, put(ctx, keys[0], TEXT("bytes")) == 0);
    CHECK_ERROR(ctx, store_delete_many(ctx->store, keys, 2, 0, NULL, NULL, &ctx->err),
                ERR_BAD_NAME);
    CHECK(ctx, holds(ctx, keys[0], TEXT("bytes")));
}

const struct contract_case multipart_cases[] = {
    { "put in parts of every size", put_sizes },
    { "put in parts from a file", put_from_file },
    { "put in parts if absent", put_parts_absent },
    { "put in parts if match", put_parts_match },
    { "an upload that is not noted is not begun", put_not_noted },
    { "an upload that the store lost is begun anew", put_upload_lost },
    { "uploads where there are none", uploads_unknown },
    { "copy in parts of every size", copy_sizes },
    { "copy in parts replaces metadata", copy_parts_meta },
    { "copy in parts of an old version", copy_parts_old },
    { "delete many odd names", delete_odd },
    { "delete 1002 keys", delete_1002 },
    { "delete many with a bad key", delete_bad_key },
    { NULL, NULL },
};
