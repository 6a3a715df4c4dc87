#include "s3/sigv4.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/scope.h"

#define DATE_LEN 8
#define SCOPE_MAX 256
#define CANONICAL_MAX (4u * LIMIT_HTTP_HEADERS)

static int
compare_headers(const void *a, const void *b)
{
    const struct sigv4_header *const *x = a;
    const struct sigv4_header *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

struct sorted {
    const struct sigv4_header *header[SIGV4_HEADERS_MAX];
    size_t count;
};

static void
sort_headers(const struct sigv4_request *request, struct sorted *out)
{
    assert(request->header_count <= SIGV4_HEADERS_MAX);
    out->count = request->header_count;
    for (size_t i = 0; i < out->count; i++)
        out->header[i] = &request->headers[i];
    qsort(out->header, out->count, sizeof(out->header) / SIGV4_HEADERS_MAX, compare_headers);
}

/* Leading and trailing blanks go, runs of them become one. */
static int
append_trimmed(const char *value, struct buf *out, struct err *err)
{
    bool pending = false;
    bool begun = false;
    for (const char *p = value; *p; p++) {
        if (*p == ' ' || *p == '\t') {
            pending = begun;
            continue;
        }
        if (pending && buf_append(out, " ", 1, err) < 0)
            return -1;
        if (buf_append(out, p, 1, err) < 0)
            return -1;
        pending = false;
        begun = true;
    }
    return 0;
}

static int
append_signed_headers(const struct sorted *sorted, struct buf *out, struct err *err)
{
    for (size_t i = 0; i < sorted->count; i++) {
        if (buf_appendf(out, err, "%s%s", i ? ";" : "", sorted->header[i]->name) < 0)
            return -1;
    }
    return 0;
}

static int
append_header_lines(const struct sorted *sorted, struct buf *out, struct err *err)
{
    for (size_t i = 0; i < sorted->count; i++) {
        if (buf_appendf(out, err, "%s:", sorted->header[i]->name) < 0 ||
            append_trimmed(sorted->header[i]->value, out, err) < 0 ||
            buf_append(out, "\n", 1, err) < 0)
            return -1;
    }
    return 0;
}

int
sigv4_canonical_request(const struct sigv4_request *request, struct buf *out, struct err *err)
{
    struct sorted sorted;
    sort_headers(request, &sorted);
    if (buf_appendf(out, err, "%s\n%s\n%s\n", request->method, request->path, request->query) < 0 ||
        append_header_lines(&sorted, out, err) < 0 || buf_append(out, "\n", 1, err) < 0 ||
        append_signed_headers(&sorted, out, err) < 0)
        return -1;
    return buf_appendf(out, err, "\n%s", request->payload_hash);
}

static int
hmac_text(const uint8_t *key, size_t key_len, const char *text, uint8_t out[SHA256_SIZE],
          struct err *err)
{
    return hmac_sha256(key, key_len, text, strlen(text), out, err);
}

/* kDate, kRegion, kService, kSigning of the specification, each in place of the one before. */
static int
signing_key(const struct sigv4_scope *scope, const char *date, uint8_t key[SHA256_SIZE],
            struct err *err)
{
    uint8_t next[SHA256_SIZE];
    scope_buf secret;
    buf_init(&secret, 1024);
    int result = -1;
    if (buf_appendf(&secret, err, "AWS4%s", scope->secret_key) == 0 &&
        hmac_text((const uint8_t *)secret.data, secret.len, date, key, err) == 0 &&
        hmac_text(key, SHA256_SIZE, scope->region, next, err) == 0 &&
        hmac_text(next, SHA256_SIZE, scope->service, key, err) == 0 &&
        hmac_text(key, SHA256_SIZE, "aws4_request", next, err) == 0) {
        memcpy(key, next, SHA256_SIZE);
        result = 0;
    }
    secret_wipe(secret.data, secret.len);
    secret_wipe(next, sizeof(next));
    return result;
}

struct stamp {
    char time[TIME_ISO_BASIC_SIZE];
    char date[DATE_LEN + 1];
    char scope[SCOPE_MAX]; /* 20130524/us-east-1/s3/aws4_request */
};

static int
make_stamp(const struct sigv4_request *request, const struct sigv4_scope *scope, struct stamp *out,
           struct err *err)
{
    time_iso_basic(request->wall_ns, out->time, sizeof(out->time));
    memcpy(out->date, out->time, DATE_LEN);
    out->date[DATE_LEN] = '\0';
    int len = snprintf(out->scope, sizeof(out->scope), "%s/%s/%s/aws4_request", out->date,
                       scope->region, scope->service);
    if (len < 0 || (size_t)len >= sizeof(out->scope))
        return err_set(err, ERR_INVAL, "region '%s' is too long", scope->region);
    return 0;
}

static int
signature(const struct sigv4_request *request, const struct sigv4_scope *scope,
          const struct stamp *stamp, char hex[SHA256_HEX], struct err *err)
{
    scope_buf text;
    uint8_t digest[SHA256_SIZE];
    uint8_t key[SHA256_SIZE];
    buf_init(&text, CANONICAL_MAX);
    if (sigv4_canonical_request(request, &text, err) < 0 ||
        sha256(text.data, text.len, digest, err) < 0)
        return -1;
    hex_encode(digest, sizeof(digest), hex);
    buf_clear(&text);
    if (buf_appendf(&text, err, "AWS4-HMAC-SHA256\n%s\n%s\n%s", stamp->time, stamp->scope, hex) < 0)
        return -1;
    int result = signing_key(scope, stamp->date, key, err);
    if (result == 0)
        result = hmac_sha256(key, sizeof(key), text.data, text.len, digest, err);
    secret_wipe(key, sizeof(key));
    if (result == 0)
        hex_encode(digest, sizeof(digest), hex);
    return result;
}

int
sigv4_authorization(const struct sigv4_request *request, const struct sigv4_scope *scope,
                    struct buf *out, struct err *err)
{
    struct stamp stamp;
    struct sorted sorted;
    char hex[SHA256_HEX];
    if (make_stamp(request, scope, &stamp, err) < 0 ||
        signature(request, scope, &stamp, hex, err) < 0)
        return -1;
    sort_headers(request, &sorted);
    if (buf_appendf(out, err, "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=",
                    scope->access_key, stamp.scope) < 0 ||
        append_signed_headers(&sorted, out, err) < 0)
        return -1;
    return buf_appendf(out, err, ", Signature=%s", hex);
}

/* The texts of the parameters that presigning adds. */
struct presign_texts {
    struct buf names, credential;
    char expires[24];
};

static int
presign_texts(const struct sigv4_request *request, const struct sigv4_scope *scope,
              const struct stamp *stamp, struct presign_texts *out, struct err *err)
{
    struct sorted sorted;
    sort_headers(request, &sorted);
    if (append_signed_headers(&sorted, &out->names, err) < 0)
        return -1;
    return buf_appendf(&out->credential, err, "%s/%s", scope->access_key, stamp->scope);
}

static void
add_presign_params(const struct presign_texts *texts, const struct stamp *stamp, const char *token,
                   struct canonical_query *query)
{
    canonical_query_add(query, "X-Amz-Algorithm", "AWS4-HMAC-SHA256");
    canonical_query_add(query, "X-Amz-Credential", buf_cstr(&texts->credential));
    canonical_query_add(query, "X-Amz-Date", stamp->time);
    canonical_query_add(query, "X-Amz-Expires", texts->expires);
    canonical_query_add(query, "X-Amz-SignedHeaders", buf_cstr(&texts->names));
    if (*token)
        canonical_query_add(query, "X-Amz-Security-Token", token);
}

static int
sign_query(const struct sigv4_request *request, const struct sigv4_scope *scope,
           const struct stamp *stamp, const struct canonical_query *query, struct buf *out,
           struct err *err)
{
    struct sigv4_request full = *request;
    char hex[SHA256_HEX];
    scope_buf text;
    buf_init(&text, LIMIT_HTTP_HEADERS);
    if (canonical_query_write(query, &text, err) < 0)
        return -1;
    full.query = buf_cstr(&text);
    full.payload_hash = SIGV4_UNSIGNED_PAYLOAD;
    if (signature(&full, scope, stamp, hex, err) < 0)
        return -1;
    return buf_appendf(out, err, "%s&X-Amz-Signature=%s", buf_cstr(&text), hex);
}

int
sigv4_presign(const struct sigv4_request *request, const struct sigv4_scope *scope,
              const struct sigv4_link *link, struct buf *out, struct err *err)
{
    struct stamp stamp;
    struct canonical_query full = *link->query;
    struct presign_texts texts;
    int result = -1;
    buf_init(&texts.names, LIMIT_HTTP_HEADERS);
    buf_init(&texts.credential, 1024);
    (void)snprintf(texts.expires, sizeof(texts.expires), "%" PRId64, link->expires_s);
    if (make_stamp(request, scope, &stamp, err) == 0 &&
        presign_texts(request, scope, &stamp, &texts, err) == 0) {
        add_presign_params(&texts, &stamp, link->token, &full);
        result = sign_query(request, scope, &stamp, &full, out, err);
    }
    buf_release(&texts.names);
    buf_release(&texts.credential);
    return result;
}
