#include "base/log.h"
#include "base/scope.h"
#include "volume/rebuild_impl.h"

/* Volumes found in the bucket: `.holdfast/volumes/NAME.json`. */

#define SETTINGS_MAX 65536u

struct names {
    char (*key)[LIMIT_KEY + 1];
    int64_t *made_ns;
    size_t count, cap;
};

static int
add_name(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct names *names = arg;
    size_t len = strlen(entry->key);
    if (len < 5 || len > LIMIT_KEY || strcmp(entry->key + len - 5, ".json") != 0)
        return 0;
    if (names->count == names->cap) {
        size_t cap = names->cap == 0 ? 16 : names->cap * 2;
        void *keys = reallocarray(names->key, cap, sizeof(*names->key));
        if (keys == NULL)
            return err_nomem(err);
        names->key = keys;
        int64_t *times = reallocarray(names->made_ns, cap, sizeof(*times));
        if (times == NULL)
            return err_nomem(err);
        names->made_ns = times;
        names->cap = cap;
    }
    text_set(names->key[names->count], entry->key);
    names->made_ns[names->count++] = entry->last_modified_ns;
    return 0;
}

static int
insert_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return admin_insert(tx, arg, err);
}

/* 1: no volume comes of it, and why. */
static int
take_volume(const struct rebuild_find *find, const char *key, struct index_volume *row,
            struct err *err)
{
    scope_free char *data = NULL;
    size_t len;
    struct store_object object;
    int64_t made_ns = row->created_ns;
    store_object_init(&object);
    int rc = store_get_small(find->store, key, SETTINGS_MAX, &data, &len, &object, err);
    store_object_release(&object);
    if (rc != 0) /* removed since it was listed, or far too large */
        return err->code == ERR_NOT_FOUND || err->code == ERR_TOO_LARGE ? 1 : -1;
    if (admin_settings_read(data, len, row, err) != 0)
        return err->code == ERR_NOMEM ? -1 : 1;
    const char *name = key + sizeof(VOLUMES_PREFIX) - 1;
    size_t name_len = strlen(name) - 5;
    if (strlen(row->name) != name_len || memcmp(row->name, name, name_len) != 0) {
        (void)err_set(err, ERR_INVAL, "they name volume '%s'", row->name);
        return 1;
    }
    row->created_ns = made_ns;
    if (index_write(find->index, INDEX_NORMAL, insert_tx, row, err) == 0)
        return 0;
    return err->code == ERR_EXISTS || err->code == ERR_INVAL ? 1 : -1;
}

static int
take_all(const struct rebuild_find *find, const struct names *names, struct err *err)
{
    for (size_t i = 0; i < names->count; i++) {
        if (find->only != NULL && strcmp(names->key[i], find->only) != 0)
            continue;
        struct index_volume row = { .created_ns = names->made_ns[i] };
        struct err why = ERR_INIT;
        int rc = take_volume(find, names->key[i], &row, &why);
        if (rc < 0) {
            *err = why;
            return -1;
        }
        if (rc == 1) {
            log_warn(volume, "settings in the bucket are left out key=%s why=%s", names->key[i],
                     why.msg);
            (void)snprintf(find->left_out, LIMIT_ERR_MSG, "'%.100s': %.250s", names->key[i],
                           why.msg);
        } else if (find->fn != NULL && find->fn(find->arg, &row, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int
rebuild_volumes(const struct rebuild_find *find, struct err *err)
{
    struct names names = { 0 };
    struct store_list list = { .prefix = VOLUMES_PREFIX, .fn = add_name, .arg = &names };
    find->left_out[0] = '\0';
    int rc = store_list(find->store, &list, err);
    if (rc != 0)
        (void)err_wrap(err, "cannot list the volumes in the bucket");
    else
        rc = take_all(find, &names, err);
    free(names.key);
    free(names.made_ns);
    return rc;
}
