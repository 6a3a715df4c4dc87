#include "tests/contract/contract.h"

#include "base/clock.h"
#include "base/ulid.h"

#define GOT_MAX (64u << 20)

void
fail_case(struct ctx *ctx, const char *file, int line, const char *what)
{
    const char *name = strrchr(file, '/');

    ctx->failed = true;
    (void)snprintf(ctx->note, sizeof(ctx->note), "%s:%d: %s [last error: %s %s]",
                   name ? name + 1 : file, line, what, err_slug(ctx->err.code), ctx->err.msg);
}

bool
has_cap(struct ctx *ctx, enum store_yes_no cap, const char *name)
{
    if (cap == STORE_NOT_PROBED) {
        ctx->skipped = true;
        (void)snprintf(ctx->note, sizeof(ctx->note), "%s was not probed", name);
    } else if (cap == STORE_NO) {
        ctx->lacks = name;
    }
    return cap == STORE_YES;
}

const char *
key_of(struct ctx *ctx, const char *rest)
{
    static _Thread_local char keys[16][LIMIT_KEY + 256];
    static _Thread_local unsigned next;
    char *key = keys[next++ % 16];

    (void)snprintf(key, sizeof(keys[0]), "%s%s", ctx->base, rest);
    return key;
}

void
fill_bytes(void *out, size_t len, unsigned seed)
{
    uint64_t state = seed;
    unsigned char *at = out;

    for (size_t i = 0; i < len; i++)
        at[i] = (unsigned char)random_next(&state);
}

char *
new_bytes(size_t len, unsigned seed)
{
    char *out = malloc(len + 1);

    if (out)
        fill_bytes(out, len, seed);
    return out;
}

static int
put_cond(struct ctx *ctx, const char *key, const void *data, size_t len, struct store_cond cond)
{
    struct meta meta;
    char id[ULID_SIZE];
    struct store_put req = { .key = key,
                             .body = { .mem = data, .fd = -1, .size = len },
                             .cond = cond };
    int rc = -1;

    if (cond.kind == STORE_COND_NONE)
        return store_put_small(ctx->store, key, data, len, cond, &ctx->res, &ctx->err);
    /* RGW answers 500 to some losers of a race: only a write id tells then whose equal bytes are there. */
    meta_init(&meta);
    req.meta = &meta;
    if (ulid_new(id, &ctx->err) == 0 && meta_set(&meta, "holdfast-version", id, &ctx->err) == 0)
        rc = store_put(ctx->store, &req, &ctx->res, &ctx->err);
    meta_release(&meta);
    return rc;
}

int
put(struct ctx *ctx, const char *key, const void *data, size_t len)
{
    return put_cond(ctx, key, data, len, (struct store_cond){ .kind = STORE_COND_NONE });
}

int
put_absent(struct ctx *ctx, const char *key, const void *data, size_t len)
{
    return put_cond(ctx, key, data, len, (struct store_cond){ .kind = STORE_COND_ABSENT });
}

int
put_match(struct ctx *ctx, const char *key, const void *data, size_t len, const char *etag)
{
    return put_cond(ctx, key, data, len,
                    (struct store_cond){ .kind = STORE_COND_MATCH, .etag = etag });
}

int
put_meta(struct ctx *ctx, const char *key, const struct meta *meta, const char *content_type)
{
    struct store_put req = {
        .key = key,
        .body = { .mem = "meta", .fd = -1, .size = 4 },
        .content_type = content_type,
        .meta = meta,
    };

    return store_put(ctx->store, &req, &ctx->res, &ctx->err);
}

static int
collect(void *arg, const void *data, size_t len, struct err *err)
{
    return buf_append(arg, data, len, err);
}

int
get_range(struct ctx *ctx, const char *key, uint64_t off, uint64_t len, const char *if_match)
{
    struct store_get req = {
        .key = key,
        .off = off,
        .len = len,
        .if_match = if_match,
        .sink = collect,
        .sink_arg = &ctx->got,
    };

    buf_release(&ctx->got);
    buf_init(&ctx->got, GOT_MAX);
    store_object_release(&ctx->object);
    return store_get(ctx->store, &req, &ctx->object, &ctx->err);
}

int
get(struct ctx *ctx, const char *key)
{
    return get_range(ctx, key, 0, 0, NULL);
}

int
head(struct ctx *ctx, const char *key)
{
    store_object_release(&ctx->object);
    return store_head(ctx->store, key, 0, &ctx->object, &ctx->err);
}

int
del(struct ctx *ctx, const char *key, const char *if_match)
{
    struct store_delete req = { .key = key, .if_match = if_match };

    return store_delete(ctx->store, &req, &ctx->outcome, &ctx->err);
}

int
copy(struct ctx *ctx, const char *from, const char *to, const char *if_match,
     const struct meta *meta)
{
    struct store_copy req = { .from = from, .to = to, .from_if_match = if_match, .meta = meta };

    return store_copy(ctx->store, &req, &ctx->res, &ctx->err);
}

bool
holds(struct ctx *ctx, const char *key, const void *data, size_t len)
{
    return get(ctx, key) == 0 && ctx->object.size == len && ctx->got.len == len &&
           (len == 0 || memcmp(ctx->got.data, data, len) == 0);
}

bool
is_absent(struct ctx *ctx, const char *key)
{
    return head(ctx, key) == -1 && ctx->err.code == ERR_NOT_FOUND;
}

static int
ignore_entry(void *arg, const struct store_list_entry *entry, struct err *err)
{
    (void)arg;
    (void)entry;
    (void)err;
    return 0;
}

struct list_arg {
    size_t skip;
    struct listing *out;
};

static int
add_entry(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct list_arg *to = arg;

    to->out->count++;
    if (entry->is_prefix)
        to->out->prefixes++;
    if (buf_append_str(&to->out->text, entry->key + to->skip, err) < 0)
        return -1;
    return buf_append_str(&to->out->text, "\n", err);
}

/* A store whose listings lag behind shows everything after a while; then they have to be right. */
void
settle(struct ctx *ctx)
{
    struct err err = ERR_INIT;
    struct store_list req = { .prefix = ctx->base, .fn = ignore_entry };

    for (int i = 0; i < 4 && ctx->store->caps.list_consistent == STORE_NO; i++) {
        if (store_list(ctx->store, &req, &err) < 0)
            return;
        clock_sleep_ns(20 * NS_PER_MS);
    }
}

int
list(struct ctx *ctx, const char *prefix, const char *start_after, char delimiter, unsigned limit,
     struct listing *out)
{
    struct list_arg arg = { .skip = strlen(ctx->base), .out = out };
    char after[LIMIT_KEY + 256];
    struct store_list req = {
        .prefix = key_of(ctx, prefix),
        .delimiter = delimiter,
        .limit = limit,
        .fn = add_entry,
        .arg = &arg,
    };

    if (start_after) {
        (void)snprintf(after, sizeof(after), "%s%s", ctx->base, start_after);
        req.start_after = after;
    }
    settle(ctx);
    *out = (struct listing){ 0 };
    buf_init(&out->text, GOT_MAX);
    return store_list(ctx->store, &req, &ctx->err);
}

bool
lists(struct ctx *ctx, const char *prefix, const char *start_after, char delimiter, unsigned limit,
      const char *wanted)
{
    struct listing got;
    bool same = list(ctx, prefix, start_after, delimiter, limit, &got) == 0 &&
                strcmp(buf_cstr(&got.text), wanted) == 0;

    if (!same)
        fprintf(stderr, "listed [%s] instead of [%s]\n", buf_cstr(&got.text), wanted);
    buf_release(&got.text);
    return same;
}
