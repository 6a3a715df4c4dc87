#include <string.h>

#include "sim.h"

/* ---- the changes that sync_decide() and sync_judge() ask for, as one transaction ---- */

/* The bytes at `place` are needed no more: their key may be written or deleted. A park object goes when no row, durable
 * or not, names it any more (driver.c). */
void
discard_place(struct world *world, struct gateway *gateway, const struct place *place,
              int64_t owner)
{
    if (place->kind == PLACE_KEY) {
        struct keyrow *row = &gateway->cur.keys[place->at];
        if (row->owner != owner)
            return;
        row->owner = 0;
        row->discard = row->present;
        row->seq = ++gateway->cur.seq;
        touch(world, gateway, place->at);
    }
}

static void
clear_attempt(struct world *world, struct intent *intent, unsigned bits)
{
    struct attempt *attempt = &intent->attempt;
    bool torn = attempt->op == SYNC_OP_PUT && attempt->content == NONE;

    if ((bits & SYNC_LOOK_AGAIN) != 0 && !torn && intent->late_count < LATE) {
        intent->late[intent->late_count++] = *attempt;
        intent->look_at = world->now + 1000 + (int64_t)world_pick(world, 60000);
    }
    *attempt = (struct attempt){ .op = SYNC_OP_NONE, .content = NONE };
}

/* A version of somebody else gets an id of ours when it must be written again. */
static void
name_content(struct world *world, struct gateway *gateway, int at)
{
    struct content *content = &gateway->cur.contents[at];

    content->value = gateway->disk[at].value;
    if (content->version != 0)
        return;
    content->version =
        ledger_record(world, (int)(gateway - world->gateways), content->value, content->rec);
    content->rec = content->version;
}

/* Somebody replaced or deleted what a moved node left at its old key. */
void
place_lost(struct world *world, struct gateway *gateway, int64_t owner, int path)
{
    struct node *node = node_get(&gateway->cur, owner);

    if (owner < 0)
        gateway->cur.conflicts[-owner - 1].place.kind = PLACE_NONE;
    if (node == NULL || node->path == path || node->place.kind != PLACE_KEY ||
        node->place.at != path)
        return;
    node->place.kind = PLACE_NONE;
    if (node->frozen >= 0)
        name_content(world, gateway, node->frozen);
    else if (node->live < 0)
        node->id = 0;
}

static void
set_have(struct world *world, struct gateway *gateway, int path, const struct sync_have *have,
         uint32_t seen_rec)
{
    struct keyrow *row = &gateway->cur.keys[path];
    int64_t owner = row->owner;

    *row = (struct keyrow){ .present = have->present };
    if (have->present) {
        row->etag = number_of(have->etag);
        row->version = number_of(have->version);
        row->value = number_of(have->sha256);
        row->size = (uint32_t)have->size;
        row->owner = have->owner;
        row->discard = have->discard;
        row->rec = seen_rec;
        if (have->discard)
            ledger_known(world, (int)(gateway - world->gateways), path, seen_rec);
    }
    row->seq = ++gateway->cur.seq;
    if (owner != 0 && owner != row->owner)
        place_lost(world, gateway, owner, path);
}

static struct place
synced(struct world *world, struct gateway *gateway, int path, const struct sync_effect *effect)
{
    struct node *node = node_get(&gateway->cur, effect->node);
    struct keyrow *row = &gateway->cur.keys[path];
    struct place old = { .kind = PLACE_NONE };

    if (node == NULL || node->orphan != ORPHAN_NOT) {
        row->owner = 0;
        row->discard = row->present;
        ledger_known(world, (int)(gateway - world->gateways), path, row->rec);
        return old;
    }
    if (node->place.kind != PLACE_KEY || node->place.at != path)
        old = node->place;
    if (old.kind == PLACE_KEY && row->value != 0 && gateway->cur.keys[old.at].value == row->value)
        gateway->cur.keys[old.at].kept = true; /* the same bytes, moved */
    node->place = (struct place){ .kind = PLACE_KEY, .at = path, .etag = row->etag };
    node->base_version = number_of(effect->version);
    node->rec = node->base_version;
    ledger_adopted(world, path, node->rec, row->rec);
    ledger_told(world, (int)(gateway - world->gateways), path, row->rec);
    if (node->frozen >= 0 && gateway->cur.contents[node->frozen].version == node->base_version)
        gateway->cur.contents[node->frozen].state = CONTENT_CLEAN;
    return old;
}

/* The bytes of the loser are kept, and the object that it left elsewhere stays until they are uploaded. */
static void
keep_loser(struct world *world, struct gateway *gateway, int path, const struct sync_effect *effect)
{
    struct node *node = node_get(&gateway->cur, effect->node);

    if (node == NULL || node->frozen < 0) {
        violate(world, "conflict at %s without the loser's bytes", path_names[path]);
        return;
    }
    const struct content *content = &gateway->cur.contents[node->frozen];
    ledger_conflict(world, (int)(gateway - world->gateways), path, content->rec);
    int at = conflict_add(world, gateway, node, node->frozen, false);
    struct conflict *conflict = &gateway->cur.conflicts[at];
    node->frozen = NONE;
    if (node->place.kind == PLACE_PARK) {
        conflict->place = node->place;
    } else if (node->place.kind == PLACE_KEY && node->place.at != path &&
               gateway->cur.keys[node->place.at].owner == node->id) {
        conflict->place = node->place;
        gateway->cur.keys[node->place.at].owner = -(at + 1);
    }
    node->place.kind = PLACE_NONE;
}

static void
take_theirs(struct world *world, struct gateway *gateway, int path,
            const struct sync_effect *effect)
{
    struct node *node = node_get(&gateway->cur, effect->node);
    struct keyrow *row = &gateway->cur.keys[path];

    if (node != NULL && node->live >= 0) { /* open: it keeps its bytes, the name gets a new node */
        node->path = NONE;
        node->orphan = ORPHAN_LOST;
        node->place.kind = PLACE_NONE;
    } else if (node != NULL) {
        node->id = 0;
    }
    if (!row->present)
        return;
    struct node *theirs = node_new(world, gateway, path);
    theirs->place = (struct place){ .kind = PLACE_KEY, .at = path, .etag = row->etag };
    theirs->base_version = row->version;
    theirs->rec = row->rec;
    ledger_told(world, (int)(gateway - world->gateways), path, row->rec);
    row->owner = theirs->id;
    row->discard = false;
}

void
driver_apply(struct world *world, struct gateway *gateway, int path,
             const struct sync_effect *effect, uint32_t seen_rec)
{
    struct intent *intent = &gateway->cur.intents[path];
    struct place old = { .kind = PLACE_NONE };

    touch(world, gateway, path);
    if ((effect->bits & SYNC_CLEAR_ATTEMPT) != 0) {
        clear_attempt(world, intent, effect->bits);
    } else if ((effect->bits & SYNC_MARK_UNKNOWN) != 0) {
        intent->attempt.unknown = true;
        if (world_chance(world, 400)) /* a store that does not answer is left alone for a while */
            intent->not_before = world->now + (int64_t)world_pick(world, 60000);
    }
    if ((effect->bits & SYNC_BACK_OFF) != 0)
        intent->not_before = world->now + (int64_t)world_pick(world, 4000);
    if ((effect->bits & SYNC_SET_HAVE) != 0)
        set_have(world, gateway, path, &effect->have, seen_rec);
    if ((effect->bits & SYNC_SYNCED) != 0)
        old = synced(world, gateway, path, effect);
    if ((effect->bits & SYNC_KEEP_LOSER) != 0)
        keep_loser(world, gateway, path, effect);
    if ((effect->bits & SYNC_TAKE_THEIRS) != 0)
        take_theirs(world, gateway, path, effect);
    if (effect->have.discard)
        world->counts[COUNT_LATE_OURS]++;
    discard_place(world, gateway, &old, effect->node);
    commit(world, gateway, (effect->bits & SYNC_KEEP_LOSER) != 0);
    trace(world, "gateway %d: %s bits %x etag %x owner %lld%s", (int)(gateway - world->gateways),
          path_names[path], effect->bits, gateway->cur.keys[path].etag,
          (long long)gateway->cur.keys[path].owner,
          gateway->cur.keys[path].discard ? " discard" : "");
}
