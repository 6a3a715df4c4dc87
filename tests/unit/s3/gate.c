/* The gate before and behind a store of our own making: what it lets through, and what it catches. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "s3/store.h"

/* What the stub answers; a test changes one thing. */
static struct {
    unsigned calls;
    int rc;
    enum err_code code;
    enum store_outcome outcome;
    const char *etag;
    uint64_t size;
    uint64_t sent;
    const char *const *keys;
} stub;
static struct store store;
static struct err err;

static int
answer(struct err *out)
{
    stub.calls++;
    return stub.rc == 0 ? 0 : err_set(out, stub.code, "stub");
}

static void
fill(struct store_object *out)
{
    out->size = stub.size;
    (void)snprintf(out->etag, sizeof(out->etag), "%s", stub.etag);
}

static int
stub_head(struct store *self, const char *key, int64_t deadline_ns, struct store_object *out,
          struct err *e)
{
    (void)self;
    (void)key;
    (void)deadline_ns;
    fill(out);
    return answer(e);
}

static int
stub_get(struct store *self, const struct store_get *req, struct store_object *out, struct err *e)
{
    static const char bytes[64];

    (void)self;
    fill(out);
    if (stub.sent > 0 && req->sink(req->sink_arg, bytes, stub.sent, e) < 0)
        return -1;
    return answer(e);
}

static int
stub_put(struct store *self, const struct store_put *req, struct store_put_result *res,
         struct err *e)
{
    (void)self;
    (void)req;
    assert_int_equal(res->outcome, STORE_NOT_DONE);
    res->outcome = stub.outcome;
    (void)snprintf(res->etag, sizeof(res->etag), "%s", stub.etag);
    return answer(e);
}

static int
stub_del(struct store *self, const struct store_delete *req, enum store_outcome *outcome,
         struct err *e)
{
    (void)self;
    (void)req;
    *outcome = stub.outcome;
    return answer(e);
}

static int
stub_copy(struct store *self, const struct store_copy *req, struct store_put_result *res,
          struct err *e)
{
    (void)self;
    (void)req;
    res->outcome = stub.outcome;
    (void)snprintf(res->etag, sizeof(res->etag), "%s", stub.etag);
    return answer(e);
}

static int
stub_list(struct store *self, const struct store_list *req, struct err *e)
{
    (void)self;
    for (const char *const *key = stub.keys; key && *key; key++) {
        size_t len = strlen(*key);
        struct store_list_entry entry = { .key = *key,
                                          .etag = stub.etag,
                                          .is_prefix = len > 1 && (*key)[len - 1] == '/' };
        if (req->fn(req->arg, &entry, e) < 0)
            return -1;
    }
    return answer(e);
}

static int
stub_presign(struct store *self, const struct store_presign *req, struct buf *url, struct err *e)
{
    (void)self;
    (void)req;
    return buf_append_str(url, "http://x", e) < 0 ? -1 : answer(e);
}

static int
stub_probe(struct store *self, struct store_caps *caps, struct err *e)
{
    (void)self;
    caps->put_if_match = STORE_YES;
    return answer(e);
}

static const struct store_ops stub_ops = {
    .name = "stub",
    .head = stub_head,
    .get = stub_get,
    .put = stub_put,
    .del = stub_del,
    .copy = stub_copy,
    .list = stub_list,
    .presign = stub_presign,
    .probe = stub_probe,
};

static int
setup(void **state)
{
    (void)state;
    memset(&stub, 0, sizeof(stub));
    stub.etag = "abc";
    stub.outcome = STORE_DONE;
    store = (struct store){ .ops = &stub_ops, .url = "stub:" };
    store.caps.put_if_absent = store.caps.put_if_match = store.caps.delete_if_match = STORE_YES;
    store.caps.server_side_copy = store.caps.presign = STORE_YES;
    store.caps.max_put_bytes = 100;
    return 0;
}

static int
put(const char *key, struct store_cond cond)
{
    return store_put_small(&store, key, "x", 1, cond, NULL, &err);
}

static const struct store_cond none = { .kind = STORE_COND_NONE };
static const struct store_cond absent = { .kind = STORE_COND_ABSENT };
static const struct store_cond match = { .kind = STORE_COND_MATCH, .etag = "abc" };

static void
passes_on(void **state)
{
    (void)state;
    assert_int_equal(put("k", none), 0);
    assert_int_equal(put("k", absent), 0);
    assert_int_equal(put("k", match), 0);
    assert_int_equal(store_head(&store, "k", 0, NULL, &err), 0);
    assert_int_equal(stub.calls, 4);
}

static void
checks_keys(void **state)
{
    char key[LIMIT_KEY + 2];

    (void)state;
    memset(key, 'k', sizeof(key));
    key[LIMIT_KEY] = '\0';
    assert_int_equal(put(key, none), 0);
    key[LIMIT_KEY] = 'k';
    key[LIMIT_KEY + 1] = '\0';
    assert_int_equal(put(key, none), -1);
    assert_int_equal(err.code, ERR_NAME_TOO_LONG);
    assert_int_equal(put("", none), -1);
    assert_int_equal(err.code, ERR_BAD_NAME);
    assert_int_equal(stub.calls, 1);
}

/* INV-3: what the store was found not to honour is not asked of it. */
static void
refuses_missing_capabilities(void **state)
{
    struct store_delete del = { .key = "k", .if_match = "abc" };
    struct store_copy copy = { .from = "k", .to = "l" };
    struct store_presign sign = { .method = "GET", .key = "k", .expires_s = 1 };
    struct buf url;

    (void)state;
    buf_init(&url, 100);
    store.caps.put_if_absent = store.caps.put_if_match = store.caps.delete_if_match = STORE_NO;
    store.caps.server_side_copy = store.caps.presign = STORE_NO;
    assert_int_equal(put("k", absent), -1);
    assert_int_equal(err.code, ERR_STORE_UNSUPPORTED);
    assert_int_equal(put("k", match), -1);
    assert_int_equal(err.code, ERR_STORE_UNSUPPORTED);
    assert_int_equal(store_delete(&store, &del, NULL, &err), -1);
    assert_int_equal(err.code, ERR_STORE_UNSUPPORTED);
    assert_int_equal(store_copy(&store, &copy, NULL, &err), -1);
    assert_int_equal(err.code, ERR_STORE_UNSUPPORTED);
    assert_int_equal(store_presign(&store, &sign, &url, &err), -1);
    assert_int_equal(err.code, ERR_STORE_UNSUPPORTED);
    assert_int_equal(stub.calls, 0);
    del.if_match = NULL;
    assert_int_equal(store_delete(&store, &del, NULL, &err), 0);
    assert_int_equal(put("k", none), 0);
}

static void
refuses_large_bodies(void **state)
{
    struct store_put req = { .key = "k", .body = { .mem = "", .fd = -1, .size = 101 } };

    (void)state;
    assert_int_equal(store_put(&store, &req, NULL, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_int_equal(stub.calls, 0);
}

static void
refuses_without_time(void **state)
{
    (void)state;
    assert_int_equal(store_head(&store, "k", clock_mono_ns() - 1, NULL, &err), -1);
    assert_int_equal(err.code, ERR_STORE_TIMEOUT);
    assert_int_equal(stub.calls, 0);
}

/* The ETag of a condition may lie in the result that the call fills. */
static void
result_may_hold_the_condition(void **state)
{
    struct store_put_result res = { .etag = "abc" };
    struct store_cond cond = { .kind = STORE_COND_MATCH, .etag = res.etag };

    (void)state;
    stub.etag = "new";
    assert_int_equal(store_put_small(&store, "k", "x", 1, cond, &res, &err), 0);
    assert_string_equal(res.etag, "new");
}

static void
probe_keeps_caps_on_error(void **state)
{
    (void)state;
    store.caps.put_if_match = STORE_NO;
    stub.rc = -1;
    stub.code = ERR_STORE_AWAY;
    assert_int_equal(store_probe(&store, &err), -1);
    assert_int_equal(store.caps.put_if_match, STORE_NO);
    stub.rc = 0;
    assert_int_equal(store_probe(&store, &err), 0);
    assert_int_equal(store.caps.put_if_match, STORE_YES);
}

static int
ignore_entry(void *arg, const struct store_list_entry *entry, struct err *e)
{
    (void)arg;
    (void)entry;
    (void)e;
    return 0;
}

static int
ignore_bytes(void *arg, const void *data, size_t len, struct err *e)
{
    (void)arg;
    (void)data;
    (void)len;
    (void)e;
    return 0;
}

static void
call_head(void)
{
    (void)!store_head(&store, "k", 0, NULL, &err);
}

static void
call_get(void)
{
    struct store_get req = { .key = "k", .off = 2, .len = 4, .sink = ignore_bytes };
    (void)!store_get(&store, &req, NULL, &err);
}

static void
call_put(void)
{
    (void)!put("k", none);
}

static void
call_delete(void)
{
    struct store_delete req = { .key = "k" };
    (void)!store_delete(&store, &req, NULL, &err);
}

static void
call_list(void)
{
    struct store_list req = {
        .prefix = "p/", .delimiter = '/', .start_after = "p/a", .limit = 2, .fn = ignore_entry
    };
    (void)!store_list(&store, &req, &err);
}

/* Whether the gate's assert ends the process. */
static bool
aborts(void (*call)(void))
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        struct rlimit no_core = { 0, 0 };
        setrlimit(RLIMIT_CORE, &no_core);
        (void)signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        call();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void
catches_broken_objects(void **state)
{
    (void)state;
    assert_false(aborts(call_head));
    stub.etag = "";
    assert_true(aborts(call_head));
    stub.etag = "abc";
    stub.size = 10;
    stub.sent = 4;
    assert_false(aborts(call_get));
    stub.sent = 3;
    assert_true(aborts(call_get));
    stub.sent = 5;
    assert_true(aborts(call_get));
    stub.size = 1;
    stub.sent = 0;
    assert_true(aborts(call_get));
}

static void
catches_broken_outcomes(void **state)
{
    (void)state;
    assert_false(aborts(call_put));
    stub.outcome = STORE_UNKNOWN;
    assert_true(aborts(call_put));
    assert_true(aborts(call_delete));
    stub.rc = -1;
    stub.code = ERR_STORE_TIMEOUT;
    assert_false(aborts(call_put));
    stub.outcome = STORE_DONE;
    assert_true(aborts(call_put));
    stub.code = ERR_CONFLICT;
    stub.outcome = STORE_UNKNOWN;
    assert_true(aborts(call_delete));
    stub.outcome = STORE_REFUSED;
    assert_false(aborts(call_delete));
    stub.rc = 0;
    stub.outcome = STORE_DONE;
    stub.etag = "";
    assert_true(aborts(call_put));
}

static void
catches_broken_listings(void **state)
{
    static const struct {
        const char *keys[4];
        bool bad;
    } rows[] = {
        { { "p/b", "p/c/" }, false },
        { { "p/c/", "p/d" }, false },
        { { "q" }, true },                 /* outside the prefix */
        { { "p" }, true },                 /* likewise */
        { { "p/c", "p/b" }, true },        /* falling */
        { { "p/b", "p/b" }, true },        /* twice */
        { { "p/a" }, true },               /* not after start_after */
        { { "p/b/c" }, true },             /* not rolled up */
        { { "p/b/c/" }, true },            /* rolled up too deep */
        { { "p/b", "p/c", "p/d" }, true }, /* beyond the limit */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stub.keys = rows[i].keys;
        assert_int_equal(aborts(call_list), rows[i].bad);
    }
}

/* ---- many deletes, and uploads ---- */

struct told {
    unsigned good, bad;
    char last[64];
};

static void
tell(void *arg, const char *key, enum err_code code, const char *message)
{
    struct told *told = arg;
    (void)message;
    told->good += code == 0;
    told->bad += code != 0;
    (void)snprintf(told->last, sizeof(told->last), "%s", key);
}

/* A store without the call gets one DELETE for each key, and each is told of. */
static void
deletes_one_by_one(void **state)
{
    const char *keys[] = { "a", "b", "c" };
    struct told told = { 0 };

    (void)state;
    assert_int_equal(store_delete_many(&store, keys, 3, 0, tell, &told, &err), 0);
    assert_int_equal(stub.calls, 3);
    assert_int_equal(told.good, 3);
    assert_string_equal(told.last, "c");
    stub.rc = -1;
    stub.code = ERR_INTERNAL; /* 0, which would say deleted */
    stub.outcome = STORE_NOT_DONE;
    assert_int_equal(store_delete_many(&store, keys, 3, 0, tell, &told, &err), -1);
    assert_int_equal(told.bad, 3);
    assert_int_equal(store_delete_many(&store, keys, 3, 0, NULL, NULL, &err), -1);
    assert_int_equal(store_delete_many(&store, NULL, 0, 0, NULL, NULL, &err), 0);
    stub.calls = 0;
    keys[1] = "";
    assert_int_equal(store_delete_many(&store, keys, 3, 0, tell, &told, &err), -1);
    assert_int_equal(err.code, ERR_BAD_NAME);
    assert_int_equal(stub.calls, 0);
}

static int
no_upload(void *arg, const struct store_upload *upload, struct err *e)
{
    (void)arg;
    (void)upload;
    (void)e;
    return 0;
}

static const char *stub_upload_key;

static int
stub_uploads(struct store *self, const char *prefix, store_uploads_fn *fn, void *arg, struct err *e)
{
    const struct store_upload upload = { .key = stub_upload_key, .upload_id = "id" };

    (void)self;
    (void)prefix;
    if (answer(e) < 0)
        return -1;
    return fn(arg, &upload, e);
}

static int
stub_abort(struct store *self, const char *key, const char *id, int64_t deadline_ns, struct err *e)
{
    (void)self;
    (void)key;
    (void)id;
    (void)deadline_ns;
    return answer(e);
}

static void
checks_uploads(void **state)
{
    struct store_ops ops = stub_ops;

    (void)state;
    assert_int_equal(store_uploads(&store, "", no_upload, NULL, &err), -1);
    assert_int_equal(err.code, ERR_STORE_UNSUPPORTED);
    assert_int_equal(store_upload_abort(&store, "k", "id", 0, &err), -1);
    assert_int_equal(err.code, ERR_STORE_UNSUPPORTED);
    ops.uploads = stub_uploads;
    ops.upload_abort = stub_abort;
    store.ops = &ops;
    store.caps.multipart = store.caps.list_uploads = STORE_YES;
    stub_upload_key = "p/k";
    assert_int_equal(store_uploads(&store, "p/", no_upload, NULL, &err), 0);
    assert_int_equal(store_upload_abort(&store, "k", "id", 0, &err), 0);
    assert_int_equal(stub.calls, 2);
    assert_int_equal(store_upload_abort(&store, "k", "", 0, &err), -1);
    assert_int_equal(store_upload_abort(&store, "k", "a\nb", 0, &err), -1);
    assert_int_equal(store_upload_abort(&store, "", "id", 0, &err), -1);
    assert_int_equal(store_upload_abort(&store, "k", "id", 1, &err), -1);
    assert_int_equal(err.code, ERR_STORE_TIMEOUT);
    assert_int_equal(stub.calls, 2);
    store.caps.list_uploads = STORE_NO;
    assert_int_equal(store_uploads(&store, "p/", no_upload, NULL, &err), -1);
}

/* What has no parts takes one PUT's worth; else as much as a file can hold. */
static void
parts_lift_the_limit(void **state)
{
    struct store_put req = { .key = "k", .body = { .mem = "", .fd = -1, .size = 101 } };

    (void)state;
    assert_int_equal(store_put(&store, &req, NULL, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    store.caps.multipart = STORE_YES;
    assert_int_equal(store_put(&store, &req, NULL, &err), 0);
    req.body.size = LIMIT_FILE_SIZE + 1;
    assert_int_equal(store_put(&store, &req, NULL, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(passes_on, setup),
        cmocka_unit_test_setup(checks_keys, setup),
        cmocka_unit_test_setup(refuses_missing_capabilities, setup),
        cmocka_unit_test_setup(refuses_large_bodies, setup),
        cmocka_unit_test_setup(refuses_without_time, setup),
        cmocka_unit_test_setup(result_may_hold_the_condition, setup),
        cmocka_unit_test_setup(probe_keeps_caps_on_error, setup),
        cmocka_unit_test_setup(deletes_one_by_one, setup),
        cmocka_unit_test_setup(checks_uploads, setup),
        cmocka_unit_test_setup(parts_lift_the_limit, setup),
#ifndef NDEBUG
        cmocka_unit_test_setup(catches_broken_objects, setup),
        cmocka_unit_test_setup(catches_broken_outcomes, setup),
        cmocka_unit_test_setup(catches_broken_listings, setup),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
