#include <sys/stat.h>

#include "base/parse.h"
#include "volume/dialect_impl.h"
#include "volume/service_impl.h"

/*
 * Metadata of objects. mtime, mode, uid and gid follow the convention that s3fs and rclone share (docs/format/bucket.md):
 * mtime in decimal seconds with an optional fraction, mode in decimal with the file type, uid and gid in decimal.
 */

static int
set_u64(struct meta *meta, const char *name, uint64_t value, struct err *err)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return meta_set(meta, name, text, err);
}

static int
set_if(struct meta *meta, const char *name, const char *value, struct err *err)
{
    return value[0] == '\0' ? 0 : meta_set(meta, name, value, err);
}

int
object_meta_make(const struct index_node *node, const struct index_content *content, uint64_t epoch,
                 struct meta *out, struct err *err)
{
    char mtime[40];
    format_decimal_seconds(node->mtime_ns, mtime, sizeof(mtime));
    if (meta_set(out, "mtime", mtime, err) != 0 || set_u64(out, "mode", node->mode, err) != 0 ||
        set_u64(out, "uid", node->uid, err) != 0 || set_u64(out, "gid", node->gid, err) != 0 ||
        special_meta(node, out, err) != 0 ||
        meta_set(out, "holdfast-version", content->version, err) != 0 ||
        set_u64(out, "holdfast-size", content->size, err) != 0 ||
        set_if(out, "holdfast-md5", content->md5, err) != 0 ||
        set_if(out, "holdfast-sha256", content->sha256, err) != 0 ||
        set_if(out, "holdfast-node", node->ulid, err) != 0 ||
        set_if(out, "holdfast-base", content->base_version, err) != 0 ||
        set_if(out, "holdfast-run", content->run, err) != 0 ||
        set_if(out, "holdfast-actor", content->actor, err) != 0 ||
        dialect_write(node, content, out, err) != 0)
        return -1;
    return epoch == 0 ? 0 : set_u64(out, "holdfast-epoch", epoch, err);
}

static void
take_text(const struct meta *meta, const char *name, char *out, size_t size)
{
    const char *value = meta_get(meta, name);
    if (value != NULL && strlen(value) < size)
        text_copy(out, size, value);
}

static bool
take_u32(const struct meta *meta, const char *name, uint32_t *out)
{
    uint64_t value;
    const char *text = meta_get(meta, name);
    if (text == NULL || !parse_u64(text, &value) || value > UINT32_MAX)
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool
has_file_type(uint64_t mode)
{
    static const mode_t types[] = { S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if ((mode & ~07777ull) == types[i])
            return true;
    return false;
}

/* s3fs writes decimal with the file type (33188), rclone's --metadata octal (100644): as decimal no octal text is a mode
 * with a type, so what is one is read as decimal. */
static bool
take_mode(const struct meta *meta, uint32_t *out)
{
    const char *text = meta_get(meta, "mode");
    uint64_t decimal, octal = 0;
    if (text == NULL || !parse_u64(text, &decimal))
        return false;
    size_t digits = strspn(text, "01234567");
    if (!has_file_type(decimal) && text[digits] == '\0' && digits <= 7) {
        for (size_t i = 0; i < digits; i++)
            octal = octal * 8 + (uint64_t)(text[i] - '0');
        if (has_file_type(octal) || text[0] == '0')
            decimal = octal;
    }
    if (decimal > UINT16_MAX)
        return false;
    *out = (uint32_t)decimal;
    return true;
}

void
object_read(const struct store_object *object, struct observed *seen, struct object_attrs *attrs)
{
    memset(seen, 0, sizeof(*seen));
    memset(attrs, 0, sizeof(*attrs));
    const struct meta *meta = &object->meta;
    seen->present = true;
    text_set(seen->etag, object->etag);
    seen->size = object->size;
    take_text(meta, "holdfast-version", seen->version, sizeof(seen->version));
    take_text(meta, "holdfast-md5", seen->md5, sizeof(seen->md5));
    take_text(meta, "holdfast-sha256", seen->sha256, sizeof(seen->sha256));
    take_text(meta, "holdfast-node", seen->node, sizeof(seen->node));
    take_text(meta, "holdfast-base", seen->base, sizeof(seen->base));
    const char *text = meta_get(meta, "holdfast-size");
    seen->has_version_size = text != NULL && parse_u64(text, &seen->version_size);
    text = meta_get(meta, "holdfast-epoch");
    if (text != NULL && !parse_u64(text, &seen->epoch))
        seen->epoch = 0;

    attrs->mtime_ns = object->last_modified_ns;
    text = meta_get(meta, "mtime");
    attrs->has_mtime = text != NULL && (parse_decimal_seconds(text, &attrs->mtime_ns) ||
                                        time_parse_rfc3339(text, &attrs->mtime_ns) == 0);
    attrs->has_mode = take_mode(meta, &attrs->mode);
    attrs->rdev = special_meta_read(meta);
    attrs->has_owner = take_u32(meta, "uid", &attrs->uid) && take_u32(meta, "gid", &attrs->gid);
    take_text(meta, "holdfast-actor", attrs->actor, sizeof(attrs->actor));
    take_text(meta, "holdfast-run", attrs->run, sizeof(attrs->run));
    dialect_read(meta, attrs);
}

/* "aws:kms:KEY" is two headers; "aws:kms:dsse" is one, the name of two layers of encryption. */
const struct store_placement *
object_placement(const struct index_volume *volume, struct object_room *room,
                 struct store_placement *out)
{
    const char *encryption = volume->encryption;
    if (volume->storage_class[0] == '\0' && encryption[0] == '\0')
        return NULL;
    *out = (struct store_placement){ .storage_class = volume->storage_class,
                                     .encryption = encryption };
    if (strncmp(encryption, "aws:kms:", 8) == 0 && strcmp(encryption, "aws:kms:dsse") != 0) {
        text_copy(room->encryption, sizeof(room->encryption), "aws:kms");
        out->encryption = room->encryption;
        out->kms_key_id = encryption + 8;
    }
    return out;
}
