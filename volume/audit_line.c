#include "volume/audit_line.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/scope.h"
#include "base/text.h"

/* Records as lines, and what holds them together. */

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
static const char hash_mark[] = ",\"hash\":\"";

/* ---- printed ---- */

static int
put_string(struct buf *out, const char *text, size_t len, struct err *err)
{
    size_t from = 0;
    if (buf_append(out, "\"", 1, err) != 0)
        return -1;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
            continue;
        if (buf_append(out, text + from, i - from, err) != 0 ||
            buf_appendf(out, err, "\\u%04x", c) != 0)
            return -1;
        from = i + 1;
    }
    if (buf_append(out, text + from, len - from, err) != 0)
        return -1;
    return buf_append(out, "\"", 1, err);
}

/* JSON is text: what is none goes along as hexadecimal digits in NAME_hex. */
static int
put_text(struct buf *out, const char *name, const char *text, struct err *err)
{
    if (text == NULL || text[0] == '\0')
        return 0;
    size_t len = strlen(text);
    bool is_text = utf8_valid(text, len);
    if (buf_appendf(out, err, ",\"%s%s\":", name, is_text ? "" : "_hex") != 0)
        return -1;
    if (is_text)
        return put_string(out, text, len, err);
    if (buf_append(out, "\"", 1, err) != 0)
        return -1;
    for (size_t i = 0; i < len; i++)
        if (buf_appendf(out, err, "%02x", (unsigned char)text[i]) != 0)
            return -1;
    return buf_append(out, "\"", 1, err);
}

static int
put_number(struct buf *out, const char *name, int64_t value, struct err *err)
{
    return value < 0 ? 0 : buf_appendf(out, err, ",\"%s\":%lld", name, (long long)value);
}

static int
put_members(const struct audit_record *r, struct buf *out, struct err *err)
{
    const struct {
        const char *name, *text;
    } texts[] = {
        { "verb", r->verb },
        { "face", r->face },
        { "actor", r->actor },
        { "run", r->run },
        { "volume", r->volume_name },
        { "path", r->path },
        { "to", r->to },
        { "before", r->before },
        { "after", r->after },
        { "result", r->result != NULL ? r->result : "ok" },
        { "detail", r->detail },
        { "command", r->command },
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (put_text(out, texts[i].name, texts[i].text, err) != 0)
            return -1;
    if (put_number(out, "bytes", r->bytes, err) != 0)
        return -1;
    return put_number(out, "uid", r->uid, err);
}

int
audit_line_print(const struct audit_record *record, int64_t time_ns, struct audit_link *link,
                 struct buf *out, struct err *err)
{
    struct audit_link next = { .seq = link->seq + 1 };
    uint8_t digest[SHA256_SIZE];
    size_t start = out->len;
    text_set(next.prev, link->hash[0] != '\0' ? link->hash : ZEROS);
    time_rfc3339(time_ns, next.time, sizeof(next.time));
    if (buf_appendf(out, err, "{\"seq\":%llu,\"time\":\"%s\"", (unsigned long long)next.seq,
                    next.time) != 0 ||
        put_members(record, out, err) != 0 ||
        buf_appendf(out, err, ",\"prev\":\"%s\"", next.prev) != 0 ||
        sha256(out->data + start, out->len - start, digest, err) != 0) {
        buf_truncate(out, start);
        return -1;
    }
    hex_encode(digest, sizeof(digest), next.hash);
    if (buf_appendf(out, err, "%s%s\"}\n", hash_mark, next.hash) != 0) {
        buf_truncate(out, start);
        return -1;
    }
    *link = next;
    return 0;
}

/* ---- checked ---- */

/* The text behind `mark` up to the next quote; false where there is none, or it is longer than the room. */
static bool
take_text(const char *line, size_t len, const char *mark, char *out, size_t size)
{
    const char *at = memmem(line, len, mark, strlen(mark));
    if (at == NULL)
        return false;
    at += strlen(mark);
    const char *end = memchr(at, '"', len - (size_t)(at - line));
    if (end == NULL || (size_t)(end - at) >= size)
        return false;
    memcpy(out, at, (size_t)(end - at));
    out[end - at] = '\0';
    return true;
}

int
audit_line_check(const char *line, size_t len, struct audit_link *out, struct err *err)
{
    static const char head[] = "{\"seq\":";
    const size_t tail = sizeof(hash_mark) - 1 + SHA256_HEX - 1 + 2;
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX];
    memset(out, 0, sizeof(*out));
    if (len < sizeof(head) - 1 + tail || memcmp(line, head, sizeof(head) - 1) != 0)
        return err_set(err, ERR_CORRUPT, "no record");
    size_t body = len - tail;
    size_t digits = 0;
    while (digits < 20 && line[sizeof(head) - 1 + digits] >= '0' &&
           line[sizeof(head) - 1 + digits] <= '9')
        digits++;
    if (!parse_u64_n(line + sizeof(head) - 1, digits, &out->seq) ||
        memcmp(line + body, hash_mark, sizeof(hash_mark) - 1) != 0 ||
        memcmp(line + len - 2, "\"}", 2) != 0)
        return err_set(err, ERR_CORRUPT, "no record");
    memcpy(out->hash, line + body + sizeof(hash_mark) - 1, SHA256_HEX - 1);
    /* The last member before the hash. */
    const size_t prev_len = sizeof(",\"prev\":\"") - 1 + SHA256_HEX - 1 + 1;
    if (body < prev_len ||
        !take_text(line + body - prev_len, prev_len, ",\"prev\":\"", out->prev, SHA256_HEX) ||
        !take_text(line, body, ",\"time\":\"", out->time, sizeof(out->time)))
        return err_set(err, ERR_CORRUPT, "no record");
    if (sha256(line, body, digest, err) != 0)
        return -1;
    hex_encode(digest, sizeof(digest), hex);
    if (strcmp(hex, out->hash) != 0)
        return err_set(err, ERR_CORRUPT,
                       "the record was changed: its hash is not that of its bytes");
    return 0;
}

/* ---- a segment ---- */

void
audit_walk_init(struct audit_walk *walk)
{
    memset(walk, 0, sizeof(*walk));
    text_set(walk->last.hash, ZEROS);
}

/* What is wrong between this record and the one before; NULL: nothing. */
static const char *
fault_of(const struct audit_link *last, const struct audit_link *link)
{
    if (link->seq == last->seq + 1 && strcmp(link->prev, last->hash) == 0)
        return NULL;
    if (link->seq > last->seq + 1)
        return "records are missing before this one";
    if (link->seq <= last->seq)
        return "the record is not in its place";
    return "the record before is another one than this one follows";
}

static int
walk_line(struct audit_walk *walk, const char *line, size_t len, struct err *err)
{
    struct audit_link link;
    struct err wrong = ERR_INIT;
    const char *fault = NULL;
    if (audit_line_check(line, len, &link, &wrong) != 0) {
        if (wrong.code != ERR_CORRUPT)
            return err_set(err, wrong.code, "%s", wrong.msg);
        fault = wrong.msg;
    } else {
        fault = fault_of(&walk->last, &link);
    }
    walk->records++;
    int rc = walk->fn == NULL ? 0 : walk->fn(walk->arg, &link, line, len, fault, err);
    /* A changed record is told once: the next one is held against what this one says it is. */
    if (link.hash[0] != '\0' && link.seq >= walk->last.seq)
        walk->last = link;
    return rc;
}

int
audit_walk_lines(struct audit_walk *walk, const char *data, size_t len, struct err *err)
{
    walk->rest = 0;
    while (len > 0) {
        const char *end = memchr(data, '\n', len);
        if (end == NULL && walk->open) {
            walk->rest = len;
            return 0;
        }
        size_t line = end != NULL ? (size_t)(end - data) : len;
        int rc = walk_line(walk, data, line, err);
        if (rc != 0)
            return rc;
        line += end != NULL;
        data += line;
        len -= line;
    }
    return 0;
}
