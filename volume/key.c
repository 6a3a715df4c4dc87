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

/* What is changed again and again goes up too: the time is bound to the first change that is not there yet. */
static int64_t
due_ns(const struct index_intent *intent, int64_t now, int64_t delay_ns)
{
    int64_t last = intent->since_ns + SYNC_RESTS * delay_ns;
    return now + delay_ns < last ? now + delay_ns : last < now ? now : last;
}

/* How long what this transaction makes rests: not where a close promises the bucket. */
static int
rest_of(struct index_tx *tx, int64_t volume, int64_t *out, struct err *err)
{
    struct index_volume row;
    *out = index_tx_rests(tx);
    if (*out == 0)
        return 0;
    if (index_volume_get(tx, volume, &row, err) != 0)
        return -1;
    if (row.sync_close)
        *out = 0;
    return 0;
}

static int
want(struct index_tx *tx, const struct index_intent *wanted, int64_t delay_ns, struct err *err)
{
    struct index_intent intent;
    struct err missing = ERR_INIT;
    int64_t now = clock_wall_ns();
    if (index_intent_get(tx, wanted->key, &intent, &missing) != 0) {
        if (missing.code != ERR_NOT_FOUND) {
            *err = missing;
            return -1;
        }
        intent = *wanted;
        intent.since_ns = now;
    }
    if (wanted->since_ns != 0 && wanted->since_ns < intent.since_ns)
        intent.since_ns = wanted->since_ns;
    /* A key that is backing off keeps its pace: a burst of writes must not hammer a store in trouble. */
    if (intent.tries == 0)
        intent.not_before_ns = due_ns(&intent, now, delay_ns);
    return index_intent_put(tx, &intent, err);
}

static void
wanted_fill(struct index_intent *out, int64_t volume, const char *key, int64_t since_ns)
{
    memset(out, 0, sizeof(*out));
    text_set(out->key, key);
    out->volume = volume;
    out->since_ns = since_ns;
}

int
key_want_sync(struct index_tx *tx, int64_t volume, const char *key, int64_t delay_ns,
              struct err *err)
{
    struct index_intent wanted;
    int64_t rest;
    wanted_fill(&wanted, volume, key, 0);
    if (rest_of(tx, volume, &rest, err) != 0)
        return -1;
    return want(tx, &wanted, rest > delay_ns ? rest : delay_ns, err);
}

int
key_want_again(struct index_tx *tx, int64_t volume, const char *key, int64_t since_ns,
               struct err *err)
{
    struct index_intent wanted;
    int64_t rest;
    wanted_fill(&wanted, volume, key, since_ns);
    return rest_of(tx, volume, &rest, err) != 0 ? -1 : want(tx, &wanted, rest, err);
}

int
key_want_since(struct index_tx *tx, int64_t volume, const char *key, int64_t since_ns,
               struct err *err)
{
    struct index_intent wanted;
    wanted_fill(&wanted, volume, key, since_ns);
    return want(tx, &wanted, 0, err);
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
