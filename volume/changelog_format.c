#include "volume/changelog_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/text.h"

/* ---- writing ---- */

static int
put_line(json_t *doc, struct buf *out, struct err *err)
{
    size_t before = out->len;
    if (json_print(doc, out, err) == 0 && buf_append_str(out, "\n", err) == 0)
        return 0;
    buf_truncate(out, before);
    return -1;
}

int
changelog_format_head(const struct changelog_head *head, struct buf *out, struct err *err)
{
    scope_json *doc = json_pack("{s:i, s:s, s:I, s:I}", "format", 1, "gateway", head->gateway,
                                "seq", (json_int_t)head->seq, "prev", (json_int_t)head->prev);
    if (doc == NULL || (head->ends && json_object_set_new(doc, "ends", json_true()) != 0))
        return err_nomem(err);
    return put_line(doc, out, err);
}

static int
set_text(json_t *doc, const char *name, const char *text, struct err *err)
{
    if (text[0] == '\0')
        return 0;
    /* What is no UTF-8 is left out; of a path see below. */
    if (!utf8_valid(text, strlen(text)))
        return 0;
    return json_object_set_new(doc, name, json_string(text)) == 0 ? 0 : err_nomem(err);
}

/* Names are any bytes, JSON is UTF-8. */
static int
set_path(json_t *doc, const char *path, struct err *err)
{
    scope_buf coded;
    if (utf8_valid(path, strlen(path)))
        return set_text(doc, "path", path, err);
    buf_init(&coded, 2 * LIMIT_PATH + 16);
    if (base64_encode(path, strlen(path), &coded, err) != 0)
        return -1;
    return set_text(doc, "path_b64", buf_cstr(&coded), err);
}

int
changelog_format_line(const struct changelog_line *line, struct buf *out, struct err *err)
{
    scope_json *doc = json_pack("{s:s, s:I}", "op", line->gone ? "delete" : "put", "at_ms",
                                (json_int_t)(line->time_ns / NS_PER_MS));
    if (doc == NULL)
        return err_nomem(err);
    if (set_path(doc, line->path, err) != 0 || set_text(doc, "etag", line->etag, err) != 0 ||
        set_text(doc, "version", line->version, err) != 0 ||
        set_text(doc, "base", line->base, err) != 0 ||
        set_text(doc, "actor", line->actor, err) != 0 || set_text(doc, "run", line->run, err) != 0)
        return -1;
    if (!line->gone && json_object_set_new(doc, "size", json_integer((json_int_t)line->size)) != 0)
        return err_nomem(err);
    return put_line(doc, out, err);
}

void
changelog_format_seq(uint64_t seq, char out[CHANGELOG_SEQ_DIGITS + 1])
{
    (void)snprintf(out, CHANGELOG_SEQ_DIGITS + 1, "%016" PRIu64, seq % UINT64_C(10000000000000000));
}

/* ---- reading ---- */

bool
changelog_format_seq_read(const char *text, uint64_t *seq)
{
    return strlen(text) == CHANGELOG_SEQ_DIGITS && parse_u64(text, seq);
}

static int
take_text(const json_t *doc, const char *name, char *out, size_t size, struct err *err)
{
    const char *text = "";
    if (json_opt_str(doc, name, &text, err) != 0)
        return -1;
    if (strlen(text) >= size)
        return err_set(err, ERR_CORRUPT, "'%s' is too long", name);
    text_copy(out, size, text);
    return 0;
}

static int
take_id(const json_t *doc, const char *name, char out[ULID_SIZE], struct err *err)
{
    if (take_text(doc, name, out, ULID_SIZE, err) != 0)
        return -1;
    return out[0] == '\0' || ulid_valid(out) ? 0 : err_set(err, ERR_CORRUPT, "'%s' is no id", name);
}

static int
take_count(const json_t *doc, const char *name, uint64_t *out, struct err *err)
{
    int64_t number = 0;
    if (json_opt_int(doc, name, &number, err) != 0)
        return -1;
    if (number < 0)
        return err_set(err, ERR_CORRUPT, "'%s' is negative", name);
    *out = (uint64_t)number;
    return 0;
}

static int
read_head(const char *text, size_t len, struct changelog_head *head, struct err *err)
{
    scope_json *doc = json_parse(text, len, err);
    int64_t format;
    memset(head, 0, sizeof(*head));
    if (doc == NULL || json_need_int(doc, "format", &format, err) != 0 ||
        take_id(doc, "gateway", head->gateway, err) != 0 ||
        take_count(doc, "seq", &head->seq, err) != 0 ||
        take_count(doc, "prev", &head->prev, err) != 0 ||
        json_opt_bool(doc, "ends", &head->ends, err) != 0)
        return -1;
    if (format != 1 || head->gateway[0] == '\0' || head->seq == 0 || head->prev >= head->seq)
        return err_set(err, ERR_CORRUPT, "this head is not understood");
    return 0;
}

static int
take_path(const json_t *doc, struct changelog_line *out, struct err *err)
{
    const char *coded = NULL;
    if (json_opt_str(doc, "path_b64", &coded, err) != 0)
        return -1;
    if (coded == NULL) {
        if (take_text(doc, "path", out->path, sizeof(out->path), err) != 0)
            return -1;
    } else {
        scope_buf path;
        buf_init(&path, LIMIT_PATH + 1);
        if (base64_decode(coded, strlen(coded), &path, err) != 0)
            return -1;
        if (memchr(buf_cstr(&path), '\0', path.len) != NULL)
            return err_set(err, ERR_CORRUPT, "a NUL in a path");
        text_set(out->path, buf_cstr(&path));
    }
    size_t len = strlen(out->path);
    if (len > 0 && out->path[len - 1] == '/')
        len--;
    if (len == 0)
        return err_set(err, ERR_CORRUPT, "no path");
    return path_check(out->path, len, err);
}

static int
read_line(const char *text, size_t len, struct changelog_line *out, struct err *err)
{
    scope_json *doc = json_parse(text, len, err);
    const char *op;
    int64_t at_ms = 0;
    memset(out, 0, sizeof(*out));
    if (doc == NULL || json_need_str(doc, "op", &op, err) != 0 || take_path(doc, out, err) != 0 ||
        take_text(doc, "etag", out->etag, sizeof(out->etag), err) != 0 ||
        take_id(doc, "version", out->version, err) != 0 ||
        take_id(doc, "base", out->base, err) != 0 ||
        take_text(doc, "actor", out->actor, sizeof(out->actor), err) != 0 ||
        take_text(doc, "run", out->run, sizeof(out->run), err) != 0 ||
        take_count(doc, "size", &out->size, err) != 0 ||
        json_opt_int(doc, "at_ms", &at_ms, err) != 0)
        return -1;
    if (at_ms < 0 || at_ms > INT64_MAX / NS_PER_MS)
        return err_set(err, ERR_CORRUPT, "an impossible time");
    out->time_ns = at_ms * NS_PER_MS;
    out->gone = strcmp(op, "delete") == 0;
    if (!out->gone && strcmp(op, "put") != 0)
        return err_set(err, ERR_CORRUPT, "an operation that is not known");
    return 0;
}

static const char *
line_end(const char *at, const char *end)
{
    const char *found = memchr(at, '\n', (size_t)(end - at));
    return found != NULL ? found : end;
}

int
changelog_format_read(const char *data, size_t len, struct changelog_head *head,
                      struct changelog_sink *sink, struct err *err)
{
    const char *end = data + len, *at = line_end(data, end);
    struct changelog_line line;
    struct err local = ERR_INIT;
    sink->odd = 0;
    if (len > CHANGELOG_OBJECT_MAX || at - data > (ptrdiff_t)CHANGELOG_LINE_MAX ||
        read_head(data, (size_t)(at - data), head, &local) != 0)
        return err_set(err, ERR_CORRUPT, "no object of a change log: %s", local.msg);
    while (at < end && ++at < end) {
        const char *next = line_end(at, end);
        struct err ignored = ERR_INIT;
        /* A last line that does not end was cut. */
        bool whole = next < end && next - at <= (ptrdiff_t)CHANGELOG_LINE_MAX;
        if (!whole || read_line(at, (size_t)(next - at), &line, &ignored) != 0)
            sink->odd++;
        else if (sink->line(sink->arg, &line, err) != 0)
            return -1;
        at = next;
    }
    return 0;
}
