#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "volume/dialect_impl.h"
#include "volume/extra_impl.h"
#include "volume/xattr.h"

#define TYPE "~content-type"
#define ENCODING "~content-encoding"
#define XATTR_S3FS "xattr"
#define XATTR_OWN "holdfast-xattr"
#define XATTR_LEFT "holdfast-xattr-left" /* so many did not fit beside them */

/* Said anew at every PUT. */
static bool
is_ours(const char *name)
{
    static const char *const names[] = { "mtime", "mode", "uid", "gid", "s3cmd-attrs" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strncmp(name, "holdfast-", 9) == 0 && strncmp(name, XATTR_OWN, 14) != 0;
}

static void
add_line(char *text, const char *name, const char *value)
{
    size_t used = strlen(text), more = strlen(name) + strlen(value) + 2;
    if (used + more > LIMIT_EXTRA) {
        log_warn(volume,
                 "metadata of others is too long to be kept: the next change here drops it name=%s",
                 name);
        return;
    }
    (void)snprintf(text + used, LIMIT_EXTRA + 1 - used, "%s\t%s\n", name, value);
}

/* "aws-chunked" tells how a request was sent, and some stores keep it; the object is not stored so. */
static const char *
real_encoding(const char *value)
{
    static const char chunked[] = "aws-chunked";
    if (strncasecmp(value, chunked, sizeof(chunked) - 1) != 0)
        return value;
    value += sizeof(chunked) - 1;
    return value + strspn(value, " ,");
}

void
extra_collect(const struct store_object *object, const struct index_node *node, char *text)
{
    const char *type = object->content_type;
    text[0] = '\0';
    for (size_t i = 0; i < object->meta.count; i++) {
        const struct meta_entry *entry = &object->meta.entry[i];
        const char *value =
            strcmp(entry->name, ENCODING) == 0 ? real_encoding(entry->value) : entry->value;
        if (!is_ours(entry->name) && value[0] != '\0')
            add_line(text, entry->name, value);
    }
    if (type[0] != '\0' && strcasecmp(type, "application/octet-stream") != 0 &&
        strcasecmp(type, "binary/octet-stream") != 0 &&
        strcasecmp(type, dialect_content_type(node)) != 0)
        add_line(text, TYPE, type);
}

/* A line that tells of extended attributes goes into the set; false: it is none, or cannot be understood and is kept. */
static bool
take_xattrs(const char *name, const char *value, struct buf *set, bool *left)
{
    struct err why = ERR_INIT;
    int rc;
    if (strcmp(name, XATTR_LEFT) == 0) {
        *left = true;
        return true;
    }
    size_t before = set->len;
    if (strcmp(name, XATTR_S3FS) == 0)
        rc = xattr_decode_s3fs(value, set, &why);
    else if (strcmp(name, XATTR_OWN) == 0)
        rc = xattr_decode_own(value, set, &why);
    else
        return false;
    if (rc == 0)
        return true;
    log_warn(volume, "extended attributes of an object are not understood: %s", why.msg);
    buf_truncate(set, before);
    return false;
}

/* Some did not fit the object: those that are known here and it does not tell stay. */
static int
keep_left(const struct buf *old, struct buf *set, struct err *err)
{
    struct xattr_entry entry, told;
    size_t at = 0;
    while (xattr_next(old, &at, &entry))
        if (!xattr_find(set, entry.name, &told) &&
            xattr_set(set, entry.name,
                      &(struct xattr_value){ .data = entry.value, .len = entry.len }, err) != 0)
            return -1;
    return 0;
}

static int
save_xattrs(struct index_tx *tx, int64_t node, struct buf *set, bool left, struct err *err)
{
    scope_buf old;
    buf_init(&old, XATTR_SET_MAX);
    if (index_xattrs_get(tx, node, &old, err) != 0 || (left && keep_left(&old, set, err) != 0))
        return -1;
    if (old.len == set->len && (old.len == 0 || memcmp(old.data, set->data, old.len) == 0))
        return 0;
    return index_xattrs_put(tx, node, set->data, set->len, err);
}

static int
save_rest(struct index_tx *tx, const struct index_extra *row, struct err *err)
{
    return row->text[0] == '\0' ? index_extra_delete(tx, row->node, err)
                                : index_extra_put(tx, row, err);
}

int
extra_save(struct index_tx *tx, int64_t node, const char *text, struct err *err)
{
    struct index_extra row = { .node = node };
    bool left = false;
    char *rest = NULL;
    scope_buf set;
    buf_init(&set, XATTR_SET_MAX);
    scope_free char *lines = strdup(text);
    if (lines == NULL)
        return err_nomem(err);
    for (char *line = strtok_r(lines, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *tab = strchr(line, '\t');
        if (tab == NULL)
            continue;
        *tab = '\0';
        if (!take_xattrs(line, tab + 1, &set, &left))
            add_line(row.text, line, tab + 1);
    }
    if (save_xattrs(tx, node, &set, left, err) != 0)
        return -1;
    return save_rest(tx, &row, err);
}

/* AWS takes 2 KB of names and values, and refuses the object beyond; headers of the object's own do not count. */
#define USER_META_MAX 2048u
#define SHORT_META 256u /* of one value, where caps.long_meta says so */

static size_t
user_bytes(const struct meta *meta)
{
    size_t bytes = 0;
    for (size_t i = 0; i < meta->count; i++)
        if (meta->entry[i].name[0] != '~')
            bytes += strlen(meta->entry[i].name) + strlen(meta->entry[i].value);
    return bytes;
}

/* What has no room beside our own is left out: the bytes of a file matter more than what others noted about it. */
static int
add_if_room(struct meta *meta, const char *name, const char *value, struct err *err)
{
    struct err local = ERR_INIT;
    bool fits = name[0] == '~' || user_bytes(meta) + strlen(name) + strlen(value) <= USER_META_MAX;
    if (meta_get(meta, name) != NULL || (fits && meta_set(meta, name, value, &local) == 0))
        return 0;
    if (local.code == ERR_NOMEM && local.msg[0] != '\0') {
        *err = local;
        return -1;
    }
    log_warn(volume, "metadata of others has no room beside ours and is dropped name=%s", name);
    return 0;
}

/* Extended attributes come before what others noted: somebody set them here. */
static int
add_xattrs(struct index_tx *tx, int64_t node, size_t value_max, struct meta *meta, struct err *err)
{
    static const char names[] = XATTR_S3FS XATTR_OWN XATTR_LEFT "65536";
    char left[16];
    scope_buf set;
    scope(xattr_meta_release) struct xattr_meta text;
    xattr_meta_init(&text);
    buf_init(&set, XATTR_SET_MAX);
    if (index_xattrs_get(tx, node, &set, err) != 0)
        return -1;
    size_t used = user_bytes(meta) + sizeof(names) - 1;
    if (set.len == 0 || used >= USER_META_MAX)
        return 0;
    if (xattr_encode(&set, USER_META_MAX - used, value_max, &text, err) != 0 ||
        (text.s3fs.len > 0 && meta_set(meta, XATTR_S3FS, text.s3fs.data, err) != 0) ||
        (text.own.len > 0 && meta_set(meta, XATTR_OWN, text.own.data, err) != 0))
        return -1;
    if (text.left == 0)
        return 0;
    log_warn(volume, "%u extended attributes of a file have no room in its object node=%lld",
             text.left, (long long)node);
    (void)snprintf(left, sizeof(left), "%u", text.left);
    return meta_set(meta, XATTR_LEFT, left, err);
}

int
extra_add(const struct volume_service *service, struct index_tx *tx, int64_t node,
          struct meta *meta, struct err *err)
{
    struct index_extra row;
    struct err missing = ERR_INIT;
    char *rest = NULL;
    bool short_values = service->store->caps.long_meta == STORE_NO;
    if (add_xattrs(tx, node, short_values ? SHORT_META : USER_META_MAX, meta, err) != 0)
        return -1;
    if (index_extra_get(tx, node, &row, &missing) != 0) {
        if (missing.code == ERR_NOT_FOUND)
            return 0;
        *err = missing;
        return -1;
    }
    for (char *line = strtok_r(row.text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *tab = strchr(line, '\t');
        if (tab == NULL)
            continue;
        *tab = '\0';
        if (add_if_room(meta, line, tab + 1, err) != 0)
            return -1;
    }
    return 0;
}

const char *
extra_content_type(const struct meta *meta, const char *type)
{
    const char *chosen = meta_get(meta, TYPE);
    return chosen == NULL ? type : chosen;
}

int
extra_check_encoding(struct meta *meta, int fd, struct err *err)
{
    static const struct {
        const char *name;
        unsigned char magic[2];
    } known[] = { { "gzip", { 0x1f, 0x8b } }, { "zstd", { 0x28, 0xb5 } } };
    const char *encoding = meta_get(meta, ENCODING);
    unsigned char head[2] = { 0, 0 };
    if (encoding == NULL || fd < 0)
        return 0;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcasecmp(encoding, known[i].name) == 0 &&
            (pread(fd, head, sizeof(head), 0) != sizeof(head) ||
             memcmp(head, known[i].magic, sizeof(head)) != 0))
            return meta_set(meta, ENCODING, "", err);
    return 0;
}
