#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "volume/audit_impl.h"

/* What is on the disk is remembered in the index; what is closed is packed, and sent to the bucket. */

#define TICK (1 * NS_PER_S)
#define LATER (30 * NS_PER_S) /* after a store that is away */
#define SENT "audit-sent"     /* the first record of the last segment that the bucket has */

struct head_call {
    const char *name;
    char text[128];
};

static int
head_set_tx(struct index_tx *tx, void *arg, struct err *err)
{
    const struct head_call *call = arg;
    return index_meta_set(tx, call->name, call->text, err);
}

static int
head_get_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct head_call *call = arg;
    struct err missing = ERR_INIT;
    if (index_meta_get(tx, call->name, call->text, sizeof(call->text), &missing) == 0)
        return 0;
    call->text[0] = '\0';
    return missing.code == ERR_NOT_FOUND ? 0 : err_set(err, missing.code, "%s", missing.msg);
}

int
audit_head_get(struct volume_service *service, struct audit_link *out, struct err *err)
{
    struct head_call call = { .name = "audit-head" };
    memset(out, 0, sizeof(*out));
    if (index_read(service->index, head_get_tx, &call, err) != 0)
        return -1;
    size_t digits = strspn(call.text, "0123456789");
    if (digits == 0 || call.text[digits] != ' ' || strlen(call.text + digits + 1) != SHA256_HEX - 1)
        return 0;
    if (!parse_u64_n(call.text, digits, &out->seq))
        return 0;
    text_set(out->hash, call.text + digits + 1);
    return 0;
}

/* The file first: what is remembered here is never more than the disk has. */
static int
remember(struct volume_service *service, struct err *err)
{
    struct head_call call = { .name = "audit-head" };
    struct audit_link head;
    int synced = audit_sync(service->audit, &head, err);
    if (synced <= 0)
        return synced;
    (void)snprintf(call.text, sizeof(call.text), "%llu %s", (unsigned long long)head.seq,
                   head.hash);
    return index_write(service->index, INDEX_NORMAL, head_set_tx, &call, err);
}

void
audit_end(struct volume_service *service)
{
    struct err err = ERR_INIT;
    if (remember(service, &err) != 0)
        log_warn(volume, "the audit's end is not remembered: %s", err.msg);
}

/* ---- sending ---- */

void
audit_key(const struct audit *audit, const struct audit_segment *segment, char out[LIMIT_KEY + 1])
{
    struct audit_segment packed = { .first = segment->first, .packed = true };
    char name[AUDIT_NAME_SIZE];
    audit_segment_name(&packed, name);
    (void)snprintf(out, LIMIT_KEY + 1, ".holdfast/audit/%s/%s", audit_chain(audit), name);
}

static int
send_one(struct volume_service *service, const struct audit_segment *segment, struct err *err)
{
    struct store_cond cond = { .kind = STORE_COND_ABSENT };
    struct store_put_result result;
    char name[AUDIT_NAME_SIZE], key[LIMIT_KEY + 1];
    char *data = NULL;
    size_t len = 0;
    audit_segment_name(segment, name);
    audit_key(service->audit, segment, key);
    if (sys_read_file(audit_dir(service->audit), name, AUDIT_SEGMENT_ROOM, &data, &len, err) != 0)
        return -1;
    scope_free char *held = data;
    if (service->store->caps.put_if_absent != STORE_YES)
        cond.kind = STORE_COND_NONE;
    struct err local = ERR_INIT;
    if (store_put_small(service->store, key, held, len, cond, &result, &local) == 0)
        return 0;
    /* It got there, and the answer was lost: nobody else writes below this chain. */
    if (local.code == ERR_CONFLICT || local.code == ERR_EXISTS || local.code == ERR_PRECONDITION)
        return 0;
    *err = local;
    return -1;
}

int
audit_sent_get(struct volume_service *service, uint64_t *out, struct err *err)
{
    struct head_call call = { .name = SENT };
    *out = 0;
    if (index_read(service->index, head_get_tx, &call, err) != 0)
        return -1;
    (void)parse_u64(call.text, out);
    return 0;
}

static int
send_closed(struct volume_service *service, struct err *err)
{
    struct audit *audit = service->audit;
    struct audit_segments list = { .item = NULL };
    uint64_t sent = 0, current = audit_current(audit);
    int rc = audit_segments_list(audit_dir(audit), &list, err);
    if (rc == 0)
        rc = audit_sent_get(service, &sent, err);
    for (size_t i = 0; rc == 0 && i < list.count && !atomic_load(&service->stopping); i++) {
        struct audit_segment *segment = &list.item[i];
        struct head_call call = { .name = SENT };
        if (segment->first >= current)
            break;
        if (!segment->packed)
            rc = audit_segment_pack(audit_dir(audit), segment, err);
        segment->packed = true;
        if (rc != 0 || segment->first <= sent)
            continue;
        rc = send_one(service, segment, err);
        (void)snprintf(call.text, sizeof(call.text), "%llu", (unsigned long long)segment->first);
        if (rc == 0)
            rc = index_write(service->index, INDEX_NORMAL, head_set_tx, &call, err);
    }
    audit_segments_release(&list);
    return rc;
}

int64_t
audit_tick(void *arg)
{
    struct volume_service *service = arg;
    struct err err = ERR_INIT;
    if (remember(service, &err) != 0)
        log_warn(volume, "%s", err.msg);
    uint64_t current = audit_current(service->audit);
    if (service->audit_sent >= current || clock_mono_ns() < service->audit_after_ns)
        return TICK;
    if (send_closed(service, &err) == 0) {
        service->audit_sent = current;
    } else {
        log_debug(volume, "segments of the audit are not in the bucket yet: %s", err.msg);
        service->audit_after_ns = clock_mono_ns() + LATER;
    }
    return TICK;
}
