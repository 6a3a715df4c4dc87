#include "s3/xml.h"

#include <expat.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/scope.h"

#define DEPTH_MAX 16
#define NAME_MAX_LEN 64

/*
 * A document is walked once; `text` gathers the characters of the innermost element, and at its end the document's own
 * handler sees the path of element names and the text.
 */
struct walk {
    XML_Parser parser;
    char name[DEPTH_MAX][NAME_MAX_LEN];
    unsigned depth;
    struct buf text;
    struct err *err;
    bool failed; /* err is set */
    int (*begin)(struct walk *walk, const char *name);
    int (*end)(struct walk *walk, const char *name, const char *text);
    void *out;
};

static void
stop(struct walk *walk)
{
    walk->failed = true;
    XML_StopParser(walk->parser, XML_FALSE);
}

static void XMLCALL
on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    (void)attributes;
    struct walk *walk = arg;
    const char *local = strrchr(name, '|');
    local = local ? local + 1 : name;
    if (walk->depth == DEPTH_MAX || strlen(local) >= NAME_MAX_LEN) {
        err_set(walk->err, ERR_STORE_BAD_ANSWER, "the document is nested too deeply");
        stop(walk);
        return;
    }
    memcpy(walk->name[walk->depth++], local, strlen(local) + 1);
    buf_clear(&walk->text);
    if (walk->begin && walk->begin(walk, local) < 0)
        stop(walk);
}

static void XMLCALL
on_end(void *arg, const XML_Char *name)
{
    (void)name;
    struct walk *walk = arg;
    const char *local = walk->name[walk->depth - 1];
    if (walk->end(walk, local, buf_cstr(&walk->text)) < 0) {
        stop(walk);
        return;
    }
    walk->depth--;
    buf_clear(&walk->text);
}

static void XMLCALL
on_text(void *arg, const XML_Char *text, int len)
{
    struct walk *walk = arg;
    if (buf_append(&walk->text, text, (size_t)len, walk->err) < 0)
        stop(walk);
}

static void XMLCALL
on_doctype(void *arg, const XML_Char *name, const XML_Char *sysid, const XML_Char *pubid,
           int internal)
{
    (void)name;
    (void)sysid;
    (void)pubid;
    (void)internal;
    struct walk *walk = arg;
    err_set(walk->err, ERR_STORE_BAD_ANSWER, "the document has a DOCTYPE");
    stop(walk);
}

static int
walk_run(struct walk *walk, const void *data, size_t len)
{
    if (len > LIMIT_XML_BODY)
        return err_set(walk->err, ERR_STORE_BAD_ANSWER, "the document is too large");
    walk->parser = XML_ParserCreateNS(NULL, '|');
    if (!walk->parser)
        return err_nomem(walk->err);
    buf_init(&walk->text, LIMIT_XML_BODY);
    XML_SetUserData(walk->parser, walk);
    XML_SetElementHandler(walk->parser, on_start, on_end);
    XML_SetCharacterDataHandler(walk->parser, on_text);
    XML_SetStartDoctypeDeclHandler(walk->parser, on_doctype);
    int result = 0;
    if (XML_Parse(walk->parser, data, (int)len, XML_TRUE) != XML_STATUS_OK) {
        result = -1;
        if (!walk->failed)
            err_set(walk->err, ERR_STORE_BAD_ANSWER, "the document is broken: %s",
                    XML_ErrorString(XML_GetErrorCode(walk->parser)));
    }
    buf_release(&walk->text);
    XML_ParserFree(walk->parser);
    return result;
}

/* Is the innermost element `name` directly below the root `root`? */
static bool
below_root(const struct walk *walk, const char *root)
{
    return walk->depth == 2 && strcmp(walk->name[0], root) == 0;
}

/* ---- <Error> ---- */

static void
copy_cut(char *out, size_t size, const char *text)
{
    size_t len = strnlen(text, size - 1);
    memcpy(out, text, len);
    out[len] = '\0';
}

static int
error_end(struct walk *walk, const char *name, const char *text)
{
    struct xml_error *out = walk->out;
    if (!below_root(walk, "Error"))
        return 0;
    if (strcmp(name, "Code") == 0)
        copy_cut(out->code, sizeof(out->code), text);
    else if (strcmp(name, "Message") == 0)
        copy_cut(out->message, sizeof(out->message), text);
    else if (strcmp(name, "Region") == 0)
        copy_cut(out->region, sizeof(out->region), text);
    return 0;
}

static const char *
skip_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
        p++;
    return p;
}

bool
xml_error_parse(const void *data, size_t len, struct xml_error *out)
{
    struct err ignored = ERR_INIT;
    struct walk walk = { .err = &ignored, .end = error_end, .out = out };
    memset(out, 0, sizeof(*out));
    const char *p = data;
    if (len == 0 || skip_blanks(p, p + len) == p + len)
        return false;
    if (walk_run(&walk, data, len) < 0 || out->code[0] == '\0') {
        memset(out, 0, sizeof(*out));
        return false;
    }
    return true;
}

/* ---- ETag ---- */

int
etag_strip(const char *text, char out[LIMIT_ETAG])
{
    const char *end = text + strlen(text);
    text = skip_blanks(text, end);
    while (end > text && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r' || end[-1] == '\n'))
        end--;
    if (end - text > 2 && text[0] == 'W' && text[1] == '/')
        text += 2;
    if (end - text >= 2 && text[0] == '"' && end[-1] == '"') {
        text++;
        end--;
    }
    size_t len = (size_t)(end - text);
    if (len == 0 || len >= LIMIT_ETAG)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < 0x21 || text[i] == '"' || text[i] == 0x7f)
            return -1;
    }
    memcpy(out, text, len);
    out[len] = '\0';
    return 0;
}

/* ---- ListObjectsV2 ---- */

struct list_walk {
    struct xml_list *list;
    size_t capacity;
    bool url_encoded;
    bool root_seen;
    bool truncated_seen;
    struct {
        bool size, etag, modified;
    } has;
};

void
xml_list_init(struct xml_list *list)
{
    memset(list, 0, sizeof(*list));
}

void
xml_list_release(struct xml_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->entry[i].key);
        free(list->entry[i].etag);
    }
    free(list->entry);
    free(list->next_token);
    xml_list_init(list);
}

static int
bad(struct walk *walk, const char *what, const char *text)
{
    return err_set(walk->err, ERR_STORE_BAD_ANSWER, "%s '%.100s' in a listing", what, text);
}

static int
copy_text(struct walk *walk, char **to, const char *text)
{
    if (*to)
        return bad(walk, "a repeated element", text);
    *to = strdup(text);
    return *to ? 0 : err_nomem(walk->err);
}

static int
list_begin(struct walk *walk, const char *name)
{
    struct list_walk *state = walk->out;
    if (walk->depth == 1) {
        state->root_seen = strcmp(name, "ListBucketResult") == 0;
        return state->root_seen ? 0 : bad(walk, "unexpected document", name);
    }
    bool is_prefix = strcmp(name, "CommonPrefixes") == 0;
    if (walk->depth != 2 || (!is_prefix && strcmp(name, "Contents") != 0))
        return 0;
    struct xml_list *list = state->list;
    if (list->count == state->capacity) {
        size_t capacity = state->capacity ? state->capacity * 2 : 64;
        void *grown = reallocarray(list->entry, capacity, sizeof(list->entry[0]));
        if (!grown)
            return err_nomem(walk->err);
        list->entry = grown;
        state->capacity = capacity;
    }
    list->entry[list->count++] = (struct xml_list_entry){ .is_prefix = is_prefix };
    memset(&state->has, 0, sizeof(state->has));
    return 0;
}

static int
set_etag(struct walk *walk, struct xml_list_entry *entry, const char *text)
{
    char etag[LIMIT_ETAG];
    struct list_walk *state = walk->out;
    state->has.etag = true;
    return etag_strip(text, etag) < 0 ? bad(walk, "bad ETag", text)
                                      : copy_text(walk, &entry->etag, etag);
}

static int
contents_field(struct walk *walk, struct xml_list_entry *entry, const char *name, const char *text)
{
    struct list_walk *state = walk->out;
    if (strcmp(name, "Key") == 0)
        return copy_text(walk, &entry->key, text);
    if (strcmp(name, "Size") == 0) {
        state->has.size = true;
        return parse_u64(text, &entry->size) ? 0 : bad(walk, "bad size", text);
    }
    if (strcmp(name, "ETag") == 0)
        return set_etag(walk, entry, text);
    if (strcmp(name, "LastModified") == 0) {
        state->has.modified = true;
        return time_parse_rfc3339(text, &entry->last_modified_ns) == 0
                   ? 0
                   : bad(walk, "bad time", text);
    }
    return 0;
}

static int
contents_done(struct walk *walk, const struct xml_list_entry *entry)
{
    const struct list_walk *state = walk->out;
    if (!entry->key)
        return bad(walk, "an entry without", "Key");
    if (!entry->is_prefix && !(state->has.size && state->has.etag && state->has.modified))
        return bad(walk, "missing size, ETag or time of", entry->key);
    return 0;
}

static int
list_field(struct walk *walk, const char *name, const char *text)
{
    struct list_walk *state = walk->out;
    if (strcmp(name, "IsTruncated") == 0) {
        state->truncated_seen = true;
        return parse_bool(text, &state->list->truncated) ? 0 : bad(walk, "bad IsTruncated", text);
    }
    if (strcmp(name, "NextContinuationToken") == 0)
        return copy_text(walk, &state->list->next_token, text);
    if (strcmp(name, "EncodingType") == 0) {
        state->url_encoded = strcasecmp(text, "url") == 0;
        return state->url_encoded ? 0 : bad(walk, "unknown encoding type", text);
    }
    return 0;
}

static int
list_end(struct walk *walk, const char *name, const char *text)
{
    struct list_walk *state = walk->out;
    struct xml_list *list = state->list;
    if (walk->depth == 2) {
        if (strcmp(name, "Contents") == 0 || strcmp(name, "CommonPrefixes") == 0)
            return contents_done(walk, &list->entry[list->count - 1]);
        return list_field(walk, name, text);
    }
    if (walk->depth != 3)
        return 0;
    if (strcmp(walk->name[1], "Contents") == 0)
        return contents_field(walk, &list->entry[list->count - 1], name, text);
    if (strcmp(walk->name[1], "CommonPrefixes") == 0 && strcmp(name, "Prefix") == 0)
        return copy_text(walk, &list->entry[list->count - 1].key, text);
    return 0;
}

/* Keys are form-encoded by some stores (blank as +); a plus itself is %2B in all of them. */
static int
decode_key(struct xml_list_entry *entry, struct err *err)
{
    scope_buf raw;
    buf_init(&raw, 4 * LIMIT_KEY);
    for (char *p = entry->key; *p; p++) {
        if (*p == '+')
            *p = ' ';
    }
    if (percent_decode(entry->key, strlen(entry->key), &raw, err) < 0) {
        return err_set(err, ERR_STORE_BAD_ANSWER, "the listing's key '%.100s' is badly escaped",
                       entry->key);
    }
    char *key = buf_steal(&raw);
    if (!key)
        return err_nomem(err);
    free(entry->key);
    entry->key = key;
    return 0;
}

static int
compare_entries(const void *a, const void *b)
{
    const struct xml_list_entry *x = a;
    const struct xml_list_entry *y = b;
    return strcmp(x->key, y->key);
}

/* Each kind must come sorted and without repeats; both together are then merged. */
static int
check_order(const struct xml_list *list, bool is_prefix, struct err *err)
{
    const char *last = NULL;
    for (size_t i = 0; i < list->count; i++) {
        const struct xml_list_entry *entry = &list->entry[i];
        if (entry->is_prefix != is_prefix)
            continue;
        if (last && strcmp(last, entry->key) >= 0) {
            return err_set(err, ERR_STORE_BAD_ANSWER,
                           "the listing's key '%.100s' is repeated or out of order", entry->key);
        }
        last = entry->key;
    }
    return 0;
}

static bool
is_xml_char(uint64_t c)
{
    return c == 9 || c == 10 || c == 13 || (c >= 0x20 && c < 0xd800) ||
           (c > 0xdfff && c < 0xfffe) || (c > 0xffff && c < 0x110000);
}

/* Length of the reference to a character that XML does not allow, such as "&#x1;"; 0 for anything else. */
static size_t
bad_reference(const char *p, size_t left)
{
    char digits[8];
    uint64_t value = 0;
    size_t at = 2;
    if (left < 4 || p[0] != '&' || p[1] != '#')
        return 0;
    bool hex = p[at] == 'x';
    at += hex;
    size_t len = 0;
    while (at + len < left && len < sizeof(digits) - 1 && p[at + len] != ';')
        len++;
    if (at + len >= left || p[at + len] != ';')
        return 0;
    memcpy(digits, p + at, len);
    digits[len] = '\0';
    if (!(hex ? parse_hex_u64(digits, &value) : parse_u64(digits, &value)) || is_xml_char(value))
        return 0;
    return at + len + 1;
}

/* Length of what is no XML character at `p`, 0 when it is one; `step` is the length of the good one. */
static size_t
bad_bytes(const char *p, size_t left, size_t *step)
{
    unsigned char c = (unsigned char)*p;
    *step = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (c < 0x80)
        return is_xml_char(c) ? bad_reference(p, left) : 1;
    if (*step > left || !utf8_valid(p, *step))
        return 1;
    bool noncharacter = c == 0xef && (unsigned char)p[1] == 0xbf && (unsigned char)p[2] >= 0xbe;
    return noncharacter ? 3 : 0;
}

/* Stores echo the prefix asked for, and RGW does so without encoding it, with characters that XML cannot hold. Those
 * become '?': the keys themselves come url-encoded, which xml_list_parse() insists on then. */
static int
clean_document(const char *data, size_t len, struct buf *out, bool *changed, struct err *err)
{
    size_t kept = 0;
    *changed = false;
    for (size_t at = 0; at < len;) {
        size_t step;
        size_t bad_len = bad_bytes(data + at, len - at, &step);
        if (bad_len == 0) {
            at += step;
            continue;
        }
        *changed = true;
        if (buf_append(out, data + kept, at - kept, err) < 0 || buf_append(out, "?", 1, err) < 0)
            return -1;
        at += bad_len;
        kept = at;
    }
    return buf_append(out, data + kept, len - kept, err);
}

int
xml_list_parse(const void *data, size_t len, struct xml_list *out, struct err *err)
{
    struct list_walk state = { .list = out };
    struct walk walk = { .err = err, .begin = list_begin, .end = list_end, .out = &state };
    bool changed;
    scope_buf clean;
    buf_init(&clean, LIMIT_XML_BODY);
    if (len > LIMIT_XML_BODY)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the listing is too large");
    if (clean_document(data, len, &clean, &changed, err) < 0 ||
        walk_run(&walk, buf_cstr(&clean), clean.len) < 0)
        return -1;
    if (changed && !state.url_encoded)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the listing holds characters that XML has not");
    if (!state.truncated_seen)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the listing has no IsTruncated");
    for (size_t i = 0; state.url_encoded && i < out->count; i++) {
        if (decode_key(&out->entry[i], err) < 0)
            return -1;
    }
    if (check_order(out, false, err) < 0 || check_order(out, true, err) < 0)
        return -1;
    if (out->count > 0)
        qsort(out->entry, out->count, sizeof(out->entry[0]), compare_entries);
    return 0;
}

/* ---- CopyObjectResult ---- */

static int
copy_end(struct walk *walk, const char *name, const char *text)
{
    if (below_root(walk, "CopyObjectResult") && strcmp(name, "ETag") == 0)
        return etag_strip(text, walk->out) == 0 ? 0 : bad(walk, "bad ETag", text);
    return 0;
}

int
xml_copy_parse(const void *data, size_t len, char etag[LIMIT_ETAG], struct err *err)
{
    struct walk walk = { .err = err, .end = copy_end, .out = etag };
    etag[0] = '\0';
    if (walk_run(&walk, data, len) < 0)
        return -1;
    if (etag[0] == '\0')
        return err_set(err, ERR_STORE_BAD_ANSWER, "the answer to a copy has no ETag");
    return 0;
}
