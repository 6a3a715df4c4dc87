#include <assert.h>

#include "base/path.h"
#include "volume/service_impl.h"

int
key_of_path(const struct index_volume *volume, const char *path, bool dir, char *out,
            struct err *err)
{
    int len = snprintf(out, LIMIT_KEY + 1, "%s%s%s", volume->prefix, path,
                       dir && path[0] != '\0' ? "/" : "");
    if (len < 0 || len > LIMIT_KEY)
        return err_set(err, ERR_NAME_TOO_LONG,
                       "the object's key would be over %d bytes: use a shorter path", LIMIT_KEY);
    return 0;
}

int
key_of_node(struct index_tx *tx, const struct index_node *node, char *out, struct err *err)
{
    struct index_volume volume;
    char path[LIMIT_PATH + 1];
    if (index_volume_get(tx, node->volume, &volume, err) != 0 ||
        index_node_path(tx, node->id, path, sizeof(path), err) != 0)
        return -1;
    return key_of_path(&volume, path, node->kind == INDEX_DIR, out, err);
}

int
key_to_node(struct index_tx *tx, const struct index_volume *volume, const char *key,
            struct index_node *out, struct err *err)
{
    size_t prefix = strlen(volume->prefix);
    if (strncmp(key, volume->prefix, prefix) != 0)
        return err_set(err, ERR_NOT_FOUND, "the key lies outside the volume");
    const char *rest = key + prefix;
    size_t rest_len = strlen(rest);
    bool dir = rest_len > 0 && rest[rest_len - 1] == '/';
    rest_len -= dir;
    memset(out, 0, sizeof(*out));
    out->id = volume->root;
    out->kind = INDEX_DIR;
    const char *name;
    size_t name_len;
    while (path_next(&rest, &rest_len, &name, &name_len)) {
        int64_t parent = out->id;
        if (name_len == 0 || name_len > LIMIT_NAME)
            return err_set(err, ERR_NOT_FOUND, "the key is not a path");
        if (index_node_child(tx, parent, name, name_len, out, err) != 0)
            return -1;
    }
    if ((out->kind == INDEX_DIR) != dir || out->id == volume->root)
        return err_set(err, ERR_NOT_FOUND, "nothing of this kind at the key");
    return 0;
}

int
key_want_sync(struct index_tx *tx, int64_t volume, const char *key, int64_t delay_ns,
              struct err *err)
{
    struct index_intent intent;
    struct err ignored = ERR_INIT;
    int64_t now = clock_wall_ns();
    if (index_intent_get(tx, key, &intent, &ignored) != 0) {
        if (ignored.code != ERR_NOT_FOUND) {
            *err = ignored;
            return -1;
        }
        memset(&intent, 0, sizeof(intent));
        text_set(intent.key, key);
        intent.volume = volume;
        intent.since_ns = now;
    } else if (intent.tries > 0) {
        /* A key that is backing off keeps its pace: a burst of writes must not hammer a store in trouble. */
        return 0;
    }
    intent.not_before_ns = now + delay_ns;
    return index_intent_put(tx, &intent, err);
}

int
key_want_since(struct index_tx *tx, int64_t volume, const char *key, int64_t since_ns,
               struct err *err)
{
    struct index_intent intent;
    if (key_want_sync(tx, volume, key, 0, err) != 0 || index_intent_get(tx, key, &intent, err) != 0)
        return -1;
    if (since_ns == 0 || since_ns >= intent.since_ns)
        return 0;
    intent.since_ns = since_ns;
    return index_intent_put(tx, &intent, err);
}

int
key_discard(struct index_tx *tx, int64_t volume, const char *key, struct err *err)
{
    struct index_key row;
    struct err missing = ERR_INIT;
    if (key[0] == '\0')
        return 0;
    if (index_key_get(tx, key, &row, &missing) == 0) {
        row.owner = 0;
        row.discard = true;
        if (index_key_put(tx, &row, err) != 0)
            return -1;
    } else if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    return key_want_sync(tx, volume, key, 0, err);
}
