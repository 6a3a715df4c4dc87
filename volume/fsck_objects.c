#include "base/path.h"
#include "base/scope.h"
#include "volume/fsck_impl.h"

/*
 * The objects of a volume, as one listing shows them, merged with the rows of its keys: both come in bytewise order. Where they
 * differ, the key is looked at again by itself, because both move while the gateway works.
 */

#define PAGE 256u
#define OURS ".holdfast/"

struct walk {
    struct fsck *fsck;
    const struct index_volume *volume;
    struct index_key *row; /* PAGE */
    size_t count, at;
    char after[LIMIT_KEY + 1];
    bool ended;
    bool ours;                  /* an empty prefix: the listing came to our own objects */
    char parent[LIMIT_KEY + 1]; /* the folder that was judged last, and whether it was listed */
    bool parent_known, parent_listed;
};

/* ---- one key ---- */

struct look {
    struct walk *walk;
    const char *key;
    struct index_key row;
    struct index_node owner;
    struct index_content content;
    bool has_row, has_owner, has_content, busy;
    struct observed seen;
};

static bool
get(int rc, const struct err *local, int *fatal, struct err *err)
{
    if (rc != 0 && local->code != ERR_NOT_FOUND) {
        *err = *local;
        *fatal = -1;
    }
    return rc == 0;
}

static int
look_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct look *look = arg;
    struct index_intent intent;
    struct err local = ERR_INIT;
    int fatal = 0;
    look->has_row = get(index_key_get(tx, look->key, &look->row, &local), &local, &fatal, err);
    local = (struct err)ERR_INIT;
    look->busy = get(index_intent_get(tx, look->key, &intent, &local), &local, &fatal, err);
    local = (struct err)ERR_INIT;
    look->has_owner =
        look->has_row && look->row.owner > 0 &&
        get(index_node_get(tx, look->row.owner, &look->owner, &local), &local, &fatal, err);
    local = (struct err)ERR_INIT;
    look->has_content = look->has_owner && look->owner.content != 0 &&
                        get(index_content_get(tx, look->owner.content, &look->content, &local),
                            &local, &fatal, err);
    return fatal;
}

static int
mend_observe(struct fsck *fsck, void *arg, struct err *err)
{
    const struct look *look = arg;
    return bucket_observe_key(fsck->service, look->walk->volume->id, look->key, err);
}

/* The only copy of these bytes is the one in the cache: it becomes a conflict before the name goes. */
static int
keep_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct look *look = arg;
    struct volume_service *service = look->walk->fsck->service;
    if (look_tx(tx, look, err) != 0)
        return -1;
    bool whole = look->has_content && look->content.state == CONTENT_CLEAN &&
                 (look->content.flags & CONTENT_COMPLETE) != 0 && !look->busy;
    if (!whole || look->owner.kind != INDEX_FILE)
        return 0;
    struct view_loser loser = { .content = &look->content, .reason = "deleted" };
    look->owner.content = 0;
    if (view_keep_loser(service, tx, &look->owner, &loser, err) != 0)
        return -1;
    return index_node_update(tx, &look->owner, err);
}

static int
mend_missing(struct fsck *fsck, void *arg, struct err *err)
{
    struct look *look = arg;
    if (look->has_owner && inode_open_count(&fsck->service->inodes, look->owner.id) > 0)
        return err_set(err, ERR_BUSY, "a program has the file open");
    if (index_write(fsck->service->index, INDEX_FULL, keep_tx, look, err) != 0)
        return -1;
    return mend_observe(fsck, arg, err);
}

static int
resize_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct look *look = arg;
    if (look_tx(tx, look, err) != 0)
        return -1;
    if (!look->has_row || strcmp(look->row.etag, look->seen.etag) != 0)
        return 0;
    look->row.size = look->seen.size;
    if (index_key_put(tx, &look->row, err) != 0)
        return -1;
    if (!look->has_owner || look->has_content || look->owner.kind != INDEX_FILE)
        return 0;
    look->owner.size = look->seen.size;
    return index_node_update(tx, &look->owner, err);
}

static int
mend_size(struct fsck *fsck, void *arg, struct err *err)
{
    return index_write(fsck->service->index, INDEX_NORMAL, resize_tx, arg, err);
}

static int
forget_tx(struct index_tx *tx, void *arg, struct err *err)
{
    const struct look *look = arg;
    return index_key_delete(tx, look->key, err);
}

static int
mend_ownerless(struct fsck *fsck, void *arg, struct err *err)
{
    if (index_write(fsck->service->index, INDEX_NORMAL, forget_tx, arg, err) != 0)
        return -1;
    return mend_observe(fsck, arg, err);
}

static const struct fsck_fault unknown = {
    "object-unknown",
    "an object lies in the bucket that the index does not know: another client "
    "put it there since its folder was listed",
    "it is looked at and shown as a file", mend_observe
};
static const struct fsck_fault missing = {
    "object-missing",
    "the object of a file is not in the bucket any more: another client removed it",
    "bytes that the cache still has are kept as a conflict, then the name goes, as it would when "
    "the "
    "folder is listed again",
    mend_missing
};
static const struct fsck_fault changed = {
    "object-changed", "the object is another one than the index knows: another client wrote it",
    "it is looked at and its bytes are shown", mend_observe
};
static const struct fsck_fault wrong_size = { "row-wrong",
                                              "the index has another size for this very object",
                                              "the index takes the size that the bucket tells",
                                              mend_size };
static const struct fsck_fault ownerless = { "row-without-file",
                                             "the index says whose object this is, but has no such "
                                             "file",
                                             "the object is looked at and shown as a file",
                                             mend_ownerless };

static const struct fsck_fault *
judge(const struct look *look)
{
    const struct observed *seen = &look->seen;
    if (!look->has_row)
        return seen->present ? &unknown : NULL;
    if (!seen->present)
        return &missing;
    if (strcmp(look->row.etag, seen->etag) != 0)
        return &changed;
    if (look->row.size != seen->size)
        return &wrong_size;
    return look->row.owner > 0 && !look->has_owner ? &ownerless : NULL;
}

/* Looks at one key. What has work, or changed while it was asked for, is no finding. */
static int
suspect(struct walk *walk, const char *key, struct err *err)
{
    scope_free struct look *look = calloc(1, sizeof(*look));
    struct store_object object;
    struct object_attrs attrs;
    struct err local = ERR_INIT;
    if (look == NULL)
        return err_nomem(err);
    look->walk = walk;
    look->key = key;
    struct volume_service *service = walk->fsck->service;
    if (index_read(service->index, look_tx, look, err) != 0)
        return -1;
    if (look->busy)
        return 0;
    bool had = look->has_row;
    uint64_t sequence = look->row.sequence;
    store_object_init(&object);
    int rc = store_head(service->store, key, 0, &object, &local);
    if (rc == 0)
        object_read(&object, &look->seen, &attrs);
    store_object_release(&object);
    if (rc != 0 && local.code != ERR_NOT_FOUND) {
        *err = local;
        return -1;
    }
    if (index_read(service->index, look_tx, look, err) != 0)
        return -1;
    bool moved = look->has_row != had || (had && look->row.sequence != sequence);
    const struct fsck_fault *fault = look->busy || moved ? NULL : judge(look);
    return fault == NULL ? 0 : fsck_tell(walk->fsck, fault, walk->volume->name, key, look, err);
}

/* ---- which objects have to be known ---- */

struct listed_call {
    const struct walk *walk;
    const char *rest; /* the folders, each with its slash */
    bool listed;
};

/* Whether every folder down to there was listed, so that what is not known was not there then. */
static int
listed_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct listed_call *call = arg;
    struct index_node dir;
    struct err local = ERR_INIT;
    const char *slash;
    call->listed = false;
    if (index_node_get(tx, call->walk->volume->root, &dir, err) != 0)
        return -1;
    for (const char *at = call->rest;; at = slash + 1) {
        if (dir.kind != INDEX_DIR || !service_listed(call->walk->fsck->service, &dir))
            return 0;
        if ((slash = strchr(at, '/')) == NULL)
            break;
        if (path_check_name(at, (size_t)(slash - at), &local) != 0)
            return 0; /* cannot be shown */
        if (index_node_child(tx, dir.id, at, (size_t)(slash - at), &dir, &local) != 0) {
            call->listed = local.code == ERR_NOT_FOUND;
            return 0;
        }
    }
    call->listed = true;
    return 0;
}

/* The parent's part of a key behind the prefix: up to the last slash, which may be a marker's own. */
static size_t
parent_len(const char *rest)
{
    size_t len = strlen(rest);
    if (len > 0 && rest[len - 1] == '/')
        len--;
    while (len > 0 && rest[len - 1] != '/')
        len--;
    return len;
}

static int
is_expected(struct walk *walk, const char *key, bool *out, struct err *err)
{
    const char *rest = key + strlen(walk->volume->prefix);
    size_t len = parent_len(rest), name_len = strlen(rest + len);
    struct err bad = ERR_INIT;
    name_len -= name_len > 0 && rest[len + name_len - 1] == '/';
    *out = path_check_name(rest + len, name_len, &bad) == 0;
    if (!*out)
        return 0;
    char parent[LIMIT_KEY + 1];
    memcpy(parent, rest, len);
    parent[len] = '\0';
    if (!walk->parent_known || strcmp(walk->parent, parent) != 0) {
        struct listed_call call = { .walk = walk, .rest = parent };
        if (index_read(walk->fsck->service->index, listed_tx, &call, err) != 0)
            return -1;
        text_set(walk->parent, parent);
        walk->parent_known = true;
        walk->parent_listed = call.listed;
    }
    *out = walk->parent_listed;
    walk->fsck->out->unlisted += !*out;
    return 0;
}

/* ---- merging ---- */

static int
add_row(void *arg, const struct index_key *row, struct err *err)
{
    struct walk *walk = arg;
    (void)err;
    text_set(walk->after, row->key);
    if (walk->volume->prefix[0] != '\0' || strncmp(row->key, OURS, sizeof(OURS) - 1) != 0)
        walk->row[walk->count++] = *row;
    return 0;
}

static int
page_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct walk *walk = arg;
    return index_key_range(tx, walk->volume->prefix, walk->after, PAGE, add_row, walk, err);
}

/* The next row; NULL in *out at the end. */
static int
peek_row(struct walk *walk, const struct index_key **out, struct err *err)
{
    char before[LIMIT_KEY + 1];
    while (walk->at == walk->count && !walk->ended) {
        text_set(before, walk->after);
        walk->at = walk->count = 0;
        if (index_read(walk->fsck->service->index, page_tx, walk, err) != 0)
            return -1;
        walk->ended = strcmp(before, walk->after) == 0;
    }
    *out = walk->at < walk->count ? &walk->row[walk->at] : NULL;
    return 0;
}

/* Rows below `key` (NULL: all that are left) have no object in the listing. */
static int
rows_before(struct walk *walk, const char *key, struct err *err)
{
    const struct index_key *row;
    for (;;) {
        if (peek_row(walk, &row, err) != 0)
            return -1;
        if (row == NULL || (key != NULL && strcmp(row->key, key) >= 0))
            return 0;
        if (suspect(walk, row->key, err) != 0)
            return -1;
        walk->at++;
    }
}

static bool
is_settled(struct walk *walk, const struct index_key *row, const struct store_list_entry *entry)
{
    (void)walk;
    return entry->etag != NULL && strcmp(row->etag, entry->etag) == 0 && row->size == entry->size;
}

struct owner_call {
    int64_t id;
    bool there;
};

static int
owner_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct owner_call *call = arg;
    struct index_node node;
    struct err local = ERR_INIT;
    int fatal = 0;
    call->there = get(index_node_get(tx, call->id, &node, &local), &local, &fatal, err);
    return fatal;
}

static int
meet(struct walk *walk, const struct store_list_entry *entry, struct err *err)
{
    const struct index_key *row;
    bool expected;
    if (rows_before(walk, entry->key, err) != 0 || peek_row(walk, &row, err) != 0)
        return -1;
    if (row == NULL || strcmp(row->key, entry->key) != 0) {
        if (is_expected(walk, entry->key, &expected, err) != 0)
            return -1;
        return expected ? suspect(walk, entry->key, err) : 0;
    }
    walk->at++;
    if (!is_settled(walk, row, entry))
        return suspect(walk, entry->key, err);
    if (row->owner <= 0)
        return 0;
    struct owner_call owner = { .id = row->owner };
    if (index_read(walk->fsck->service->index, owner_tx, &owner, err) != 0)
        return -1;
    return owner.there ? 0 : suspect(walk, entry->key, err);
}

static int
add_entry(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct walk *walk = arg;
    struct fsck *fsck = walk->fsck;
    if (walk->volume->prefix[0] == '\0' && strncmp(entry->key, OURS, sizeof(OURS) - 1) == 0) {
        walk->ours = true;
        return err_set(err, ERR_CANCELED, "Holdfast's own objects");
    }
    if (++fsck->out->objects % 1000 == 0) {
        fsck_progress(fsck, "objects", fsck->out->objects);
        if (fsck_go_on(fsck, err) != 0)
            return -1;
    }
    return meet(walk, entry, err);
}

static int
list_all(struct walk *walk, struct err *err)
{
    struct store_list list = { .prefix = walk->volume->prefix, .fn = add_entry, .arg = walk };
    struct err local = ERR_INIT;
    if (store_list(walk->fsck->service->store, &list, &local) == 0)
        return 0;
    if (!walk->ours) {
        *err = local;
        return -1;
    }
    list.start_after = OURS "~";
    return store_list(walk->fsck->service->store, &list, err);
}

int
fsck_objects(struct fsck *fsck, const struct index_volume *volume, struct err *err)
{
    scope_free struct walk *walk = calloc(1, sizeof(*walk));
    scope_free struct index_key *row = calloc(PAGE, sizeof(*row));
    if (walk == NULL || row == NULL)
        return err_nomem(err);
    walk->fsck = fsck;
    walk->volume = volume;
    walk->row = row;
    if (list_all(walk, err) != 0 || rows_before(walk, NULL, err) != 0)
        return err_wrap(err, "cannot check the objects of volume '%s'", volume->name);
    return 0;
}
