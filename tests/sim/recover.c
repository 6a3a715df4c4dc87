#include <stdio.h>
#include <string.h>

#include "sim.h"

/* ---- the end of a process and of a machine, and the start after it ---- */

void
gateway_start(struct world *world, struct gateway *gateway)
{
    gateway->life++;
    memset(gateway->workers, 0, sizeof(gateway->workers));
    memset(gateway->handles, 0, sizeof(gateway->handles));
    memset(gateway->fetching, 0, sizeof(gateway->fetching));
    gateway->listing.open = false;
    gateway->lease_busy = false;
    gateway->stalled_until = 0;
    gateway->lease = (struct lease){ .ttl_ns = LEASE_TTL, .op_deadline_ns = OP_DEADLINE };
    text_version((uint32_t)(gateway - world->gateways) + 1, gateway->lease.gateway);
}

static void
drop_if_empty(struct node *node)
{
    if (node->live < 0 && node->frozen < 0 && node->place.kind == PLACE_NONE)
        node->id = 0;
}

/* Nothing promised covers these bytes: the old version stays, they are kept aside. */
static void
torn(struct world *world, struct gateway *gateway, struct node *node, int content)
{
    const struct content *row = &gateway->cur.contents[content];
    uint32_t version = row->state == CONTENT_FROZEN ? row->version : 0; /* LIVE bytes have none */

    conflict_add(world, gateway, node, content, true);
    for (int p = 0; p < PATHS; p++) {
        struct intent *intent = &gateway->cur.intents[p];
        int kept = 0;
        if (intent->attempt.op == SYNC_OP_PUT && intent->attempt.content == content)
            intent->attempt.content = NONE;
        for (int i = 0; i < intent->late_count; i++) {
            if (version == 0 || intent->late[i].version != version)
                intent->late[kept++] = intent->late[i];
        }
        intent->late_count = kept;
    }
}

static bool
was_written(const struct world *world, const struct lfile *file, uint32_t rec, uint32_t value)
{
    int count = file->maybe_count < MAYBE ? file->maybe_count : MAYBE;

    if (world->ledger.records[rec].value == value)
        return true;
    for (int i = 0; i < count; i++) {
        if (file->maybe[i] == value)
            return true;
    }
    return false;
}

static void
freeze(struct world *world, struct gateway *gateway, struct node *node, bool same_boot)
{
    int g = (int)(gateway - world->gateways);
    struct content *content = &gateway->cur.contents[node->live];
    uint32_t value = gateway->disk[node->live].value;
    bool promised = (content->flags & CONTENT_ACKED) != 0;
    uint32_t rec = ledger_record(world, g, value, promised ? content->rec : 0);

    if (promised && node->path >= 0 && same_boot) {
        struct lfile *file = &world->ledger.files[g][node->path];
        if (!was_written(world, file, content->rec, value))
            violate(world, "recovered bytes of %s that nobody wrote", path_names[node->path]);
        file->exists = true;
        file->acked = rec;
        file->maybe_count = 0;
    }
    content->state = CONTENT_FROZEN;
    content->version = content->rec = rec;
    content->value = value;
    content->flags |= CONTENT_ACKED;
    sync_content(gateway, node->live);
    node->frozen = node->live;
    node->live = NONE;
}

static void
recover_live(struct world *world, struct gateway *gateway, struct node *node, bool same_boot)
{
    struct content_view view;

    content_view_of(gateway, node, node->live, &view);
    view.other_writers = false;
    if (content_recover(&view, same_boot) == CONTENT_FREEZE) {
        freeze(world, gateway, node, same_boot);
        if (node->orphan == ORPHAN_LOST)
            conflict_add(world, gateway, node, node->frozen, false);
    } else {
        if (node->orphan != ORPHAN_REMOVED)
            torn(world, gateway, node, node->live);
        node->live = NONE;
    }
    if (node->orphan != ORPHAN_NOT)
        node->id = 0;
    else
        drop_if_empty(node);
}

static void
recover_rest(struct world *world, struct gateway *gateway, struct node *node, bool same_boot)
{
    struct content_view view;
    int at = node->frozen;

    content_view_of(gateway, node, at, &view);
    switch (content_recover(&view, same_boot)) {
    case CONTENT_TORN:
        torn(world, gateway, node, at);
        node->frozen = NONE;
        break;
    case CONTENT_VERIFY:
        if (gateway->disk[at].value != gateway->cur.contents[at].value)
            node->frozen = NONE;
        break;
    case CONTENT_DROP:
        node->frozen = NONE;
        break;
    default:
        break;
    }
    drop_if_empty(node);
}

static void
recover(struct world *world, struct gateway *gateway, bool same_boot)
{
    for (int i = 0; i < NODES; i++) {
        struct node *node = &gateway->cur.nodes[i];
        if (node->id != 0 && node->frozen >= 0)
            recover_rest(world, gateway, node, same_boot);
        if (node->id != 0 && node->live >= 0)
            recover_live(world, gateway, node, same_boot);
    }
    for (int p = 0; p < PATHS; p++) {
        struct intent *intent = &gateway->cur.intents[p];
        intent->active = true;
        intent->not_before = world->now;
        intent->attempt.sent_at = world->now;
        intent->attempt.unknown = false;
        if (intent->attempt.op != SYNC_OP_NONE && !sync_rule_on(RULE_ATTEMPT_ROW))
            intent->attempt = (struct attempt){ .op = SYNC_OP_NONE, .content = NONE };
    }
    commit(world, gateway, true);
}

void
gateway_kill(struct world *world, int g)
{
    struct gateway *gateway = &world->gateways[g];

    trace(world, "gateway %d: kill -9", g);
    world->counts[COUNT_KILLS]++;
    net_crash(world, g);
    gateway_start(world, gateway);
    recover(world, gateway, true);
}

/* What was not made durable may be gone, or may be there. */
static void
cut_files(struct world *world, struct gateway *gateway)
{
    for (int i = 0; i < CONTENTS; i++) {
        struct disk_file *file = &gateway->disk[i];
        if (!gateway->cur.contents[i].used)
            continue;
        if (world_chance(world, 500))
            file->value = file->has_durable ? file->durable : GARBAGE + ++world->serial;
        file->durable = file->value;
        file->has_durable = true;
    }
}

void
gateway_power_cut(struct world *world, int g)
{
    struct gateway *gateway = &world->gateways[g];

    trace(world, "gateway %d: power cut", g);
    world->counts[COUNT_POWER_CUTS]++;
    net_crash(world, g);
    gateway->boot++;
    gateway->clock_offset =
        (int64_t)world_pick(world, 1000000) + 10000000 - world->now; /* starts anew */
    gateway->cur = gateway->dur;
    cut_files(world, gateway);
    gateway_start(world, gateway);
    recover(world, gateway, false);
    ledger_power_cut(world, g);
}
