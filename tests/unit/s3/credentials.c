#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "s3/credentials.h"

static const char sample[] = "# comment\n"
                             "[default]\n"
                             "aws_access_key_id = AKIDDEFAULT\n"
                             "aws_secret_access_key=s/e+c=ret\r\n"
                             "s3 =\n"
                             "    aws_access_key_id = NESTED\n"
                             "[work]\n"
                             "  # indented comment\n"
                             "aws_access_key_id=AKIDWORK\n"
                             "aws_secret_access_key = workSecret\n"
                             "aws_session_token = tok/en==\n"
                             "[half]\n"
                             "aws_access_key_id = X";

static void
ini(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct s3_credentials out;
    size_t len = strlen(sample);
    assert_int_equal(credentials_from_ini(sample, len, "default", false, &out, &err), 1);
    assert_string_equal(out.access_key, "AKIDDEFAULT");
    assert_string_equal(out.secret_key, "s/e+c=ret");
    assert_string_equal(out.session_token, "");
    assert_int_equal(credentials_from_ini(sample, len, "work", false, &out, &err), 1);
    assert_string_equal(out.access_key, "AKIDWORK");
    assert_string_equal(out.session_token, "tok/en==");
    assert_int_equal(credentials_from_ini(sample, len, "half", false, &out, &err), 0);
    assert_int_equal(credentials_from_ini(sample, len, "none", false, &out, &err), 0);
    assert_int_equal(credentials_from_ini("", 0, "default", false, &out, &err), 0);
}

static void
config_form(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct s3_credentials out;
    const char *text = "[work]\naws_access_key_id=NO\naws_secret_access_key=NO\n"
                       "[profile work]\naws_access_key_id=YES\naws_secret_access_key=k\n"
                       "[default]\naws_access_key_id=D\naws_secret_access_key=k\n";
    assert_int_equal(credentials_from_ini(text, strlen(text), "work", true, &out, &err), 1);
    assert_string_equal(out.access_key, "YES");
    assert_int_equal(credentials_from_ini(text, strlen(text), "default", true, &out, &err), 1);
    assert_string_equal(out.access_key, "D");
}

static void
unusable(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct s3_credentials out;
    const char *text = "[default]\naws_access_key_id=A B\naws_secret_access_key=k\n";
    assert_int_equal(credentials_from_ini(text, strlen(text), "default", false, &out, &err), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    char longer[600] = "[default]\naws_access_key_id=";
    memset(longer + strlen(longer), 'A', 300);
    assert_int_equal(credentials_from_ini(longer, strlen(longer), "default", false, &out, &err),
                     -1);
}

static void
clear_env(void)
{
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("AWS_SESSION_TOKEN");
    unsetenv("AWS_PROFILE");
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    unsetenv("AWS_CONFIG_FILE");
    setenv("HOME", "/nonexistent-home", 1);
}

static void
sources_in_order(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct s3_credentials out;
    clear_env();
    assert_int_equal(credentials_default(NULL, &out, &err), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_non_null(strstr(err.msg, "AWS_ACCESS_KEY_ID"));

    char path[] = "/tmp/holdfast-credentials-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, sample, strlen(sample)), strlen(sample));
    close(fd);
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    assert_int_equal(credentials_default(NULL, &out, &err), 0);
    assert_string_equal(out.access_key, "AKIDDEFAULT");
    setenv("AWS_PROFILE", "work", 1);
    assert_int_equal(credentials_default(NULL, &out, &err), 0);
    assert_string_equal(out.access_key, "AKIDWORK");

    setenv("AWS_ACCESS_KEY_ID", "AKIDENV", 1);
    assert_int_equal(credentials_default(NULL, &out, &err), 0);
    assert_string_equal(out.access_key, "AKIDWORK"); /* half a pair is none */
    setenv("AWS_SECRET_ACCESS_KEY", "envSecret", 1);
    setenv("AWS_SESSION_TOKEN", "envToken", 1);
    assert_int_equal(credentials_default(NULL, &out, &err), 0);
    assert_string_equal(out.access_key, "AKIDENV");
    assert_string_equal(out.session_token, "envToken");
    unlink(path);
    clear_env();
}

/* ---- keys that end ---- */

/* Both clocks may be put forward; time goes on in them. */
static _Atomic int64_t wall_ahead, mono_ahead;

static int64_t
real(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}
static int64_t
moved_wall(void)
{
    return real(CLOCK_REALTIME) + atomic_load(&wall_ahead);
}
static int64_t
moved_mono(void)
{
    return real(CLOCK_MONOTONIC) + atomic_load(&mono_ahead);
}
static int64_t
plain_boot(void)
{
    return real(CLOCK_BOOTTIME);
}
static void
short_sleep(int64_t ns)
{
    usleep((useconds_t)(ns / 1000));
}

static void
ahead(int64_t seconds)
{
    atomic_fetch_add(&wall_ahead, seconds * NS_PER_S);
    atomic_fetch_add(&mono_ahead, seconds * NS_PER_S);
}

/* A credential_process: numbered keys that live for so many seconds. */
struct giver {
    atomic_int runs;
    atomic_int life_s; /* 0: they do not end */
    atomic_bool fails, stalls, same, cancelled;
};

static int
give(void *arg, const atomic_bool *cancel, struct buf *out, struct err *err)
{
    struct giver *giver = arg;
    char end[TIME_RFC3339_SIZE];
    int run = atomic_fetch_add(&giver->runs, 1) + 1;
    while (atomic_load(&giver->stalls) && !atomic_load(cancel))
        usleep(1000);
    if (atomic_load(cancel)) {
        atomic_store(&giver->cancelled, true);
        return err_set(err, ERR_CANCELED, "cancelled");
    }
    if (atomic_load(&giver->fails))
        return err_set(err, ERR_STORE_DENIED, "the session is over, log in again");
    time_rfc3339(clock_wall_ns() + atomic_load(&giver->life_s) * NS_PER_S, end, sizeof(end));
    return buf_appendf(
        out, err, "{\"Version\":1,\"AccessKeyId\":\"KEY%d\",\"SecretAccessKey\":\"s\"%s%s%s}",
        atomic_load(&giver->same) ? 0 : run, giver->life_s ? ",\"Expiration\":\"" : "",
        giver->life_s ? end : "", giver->life_s ? "\"" : "");
}

static char process_file[] = "/tmp/holdfast-process-XXXXXX";

static int
with_process(void **state)
{
    static const struct clock_table table = { moved_wall, moved_mono, plain_boot, short_sleep };
    static const char text[] = "[default]\ncredential_process = /never/run/by/this/test\n";
    (void)state;
    clear_env();
    (void)snprintf(process_file, sizeof(process_file), "/tmp/holdfast-process-XXXXXX");
    int fd = mkstemp(process_file);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        return -1;
    close(fd);
    setenv("AWS_CONFIG_FILE", process_file, 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    clock_replace(&table);
    return 0;
}

static int
without_process(void **state)
{
    (void)state;
    clock_replace(NULL);
    unlink(process_file);
    clear_env();
    return 0;
}

static const char *
key_now(struct credentials *c, struct err *err)
{
    static struct s3_credentials out;
    uint64_t generation;
    if (credentials_get(c, clock_wall_ns(), clock_mono_ns() + 10 * NS_PER_S, &out, &generation,
                        err) < 0)
        return NULL;
    return out.access_key;
}

static bool
comes(struct credentials *c, const char *key)
{
    for (int i = 0; i < 5000; i++) {
        struct err err = ERR_INIT;
        const char *now = key_now(c, &err);
        if (now && strcmp(now, key) == 0)
            return true;
        usleep(1000);
    }
    return false;
}

/* B107: fetched anew before they end, by one thread, while the others go on with the old ones. */
static void
refreshed_before_the_end(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct giver giver = { .life_s = 30 };
    struct credentials *c = credentials_open(give, &giver, &err);
    assert_non_null(c);
    assert_string_equal(key_now(c, &err), "KEY1");
    ahead(15);
    assert_string_equal(key_now(c, &err), "KEY1");
    assert_int_equal(giver.runs, 1);
    atomic_store(&giver.stalls, true);
    ahead(8); /* 7 of 30 seconds left */
    int64_t begun = real(CLOCK_MONOTONIC);
    for (int i = 0; i < 20; i++)
        assert_string_equal(key_now(c, &err), "KEY1");
    assert_true(real(CLOCK_MONOTONIC) - begun < 2 * NS_PER_S);
    atomic_store(&giver.stalls, false);
    assert_true(comes(c, "KEY2"));
    assert_int_equal(giver.runs, 2);
    credentials_close(c);
}

/* B106: when nothing new comes the old ones serve to their end, then the reason is told, and the next good ones are used. */
static void
failing_process(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct giver giver = { .life_s = 30 };
    struct credentials *c = credentials_open(give, &giver, &err);
    assert_string_equal(key_now(c, &err), "KEY1");
    atomic_store(&giver.fails, true);
    ahead(25);
    assert_string_equal(key_now(c, &err), "KEY1");
    ahead(10);
    assert_null(key_now(c, &err));
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_non_null(strstr(err.msg, "log in again"));
    /* Who asks again at once does not start it again and again. */
    int runs = giver.runs;
    for (int i = 0; i < 20; i++)
        assert_null(key_now(c, &err));
    assert_true(giver.runs <= runs + 1);
    atomic_store(&giver.fails, false);
    ahead(31); /* past the longest pause */
    err = (struct err)ERR_INIT;
    assert_non_null(key_now(c, &err));
    credentials_close(c);
}

static void
refused_keys_are_fetched_anew(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct giver giver = { .same = true };
    struct s3_credentials out;
    uint64_t generation;
    int64_t later = clock_mono_ns() + 10 * NS_PER_S;
    struct credentials *c = credentials_open(give, &giver, &err);
    assert_int_equal(credentials_get(c, clock_wall_ns(), later, &out, &generation, &err), 0);
    ahead(100000); /* without an end they are kept */
    assert_non_null(key_now(c, &err));
    assert_int_equal(giver.runs, 1);
    later = clock_mono_ns() + 10 * NS_PER_S;
    assert_false(credentials_renew(c, generation, later)); /* the same ones came */
    assert_int_equal(giver.runs, 2);
    atomic_store(&giver.same, false);
    assert_false(credentials_renew(c, generation, later)); /* not again so soon */
    assert_int_equal(giver.runs, 2);
    ahead(6);
    later = clock_mono_ns() + 10 * NS_PER_S;
    assert_true(credentials_renew(c, generation, later));
    assert_int_equal(giver.runs, 3);
    /* Who is refused the newest ones too makes a fetch after longer and longer pauses, up to a minute. */
    for (int i = 0; i < 600; i += 5) {
        ahead(5);
        later = clock_mono_ns() + 10 * NS_PER_S;
        assert_int_equal(credentials_get(c, clock_wall_ns(), later, &out, &generation, &err), 0);
        (void)credentials_renew(c, generation, later);
    }
    assert_in_range(giver.runs, 3 + 8, 3 + 13);
    int runs = giver.runs;
    assert_true(credentials_renew(c, 1, later)); /* another thread's refusal of the old ones */
    assert_int_equal(giver.runs, runs);
    credentials_close(c);
}

static void
expired_and_broken_answers(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct giver giver = { .life_s = -5 };
    struct credentials *c = credentials_open(give, &giver, &err);
    assert_null(key_now(c, &err));
    assert_non_null(strstr(err.msg, "expired already"));
    credentials_close(c);
    c = credentials_open(NULL, NULL, &err);
    assert_null(key_now(c, &err));
    assert_non_null(strstr(err.msg, "credential_process"));
    credentials_close(c);
}

static void
closing_cancels(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct giver giver = { .stalls = true };
    struct s3_credentials out;
    uint64_t generation;
    struct credentials *c = credentials_open(give, &giver, &err);
    assert_int_equal(credentials_get(c, clock_wall_ns(), real(CLOCK_MONOTONIC) + NS_PER_S / 5, &out,
                                     &generation, &err),
                     -1);
    assert_int_equal(err.code, ERR_STORE_TIMEOUT);
    credentials_close(c);
    assert_true(giver.cancelled);
}

/* ---- files that change ---- */

static void
put_file(const char *path, const char *key)
{
    char fresh[128];
    (void)snprintf(fresh, sizeof(fresh), "%s.new", path);
    FILE *file = fopen(fresh, "we");
    assert_non_null(file);
    (void)fprintf(file, "[default]\naws_access_key_id=%s\naws_secret_access_key=s\n", key);
    (void)fclose(file);
    assert_int_equal(rename(fresh, path), 0);
}

static void
rotated_file(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char path[] = "/tmp/holdfast-rotated-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    put_file(path, "OLD");
    struct credentials *c = credentials_open(NULL, NULL, &err);
    assert_string_equal(key_now(c, &err), "OLD");
    put_file(path, "NEW");
    ahead(2);
    assert_string_equal(key_now(c, &err), "NEW");
    /* A refusal looks at once. */
    struct s3_credentials out;
    uint64_t generation;
    int64_t later = clock_mono_ns() + NS_PER_S;
    assert_int_equal(credentials_get(c, clock_wall_ns(), later, &out, &generation, &err), 0);
    put_file(path, "NEWER");
    assert_true(credentials_renew(c, generation, later));
    assert_string_equal(key_now(c, &err), "NEWER");
    /* Half written or spoilt: the last good ones stay. */
    put_file(path, "A B");
    ahead(2);
    assert_string_equal(key_now(c, &err), "NEWER");
    credentials_close(c);
    unlink(path);
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
}

static void
nowhere_names_the_places(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    setenv("AWS_CONFIG_FILE", "/nonexistent/config", 1);
    setenv("AWS_PROFILE", "work", 1);
    struct credentials *c = credentials_open(NULL, NULL, &err);
    assert_null(key_now(c, &err));
    assert_int_equal(err.code, ERR_STORE_DENIED);
    static const char *const words[] = {
        "AWS_ACCESS_KEY_ID",   "'work'",
        "/nonexistent/config", "/nonexistent-home/.aws/credentials",
        "container",           "instance endpoint is switched off"
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        assert_non_null(strstr(err.msg, words[i]));
    credentials_close(c);
}

static void
share_of_a_life(void **state)
{
    (void)state;
    assert_true(credentials_refresh_ahead(30 * NS_PER_S) == 10 * NS_PER_S);
    assert_true(credentials_refresh_ahead(900 * NS_PER_S) == 300 * NS_PER_S);
    assert_true(credentials_refresh_ahead(12 * 3600 * NS_PER_S) == 300 * NS_PER_S);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ini),
        cmocka_unit_test(config_form),
        cmocka_unit_test(unusable),
        cmocka_unit_test(sources_in_order),
        cmocka_unit_test_setup_teardown(refreshed_before_the_end, with_process, without_process),
        cmocka_unit_test_setup_teardown(failing_process, with_process, without_process),
        cmocka_unit_test_setup_teardown(refused_keys_are_fetched_anew, with_process,
                                        without_process),
        cmocka_unit_test_setup_teardown(expired_and_broken_answers, with_process, without_process),
        cmocka_unit_test_setup_teardown(closing_cancels, with_process, without_process),
        cmocka_unit_test_setup_teardown(rotated_file, with_process, without_process),
        cmocka_unit_test_setup_teardown(nowhere_names_the_places, with_process, without_process),
        cmocka_unit_test(share_of_a_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
