#include <stdlib.h>

#include "base/log.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/*
 * Content files that nothing needs any more. Their rows are gone by a commit that a power cut may take back; the file must
 * not go before that commit is durable, or the row would come back without its bytes. So a file waits here until the next
 * FULL commit (docs/mechanisms.md section 3).
 */

#define WAITING_MAX 1024u

int
drop_add(struct drop_list *list, int64_t number, struct err *err)
{
    if (list->count == list->cap) {
        size_t cap = list->cap == 0 ? 8 : list->cap * 2;
        int64_t *grown = reallocarray(list->number, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        list->number = grown;
        list->cap = cap;
    }
    list->number[list->count++] = number;
    return 0;
}

void
drop_run(struct volume_service *service, struct drop_list *list)
{
    struct err ignored = ERR_INIT;
    size_t waiting = 0;
    pthread_mutex_lock(&service->drop_lock);
    for (size_t i = 0; i < list->count; i++) {
        /* Without memory the file stays on disk until the next start, which finds that it has no row. */
        if (drop_add(&service->dropped, list->number[i], &ignored) != 0)
            log_warn(cache, "content file %lld stays until the next start",
                     (long long)list->number[i]);
    }
    waiting = service->dropped.count;
    pthread_mutex_unlock(&service->drop_lock);
    /* Its bytes are nobody's staged bytes any more: under pressure they may go at once, behind a commit (evict()). */
    for (size_t i = 0; i < list->count; i++)
        cache_unpin(service->cache, list->number[i]);
    free(list->number);
    *list = (struct drop_list){ 0 };
    if (waiting >= WAITING_MAX)
        drop_flush(service);
}

static int
nothing_tx(struct index_tx *tx, void *arg, struct err *err)
{
    (void)tx;
    (void)arg;
    (void)err;
    return 0;
}

int
drop_make_durable(struct volume_service *service, struct err *err)
{
    return index_write(service->index, INDEX_FULL, nothing_tx, NULL, err);
}

void
drop_flush(struct volume_service *service)
{
    struct err err = ERR_INIT;
    pthread_mutex_lock(&service->drop_lock);
    struct drop_list list = service->dropped;
    service->dropped = (struct drop_list){ 0 };
    pthread_mutex_unlock(&service->drop_lock);
    if (list.count == 0)
        return;
    if (drop_make_durable(service, &err) != 0) {
        log_warn(cache, "%zu content files stay until the next start: %s", list.count, err.msg);
    } else {
        for (size_t i = 0; i < list.count; i++)
            cache_remove(service->cache, list.number[i]);
    }
    free(list.number);
}
