#include "support/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/config.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/pool.h"
#include "base/scope.h"
#include "base/sys.h"
#include "tests/support/tmp.h"

/*
 * Every function of base that allocates, with each of its allocations failing in turn: it must say
 * so, change nothing that it promised to keep, and leak nothing (which the asan build checks when
 * the program ends). base/json.c brings jansson's allocations here too.
 */

/* `run` answers 0, or -1 and an error, and makes the same allocations each time. */
static void
fail_each(int (*run)(struct err *err))
{
    struct err err = ERR_INIT;
    alloc_reset();
    assert_int_equal(run(&err), 0);
    unsigned long total = alloc_count();
    assert_true(total > 0);
    for (unsigned long n = 1; n <= total; n++) {
        err = (struct err)ERR_INIT;
        alloc_fail_at(n);
        int rc = run(&err);
        alloc_reset();
        if (rc != -1 || err.code != ERR_NOMEM)
            fail_msg("allocation %lu of %lu: answered %d, '%s'", n, total, rc, err.msg);
    }
}

#define BIG 3000

static int
run_buf(struct err *err)
{
    static char big[BIG];
    scope_buf buf;
    buf_init(&buf, 10000);
    if (buf_append_str(&buf, "first", err) < 0)
        return -1;
    if (buf_append(&buf, big, BIG, err) < 0 || buf_appendf(&buf, err, "%*d", BIG, 7) < 0) {
        assert_memory_equal(buf.data, "first", 5); /* unchanged */
        assert_true(buf.len == 5 || buf.len == 5 + BIG);
        return -1;
    }
    scope_buf other;
    buf_init(&other, 10);
    scope_free char *empty = buf_steal(&other);
    return empty ? 0 : err_nomem(err);
}

static int
encode(int (*fn)(const void *, size_t, struct buf *, struct err *), struct err *err)
{
    static const char bytes[BIG];
    scope_buf buf;
    buf_init(&buf, 20000);
    if (buf_append_str(&buf, "first", err) < 0)
        return -1;
    if (fn(bytes, BIG, &buf, err) == 0)
        return 0;
    assert_string_equal(buf.data, "first");
    return -1;
}

static int
percent(const void *data, size_t len, struct buf *out, struct err *err)
{
    return percent_encode(data, len, true, out, err);
}

static int
unpercent(const void *data, size_t len, struct buf *out, struct err *err)
{
    (void)data;
    char text[BIG];
    memset(text, 'x', len);
    return percent_decode(text, len, out, err);
}

static int
unbase64(const void *data, size_t len, struct buf *out, struct err *err)
{
    (void)data;
    char text[BIG];
    memset(text, 'x', len);
    return base64_decode(text, len, out, err);
}

static int
run_base64(struct err *err)
{
    return encode(base64_encode, err);
}

static int
run_unbase64(struct err *err)
{
    return encode(unbase64, err);
}

static int
run_percent(struct err *err)
{
    return encode(percent, err);
}

static int
run_unpercent(struct err *err)
{
    return encode(unpercent, err);
}

static int
run_printable(struct err *err)
{
    return encode(printable_append, err);
}

static const char document[] = "{\"name\":\"a rather long text so that the lexer grows\",\"list\":"
                               "[1,2,3,4,5,6,7,8,9,10,11,12,13],\"deep\":{\"x\":{\"y\":null}}}";

static int
run_json(struct err *err)
{
    scope_json *value = json_parse(document, sizeof(document) - 1, err);
    if (!value)
        return -1;
    scope_buf buf;
    buf_init(&buf, 1000);
    if (json_print(value, &buf, err) < 0) {
        assert_int_equal(buf.len, 0);
        return -1;
    }
    assert_string_equal(buf.data, document);
    scope_json *bytes = json_bytes("a\xff"
                                   "b",
                                   3);
    return bytes ? 0 : err_nomem(err);
}

static int
run_pool(struct err *err)
{
    struct pool *pool = pool_new("fault", 2, 4, err);
    if (!pool)
        return -1;
    pool_free(pool);
    return 0;
}

static int
run_hash(struct err *err)
{
    struct hash *hash = hash_new(HASH_MD5, err);
    if (!hash)
        return -1;
    hash_free(hash);
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    scope_fd int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return hash_fd(fd, 0, 1000, sha, md, err);
}

static const struct config_def defs[] = {
    { "", "name", "HFT_FAULT_NAME", "name", CONFIG_STR, "default", false, "" },
    { "store", "secret", NULL, "secret", CONFIG_STR, NULL, true, "" },
    { "cache", "size", NULL, "size", CONFIG_SIZE, "1G", false, "" },
    { 0 },
};

static int
fill_config(struct config *config, struct err *err)
{
    static const char text[] = "name = file\n[store]\nsecret = hunter2\n[cache]\nsize = 2G\n";
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs */
    setenv("HFT_FAULT_NAME", "environment", 1);
    if (config_load_text(config, "text", text, sizeof(text) - 1, err) < 0)
        return -1;
    assert_string_equal(config_str(config, "name"), "file");
    if (config_load_env(config, err) < 0) {
        assert_string_equal(config_str(config, "name"), "file");
        return -1;
    }
    if (config_set_flag(config, "size", "3G", err) < 0) {
        assert_int_equal(config_uint(config, "cache.size"), 2147483648);
        return -1;
    }
    /* an unknown option needs memory to find the nearest */
    struct err unknown = ERR_INIT;
    assert_int_equal(config_set_flag(config, "sizes", "3G", &unknown), -1);
    if (unknown.code == ERR_USAGE)
        return 0;
    *err = unknown;
    return -1;
}

static int
run_config(struct err *err)
{
    struct config *config = config_new(defs, err);
    if (!config)
        return -1;
    int rc = fill_config(config, err);
    config_free(config);
    return rc;
}

static void
test_config_show_says_so(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    alloc_reset();
    struct config *config = config_new(defs, &err);
    assert_non_null(config);
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    alloc_fail_at(1);
    config_show(config, out);
    alloc_reset();
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "name: out of memory\n"
                              "store.secret = (unset)  # default\n"
                              "cache.size = 1G  # default\n");
    free(text);
    config_free(config);
}

static int
run_sys(struct err *err)
{
    char folder[96];
    (void)snprintf(folder, sizeof(folder), "%s/holdfast-alloc-XXXXXX", tmp_base());
    assert_non_null(mkdtemp(folder));
    scope_free char *text = NULL;
    size_t len;
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    int rc = sys_make_dirs(folder, 0700, err);
    if (rc == 0)
        rc = sys_replace_file(dir, "file", "text", 4, 0600, err);
    if (rc == 0)
        rc = sys_read_file(dir, "file", 4, &text, &len, err);
    (void)unlinkat(dir, "file", 0);
    close(dir);
    assert_int_equal(rmdir(folder), 0); /* no temporary file stays */
    return rc;
}

/* Errors and log lines are made without memory, or nobody would learn that there is none. */
static void
test_errors_and_logs_need_none(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(null >= 0);
    log_redirect(null);
    alloc_reset();
    err_nomem(&err);
    err_wrap(&err, "context %d", 1);
    err_sys(&err, 5, "read '%s'", "x");
    log_error(base, "%s", err.msg);
    assert_int_equal(log_configure("info,s3=debug", &err), 0);
    assert_int_equal(alloc_count(), 0);
    log_redirect(STDERR_FILENO);
    close(null);
}

#define EACH(run)                        \
    static void test_##run(void **state) \
    {                                    \
        (void)state;                     \
        fail_each(run);                  \
    }
EACH(run_buf)
EACH(run_base64)
EACH(run_unbase64)
EACH(run_percent)
EACH(run_unpercent)
EACH(run_printable)
EACH(run_json)
EACH(run_pool)
EACH(run_hash)
EACH(run_config)
EACH(run_sys)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_buf),
        cmocka_unit_test(test_run_base64),
        cmocka_unit_test(test_run_unbase64),
        cmocka_unit_test(test_run_percent),
        cmocka_unit_test(test_run_unpercent),
        cmocka_unit_test(test_run_printable),
        cmocka_unit_test(test_run_json),
        cmocka_unit_test(test_run_pool),
        cmocka_unit_test(test_run_hash),
        cmocka_unit_test(test_run_config),
        cmocka_unit_test(test_run_sys),
        cmocka_unit_test(test_config_show_says_so),
        cmocka_unit_test(test_errors_and_logs_need_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
