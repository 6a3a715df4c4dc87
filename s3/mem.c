/*
 * The store in memory, for tests and the simulator. A sorted array of immutable, reference-counted objects under one
 * mutex; no callback runs with the mutex held.
 */
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/scope.h"
#include "s3/body.h"
#include "s3/open.h"

struct blob {
    size_t refs;
    size_t size;
    char data[];
};

struct item {
    size_t refs;
    struct blob *blob;
    struct store_object object;
    char key[];
};

struct mem_store {
    struct store store;
    pthread_mutex_t lock; /* guards everything below, and all reference counts */
    struct item **items;  /* sorted bytewise by key */
    size_t count;
    size_t cap;
    struct store_counters counters;
};

static struct mem_store *
mem_of(struct store *store)
{
    return (struct mem_store *)store;
}

static void
put_blob_locked(struct blob *blob)
{
    if (blob && --blob->refs == 0)
        free(blob);
}

static void
put_item_locked(struct item *item)
{
    if (!item || --item->refs > 0)
        return;
    put_blob_locked(item->blob);
    store_object_release(&item->object);
    free(item);
}

static void
drop_item(struct mem_store *mem, struct item *item)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&mem->lock);
    (void)held;
    put_item_locked(item);
}

static struct item *
new_item(const char *key, struct err *err)
{
    size_t len = strlen(key);
    struct item *item = calloc(1, sizeof(*item) + len + 1);

    if (!item) {
        err_nomem(err);
        return NULL;
    }
    item->refs = 1;
    store_object_init(&item->object);
    memcpy(item->key, key, len + 1);
    return item;
}

/* The place of the first key that is not smaller than `key`. */
static size_t
lower_bound_locked(const struct mem_store *mem, const char *key)
{
    size_t low = 0;
    size_t high = mem->count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (strcmp(mem->items[mid]->key, key) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct item *
find_locked(const struct mem_store *mem, const char *key)
{
    size_t at = lower_bound_locked(mem, key);

    if (at < mem->count && strcmp(mem->items[at]->key, key) == 0)
        return mem->items[at];
    return NULL;
}

/* Puts the item in, in the place of the one with the same key; takes over the reference. */
static int
insert_locked(struct mem_store *mem, struct item *item, struct err *err)
{
    size_t at = lower_bound_locked(mem, item->key);

    if (at < mem->count && strcmp(mem->items[at]->key, item->key) == 0) {
        put_item_locked(mem->items[at]);
        mem->items[at] = item;
        return 0;
    }
    if (mem->count == mem->cap) {
        size_t cap = mem->cap ? mem->cap * 2 : 64;
        struct item **items = reallocarray(mem->items, cap, sizeof(struct item *));
        if (!items)
            return err_nomem(err);
        mem->items = items;
        mem->cap = cap;
    }
    memmove(&mem->items[at + 1], &mem->items[at], (mem->count - at) * sizeof(struct item *));
    mem->items[at] = item;
    mem->count++;
    return 0;
}

static struct item *
acquire(struct mem_store *mem, const char *key, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&mem->lock);
    struct item *item = find_locked(mem, key);

    (void)held;
    if (item)
        item->refs++;
    else
        err_set(err, ERR_NOT_FOUND, "no object '%.200s' in '%s'", key, mem->store.url);
    return item;
}

static int
fill(struct store_object *out, const struct store_object *from, struct err *err)
{
    if (meta_copy(&out->meta, &from->meta, err) < 0)
        return -1;
    out->size = from->size;
    out->last_modified_ns = from->last_modified_ns;
    memcpy(out->etag, from->etag, sizeof(out->etag));
    memcpy(out->content_type, from->content_type, sizeof(out->content_type));
    return 0;
}

static void
count(struct mem_store *mem, uint64_t *kind)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&mem->lock);
    (void)held;
    mem->counters.requests++;
    (*kind)++;
}

static int
count_end(struct mem_store *mem, int rc, uint64_t up, uint64_t down)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&mem->lock);
    (void)held;
    mem->counters.bytes_up += up;
    mem->counters.bytes_down += down;
    if (rc < 0)
        mem->counters.errors++;
    return rc;
}

static int
mem_head(struct store *store, const char *key, int64_t deadline_ns, struct store_object *out,
         struct err *err)
{
    struct mem_store *mem = mem_of(store);
    struct item *item;
    int rc;

    (void)deadline_ns;
    count(mem, &mem->counters.heads);
    item = acquire(mem, key, err);
    rc = item ? fill(out, &item->object, err) : -1;
    drop_item(mem, item);
    return count_end(mem, rc, 0, 0);
}

static int
send_range(const struct item *item, const struct store_get *req, uint64_t *sent, struct err *err)
{
    uint64_t size = item->object.size;
    uint64_t len;

    if (req->if_match && strcmp(req->if_match, item->object.etag) != 0)
        return err_set(err, ERR_CONFLICT, "'%.200s' is no longer version %s", req->key,
                       req->if_match);
    if (req->off >= size && (req->off > 0 || req->len > 0))
        return err_set(err, ERR_RANGE, "range starts beyond the %llu bytes of '%.200s'",
                       (unsigned long long)size, req->key);
    len = size - req->off;
    if (req->len != 0 && req->len < len)
        len = req->len;
    if (len > 0 && req->sink(req->sink_arg, item->blob->data + req->off, (size_t)len, err) < 0)
        return -1;
    *sent = len;
    return 0;
}

static int
mem_get(struct store *store, const struct store_get *req, struct store_object *out, struct err *err)
{
    struct mem_store *mem = mem_of(store);
    uint64_t sent = 0;
    struct item *item;
    int rc = -1;

    count(mem, &mem->counters.gets);
    item = acquire(mem, req->key, err);
    if (item && send_range(item, req, &sent, err) == 0)
        rc = fill(out, &item->object, err);
    drop_item(mem, item);
    return count_end(mem, rc, 0, sent);
}

static int
load_body(struct item *item, const struct store_put *req, struct err *err)
{
    const struct store_body *body = &req->body;
    uint8_t md5_sum[MD5_SIZE];
    uint8_t sha256_sum[SHA256_SIZE];
    struct blob *blob;

    if (body->size > SIZE_MAX - sizeof(*blob) - 1)
        return err_nomem(err);
    blob = malloc(sizeof(*blob) + (size_t)body->size + 1);
    if (!blob)
        return err_nomem(err);
    item->blob = blob;
    blob->refs = 1;
    blob->size = (size_t)body->size;
    if (body_read(body, 0, blob->data, blob->size, err) < 0 ||
        md5(blob->data, blob->size, md5_sum, err) < 0)
        return -1;
    if (body->sha256 && sha256(blob->data, blob->size, sha256_sum, err) < 0)
        return -1;
    hex_encode(md5_sum, sizeof(md5_sum), item->object.etag);
    item->object.size = body->size;
    return body_verify(body, req->key, md5_sum, sha256_sum, err);
}

static struct item *
item_of_put(struct mem_store *mem, const struct store_put *req, struct err *err)
{
    const char *type = req->content_type ? req->content_type : "application/octet-stream";
    struct item *item = new_item(req->key, err);

    if (!item)
        return NULL;
    if (load_body(item, req, err) < 0 ||
        (req->meta && meta_copy(&item->object.meta, req->meta, err) < 0)) {
        drop_item(mem, item);
        return NULL;
    }
    (void)snprintf(item->object.content_type, sizeof(item->object.content_type), "%s", type);
    return item;
}

static int
judge_locked(const struct mem_store *mem, const struct store_put *req, struct err *err)
{
    const struct item *old = find_locked(mem, req->key);

    switch (req->cond.kind) {
    case STORE_COND_NONE:
        return 0;
    case STORE_COND_ABSENT:
        if (!old)
            return 0;
        return err_set(err, ERR_CONFLICT, "'%.200s' exists already", req->key);
    case STORE_COND_MATCH:
        if (old && strcmp(old->object.etag, req->cond.etag) == 0)
            return 0;
        break;
    }
    return err_set(err, ERR_CONFLICT, "'%.200s' is no longer version %s", req->key, req->cond.etag);
}

/* Judges and inserts in one step; takes the item over. */
static int
land(struct mem_store *mem, const struct store_put *req, struct item *item,
     struct store_put_result *res, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&mem->lock);

    (void)held;
    if (judge_locked(mem, req, err) < 0) {
        res->outcome = STORE_REFUSED;
        put_item_locked(item);
        return -1;
    }
    item->object.last_modified_ns = clock_wall_ns();
    memcpy(res->etag, item->object.etag, sizeof(res->etag));
    if (insert_locked(mem, item, err) < 0) {
        put_item_locked(item);
        return -1;
    }
    res->outcome = STORE_DONE;
    return 0;
}

static int
mem_put(struct store *store, const struct store_put *req, struct store_put_result *res,
        struct err *err)
{
    struct mem_store *mem = mem_of(store);
    struct item *item;
    int rc;

    count(mem, &mem->counters.puts);
    item = item_of_put(mem, req, err);
    rc = item ? land(mem, req, item, res, err) : -1;
    return count_end(mem, rc, req->body.size, 0);
}

static int
remove_key(struct mem_store *mem, const struct store_delete *req, enum store_outcome *outcome,
           struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&mem->lock);
    size_t at = lower_bound_locked(mem, req->key);
    struct item *old = find_locked(mem, req->key);

    (void)held;
    if (req->if_match && (!old || strcmp(old->object.etag, req->if_match) != 0)) {
        *outcome = STORE_REFUSED;
        return err_set(err, ERR_CONFLICT, "'%.200s' is no longer version %s", req->key,
                       req->if_match);
    }
    if (old) {
        put_item_locked(old);
        mem->count--;
        memmove(&mem->items[at], &mem->items[at + 1], (mem->count - at) * sizeof(struct item *));
    }
    *outcome = STORE_DONE;
    return 0;
}

static int
mem_del(struct store *store, const struct store_delete *req, enum store_outcome *outcome,
        struct err *err)
{
    struct mem_store *mem = mem_of(store);

    count(mem, &mem->counters.deletes);
    return count_end(mem, remove_key(mem, req, outcome, err), 0, 0);
}

static struct item *
item_of_copy(struct mem_store *mem, const struct store_copy *req, const struct item *from,
             struct err *err)
{
    struct item *item = new_item(req->to, err);

    if (!item)
        return NULL;
    if (fill(&item->object, &from->object, err) < 0 ||
        (req->meta && meta_copy(&item->object.meta, req->meta, err) < 0)) {
        drop_item(mem, item);
        return NULL;
    }
    pthread_mutex_lock(&mem->lock);
    item->blob = from->blob;
    item->blob->refs++;
    pthread_mutex_unlock(&mem->lock);
    return item;
}

static int
copy_item(struct mem_store *mem, const struct store_copy *req, const struct item *from,
          struct store_put_result *res, struct err *err)
{
    struct store_put as_put = { .key = req->to };
    struct item *item;

    if (req->from_if_match && strcmp(req->from_if_match, from->object.etag) != 0) {
        res->outcome = STORE_REFUSED;
        return err_set(err, ERR_CONFLICT, "'%.200s' is no longer version %s", req->from,
                       req->from_if_match);
    }
    item = item_of_copy(mem, req, from, err);
    return item ? land(mem, &as_put, item, res, err) : -1;
}

static int
mem_copy(struct store *store, const struct store_copy *req, struct store_put_result *res,
         struct err *err)
{
    struct mem_store *mem = mem_of(store);
    struct item *from;
    int rc = -1;

    count(mem, &mem->counters.copies);
    from = acquire(mem, req->from, err);
    if (from)
        rc = copy_item(mem, req, from, res, err);
    drop_item(mem, from);
    return count_end(mem, rc, 0, 0);
}

/* Where a listing stands: everything below `next` is done. */
struct cursor {
    const struct store_list *req;
    size_t prefix_len;
    char next[LIMIT_KEY + 3]; /* the smallest string that may come now */
    char common[LIMIT_KEY + 2];
};

/* The smallest string greater than every string that begins with common (which ends in the delimiter). */
static void
skip_common(struct cursor *cursor)
{
    size_t len = strlen(cursor->common);

    memcpy(cursor->next, cursor->common, len + 1);
    cursor->next[len - 1]++;
}

/* The smallest string greater than `key`: there is no byte smaller than 1 in a key. */
static void
skip_key(struct cursor *cursor, const char *key)
{
    size_t len = strlen(key);

    memcpy(cursor->next, key, len);
    cursor->next[len] = '\1';
    cursor->next[len + 1] = '\0';
}

static void
start_cursor(struct cursor *cursor, const struct store_list *req)
{
    cursor->req = req;
    cursor->prefix_len = strlen(req->prefix);
    (void)snprintf(cursor->next, sizeof(cursor->next), "%s", req->prefix);
    if (req->start_after && strcmp(req->start_after, req->prefix) >= 0)
        skip_key(cursor, req->start_after);
}

/* The next item of the listing with a reference, or NULL at its end; moves the cursor. */
static struct item *
advance(struct mem_store *mem, struct cursor *cursor)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&mem->lock);
    const struct store_list *req = cursor->req;
    size_t at = lower_bound_locked(mem, cursor->next);
    struct item *item = at < mem->count ? mem->items[at] : NULL;
    const char *cut = NULL;

    (void)held;
    if (!item || strncmp(item->key, req->prefix, cursor->prefix_len) != 0)
        return NULL;
    cursor->common[0] = '\0';
    if (req->delimiter)
        cut = strchr(item->key + cursor->prefix_len, req->delimiter);
    if (cut) {
        size_t len = (size_t)(cut - item->key) + 1;
        memcpy(cursor->common, item->key, len);
        cursor->common[len] = '\0';
        skip_common(cursor);
    } else {
        skip_key(cursor, item->key);
    }
    item->refs++;
    return item;
}

static int
emit(const struct cursor *cursor, const struct item *item, struct err *err)
{
    struct store_list_entry entry = {
        .key = item->key,
        .size = item->object.size,
        .etag = item->object.etag,
        .last_modified_ns = item->object.last_modified_ns,
    };

    if (cursor->common[0])
        entry = (struct store_list_entry){ .key = cursor->common, .is_prefix = true };
    return cursor->req->fn(cursor->req->arg, &entry, err);
}

static bool
already_listed(const struct cursor *cursor)
{
    const char *start = cursor->req->start_after;

    return cursor->common[0] && start && strcmp(cursor->common, start) <= 0;
}

static int
list_all(struct mem_store *mem, const struct store_list *req, struct err *err)
{
    struct cursor cursor;
    unsigned listed = 0;
    int rc = 0;

    start_cursor(&cursor, req);
    while (rc == 0 && (req->limit == 0 || listed < req->limit)) {
        struct item *item = advance(mem, &cursor);
        if (!item)
            break;
        if (!already_listed(&cursor)) {
            rc = emit(&cursor, item, err);
            listed++;
        }
        drop_item(mem, item);
        if (rc == 0 && req->deadline_ns && clock_mono_ns() >= req->deadline_ns)
            rc = err_set(err, ERR_STORE_TIMEOUT, "listing of '%s' took too long", mem->store.url);
    }
    return rc;
}

static int
mem_list(struct store *store, const struct store_list *req, struct err *err)
{
    struct mem_store *mem = mem_of(store);

    count(mem, &mem->counters.lists);
    return count_end(mem, list_all(mem, req, err), 0, 0);
}

static int
mem_presign(struct store *store, const struct store_presign *req, struct buf *url, struct err *err)
{
    (void)req;
    (void)url;
    return err_set(err, ERR_STORE_UNSUPPORTED, "store '%s' has no presigned URLs", store->url);
}

/* Known by construction. */
static int
mem_probe(struct store *store, struct store_caps *caps, struct err *err)
{
    (void)store;
    (void)err;
    *caps = (struct store_caps){
        .put_if_absent = STORE_YES,
        .put_if_match = STORE_YES,
        .put_atomic = STORE_YES,
        .delete_if_match = STORE_YES,
        .copy_source_if_match = STORE_YES,
        .copy_dest_conditions = STORE_NO,
        .server_side_copy = STORE_YES,
        .etag_quoted = STORE_NO,
        .list_consistent = STORE_YES,
        .presign = STORE_NO,
        .folds_names = STORE_NO,
        .any_bytes = STORE_YES,
        .long_meta = STORE_YES,
        .delete_many = STORE_YES,
        .max_put_bytes = LIMIT_PUT_BODY,
    };
    return 0;
}

static void
mem_counters(struct store *store, struct store_counters *out)
{
    struct mem_store *mem = mem_of(store);
    scope_unlock pthread_mutex_t *held = scope_lock(&mem->lock);

    (void)held;
    *out = mem->counters;
}

static void
mem_free(struct store *store)
{
    struct mem_store *mem = mem_of(store);

    for (size_t i = 0; i < mem->count; i++)
        put_item_locked(mem->items[i]);
    free(mem->items);
    pthread_mutex_destroy(&mem->lock);
    free(mem);
}

static const struct store_ops mem_ops = {
    .name = "mem",
    .head = mem_head,
    .get = mem_get,
    .put = mem_put,
    .del = mem_del,
    .copy = mem_copy,
    .list = mem_list,
    .presign = mem_presign,
    .probe = mem_probe,
    .counters = mem_counters,
    .free = mem_free,
};

struct store *
mem_store_open(struct err *err)
{
    struct mem_store *mem = calloc(1, sizeof(*mem));

    if (!mem) {
        err_nomem(err);
        return NULL;
    }
    mem->store.ops = &mem_ops;
    (void)snprintf(mem->store.url, sizeof(mem->store.url), "mem:");
    (void)mem_probe(&mem->store, &mem->store.caps, err);
    pthread_mutex_init(&mem->lock, NULL);
    return &mem->store;
}
