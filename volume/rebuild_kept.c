#include "base/log.h"
#include "base/scope.h"
#include "volume/loser_meta.h"
#include "volume/rebuild_impl.h"

/* What lies below `.holdfast/` for a volume: losers of conflicts, each looked at, and what exchanges of names left. */

#define PARK_PREFIX ".holdfast/park/"

int
rebuild_read_loser(struct store *store, const char *key, int64_t volume, struct rebuild_loser *out,
                   struct err *err)
{
    struct store_object object;
    struct observed seen;
    struct object_attrs attrs;
    memset(out, 0, sizeof(*out));
    store_object_init(&object);
    int rc = store_head(store, key, 0, &object, err);
    if (rc == 0)
        rc = loser_meta_read(&object.meta, &out->row, err);
    if (rc == 0)
        object_read(&object, &seen, &attrs);
    store_object_release(&object);
    if (rc != 0)
        return -1;
    const char *id = strrchr(key, '/') + 1;
    text_set(out->row.id, id);
    out->row.volume = volume;
    out->row.synced = true;
    out->row.time_ns = ulid_time_ms(id) * NS_PER_MS;
    if (out->row.reason[0] == '\0')
        (void)snprintf(out->row.reason, sizeof(out->row.reason), "conflict");
    if (out->row.path[0] == '\0') /* written before the objects told their paths */
        (void)snprintf(out->row.path, sizeof(out->row.path), "unknown-path-%s", id);
    out->key = (struct index_key){ .volume = volume, .size = seen.size, .owner = -1 };
    text_set(out->key.key, key);
    text_set(out->key.etag, seen.etag);
    text_set(out->key.version, seen.version);
    text_set(out->key.sha256, seen.sha256);
    return 0;
}

int
rebuild_put_loser(struct index_tx *tx, const struct rebuild_loser *loser, struct err *err)
{
    return index_conflict_put(tx, &loser->row, err) != 0 ? -1 : index_key_put(tx, &loser->key, err);
}

/* ---- conflicts, a page at a time ---- */

struct look {
    struct store *store;
    char key[LIMIT_KEY + 1];
    int64_t volume;
    struct rebuild_loser loser;
    bool gone; /* resolved by another gateway since it was listed */
};

struct kept {
    struct rebuild *rebuild;
    struct look *look;
    size_t count;
    uint64_t done;
};

static int
look_at(void *arg, struct err *err)
{
    struct look *look = arg;
    struct err local = ERR_INIT;
    if (rebuild_read_loser(look->store, look->key, look->volume, &look->loser, &local) == 0)
        return 0;
    look->gone = local.code == ERR_NOT_FOUND;
    if (!look->gone)
        *err = local;
    return look->gone ? 0 : -1;
}

static int
put_tx(struct index_tx *tx, void *arg, struct err *err)
{
    const struct kept *kept = arg;
    for (size_t i = 0; i < kept->count; i++)
        if (!kept->look[i].gone && rebuild_put_loser(tx, &kept->look[i].loser, err) != 0)
            return -1;
    return 0;
}

static int
flush_page(struct kept *kept, struct err *err)
{
    struct rebuild *rebuild = kept->rebuild;
    if (kept->count == 0)
        return 0;
    if (rebuild_look_many(kept->look, sizeof(*kept->look), kept->count, look_at, err) != 0 ||
        index_write(rebuild->index, INDEX_NORMAL, put_tx, kept, err) != 0)
        return -1;
    for (size_t i = 0; i < kept->count; i++)
        rebuild->out->conflicts += !kept->look[i].gone;
    kept->done += kept->count;
    kept->count = 0;
    rebuild_progress(rebuild, "conflicts", "", kept->done);
    return 0;
}

/* `<prefix><volume>/<ULID>`; NULL when it is none, or its volume is not there. */
static const struct index_volume *
volume_of(struct rebuild *rebuild, const char *prefix, const char *key)
{
    const char *name = key + strlen(prefix);
    size_t len = strcspn(name, "/");
    if (name[len] != '/' || !ulid_valid(name + len + 1))
        return NULL;
    const struct index_volume *volume = rebuild_volume(rebuild, name, len);
    rebuild->out->volumeless += volume == NULL;
    return volume;
}

static int
add_conflict(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct kept *kept = arg;
    const struct index_volume *volume = volume_of(kept->rebuild, CONFLICT_PREFIX, entry->key);
    if (volume == NULL)
        return 0;
    struct look *look = &kept->look[kept->count];
    memset(look, 0, sizeof(*look));
    look->store = kept->rebuild->store;
    look->volume = volume->id;
    text_set(look->key, entry->key);
    return ++kept->count < REBUILD_BATCH ? 0 : flush_page(kept, err);
}

int
rebuild_conflicts(struct rebuild *rebuild, struct err *err)
{
    scope_free struct look *look = calloc(REBUILD_BATCH, sizeof(*look));
    if (look == NULL)
        return err_nomem(err);
    struct kept kept = { .rebuild = rebuild, .look = look };
    struct store_list list = { .prefix = CONFLICT_PREFIX, .fn = add_conflict, .arg = &kept };
    int rc = store_list(rebuild->store, &list, err);
    if (rc == 0)
        rc = flush_page(&kept, err);
    return rc == 0 ? 0 : err_wrap(err, "cannot take in the conflicts");
}

static int
count_parked(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct rebuild *rebuild = arg;
    (void)err;
    rebuild->out->parked += volume_of(rebuild, PARK_PREFIX, entry->key) != NULL;
    return 0;
}

int
rebuild_parked(struct rebuild *rebuild, struct err *err)
{
    struct store_list list = { .prefix = PARK_PREFIX, .fn = count_parked, .arg = rebuild };
    return store_list(rebuild->store, &list, err);
}
