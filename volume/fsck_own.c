#include "base/scope.h"
#include "volume/admin_impl.h"
#include "volume/fsck_impl.h"
#include "volume/rebuild_impl.h"

/* What lies below `.holdfast/` in the bucket, and what the index says lies there: settings, losers of conflicts, objects that
 * exchanges of names left, uploads in parts. */

#define PARK_PREFIX ".holdfast/park/"
#define PAGE 256u
#define OLD_UPLOAD (24 * 3600 * NS_PER_S)

struct own {
    struct fsck *fsck;
    const struct index_volume *volume; /* of the object at hand */
    const char *key;
    char id[ULID_SIZE];
    struct rebuild_loser loser;
    bool known;
};

static bool
wanted(const struct fsck *fsck, const struct index_volume *volume)
{
    return volume != NULL && (fsck->args->volume == 0 || fsck->args->volume == volume->id);
}

/* `<prefix><volume>/<ULID>` of a volume that is checked. */
static bool
parse_key(struct own *own, const char *prefix, const char *key)
{
    const char *name = key + strlen(prefix);
    size_t len = strcspn(name, "/");
    if (name[len] != '/' || !ulid_valid(name + len + 1))
        return false;
    own->key = key;
    own->volume = fsck_volume(own->fsck, name, len);
    text_set(own->id, name + len + 1);
    return wanted(own->fsck, own->volume);
}

/* ---- conflicts ---- */

static int
put_loser_tx(struct index_tx *tx, void *arg, struct err *err)
{
    const struct own *own = arg;
    return rebuild_put_loser(tx, &own->loser, err);
}

static int
mend_conflict(struct fsck *fsck, void *arg, struct err *err)
{
    struct own *own = arg;
    if (rebuild_read_loser(fsck->service->store, own->key, own->volume->id, &own->loser, err) != 0)
        return -1;
    return index_write(fsck->service->index, INDEX_FULL, put_loser_tx, own, err);
}

static const struct fsck_fault conflict_unknown = {
    "conflict-unknown",
    "the bytes of a conflict lie in the bucket, and the index has no such conflict",
    "the conflict is taken into the list", mend_conflict
};
static const struct fsck_fault conflict_missing = {
    "conflict-missing", "the list has a conflict whose bytes are not in the bucket any more",
    "none: the entry stays, so that the loss is not hidden", NULL
};

static int
known_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct own *own = arg;
    struct index_conflict row;
    struct err local = ERR_INIT;
    own->known = index_conflict_get(tx, own->id, &row, &local) == 0;
    if (own->known || local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

static int
meet_conflict(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct own *own = arg;
    if (!parse_key(own, CONFLICT_PREFIX, entry->key))
        return 0;
    if (index_read(own->fsck->service->index, known_tx, own, err) != 0)
        return -1;
    return own->known
               ? 0
               : fsck_tell(own->fsck, &conflict_unknown, own->volume->name, entry->key, own, err);
}

struct losers {
    struct own *own;
    struct {
        int64_t volume;
        char id[ULID_SIZE];
    } * row;
    size_t count, cap;
};

static int
add_loser(void *arg, const struct index_conflict *row, struct err *err)
{
    struct losers *losers = arg;
    if (!row->synced)
        return 0;
    if (losers->count == losers->cap) {
        size_t cap = losers->cap == 0 ? 64 : losers->cap * 2;
        void *grown = reallocarray(losers->row, cap, sizeof(*losers->row));
        if (grown == NULL)
            return err_nomem(err);
        losers->row = grown;
        losers->cap = cap;
    }
    losers->row[losers->count].volume = row->volume;
    text_set(losers->row[losers->count].id, row->id);
    losers->count++;
    return 0;
}

static int
losers_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct losers *losers = arg;
    return index_conflict_each(tx, losers->own->fsck->args->volume, add_loser, losers, err);
}

static int
look_for_loser(struct own *own, int64_t volume, const char *id, struct err *err)
{
    struct fsck *fsck = own->fsck;
    struct store_object object;
    struct err local = ERR_INIT;
    char key[LIMIT_KEY + 1];
    own->volume = NULL;
    for (size_t i = 0; i < fsck->volume_count; i++)
        if (fsck->volume[i].id == volume)
            own->volume = &fsck->volume[i];
    if (own->volume == NULL)
        return 0;
    (void)snprintf(key, sizeof(key), CONFLICT_PREFIX "%s/%s", own->volume->name, id);
    store_object_init(&object);
    int rc = store_head(fsck->service->store, key, 0, &object, &local);
    store_object_release(&object);
    if (rc == 0)
        return 0;
    if (local.code != ERR_NOT_FOUND) {
        *err = local;
        return -1;
    }
    /* Resolved meanwhile: its row has gone too. */
    text_set(own->id, id);
    if (index_read(fsck->service->index, known_tx, own, err) != 0)
        return -1;
    return own->known ? fsck_tell(fsck, &conflict_missing, own->volume->name, key, own, err) : 0;
}

static int
check_conflicts(struct own *own, struct err *err)
{
    struct losers losers = { .own = own };
    struct store_list list = { .prefix = CONFLICT_PREFIX, .fn = meet_conflict, .arg = own };
    if (store_list(own->fsck->service->store, &list, err) != 0)
        return -1;
    int rc = index_read(own->fsck->service->index, losers_tx, &losers, err);
    for (size_t i = 0; rc == 0 && i < losers.count; i++)
        rc = look_for_loser(own, losers.row[i].volume, losers.row[i].id, err);
    free(losers.row);
    return rc;
}

/* ---- parked objects ---- */

/* Whose name these bytes had nobody knows: they become a conflict's, and only then the parked object goes. */
static int
mend_parked(struct fsck *fsck, void *arg, struct err *err)
{
    struct own *own = arg;
    struct store *store = fsck->service->store;
    struct store_object object;
    struct store_put_result result = { .outcome = STORE_NOT_DONE };
    enum store_outcome outcome;
    char to[LIMIT_KEY + 1], etag[LIMIT_ETAG];
    store_object_init(&object);
    int rc = store_head(store, own->key, 0, &object, err);
    struct store_copy copy = { .from = own->key, .to = to, .from_size = object.size };
    text_set(etag, object.etag);
    copy.from_if_match = etag;
    store_object_release(&object);
    (void)snprintf(to, sizeof(to), CONFLICT_PREFIX "%s/%s", own->volume->name, own->id);
    if (rc != 0 || store_copy(store, &copy, &result, err) != 0 ||
        rebuild_read_loser(store, to, own->volume->id, &own->loser, err) != 0)
        return -1;
    if (own->loser.key.size != copy.from_size)
        return err_set(err, ERR_STORE_BAD_ANSWER, "its copy has another length");
    if (index_write(fsck->service->index, INDEX_FULL, put_loser_tx, own, err) != 0)
        return -1;
    bool honoured = store->caps.delete_if_match == STORE_YES;
    struct store_delete gone = { .key = own->key, .if_match = honoured ? etag : NULL };
    return store_delete(store, &gone, &outcome, err);
}

static const struct fsck_fault parked = {
    "park-left",
    "an exchange of names left the bytes of a file aside, and nothing plans to fetch them",
    "they become a conflict, whose bytes can be read", mend_parked
};

static int
parked_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct own *own = arg;
    struct index_key row;
    struct err local = ERR_INIT;
    own->known = index_key_get(tx, own->key, &row, &local) == 0;
    if (!own->known && local.code != ERR_NOT_FOUND) {
        *err = local;
        return -1;
    }
    return 0;
}

struct copying_call {
    const char *key;
    bool found;
};

static int
see_upload(void *arg, const struct index_upload *row, struct err *err)
{
    struct copying_call *call = arg;
    (void)err;
    call->found |= strcmp(row->key, call->key) == 0;
    return 0;
}

static int
copying_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct copying_call *call = arg;
    return index_upload_of_key(tx, call->key, see_upload, call, err);
}

static int
meet_parked(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct own *own = arg;
    struct index *index = own->fsck->service->index;
    struct copying_call copying = { .key = entry->key };
    if (!parse_key(own, PARK_PREFIX, entry->key))
        return 0;
    /* A copy that is on its way has a row among the uploads first. */
    if (index_read(index, copying_tx, &copying, err) != 0 ||
        index_read(index, parked_tx, own, err) != 0)
        return -1;
    return own->known || copying.found
               ? 0
               : fsck_tell(own->fsck, &parked, own->volume->name, entry->key, own, err);
}

/* ---- settings ---- */

static int
mend_settings(struct fsck *fsck, void *arg, struct err *err)
{
    return admin_settings_put(fsck->service, arg, err);
}

static const struct fsck_fault settings_missing = {
    "settings-missing",
    "the settings of a volume are not in the bucket: a rebuild would not find it",
    "they are written there", mend_settings
};

static int
mend_volume(struct fsck *fsck, void *arg, struct err *err)
{
    char left_out[LIMIT_ERR_MSG];
    struct rebuild_find find = { .store = fsck->service->store,
                                 .index = fsck->service->index,
                                 .only = arg,
                                 .left_out = left_out };
    if (rebuild_volumes(&find, err) != 0)
        return -1;
    return left_out[0] == '\0' ? 0 : err_set(err, ERR_INVAL, "%s", left_out);
}

static const struct fsck_fault volume_unknown = {
    "volume-unknown",
    "the bucket holds a volume that this gateway does not know: another gateway made it",
    "it is taken in", mend_volume
};

struct settings {
    struct own *own;
    bool *seen; /* by volume */
};

static int
meet_settings(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct settings *settings = arg;
    struct fsck *fsck = settings->own->fsck;
    const char *name = entry->key + sizeof(VOLUMES_PREFIX) - 1;
    char volume[LIMIT_VOLUME_NAME + 1];
    size_t len = strlen(name);
    if (len < 6 || len - 5 > LIMIT_VOLUME_NAME || strcmp(name + len - 5, ".json") != 0)
        return 0;
    (void)snprintf(volume, sizeof(volume), "%.*s", (int)(len - 5), name);
    const struct index_volume *known = fsck_volume(fsck, volume, len - 5);
    if (known != NULL) {
        settings->seen[known - fsck->volume] = true;
        return 0;
    }
    if (fsck->args->volume != 0)
        return 0;
    char key[LIMIT_KEY + 1];
    text_set(key, entry->key);
    return fsck_tell(fsck, &volume_unknown, volume, key, key, err);
}

static int
check_settings(struct own *own, struct err *err)
{
    struct fsck *fsck = own->fsck;
    scope_free bool *seen = calloc(fsck->volume_count + 1, sizeof(*seen));
    char key[LIMIT_KEY + 1];
    if (seen == NULL)
        return err_nomem(err);
    struct settings settings = { own, seen };
    struct store_list list = { .prefix = VOLUMES_PREFIX, .fn = meet_settings, .arg = &settings };
    if (store_list(fsck->service->store, &list, err) != 0)
        return -1;
    for (size_t i = 0; i < fsck->volume_count; i++) {
        struct index_volume *volume = &fsck->volume[i];
        if (seen[i] || !wanted(fsck, volume))
            continue;
        (void)snprintf(key, sizeof(key), VOLUMES_PREFIX "%s.json", volume->name);
        if (fsck_tell(fsck, &settings_missing, volume->name, key, volume, err) != 0)
            return -1;
    }
    return 0;
}

/* ---- uploads in parts ---- */

static const struct fsck_fault upload_left = {
    "upload-unfinished",
    "an upload in parts was begun over a day ago and not ended; its parts cost like "
    "objects",
    "none: it may be another client's. 'aws s3api abort-multipart-upload' ends it", NULL
};

struct id_call {
    const char *key, *id;
    bool found;
};

static int
see_id(void *arg, const struct index_upload *row, struct err *err)
{
    struct id_call *call = arg;
    (void)err;
    call->found |= strcmp(row->id, call->id) == 0;
    return 0;
}

static int
id_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct id_call *call = arg;
    return index_upload_of_key(tx, call->key, see_id, call, err);
}

static int
meet_upload(void *arg, const struct store_upload *upload, struct err *err)
{
    struct own *own = arg;
    struct id_call call = { .key = upload->key, .id = upload->upload_id };
    int64_t age = upload->initiated_ns == 0 ? 0 : clock_wall_ns() - upload->initiated_ns;
    if (age <= OLD_UPLOAD)
        return 0;
    if (index_read(own->fsck->service->index, id_tx, &call, err) != 0)
        return -1;
    return call.found
               ? 0
               : fsck_tell(own->fsck, &upload_left, own->volume != NULL ? own->volume->name : NULL,
                           upload->key, own, err);
}

static int
check_uploads(struct own *own, struct err *err)
{
    struct fsck *fsck = own->fsck;
    struct store *store = fsck->service->store;
    if (store->caps.list_uploads != STORE_YES)
        return 0;
    own->volume = NULL;
    if (store_uploads(store, ".holdfast/", meet_upload, own, err) != 0)
        return -1;
    for (size_t i = 0; i < fsck->volume_count; i++) {
        own->volume = &fsck->volume[i];
        if (wanted(fsck, own->volume) &&
            store_uploads(store, own->volume->prefix, meet_upload, own, err) != 0)
            return -1;
    }
    return 0;
}

int
fsck_own(struct fsck *fsck, struct err *err)
{
    scope_free struct own *own = calloc(1, sizeof(*own));
    if (own == NULL)
        return err_nomem(err);
    own->fsck = fsck;
    struct store_list list = { .prefix = PARK_PREFIX, .fn = meet_parked, .arg = own };
    if (check_settings(own, err) != 0 || check_conflicts(own, err) != 0 ||
        store_list(fsck->service->store, &list, err) != 0 || check_uploads(own, err) != 0)
        return err_wrap(err, "cannot check '.holdfast/'");
    return 0;
}
