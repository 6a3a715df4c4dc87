#include <string.h>

#include "sim.h"

struct request *
net_send(struct world *world, int gateway, enum request_kind kind, int key)
{
    for (int i = 0; i < REQUESTS; i++) {
        struct request *request = &world->requests[i];
        if (request->state != REQ_FREE)
            continue;
        *request = (struct request){
            .state = REQ_SENT,
            .kind = kind,
            .gateway = gateway,
            .key = key,
            .life = world->gateways[gateway].life,
            .sent_at = world->now,
            .clock_sent = gateway_clock(world, &world->gateways[gateway]),
            .content = NONE,
        };
        return request;
    }
    return NULL;
}

static bool
is_read(const struct request *request)
{
    return request->kind == REQ_HEAD || request->kind == REQ_GET || request->kind == REQ_LEASE_GET;
}

/* The process is gone: what it sent may land yet, what it asked is asked in vain. */
void
net_crash(struct world *world, int gateway)
{
    for (int i = 0; i < REQUESTS; i++) {
        struct request *request = &world->requests[i];
        if (request->state == REQ_FREE || request->gateway != gateway)
            continue;
        request->life = 0;
        if (is_read(request) || request->state == REQ_LANDED)
            request->state = REQ_FREE;
    }
}

static bool
condition_fails(const struct world *world, const struct request *request, const struct object *at)
{
    if (request->cond_absent)
        return world->put_if_absent && at->present;
    if (request->cond_etag == 0)
        return false;
    bool honoured = request->kind == REQ_DELETE ? world->delete_if_match : world->put_if_match;
    return honoured && (!at->present || at->etag != request->cond_etag);
}

static void
land_put(struct world *world, struct request *request)
{
    struct object *at = &world->bucket.keys[request->key];
    struct gateway *gateway = &world->gateways[request->gateway];
    struct object old = *at;

    request->refused = condition_fails(world, request, at);
    if (request->refused)
        return;
    if (request->life == gateway->life && gateway->disk[request->content].value != request->value)
        violate(world, "the bytes of version %u changed while they were uploaded to %s",
                request->version, path_names[request->key]);
    request->etag = world->md5_etags ? request->value : ++world->serial;
    *at = (struct object){ .present = true,
                           .value = request->value,
                           .etag = request->etag,
                           .rec = request->version,
                           .meta_version = request->version,
                           .meta_value = request->value,
                           .writer = request->gateway };
    ledger_landed(world, request, &old);
    world->counts[COUNT_PUTS]++;
}

static void
land_delete(struct world *world, struct request *request)
{
    struct object *at = &world->bucket.keys[request->key];
    struct object old = *at;

    request->refused = condition_fails(world, request, at);
    if (request->refused || !at->present)
        return;
    at->present = false;
    world->bucket.deleted_rec[request->key] = old.rec;
    world->bucket.deleted_by[request->key] = request->gateway;
    world->bucket.deleted_at[request->key] = world->now;
    ledger_landed(world, request, &old);
    world->counts[COUNT_DELETES]++;
}

static void
land_read_place(struct world *world, struct request *request)
{
    const struct object *from = request->from.kind == PLACE_PARK
                                    ? &world->bucket.parks[request->from.at]
                                    : &world->bucket.keys[request->from.at];

    request->refused = !from->present;
    if (sync_rule_on(RULE_FETCH_MATCH) || request->kind != REQ_GET)
        request->refused |= from->etag != request->from.etag;
    request->seen = *from;
}

static void
land_copy(struct world *world, struct request *request)
{
    land_read_place(world, request);
    if (request->refused)
        return;
    struct object copy = request->seen;
    copy.etag = world->md5_etags ? copy.value : ++world->serial;
    copy.writer = request->gateway;
    request->etag = copy.etag;
    if (request->kind == REQ_COPY) {
        world->bucket.parks[request->to] = copy;
        return;
    }
    if (request->kind == REQ_KEEP) {
        world->ledger.records[copy.rec].in_history = true;
        return;
    }
    struct object old = world->bucket.keys[request->key];
    world->bucket.keys[request->key] = copy;
    request->version = copy.rec;
    ledger_landed(world, request, &old);
}

static void
land_lease(struct world *world, struct request *request)
{
    struct lease_record *at = &world->bucket.lease;

    if (request->kind == REQ_LEASE_GET) {
        request->lease = *at;
        return;
    }
    request->refused = request->cond_absent
                           ? at->present
                           : !at->present || strcmp(at->etag, request->lease.etag) != 0;
    if (request->refused)
        return;
    *at = request->lease;
    text_version(++world->bucket.lease_serial, at->nonce);
    memset(at->etag, 0, sizeof(at->etag));
    memcpy(at->etag, at->nonce, sizeof(at->nonce));
    request->lease = *at;
    if (world->faults && request->life != 0 &&
        world_chance(world, 120)) /* paused before the answer */
        world->gateways[request->gateway].stalled_until =
            world->now + LEASE_TTL + (int64_t)world_pick(world, 240000);
}

static void
land(struct world *world, struct request *request)
{
    if (request->life == 0)
        world->counts[COUNT_LATE_LANDED]++;
    request->state = REQ_LANDED;
    request->landed_at = world->now;
    switch (request->kind) {
    case REQ_PUT:
        land_put(world, request);
        break;
    case REQ_DELETE:
        land_delete(world, request);
        break;
    case REQ_HEAD:
        request->seen = world->bucket.keys[request->key];
        break;
    case REQ_GET:
        land_read_place(world, request);
        break;
    case REQ_COPY:
    case REQ_KEEP:
    case REQ_MOVE:
        land_copy(world, request);
        break;
    case REQ_LEASE_GET:
    case REQ_LEASE_PUT:
        land_lease(world, request);
        break;
    }
    trace(world, "net: %s of gateway %d at %s version %u value %u %s%s",
          request->kind == REQ_PUT      ? "PUT"
          : request->kind == REQ_DELETE ? "DELETE"
          : request->kind == REQ_HEAD   ? "HEAD"
          : request->kind == REQ_GET    ? "GET"
          : request->kind == REQ_COPY   ? "COPY"
          : request->kind == REQ_KEEP   ? "COPY to the history"
          : request->kind == REQ_MOVE   ? "COPY onto a file key"
                                        : "lease",
          request->gateway, request->key < 0 ? "-" : path_names[request->key], request->version,
          request->value, request->refused ? "refused" : "carried out",
          request->life == 0 ? ", late" : "");
}

static void
answer(struct world *world, struct request *request, enum sync_result result)
{
    struct request copy = *request;

    if (result == SYNC_RESULT_UNKNOWN) {
        world->counts[COUNT_LOST_ANSWERS]++;
        request->life = 0;
        if (is_read(request) || request->state == REQ_LANDED)
            request->state = REQ_FREE;
    } else {
        request->state = REQ_FREE;
    }
    world->counts[COUNT_REFUSED] += result == SYNC_RESULT_REFUSED;
    if (copy.kind == REQ_LEASE_GET || copy.kind == REQ_LEASE_PUT)
        lease_reply(world, &copy, result);
    else
        driver_answer(world, &copy, result);
}

static enum sync_result
result_of(const struct request *request)
{
    if (request->refused)
        return SYNC_RESULT_REFUSED;
    return request->kind == REQ_HEAD ? SYNC_RESULT_SEEN : SYNC_RESULT_DONE;
}

static int64_t
may_land_until(const struct request *request)
{
    return request->sent_at + (request->free_of_conditions ? OP_DEADLINE : LATE_MAX);
}

/* Mostly one whose answer is awaited: late ones are many, and in no hurry. */
static struct request *
some_request(struct world *world)
{
    unsigned first = world_pick(world, REQUESTS);
    bool awaited = world_chance(world, 850);
    struct request *any = NULL;

    for (unsigned i = 0; i < REQUESTS; i++) {
        struct request *request = &world->requests[(first + i) % REQUESTS];
        if (request->state == REQ_FREE)
            continue;
        if (!awaited || request->life != 0)
            return request;
        any = any == NULL ? request : any;
    }
    return any;
}

bool
net_step(struct world *world)
{
    struct request *request = some_request(world);

    if (request == NULL)
        return false;
    bool waiting = request->life != 0;
    if (waiting && request->state == REQ_LANDED &&
        world->gateways[request->gateway].stalled_until > world->now)
        return true;
    if (request->state == REQ_SENT && world->now > may_land_until(request)) {
        if (waiting)
            answer(world, request, SYNC_RESULT_UNKNOWN);
        request->state = REQ_FREE;
        return true;
    }
    bool lease = request->kind == REQ_LEASE_GET || request->kind == REQ_LEASE_PUT;
    if (waiting && !lease && world->now > request->sent_at + OP_DEADLINE) {
        answer(world, request, SYNC_RESULT_UNKNOWN); /* an answer past its deadline is none */
        return true;
    }
    unsigned dice = world->faults ? world_pick(world, 100) : 50;
    if (!waiting) {
        if (dice < 8 || !world->faults) {
            land(world, request);
            request->state = REQ_FREE;
        }
    } else if (dice < 4 && request->state == REQ_SENT) {
        answer(world, request, SYNC_RESULT_NOT_DONE);
        request->state = REQ_FREE;
    } else if (dice < 14) {
        answer(world, request, SYNC_RESULT_UNKNOWN);
    } else if (request->state == REQ_SENT) {
        land(world, request);
    } else if (dice < 80) {
        answer(world, request, result_of(request));
    }
    return true;
}

/* ---- foreign clients ---- */

static void
foreign_write(struct world *world, int key, uint32_t value, const struct object *meta_of,
              uint32_t parent)
{
    struct object *at = &world->bucket.keys[key];
    struct object old = *at;

    *at = (struct object){ .present = true, .value = value, .writer = FOREIGN };
    at->etag = world->md5_etags ? value : ++world->serial;
    at->rec = ledger_record(world, FOREIGN, value, parent);
    if (meta_of != NULL) {
        at->meta_version = meta_of->meta_version;
        at->meta_value = meta_of->meta_value;
    }
    ledger_replaced(world, FOREIGN, key, &old);
}

void
net_foreign(struct world *world)
{
    int key = world_path(world);
    struct object at = world->bucket.keys[key];
    int from = world_path(world);
    struct object source = world->bucket.keys[from];
    uint32_t value = world_value(world);

    world->counts[COUNT_FOREIGN]++;
    switch (world_pick(world, 4)) {
    case 0:
        foreign_write(world, key, value, NULL, 0);
        trace(world, "foreign: PUT %s value %u", path_names[key], value);
        break;
    case 1: /* as s3fs: other bytes, our metadata stays. Where ETags say nothing, the size must. */
        while (!world->md5_etags && size_of(value) == size_of(at.meta_value))
            value = 100 + ++world->serial;
        if (!at.present)
            return;
        foreign_write(world, key, value, &at, value == at.value ? at.rec : 0);
        trace(world, "foreign: rewrite %s value %u", path_names[key], value);
        break;
    case 2: /* as aws s3 cp: the metadata goes along */
        if (!source.present || from == key)
            return;
        foreign_write(world, key, source.value, &source, source.rec);
        trace(world, "foreign: copy %s to %s", path_names[from], path_names[key]);
        break;
    default:
        if (!at.present)
            return;
        world->bucket.keys[key].present = false;
        world->bucket.deleted_rec[key] = at.rec;
        world->bucket.deleted_by[key] = FOREIGN;
        world->bucket.deleted_at[key] = world->now;
        ledger_replaced(world, FOREIGN, key, &at);
        trace(world, "foreign: DELETE %s", path_names[key]);
        break;
    }
}
