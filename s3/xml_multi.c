#include "s3/xml_multi.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/scope.h"
#include "s3/xml.h"
#include "s3/xml_walk_impl.h"

/* ---- answers of one value ---- */

struct one_value {
    const char *root;
    const char *name;
    char *out;
    size_t size;
    bool seen;
};

static int
one_end(struct xml_walk *walk, const char *name, const char *text)
{
    struct one_value *value = walk->out;
    if (!xml_walk_below_root(walk, value->root) || strcmp(name, value->name) != 0)
        return 0;
    size_t len = strlen(text);
    if (len >= value->size || value->seen)
        return err_set(walk->err, ERR_STORE_BAD_ANSWER, "bad %s in %s", name, value->root);
    memcpy(value->out, text, len + 1);
    value->seen = true;
    return 0;
}

static int
parse_one(const void *data, size_t len, struct one_value *value, struct err *err)
{
    struct xml_walk walk = { .err = err, .end = one_end, .out = value };
    value->out[0] = '\0';
    if (xml_walk_run(&walk, data, len) < 0)
        return -1;
    if (!value->seen)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the store's answer is no %s with its %s",
                       value->root, value->name);
    return 0;
}

static int
no_value(const struct one_value *value, struct err *err)
{
    return err_set(err, ERR_STORE_BAD_ANSWER, "no usable %s in %s", value->name, value->root);
}

static int
parse_etag(const void *data, size_t len, const char *root, char etag[LIMIT_ETAG], struct err *err)
{
    char text[2 * LIMIT_ETAG];
    struct one_value value = { .root = root, .name = "ETag", .out = text, .size = sizeof(text) };
    etag[0] = '\0';
    if (parse_one(data, len, &value, err) < 0)
        return -1;
    if (etag_strip(text, etag) == 0)
        return 0;
    etag[0] = '\0';
    return no_value(&value, err);
}

/* `id` is written to, through `value`. */
int /* NOLINTNEXTLINE(readability-non-const-parameter) */
xml_multi_initiated(const void *data, size_t len, char id[XML_UPLOAD_ID], struct err *err)
{
    struct one_value value = { .root = "InitiateMultipartUploadResult",
                               .name = "UploadId",
                               .out = id,
                               .size = XML_UPLOAD_ID };
    if (parse_one(data, len, &value, err) < 0)
        return -1;
    return *id ? 0 : no_value(&value, err);
}

int
xml_multi_part_copied(const void *data, size_t len, char etag[LIMIT_ETAG], struct err *err)
{
    return parse_etag(data, len, "CopyPartResult", etag, err);
}

int
xml_multi_completed(const void *data, size_t len, char etag[LIMIT_ETAG], struct err *err)
{
    char text[2 * LIMIT_ETAG];
    struct one_value value = {
        .root = "CompleteMultipartUploadResult", .name = "ETag", .out = text, .size = sizeof(text)
    };
    etag[0] = '\0';
    if (parse_one(data, len, &value, err) < 0)
        return -1;
    if (etag_strip(text, etag) < 0)
        etag[0] = '\0';
    return 0;
}

/* ---- writing ---- */

/* Line ends are written as references: a parser would make one '\n' of them all (XML 1.0 section 2.11). */
static const char *
reference(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\t':
        return "&#9;";
    case '\n':
        return "&#10;";
    case '\r':
        return "&#13;";
    default:
        return NULL;
    }
}

static int
escape(const char *text, struct buf *out, struct err *err)
{
    const char *from = text;
    for (; *text; text++) {
        const char *instead = reference(*text);
        if (!instead)
            continue;
        if (buf_append(out, from, (size_t)(text - from), err) < 0 ||
            buf_append_str(out, instead, err) < 0)
            return -1;
        from = text + 1;
    }
    return buf_append_str(out, from, err);
}

int
xml_multi_complete(const char (*etag)[LIMIT_ETAG], unsigned count, struct buf *out, struct err *err)
{
    if (buf_append_str(out,
                       "<CompleteMultipartUpload "
                       "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
                       err) < 0)
        return -1;
    for (unsigned i = 0; i < count; i++) {
        if (buf_appendf(out, err, "<Part><PartNumber>%u</PartNumber><ETag>&quot;", i + 1) < 0 ||
            escape(etag[i], out, err) < 0 || buf_append_str(out, "&quot;</ETag></Part>", err) < 0)
            return -1;
    }
    return buf_append_str(out, "</CompleteMultipartUpload>", err);
}

bool
xml_multi_can_name(const char *key)
{
    size_t len = strlen(key);
    if (!utf8_valid(key, len))
        return false;
    for (const unsigned char *p = (const unsigned char *)key; *p; p++) {
        if (*p < 0x20 && *p != '\t' && *p != '\n' && *p != '\r')
            return false;
        /* U+FFFE and U+FFFF */
        if (p[0] == 0xef && p[1] == 0xbf && p[2] >= 0xbe)
            return false;
    }
    return true;
}

int
xml_multi_delete_begin(struct buf *out, struct err *err)
{
    return buf_append_str(out,
                          "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                          "<Quiet>false</Quiet>",
                          err);
}

int
xml_multi_delete_key(const char *key, struct buf *out, struct err *err)
{
    if (buf_append_str(out, "<Object><Key>", err) < 0 || escape(key, out, err) < 0)
        return -1;
    return buf_append_str(out, "</Key></Object>", err);
}

int
xml_multi_delete_end(struct buf *out, struct err *err)
{
    return buf_append_str(out, "</Delete>", err);
}

/* ---- ListMultipartUploads ---- */

void
xml_uploads_init(struct xml_uploads *uploads)
{
    memset(uploads, 0, sizeof(*uploads));
}

void
xml_uploads_release(struct xml_uploads *uploads)
{
    for (size_t i = 0; i < uploads->count; i++) {
        free(uploads->entry[i].key);
        free(uploads->entry[i].id);
    }
    free(uploads->entry);
    free(uploads->next_key);
    free(uploads->next_id);
    xml_uploads_init(uploads);
}

struct uploads_walk {
    struct xml_uploads *out;
    size_t capacity;
    bool url_encoded, truncated_seen;
};

static int
bad(struct xml_walk *walk, const char *what, const char *text)
{
    return err_set(walk->err, ERR_STORE_BAD_ANSWER, "%s '%.100s' in a list of uploads", what, text);
}

static int
set_text(struct xml_walk *walk, char **to, const char *text)
{
    if (*to)
        return bad(walk, "a repeated element", text);
    *to = strdup(text);
    return *to ? 0 : err_nomem(walk->err);
}

static int
uploads_begin(struct xml_walk *walk, const char *name)
{
    struct uploads_walk *state = walk->out;
    struct xml_uploads *out = state->out;
    if (walk->depth == 1)
        return strcmp(name, "ListMultipartUploadsResult") == 0
                   ? 0
                   : bad(walk, "unexpected document", name);
    if (walk->depth != 2 || strcmp(name, "Upload") != 0)
        return 0;
    if (out->count == state->capacity) {
        size_t capacity = state->capacity ? state->capacity * 2 : 16;
        void *grown = reallocarray(out->entry, capacity, sizeof(out->entry[0]));
        if (!grown)
            return err_nomem(walk->err);
        out->entry = grown;
        state->capacity = capacity;
    }
    out->entry[out->count++] = (struct xml_upload){ 0 };
    return 0;
}

static int
uploads_field(struct xml_walk *walk, const char *name, const char *text)
{
    struct uploads_walk *state = walk->out;
    struct xml_uploads *out = state->out;
    if (strcmp(name, "IsTruncated") == 0) {
        state->truncated_seen = true;
        return parse_bool(text, &out->truncated) ? 0 : bad(walk, "bad IsTruncated", text);
    }
    if (strcmp(name, "NextKeyMarker") == 0)
        return set_text(walk, &out->next_key, text);
    if (strcmp(name, "NextUploadIdMarker") == 0)
        return set_text(walk, &out->next_id, text);
    if (strcmp(name, "EncodingType") == 0)
        state->url_encoded = strcasecmp(text, "url") == 0;
    return 0;
}

static int
upload_field(struct xml_walk *walk, const char *name, const char *text)
{
    struct uploads_walk *state = walk->out;
    struct xml_upload *upload = &state->out->entry[state->out->count - 1];
    if (strcmp(name, "Key") == 0)
        return set_text(walk, &upload->key, text);
    if (strcmp(name, "UploadId") == 0)
        return set_text(walk, &upload->id, text);
    if (strcmp(name, "Initiated") == 0 && time_parse_rfc3339(text, &upload->initiated_ns) < 0)
        upload->initiated_ns = 0;
    return 0;
}

static int
uploads_end(struct xml_walk *walk, const char *name, const char *text)
{
    struct uploads_walk *state = walk->out;
    if (walk->depth == 3 && strcmp(walk->name[1], "Upload") == 0)
        return upload_field(walk, name, text);
    if (walk->depth != 2)
        return 0;
    if (strcmp(name, "Upload") != 0)
        return uploads_field(walk, name, text);
    const struct xml_upload *upload = &state->out->entry[state->out->count - 1];
    return upload->key && upload->id && *upload->id ? 0 : bad(walk, "an upload without", "key, id");
}

/* Could it be the result of an encoding? RGW encodes when asked to and does not say so. */
static bool
may_be_encoded(const char *text)
{
    for (; *text; text++) {
        unsigned char byte;
        bool plain = (*text >= '0' && *text <= '9') || (*text >= 'A' && *text <= 'Z') ||
                     (*text >= 'a' && *text <= 'z') || strchr("-_.~/*()!'+", *text);
        if (!plain && (*text != '%' || !hex_decode(text + 1, strnlen(text + 1, 2), &byte, 1)))
            return false;
    }
    return true;
}

static bool
looks_encoded(const struct xml_uploads *out)
{
    for (size_t i = 0; i < out->count; i++) {
        if (!may_be_encoded(out->entry[i].key))
            return false;
    }
    return true;
}

/* Where it is not said whether the markers are encoded, the last upload is the marker: they mean the same. */
static int
mark_last(struct xml_uploads *out, struct err *err)
{
    const struct xml_upload *last = &out->entry[out->count - 1];
    free(out->next_key);
    free(out->next_id);
    out->next_key = strdup(last->key);
    out->next_id = strdup(last->id);
    return out->next_key && out->next_id ? 0 : err_nomem(err);
}

static int
decode_keys(struct xml_uploads *out, struct err *err)
{
    for (size_t i = 0; i < out->count; i++) {
        if (xml_walk_decode_key(&out->entry[i].key, err) < 0)
            return -1;
    }
    return 0;
}

int
xml_multi_uploads(const void *data, size_t len, struct xml_uploads *out, struct err *err)
{
    struct uploads_walk state = { .out = out };
    struct xml_walk walk = { .err = err, .begin = uploads_begin, .end = uploads_end, .out = &state };
    bool changed;
    scope_buf clean;
    buf_init(&clean, LIMIT_XML_BODY);
    if (len > LIMIT_XML_BODY)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the list of uploads is too large");
    if (xml_walk_clean(data, len, &clean, &changed, err) < 0 ||
        xml_walk_run(&walk, buf_cstr(&clean), clean.len) < 0)
        return -1;
    if (changed && !state.url_encoded && !looks_encoded(out))
        return err_set(err, ERR_STORE_BAD_ANSWER,
                       "the list of uploads holds characters that XML has not");
    if (!state.truncated_seen)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the list of uploads has no IsTruncated");
    if ((state.url_encoded || looks_encoded(out)) && decode_keys(out, err) < 0)
        return -1;
    if (state.url_encoded)
        return out->next_key ? xml_walk_decode_key(&out->next_key, err) : 0;
    return out->count > 0 ? mark_last(out, err) : 0;
}

/* ---- DeleteObjects ---- */

struct deleted_walk {
    xml_deleted_fn *fn;
    void *arg;
    char *key;
    char code[64];
    char message[256];
};

static int
deleted_begin(struct xml_walk *walk, const char *name)
{
    struct deleted_walk *state = walk->out;
    if (walk->depth == 1 && strcmp(name, "DeleteResult") != 0)
        return bad(walk, "unexpected document", name);
    if (walk->depth == 2) {
        free(state->key);
        state->key = NULL;
        state->code[0] = state->message[0] = '\0';
    }
    return 0;
}

static int
deleted_field(struct xml_walk *walk, const char *name, const char *text)
{
    struct deleted_walk *state = walk->out;
    if (strcmp(name, "Key") == 0)
        return set_text(walk, &state->key, text);
    if (strcmp(name, "Code") == 0)
        (void)snprintf(state->code, sizeof(state->code), "%s", text);
    else if (strcmp(name, "Message") == 0)
        (void)snprintf(state->message, sizeof(state->message), "%s", text);
    return 0;
}

static int
deleted_end(struct xml_walk *walk, const char *name, const char *text)
{
    struct deleted_walk *state = walk->out;
    if (walk->depth == 3)
        return deleted_field(walk, name, text);
    bool is_error = strcmp(name, "Error") == 0;
    if (walk->depth != 2 || !state->key || (!is_error && strcmp(name, "Deleted") != 0))
        return 0;
    if (is_error && !state->code[0])
        memcpy(state->code, "Unknown", sizeof("Unknown"));
    return state->fn(state->arg, state->key, is_error ? state->code : "", state->message,
                     walk->err);
}

int
xml_multi_deleted(const void *data, size_t len, xml_deleted_fn *fn, void *arg, struct err *err)
{
    struct deleted_walk state = { .fn = fn, .arg = arg };
    struct xml_walk walk = { .err = err, .begin = deleted_begin, .end = deleted_end, .out = &state };
    int result = xml_walk_run(&walk, data, len);
    free(state.key);
    return result;
}
