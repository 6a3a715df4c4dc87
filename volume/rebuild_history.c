#include "base/log.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/preserve_impl.h"
#include "volume/rebuild_impl.h"

/*
 * The history from the bucket: each copy's key tells volume, path and when it went, its metadata the version and who made it. Who ended
 * it lies in the index alone; what is known afterwards is whether something followed.
 */

#define SIDE_MAX 4096u

struct look {
    struct store *store;
    char key[LIMIT_KEY + 1];
    struct index_history row;
    bool gone; /* pruned since it was listed */
};

struct copies {
    struct rebuild *rebuild;
    rebuild_skip_fn *skip;
    void *skip_arg;
    struct look *look; /* REBUILD_BATCH */
    size_t count;
    uint64_t done;
    /* The last path that stands in a side record, and its folder. */
    char side[LIMIT_KEY + 1];
    char path[LIMIT_PATH + 1];
};

static void
take_text(const struct meta *meta, const char *name, char *out, size_t size)
{
    const char *value = meta_get(meta, name);
    if (value != NULL && strlen(value) < size)
        text_copy(out, size, value);
}

static void
fill_row(const struct store_object *object, struct index_history *row)
{
    struct observed seen;
    struct object_attrs attrs;
    object_read(object, &seen, &attrs);
    row->size = seen.size;
    text_set(row->etag, seen.etag);
    text_set(row->source_etag, seen.etag);
    row->uid = attrs.uid;
    row->gid = attrs.gid;
    row->mtime_ns = attrs.mtime_ns;
    row->mode = attrs.has_mode ? attrs.mode : 0;
    if (!identity_believed(&seen, NULL))
        return; /* a foreign version: its ETag names it */
    text_set(row->version, seen.version);
    text_set(row->base_version, seen.base);
    text_set(row->sha256, seen.sha256);
    row->made_ns = ulid_time_ms(seen.version) * NS_PER_MS;
    take_text(&object->meta, "holdfast-actor", row->actor, sizeof(row->actor));
    take_text(&object->meta, "holdfast-run", row->run, sizeof(row->run));
}

static int
look_at(void *arg, struct err *err)
{
    struct look *look = arg;
    struct store_object object;
    struct err local = ERR_INIT;
    store_object_init(&object);
    int rc = store_head(look->store, look->key, 0, &object, &local);
    if (rc == 0)
        fill_row(&object, &look->row);
    store_object_release(&object);
    look->gone = rc != 0 && local.code == ERR_NOT_FOUND;
    if (rc == 0 || look->gone)
        return 0;
    *err = local;
    return -1;
}

/* What followed at the path: a newer copy, or what is there now. */
static int
fill_end(struct index_tx *tx, const struct copies *copies, size_t at, struct index_history *row,
         struct err *err)
{
    struct index_node node = { .id = 0 };
    struct index_volume volume;
    struct err missing = ERR_INIT;
    char key[LIMIT_KEY + 1];
    const struct look *next = at + 1 < copies->count ? &copies->look[at + 1] : NULL;
    (void)snprintf(row->gone_op, sizeof(row->gone_op), "write");
    if (next != NULL && next->row.volume == row->volume && strcmp(next->row.path, row->path) == 0) {
        if (row->version[0] != '\0' && strcmp(next->row.base_version, row->version) == 0) {
            text_set(row->gone_actor, next->row.actor);
            text_set(row->gone_run, next->row.run);
        }
        return 0;
    }
    if (index_volume_get(tx, row->volume, &volume, err) != 0 ||
        key_of_path(&volume, row->path, false, key, err) != 0)
        return -1;
    if (key_to_node(tx, &volume, key, &node, &missing) == 0)
        return 0;
    (void)snprintf(row->gone_op, sizeof(row->gone_op), "delete");
    return 0;
}

static int
put_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct copies *copies = arg;
    for (size_t i = 0; i < copies->count; i++) {
        struct look *look = &copies->look[i];
        if (!look->gone && (fill_end(tx, copies, i, &look->row, err) != 0 ||
                            index_history_put(tx, &look->row, err) != 0))
            return -1;
    }
    return 0;
}

static int
flush_page(struct copies *copies, struct err *err)
{
    struct rebuild *rebuild = copies->rebuild;
    if (copies->count == 0)
        return 0;
    if (rebuild_look_many(copies->look, sizeof(*copies->look), copies->count, look_at, err) != 0 ||
        index_write(rebuild->index, INDEX_NORMAL, put_tx, copies, err) != 0)
        return -1;
    for (size_t i = 0; i < copies->count; i++)
        rebuild->out->history += !copies->look[i].gone;
    copies->done += copies->count;
    copies->count = 0;
    rebuild_progress(rebuild, "versions", "", copies->done);
    return 0;
}

/* A path too long for a key lies in a record beside the copies, in a folder named by its hash. 1: it is not there. */
static int
read_side(struct copies *copies, const char *folder, size_t len, struct err *err)
{
    char key[LIMIT_KEY + 1];
    scope_free char *data = NULL;
    size_t size;
    struct err local = ERR_INIT;
    if (strlen(copies->side) == len && memcmp(copies->side, folder, len) == 0)
        return copies->path[0] == '\0';
    (void)snprintf(copies->side, sizeof(copies->side), "%.*s", (int)len, folder);
    copies->path[0] = '\0';
    (void)snprintf(key, sizeof(key), "%.*s/path", (int)len, folder);
    if (store_get_small(copies->rebuild->store, key, SIDE_MAX, &data, &size, NULL, &local) == 0) {
        if (path_check(data, size, &local) == 0 && size <= LIMIT_PATH)
            text_set(copies->path, data);
    } else if (local.code != ERR_NOT_FOUND && local.code != ERR_TOO_LARGE) {
        *err = local;
        return -1;
    }
    return copies->path[0] == '\0';
}

/* `.holdfast/history/<volume>/<path>/<ULID>`. 1: it is none. */
static int
parse_key(struct copies *copies, const char *key, const struct index_volume **volume,
          const char **path, size_t *path_len, struct err *err)
{
    const char *name = key + sizeof(HISTORY_PREFIX) - 1;
    const char *id = strrchr(key, '/') + 1;
    size_t len = strcspn(name, "/");
    if (!ulid_valid(id) || name + len + 2 > id)
        return 1;
    *volume = rebuild_volume(copies->rebuild, name, len);
    if (*volume == NULL) {
        copies->rebuild->out->volumeless++;
        return 1;
    }
    *path = name + len + 1;
    *path_len = (size_t)(id - 1 - *path);
    if (strncmp(*path, "~/", 2) == 0) {
        int rc = read_side(copies, key, (size_t)(id - 1 - key), err);
        *path = copies->path;
        *path_len = strlen(copies->path);
        copies->rebuild->out->nameless += rc == 1;
        return rc;
    }
    struct err bad = ERR_INIT;
    return path_check(*path, *path_len, &bad) == 0 ? 0 : 1;
}

static int
add_copy(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct copies *copies = arg;
    const struct index_volume *volume;
    const char *path;
    size_t len;
    bool skip = false;
    int rc = parse_key(copies, entry->key, &volume, &path, &len, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    const char *id = strrchr(entry->key, '/') + 1;
    if (copies->skip != NULL &&
        copies->skip(copies->skip_arg, volume, id, entry->key, &skip, err) != 0)
        return -1;
    if (skip)
        return 0;
    struct look *look = &copies->look[copies->count];
    memset(look, 0, sizeof(*look));
    look->store = copies->rebuild->store;
    look->row.volume = volume->id;
    look->row.state = INDEX_HISTORY_KEPT;
    look->row.gone_ns = ulid_time_ms(id) * NS_PER_MS;
    text_set(look->key, entry->key);
    text_set(look->row.id, id);
    (void)snprintf(look->row.path, sizeof(look->row.path), "%.*s", (int)len, path);
    return ++copies->count < REBUILD_BATCH ? 0 : flush_page(copies, err);
}

int
rebuild_history(struct rebuild *rebuild, rebuild_skip_fn *skip, void *arg, struct err *err)
{
    struct copies copies = { .rebuild = rebuild, .skip = skip, .skip_arg = arg };
    scope_free struct look *look = calloc(REBUILD_BATCH, sizeof(*look));
    if (look == NULL)
        return err_nomem(err);
    copies.look = look;
    struct store_list list = { .prefix = HISTORY_PREFIX, .fn = add_copy, .arg = &copies };
    int rc = store_list(rebuild->store, &list, err);
    if (rc == 0)
        rc = flush_page(&copies, err);
    return rc == 0 ? 0 : err_wrap(err, "cannot take in the history");
}
