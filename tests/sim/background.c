#include <string.h>

#include "sim.h"

/* ---- what a gateway does without being asked: upload losers, evict, list, keep the lease ---- */

void
driver_upload_conflict(struct world *world, int g)
{
    struct gateway *gateway = &world->gateways[g];

    for (int i = 0; i < CONFLICTS; i++) {
        struct conflict *conflict = &gateway->cur.conflicts[i];
        if (!conflict->used)
            continue;
        if (conflict->uploaded) { /* the user has seen to it */
            conflict->used = !world_chance(world, 300);
            continue;
        }
        conflict->value = gateway->disk[conflict->content].value;
        conflict->uploaded = true;
        conflict->content = NONE;
        struct place place = conflict->place;
        conflict->place.kind = PLACE_NONE;
        discard_place(world, gateway, &place, -(i + 1));
        commit(world, gateway, true);
        return;
    }
}

static bool
is_late_key(const struct gateway *gateway, int path)
{
    return path >= 0 && gateway->cur.intents[path].late_count > 0;
}

void
content_view_of(struct gateway *gateway, const struct node *node, int at, struct content_view *view)
{
    *view = (struct content_view){ .exists = at >= 0, .other_writers = node->live >= 0 };
    if (at < 0) {
        view->size = node->place.kind == PLACE_NONE ? 0 : 1;
        return;
    }
    const struct content *content = &gateway->cur.contents[at];
    view->state = content->state;
    view->flags = content->flags;
    view->size = gateway->disk[at].value % 2 == 0 ? 10 : 1000;
    if (is_late_key(gateway, node->path) ||
        (node->place.kind == PLACE_KEY && is_late_key(gateway, node->place.at)))
        view->flags |= CONTENT_PINNED;
    for (int p = 0; p < PATHS; p++) {
        const struct attempt *attempt = &gateway->cur.intents[p].attempt;
        view->attempt_sent |= attempt->op == SYNC_OP_PUT && attempt->content == at;
    }
}

/* Drops the local bytes of one file, as the cache does for want of space. */
void
driver_evict(struct world *world, int g)
{
    struct gateway *gateway = &world->gateways[g];
    struct node *node = &gateway->cur.nodes[world_pick(world, NODES)];
    struct content_view view;

    if (node->id == 0 || node->frozen < 0 || node->live >= 0)
        return;
    content_view_of(gateway, node, node->frozen, &view);
    /* A clean file whose object somebody destroyed while it was being moved has its only bytes here. */
    if (!content_may_evict(&view) || node->place.kind == PLACE_NONE)
        return;
    trace(world, "gateway %d: evict %s", g, node->path < 0 ? "-" : path_names[node->path]);
    node->frozen = NONE;
    commit(world, gateway, false);
}

static void
list_end(struct world *world, struct gateway *gateway, int path)
{
    struct listing *listing = &gateway->listing;
    const struct keyrow *row = &gateway->cur.keys[path];
    struct intent *intent = &gateway->cur.intents[path];
    struct sync_attempt late[LATE];
    struct sync_view view;
    struct sync_effect effect;
    struct observed seen;

    if (sync_rule_on(RULE_LISTING) && (row->seq > listing->seq || intent->active))
        return;
    observed_from(world, &listing->keys[path], &seen);
    driver_view(world, gateway, path, &view, late);
    if (!seen.present && view.have.present && sync_rule_on(RULE_LISTING)) {
        touch(world, gateway, path); /* "absent" is confirmed by HEAD */
        intent->look_at = world->now;
        return;
    }
    sync_observe(&view, &seen, &effect);
    if (effect.bits != 0)
        driver_apply(world, gateway, path, &effect, listing->keys[path].rec);
}

void
driver_list(struct world *world, int g)
{
    struct gateway *gateway = &world->gateways[g];
    struct listing *listing = &gateway->listing;

    if (!listing->open) {
        listing->open = true;
        listing->seq = gateway->cur.seq;
        memcpy(listing->keys, world->bucket.keys, sizeof(listing->keys));
        return;
    }
    listing->open = false;
    for (int p = 0; p < PATHS; p++)
        list_end(world, gateway, p);
}

/* ---- lease ---- */

static bool
has_work(const struct gateway *gateway)
{
    for (int p = 0; p < PATHS; p++) {
        if (gateway->cur.intents[p].active)
            return true;
    }
    return false;
}

void
lease_work(struct world *world, int g)
{
    struct gateway *gateway = &world->gateways[g];
    struct lease *lease = &gateway->lease;
    enum lease_step step = lease_next(lease, gateway_clock(world, gateway));

    if (!world_weak(world) || gateway->lease_busy || step == LEASE_NOTHING)
        return;
    if (world->calm && !has_work(gateway)) /* lets the other one have it */
        return;
    struct request *request =
        net_send(world, g, step == LEASE_LOOK ? REQ_LEASE_GET : REQ_LEASE_PUT, NONE);
    if (request == NULL)
        return;
    gateway->lease_busy = true;
    if (step == LEASE_LOOK)
        return;
    request->lease = lease->seen;
    request->cond_absent = !lease->seen.present;
    request->lease.present = true;
    request->lease.epoch = step == LEASE_CLAIM ? lease->seen.epoch + 1 : lease->epoch;
    request->lease.ttl_ns = LEASE_TTL;
    memcpy(request->lease.gateway, lease->gateway, sizeof(lease->gateway));
}

void
lease_reply(struct world *world, struct request *request, enum sync_result result)
{
    struct gateway *gateway = &world->gateways[request->gateway];
    int64_t clock = gateway_clock(world, gateway);

    gateway->lease_busy = false;
    if (request->kind == REQ_LEASE_GET) {
        if (result == SYNC_RESULT_DONE)
            lease_saw(&gateway->lease, &request->lease, clock);
        return;
    }
    enum lease_answer answer = result == SYNC_RESULT_DONE      ? LEASE_DONE
                               : result == SYNC_RESULT_REFUSED ? LEASE_REFUSED
                                                               : LEASE_UNKNOWN;
    lease_answered(&gateway->lease, answer, &request->lease,
                   sync_rule_on(RULE_LEASE_SENT) ? request->clock_sent : clock);
    world->counts[COUNT_LEASES] += answer == LEASE_DONE;
}
