#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "s3/credentials_parse.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The example of docs.aws.amazon.com/sdkref, "Process credential provider". */
static void
process_document(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct s3_credentials out;
    const char *text = "{\"Version\": 1, \"AccessKeyId\": \"an AWS access key\"}";
    assert_int_equal(credentials_from_json(text, strlen(text), CREDENTIALS_OF_PROCESS, &out, &err),
                     -1); /* blanks cannot go into a header */
    text =
        "{\n  \"Version\": 1,\n  \"AccessKeyId\": \"AKIAIOSFODNN7EXAMPLE\",\n"
        "  \"SecretAccessKey\": \"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\",\n"
        "  \"SessionToken\": \"AQoDYXdzEJr==\",\n  \"Expiration\": \"2026-07-01T10:00:00Z\"\n}\n";
    assert_int_equal(credentials_from_json(text, strlen(text), CREDENTIALS_OF_PROCESS, &out, &err),
                     0);
    assert_string_equal(out.access_key, "AKIAIOSFODNN7EXAMPLE");
    assert_string_equal(out.secret_key, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
    assert_string_equal(out.session_token, "AQoDYXdzEJr==");
    assert_true(out.expires_wall_ns == 1782900000ll * 1000000000ll); /* date -u -d ... +%s */
}

/* The example of the "IAM roles for Amazon EC2" page; what ECS hands out has no Code. */
static void
endpoint_document(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct s3_credentials out;
    const char *text =
        "{\"Code\":\"Success\",\"LastUpdated\":\"2012-04-26T16:39:16Z\",\"Type\":\"AWS-HMAC\","
        "\"AccessKeyId\":\"ASIAIOSFODNN7EXAMPLE\",\"SecretAccessKey\":\"wJalrXUtnFEMI\","
        "\"Token\":\"token\",\"Expiration\":\"2017-05-17T15:09:54Z\"}";
    assert_int_equal(credentials_from_json(text, strlen(text), CREDENTIALS_OF_ENDPOINT, &out, &err),
                     0);
    assert_string_equal(out.session_token, "token");
    text = "{\"RoleArn\":\"x\",\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"Token\":\"T\"}";
    assert_int_equal(credentials_from_json(text, strlen(text), CREDENTIALS_OF_ENDPOINT, &out, &err),
                     0);
    assert_true(out.expires_wall_ns == 0);
}

static void
bad_documents(void **state)
{
    (void)state;
    static const struct {
        enum credentials_document kind;
        const char *text, *words;
    } rows[] = {
        { CREDENTIALS_OF_PROCESS, "", "JSON" },
        { CREDENTIALS_OF_PROCESS, "[]", "JSON" },
        { CREDENTIALS_OF_PROCESS, "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"topSecret\"}",
          "Version 1" },
        { CREDENTIALS_OF_PROCESS,
          "{\"Version\":2,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"topSecret\"}", "Version 1" },
        { CREDENTIALS_OF_PROCESS, "{\"Version\":1,\"AccessKeyId\":\"A\"}", "SecretAccessKey" },
        { CREDENTIALS_OF_PROCESS,
          "{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"topSecret\\n\"}",
          "SecretAccessKey" },
        { CREDENTIALS_OF_PROCESS,
          "{\"Version\":1,\"AccessKeyId\":7,\"SecretAccessKey\":\"topSecret\"}", "AccessKeyId" },
        { CREDENTIALS_OF_PROCESS,
          "{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"topSecret\","
          "\"Expiration\":\"tomorrow\"}",
          "Expiration" },
        { CREDENTIALS_OF_PROCESS, "{\"SecretAccessKey\":\"topSecret\" oops}", "JSON" },
        { CREDENTIALS_OF_ENDPOINT, "{\"Code\":\"AssumeRoleUnauthorizedAccess\"}",
          "AssumeRoleUnauthorizedAccess" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = ERR_INIT;
        struct s3_credentials out;
        assert_int_equal(
            credentials_from_json(rows[i].text, strlen(rows[i].text), rows[i].kind, &out, &err),
            -1);
        assert_int_equal(err.code, ERR_STORE_DENIED);
        assert_non_null(strstr(err.msg, rows[i].words));
        assert_null(strstr(err.msg, "topSecret"));
        assert_string_equal(out.secret_key, "");
    }
}

/* What Python's shlex.split(), which AWS's own client uses, makes of the same text. */
static void
words(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *word[5];
    } rows[] = {
        { "/opt/bin/awscreds --username helen", { "/opt/bin/awscreds", "--username", "helen" } },
        { "\"C:/Program Files/x\" 'a b' c\\ d", { "C:/Program Files/x", "a b", "c d" } },
        { "  a\tb  ", { "a", "b" } },
        { "a\"b c\"'d'e", { "ab cde" } },
        { "'' \"\"", { "", "" } },
        { "'\\n' \"\\n\" \"\\\"\" \\n", { "\\n", "\\n", "\"", "n" } },
        { "$HOME `id` | x", { "$HOME", "`id`", "|", "x" } },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = ERR_INIT;
        char text[128];
        char *argv[CREDENTIALS_WORDS_MAX + 1];
        (void)snprintf(text, sizeof(text), "%s", rows[i].text);
        assert_int_equal(credentials_split(text, argv, &err), 0);
        size_t n = 0;
        for (; rows[i].word[n]; n++) {
            assert_non_null(argv[n]);
            assert_string_equal(argv[n], rows[i].word[n]);
        }
        assert_null(argv[n]);
    }
}

static void
bad_words(void **state)
{
    (void)state;
    static const char *const rows[] = { "", "   ", "a 'b", "a \"b", "a\\" };
    char many[256];
    char *argv[CREDENTIALS_WORDS_MAX + 1];
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = ERR_INIT;
        char text[16];
        (void)snprintf(text, sizeof(text), "%s", rows[i]);
        assert_int_equal(credentials_split(text, argv, &err), -1);
        assert_int_equal(err.code, ERR_STORE_DENIED);
    }
    struct err err = ERR_INIT;
    for (size_t i = 0; i < sizeof(many) - 1; i++)
        many[i] = i % 2 ? ' ' : 'a';
    many[sizeof(many) - 1] = '\0';
    assert_int_equal(credentials_split(many, argv, &err), -1);
}

static void
profile_with_a_process(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct credentials_profile out;
    const char *text = "[profile work]\nregion = eu-west-1\n"
                       "credential_process = /opt/keys --role \"a b\"\n[profile \"two words\"]\n"
                       "region=x\n";
    assert_int_equal(credentials_profile_parse(text, strlen(text), "work", true, &out, &err), 0);
    assert_false(out.has_keys);
    assert_string_equal(out.command, "/opt/keys --role \"a b\"");
    assert_string_equal(out.region, "eu-west-1");
    assert_int_equal(credentials_profile_parse(text, strlen(text), "two words", true, &out, &err),
                     0);
    assert_string_equal(out.region, "x");
    assert_string_equal(out.command, "");
}

/* docs.aws.amazon.com/sdkref, "Container credential provider": plain HTTP only to loopback, ECS and EKS. */
static void
urls(void **state)
{
    (void)state;
    static const char *const good[] = { "http://169.254.170.2/creds", "http://169.254.170.23/v1/x",
                                        "http://[fd00:ec2::23]/v1",   "http://localhost:8080/x",
                                        "http://127.0.0.1/",          "http://127.9.9.9:1/x",
                                        "http://[::1]:99/x",          "https://keys.example/x",
                                        "HTTPS://keys.example" };
    static const char *const bad[] = { "http://keys.example/x",
                                       "http://127.0.0.1.example/x",
                                       "http://127.evil/x",
                                       "http://localhost.example/",
                                       "http://169.254.170.2@evil.example/",
                                       "ftp://127.0.0.1/",
                                       "http://",
                                       "https:///x",
                                       "http://169.254.170.2.evil/",
                                       "http://169.254.1.1/",
                                       "http://localhost\\@evil/",
                                       "http://localhost/a b",
                                       "file:///etc/passwd",
                                       "" };
    for (size_t i = 0; i < COUNT(good); i++)
        assert_true(credentials_url_allowed(good[i]));
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(credentials_url_allowed(bad[i]));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process_document),
        cmocka_unit_test(endpoint_document),
        cmocka_unit_test(bad_documents),
        cmocka_unit_test(words),
        cmocka_unit_test(bad_words),
        cmocka_unit_test(profile_with_a_process),
        cmocka_unit_test(urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
