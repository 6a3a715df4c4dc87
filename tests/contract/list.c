/* Listings: order, prefixes, delimiter, pages. */
#include "tests/contract/contract.h"

static bool
put_all(struct ctx *ctx, const char *const *keys)
{
    for (; *keys; keys++) {
        if (put(ctx, key_of(ctx, *keys), TEXT(*keys)) < 0)
            return false;
    }
    return true;
}

#define PUT_ALL(ctx, ...) CHECK(ctx, put_all(ctx, (const char *const[]){ __VA_ARGS__, NULL }))

static void
list_nothing(struct ctx *ctx)
{
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, ""));
    CHECK(ctx, lists(ctx, "no/such/", NULL, '/', 0, ""));
}

static void
list_order(struct ctx *ctx)
{
    PUT_ALL(ctx, "b", "a/b", "a", "a.b", "a-b", "a0", "A", "a/", "\xc3\xbc", "z", "~", "a b",
            "\xf0\x9f\x97\x83", "\xe4\xb8\xad");
    CHECK(ctx, lists(ctx, "", NULL, 0, 0,
                     "A\na\na b\na-b\na.b\na/\na/b\na0\nb\nz\n~\n\xc3\xbc\n\xe4\xb8\xad\n"
                     "\xf0\x9f\x97\x83\n"));
}

static void
list_prefix(struct ctx *ctx)
{
    PUT_ALL(ctx, "a", "ab", "ab/1", "ab/2", "abc", "b");
    CHECK(ctx, lists(ctx, "ab", NULL, 0, 0, "ab\nab/1\nab/2\nabc\n"));
    CHECK(ctx, lists(ctx, "ab/", NULL, 0, 0, "ab/1\nab/2\n"));
    CHECK(ctx, lists(ctx, "ab/2", NULL, 0, 0, "ab/2\n"));
    CHECK(ctx, lists(ctx, "ab/3", NULL, 0, 0, ""));
    CHECK(ctx, lists(ctx, "a/", NULL, 0, 0, ""));
}

static void
list_delimiter(struct ctx *ctx)
{
    PUT_ALL(ctx, "a", "a/1", "a/2/3", "b.x", "b/1", "c/d/e", "d");
    CHECK(ctx, lists(ctx, "", NULL, '/', 0, "a\na/\nb.x\nb/\nc/\nd\n"));
    CHECK(ctx, lists(ctx, "a/", NULL, '/', 0, "a/1\na/2/\n"));
    CHECK(ctx, lists(ctx, "c", NULL, '/', 0, "c/\n"));
    CHECK(ctx, lists(ctx, "c/d", NULL, '/', 0, "c/d/\n"));
    CHECK(ctx, lists(ctx, "c/d/", NULL, '/', 0, "c/d/e\n"));
}

static void
list_marker(struct ctx *ctx)
{
    PUT_ALL(ctx, "m/", "m/x", "n/", "o//p");
    CHECK(ctx, lists(ctx, "", NULL, '/', 0, "m/\nn/\no/\n"));
    CHECK(ctx, lists(ctx, "m/", NULL, '/', 0, "m/\nm/x\n"));
    CHECK(ctx, lists(ctx, "n/", NULL, '/', 0, "n/\n"));
    CHECK(ctx, lists(ctx, "o/", NULL, '/', 0, "o//\n"));
}

static void
list_kinds(struct ctx *ctx)
{
    struct listing got;

    PUT_ALL(ctx, "a", "a/1", "b/1");
    CHECK(ctx, list(ctx, "", NULL, '/', 0, &got) == 0);
    buf_release(&got.text);
    CHECK(ctx, got.count == 3 && got.prefixes == 2);
}

static void
list_start_after(struct ctx *ctx)
{
    PUT_ALL(ctx, "a", "a/1", "a/2", "b", "c");
    CHECK(ctx, lists(ctx, "", "a", 0, 0, "a/1\na/2\nb\nc\n"));
    CHECK(ctx, lists(ctx, "", "a/1", 0, 0, "a/2\nb\nc\n"));
    CHECK(ctx, lists(ctx, "", "a/11", 0, 0, "a/2\nb\nc\n"));
    CHECK(ctx, lists(ctx, "", "a/9", 0, 0, "b\nc\n"));
    CHECK(ctx, lists(ctx, "", "bb", 0, 0, "c\n"));
    CHECK(ctx, lists(ctx, "", "c", 0, 0, ""));
    CHECK(ctx, lists(ctx, "a/", "a", 0, 0, "a/1\na/2\n"));
    CHECK(ctx, lists(ctx, "a/", "b", 0, 0, ""));
}

/* A common prefix is an entry like any other: once it was listed, the listing goes on behind it. */
static void
list_start_after_prefix(struct ctx *ctx)
{
    PUT_ALL(ctx, "a/1", "a/2", "b/1", "c");
    CHECK(ctx, lists(ctx, "", "a/", '/', 0, "b/\nc\n"));
    CHECK(ctx, lists(ctx, "", "b/", '/', 0, "c\n"));
    CHECK(ctx, lists(ctx, "", "a", '/', 0, "a/\nb/\nc\n"));
}

static void
list_limit(struct ctx *ctx)
{
    PUT_ALL(ctx, "a", "b/1", "b/2", "c", "d");
    CHECK(ctx, lists(ctx, "", NULL, 0, 2, "a\nb/1\n"));
    CHECK(ctx, lists(ctx, "", NULL, '/', 2, "a\nb/\n"));
    CHECK(ctx, lists(ctx, "", NULL, '/', 3, "a\nb/\nc\n"));
    CHECK(ctx, lists(ctx, "", "b/", '/', 1, "c\n"));
    CHECK(ctx, lists(ctx, "", NULL, 0, 100, "a\nb/1\nb/2\nc\nd\n"));
}

struct pager {
    char last[LIMIT_KEY + 1];
    unsigned count;
    bool rising;
};

static int
page_entry(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct pager *pager = arg;

    (void)err;
    pager->rising = pager->rising && strcmp(entry->key, pager->last) > 0;
    (void)snprintf(pager->last, sizeof(pager->last), "%s", entry->key);
    pager->count++;
    return 0;
}

#define MANY 1005

static bool
put_many(struct ctx *ctx)
{
    for (unsigned i = 0; i < MANY; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "many/%u %c", i, 'a' + (int)(i % 7));
        if (put(ctx, key_of(ctx, name), TEXT("x")) < 0)
            return false;
    }
    return true;
}

/* B067: more keys than one page of S3 holds; also in pages of our own, each starting after the last key. */
static void
list_pages(struct ctx *ctx)
{
    struct pager pager = { .rising = true };
    struct store_list req = { .prefix = ctx->base, .fn = page_entry, .arg = &pager };
    unsigned before;

    CHECK(ctx, put_many(ctx));
    settle(ctx);
    CHECK(ctx, store_list(ctx->store, &req, &ctx->err) == 0);
    CHECK(ctx, pager.count == MANY && pager.rising);
    pager = (struct pager){ .rising = true };
    req.limit = 250;
    do {
        char after[LIMIT_KEY + 1];
        before = pager.count;
        memcpy(after, pager.last, sizeof(after));
        req.start_after = after[0] ? after : NULL;
        CHECK(ctx, store_list(ctx->store, &req, &ctx->err) == 0);
    } while (pager.count > before);
    CHECK(ctx, pager.count == MANY && pager.rising);
    CHECK(ctx, lists(ctx, "", NULL, '/', 0, "many/\n"));
}

static int
stopping_fn(void *arg, const struct store_list_entry *entry, struct err *err)
{
    unsigned *seen = arg;

    (void)entry;
    return ++*seen == 2 ? err_set(err, ERR_CANCELED, "enough") : 0;
}

static void
list_stops(struct ctx *ctx)
{
    unsigned seen = 0;
    struct store_list req = { .prefix = ctx->base, .fn = stopping_fn, .arg = &seen };

    PUT_ALL(ctx, "a", "b", "c");
    settle(ctx);
    CHECK_ERROR(ctx, store_list(ctx->store, &req, &ctx->err), ERR_CANCELED);
    CHECK(ctx, seen == 2);
}

struct facts {
    uint64_t size;
    char etag[LIMIT_ETAG];
    int64_t modified_ns;
};

static int
note_facts(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct facts *facts = arg;

    (void)err;
    facts->size = entry->size;
    facts->modified_ns = entry->last_modified_ns;
    (void)snprintf(facts->etag, sizeof(facts->etag), "%s", entry->etag);
    return 0;
}

/* Size and ETag of the newest version, the same as HEAD gives. */
static void
list_facts(struct ctx *ctx)
{
    struct facts facts = { 0 };
    struct store_list req = { .prefix = ctx->base, .fn = note_facts, .arg = &facts };

    PUT_ALL(ctx, "f");
    CHECK(ctx, put(ctx, key_of(ctx, "f"), TEXT("newer and longer")) == 0);
    settle(ctx);
    CHECK(ctx, store_list(ctx->store, &req, &ctx->err) == 0);
    CHECK(ctx, facts.size == 16);
    CHECK(ctx, strcmp(facts.etag, ctx->res.etag) == 0);
    CHECK(ctx, head(ctx, key_of(ctx, "f")) == 0);
    CHECK(ctx, strcmp(facts.etag, ctx->object.etag) == 0);
    CHECK(ctx, facts.modified_ns / 1000000000 == ctx->object.last_modified_ns / 1000000000);
}

/* A callback may use the store: no lock is held while it runs. */
static int
calling_fn(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct ctx *ctx = arg;
    struct store_delete req = { .key = entry->key };

    return store_delete(ctx->store, &req, NULL, err);
}

static void
list_and_delete(struct ctx *ctx)
{
    struct store_list req = { .prefix = ctx->base, .fn = calling_fn, .arg = ctx };

    PUT_ALL(ctx, "a", "b/1", "b/2", "c/d/e", "f");
    settle(ctx);
    CHECK(ctx, store_list(ctx->store, &req, &ctx->err) == 0);
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, ""));
}

const struct contract_case list_cases[] = {
    { "list nothing", list_nothing },
    { "list in order", list_order },
    { "list a prefix", list_prefix },
    { "list with delimiter", list_delimiter },
    { "list directory markers", list_marker },
    { "list tells prefixes from objects", list_kinds },
    { "list after a key", list_start_after },
    { "list after a common prefix", list_start_after_prefix },
    { "list with a limit", list_limit },
    { "list 1005 keys, whole and in pages", list_pages },
    { "list stops on the callback's error", list_stops },
    { "list gives size and ETag", list_facts },
    { "list and delete meanwhile", list_and_delete },
    { NULL, NULL },
};
