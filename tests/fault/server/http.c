#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/parse.h"
#include "tests/fault/server/http.h"

/* HTTP/1.1 as far as S3 clients use it: reading requests, sending replies. */

/* ---- replies ---- */

void
reply_init(struct reply *reply)
{
    memset(reply, 0, sizeof(*reply));
    reply->status = 500;
    buf_init(&reply->head, MAX_HEAD);
    buf_init(&reply->body, MAX_DOCUMENT + 1);
}

void
reply_release(struct reply *reply)
{
    buf_release(&reply->head);
    buf_release(&reply->body);
    content_drop(reply->content);
}

void
reply_header(struct reply *reply, const char *fmt, ...)
{
    struct err err = ERR_INIT;
    va_list ap;
    va_start(ap, fmt);
    (void)!buf_vappendf(&reply->head, &err, fmt, ap);
    va_end(ap);
    (void)!buf_append_str(&reply->head, "\r\n", &err);
}

void
reply_body(struct reply *reply, const char *fmt, ...)
{
    struct err err = ERR_INIT;
    va_list ap;
    va_start(ap, fmt);
    (void)!buf_vappendf(&reply->body, &err, fmt, ap);
    va_end(ap);
}

void
reply_text(struct reply *reply, const char *text, bool encoded)
{
    struct err err = ERR_INIT;
    if (encoded) {
        (void)!percent_encode(text, strlen(text), true, &reply->body, &err);
        return;
    }
    for (const char *p = text; *p; p++) {
        if ((unsigned char)*p < 0x20 || strchr("&<>\"'", *p))
            reply_body(reply, "&#%d;", *p);
        else
            (void)!buf_append(&reply->body, p, 1, &err);
    }
}

void
reply_content(struct reply *reply, struct content *content, uint64_t off, uint64_t len)
{
    content_drop(reply->content);
    reply->content = content_hold(content);
    reply->off = off;
    reply->len = len;
}

void
reply_error(struct reply *reply, int status, const char *code, const char *message)
{
    buf_clear(&reply->head);
    buf_clear(&reply->body);
    content_drop(reply->content);
    reply->content = NULL;
    reply->status = status;
    reply_header(reply, "Content-Type: application/xml");
    reply_body(reply, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>%s</Message></Error>",
               code, message);
}

/* ---- requests ---- */

const char *
request_field(const struct request *request, const char *name)
{
    for (size_t i = 0; i < request->field_count; i++) {
        if (strcmp(request->field[i].name, name) == 0)
            return request->field[i].value;
    }
    return NULL;
}

bool
decode(const char *text, size_t len, char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '%') {
            if (i + 3 > len)
                return false;
            if (!hex_decode(text + i + 1, 2, &c, 1) || c == '\0')
                return false;
            i += 2;
        }
        if (used + 1 >= size)
            return false;
        out[used++] = (char)c;
    }
    out[used] = '\0';
    return size > 0;
}

bool
request_param(const struct request *request, const char *name, char *out, size_t size)
{
    size_t name_len = strlen(name);
    for (const char *p = request->query; *p;) {
        size_t len = strcspn(p, "&");
        if (len > name_len && strncmp(p, name, name_len) == 0 && p[name_len] == '=')
            return decode(p + name_len + 1, len - name_len - 1, out, size);
        p += len + (p[len] == '&');
    }
    return false;
}

bool
request_has(const struct request *request, const char *name)
{
    size_t name_len = strlen(name);
    for (const char *p = request->query; *p;) {
        size_t len = strcspn(p, "&");
        if (len >= name_len && strncmp(p, name, name_len) == 0 &&
            (len == name_len || p[name_len] == '='))
            return true;
        p += len + (p[len] == '&');
    }
    return false;
}

uint64_t
request_number(const struct request *request, const char *name, uint64_t fallback)
{
    char text[32];
    uint64_t value = 0;
    if (!request_param(request, name, text, sizeof(text)) || !parse_u64(text, &value))
        return fallback;
    return value;
}

static bool
parse_fields(struct request *request, char *line)
{
    while (*line) {
        char *end = strstr(line, "\r\n");
        char *colon = strchr(line, ':');
        if (!end || !colon || colon > end || request->field_count == MAX_FIELDS)
            return false;
        *end = *colon = '\0';
        for (char *p = line; *p; p++)
            *p = (char)tolower((unsigned char)*p);
        char *value = colon + 1;
        while (*value == ' ')
            value++;
        /* Two headers of one name would make the signature ambiguous. */
        if (request_field(request, line))
            return false;
        request->field[request->field_count++] = (struct field){ line, value };
        line = end + 2;
    }
    return true;
}

static bool
parse_head(struct request *request)
{
    char *end = strstr(request->head, "\r\n");
    char *target = strchr(request->head, ' ');
    if (!end || !target || target > end)
        return false;
    *target++ = '\0';
    *end = '\0';
    char *version = strchr(target, ' ');
    if (!version)
        return false;
    *version = '\0';
    char *query = strchr(target, '?');
    if (query)
        *query++ = '\0';
    request->method = request->head;
    request->path = target;
    request->query = query ? query : "";
    const char *slash = strchr(target + 1, '/');
    size_t bucket_len = slash ? (size_t)(slash - target) - 1 : strlen(target + 1);
    if (target[0] != '/' ||
        !decode(target + 1, bucket_len, request->bucket, sizeof(request->bucket)) ||
        !decode(slash ? slash + 1 : "", slash ? strlen(slash + 1) : 0, request->key,
                sizeof(request->key)))
        return false;
    return parse_fields(request, end + 2);
}

static bool
fill(struct connection *connection)
{
    if (connection->len == sizeof(connection->data) - 1)
        return false;
    ssize_t got = recv(connection->fd, connection->data + connection->len,
                       sizeof(connection->data) - 1 - connection->len, 0);
    if (got <= 0)
        return false;
    connection->len += (size_t)got;
    connection->data[connection->len] = '\0';
    return true;
}

bool
http_read_head(struct connection *connection, struct request *request)
{
    char *end;
    connection->data[connection->len] = '\0';
    while (!(end = strstr(connection->data, "\r\n\r\n"))) {
        if (!fill(connection))
            return false;
    }
    size_t len = (size_t)(end - connection->data) + 2;
    request->head = strndup(connection->data, len);
    connection->len -= len + 2;
    memmove(connection->data, end + 4, connection->len);
    return parse_head(request);
}

#define CHUNK (256u << 10)

/* Where the body goes while it arrives. */
struct intake {
    struct content *content;
    struct hash *md5, *sha256; /* sha256 NULL: nobody will ask */
};

static bool
take_in(struct intake *intake, const char *data, size_t len)
{
    struct err err = ERR_INIT;
    return content_add(intake->content, data, len) &&
           hash_update(intake->md5, data, len, &err) == 0 &&
           (!intake->sha256 || hash_update(intake->sha256, data, len, &err) == 0);
}

static bool
receive(struct connection *connection, struct intake *intake, uint64_t len)
{
    size_t got = connection->len < len ? connection->len : (size_t)len;
    bool good = take_in(intake, connection->data, got);
    connection->len -= got;
    memmove(connection->data, connection->data + got, connection->len);
    len -= got;
    char *data = malloc(CHUNK);
    while (good && data && len > 0) {
        ssize_t more = recv(connection->fd, data, len < CHUNK ? (size_t)len : CHUNK, 0);
        good = more > 0 && take_in(intake, data, (size_t)more);
        len -= good ? (uint64_t)more : 0;
    }
    free(data);
    return good && len == 0;
}

static bool
end_intake(struct intake *intake, struct request *request)
{
    struct err err = ERR_INIT;
    uint8_t digest[SHA256_SIZE];
    if (hash_final(steal(&intake->md5), request->body_md5, &err) < 0)
        return false;
    if (!intake->sha256)
        return true;
    if (hash_final(steal(&intake->sha256), digest, &err) < 0)
        return false;
    hex_encode(digest, sizeof(digest), request->body_sha256);
    return true;
}

/* The Content-Length; false when the request has to have one and has not, as the real ones say 411. */
static bool
body_len(const struct request *request, uint64_t *len)
{
    const char *text = request_field(request, "content-length");
    *len = 0;
    if (text)
        return parse_u64(text, len);
    return strcmp(request->method, "PUT") != 0 &&
           (strcmp(request->method, "POST") != 0 || request->bucket[0] == '_');
}

bool
http_read_body(struct connection *connection, struct request *request)
{
    struct err err = ERR_INIT;
    uint64_t len = 0;
    const char *hash = request_field(request, "x-amz-content-sha256");
    if (!body_len(request, &len))
        return false;
    struct intake intake = { .content = content_new(len), .md5 = hash_new(HASH_MD5, &err) };
    if (!hash || strcmp(hash, "UNSIGNED-PAYLOAD") != 0)
        intake.sha256 = hash_new(HASH_SHA256, &err);
    request->body = intake.content;
    bool good = intake.content && intake.md5 && receive(connection, &intake, len) &&
                end_intake(&intake, request);
    hash_free(intake.md5);
    hash_free(intake.sha256);
    return good;
}

void
http_free_request(struct request *request)
{
    free(request->head);
    content_drop(request->body);
    free(request);
}

/* ---- sending ---- */

static bool
send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, data, len, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        data += sent;
        len -= (size_t)sent;
    }
    return true;
}

/* RST instead of FIN. */
void
http_reset(int fd)
{
    struct linger linger = { .l_onoff = 1, .l_linger = 0 };
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

/* Until the client gives up, or the server is told to end. */
void
http_wait_for_close(int fd)
{
    char byte[64];
    while (recv(fd, byte, sizeof(byte), 0) > 0)
        ;
}

static uint64_t
reply_len(const struct reply *reply)
{
    return reply->content ? reply->len : reply->body.len;
}

/* SLOW: a hundredth of a second after each piece of `arg` bytes. */
static bool
send_piece(int fd, const char *data, size_t len, struct hit hit)
{
    if (hit.fault != FAULT_SLOW || hit.arg == 0)
        return send_all(fd, data, len);
    for (size_t at = 0; at < len; at += hit.arg) {
        if (!send_all(fd, data + at, len - at < hit.arg ? len - at : hit.arg))
            return false;
        clock_sleep_ns(10 * NS_PER_MS);
    }
    return true;
}

/* The first `len` bytes of the body. */
static bool
send_body(int fd, const struct reply *reply, uint64_t len, struct hit hit)
{
    if (!reply->content)
        return send_piece(fd, reply->body.data, (size_t)len, hit);
    char *data = malloc(CHUNK);
    bool good = data != NULL;
    for (uint64_t at = 0; good && at < len;) {
        size_t now = content_read(reply->content, reply->off + at, data,
                                  len - at < CHUNK ? (size_t)(len - at) : CHUNK);
        good = now > 0 && send_piece(fd, data, now, hit);
        at += now;
    }
    free(data);
    return good;
}

static void
start_head(const struct reply *reply, struct buf *out)
{
    char date[TIME_HTTP_SIZE];
    struct err err = ERR_INIT;
    buf_init(out, 2 * MAX_HEAD);
    time_http(server_wall_ns(), date, sizeof(date));
    (void)!buf_appendf(out, &err, "HTTP/1.1 %d X\r\nDate: %s\r\n%s", reply->status, date,
                       buf_cstr(&reply->head));
}

/* False: the connection ends. */
bool
http_send_reply(int fd, const struct reply *reply, struct hit hit)
{
    struct err err = ERR_INIT;
    struct buf out;
    uint64_t len = reply_len(reply);
    bool cut = (hit.fault == FAULT_CUT || hit.fault == FAULT_STALL) && hit.arg < len;
    start_head(reply, &out);
    if (hit.fault == FAULT_NO_LENGTH)
        (void)!buf_append_str(&out, "Connection: close\r\n", &err);
    else if (reply->status != 204)
        (void)!buf_appendf(&out, &err, "Content-Length: %llu\r\n",
                           (unsigned long long)(hit.fault == FAULT_LONG_LENGTH ? len + 1000 : len));
    (void)!buf_append_str(&out, "\r\n", &err);
    bool good = send_all(fd, out.data, out.len);
    buf_release(&out);
    if (good && !reply->no_body && len > 0)
        good = send_body(fd, reply, cut ? hit.arg : len, hit);
    if (hit.fault == FAULT_STALL && cut)
        http_wait_for_close(fd);
    return good && !cut && hit.fault != FAULT_LONG_LENGTH && hit.fault != FAULT_NO_LENGTH;
}

/*
 * SPACES: the status goes out at once and white space until the work is done, as AWS answers CompleteMultipartUpload and
 * CopyObject (docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html). Chunked, in `arg` ms.
 */
bool
http_send_spaces(int fd, const struct reply *reply, struct hit hit)
{
    struct err err = ERR_INIT;
    struct buf out;
    char size[32];
    start_head(reply, &out);
    bool good = buf_append_str(&out, "Transfer-Encoding: chunked\r\n\r\n", &err) == 0 &&
                send_all(fd, out.data, out.len);
    buf_release(&out);
    for (unsigned long ms = 0; good && ms < hit.arg; ms += 100) {
        good = send_all(fd, "1\r\n \r\n", 6);
        clock_sleep_ns(100 * NS_PER_MS);
    }
    int digits = snprintf(size, sizeof(size), "%zx\r\n", reply->body.len);
    return good && send_all(fd, size, (size_t)digits) &&
           send_all(fd, reply->body.data, reply->body.len) && send_all(fd, "\r\n0\r\n\r\n", 7);
}
