#include "s3/xml.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/scope.h"
#include "s3/xml_walk_impl.h"

/* ---- <Error> ---- */

static void
copy_cut(char *out, size_t size, const char *text)
{
    size_t len = strnlen(text, size - 1);
    memcpy(out, text, len);
    out[len] = '\0';
}

static int
error_end(struct xml_walk *walk, const char *name, const char *text)
{
    struct xml_error *out = walk->out;
    if (!xml_walk_below_root(walk, "Error"))
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
    struct xml_walk walk = { .err = &ignored, .end = error_end, .out = out };
    memset(out, 0, sizeof(*out));
    const char *p = data;
    if (len == 0 || skip_blanks(p, p + len) == p + len)
        return false;
    if (xml_walk_run(&walk, data, len) < 0 || out->code[0] == '\0') {
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
bad(struct xml_walk *walk, const char *what, const char *text)
{
    return err_set(walk->err, ERR_STORE_BAD_ANSWER, "%s '%.100s' in a listing", what, text);
}

static int
copy_text(struct xml_walk *walk, char **to, const char *text)
{
    if (*to)
        return bad(walk, "a repeated element", text);
    *to = strdup(text);
    return *to ? 0 : err_nomem(walk->err);
}

static int
list_begin(struct xml_walk *walk, const char *name)
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
set_etag(struct xml_walk *walk, struct xml_list_entry *entry, const char *text)
{
    char etag[LIMIT_ETAG];
    struct list_walk *state = walk->out;
    state->has.etag = true;
    return etag_strip(text, etag) < 0 ? bad(walk, "bad ETag", text)
                                      : copy_text(walk, &entry->etag, etag);
}

static int
contents_field(struct xml_walk *walk, struct xml_list_entry *entry, const char *name,
               const char *text)
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
contents_done(struct xml_walk *walk, const struct xml_list_entry *entry)
{
    const struct list_walk *state = walk->out;
    if (!entry->key)
        return bad(walk, "an entry without", "Key");
    if (!entry->is_prefix && !(state->has.size && state->has.etag && state->has.modified))
        return bad(walk, "missing size, ETag or time of", entry->key);
    return 0;
}

static int
list_field(struct xml_walk *walk, const char *name, const char *text)
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
list_end(struct xml_walk *walk, const char *name, const char *text)
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

int
xml_list_parse(const void *data, size_t len, struct xml_list *out, struct err *err)
{
    struct list_walk state = { .list = out };
    struct xml_walk walk = { .err = err, .begin = list_begin, .end = list_end, .out = &state };
    bool changed;
    scope_buf clean;
    buf_init(&clean, LIMIT_XML_BODY);
    if (len > LIMIT_XML_BODY)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the listing is too large");
    if (xml_walk_clean(data, len, &clean, &changed, err) < 0 ||
        xml_walk_run(&walk, buf_cstr(&clean), clean.len) < 0)
        return -1;
    if (changed && !state.url_encoded)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the listing holds characters that XML has not");
    if (!state.truncated_seen)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the listing has no IsTruncated");
    for (size_t i = 0; state.url_encoded && i < out->count; i++) {
        if (xml_walk_decode_key(&out->entry[i].key, err) < 0)
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
copy_end(struct xml_walk *walk, const char *name, const char *text)
{
    if (xml_walk_below_root(walk, "CopyObjectResult") && strcmp(name, "ETag") == 0)
        return etag_strip(text, walk->out) == 0 ? 0 : bad(walk, "bad ETag", text);
    return 0;
}

int
xml_copy_parse(const void *data, size_t len, char etag[LIMIT_ETAG], struct err *err)
{
    struct xml_walk walk = { .err = err, .end = copy_end, .out = etag };
    etag[0] = '\0';
    if (xml_walk_run(&walk, data, len) < 0)
        return -1;
    if (etag[0] == '\0')
        return err_set(err, ERR_STORE_BAD_ANSWER, "the answer to a copy has no ETag");
    return 0;
}
