#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/parse.h"
#include "tests/bench/load/load.h"

#define UNSIGNED "UNSIGNED-PAYLOAD"

struct request
request_of(const char *method, const char *key, const char *query)
{
    return (
        struct request){ .method = method, .key = key, .query = query, .in_fd = -1, .out_fd = -1 };
}

int
endpoint_parse(struct endpoint *endpoint, const char *url, struct err *err)
{
    const char *rest = NULL;
    if (strncmp(url, "http://", 7) == 0)
        rest = url + 7;
    else if (strncmp(url, "https://", 8) == 0)
        rest = url + 8;
    if (!rest || !*rest || strchr(rest, '/'))
        return err_set(err, ERR_USAGE, "the endpoint '%s' is not http[s]://HOST[:PORT]", url);
    endpoint->tls = url[4] == 's';
    const char *colon = strrchr(rest, ':');
    size_t host = colon ? (size_t)(colon - rest) : strlen(rest);
    if (host >= sizeof(endpoint->host) || (colon && strlen(colon + 1) >= sizeof(endpoint->port)))
        return err_set(err, ERR_USAGE, "the endpoint '%s' is too long", url);
    (void)snprintf(endpoint->host, sizeof(endpoint->host), "%.*s", (int)host, rest);
    (void)snprintf(endpoint->port, sizeof(endpoint->port), "%s",
                   colon           ? colon + 1
                   : endpoint->tls ? "443"
                                   : "80");
    (void)snprintf(endpoint->host_header, sizeof(endpoint->host_header), "%s", rest);
    return 0;
}

static int
signing_key(const struct endpoint *endpoint, const char *day, uint8_t out[SHA256_SIZE],
            struct err *err)
{
    const char *steps[] = { endpoint->region, "s3", "aws4_request" };
    char first[300];
    int len = snprintf(first, sizeof(first), "AWS4%s", endpoint->secret_key);
    if (len < 0 || (size_t)len >= sizeof(first))
        return err_set(err, ERR_USAGE, "the secret key is too long");
    if (hmac_sha256(first, (size_t)len, day, strlen(day), out, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        uint8_t before[SHA256_SIZE];
        memcpy(before, out, SHA256_SIZE);
        if (hmac_sha256(before, SHA256_SIZE, steps[i], strlen(steps[i]), out, err) < 0)
            return -1;
    }
    return 0;
}

/* The key of a day is the same for every request; each thread keeps its own. */
static int
day_key(const struct endpoint *endpoint, const char *day, const uint8_t **key, struct err *err)
{
    static _Thread_local uint8_t held[SHA256_SIZE];
    static _Thread_local char held_day[16];
    if (strcmp(held_day, day) != 0) {
        if (signing_key(endpoint, day, held, err) < 0)
            return -1;
        (void)snprintf(held_day, sizeof(held_day), "%s", day);
    }
    *key = held;
    return 0;
}

static int
canonical_hash(const struct endpoint *endpoint, const struct request *request, const char *stamp,
               char hex[SHA256_HEX], struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    scope_buf text;
    buf_init(&text, 16384);
    const char *slash = request->key[0] ? "/" : "";
    if (buf_appendf(&text, err, "%s\n/%s%s%s\n%s\nhost:%s\nx-amz-content-sha256:" UNSIGNED "\n",
                    request->method, endpoint->bucket, slash, request->key, request->query,
                    endpoint->host_header) < 0 ||
        buf_appendf(&text, err, "x-amz-date:%s\n", stamp) < 0)
        return -1;
    if (endpoint->token &&
        buf_appendf(&text, err, "x-amz-security-token:%s\n", endpoint->token) < 0)
        return -1;
    if (buf_appendf(&text, err, "\nhost;x-amz-content-sha256;x-amz-date%s\n" UNSIGNED,
                    endpoint->token ? ";x-amz-security-token" : "") < 0 ||
        sha256(text.data, text.len, digest, err) < 0)
        return -1;
    hex_encode(digest, SHA256_SIZE, hex);
    return 0;
}

int
sign_headers(const struct endpoint *endpoint, const struct request *request, struct buf *out,
             struct err *err)
{
    char stamp[32];
    char day[16];
    char hex[SHA256_HEX];
    char text[512];
    uint8_t digest[SHA256_SIZE];
    const uint8_t *key;
    struct tm tm;
    time_t now = time(NULL);
    if (!gmtime_r(&now, &tm) || strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &tm) == 0 ||
        strftime(day, sizeof(day), "%Y%m%d", &tm) == 0)
        return err_set(err, ERR_INTERNAL, "no date for the signature");
    if (canonical_hash(endpoint, request, stamp, hex, err) < 0 ||
        day_key(endpoint, day, &key, err) < 0)
        return -1;
    int len = snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%s", stamp,
                       day, endpoint->region, hex);
    if (len < 0 || (size_t)len >= sizeof(text))
        return err_set(err, ERR_USAGE, "the region '%s' is too long", endpoint->region);
    if (hmac_sha256(key, SHA256_SIZE, text, (size_t)len, digest, err) < 0)
        return -1;
    hex_encode(digest, SHA256_SIZE, hex);
    buf_clear(out);
    if (buf_appendf(out, err, "x-amz-date: %s\r\nx-amz-content-sha256: " UNSIGNED "\r\n", stamp) <
        0)
        return -1;
    if (endpoint->token &&
        buf_appendf(out, err, "x-amz-security-token: %s\r\n", endpoint->token) < 0)
        return -1;
    return buf_appendf(out, err,
                       "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s/%s/s3/aws4_request, "
                       "SignedHeaders=host;x-amz-content-sha256;x-amz-date%s, Signature=%s\r\n",
                       endpoint->access_key, day, endpoint->region,
                       endpoint->token ? ";x-amz-security-token" : "", hex);
}
