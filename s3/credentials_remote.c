#include "s3/credentials_remote.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/scope.h"
#include "base/sys.h"

#define CONTAINER_HOST "http://169.254.170.2"
#define INSTANCE_HOST "http://169.254.169.254"
#define INSTANCE_HOST_6 "http://[fd00:ec2::254]"
#define INSTANCE_ROLES "/latest/meta-data/iam/security-credentials/"
#define TRIES 3
#define TRY_PAUSE (200 * NS_PER_MS)
#define FETCH_LIMIT (10 * NS_PER_S)
#define IDLE_LIMIT (3 * NS_PER_S)
#define CONNECT_MS 1000 /* beside no such endpoint the address is silent */
#define TOKEN_MAX 8192
#define ROLE_MAX 256

/* One question to an endpoint. */
struct ask {
    struct http *http;
    const char *what; /* for messages */
    const char *method;
    const char *url;
    const struct http_field *field; /* one or none */
    int64_t deadline_ns;
};

static int
judge(const struct ask *ask, const struct http_response *response, struct err *err)
{
    if (response->status != 200)
        return err_set(err, ERR_STORE_DENIED, "the %s endpoint of the keys answers %d", ask->what,
                       response->status);
    if (response->body.len > CREDENTIALS_OUTPUT_MAX)
        return err_set(err, ERR_STORE_DENIED, "the %s endpoint of the keys answers too much",
                       ask->what);
    return 0;
}

/* Whole requests each time: an attempt that failed leaves nothing out of the next one. */
static int
attempt(const struct ask *ask, struct http_response *response, struct err *err)
{
    static const struct store_body empty = { .mem = "", .fd = -1, .size = 0 };
    const struct http_request request = { .method = ask->method,
                                          .url = ask->url,
                                          .fields = ask->field,
                                          .field_count = ask->field ? 1 : 0,
                                          .body = strcmp(ask->method, "PUT") == 0 ? &empty : NULL,
                                          .deadline_ns = ask->deadline_ns,
                                          .idle_ns = IDLE_LIMIT,
                                          .connect_ms = CONNECT_MS,
                                          .loopback = strncasecmp(ask->url, "https:", 6) != 0 };
    if (http_perform(ask->http, &request, response, err) == 0)
        return judge(ask, response, err);
    if (err->code != ERR_NOMEM)
        err_set(err, ERR_STORE_DENIED, "the %s endpoint of the keys does not answer", ask->what);
    return -1;
}

static bool
may_help(const struct http_response *response)
{
    return response->end == HTTP_BROKEN || response->end == HTTP_TIMEOUT ||
           response->status >= 500 || response->status == 429;
}

static int
get(const struct ask *ask, struct buf *out, struct err *err)
{
    for (int i = 1;; i++) {
        struct http_response response;
        http_response_init(&response);
        int result = attempt(ask, &response, err);
        bool again = result < 0 && i < TRIES && may_help(&response) &&
                     clock_mono_ns() + TRY_PAUSE * i < ask->deadline_ns;
        if (result == 0)
            result = buf_append(out, response.body.data ? response.body.data : "",
                                response.body.len, err);
        secret_wipe(response.body.data, response.body.len);
        http_response_release(&response);
        if (!again)
            return result;
        clock_sleep_ns(TRY_PAUSE * i);
    }
}

static int
get_document(const struct ask *ask, struct s3_credentials *out, struct err *err)
{
    scope_buf text;
    buf_init(&text, CREDENTIALS_OUTPUT_MAX);
    int result = get(ask, &text, err);
    if (result == 0)
        result =
            credentials_from_json(buf_cstr(&text), text.len, CREDENTIALS_OF_ENDPOINT, out, err);
    secret_wipe(text.data, text.len);
    return result < 0 && err->code == ERR_STORE_DENIED ? err_wrap(err, "%s keys", ask->what)
                                                       : result;
}

/* ---- container ---- */

static const char *
setting(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

bool
credentials_container_wanted(void)
{
    return setting("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
           setting("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

static int
container_url(struct buf *out, struct err *err)
{
    const char *relative = setting("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = setting("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (relative ? buf_appendf(out, err, CONTAINER_HOST "%s%s", relative[0] == '/' ? "" : "/",
                               relative) < 0
                 : buf_append_str(out, full, err) < 0)
        return -1;
    if (credentials_url_allowed(buf_cstr(out)))
        return 0;
    return err_set(err, ERR_STORE_DENIED,
                   "AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, or lead to this machine or "
                   "to the container agent's address");
}

/* The file comes first, and its content changes while we run. */
static int
container_token(struct buf *out, struct err *err)
{
    const char *file = setting("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = setting("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    struct err own = ERR_INIT;
    char *text = NULL;
    size_t len = 0;
    if (!file)
        return token ? buf_append_str(out, token, err) : 0;
    if (sys_read_file(AT_FDCWD, file, TOKEN_MAX, &text, &len, &own) < 0)
        return err_set(err, ERR_STORE_DENIED,
                       "the file of AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: %s", own.msg);
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
        len--;
    int result = buf_append(out, text, len, err);
    secret_wipe(text, len);
    free(text);
    return result;
}

static int
check_token(const struct buf *token, struct err *err)
{
    for (size_t i = 0; i < token->len; i++) {
        if ((unsigned char)token->data[i] < 0x20 || (unsigned char)token->data[i] > 0x7e)
            return err_set(err, ERR_STORE_DENIED,
                           "the container's authorization token holds a control character");
    }
    return 0;
}

int
credentials_container_fetch(struct http *http, struct s3_credentials *out, struct err *err)
{
    scope_buf url;
    scope_buf token;
    buf_init(&url, 4096);
    buf_init(&token, TOKEN_MAX);
    if (container_url(&url, err) < 0 || container_token(&token, err) < 0 ||
        check_token(&token, err) < 0)
        return -1;
    const struct http_field field = { "authorization", buf_cstr(&token) };
    const struct ask ask = { .http = http,
                             .what = "container",
                             .method = "GET",
                             .url = buf_cstr(&url),
                             .field = token.len ? &field : NULL,
                             .deadline_ns = clock_mono_ns() + FETCH_LIMIT };
    int result = get_document(&ask, out, err);
    secret_wipe(token.data, token.len);
    return result;
}

/* ---- instance: token, role, keys ---- */

bool
credentials_instance_wanted(void)
{
    const char *disabled = setting("AWS_EC2_METADATA_DISABLED");
    return !disabled || strcasecmp(disabled, "true") != 0;
}

static int
instance_url(const char *path, struct buf *out, struct err *err)
{
    const char *base = setting("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *mode = setting("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    if (!base)
        base = mode && strcasecmp(mode, "ipv6") == 0 ? INSTANCE_HOST_6 : INSTANCE_HOST;
    size_t len = strlen(base);
    while (len > 0 && base[len - 1] == '/')
        len--;
    if (buf_append(out, base, len, err) < 0 || buf_append_str(out, path, err) < 0)
        return -1;
    if (credentials_url_allowed(buf_cstr(out)))
        return 0;
    return err_set(err, ERR_STORE_DENIED,
                   "AWS_EC2_METADATA_SERVICE_ENDPOINT must be https, or lead to this machine or to "
                   "the link-local address of the service");
}

static int
instance_get(struct http *http, const char *method, const char *path,
             const struct http_field *field, struct buf *out, struct err *err)
{
    scope_buf url;
    buf_init(&url, 4096);
    if (instance_url(path, &url, err) < 0)
        return -1;
    const struct ask ask = { .http = http,
                             .what = "instance",
                             .method = method,
                             .url = buf_cstr(&url),
                             .field = field,
                             .deadline_ns = clock_mono_ns() + FETCH_LIMIT };
    return get(&ask, out, err);
}

/* The first line names the role; it goes into the next URL. */
static int
check_role(struct buf *role, struct err *err)
{
    buf_truncate(role, strcspn(buf_cstr(role), "\r\n"));
    const char *text = buf_cstr(role);
    if (role->len > 0 && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                      "0123456789+=,.@_-") == role->len)
        return 0;
    return err_set(err, ERR_STORE_DENIED, "the instance has no role that hands out keys");
}

static int
fetch_role(struct http *http, const struct http_field *token, struct s3_credentials *out,
           struct err *err)
{
    scope_buf role;
    scope_buf path;
    scope_buf text;
    buf_init(&role, ROLE_MAX);
    buf_init(&path, 1024);
    buf_init(&text, CREDENTIALS_OUTPUT_MAX);
    if (instance_get(http, "GET", INSTANCE_ROLES, token, &role, err) < 0 ||
        check_role(&role, err) < 0 ||
        buf_appendf(&path, err, INSTANCE_ROLES "%s", buf_cstr(&role)) < 0)
        return -1;
    int result = instance_get(http, "GET", buf_cstr(&path), token, &text, err);
    if (result == 0)
        result =
            credentials_from_json(buf_cstr(&text), text.len, CREDENTIALS_OF_ENDPOINT, out, err);
    secret_wipe(text.data, text.len);
    return result;
}

int
credentials_instance_fetch(struct http *http, struct s3_credentials *out, struct err *err)
{
    static const struct http_field ttl = { "x-aws-ec2-metadata-token-ttl-seconds", "21600" };
    scope_buf token;
    buf_init(&token, TOKEN_MAX);
    if (instance_get(http, "PUT", "/latest/api/token", &ttl, &token, err) < 0)
        return -1;
    if (check_token(&token, err) < 0 || token.len == 0)
        return err_set(err, ERR_STORE_DENIED, "the instance endpoint gives no session token");
    const struct http_field field = { "x-aws-ec2-metadata-token", buf_cstr(&token) };
    int result = fetch_role(http, &field, out, err);
    secret_wipe(token.data, token.len);
    return result;
}
