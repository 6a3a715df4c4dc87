#include "volume/xattr.h"

#include <string.h>
#include <sys/xattr.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/parse.h"

#define LENGTH_SIZE 4u

enum xattr_class
xattr_class(const char *name)
{
    if (strncmp(name, "user.", 5) != 0 || name[5] == '\0')
        return XATTR_OTHER;
    return strncmp(name, "user.holdfast.", 14) == 0 ? XATTR_OURS : XATTR_USER;
}

/* ---- the set ---- */

bool
xattr_next(const struct buf *set, size_t *at, struct xattr_entry *out)
{
    if (*at >= set->len)
        return false;
    const char *name = set->data + *at;
    size_t room = set->len - *at;
    size_t name_len = strnlen(name, room);
    if (name_len == 0 || room - name_len < 1 + LENGTH_SIZE)
        return false;
    const unsigned char *length = (const unsigned char *)name + name_len + 1;
    size_t len = 0;
    for (unsigned i = 0; i < LENGTH_SIZE; i++)
        len |= (size_t)length[i] << (8 * i);
    if (len > room - name_len - 1 - LENGTH_SIZE)
        return false;
    *out = (struct xattr_entry){ .name = name,
                                 .value = (const char *)length + LENGTH_SIZE,
                                 .len = len,
                                 .at = *at,
                                 .size = name_len + 1 + LENGTH_SIZE + len };
    *at += out->size;
    return true;
}

bool
xattr_find(const struct buf *set, const char *name, struct xattr_entry *out)
{
    size_t at = 0;
    while (xattr_next(set, &at, out))
        if (strcmp(out->name, name) == 0)
            return true;
    return false;
}

static void
cut_out(struct buf *set, const struct xattr_entry *entry)
{
    size_t end = entry->at + entry->size;
    memmove(set->data + entry->at, set->data + end, set->len - end);
    buf_truncate(set, set->len - entry->size);
}

static int
append_entry(struct buf *set, const char *name, const void *value, size_t len, struct err *err)
{
    size_t name_len = strlen(name);
    char *to = buf_reserve(set, name_len + 1 + LENGTH_SIZE + len, err);
    if (to == NULL)
        return -1;
    memcpy(to, name, name_len + 1);
    to += name_len + 1;
    for (unsigned i = 0; i < LENGTH_SIZE; i++)
        to[i] = (char)(unsigned char)(len >> (8 * i));
    if (len > 0)
        memcpy(to + LENGTH_SIZE, value, len);
    buf_commit(set, name_len + 1 + LENGTH_SIZE + len);
    return 0;
}

int
xattr_set(struct buf *set, const char *name, const struct xattr_value *value, struct err *err)
{
    struct xattr_entry old;
    bool found = xattr_find(set, name, &old);
    size_t kept = set->len - (found ? old.size : 0);
    size_t wanted = strlen(name) + 1 + LENGTH_SIZE + value->len;
    if (name[0] == '\0' || strlen(name) > LIMIT_NAME)
        return err_set(err, ERR_RANGE, "names of extended attributes have 1 to %d bytes",
                       LIMIT_NAME);
    if (found && (value->flags & XATTR_CREATE) != 0)
        return err_set(err, ERR_EXISTS, "the file has an attribute of that name");
    if (!found && (value->flags & XATTR_REPLACE) != 0)
        return err_set(err, ERR_NO_ATTRIBUTE, "the file has no attribute of that name");
    if (value->len > XATTR_SET_MAX || kept > XATTR_SET_MAX - value->len ||
        kept + wanted > XATTR_SET_MAX)
        return err_set(err, ERR_NO_SPACE, "extended attributes of a file end at %d bytes",
                       XATTR_SET_MAX);
    if (found && old.len == value->len) {
        if (value->len > 0)
            memcpy(set->data + old.at + old.size - old.len, value->data, value->len);
        return 0;
    }
    /* The new one first, so that a failure leaves the old; the maximum of the buffer was checked without the old one. */
    size_t max = set->max;
    set->max = 2 * (size_t)XATTR_SET_MAX;
    int rc = append_entry(set, name, value->data, value->len, err);
    set->max = max;
    if (rc != 0)
        return -1;
    if (found)
        cut_out(set, &old);
    return 0;
}

int
xattr_remove(struct buf *set, const char *name, struct err *err)
{
    struct xattr_entry old;
    if (!xattr_find(set, name, &old))
        return err_set(err, ERR_NO_ATTRIBUTE, "the file has no attribute of that name");
    cut_out(set, &old);
    return 0;
}

int
xattr_names(const struct buf *set, struct buf *out, struct err *err)
{
    struct xattr_entry entry;
    size_t at = 0;
    while (xattr_next(set, &at, &entry))
        if (xattr_class(entry.name) == XATTR_USER &&
            buf_append(out, entry.name, strlen(entry.name) + 1, err) != 0)
            return -1;
    return 0;
}

/* ---- into metadata ---- */

#define S3FS_OPEN "%7B"
#define S3FS_CLOSE "%7D"

void
xattr_meta_init(struct xattr_meta *meta)
{
    buf_init(&meta->s3fs, LIMIT_META_BYTES);
    buf_init(&meta->own, LIMIT_META_BYTES);
    meta->left = 0;
}

void
xattr_meta_release(struct xattr_meta *meta)
{
    buf_release(&meta->s3fs);
    buf_release(&meta->own);
}

/* s3fs cuts its JSON at commas and colons, wherever they stand, and knows no escapes. */
static bool
s3fs_stands(const char *name)
{
    for (const char *p = name; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~' || strchr("\"\\,:{}", *p) != NULL)
            return false;
    return true;
}

/* "name":"base64", percent-encoded as all of it is. */
static int
encode_s3fs(const struct xattr_entry *entry, bool first, struct buf *out, struct err *err)
{
    scope_buf plain;
    buf_init(&plain, 4 * (size_t)XATTR_SET_MAX);
    if (buf_appendf(&plain, err, "%s\"%s\":\"", first ? "" : ",", entry->name) != 0 ||
        base64_encode(entry->value, entry->len, &plain, err) != 0 ||
        buf_append_str(&plain, "\"", err) != 0)
        return -1;
    return percent_encode(plain.data, plain.len, false, out, err);
}

/* base64 of the name : base64 of the value */
static int
encode_own(const struct xattr_entry *entry, bool first, struct buf *out, struct err *err)
{
    if ((!first && buf_append_str(out, ",", err) != 0) ||
        base64_encode(entry->name, strlen(entry->name), out, err) != 0 ||
        buf_append_str(out, ":", err) != 0)
        return -1;
    return base64_encode(entry->value, entry->len, out, err);
}

struct room {
    size_t total, value;
};

/* Adds the entry to its value if both limits allow it. */
static int
encode_entry(const struct xattr_entry *entry, const struct room *room, struct xattr_meta *out,
             struct err *err)
{
    bool s3fs = s3fs_stands(entry->name);
    struct buf *to = s3fs ? &out->s3fs : &out->own;
    bool first = to->len == 0;
    scope_buf text;
    buf_init(&text, 16 * (size_t)XATTR_SET_MAX);
    if (entry->len > room->total) {
        out->left++;
        return 0;
    }
    if (s3fs && first && buf_append_str(&text, S3FS_OPEN, err) != 0)
        return -1;
    if ((s3fs ? encode_s3fs : encode_own)(entry, first, &text, err) != 0)
        return -1;
    size_t close = s3fs ? sizeof(S3FS_CLOSE) - 1 : 0;
    size_t close_all = s3fs || out->s3fs.len > 0 ? sizeof(S3FS_CLOSE) - 1 : 0;
    if (to->len + text.len + close > room->value ||
        out->s3fs.len + out->own.len + text.len + close_all > room->total) {
        out->left++;
        return 0;
    }
    return buf_append(to, text.data, text.len, err);
}

int
xattr_encode(const struct buf *set, size_t room, size_t value_max, struct xattr_meta *out,
             struct err *err)
{
    struct xattr_entry entry;
    struct room left = { room < LIMIT_META_BYTES ? room : LIMIT_META_BYTES, value_max };
    size_t at = 0;
    while (xattr_next(set, &at, &entry))
        if (encode_entry(&entry, &left, out, err) != 0)
            return -1;
    return out->s3fs.len == 0 ? 0 : buf_append_str(&out->s3fs, S3FS_CLOSE, err);
}

/* ---- and back ---- */

static int
add(struct buf *set, const char *name, const struct buf *value, struct err *err)
{
    return xattr_set(set, name, &(struct xattr_value){ .data = value->data, .len = value->len },
                     err);
}

static int
add_pair(struct buf *set, const char *name, const json_t *value, struct err *err)
{
    scope_buf bytes;
    buf_init(&bytes, XATTR_SET_MAX);
    if (!json_is_string(value))
        return err_set(err, ERR_INVAL, "a value is no text");
    if (base64_decode(json_string_value(value), json_string_length(value), &bytes, err) != 0)
        return -1;
    return add(set, name, &bytes, err);
}

int
xattr_decode_s3fs(const char *text, struct buf *set, struct err *err)
{
    scope_buf plain;
    const char *name;
    json_t *value;
    buf_init(&plain, LIMIT_META_BYTES);
    if (percent_decode(text, strlen(text), &plain, err) != 0)
        return -1;
    scope_json *all = json_parse(buf_cstr(&plain), plain.len, err);
    if (all == NULL)
        return -1;
    if (!json_is_object(all))
        return err_set(err, ERR_INVAL, "not a list of attributes");
    json_object_foreach (all, name, value)
        if (add_pair(set, name, value, err) != 0)
            return -1;
    return 0;
}

static int
add_own(struct buf *set, const char *pair, size_t len, struct err *err)
{
    scope_buf name, value;
    buf_init(&name, LIMIT_NAME + 1);
    buf_init(&value, XATTR_SET_MAX);
    const char *colon = memchr(pair, ':', len);
    if (colon == NULL)
        return err_set(err, ERR_INVAL, "an attribute without a value");
    if (base64_decode(pair, (size_t)(colon - pair), &name, err) != 0 ||
        base64_decode(colon + 1, len - (size_t)(colon - pair) - 1, &value, err) != 0)
        return -1;
    if (name.len == 0 || memchr(name.data, '\0', name.len) != NULL)
        return err_set(err, ERR_INVAL, "an attribute without a name");
    return add(set, name.data, &value, err);
}

int
xattr_decode_own(const char *text, struct buf *set, struct err *err)
{
    while (*text != '\0') {
        size_t len = strcspn(text, ",");
        if (add_own(set, text, len, err) != 0)
            return -1;
        text += len + (text[len] == ',' ? 1 : 0);
    }
    return 0;
}
