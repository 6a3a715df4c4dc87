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
 * What can go wrong with uploads and copies in parts, and with batch deletes. The limits are lowered to a KiB, so that an
 * object of a few KiB goes in parts. What lies at the server is looked at behind the client's back.
 */

#define PART 1000
#define SIZE (3 * PART + 500) /* four parts */
#define ENOUGH (3 * NS_PER_S)

static char bytes[64 * PART + 1];

static int
begin_parts(void **state)
{
    (void)begin(state);
    control("/_mode?min_part=1");
    store->caps.max_put_bytes = store->caps.max_copy_bytes = store->caps.part_bytes = PART;
    store->caps.copy_parts_decodes_twice = STORE_NO;
    return 0;
}

static void
fill(size_t size, char first)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(first + (char)(i * 7 % 11));
    bytes[size] = '\0';
}

struct noted {
    unsigned times;
    char id[1024];
};

static int
note(void *arg, const char *id, struct err *failure)
{
    (void)failure;
    struct noted *noted = arg;
    noted->times++;
    (void)snprintf(noted->id, sizeof(noted->id), "%s", id);
    return 0;
}

static struct noted noted;

static int
put_parts(const char *key, size_t size, struct store_cond cond, const char *id, int64_t ns)
{
    struct meta meta;
    meta_init(&meta);
    if (id)
        assert_int_equal(meta_set(&meta, "holdfast-version", id, &err), 0);
    memset(&noted, 0, sizeof(noted));
    const struct store_put req = { .key = key,
                                   .body = { .mem = bytes, .fd = -1, .size = size },
                                   .cond = cond,
                                   .meta = id ? &meta : NULL,
                                   .deadline_ns = within(ns),
                                   .on_upload = note,
                                   .on_upload_arg = &noted };
    int result = on_time(store_put(store, &req, &res, &err));
    meta_release(&meta);
    return result;
}

static int
count_upload(void *arg, const struct store_upload *upload, struct err *failure)
{
    (void)upload;
    (void)failure;
    ++*(unsigned *)arg;
    return 0;
}

static unsigned
uploads_left(void)
{
    unsigned count = 0;
    assert_int_equal(store_uploads(store, "", count_upload, &count, &err), 0);
    return count;
}

/* ---- one fault, and the write is there all the same ---- */

struct row {
    const char *op, *fault;
    unsigned arg;
};

/*
 * Carried out or not, the object is there in the end exactly as asked, once, and nothing is left of the upload: B018, B021,
 * B022, B047 (a part sent again replaces the former one).
 */
static const struct row put_rows[] = {
    { "CREATE", "error500", 0 },
    { "CREATE", "slowdown", 0 },
    { "CREATE", "error200", 0 },
    { "CREATE", "reset_before", 0 },
    { "PART", "error500", 0 },
    { "PART", "error502", 0 },
    { "PART", "error504", 0 },
    { "PART", "slowdown", 0 },
    { "PART", "busy429", 1 },
    { "PART", "request_timeout", 0 },
    { "PART", "error200", 0 },
    { "PART", "error200_after", 0 },
    { "PART", "error500_after", 0 },
    { "PART", "reset_before", 0 },
    { "PART", "reset_after", 0 },
    { "PART", "lost", 0 },
    { "PART", "silent", 0 },
    { "PART", "no_etag", 0 },
    { "PART", "no_upload", 0 }, /* B098 */
    { "COMPLETE", "error500", 0 },
    { "COMPLETE", "slowdown", 0 },
    { "COMPLETE", "race409", 0 },
    { "COMPLETE", "error200", 0 }, /* B019 */
    { "COMPLETE", "reset_before", 0 },
    { "COMPLETE", "silent", 0 },
    { "COMPLETE", "no_upload", 0 },
    { "COMPLETE", "spaces_error", 300 }, /* B019: white space, then the error */
    { "COMPLETE", "spaces_error_after", 300 },
    { "COMPLETE", "spaces", 300 },
    { "COMPLETE", "error200_after", 0 },
    { "COMPLETE", "error500_after", 0 },
    { "COMPLETE", "reset_after", 0 },
    { "COMPLETE", "lost", 0 },
    { "COMPLETE", "no_etag", 0 }, /* as RGW 16 */
};

static void
put_row(const struct row *row, bool judged)
{
    (void)end(NULL);
    (void)begin_parts(NULL);
    store->caps.complete_if_absent = store->caps.complete_if_match = judged ? STORE_YES : STORE_NO;
    put_ok("k", "old");
    char etag[LIMIT_ETAG];
    memcpy(etag, res.etag, sizeof(etag));
    fill(SIZE, 'A');
    fault(row->fault, row->op, 1, row->arg);
    if (put_parts("k", SIZE, (struct store_cond){ STORE_COND_MATCH, etag }, "01W", ENOUGH) < 0)
        fail_msg("%s %s judged=%d: %s", row->op, row->fault, judged, err.msg);
    assert_int_equal(res.outcome, STORE_DONE);
    assert_raw("k", bytes);
    assert_int_equal(uploads_left(), 0);
}

static void
puts_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(put_rows); i++) {
        put_row(&put_rows[i], false);
        put_row(&put_rows[i], true);
    }
}

/* An upload whose id never came holds nothing; the sweep finds it. */
static void
lost_create(void **state)
{
    (void)state;
    fill(SIZE, 'A');
    fault("reset_after", "CREATE", 1, 0);
    assert_int_equal(put_parts("k", SIZE, absent, "01W", ENOUGH), 0);
    assert_int_equal(noted.times, 1);
    assert_int_equal(uploads_left(), 1);
}

/* ---- failures ---- */

/* B001: a part that fails for good fails the write; the old object stays, and the next try sends everything. */
static void
part_fails(void **state)
{
    (void)state;
    put_ok("k", "old");
    char etag[LIMIT_ETAG];
    memcpy(etag, res.etag, sizeof(etag));
    const struct store_cond match = { STORE_COND_MATCH, etag };
    fill(SIZE, 'A');
    fault("denied", "PART", 1, 0);
    assert_int_equal(put_parts("k", SIZE, match, "01W", ENOUGH), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    assert_raw("k", "old");
    assert_int_equal(seen("COMPLETE"), 0);
    assert_int_equal(uploads_left(), 0);
    assert_int_equal(put_parts("k", SIZE, match, "02W", ENOUGH), 0);
    assert_raw("k", bytes);
    fault("error500", "PART", 100000, 0);
    memcpy(etag, res.etag, sizeof(etag));
    assert_int_equal(put_parts("k", SIZE, match, "03W", ENOUGH), -1);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    assert_raw("k", bytes);
    assert_int_equal(uploads_left(), 0);
}

/* B098, bounded. */
static void
upload_lost_again_and_again(void **state)
{
    (void)state;
    fill(SIZE, 'A');
    fault("no_upload", "PART", 100000, 0);
    assert_int_equal(put_parts("k", SIZE, absent, "01W", ENOUGH), -1);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    assert_int_equal(noted.times, 3);
    assert_raw("k", NULL);
    assert_int_equal(uploads_left(), 0);
}

/* The completion's answer is lost and the store silent from then on: nobody can know. The upload is left alone, for its end
 * could take what has landed (B189). */
static void
undecided(void **state)
{
    (void)state;
    fill(SIZE, 'A');
    fault("lost", "COMPLETE", 1, 0);
    fault("silent", "HEAD", 100, 0);
    fault("silent", "COMPLETE", 100, 0);
    store->caps.complete_if_absent = STORE_YES;
    assert_int_equal(put_parts("k", SIZE, absent, "01W", ENOUGH), -1);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    assert_int_not_equal(err.code, ERR_CONFLICT);
    assert_int_equal(seen("ABORT"), 0);
    assert_raw("k", bytes);
    /* The same with time left for what must not be done. */
    control("/_reset");
    control("/_mode?min_part=1");
    fault("error500_after", "COMPLETE", 1, 0);
    fault("denied", "COMPLETE", 1, 0);
    fault("denied", "HEAD", 100, 0);
    assert_int_equal(put_parts("k", SIZE, absent, "01W", ENOUGH), -1);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    assert_int_equal(seen("COMPLETE"), 2);
    assert_int_equal(seen("ABORT"), 0);
    assert_raw("k", bytes);
}

static void
conflicts(void **state)
{
    (void)state;
    fill(SIZE, 'A');
    for (int judged = 0; judged < 2; judged++) {
        control("/_reset");
        control("/_mode?min_part=1");
        store->caps.complete_if_absent = store->caps.complete_if_match =
            judged ? STORE_YES : STORE_NO;
        put_ok("k", "theirs");
        assert_int_equal(put_parts("k", SIZE, absent, "01W", ENOUGH), -1);
        assert_int_equal(err.code, ERR_CONFLICT);
        assert_int_equal(res.outcome, STORE_REFUSED);
        const struct store_cond gone = { STORE_COND_MATCH, "d41d8cd98f00b204e9800998ecf8427e" };
        assert_int_equal(put_parts("none", SIZE, gone, "02W", ENOUGH), -1);
        assert_int_equal(res.outcome, STORE_REFUSED);
        assert_raw("k", "theirs");
        assert_raw("none", NULL);
        assert_int_equal(uploads_left(), 0);
    }
}

/* B201: a store that honours conditions on PUT and ignores them on completion. */
static void
completion_ignores_conditions(void **state)
{
    (void)state;
    fault("ignore_conditions", "COMPLETE", 1, 0);
    assert_int_equal(store_probe(store, &err), 0);
    assert_int_equal(store->caps.put_if_absent, STORE_YES);
    assert_int_equal(store->caps.multipart, STORE_YES);
    assert_int_equal(store->caps.complete_if_absent, STORE_NO);
    assert_int_equal(store->caps.complete_if_match, STORE_NO);
    store->caps.max_put_bytes = store->caps.part_bytes = PART;
    put_ok("k", "theirs");
    fill(SIZE, 'A');
    assert_int_equal(put_parts("k", SIZE, absent, "01W", ENOUGH), -1);
    assert_int_equal(res.outcome, STORE_REFUSED);
    assert_raw("k", "theirs");
    assert_int_equal(put_parts("new", SIZE, absent, "01W", ENOUGH), 0);
    assert_raw("new", bytes);
}

static void
probe_finds_all(void **state)
{
    (void)state;
    assert_int_equal(store_probe(store, &err), 0);
    assert_int_equal(store->caps.multipart, STORE_YES);
    assert_int_equal(store->caps.complete_if_absent, STORE_YES);
    assert_int_equal(store->caps.complete_if_match, STORE_YES);
    assert_int_equal(store->caps.copy_parts, STORE_YES);
    assert_int_equal(store->caps.copy_parts_decodes_twice, STORE_NO);
    assert_int_equal(store->caps.delete_many, STORE_YES);
    assert_int_equal(store->caps.list_uploads, STORE_YES);
    assert_int_equal(uploads_left(), 0);
}

/* B096, B097: R2 wants equal parts, and the last not larger. */
static void
equal_parts(void **state)
{
    (void)state;
    control("/_role?name=equal-parts");
    const size_t sizes[] = { PART + 1, 2 * PART, 2 * PART + 1, 3 * PART - 1 };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%zu", i);
        fill(sizes[i], 'A');
        assert_int_equal(put_parts(key, sizes[i], absent, "01W", ENOUGH), 0);
        assert_raw(key, bytes);
    }
    control("/_role?name=");
}

static int
collect_bytes(void *arg, const void *data, size_t len, struct err *failure)
{
    return buf_append(arg, data, len, failure);
}

/* B087, B089: the ETag of the completion is the object's, whatever it looks like: it is read and replaced by it. */
static void
its_etag_is_the_completions(void **state)
{
    (void)state;
    struct store_object object;
    struct buf got;
    char etag[LIMIT_ETAG];
    fill(SIZE, 'A');
    assert_int_equal(put_parts("k", SIZE, absent, "01W", ENOUGH), 0);
    memcpy(etag, res.etag, sizeof(etag));
    store_object_init(&object);
    assert_int_equal(store_head(store, "k", within(ENOUGH), &object, &err), 0);
    assert_string_equal(object.etag, etag);
    store_object_release(&object);
    buf_init(&got, 1u << 20);
    store_object_init(&object);
    const struct store_get get = { .key = "k",
                                   .if_match = etag,
                                   .sink = collect_bytes,
                                   .sink_arg = &got,
                                   .deadline_ns = within(ENOUGH) };
    assert_int_equal(store_get(store, &get, &object, &err), 0);
    assert_int_equal(got.len, SIZE);
    assert_memory_equal(got.data, bytes, SIZE);
    store_object_release(&object);
    buf_release(&got);
    fill(SIZE, 'B');
    assert_int_equal(
        put_parts("k", SIZE, (struct store_cond){ STORE_COND_MATCH, etag }, "02W", ENOUGH), 0);
    assert_raw("k", bytes);
}

static int
jump_then_note(void *arg, const char *id, struct err *failure)
{
    control("/_mode?skew=1800&min_part=1");
    return note(arg, id, failure);
}

/* B013: half an hour passes between the begin and the parts, and none is sent with the old date for good. */
static void
parts_are_signed_when_they_go(void **state)
{
    (void)state;
    fill(SIZE, 'A');
    const struct store_put req = { .key = "k",
                                   .body = { .mem = bytes, .fd = -1, .size = SIZE },
                                   .deadline_ns = within(ENOUGH),
                                   .on_upload = jump_then_note,
                                   .on_upload_arg = &noted };
    assert_int_equal(on_time(store_put(store, &req, &res, &err)), 0);
    assert_raw("k", bytes);
}

/* ---- uploads that stay ---- */

/* B203: an aborted upload that comes back is aborted again. */
static void
upload_comes_back(void **state)
{
    (void)state;
    fill(SIZE, 'A');
    fault("denied", "PART", 1, 0);
    fault("comes_back", "ABORT", 2, 0);
    assert_int_equal(put_parts("k", SIZE, absent, "01W", 4 * NS_PER_S), -1);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    assert_int_equal(uploads_left(), 0);
    assert_int_equal(seen("ABORT"), 3);
}

/* The id was noted, so that an upload which could not be ended is ended later. */
static void
abort_fails(void **state)
{
    (void)state;
    fill(SIZE, 'A');
    fault("denied", "PART", 1, 0);
    fault("denied", "ABORT", 1, 0);
    assert_int_equal(put_parts("k", SIZE, absent, "01W", ENOUGH), -1);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    assert_non_null(strstr(err.msg, "part "));
    assert_int_equal(uploads_left(), 1);
    fault("comes_back", "ABORT", 4, 0);
    assert_int_equal(store_upload_abort(store, "k", noted.id, within(10 * NS_PER_S), &err), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    assert_int_equal(store_upload_abort(store, "k", noted.id, within(ENOUGH), &err), 0);
    assert_int_equal(uploads_left(), 0);
    assert_int_equal(store_upload_abort(store, "k", noted.id, within(ENOUGH), &err), 0);
}

static void
lists_pages_of_uploads(void **state)
{
    (void)state;
    unsigned count = 0;
    fill(SIZE, 'A');
    fault("denied", "PART", 5, 0);
    fault("denied", "ABORT", 5, 0);
    store->caps.part_bytes = SIZE; /* one part, one failure */
    const char *const keys[] = { "a", "a", "b c+d%41", "ü", "z/\x01" };
    for (size_t i = 0; i < COUNT(keys); i++)
        assert_int_equal(put_parts(keys[i], SIZE, absent, "01W", ENOUGH), -1);
    control("/_mode?min_part=1&page=2");
    assert_int_equal(uploads_left(), 5);
    assert_int_equal(store_uploads(store, "b c+", count_upload, &count, &err), 0);
    assert_int_equal(count, 1);
    fault("no_token", "UPLOADS", 1, 0);
    assert_int_equal(store_uploads(store, "", count_upload, &count, &err), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
}

/* ---- another writer, at a given moment ---- */

struct replacing {
    const char *key, *text;
    struct store *store;
    pthread_t thread;
};

/* While the answer to a request of the call under test is still on its way (`spaces`). */
static void *
replace(void *arg)
{
    const struct replacing *replacing = arg;
    struct err own = ERR_INIT;
    struct store_put_result result;
    clock_sleep_ns(300 * NS_PER_MS);
    int rc = store_put_small(replacing->store, replacing->key, replacing->text,
                             strlen(replacing->text), any, &result, &own);
    return rc == 0 ? NULL : arg;
}

static void
start_replacing(struct replacing *replacing, const char *op)
{
    replacing->store = open_store("test", server_port, false);
    fault("spaces", op, 1, 1000);
    assert_int_equal(pthread_create(&replacing->thread, NULL, replace, replacing), 0);
}

static void
end_replacing(struct replacing *replacing)
{
    void *failed = NULL;
    pthread_join(replacing->thread, &failed);
    store_free(replacing->store);
    assert_null(failed);
}

/* Somebody writes the key while the parts are on their way: judged by the store, or seen right before the completion. */
static void
written_before_the_completion(void **state)
{
    (void)state;
    for (int judged = 0; judged < 2; judged++) {
        struct replacing replacing = { .key = "k", .text = "theirs" };
        (void)end(NULL);
        (void)begin_parts(NULL);
        store->caps.complete_if_absent = judged ? STORE_YES : STORE_NO;
        fill(SIZE, 'A');
        start_replacing(&replacing, "CREATE");
        int result = put_parts("k", SIZE, absent, "01W", 2 * ENOUGH);
        end_replacing(&replacing);
        assert_int_equal(result, -1);
        assert_int_equal(err.code, ERR_CONFLICT);
        assert_int_equal(res.outcome, STORE_REFUSED);
        assert_raw("k", "theirs");
        assert_int_equal(seen("COMPLETE"), judged);
        assert_int_equal(uploads_left(), 0);
    }
}

/* Somebody writes the key right after the completion. Where it judged, ours was there, and theirs came on top of it; where
 * it did not, nobody can tell which was first. */
static void
written_after_the_completion(void **state)
{
    (void)state;
    for (int judged = 0; judged < 2; judged++) {
        struct replacing replacing = { .key = "k", .text = "theirs" };
        (void)end(NULL);
        (void)begin_parts(NULL);
        store->caps.complete_if_absent = judged ? STORE_YES : STORE_NO;
        fill(SIZE, 'A');
        start_replacing(&replacing, "COMPLETE");
        int result = put_parts("k", SIZE, absent, "01W", 2 * ENOUGH);
        end_replacing(&replacing);
        assert_int_equal(result, judged ? 0 : -1);
        assert_int_equal(res.outcome, judged ? STORE_DONE : STORE_UNKNOWN);
        assert_raw("k", "theirs");
    }
}

/* ---- load ---- */

struct worker {
    pthread_t thread;
    int number, failures;
};

static void *
work(void *arg)
{
    struct worker *worker = arg;
    struct err own = ERR_INIT;
    struct store_put_result result;
    char key[16];
    (void)snprintf(key, sizeof(key), "w%d", worker->number);
    const struct store_put req = { .key = key,
                                   .body = { .mem = bytes, .fd = -1, .size = 20 * PART },
                                   .cond = any };
    worker->failures = store_put(store, &req, &result, &own) < 0;
    return NULL;
}

/* B021: nobody fails because the store asks for fewer requests, and it gets fewer. */
static void
slow_down_storm(void **state)
{
    (void)state;
    struct worker workers[4];
    struct store_counters counters;
    fill(20 * PART, 'A');
    fault("slowdown", "PART", 60, 0);
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){ .number = i };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    store_counters(store, &counters);
    assert_int_equal(counters.slow_downs, 60);
    assert_int_equal(counters.upload_calls, 60 + 4 * (1 + 20 + 1));
    assert_int_equal(counters.in_flight, 0);
    assert_in_range(counters.window, 1, 15);
    assert_raw("w3", bytes);
    assert_int_equal(seen("PART"), 140);
}

/* ---- copies ---- */

static int
copy_parts(const char *from, const char *etag, const char *to, int64_t ns)
{
    const struct store_copy req = {
        .from = from, .from_if_match = etag, .to = to, .from_size = SIZE, .deadline_ns = within(ns)
    };
    return on_time(store_copy(store, &req, &res, &err));
}

static void
put_source(char first, char etag[LIMIT_ETAG])
{
    fill(SIZE, first);
    assert_int_equal(put_parts("from", SIZE, any, "01SRC", ENOUGH), 0);
    memcpy(etag, res.etag, LIMIT_ETAG);
}

/* B004, B018, B191: each part keeps its own ETag, an error in a 200 is one, a lost answer is looked for. */
static const struct row copy_rows[] = {
    { "CREATE", "error500", 0 },       { "PARTCOPY", "error500", 0 },
    { "PARTCOPY", "slowdown", 0 },     { "PARTCOPY", "error200", 0 },
    { "PARTCOPY", "spaces", 200 },     { "PARTCOPY", "spaces_error", 200 },
    { "PARTCOPY", "reset_before", 0 }, { "PARTCOPY", "reset_after", 0 },
    { "PARTCOPY", "lost", 0 },         { "PARTCOPY", "error200_after", 0 },
    { "COMPLETE", "error500", 0 },     { "COMPLETE", "error200", 0 },
    { "COMPLETE", "reset_after", 0 },  { "COMPLETE", "lost", 0 },
    { "COMPLETE", "spaces", 200 },     { "COMPLETE", "spaces_error_after", 200 },
    { "COMPLETE", "no_etag", 0 },
};

static void
copies_once(void **state)
{
    (void)state;
    char etag[LIMIT_ETAG];
    for (size_t i = 0; i < COUNT(copy_rows); i++) {
        (void)end(NULL);
        (void)begin_parts(NULL);
        put_source('A', etag);
        fault(copy_rows[i].fault, copy_rows[i].op, 1, copy_rows[i].arg);
        if (copy_parts("from", etag, "to", ENOUGH) < 0)
            fail_msg("%s %s: %s", copy_rows[i].op, copy_rows[i].fault, err.msg);
        assert_int_equal(res.outcome, STORE_DONE);
        assert_raw("to", bytes);
        assert_int_equal(uploads_left(), 0);
    }
}

/* B004: on failure the upload is aborted, and nothing is at the key. */
static void
copy_fails(void **state)
{
    (void)state;
    char etag[LIMIT_ETAG];
    put_source('A', etag);
    fault("denied", "PARTCOPY", 1, 0);
    assert_int_equal(copy_parts("from", etag, "to", ENOUGH), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    assert_raw("to", NULL);
    assert_int_equal(uploads_left(), 0);
    fault("no_upload", "COMPLETE", 1, 0);
    assert_int_equal(copy_parts("from", etag, "to", ENOUGH), -1);
    assert_int_not_equal(res.outcome, STORE_DONE);
    assert_raw("to", NULL);
}

/* One copy goes beyond what the server takes in one, without our having known (B016). */
static void
copy_too_large_for_one(void **state)
{
    (void)state;
    char etag[LIMIT_ETAG];
    put_source('A', etag);
    control("/_mode?min_part=1&max_copy=%d", PART + 1);
    const struct store_copy req = { .from = "from", .to = "to", .deadline_ns = within(ENOUGH) };
    store->caps.max_copy_bytes = 2ull << 30; /* so that nobody asks for the size */
    assert_int_equal(on_time(store_copy(store, &req, &res, &err)), -1);
    assert_int_equal(seen("CREATE"),
                     2); /* the source's, and one for the copy: its part is too large too */
    store->caps.max_copy_bytes = PART;
    assert_int_equal(copy_parts("from", etag, "to", ENOUGH), 0);
    assert_raw("to", bytes);
}

static void
copy_while_replaced(const char *text)
{
    char etag[LIMIT_ETAG];
    struct replacing replacing = { .key = "from", .text = text };
    put_source('A', etag);
    start_replacing(&replacing, "CREATE");
    int result = copy_parts("from", etag, "to", 2 * ENOUGH);
    end_replacing(&replacing);
    assert_int_equal(result, -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(res.outcome, STORE_REFUSED);
    assert_raw("to", NULL);
    assert_int_equal(uploads_left(), 0);
}

static void
source_replaced(void **state)
{
    (void)state;
    copy_while_replaced("shorter"); /* B193 */
    control("/_role?name=weak-copy");
    copy_while_replaced("shorter");
    fill(SIZE, 'K');
    char *same_size = strdup(bytes);
    copy_while_replaced(same_size); /* B194: the store ignores the version that each part names */
    assert_true(seen("PARTCOPY") >= 4);
    assert_int_equal(seen("COMPLETE"), 3); /* of the sources only */
    free(same_size);
    control("/_role?name=");
}

/* ---- batch deletes ---- */

struct deleted {
    unsigned good, bad;
    enum err_code code;
};

static void
note_deleted(void *arg, const char *key, enum err_code code, const char *message)
{
    (void)key;
    (void)message;
    struct deleted *deleted = arg;
    deleted->good += code == 0;
    deleted->bad += code != 0;
    deleted->code = code ? code : deleted->code;
}

static int
delete_three(struct deleted *deleted)
{
    const char *keys[] = { "a", "b&<\r\n>", "c" };
    *deleted = (struct deleted){ 0 };
    for (size_t i = 0; i < COUNT(keys); i++)
        put_ok(keys[i], "bytes");
    return on_time(store_delete_many(store, keys, 3, within(ENOUGH), note_deleted, deleted, &err));
}

static void
deletes_many(void **state)
{
    (void)state;
    static const char *const rows[] = { "none",        "error500", "slowdown", "reset_before",
                                        "reset_after", "lost",     "error200", "error200_after",
                                        "denied",      "html404",  "silent" };
    struct deleted deleted;
    for (size_t i = 0; i < COUNT(rows); i++) {
        control("/_reset");
        fault(rows[i], "DELMANY", 1, 0);
        if (delete_three(&deleted) < 0)
            fail_msg("%s: %s", rows[i], err.msg);
        assert_int_equal(deleted.good, 3);
        assert_raw("a", NULL);
        assert_raw("c", NULL);
        assert_int_equal(uploads_left(), 0);
        /* What is no passing trouble is not tried again: the keys go one by one. */
        bool singly = strcmp(rows[i], "denied") == 0 || strcmp(rows[i], "html404") == 0;
        assert_int_equal(seen("DELETE"), singly ? 3 : 0);
    }
}

static void
delete_many_denies_one(void **state)
{
    (void)state;
    struct deleted deleted;
    fault("key_denied", "DELMANY", 1, 0);
    assert_int_equal(delete_three(&deleted), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_int_equal(deleted.good, 2);
    assert_int_equal(deleted.bad, 1);
    assert_int_equal(deleted.code, ERR_STORE_DENIED);
    assert_int_equal(seen("DELETE"), 0);
}

static void
delete_many_by_itself(void **state)
{
    (void)state;
    struct deleted deleted;
    store->caps.delete_many = STORE_NO;
    assert_int_equal(delete_three(&deleted), 0);
    assert_int_equal(deleted.good, 3);
    assert_int_equal(seen("DELMANY"), 0);
    assert_int_equal(seen("DELETE"), 3);
    /* Keys that XML cannot carry go by themselves. */
    store->caps.delete_many = STORE_YES;
    const char *keys[] = { "x\x01", "plain", "other", "\xff" };
    put_ok(keys[0], "bytes");
    assert_int_equal(
        store_delete_many(store, keys, 4, within(ENOUGH), note_deleted, &deleted, &err), 0);
    assert_int_equal(deleted.good, 3 + 4);
    assert_int_equal(seen("DELMANY"), 1);
    assert_int_equal(seen("DELETE"), 5);
    assert_raw("x%01", NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_parts, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(puts_once),
        TEST(lost_create),
        TEST(part_fails),
        TEST(upload_lost_again_and_again),
        TEST(undecided),
        TEST(conflicts),
        TEST(completion_ignores_conditions),
        TEST(probe_finds_all),
        TEST(equal_parts),
        TEST(parts_are_signed_when_they_go),
        TEST(its_etag_is_the_completions),
        TEST(upload_comes_back),
        TEST(abort_fails),
        TEST(lists_pages_of_uploads),
        TEST(written_before_the_completion),
        TEST(written_after_the_completion),
        TEST(slow_down_storm),
        TEST(copies_once),
        TEST(copy_fails),
        TEST(copy_too_large_for_one),
        TEST(source_replaced),
        TEST(deletes_many),
        TEST(delete_many_denies_one),
        TEST(delete_many_by_itself),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
