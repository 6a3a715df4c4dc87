#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/parse.h"
#include "base/scope.h"
#include "tests/fault/server/harness.h"

/* The faults of a store while it is read, listed and probed; see s3_faults.c. */

/* ---- GET ---- */

#define BIG 100000
static char big[BIG + 1];

static void
make_big(void)
{
    for (int i = 0; i < BIG; i++)
        big[i] = (char)('a' + (i * 7 + i / 26) % 26);
    big[BIG] = '\0';
}

static int
collect(void *arg, const void *data, size_t len, struct err *failure)
{
    return buf_append(arg, data, len, failure);
}

static int
get_at(const char *key, uint64_t off, uint64_t len, const char *if_match, struct buf *out,
       int64_t ns)
{
    struct store_object object;
    const struct store_get req = { .key = key,
                                   .off = off,
                                   .len = len,
                                   .if_match = if_match,
                                   .sink = collect,
                                   .sink_arg = out,
                                   .deadline_ns = within(ns) };
    store_object_init(&object);
    buf_clear(out);
    int result = on_time(store_get(store, &req, &object, &err));
    store_object_release(&object);
    return result;
}

/* B117, B119, S15, S16: the sink sees each byte once (INV-9). */
static void
get_goes_on(void **state)
{
    (void)state;
    const struct {
        const char *fault;
        unsigned count, arg;
    } rows[] = { { "cut", 1, 30000 },   { "cut", 3, 20000 },  { "cut", 1, 0 },
                 { "stall", 1, 50000 }, { "silent", 1, 0 },   { "reset_before", 2, 0 },
                 { "error500", 2, 0 },  { "slowdown", 1, 0 }, { "busy429", 1, 1 } };
    scope_buf out;
    buf_init(&out, 1u << 20);
    make_big();
    put_ok("big", big);
    for (size_t i = 0; i < COUNT(rows); i++) {
        fault(rows[i].fault, "GET", rows[i].count, rows[i].arg);
        if (get_at("big", 0, 0, res.etag, &out, 3 * SHORT) < 0)
            fail_msg("%s: %s", rows[i].fault, err.msg);
        assert_int_equal(out.len, BIG);
        assert_memory_equal(out.data, big, BIG);
        fault(rows[i].fault, "GET", rows[i].count, rows[i].arg);
        assert_int_equal(get_at("big", 1234, 70000, NULL, &out, 3 * SHORT), 0);
        assert_int_equal(out.len, 70000);
        assert_memory_equal(out.data, big + 1234, 70000);
    }
}

/* S18 */
static void
get_bad_answers(void **state)
{
    (void)state;
    const char *rows[] = { "no_length",   "long_length", "no_etag",  "wrong_etag",
                           "other_range", "wrong_range", "error200", "html404" };
    scope_buf out;
    buf_init(&out, 1u << 20);
    make_big();
    put_ok("big", big);
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool ranged = strstr(rows[i], "range") != NULL;
        fault(rows[i], "GET", 1, 0);
        assert_int_equal(get_at("big", ranged ? 10 : 0, ranged ? 500 : 0, res.etag, &out, SHORT),
                         -1);
        if (err.code != ERR_STORE_BAD_ANSWER)
            fail_msg("%s: code %d %s", rows[i], err.code, err.msg);
        /* What the sink got is the object's, as far as it goes. */
        assert_memory_equal(buf_cstr(&out), big + (ranged ? 10 : 0), out.len);
    }
}

/* S18 */
static void
get_flipped_byte(void **state)
{
    (void)state;
    scope_buf out;
    char hex[SHA256_HEX];
    uint8_t digest[SHA256_SIZE];
    struct meta meta;
    const char *text = "some bytes that matter";
    buf_init(&out, 4096);
    meta_init(&meta);
    assert_int_equal(sha256(text, strlen(text), digest, &err), 0);
    hex_encode(digest, sizeof(digest), hex);
    assert_int_equal(meta_set(&meta, "holdfast-sha256", hex, &err), 0);
    assert_int_equal(md5(text, strlen(text), digest, &err), 0);
    hex_encode(digest, MD5_SIZE, hex);
    assert_int_equal(meta_set(&meta, "holdfast-md5", hex, &err), 0);
    assert_int_equal(meta_set(&meta, "holdfast-size", "22", &err), 0);
    const struct store_put req = { .key = "k",
                                   .body = { .mem = text, .fd = -1, .size = strlen(text) },
                                   .meta = &meta };
    assert_int_equal(store_put(store, &req, &res, &err), 0);
    fault("flip", "GET", 1, 0);
    assert_int_equal(get_at("k", 0, 0, NULL, &out, SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    assert_non_null(strstr(err.msg, "checksum mismatch"));
    assert_int_equal(get_at("k", 0, 0, NULL, &out, SHORT), 0);
    assert_string_equal(buf_cstr(&out), text);
    meta_release(&meta);
}

struct overwriter {
    struct store *other;
    struct buf got;
    bool done;
};

static int
overwrite_then_collect(void *arg, const void *data, size_t len, struct err *failure)
{
    struct overwriter *overwriter = arg;
    if (!overwriter->done) {
        overwriter->done = true;
        if (store_put_small(overwriter->other, "big", "other", 5, any, &res, failure) < 0)
            return -1;
    }
    return buf_append(&overwriter->got, data, len, failure);
}

/* S17: a body that trickles is waited for as long as the deadline allows, then told; what came is the object's. */
static void
get_slow_body(void **state)
{
    (void)state;
    scope_buf out;
    buf_init(&out, 1u << 20);
    make_big();
    put_ok("big", big);
    fault("slow", "GET", 1, 2500); /* bytes in 10 ms: 400 ms */
    assert_int_equal(get_at("big", 0, 0, res.etag, &out, 3 * SHORT), 0);
    assert_int_equal(out.len, BIG);
    assert_memory_equal(out.data, big, BIG);
    fault("slow", "GET", 100, 100); /* 10 s */
    assert_int_equal(get_at("big", 0, 0, res.etag, &out, SHORT), -1);
    assert_true(err.code == ERR_STORE_TIMEOUT || err.code == ERR_STORE_AWAY);
    assert_true(out.len < BIG);
    assert_memory_equal(buf_cstr(&out), big, out.len);
}

/* INV-1: the object is replaced while a cut GET is gone on with. */
static void
get_never_mixes_versions(void **state)
{
    (void)state;
    struct store_object object;
    struct overwriter overwriter = { .other = open_store("test", server_port, false) };
    const struct store_get req = { .key = "big",
                                   .sink = overwrite_then_collect,
                                   .sink_arg = &overwriter,
                                   .deadline_ns = within(2 * SHORT) };
    make_big();
    put_ok("big", big);
    buf_init(&overwriter.got, 1u << 20);
    store_object_init(&object);
    fault("cut", "GET", 1, 40000);
    assert_int_equal(store_get(store, &req, &object, &err), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(overwriter.got.len, 40000);
    assert_memory_equal(overwriter.got.data, big, 40000);
    buf_release(&overwriter.got);
    store_object_release(&object);
    store_free(overwriter.other);
}

static void
get_away(void **state)
{
    (void)state;
    scope_buf out;
    buf_init(&out, 4096);
    put_ok("k", "bytes");
    fault("silent", "*", 100, 0);
    assert_int_equal(get_at("k", 0, 0, NULL, &out, SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_TIMEOUT);
    control("/_reset");
    fault("error500", "*", 1000, 0);
    assert_int_equal(get_at("k", 0, 0, NULL, &out, SHORT), -1);
    /* Never "not found"; which of the two depends on how the last attempt met the deadline. */
    assert_true(err.code == ERR_STORE_AWAY || err.code == ERR_STORE_TIMEOUT);
}

/* ---- HEAD ---- */

static int
head_of(struct store *from, const char *key, int64_t ns)
{
    struct store_object object;
    store_object_init(&object);
    int result = on_time(store_head(from, key, within(ns), &object, &err));
    store_object_release(&object);
    return result;
}

static void
head_answers(void **state)
{
    (void)state;
    put_ok("k", "bytes");
    const char *passing[] = { "error500", "slowdown", "reset_before", "silent", "lost" };
    for (size_t i = 0; i < COUNT(passing); i++) {
        fault(passing[i], "HEAD", 1, 0);
        assert_int_equal(head_of(store, "k", 2 * SHORT), 0);
    }
    fault("no_etag", "HEAD", 1, 0);
    assert_int_equal(head_of(store, "k", SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    fault("denied", "HEAD", 1, 0);
    assert_int_equal(head_of(store, "k", SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_int_equal(head_of(store, "none", SHORT), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

/* INV-9: a missing bucket is not a missing key, and a HEAD has no body to say so. */
static void
no_bucket_and_wrong_keys(void **state)
{
    (void)state;
    scope_buf out;
    buf_init(&out, 4096);
    struct store *none = open_store("nobucket", server_port, false);
    struct store *wrong = open_store("test", server_port, true);
    assert_int_equal(head_of(none, "k", SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_NO_BUCKET);
    assert_int_equal(head_of(wrong, "k", SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_non_null(strstr(err.msg, "secret key"));
    assert_int_equal(store_put_small(none, "k", "x", 1, any, &res, &err), -1);
    assert_int_equal(err.code, ERR_STORE_NO_BUCKET);
    assert_int_equal(store_put_small(wrong, "k", "x", 1, any, &res, &err), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    store_free(none);
    store_free(wrong);
}

static void
nobody_listens(void **state)
{
    (void)state;
    struct store *away = open_store("test", 1, false);
    assert_int_equal(head_of(away, "k", NS_PER_S), -1);
    assert_true(err.code == ERR_STORE_AWAY || err.code == ERR_STORE_TIMEOUT);
    const struct store_put req = { .key = "k",
                                   .body = { .mem = "x", .fd = -1, .size = 1 },
                                   .deadline_ns = within(NS_PER_S) };
    assert_int_equal(on_time(store_put(away, &req, &res, &err)), -1);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    store_free(away);
}

/* ---- LIST ---- */

static int
note_key(void *arg, const struct store_list_entry *entry, struct err *failure)
{
    return buf_appendf(arg, failure, "%s,", entry->key);
}

static int
list_keys(struct buf *out)
{
    const struct store_list req = {
        .prefix = "d/", .fn = note_key, .arg = out, .deadline_ns = within(2 * SHORT)
    };
    buf_clear(out);
    return on_time(store_list(store, &req, &err));
}

/* B066, B071 */
static void
lists(void **state)
{
    (void)state;
    const char *want = "d/0,d/1,d/2,d/3,d/4,d/5,d/6,d/7,";
    const char *passing[] = { "none",   "error500", "slowdown", "reset_before",
                              "silent", "cut",      "error200", "empty_page" };
    const char *failing[] = { "same_token", "no_token", "foreign_key", "dup_page", "html404" };
    scope_buf out;
    buf_init(&out, 65536);
    for (int i = 0; i < 8; i++) {
        char key[] = { 'd', '/', (char)('0' + i), '\0' };
        put_ok(key, "x");
    }
    put_ok("e", "x");
    control("/_mode?page=3");
    for (size_t i = 0; i < COUNT(passing); i++) {
        /* On the second page. */
        control("/_fault?kind=%s&op=LIST&skip=1&count=1&arg=20", passing[i]);
        if (list_keys(&out) < 0)
            fail_msg("%s: %s", passing[i], err.msg);
        assert_string_equal(buf_cstr(&out), want);
    }
    for (size_t i = 0; i < COUNT(failing); i++) {
        control("/_fault?kind=%s&op=LIST&skip=1&count=1", failing[i]);
        assert_int_equal(list_keys(&out), -1);
        if (err.code != ERR_STORE_BAD_ANSWER)
            fail_msg("%s: code %d %s", failing[i], err.code, err.msg);
        /* What was passed on is true and in order. */
        assert_memory_equal(buf_cstr(&out), want, out.len);
    }
    /* Empty pages that lead back to themselves. */
    control("/_fault?kind=same_token&op=LIST&skip=1&count=3&arg=1");
    assert_int_equal(list_keys(&out), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
}

/* ---- clock, load, probe, links ---- */

/* B014, S21 */
static void
wrong_clock(void **state)
{
    (void)state;
    struct store_counters before;
    struct store_counters after;
    control("/_mode?skew=1800");
    put_ok("k", "bytes");
    assert_int_equal(head_of(store, "k", SHORT), 0);
    store_counters(store, &before);
    put_ok("k", "bytes2");
    store_counters(store, &after);
    assert_int_equal(after.requests - before.requests, 1); /* learned once */
    /* A HEAD has no body that names the reason. */
    struct store *fresh = open_store("test", server_port, false);
    assert_int_equal(head_of(fresh, "k", SHORT), 0);
    store_free(fresh);
    control("/_mode?skew=0");
    assert_int_equal(head_of(store, "k", SHORT), 0); /* and back */
}

/* B102, B208, B209, S20 */
static void
probe_tells_the_truth(void **state)
{
    (void)state;
    scope_buf out;
    buf_init(&out, 4096);
    assert_int_equal(store_probe(store, &err), 0);
    assert_int_equal(store->caps.put_if_absent, STORE_YES);
    assert_int_equal(store->caps.put_if_match, STORE_YES);
    assert_int_equal(store->caps.put_atomic, STORE_YES);
    assert_int_equal(store->caps.delete_if_match, STORE_YES);
    assert_int_equal(store->caps.copy_source_if_match, STORE_YES);
    assert_int_equal(store->caps.copy_dest_conditions, STORE_YES);
    assert_int_equal(store->caps.etag_quoted, STORE_YES);
    assert_int_equal(store->caps.list_consistent, STORE_YES);
    assert_int_equal(store->caps.presign, STORE_YES);
    assert_int_equal(store->caps.copy_parts, STORE_YES);
    fault("denied", "PARTCOPY", 1,
          0); /* the range of a small source, as AWS does; the whole is fine */
    assert_int_equal(store_probe(store, &err), 0);
    assert_int_equal(store->caps.copy_parts, STORE_YES);
    fault("ignore_conditions", "*", 1, 0);
    assert_int_equal(store_probe(store, &err), 0);
    assert_int_equal(store->caps.put_if_absent, STORE_NO);
    assert_int_equal(store->caps.put_if_match, STORE_NO);
    assert_int_equal(store->caps.put_atomic, STORE_NO);
    assert_int_equal(store->caps.delete_if_match, STORE_NO);
    assert_int_equal(store->caps.copy_source_if_match, STORE_NO);
    assert_int_equal(store->caps.copy_dest_conditions, STORE_NO);
    const struct store_list req = { .prefix = "", .fn = note_key, .arg = &out };
    assert_int_equal(store_list(store, &req, &err), 0);
    assert_int_equal(out.len, 0); /* nothing is left behind */
}

static void
presigned_links(void **state)
{
    (void)state;
    char got[64];
    scope_buf url;
    buf_init(&url, 8192);
    put_ok("a b/\xc3\xa4!*", "linked");
    const struct store_presign req = { .method = "GET",
                                       .key = "a b/\xc3\xa4!*",
                                       .expires_s = 60,
                                       .response_content_disposition = "attachment; filename=x" };
    assert_int_equal(store_presign(store, &req, &url, &err), 0);
    const char *target = strchr(buf_cstr(&url) + strlen("http://"), '/');
    assert_int_equal(plain_request("GET", target, got, sizeof(got)), 200);
    assert_string_equal(got, "linked");
    assert_int_equal(plain_request("HEAD", target, got, sizeof(got)), 403); /* another method */
    control("/_mode?skew=61");
    assert_int_equal(plain_request("GET", target, got, sizeof(got)), 403);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(get_goes_on),
        TEST(get_bad_answers),
        TEST(get_flipped_byte),
        TEST(get_slow_body),
        TEST(get_never_mixes_versions),
        TEST(get_away),
        TEST(head_answers),
        TEST(no_bucket_and_wrong_keys),
        TEST(nobody_listens),
        TEST(lists),
        TEST(wrong_clock),
        TEST(probe_tells_the_truth),
        TEST(presigned_links),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
