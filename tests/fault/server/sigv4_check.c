#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/parse.h"
#include "tests/fault/server/server.h"

#define MAX_TEXT 65536
#define MAX_SKEW (15 * 60 * NS_PER_S)

/* Own text builder: appends to a fixed buffer, remembers overflow. */
struct text {
    char data[MAX_TEXT];
    size_t len;
};

static void
add(struct text *text, const char *data, size_t len)
{
    if (len < sizeof(text->data) - text->len) {
        memcpy(text->data + text->len, data, len);
        text->len += len;
    }
    text->data[text->len] = '\0';
}

static void
adds(struct text *text, const char *data)
{
    add(text, data, strlen(data));
}

/* RFC 3986 unreserved bytes stay, and '/' in paths. */
static void
add_encoded(struct text *text, const char *data, bool path)
{
    static const char digits[] = "0123456789ABCDEF";
    for (const unsigned char *p = (const unsigned char *)data; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || strchr("-._~", *p) || (path && *p == '/');
        char escaped[4] = { '%', digits[*p >> 4], digits[*p & 15], '\0' };
        char raw[2] = { (char)*p, '\0' };
        adds(text, plain ? raw : escaped);
    }
}

static int
by_text(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;
    return strcmp(*x, *y);
}

/* Each parameter as name NUL-like separator value, so that a plain sort orders by name first. */
static bool
add_query(struct text *out, const char *query)
{
    char *part[64];
    size_t count = 0;
    bool good = true;
    char *copy = strdup(query);
    char *state = NULL;
    for (char *p = strtok_r(copy, "&", &state); p && count < 64; p = strtok_r(NULL, "&", &state)) {
        char name[4096];
        char value[8192];
        char *mark = strchr(p, '=');
        size_t name_len = mark ? (size_t)(mark - p) : strlen(p);
        good = good && decode(p, name_len, name, sizeof(name)) &&
               decode(mark ? mark + 1 : "", mark ? strlen(mark + 1) : 0, value, sizeof(value));
        if (!good)
            break;
        if (strcmp(name, "X-Amz-Signature") == 0)
            continue;
        struct text *one = calloc(1, sizeof(*one));
        add_encoded(one, name, false);
        adds(one, "\x01");
        add_encoded(one, value, false);
        part[count++] = strdup(one->data);
        free(one);
    }
    qsort(part, count, sizeof(part[0]), by_text);
    for (size_t i = 0; i < count; i++) {
        *strchr(part[i], '\x01') = '=';
        adds(out, i ? "&" : "");
        adds(out, part[i]);
        free(part[i]);
    }
    free(copy);
    return good;
}

static void
add_value(struct text *out, const char *value)
{
    bool blank = false;
    while (*value == ' ')
        value++;
    for (; *value; value++) {
        if (*value == ' ') {
            blank = true;
            continue;
        }
        if (blank)
            add(out, " ", 1);
        blank = false;
        add(out, value, 1);
    }
}

/* The header lines in the order of the list, which must be sorted and name host and every x-amz-* header sent. */
static bool
add_headers(struct text *out, const struct request *request, const char *list)
{
    char copy[2048];
    char previous[256] = "";
    char *state = NULL;
    (void)snprintf(copy, sizeof(copy), "%s", list);
    for (char *p = strtok_r(copy, ";", &state); p; p = strtok_r(NULL, ";", &state)) {
        const char *value = request_field(request, p);
        if (!value || strcmp(p, previous) <= 0)
            return false;
        (void)snprintf(previous, sizeof(previous), "%s", p);
        adds(out, p);
        adds(out, ":");
        add_value(out, value);
        adds(out, "\n");
    }
    return true;
}

static bool
listed(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p += len) {
        if ((p == list || p[-1] == ';') && (p[len] == ';' || p[len] == '\0'))
            return true;
    }
    return false;
}

static bool
all_amz_headers_signed(const struct request *request, const char *list)
{
    for (size_t i = 0; i < request->field_count; i++) {
        const char *name = request->field[i].name;
        if ((strncmp(name, "x-amz-", 6) == 0 || strcmp(name, "host") == 0) && !listed(list, name))
            return false;
    }
    return true;
}

struct claim {
    char credential[256];
    char list[2048];
    char signature[128];
    char date[32];
    char payload[96];
    int64_t expires_s; /* 0: header form */
};

static bool
part_of(const char *header, const char *name, char *out, size_t size)
{
    const char *at = strstr(header, name);
    if (!at)
        return false;
    at += strlen(name);
    size_t len = strcspn(at, ", ");
    (void)snprintf(out, size, "%.*s", (int)len, at);
    return len > 0 && len < size;
}

static bool
read_header_claim(const struct request *request, struct claim *out)
{
    const char *header = request_field(request, "authorization");
    const char *date = request_field(request, "x-amz-date");
    const char *payload = request_field(request, "x-amz-content-sha256");
    if (!header || !date || !payload || strncmp(header, "AWS4-HMAC-SHA256 ", 17) != 0)
        return false;
    (void)snprintf(out->date, sizeof(out->date), "%s", date);
    (void)snprintf(out->payload, sizeof(out->payload), "%s", payload);
    return part_of(header, "Credential=", out->credential, sizeof(out->credential)) &&
           part_of(header, "SignedHeaders=", out->list, sizeof(out->list)) &&
           part_of(header, "Signature=", out->signature, sizeof(out->signature));
}

static bool
read_query_claim(const struct request *request, struct claim *out)
{
    char expires[32];
    uint64_t seconds = 0;
    if (!request_param(request, "X-Amz-Credential", out->credential, sizeof(out->credential)) ||
        !request_param(request, "X-Amz-SignedHeaders", out->list, sizeof(out->list)) ||
        !request_param(request, "X-Amz-Signature", out->signature, sizeof(out->signature)) ||
        !request_param(request, "X-Amz-Date", out->date, sizeof(out->date)) ||
        !request_param(request, "X-Amz-Expires", expires, sizeof(expires)) ||
        !parse_u64(expires, &seconds) || seconds < 1 || seconds > 604800)
        return false;
    (void)snprintf(out->payload, sizeof(out->payload), "UNSIGNED-PAYLOAD");
    out->expires_s = (int64_t)seconds;
    return true;
}

static bool
hash_hex(const char *data, size_t len, char hex[SHA256_HEX])
{
    struct err err = ERR_INIT;
    uint8_t digest[SHA256_SIZE];
    if (sha256(data, len, digest, &err) < 0)
        return false;
    hex_encode(digest, sizeof(digest), hex);
    return true;
}

static bool
sign(const char *string_to_sign, const char *date, char hex[SHA256_HEX])
{
    struct err err = ERR_INIT;
    uint8_t key[SHA256_SIZE];
    const char *steps[] = { SERVER_REGION, "s3", "aws4_request", string_to_sign };
    const char *first = "AWS4" SERVER_SECRET_KEY;
    if (hmac_sha256(first, strlen(first), date, 8, key, &err) < 0)
        return false;
    for (size_t i = 0; i < 4; i++) {
        uint8_t next[SHA256_SIZE];
        if (hmac_sha256(key, sizeof(key), steps[i], strlen(steps[i]), next, &err) < 0)
            return false;
        memcpy(key, next, sizeof(key));
    }
    hex_encode(key, sizeof(key), hex);
    return true;
}

static bool
signature_fits(const struct request *request, const struct claim *claim, struct text *text)
{
    char path[4096];
    char hex[SHA256_HEX];
    char want[SHA256_HEX];
    char line[512];
    if (!decode(request->path, strlen(request->path), path, sizeof(path)))
        return false;
    text->len = 0;
    adds(text, request->method);
    adds(text, "\n");
    add_encoded(text, path, true);
    /* What was sent must be what was signed, byte by byte. */
    if (strcmp(strchr(text->data, '\n') + 1, request->path) != 0)
        return false;
    adds(text, "\n");
    if (!add_query(text, request->query))
        return false;
    adds(text, "\n");
    if (!add_headers(text, request, claim->list))
        return false;
    adds(text, "\n");
    adds(text, claim->list);
    adds(text, "\n");
    adds(text, claim->payload);
    if (!hash_hex(text->data, text->len, hex))
        return false;
    (void)snprintf(line, sizeof(line),
                   "AWS4-HMAC-SHA256\n%s\n%.8s/" SERVER_REGION "/s3/aws4_request\n%s", claim->date,
                   claim->date, hex);
    return sign(line, claim->date, want) && strcmp(want, claim->signature) == 0;
}

static bool
parse_date(const char *text, int64_t *out)
{
    char rfc[32];
    if (strlen(text) != 16)
        return false;
    (void)snprintf(rfc, sizeof(rfc), "%.4s-%.2s-%.2sT%.2s:%.2s:%.2sZ", text, text + 4, text + 6,
                   text + 9, text + 11, text + 13);
    return time_parse_rfc3339(rfc, out) == 0;
}

static bool
time_fits(const struct claim *claim, struct reply *reply)
{
    int64_t at = 0;
    if (!parse_date(claim->date, &at)) {
        reply_error(reply, 403, "AccessDenied", "bad date");
        return false;
    }
    int64_t off = server_wall_ns() - at;
    if (claim->expires_s) {
        if (off > claim->expires_s * NS_PER_S || off < -MAX_SKEW)
            reply_error(reply, 403, "AccessDenied", "Request has expired");
        return off <= claim->expires_s * NS_PER_S && off >= -MAX_SKEW;
    }
    if (off <= MAX_SKEW && off >= -MAX_SKEW)
        return true;
    reply_error(reply, 403, "RequestTimeTooSkewed", "The difference is too large");
    return false;
}

static bool
payload_fits(const struct request *request, const struct claim *claim, struct reply *reply)
{
    if (strcmp(claim->payload, "UNSIGNED-PAYLOAD") == 0 ||
        strcmp(request->body_sha256, claim->payload) == 0)
        return true;
    reply_error(reply, 400, "XAmzContentSHA256Mismatch", "payload hash");
    return false;
}

bool
sigv4_check(const struct request *request, struct reply *reply)
{
    struct claim claim = { .expires_s = 0 };
    if (!read_header_claim(request, &claim) && !read_query_claim(request, &claim)) {
        reply_error(reply, 403, "AccessDenied", "no signature");
        return false;
    }
    if (strncmp(claim.credential, SERVER_ACCESS_KEY "/", sizeof(SERVER_ACCESS_KEY)) != 0) {
        reply_error(reply, 403, "InvalidAccessKeyId", "unknown key");
        return false;
    }
    if (!time_fits(&claim, reply))
        return false;
    struct text *text = calloc(1, sizeof(*text));
    bool fits =
        all_amz_headers_signed(request, claim.list) && signature_fits(request, &claim, text);
    free(text);
    if (!fits) {
        reply_error(reply, 403, "SignatureDoesNotMatch", "the signature is wrong");
        return false;
    }
    return payload_fits(request, &claim, reply);
}
