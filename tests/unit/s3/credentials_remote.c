#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "s3/credentials_remote.h"
#include "tests/unit/s3/tiny_http.h"

static const char container_keys[] =
    "{\"AccessKeyId\":\"ASIAC\",\"SecretAccessKey\":\"secret\",\"Token\":\"tok\","
    "\"Expiration\":\"2040-01-01T00:00:00Z\"}";

static void
clear(void)
{
    static const char *const names[] = { "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                         "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                         "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                         "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                         "AWS_EC2_METADATA_DISABLED",
                                         "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                         "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
}

static struct http *
new_http(void)
{
    struct err err = ERR_INIT;
    struct http *http = http_new(1, &err);
    assert_non_null(http);
    return http;
}

static void
set_url(const char *name, const struct tiny *server, const char *path)
{
    char url[128];
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", server->port, path);
    setenv(name, url, 1);
}

/* B039: the try after a failed one carries the authorization again. */
static void
container_tries_again_whole(void **state)
{
    (void)state;
    static const struct tiny_answer answers[] = { { 500, NULL, "busy" },
                                                  { 200, NULL, container_keys } };
    struct err err = ERR_INIT;
    struct s3_credentials out;
    struct http *http = new_http();
    static struct tiny server;
    clear();
    tiny_start(&server, answers, 2);
    set_url("AWS_CONTAINER_CREDENTIALS_FULL_URI", &server, "/v2/credentials?id=1");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic abc123", 1);
    assert_true(credentials_container_wanted());
    assert_int_equal(credentials_container_fetch(http, &out, &err), 0);
    assert_string_equal(out.access_key, "ASIAC");
    assert_string_equal(out.session_token, "tok");
    assert_true(out.expires_wall_ns > clock_wall_ns());
    assert_int_equal(server.seen, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_non_null(strstr(tiny_request(&server, i), "GET /v2/credentials?id=1 HTTP/1.1\r\n"));
        assert_non_null(strstr(tiny_request(&server, i), "authorization: Basic abc123\r\n"));
    }
    tiny_stop(&server);
    http_free(http);
    clear();
}

/* B108: a token file is read anew for each fetch. */
static void
container_token_file_rotates(void **state)
{
    (void)state;
    static const struct tiny_answer answers[] = { { 200, NULL, container_keys },
                                                  { 200, NULL, container_keys } };
    struct err err = ERR_INIT;
    struct s3_credentials out;
    struct http *http = new_http();
    static struct tiny server;
    char path[] = "/tmp/holdfast-token-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    clear();
    tiny_start(&server, answers, 2);
    set_url("AWS_CONTAINER_CREDENTIALS_FULL_URI", &server, "/x");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path, 1);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "not this one", 1);
    assert_int_equal(write(fd, "first\n", 6), 6);
    assert_int_equal(credentials_container_fetch(http, &out, &err), 0);
    assert_int_equal(pwrite(fd, "again\n", 6, 0), 6);
    assert_int_equal(credentials_container_fetch(http, &out, &err), 0);
    assert_non_null(strstr(tiny_request(&server, 0), "authorization: first\r\n"));
    assert_non_null(strstr(tiny_request(&server, 1), "authorization: again\r\n"));
    /* A line of its own in the token would be a header of its own. */
    assert_int_equal(pwrite(fd, "a\nb: c", 6, 0), 6);
    assert_int_equal(credentials_container_fetch(http, &out, &err), -1);
    assert_int_equal(server.seen, 2);
    close(fd);
    unlink(path);
    assert_int_equal(credentials_container_fetch(http, &out, &err), -1);
    assert_non_null(strstr(err.msg, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"));
    tiny_stop(&server);
    http_free(http);
    clear();
}

static void
container_refusals(void **state)
{
    (void)state;
    static const struct tiny_answer answers[] = { { 403, NULL, "{\"code\":\"x\"}" },
                                                  { 200, NULL, "<html>" } };
    struct err err = ERR_INIT;
    struct s3_credentials out;
    struct http *http = new_http();
    static struct tiny server;
    clear();
    tiny_start(&server, answers, 2);
    set_url("AWS_CONTAINER_CREDENTIALS_FULL_URI", &server, "/x");
    assert_int_equal(credentials_container_fetch(http, &out, &err), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_non_null(strstr(err.msg, "403"));
    assert_int_equal(credentials_container_fetch(http, &out, &err), -1);
    assert_non_null(strstr(err.msg, "JSON"));
    assert_int_equal(server.seen, 2); /* neither is tried again */
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://keys.example/x", 1);
    assert_int_equal(credentials_container_fetch(http, &out, &err), -1);
    assert_non_null(strstr(err.msg, "https"));
    tiny_stop(&server);
    http_free(http);
    clear();
}

/* docs.aws.amazon.com, "Use IMDSv2": PUT for a session token, then GET with it. */
static void
instance_in_three_steps(void **state)
{
    (void)state;
    static const struct tiny_answer answers[] = {
        { 503, NULL, "" },
        { 200, NULL, "session-token==" },
        { 200, NULL, "my-role\n" },
        { 200, NULL,
          "{\"Code\":\"Success\",\"AccessKeyId\":\"ASIAI\",\"SecretAccessKey\":\"secret\","
          "\"Token\":\"tok\",\"Expiration\":\"2040-01-01T00:00:00Z\"}" }
    };
    struct err err = ERR_INIT;
    struct s3_credentials out;
    struct http *http = new_http();
    static struct tiny server;
    clear();
    tiny_start(&server, answers, 4);
    set_url("AWS_EC2_METADATA_SERVICE_ENDPOINT", &server, "/");
    assert_true(credentials_instance_wanted());
    assert_int_equal(credentials_instance_fetch(http, &out, &err), 0);
    assert_string_equal(out.access_key, "ASIAI");
    for (size_t i = 0; i < 2; i++) {
        assert_non_null(strstr(tiny_request(&server, i), "PUT /latest/api/token HTTP/1.1\r\n"));
        assert_non_null(
            strstr(tiny_request(&server, i), "x-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"));
        assert_non_null(strcasestr(tiny_request(&server, i), "content-length: 0\r\n"));
    }
    assert_non_null(
        strstr(tiny_request(&server, 2), "GET /latest/meta-data/iam/security-credentials/ HTTP"));
    assert_non_null(strstr(tiny_request(&server, 3),
                           "GET /latest/meta-data/iam/security-credentials/my-role HTTP"));
    for (size_t i = 2; i < 4; i++)
        assert_non_null(
            strstr(tiny_request(&server, i), "x-aws-ec2-metadata-token: session-token==\r\n"));
    tiny_stop(&server);
    http_free(http);
    clear();
}

static void
instance_without_a_role(void **state)
{
    (void)state;
    static const struct tiny_answer answers[] = { { 200, NULL, "t" }, { 200, NULL, "../x y" } };
    struct err err = ERR_INIT;
    struct s3_credentials out;
    struct http *http = new_http();
    static struct tiny server;
    clear();
    tiny_start(&server, answers, 2);
    set_url("AWS_EC2_METADATA_SERVICE_ENDPOINT", &server, "");
    assert_int_equal(credentials_instance_fetch(http, &out, &err), -1);
    assert_non_null(strstr(err.msg, "role"));
    tiny_stop(&server);
    /* Nobody listens there any more. */
    int64_t begun = clock_mono_ns();
    assert_int_equal(credentials_instance_fetch(http, &out, &err), -1);
    assert_non_null(strstr(err.msg, "does not answer"));
    assert_true(clock_mono_ns() - begun < 3 * NS_PER_S);
    setenv("AWS_EC2_METADATA_DISABLED", "TRUE", 1);
    assert_false(credentials_instance_wanted());
    setenv("AWS_EC2_METADATA_DISABLED", "false", 1);
    assert_true(credentials_instance_wanted());
    http_free(http);
    clear();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(container_tries_again_whole),
        cmocka_unit_test(container_token_file_rotates),
        cmocka_unit_test(container_refusals),
        cmocka_unit_test(instance_in_three_steps),
        cmocka_unit_test(instance_without_a_role),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
