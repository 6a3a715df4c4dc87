#include "gateway/request.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "base/parse.h"
#include "base/path.h"

static int
check_target_bytes(const char *raw, struct err *err)
{
    size_t len = strlen(raw);
    if (len == 0 || raw[0] != '/')
        return err_set(err, ERR_INVAL, "the request target must begin with '/'");
    if (len > LIMIT_HTTP_TARGET)
        return err_set(err, ERR_INVAL, "the request target is longer than %d bytes",
                       LIMIT_HTTP_TARGET);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)raw[i];
        if (c <= 0x20 || c >= 0x7f || c == '#' || c == '\\')
            return err_set(err, ERR_INVAL, "the request target holds a byte that must be escaped");
    }
    return 0;
}

/* Appends one decoded component. */
static int
add_component(struct buf *path, const char *text, size_t len, struct err *err)
{
    scope_buf part;
    buf_init(&part, LIMIT_HTTP_TARGET);
    if (percent_decode(text, len, &part, err) < 0)
        return -1;
    if (memchr(buf_cstr(&part), '/', part.len))
        return err_set(err, ERR_BAD_NAME, "a name in the path holds an escaped slash");
    if (path_check_name(buf_cstr(&part), part.len, err) < 0)
        return -1;
    if (path->len > 0 && buf_append(path, "/", 1, err) < 0)
        return -1;
    return buf_append(path, part.data, part.len, err);
}

static int
split_path(struct gateway_request_target *out, const char *at, const char *end, struct err *err)
{
    while (at < end) {
        const char *slash = memchr(at, '/', (size_t)(end - at));
        const char *stop = slash ? slash : end;
        if (stop == at)
            return err_set(err, ERR_BAD_NAME, "the path has an empty name between two slashes");
        if (add_component(&out->path, at, (size_t)(stop - at), err) < 0)
            return -1;
        at = slash ? slash + 1 : end;
        out->trailing_slash = slash && at == end;
    }
    return 0;
}

int
gateway_request_target(const char *raw, struct gateway_request_target *out, struct err *err)
{
    buf_init(&out->path, LIMIT_HTTP_TARGET);
    out->trailing_slash = false;
    out->query = "";
    if (check_target_bytes(raw, err) < 0)
        return -1;
    const char *end = raw + strcspn(raw, "?");
    if (*end == '?')
        out->query = end + 1;
    if (split_path(out, raw + 1, end, err) < 0) {
        gateway_request_target_release(out);
        return -1;
    }
    return 0;
}

void
gateway_request_target_release(struct gateway_request_target *target)
{
    buf_release(&target->path);
}

int
gateway_request_query(const struct gateway_request_target *target, const char *name,
                      struct buf *out, struct err *err)
{
    size_t name_len = strlen(name);
    int found = 0;
    const char *at = target->query;
    while (*at != '\0') {
        size_t len = strcspn(at, "&");
        if (len >= name_len && strncmp(at, name, name_len) == 0 &&
            (len == name_len || at[name_len] == '=')) {
            size_t skip = len == name_len ? len : name_len + 1;
            if (found++ > 0)
                return err_set(err, ERR_INVAL, "the parameter '%s' was given twice", name);
            if (percent_decode(at + skip, len - skip, out, err) < 0)
                return err_wrap(err, "parameter '%s'", name);
        }
        at += len;
        if (*at == '&')
            at++;
    }
    return found;
}

/* RFC 9110 section 5.6.2. */
static bool
is_token(const char *text, size_t len)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!alnum && (c == '\0' || !strchr(marks, c)))
            return false;
    }
    return len > 0;
}

static int
check_header(const struct gateway_request_header *header, struct err *err)
{
    if (!is_token(header->name, header->name_len))
        return err_set(err, ERR_INVAL, "the header name '%s' is malformed", header->name);
    for (size_t i = 0; i < header->value_len; i++) {
        unsigned char c = (unsigned char)header->value[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return err_set(err, ERR_INVAL, "the header '%s' holds a control character",
                           header->name);
    }
    return 0;
}

/* Headers that decide where a request ends and for whom it is, or that we read one value of, may come only once. */
static int
count_once(const struct gateway_request_header *headers, size_t count, struct err *err)
{
    static const char *const once[] = { "Host",          "Content-Length",  "Transfer-Encoding",
                                        "Authorization", "If-Match",        "If-None-Match",
                                        "If-Range",      "Range",           "Origin",
                                        "Content-Type",  "Idempotency-Key", "Sec-Fetch-Site" };
    for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++) {
        size_t seen = 0;
        for (size_t j = 0; j < count; j++)
            seen += strcasecmp(headers[j].name, once[i]) == 0;
        if (seen > 1)
            return err_set(err, ERR_INVAL, "the header '%s' was sent more than once", once[i]);
    }
    if (!gateway_request_header(headers, count, "Host"))
        return err_set(err, ERR_INVAL, "the header 'Host' is missing");
    return 0;
}

int
gateway_request_headers(const struct gateway_request_header *headers, size_t count, int64_t *length,
                        bool *chunked, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (check_header(&headers[i], err) < 0)
            return -1;
    }
    if (count_once(headers, count, err) < 0)
        return -1;
    const char *content_length = gateway_request_header(headers, count, "Content-Length");
    const char *coding = gateway_request_header(headers, count, "Transfer-Encoding");
    *length = -1;
    *chunked = coding != NULL;
    if (coding && content_length)
        return err_set(err, ERR_INVAL, "Content-Length and Transfer-Encoding exclude each other");
    if (coding && strcasecmp(coding, "chunked") != 0)
        return err_set(err, ERR_INVAL, "the only Transfer-Encoding is 'chunked'");
    if (content_length) {
        uint64_t value;
        if (!parse_u64(content_length, &value) || value > INT64_MAX)
            return err_set(err, ERR_INVAL, "Content-Length is not a number of bytes");
        *length = (int64_t)value;
    }
    return 0;
}

const char *
gateway_request_header(const struct gateway_request_header *headers, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(headers[i].name, name) == 0)
            return headers[i].value;
    }
    return NULL;
}

/* Where the port (with its colon) of an authority begins; the end when it has none. */
static size_t
host_len(const char *host)
{
    if (host[0] == '[') {
        const char *close = strchr(host, ']');
        return close ? (size_t)(close - host) + 1 : strlen(host);
    }
    return strcspn(host, ":");
}

static bool
in_list(const char *list, const char *host, size_t len)
{
    while (list && *list != '\0') {
        list += strspn(list, ", ");
        size_t item = strcspn(list, ", ");
        if (item == len && item > 0 && strncasecmp(list, host, len) == 0)
            return true;
        list += item;
    }
    return false;
}

bool
gateway_request_host_allowed(const char *host, unsigned port, const char *more)
{
    static const char loopback[] = "localhost,127.0.0.1,[::1]";
    size_t len = host_len(host);
    const char *rest = host + len;
    uint64_t given = 80;
    if (rest[0] != '\0' && (rest[0] != ':' || !parse_u64(rest + 1, &given) || given > 65535))
        return false;
    if (in_list(more, host, len))
        return true;
    return in_list(loopback, host, len) && given == port;
}
