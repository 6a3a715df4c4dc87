#include <errno.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/scope.h"
#include "volume/extra_impl.h"
#include "volume/fetch_impl.h"

/* A whole small file in one request and one transaction: its bytes come through memory, so that its content file is complete
 * when its row is written (no map, no second change when the last block has come). */

#define NUMBERS 64 /* of content files, taken from the index at once */

struct look_call {
    int64_t node;
    struct small_rows *out;
};

static int
look_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct look_call *call = arg;
    return index_node_get(tx, call->node, &call->out->node, err);
}

static bool
may_come_whole(const struct index_node *node)
{
    return node->kind == INDEX_FILE && node->content == 0 && node->size <= FETCH_SMALL &&
           node->key[0] != '\0' && node->etag[0] != '\0' && (node->flags & INDEX_NODE_ORPHAN) == 0;
}

int
small_look(struct volume_service *service, int64_t node, struct small_rows *out, struct err *err)
{
    struct look_call call = { .node = node, .out = out };
    if (index_read(service->index, look_tx, &call, err) != 0)
        return -1;
    out->fits = may_come_whole(&out->node);
    return 0;
}

/* ---- the number ---- */

static int
numbers_tx(struct index_tx *tx, void *arg, struct err *err)
{
    int64_t *range = arg;
    for (int i = 0; i < NUMBERS; i++)
        if (index_content_number(tx, i == 0 ? &range[0] : &range[1], err) != 0)
            return -1;
    return 0;
}

/* A number that is not used is lost; it is never given twice. */
static int
take_number(struct volume_service *service, int64_t *out, struct err *err)
{
    struct fetcher *fetcher = service->fetcher;
    int64_t range[2];
    pthread_mutex_lock(&fetcher->lock);
    *out = fetcher->number < fetcher->number_end ? fetcher->number++ : 0;
    pthread_mutex_unlock(&fetcher->lock);
    if (*out != 0)
        return 0;
    if (index_write(service->index, INDEX_NORMAL, numbers_tx, range, err) != 0)
        return -1;
    *out = range[0];
    pthread_mutex_lock(&fetcher->lock);
    if (fetcher->number == fetcher->number_end) {
        fetcher->number = range[0] + 1;
        fetcher->number_end = range[1] + 1;
    }
    pthread_mutex_unlock(&fetcher->lock);
    return 0;
}

/* ---- the bytes ---- */

struct small_bytes {
    uint8_t *data;
    size_t size, have;
    struct observed seen; /* what the answer told of the object */
    struct object_attrs attrs;
    char extra[LIMIT_EXTRA + 1];
};

static int
take_bytes(void *arg, const void *data, size_t len, struct err *err)
{
    struct small_bytes *bytes = arg;
    if (len > bytes->size - bytes->have)
        return err_set(err, ERR_CONFLICT, "the object has another size than its version");
    memcpy(bytes->data + bytes->have, data, len);
    bytes->have += len;
    return 0;
}

static void
told(const struct store_object *object, const struct index_node *node, struct small_bytes *bytes)
{
    object_read(object, &bytes->seen, &bytes->attrs);
    extra_collect(object, node, bytes->extra);
}

static int
get_whole(struct volume_service *service, const struct index_node *node, struct small_bytes *bytes,
          int64_t deadline_ns, struct err *err)
{
    struct store_object object;
    struct store_get get = { .key = node->key,
                             .if_match = node->etag,
                             .sink = take_bytes,
                             .sink_arg = bytes,
                             .deadline_ns = deadline_ns };
    store_object_init(&object);
    atomic_fetch_add(&service->fetcher->requests, 1);
    int rc = store_get(service->store, &get, &object, err);
    if (rc == 0 && object.size != node->size)
        rc = err_set(err, ERR_CONFLICT, "the object has another size than its version");
    if (rc == 0)
        told(&object, node, bytes);
    store_object_release(&object);
    if (rc == 0 && bytes->have != bytes->size)
        rc = err_set(err, ERR_STORE_BAD_ANSWER, "the store sent %zu of %zu bytes", bytes->have,
                     bytes->size);
    if (rc == 0)
        atomic_fetch_add(&service->fetcher->bytes, bytes->have);
    service_store_seen(service, rc == 0 ? NULL : err);
    return rc;
}

/* ---- the row ---- */

struct insert_call {
    struct volume_service *service;
    const struct index_node *node; /* as it was when the request was sent */
    const struct small_bytes *bytes;
    struct index_content content;
    bool changed;
};

/* An empty file was not asked for, and the bytes of what is no plain file are none. */
static bool
tells_a_file(const struct small_bytes *bytes)
{
    uint32_t type = bytes->attrs.has_mode ? bytes->attrs.mode & S_IFMT : 0;
    return bytes->seen.present && type != S_IFLNK && !special_mode(type);
}

/* Bytes before the row; and the row only where the node still shows what was asked for (INV-1). */
static int
insert_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct insert_call *call = arg;
    struct index_node node;
    if (index_node_get(tx, call->node->id, &node, err) != 0)
        return -1;
    call->changed = !may_come_whole(&node) || strcmp(node.etag, call->node->etag) != 0 ||
                    strcmp(node.key, call->node->key) != 0 || node.size != call->node->size;
    bool unknown = (node.flags & INDEX_NODE_META_UNKNOWN) != 0;
    call->changed |= unknown && !tells_a_file(call->bytes);
    if (call->changed)
        return 0;
    struct bucket_told all = { &call->bytes->seen, &call->bytes->attrs, call->bytes->extra };
    if (unknown && bucket_complete_row(tx, &node, &all, err) != 0)
        return -1;
    struct index_content *row = &call->content;
    row->node = node.id;
    row->volume = node.volume;
    row->state = CONTENT_CLEAN;
    row->flags = CONTENT_COMPLETE;
    row->size = node.size;
    row->mtime_ns = node.mtime_ns;
    text_set(row->version, node.version);
    text_set(row->etag, node.etag);
    text_set(row->boot_id, call->service->boot_id);
    if (index_content_insert(tx, row, err) != 0)
        return -1;
    node.content = row->id;
    return index_node_update(tx, &node, err);
}

/* The content file, with its row; NULL with *changed: the node is another one by now. */
static struct cache_file *
keep(struct insert_call *call, const struct small_bytes *bytes, struct err *err)
{
    struct volume_service *service = call->service;
    int64_t number;
    if (take_number(service, &number, err) != 0)
        return NULL;
    struct cache_file *file = cache_create(service->cache, number, NULL, false, err);
    if (file == NULL)
        return NULL;
    call->content.id = number;
    call->bytes = bytes;
    int rc = bytes->size > 0 ? cache_file_write(file, bytes->data, bytes->size, 0, err) : 0;
    if (rc == 0)
        rc = index_write(service->index, INDEX_NORMAL, insert_tx, call, err);
    if (rc == 0 && !call->changed)
        return file;
    cache_put(file);
    cache_remove(service->cache, number);
    return NULL;
}

static int
bring(struct insert_call *call, struct cache_file **file, int64_t deadline_ns, struct err *err)
{
    size_t size = (size_t)call->node->size;
    scope_free uint8_t *data = malloc(size + 1);
    struct small_bytes bytes = { .data = data, .size = size };
    struct err local = ERR_INIT;
    if (data == NULL)
        return err_nomem(err);
    bool ask = size > 0 || (call->node->flags & INDEX_NODE_META_UNKNOWN) != 0;
    if (ask && get_whole(call->service, call->node, &bytes, deadline_ns, err) != 0)
        return -1;
    *file = keep(call, &bytes, &local);
    call->bytes = NULL;
    if (*file == NULL && !call->changed)
        log_debug(volume, "a small file is not kept: %s", local.msg);
    return 0;
}

int
small_bring_locked(struct volume_service *service, struct inode *inode,
                   const struct small_rows *rows, int64_t deadline_ns, struct err *err)
{
    struct insert_call call = { .service = service, .node = &rows->node };
    struct cache_file *file = NULL;
    struct err local = ERR_INIT;
    inode->bringing = true;
    pthread_mutex_unlock(&inode->lock);
    int rc = bring(&call, &file, deadline_ns, &local);
    pthread_mutex_lock(&inode->lock);
    inode->bringing = false;
    pthread_cond_broadcast(&inode->fetched);
    if (rc == 0 && file != NULL && inode->file == NULL) {
        content_adopt_locked(inode, &call.content, file);
        return 1;
    }
    cache_put(file);
    /* Another object by now, or no room: the long way knows what to do. */
    if (rc == 0 || local.code == ERR_CONFLICT || local.code == ERR_NOT_FOUND)
        return 0;
    inode->failed_ns = clock_mono_ns();
    inode->failed_off = 0;
    inode->failed_end = UINT64_MAX;
    inode->failed_local = false;
    inode->fetch_err = *err = local;
    return -1;
}
