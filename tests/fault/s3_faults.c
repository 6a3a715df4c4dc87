#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/scope.h"
#include "tests/fault/server/harness.h"

/*
 * The faults that a store can have while it is written to, driven through s3_store_open() against the server of
 * tests/fault/server. After each call the objects are looked at behind the client's back, and no call may end later than
 * its deadline. Reading: s3_reads.c.
 */

/* ---- PUT ---- */

struct put_row {
    const char *fault;
    unsigned arg;
    unsigned puts; /* requests that reach the server */
};

/* Carried out or not, in the end the write is there exactly as asked, and the caller knows it (INV-10). */
static const struct put_row put_rows[] = {
    { "error500", 0, 2 },       { "error502", 0, 2 },       { "error504", 0, 2 },
    { "slowdown", 0, 2 },       { "busy429", 1, 2 },        { "request_timeout", 0, 2 },
    { "race409", 0, 2 },        { "reset_before", 0, 2 },   { "error200", 0, 2 },
    { "silent", 0, 2 },         { "reset_after", 0, 1 },    { "lost", 0, 1 },
    { "error500_after", 0, 1 }, { "error200_after", 0, 1 }, { "no_etag", 0, 1 },
    { "wrong_etag", 0, 1 },     { "long_length", 0, 1 },
};

/* S19, B022, B099, B192, S4, S16 */
static void
put_creates_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(put_rows); i++) {
        /* Without a kept connection: libcurl sends a request that broke on one again by itself. */
        (void)end(NULL);
        (void)begin(NULL);
        fault(put_rows[i].fault, "PUT", 1, put_rows[i].arg);
        if (put_at("dir/new", "the bytes", absent, "01WRITE", 2 * SHORT) < 0)
            fail_msg("%s: %s", put_rows[i].fault, err.msg);
        assert_int_equal(res.outcome, STORE_DONE);
        assert_string_equal(res.etag, "ab48e870377e5d9fbe11663949e229b0");
        assert_raw("dir/new", "the bytes");
        assert_int_equal(seen("PUT"), put_rows[i].puts);
    }
}

static void
put_replaces_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(put_rows); i++) {
        control("/_reset");
        put_ok("k", "old");
        char etag[LIMIT_ETAG];
        memcpy(etag, res.etag, sizeof(etag));
        fault(put_rows[i].fault, "PUT", 1, put_rows[i].arg);
        if (put_at("k", "new bytes", (struct store_cond){ STORE_COND_MATCH, etag }, "01WRITE",
                   2 * SHORT) < 0)
            fail_msg("%s: %s", put_rows[i].fault, err.msg);
        assert_int_equal(res.outcome, STORE_DONE);
        assert_raw("k", "new bytes");
    }
}

/* S5: a held-back attempt lands after its retry: the condition keeps it from doing harm. */
static void
put_late(void **state)
{
    (void)state;
    fault("late", "PUT", 1, 700);
    assert_int_equal(put_at("k", "bytes", absent, "01W", 2 * SHORT), 0);
    assert_int_equal(res.outcome, STORE_DONE);
    char etag[LIMIT_ETAG];
    memcpy(etag, res.etag, sizeof(etag));
    assert_int_equal(
        put_at("k", "newer", (struct store_cond){ STORE_COND_MATCH, etag }, "02W", SHORT), 0);
    clock_sleep_ns(900 * NS_PER_MS);
    assert_raw("k", "newer");
}

static void
put_conflicts(void **state)
{
    (void)state;
    put_ok("k", "theirs");
    assert_int_equal(put_at("k", "mine", absent, "01W", SHORT), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(res.outcome, STORE_REFUSED);
    /* The same after a lost answer. */
    fault("reset_after", "PUT", 1, 0);
    assert_int_equal(put_at("k", "mine", absent, "01W", 2 * SHORT), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(res.outcome, STORE_REFUSED);
    assert_raw("k", "theirs");
    /* If-Match on a key that is gone. */
    const struct store_cond gone = { STORE_COND_MATCH, "d41d8cd98f00b204e9800998ecf8427e" };
    assert_int_equal(put_at("none", "mine", gone, "01W", SHORT), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(res.outcome, STORE_REFUSED);
    assert_raw("none", NULL);
}

/* Without a write id nobody can say whose the same bytes are. */
static void
put_without_id_stays_unknown(void **state)
{
    (void)state;
    fault("reset_after", "PUT", 1, 0);
    assert_int_equal(put_at("k", "bytes", absent, NULL, SHORT), -1);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    assert_int_not_equal(err.code, ERR_CONFLICT);
}

static void
put_undecided(void **state)
{
    (void)state;
    /* The answer is lost and the store silent from then on: it has landed, and nobody can know. */
    fault("lost", "PUT", 1, 0);
    fault("silent", "*", 100, 0);
    assert_int_equal(put_at("k", "bytes", absent, "01W", SHORT), -1);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    assert_int_equal(err.code, ERR_STORE_TIMEOUT);
    control("/_reset");
    fault("error500", "*", 1000, 0);
    assert_int_equal(put_at("k", "bytes", absent, "01W", SHORT), -1);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    /* Which of the two depends on how the last attempt met the deadline. */
    assert_true(err.code == ERR_STORE_AWAY || err.code == ERR_STORE_TIMEOUT);
}

/* Looking is tried again too. */
static void
put_looks_again(void **state)
{
    (void)state;
    fault("reset_after", "PUT", 1, 0);
    fault("error500", "HEAD", 2, 0);
    assert_int_equal(put_at("k", "bytes", absent, "01W", 2 * SHORT), 0);
    assert_int_equal(res.outcome, STORE_DONE);
    assert_int_equal(seen("PUT"), 1);
}

/* Answers that trying again does not change are not tried again. */
static void
put_final_answers(void **state)
{
    (void)state;
    const struct {
        const char *fault, *text;
    } rows[] = { { "denied", "policy" },
                 { "expired", "fresh" },
                 { "wrong_region", "region=eu-west-3" } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        control("/_reset");
        fault(rows[i].fault, "PUT", 5, 0);
        assert_int_equal(put_at("k", "bytes", absent, "01W", SHORT), -1);
        assert_int_equal(err.code, ERR_STORE_DENIED);
        assert_int_equal(res.outcome, STORE_NOT_DONE);
        assert_non_null(strstr(err.msg, rows[i].text));
        assert_int_equal(seen("PUT"), 1);
    }
}

/* ---- DELETE and COPY ---- */

static int
delete_at(const char *key, const char *if_match, enum store_outcome *outcome)
{
    const struct store_delete req = { .key = key,
                                      .if_match = if_match,
                                      .deadline_ns = within(SHORT) };
    return on_time(store_delete(store, &req, outcome, &err));
}

static void
deletes(void **state)
{
    (void)state;
    const char *rows[] = { "error500", "slowdown", "reset_before",  "reset_after",
                           "lost",     "silent",   "error500_after" };
    enum store_outcome outcome;
    for (size_t i = 0; i < COUNT(rows); i++) {
        put_ok("k", "bytes");
        char etag[LIMIT_ETAG];
        memcpy(etag, res.etag, sizeof(etag));
        fault(rows[i], "DELETE", 1, 0);
        if (delete_at("k", i % 2 ? etag : NULL, &outcome) < 0)
            fail_msg("%s: %s", rows[i], err.msg);
        assert_int_equal(outcome, STORE_DONE);
        assert_raw("k", NULL);
    }
    put_ok("k", "bytes");
    assert_int_equal(delete_at("k", "d41d8cd98f00b204e9800998ecf8427e", &outcome), -1);
    assert_int_equal(outcome, STORE_REFUSED);
    assert_raw("k", "bytes");
    fault("silent", "*", 100, 0);
    assert_int_equal(delete_at("k", NULL, &outcome), -1);
    assert_int_equal(outcome, STORE_UNKNOWN);
}

static int
copy_at(const char *from, const char *etag, const char *to)
{
    const struct store_copy req = {
        .from = from, .from_if_match = etag, .to = to, .deadline_ns = within(2 * SHORT)
    };
    return on_time(store_copy(store, &req, &res, &err));
}

/* B018, B191 */
static void
copies(void **state)
{
    (void)state;
    const char *rows[] = { "error500", "slowdown", "reset_before",   "reset_after",   "lost",
                           "error200", "silent",   "error500_after", "error200_after" };
    char etag[LIMIT_ETAG];
    char to[32];
    put_ok("k", "bytes");
    memcpy(etag, res.etag, sizeof(etag));
    for (size_t i = 0; i < COUNT(rows); i++) {
        (void)snprintf(to, sizeof(to), "copy/%zu", i);
        fault(rows[i], "COPY", 1, 0);
        if (copy_at("k", etag, to) < 0)
            fail_msg("%s: %s", rows[i], err.msg);
        assert_int_equal(res.outcome, STORE_DONE);
        assert_raw(to, "bytes");
    }
    put_ok("k", "newer");
    assert_int_equal(copy_at("k", etag, "copy/stale"), -1);
    assert_int_equal(res.outcome, STORE_REFUSED);
    assert_raw("copy/stale", NULL);
    /* A store that ignores the condition copies the wrong version: it is noticed and removed. */
    fault("ignore_conditions", "COPY", 1, 0);
    assert_int_equal(copy_at("k", etag, "copy/stale"), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(res.outcome, STORE_REFUSED);
    assert_raw("copy/stale", NULL);
    assert_int_equal(copy_at("none", NULL, "copy/none"), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

/* ---- load ---- */

struct worker {
    pthread_t thread;
    int number;
    int failures;
};

static void *
work(void *arg)
{
    struct worker *worker = arg;
    for (int i = 0; i < 10; i++) {
        struct err own = ERR_INIT;
        struct store_put_result result;
        char key[32];
        (void)snprintf(key, sizeof(key), "w/%d-%d", worker->number, i);
        worker->failures +=
            store_put_small(store, key, key, strlen(key), absent, &result, &own) < 0;
    }
    return NULL;
}

/* B021, S14 */
static void
slowdown_under_load(void **state)
{
    (void)state;
    struct worker workers[8];
    struct store_counters counters;
    scope_buf out;
    buf_init(&out, 65536);
    fault("slowdown", "PUT", 30, 0);
    for (int i = 0; i < 8; i++) {
        workers[i] = (struct worker){ .number = i };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    store_counters(store, &counters);
    assert_int_equal(counters.retries, 30);
    assert_int_equal(seen("PUT"), 110);
    assert_raw("w/7-9", "w/7-9");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(put_creates_once),
        TEST(put_replaces_once),
        TEST(put_late),
        TEST(put_conflicts),
        TEST(put_without_id_stays_unknown),
        TEST(put_undecided),
        TEST(put_looks_again),
        TEST(put_final_answers),
        TEST(deletes),
        TEST(copies),
        TEST(slowdown_under_load),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
