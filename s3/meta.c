#include "s3/meta.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "base/scope.h"

void
meta_init(struct meta *meta)
{
    meta->count = 0;
}

void
meta_release(struct meta *meta)
{
    for (size_t i = 0; i < meta->count; i++) {
        free(meta->entry[i].name);
        free(meta->entry[i].value);
    }
    meta->count = 0;
}

/* RFC 9110 section 5.6.2 */
static bool
is_token(const char *name)
{
    if (!*name)
        return false;
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            !strchr("!#$%&'*+-.^_`|~", c))
            return false;
    }
    return true;
}

static bool
has_control(const char *value)
{
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;
        if (c < 0x20 || c == 0x7f)
            return true;
    }
    return false;
}

static struct meta_entry *
find(struct meta *meta, const char *name)
{
    for (size_t i = 0; i < meta->count; i++) {
        if (strcasecmp(meta->entry[i].name, name) == 0)
            return &meta->entry[i];
    }
    return NULL;
}

static size_t
entry_size(const struct meta_entry *entry)
{
    return strlen(entry->name) + strlen(entry->value);
}

static int
check_room(const struct meta *meta, const struct meta_entry *old, const char *name,
           const char *value, struct err *err)
{
    size_t total = strlen(name) + strlen(value);

    if (!old && meta->count == LIMIT_META_ENTRIES)
        return err_set(err, ERR_TOO_LARGE, "more than %d metadata entries with '%s'",
                       LIMIT_META_ENTRIES, name);
    for (size_t i = 0; i < meta->count; i++) {
        if (&meta->entry[i] != old)
            total += entry_size(&meta->entry[i]);
    }
    if (total > LIMIT_META_BYTES)
        return err_set(err, ERR_TOO_LARGE, "metadata of %zu bytes with '%s', at most %d are kept",
                       total, name, LIMIT_META_BYTES);
    return 0;
}

int
meta_set(struct meta *meta, const char *name, const char *value, struct err *err)
{
    struct meta_entry *entry = find(meta, name);
    scope_free char *name_copy = NULL;
    scope_free char *value_copy = NULL;

    if (!is_token(name))
        return err_set(err, ERR_INVAL, "bad metadata name '%s'", name);
    if (has_control(value))
        return err_set(err, ERR_INVAL, "control character in metadata '%s'", name);
    if (check_room(meta, entry, name, value, err) < 0)
        return -1;
    name_copy = strdup(name);
    value_copy = strdup(value);
    if (!name_copy || !value_copy)
        return err_nomem(err);
    for (char *c = name_copy; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    if (entry) {
        free(entry->name);
        free(entry->value);
    } else {
        entry = &meta->entry[meta->count++];
    }
    entry->name = steal(&name_copy);
    entry->value = steal(&value_copy);
    return 0;
}

const char *
meta_get(const struct meta *meta, const char *name)
{
    for (size_t i = 0; i < meta->count; i++) {
        if (strcasecmp(meta->entry[i].name, name) == 0)
            return meta->entry[i].value;
    }
    return NULL;
}

int
meta_copy(struct meta *to, const struct meta *from, struct err *err)
{
    struct meta fresh;

    if (to == from)
        return 0;
    meta_init(&fresh);
    for (size_t i = 0; i < from->count; i++) {
        if (meta_set(&fresh, from->entry[i].name, from->entry[i].value, err) < 0) {
            meta_release(&fresh);
            return -1;
        }
    }
    meta_release(to);
    *to = fresh;
    return 0;
}
