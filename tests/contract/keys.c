/* Keys of every kind that a file name or a foreign client can bring. */
#include "tests/contract/contract.h"

/* Writes, reads, finds in the listing, copies and deletes under this key. */
static void
check_key(struct ctx *ctx, const char *rest)
{
    const char *key = key_of(ctx, rest);
    char line[LIMIT_KEY + 2];

    (void)snprintf(line, sizeof(line), "%s\n", rest);
    CHECK(ctx, put(ctx, key, TEXT(rest)) == 0);
    CHECK(ctx, holds(ctx, key, TEXT(rest)));
    CHECK(ctx, head(ctx, key) == 0);
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, line));
    CHECK(ctx, lists(ctx, rest, NULL, 0, 0, line));
    CHECK(ctx, lists(ctx, "", rest, 0, 0, ""));
    CHECK(ctx, put(ctx, key, TEXT("again")) == 0);
    CHECK(ctx, holds(ctx, key, TEXT("again")));
    CHECK(ctx, del(ctx, key, NULL) == 0);
    CHECK(ctx, is_absent(ctx, key));
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, ""));
}

#define KEY_CASE(name, rest)          \
    static void name(struct ctx *ctx) \
    {                                 \
        check_key(ctx, rest);         \
    }
KEY_CASE(key_space, " a  b ")
KEY_CASE(key_plus, "a+b+")
KEY_CASE(key_percent, "100%")
KEY_CASE(key_escape, "%41%2f%00%zz")
KEY_CASE(key_umlaut, "Grüße/Köln.txt")
KEY_CASE(key_chinese, "中文/文件.csv")
KEY_CASE(key_emoji, "\xf0\x9f\x97\x83/\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb.txt")
KEY_CASE(key_right_to_left, "שלום/\xe2\x80\xae"
                            "abc")
KEY_CASE(key_marks, "!*'()-_.~")
KEY_CASE(key_reserved, "a?b&c=d#e;f:g@h,i$j[k]")
KEY_CASE(key_xml, "<a>&amp;\"'</a>]]>")
KEY_CASE(key_unsafe, "{}|^`\\")
KEY_CASE(key_hidden, ".hidden/..almost/...")
KEY_CASE(key_reserved_by_file_store, ".hf~o~x/.hf~d~/.hf~tmp/.hf~l~y")
KEY_CASE(key_holdfast, ".holdfast/history/v/a/01J")
KEY_CASE(key_double_slash, "a//b///c")
KEY_CASE(key_leading_slash, "/a")
KEY_CASE(key_only_slashes, "//")
KEY_CASE(key_trailing_slash, "dir/sub/")
KEY_CASE(key_deep,
         "1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21/22/23/24/25/26/27/28/29/x")

/* Some servers refuse these; none may fold, cut or answer for another key. */
static void
check_if_taken(struct ctx *ctx, const char *rest)
{
    const char *key = key_of(ctx, rest);

    if (put(ctx, key, TEXT("x")) == 0) {
        check_key(ctx, rest);
        return;
    }
    CHECK(ctx, ctx->res.outcome != STORE_DONE);
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, ""));
}

#define TAKEN_CASE(name, rest)        \
    static void name(struct ctx *ctx) \
    {                                 \
        check_if_taken(ctx, rest);    \
    }
TAKEN_CASE(key_newline, "a\nb")
TAKEN_CASE(key_control, "a\001\002\033\037b")
TAKEN_CASE(key_tab_and_delete, "a\tb\177")
TAKEN_CASE(key_return, "a\rb\r\n")
TAKEN_CASE(key_noncharacter, "a\xef\xbf\xbf\xef\xbf\xbe")
TAKEN_CASE(key_dots, "./a/../b/.")

/* B079: kept as they are, or refused at once where the store would make other names of them (R2's local server). */
static void
check_bytes(struct ctx *ctx, const char *rest)
{
    if (has_cap(ctx, ctx->store->caps.any_bytes, "any_bytes")) {
        check_if_taken(ctx, rest);
    } else if (!ctx->skipped) {
        CHECK_ERROR(ctx, put(ctx, key_of(ctx, rest), TEXT("x")), ERR_BAD_NAME);
        CHECK(ctx, ctx->res.outcome == STORE_NOT_DONE);
        CHECK(ctx, lists(ctx, "", NULL, 0, 0, ""));
    }
}

static void
key_not_utf8(struct ctx *ctx)
{
    check_bytes(ctx, "a\xff\xfe\x80z");
}

static void
key_surrogate(struct ctx *ctx)
{
    check_bytes(ctx, "\xed\xa0\x80");
}

static void
fill_key(struct ctx *ctx, char *out, size_t len, bool slashes)
{
    size_t base = strlen(ctx->base);

    for (size_t i = 0; base + i < len; i++)
        out[i] = slashes && i % 100 == 99 ? '/' : (char)('a' + i % 26);
    out[len - base] = '\0';
}

static void
key_longest(struct ctx *ctx)
{
    char rest[LIMIT_KEY + 1];

    fill_key(ctx, rest, LIMIT_KEY, true);
    check_key(ctx, rest);
}

static void
key_longest_component(struct ctx *ctx)
{
    char rest[LIMIT_KEY + 1];

    fill_key(ctx, rest, LIMIT_KEY, false);
    check_key(ctx, rest);
}

/* Around the limits of a file name, and of one with an escape before it. */
static void
key_component_lengths(struct ctx *ctx)
{
    static const size_t lengths[] = { 199, 200, 201, 248, 249, 250, 254, 255, 256, 400, 455, 456 };
    char rest[LIMIT_KEY + 1];

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]) && !ctx->failed; i++) {
        fill_key(ctx, rest, strlen(ctx->base) + lengths[i], false);
        check_key(ctx, rest);
        (void)snprintf(rest + lengths[i], sizeof(rest) - lengths[i], "/x");
        if (!ctx->failed)
            check_key(ctx, rest);
    }
}

/* Long names that share their beginning, as files and as directories, at the same time and in order. */
static void
keys_long_together(struct ctx *ctx)
{
    struct listing got;
    char rest[8][LIMIT_KEY + 1];
    char wanted[8 * LIMIT_KEY] = "";
    size_t at = 0;
    bool same;

    for (unsigned i = 0; i < 8; i++) {
        size_t len = i < 4 ? 210 : 300;
        fill_key(ctx, rest[i], strlen(ctx->base) + len, false);
        rest[i][205] = (char)('0' + i);
        if (i % 2)
            (void)snprintf(rest[i] + len, sizeof(rest[i]) - len, "/z");
        CHECK(ctx, put(ctx, key_of(ctx, rest[i]), TEXT("x")) == 0);
        at += (size_t)snprintf(wanted + at, sizeof(wanted) - at, "%s\n", rest[i]);
    }
    CHECK(ctx, list(ctx, "", NULL, 0, 0, &got) == 0);
    same = strcmp(buf_cstr(&got.text), wanted) == 0;
    buf_release(&got.text);
    CHECK(ctx, same);
}

static void
key_too_long(struct ctx *ctx)
{
    char key[LIMIT_KEY + 2];

    memset(key, 'k', sizeof(key));
    key[LIMIT_KEY + 1] = '\0';
    CHECK_ERROR(ctx, put(ctx, key, TEXT("x")), ERR_NAME_TOO_LONG);
    CHECK(ctx, ctx->res.outcome == STORE_NOT_DONE);
    CHECK_ERROR(ctx, head(ctx, key), ERR_NAME_TOO_LONG);
}

static void
key_empty(struct ctx *ctx)
{
    CHECK_ERROR(ctx, put(ctx, "", TEXT("x")), ERR_BAD_NAME);
    CHECK_ERROR(ctx, get(ctx, ""), ERR_BAD_NAME);
    CHECK_ERROR(ctx, del(ctx, "", NULL), ERR_BAD_NAME);
}

/* "a", "a/", "a/b" and "a//b" are four objects, in whichever order they come and go. */
static void
check_family(struct ctx *ctx, const char *const order[4])
{
    for (int i = 0; i < 4; i++)
        CHECK(ctx, put(ctx, key_of(ctx, order[i]), TEXT(order[i])) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(ctx, holds(ctx, key_of(ctx, order[i]), TEXT(order[i])));
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, "a\na/\na//b\na/b\n"));
    for (int i = 0; i < 4; i++) {
        CHECK(ctx, del(ctx, key_of(ctx, order[i]), NULL) == 0);
        CHECK(ctx, is_absent(ctx, key_of(ctx, order[i])));
        for (int left = i + 1; left < 4; left++)
            CHECK(ctx, holds(ctx, key_of(ctx, order[left]), TEXT(order[left])));
    }
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, ""));
}

static void
keys_file_and_directory(struct ctx *ctx)
{
    static const char *const orders[][4] = {
        { "a", "a/", "a/b", "a//b" },
        { "a/b", "a", "a//b", "a/" },
        { "a//b", "a/b", "a/", "a" },
        { "a/", "a//b", "a", "a/b" },
    };

    for (int i = 0; i < 4 && !ctx->failed; i++)
        check_family(ctx, orders[i]);
}

static void
keys_file_becomes_directory_twice(struct ctx *ctx)
{
    CHECK(ctx, put(ctx, key_of(ctx, "a"), TEXT("1")) == 0);
    CHECK(ctx, put(ctx, key_of(ctx, "a/b"), TEXT("2")) == 0);
    CHECK(ctx, put(ctx, key_of(ctx, "a/b/c"), TEXT("3")) == 0);
    CHECK(ctx, put(ctx, key_of(ctx, "a"), TEXT("4")) == 0);
    CHECK(ctx, put(ctx, key_of(ctx, "a/b"), TEXT("5")) == 0);
    CHECK(ctx, holds(ctx, key_of(ctx, "a"), TEXT("4")));
    CHECK(ctx, holds(ctx, key_of(ctx, "a/b"), TEXT("5")));
    CHECK(ctx, holds(ctx, key_of(ctx, "a/b/c"), TEXT("3")));
    CHECK(ctx, del(ctx, key_of(ctx, "a/b/c"), NULL) == 0);
    CHECK(ctx, holds(ctx, key_of(ctx, "a"), TEXT("4")));
    CHECK(ctx, put(ctx, key_of(ctx, "a"), TEXT("6")) == 0);
    CHECK(ctx, holds(ctx, key_of(ctx, "a/b"), TEXT("5")));
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, "a\na/b\n"));
}

/* U+00E4 and a with U+0308: two names, unless the store says that it composes them. */
static void
keys_normalisation(struct ctx *ctx)
{
    if (ctx->store->caps.folds_names == STORE_YES) {
        /* R2 itself does; its local server keeps both, and has to be used as if it did not. */
        const char *other = key_of(ctx, "\xc3\xa4");
        CHECK(ctx, put(ctx, key_of(ctx, "a\xcc\x88"), TEXT("one")) == 0);
        bool folded = holds(ctx, other, TEXT("one"));
        CHECK(ctx, folded || ctx->err.code == ERR_NOT_FOUND);
        CHECK(ctx, lists(ctx, "", NULL, 0, 0, folded ? "\xc3\xa4\n" : "a\xcc\x88\n"));
        return;
    }
    CHECK(ctx, put(ctx, key_of(ctx, "\xc3\xa4"), TEXT("composed")) == 0);
    CHECK(ctx, put(ctx, key_of(ctx, "a\xcc\x88"), TEXT("decomposed")) == 0);
    CHECK(ctx, holds(ctx, key_of(ctx, "\xc3\xa4"), TEXT("composed")));
    CHECK(ctx, holds(ctx, key_of(ctx, "a\xcc\x88"), TEXT("decomposed")));
}

static void
keys_case(struct ctx *ctx)
{
    CHECK(ctx, put(ctx, key_of(ctx, "Name"), TEXT("upper")) == 0);
    CHECK(ctx, put(ctx, key_of(ctx, "name"), TEXT("lower")) == 0);
    CHECK(ctx, holds(ctx, key_of(ctx, "Name"), TEXT("upper")));
    CHECK(ctx, lists(ctx, "", NULL, 0, 0, "Name\nname\n"));
}

const struct contract_case key_cases[] = {
    { "key with spaces", key_space },
    { "key with plus", key_plus },
    { "key with percent", key_percent },
    { "key with escapes", key_escape },
    { "key with umlauts", key_umlaut },
    { "key in Chinese", key_chinese },
    { "key with emoji", key_emoji },
    { "key from right to left", key_right_to_left },
    { "key with !*'()", key_marks },
    { "key with reserved characters", key_reserved },
    { "key with XML", key_xml },
    { "key with unsafe characters", key_unsafe },
    { "key with dots before", key_hidden },
    { "key like the file store's own names", key_reserved_by_file_store },
    { "key below .holdfast", key_holdfast },
    { "key with double slashes", key_double_slash },
    { "key with a leading slash", key_leading_slash },
    { "key of slashes", key_only_slashes },
    { "key with a trailing slash", key_trailing_slash },
    { "key 30 levels deep", key_deep },
    { "key with a newline", key_newline },
    { "key with control characters", key_control },
    { "key with tab and delete", key_tab_and_delete },
    { "key with carriage returns", key_return },
    { "key that is not UTF-8", key_not_utf8 },
    { "key with a surrogate", key_surrogate },
    { "key with noncharacters", key_noncharacter },
    { "key with . and ..", key_dots },
    { "key of 1024 bytes", key_longest },
    { "key of 1024 bytes in one component", key_longest_component },
    { "keys with components around 255 bytes", key_component_lengths },
    { "long keys together", keys_long_together },
    { "key of 1025 bytes", key_too_long },
    { "empty key", key_empty },
    { "file and directory of one name", keys_file_and_directory },
    { "file becomes directory", keys_file_becomes_directory_twice },
    { "normalisation", keys_normalisation },
    { "upper and lower case", keys_case },
    { NULL, NULL },
};
