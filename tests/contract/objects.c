/* Objects: bytes, ranges, metadata, copies, deletes. */
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/contract/contract.h"

#define BIG ((8u << 20) + 1)

static void
put_get(struct ctx *ctx)
{
    const char *key = key_of(ctx, "a");

    CHECK(ctx, put(ctx, key, TEXT("hello")) == 0);
    CHECK(ctx, ctx->res.outcome == STORE_DONE);
    CHECK(ctx, holds(ctx, key, TEXT("hello")));
    CHECK(ctx, strcmp(ctx->object.etag, ctx->res.etag) == 0);
}

static void
put_zero(struct ctx *ctx)
{
    const char *key = key_of(ctx, "zero");

    CHECK(ctx, put(ctx, key, "", 0) == 0);
    CHECK(ctx, holds(ctx, key, "", 0));
    CHECK(ctx, head(ctx, key) == 0 && ctx->object.size == 0);
}

static void
put_one(struct ctx *ctx)
{
    const char *key = key_of(ctx, "one");

    CHECK(ctx, put(ctx, key, "\0", 1) == 0);
    CHECK(ctx, holds(ctx, key, "\0", 1));
}

static void
put_every_byte(struct ctx *ctx)
{
    const char *key = key_of(ctx, "bytes");
    unsigned char bytes[256];

    for (unsigned i = 0; i < 256; i++)
        bytes[i] = (unsigned char)i;
    CHECK(ctx, put(ctx, key, bytes, sizeof(bytes)) == 0);
    CHECK(ctx, holds(ctx, key, bytes, sizeof(bytes)));
}

static void
put_big(struct ctx *ctx)
{
    const char *key = key_of(ctx, "big");
    scope_free char *bytes = new_bytes(BIG, 7);

    CHECK(ctx, bytes != NULL);
    CHECK(ctx, put(ctx, key, bytes, BIG) == 0);
    CHECK(ctx, holds(ctx, key, bytes, BIG));
    CHECK(ctx, get_range(ctx, key, BIG - 3, 0, NULL) == 0 && ctx->got.len == 3);
    CHECK(ctx, memcmp(ctx->got.data, bytes + BIG - 3, 3) == 0);
}

static int
temporary(const void *data, size_t len)
{
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 && write(fd, data, len) != (ssize_t)len) {
        close(fd);
        return -1;
    }
    return fd;
}

static int
put_fd(struct ctx *ctx, const char *key, int fd, uint64_t off, uint64_t size)
{
    struct store_put req = { .key = key, .body = { .fd = fd, .off = off, .size = size } };

    return store_put(ctx->store, &req, &ctx->res, &ctx->err);
}

static void
put_from_file(struct ctx *ctx)
{
    const char *key = key_of(ctx, "file");
    scope_free char *bytes = new_bytes(300000, 3);
    scope_fd int fd = temporary(bytes, 300000);

    CHECK(ctx, fd >= 0);
    CHECK(ctx, put_fd(ctx, key, fd, 1000, 290000) == 0);
    CHECK(ctx, holds(ctx, key, bytes + 1000, 290000));
}

static void
put_file_too_short(struct ctx *ctx)
{
    const char *key = key_of(ctx, "short");
    scope_fd int fd = temporary("12345", 5);

    CHECK(ctx, fd >= 0);
    CHECK(ctx, put_fd(ctx, key, fd, 2, 4) == -1);
    CHECK(ctx, ctx->res.outcome != STORE_DONE);
    CHECK(ctx, is_absent(ctx, key));
}

static int
put_digests(struct ctx *ctx, const char *key, const uint8_t *md5_sum, const uint8_t *sha256_sum)
{
    struct store_put req = {
        .key = key,
        .body = { .mem = "abc", .fd = -1, .size = 3, .md5 = md5_sum, .sha256 = sha256_sum },
    };

    return store_put(ctx->store, &req, &ctx->res, &ctx->err);
}

/* RFC 1321 appendix A.5 and FIPS 180-4's example: the digests of "abc". */
static const uint8_t abc_md5[MD5_SIZE] =
    "\x90\x01\x50\x98\x3c\xd2\x4f\xb0\xd6\x96\x3f\x7d\x28\xe1\x7f"
    "\x72";
static const uint8_t abc_sha256[] =
    "\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23\xb0\x03\x61\xa3\x96\x17\x7a"
    "\x9c\xb4\x10\xff\x61\xf2\x00\x15\xad";

static void
put_right_digests(struct ctx *ctx)
{
    CHECK(ctx, put_digests(ctx, key_of(ctx, "d1"), abc_md5, NULL) == 0);
    CHECK(ctx, put_digests(ctx, key_of(ctx, "d2"), NULL, abc_sha256) == 0);
    CHECK(ctx, put_digests(ctx, key_of(ctx, "d3"), abc_md5, abc_sha256) == 0);
    CHECK(ctx, holds(ctx, key_of(ctx, "d3"), TEXT("abc")));
}

static void
put_wrong_md5(struct ctx *ctx)
{
    uint8_t wrong[MD5_SIZE] = { 1 };

    CHECK(ctx, put_digests(ctx, key_of(ctx, "w"), wrong, NULL) == -1);
    CHECK(ctx, ctx->res.outcome != STORE_DONE);
    CHECK(ctx, is_absent(ctx, key_of(ctx, "w")));
}

static void
put_wrong_sha256(struct ctx *ctx)
{
    uint8_t wrong[SHA256_SIZE] = { 1 };

    CHECK(ctx, put_digests(ctx, key_of(ctx, "w"), NULL, wrong) == -1);
    CHECK(ctx, ctx->res.outcome != STORE_DONE);
    CHECK(ctx, is_absent(ctx, key_of(ctx, "w")));
}

static void
overwrite(struct ctx *ctx)
{
    const char *key = key_of(ctx, "o");
    char first[LIMIT_ETAG];

    CHECK(ctx, put(ctx, key, TEXT("first, longer")) == 0);
    memcpy(first, ctx->res.etag, sizeof(first));
    CHECK(ctx, put(ctx, key, TEXT("second")) == 0);
    CHECK(ctx, strcmp(first, ctx->res.etag) != 0);
    CHECK(ctx, holds(ctx, key, TEXT("second")));
}

static void
head_missing(struct ctx *ctx)
{
    CHECK_ERROR(ctx, head(ctx, key_of(ctx, "nothing")), ERR_NOT_FOUND);
    CHECK_ERROR(ctx, head(ctx, key_of(ctx, "no/such/directory")), ERR_NOT_FOUND);
}

static void
get_missing(struct ctx *ctx)
{
    CHECK_ERROR(ctx, get(ctx, key_of(ctx, "nothing")), ERR_NOT_FOUND);
    CHECK(ctx, ctx->got.len == 0);
}

static void
head_fields(struct ctx *ctx)
{
    const char *key = key_of(ctx, "h");
    int64_t off_ns;

    CHECK(ctx, put(ctx, key, TEXT("12345678")) == 0);
    CHECK(ctx, head(ctx, key) == 0);
    CHECK(ctx, ctx->object.size == 8);
    CHECK(ctx, strcmp(ctx->object.etag, ctx->res.etag) == 0);
    CHECK(ctx, !strchr(ctx->object.etag, '"'));
    off_ns = ctx->object.last_modified_ns - clock_wall_ns();
    CHECK(ctx, off_ns > -300 * NS_PER_S && off_ns < 300 * NS_PER_S);
}

static bool
range_is(struct ctx *ctx, uint64_t off, uint64_t len, const char *wanted)
{
    return get_range(ctx, key_of(ctx, "r"), off, len, NULL) == 0 &&
           ctx->got.len == strlen(wanted) && strcmp(buf_cstr(&ctx->got), wanted) == 0 &&
           ctx->object.size == 10;
}

static void
ranges(struct ctx *ctx)
{
    CHECK(ctx, put(ctx, key_of(ctx, "r"), TEXT("0123456789")) == 0);
    CHECK(ctx, range_is(ctx, 3, 4, "3456"));
    CHECK(ctx, range_is(ctx, 0, 1, "0"));
    CHECK(ctx, range_is(ctx, 9, 1, "9"));
    CHECK(ctx, range_is(ctx, 4, 0, "456789"));
    CHECK(ctx, range_is(ctx, 0, 10, "0123456789"));
}

static void
range_over_the_end(struct ctx *ctx)
{
    CHECK(ctx, put(ctx, key_of(ctx, "r"), TEXT("0123456789")) == 0);
    CHECK(ctx, range_is(ctx, 8, 100, "89"));
    CHECK(ctx, range_is(ctx, 0, 11, "0123456789"));
}

static void
range_beyond_the_end(struct ctx *ctx)
{
    const char *key = key_of(ctx, "r");

    CHECK(ctx, put(ctx, key, TEXT("0123456789")) == 0);
    CHECK_ERROR(ctx, get_range(ctx, key, 10, 1, NULL), ERR_RANGE);
    CHECK_ERROR(ctx, get_range(ctx, key, 10, 0, NULL), ERR_RANGE);
    CHECK_ERROR(ctx, get_range(ctx, key, 1u << 30, 5, NULL), ERR_RANGE);
    CHECK(ctx, ctx->got.len == 0);
}

static void
range_of_nothing(struct ctx *ctx)
{
    const char *key = key_of(ctx, "r");

    CHECK(ctx, put(ctx, key, "", 0) == 0);
    CHECK_ERROR(ctx, get_range(ctx, key, 0, 5, NULL), ERR_RANGE);
}

static void
get_if_match(struct ctx *ctx)
{
    const char *key = key_of(ctx, "m");

    CHECK(ctx, put(ctx, key, TEXT("0123456789")) == 0);
    CHECK(ctx, get_range(ctx, key, 0, 0, ctx->res.etag) == 0 && ctx->got.len == 10);
    CHECK(ctx, get_range(ctx, key, 2, 3, ctx->res.etag) == 0);
    CHECK(ctx, strcmp(buf_cstr(&ctx->got), "234") == 0);
}

static void
get_if_match_old(struct ctx *ctx)
{
    const char *key = key_of(ctx, "m");
    char old[LIMIT_ETAG];

    CHECK(ctx, put(ctx, key, TEXT("old")) == 0);
    memcpy(old, ctx->res.etag, sizeof(old));
    CHECK(ctx, put(ctx, key, TEXT("new")) == 0);
    CHECK_ERROR(ctx, get_range(ctx, key, 0, 0, old), ERR_CONFLICT);
    CHECK(ctx, ctx->got.len == 0);
    CHECK_ERROR(ctx, get_range(ctx, key, 1, 1, old), ERR_CONFLICT);
    CHECK(ctx, ctx->got.len == 0);
}

static int
failing_sink(void *arg, const void *data, size_t len, struct err *err)
{
    (void)arg;
    (void)data;
    (void)len;
    return err_set(err, ERR_QUOTA, "sink is full");
}

static void
sink_error(struct ctx *ctx)
{
    struct store_get req = { .key = key_of(ctx, "s"), .sink = failing_sink };

    CHECK(ctx, put(ctx, req.key, TEXT("bytes")) == 0);
    CHECK_ERROR(ctx, store_get(ctx->store, &req, NULL, &ctx->err), ERR_QUOTA);
    CHECK(ctx, holds(ctx, req.key, TEXT("bytes")));
}

static void
small_is_bounded(struct ctx *ctx)
{
    const char *key = key_of(ctx, "small");
    scope_free char *data = NULL;
    size_t len = 0;

    CHECK(ctx, put(ctx, key, TEXT("12345")) == 0);
    CHECK_ERROR(ctx, store_get_small(ctx->store, key, 4, &data, &len, NULL, &ctx->err),
                ERR_TOO_LARGE);
    CHECK(ctx, !data);
    CHECK(ctx, store_get_small(ctx->store, key, 5, &data, &len, NULL, &ctx->err) == 0);
    CHECK(ctx, len == 5 && strcmp(data, "12345") == 0);
}

static void
content_type(struct ctx *ctx)
{
    CHECK(ctx, put_meta(ctx, key_of(ctx, "t"), NULL, "text/csv; charset=utf-8") == 0);
    CHECK(ctx, head(ctx, key_of(ctx, "t")) == 0);
    CHECK(ctx, strcmp(ctx->object.content_type, "text/csv; charset=utf-8") == 0);
    CHECK(ctx, put_meta(ctx, key_of(ctx, "u"), NULL, NULL) == 0);
    CHECK(ctx, get(ctx, key_of(ctx, "u")) == 0);
    CHECK(ctx, strcmp(ctx->object.content_type, "application/octet-stream") == 0);
}

static const char *const meta_values[][2] = {
    { "holdfast-version", "01J00000000000000000000000" },
    { "mtime", "1700000000.123456789" },
    { "mode", "33188" },
    { "two-words", "a b  c" },
    { "umlaut", "Grüße aus Köln" },
    { "chinese", "中文文件" },
    { "emoji", "\xf0\x9f\x97\x83 files" },
    { "question", "=?not an encoded word?= \"quoted\" \\ %41" },
    { "empty-like", "-" },
};
#define META_VALUES (sizeof(meta_values) / sizeof(meta_values[0]))

static void
metadata(struct ctx *ctx)
{
    const char *key = key_of(ctx, "meta");
    struct meta meta;

    meta_init(&meta);
    for (size_t i = 0; i < META_VALUES; i++)
        CHECK(ctx, meta_set(&meta, meta_values[i][0], meta_values[i][1], &ctx->err) == 0);
    CHECK(ctx, put_meta(ctx, key, &meta, NULL) == 0);
    meta_release(&meta);
    CHECK(ctx, head(ctx, key) == 0);
    CHECK(ctx, ctx->object.meta.count == META_VALUES);
    for (size_t i = 0; i < META_VALUES; i++) {
        const char *value = meta_get(&ctx->object.meta, meta_values[i][0]);
        CHECK(ctx, value && strcmp(value, meta_values[i][1]) == 0);
    }
    CHECK(ctx, get(ctx, key) == 0 && ctx->object.meta.count == META_VALUES);
}

static void
metadata_long(struct ctx *ctx)
{
    const char *key = key_of(ctx, "meta");
    char value[1601];
    struct meta meta;

    memset(value, 'x', sizeof(value));
    value[800] = ' ';
    value[sizeof(value) - 1] = '\0';
    meta_init(&meta);
    CHECK(ctx, meta_set(&meta, "long", value, &ctx->err) == 0);
    bool can = has_cap(ctx, ctx->store->caps.long_meta, "long_meta");
    int rc = ctx->skipped ? -1 : put_meta(ctx, key, &meta, NULL);
    meta_release(&meta);
    if (!can) {
        CHECK(ctx, ctx->skipped || (rc < 0 && ctx->err.code == ERR_TOO_LARGE));
        CHECK(ctx, is_absent(ctx, key));
        return;
    }
    CHECK(ctx, rc == 0);
    CHECK(ctx, head(ctx, key) == 0);
    CHECK(ctx, meta_get(&ctx->object.meta, "long"));
    CHECK(ctx, strcmp(meta_get(&ctx->object.meta, "long"), value) == 0);
}

static void
metadata_many(struct ctx *ctx)
{
    const char *key = key_of(ctx, "meta");
    char name[16];
    struct meta meta;

    meta_init(&meta);
    for (int i = 0; i < 20; i++) {
        (void)snprintf(name, sizeof(name), "n-%d", i);
        CHECK(ctx, meta_set(&meta, name, name + 2, &ctx->err) == 0);
    }
    CHECK(ctx, put_meta(ctx, key, &meta, NULL) == 0);
    meta_release(&meta);
    CHECK(ctx, head(ctx, key) == 0 && ctx->object.meta.count == 20);
    CHECK(ctx, strcmp(meta_get(&ctx->object.meta, "n-17"), "17") == 0);
}

static void
metadata_is_replaced(struct ctx *ctx)
{
    const char *key = key_of(ctx, "meta");
    struct meta meta;

    meta_init(&meta);
    CHECK(ctx, meta_set(&meta, "old", "1", &ctx->err) == 0);
    CHECK(ctx, put_meta(ctx, key, &meta, "text/plain") == 0);
    meta_release(&meta);
    CHECK(ctx, put_meta(ctx, key, NULL, NULL) == 0);
    CHECK(ctx, head(ctx, key) == 0 && ctx->object.meta.count == 0);
}

static void
delete_object(struct ctx *ctx)
{
    const char *key = key_of(ctx, "dir/d");

    CHECK(ctx, put(ctx, key, TEXT("x")) == 0);
    CHECK(ctx, del(ctx, key, NULL) == 0 && ctx->outcome == STORE_DONE);
    CHECK(ctx, is_absent(ctx, key));
    CHECK_ERROR(ctx, get(ctx, key), ERR_NOT_FOUND);
    CHECK(ctx, lists(ctx, "", NULL, '/', 0, ""));
}

static void
delete_missing(struct ctx *ctx)
{
    CHECK(ctx, del(ctx, key_of(ctx, "nothing"), NULL) == 0);
    CHECK(ctx, ctx->outcome == STORE_DONE);
}

static void
delete_keeps_others(struct ctx *ctx)
{
    CHECK(ctx, put(ctx, key_of(ctx, "d/a"), TEXT("a")) == 0);
    CHECK(ctx, put(ctx, key_of(ctx, "d/b"), TEXT("b")) == 0);
    CHECK(ctx, put(ctx, key_of(ctx, "d"), TEXT("d")) == 0);
    CHECK(ctx, del(ctx, key_of(ctx, "d/a"), NULL) == 0);
    CHECK(ctx, holds(ctx, key_of(ctx, "d/b"), TEXT("b")));
    CHECK(ctx, del(ctx, key_of(ctx, "d/b"), NULL) == 0);
    CHECK(ctx, holds(ctx, key_of(ctx, "d"), TEXT("d")));
    CHECK(ctx, put(ctx, key_of(ctx, "d/c"), TEXT("c")) == 0);
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, "d\nd/c\n"));
}

static void
delete_if_match(struct ctx *ctx)
{
    const char *key = key_of(ctx, "d");
    bool can = has_cap(ctx, ctx->store->caps.delete_if_match, "delete_if_match");

    if (ctx->skipped)
        return;
    CHECK(ctx, put(ctx, key, TEXT("x")) == 0);
    if (can) {
        CHECK(ctx, del(ctx, key, ctx->res.etag) == 0 && ctx->outcome == STORE_DONE);
        CHECK(ctx, is_absent(ctx, key));
    } else {
        CHECK_ERROR(ctx, del(ctx, key, ctx->res.etag), ERR_STORE_UNSUPPORTED);
        CHECK(ctx, ctx->outcome == STORE_NOT_DONE);
        CHECK(ctx, holds(ctx, key, TEXT("x")));
    }
}

static void
delete_if_match_old(struct ctx *ctx)
{
    const char *key = key_of(ctx, "d");
    bool can = has_cap(ctx, ctx->store->caps.delete_if_match, "delete_if_match");
    char old[LIMIT_ETAG];

    if (ctx->skipped)
        return;
    CHECK(ctx, put(ctx, key, TEXT("old")) == 0);
    memcpy(old, ctx->res.etag, sizeof(old));
    CHECK(ctx, put(ctx, key, TEXT("new")) == 0);
    CHECK_ERROR(ctx, del(ctx, key, old), can ? ERR_CONFLICT : ERR_STORE_UNSUPPORTED);
    CHECK(ctx, ctx->outcome == (can ? STORE_REFUSED : STORE_NOT_DONE));
    CHECK(ctx, holds(ctx, key, TEXT("new")));
}

const struct contract_case object_cases[] = {
    { "put and get", put_get },
    { "put zero bytes", put_zero },
    { "put one byte", put_one },
    { "put every byte value", put_every_byte },
    { "put 8 MiB and 1 byte", put_big },
    { "put from a file", put_from_file },
    { "put from a file that is too short", put_file_too_short },
    { "put with right digests", put_right_digests },
    { "put with a wrong MD5", put_wrong_md5 },
    { "put with a wrong SHA-256", put_wrong_sha256 },
    { "overwrite", overwrite },
    { "head of a missing key", head_missing },
    { "get of a missing key", get_missing },
    { "head fields", head_fields },
    { "ranges", ranges },
    { "range over the end", range_over_the_end },
    { "range beyond the end", range_beyond_the_end },
    { "range of an empty object", range_of_nothing },
    { "get if match", get_if_match },
    { "get if match of an old version", get_if_match_old },
    { "sink error", sink_error },
    { "small get is bounded", small_is_bounded },
    { "content type", content_type },
    { "metadata", metadata },
    { "metadata with a long value", metadata_long },
    { "metadata with many entries", metadata_many },
    { "metadata is replaced", metadata_is_replaced },
    { "delete", delete_object },
    { "delete a missing key", delete_missing },
    { "delete keeps others", delete_keeps_others },
    { "delete if match", delete_if_match },
    { "delete if match of an old version", delete_if_match_old },
    { NULL, NULL },
};
