#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ini),
        cmocka_unit_test(config_form),
        cmocka_unit_test(unusable),
        cmocka_unit_test(sources_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
