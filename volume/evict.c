#include "base/log.h"
#include "volume/service_impl.h"

/* What the cache gives up when it needs the room: the row first, then the file. */

struct evict_call {
    struct volume_service *service;
    int64_t number;
    bool gone;
    bool rowless;
};

static int
evict_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct evict_call *call = arg;
    struct index_content row;
    struct index_node node;
    struct err missing = ERR_INIT;
    if (index_content_get(tx, call->number, &row, &missing) != 0) {
        call->gone = call->rowless = missing.code == ERR_NOT_FOUND;
        return 0;
    }
    struct content_view view = { .exists = true, .state = row.state, .flags = row.flags };
    struct inode *inode = inode_find(&call->service->inodes, row.node);
    if (inode != NULL) {
        inode_unref(&call->service->inodes, inode, false);
        return 0; /* in use */
    }
    if (!content_may_evict(&view))
        return 0;
    if (index_content_delete(tx, row.id, err) != 0)
        return -1;
    if (index_node_get(tx, row.node, &node, &missing) == 0 && node.content == row.id) {
        node.content = 0;
        if (index_node_update(tx, &node, err) != 0)
            return -1;
    }
    call->gone = true;
    return 0;
}

bool
evict_content(void *arg, int64_t number)
{
    struct evict_call call = { .service = arg, .number = number };
    struct err err = ERR_INIT;
    if (index_write(call.service->index, INDEX_NORMAL, evict_tx, &call, &err) != 0) {
        log_warn(cache, "cannot evict content %lld: %s", (long long)number, err.msg);
        return false;
    }
    /* No row: its end may not be durable yet, and the file must not go before (drop.c). */
    if (call.rowless && drop_make_durable(call.service, &err) != 0)
        return false;
    return call.gone;
}
