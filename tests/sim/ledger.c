#include <string.h>

#include "sim.h"

/*
 * The ledger: what users were told, and what really happened in the bucket. It reads the index only as a user's `cat` would:
 * which bytes does this name show.
 */

uint32_t
ledger_record(struct world *world, int writer, uint32_t value, uint32_t parent)
{
    struct ledger *ledger = &world->ledger;

    if (ledger->count == RECORDS) {
        violate(world, "the simulator has no free record");
        return RECORDS - 1;
    }
    ledger->records[ledger->count] = (struct record){
        .value = value,
        .parent = parent,
        .writer = writer,
        .made_at = world->now,
        .boot = writer < GATEWAYS ? world->gateways[writer].boot : 0,
    };
    return ledger->count++;
}

/* Whether whoever made `rec` had seen `old`. */
bool
ledger_ancestor(const struct world *world, uint32_t old, uint32_t rec)
{
    for (int i = 0; i < 400 && rec != 0; i++, rec = world->ledger.records[rec].parent) {
        if (rec == old)
            return true;
    }
    return false;
}

static bool
chain_has_value(const struct world *world, uint32_t value, uint32_t rec)
{
    for (int i = 0; i < 400 && rec != 0; i++, rec = world->ledger.records[rec].parent) {
        if (world->ledger.records[rec].value == value)
            return true;
    }
    return false;
}

static void
ledger_gone_add(struct world *world, int g, int path, uint32_t rec)
{
    struct ledger *ledger = &world->ledger;
    ledger->gone[g][path][ledger->gone_count[g][path]++ % GONE] = rec;
}

/* The user removes the name or moves it away, and knows what it showed. */
void
ledger_gone(struct world *world, int g, const struct node *node)
{
    int path = node->path;
    const struct lfile *file = &world->ledger.files[g][path];

    if (file->exists)
        ledger_gone_add(world, g, path, file->acked);
    if (node->place.kind != PLACE_NONE)
        ledger_gone_add(world, g, path, node->rec); /* seen in a listing, not read */
}

static bool
is_gone(const struct world *world, int g, int path, uint32_t rec)
{
    for (int i = 0; i < GONE; i++) {
        if (ledger_ancestor(world, rec, world->ledger.gone[g][path][i]))
            return true;
    }
    return false;
}

static bool
gone_has_value(const struct world *world, int g, int path, uint32_t value)
{
    for (int i = 0; i < GONE; i++) {
        if (chain_has_value(world, value, world->ledger.gone[g][path][i]))
            return true;
    }
    return false;
}

/* A foreign version that was moved got an id of ours, or a client copied an object with its id: what it was before. */
static uint32_t
unnamed(const struct world *world, uint32_t rec)
{
    const struct record *records = world->ledger.records;
    uint32_t parent = records[rec].parent;

    return parent != 0 && records[parent].value == records[rec].value ? parent : rec;
}

/* Whether gateway `g` may replace `old` at the key by `rec` (0: delete it): only what its user had seen. */
static bool
may_replace(const struct world *world, int g, int path, uint32_t rec, const struct object *old)
{
    const struct record *record = &world->ledger.records[old->rec];
    uint32_t known = unnamed(world, old->rec);

    if (ledger_ancestor(world, known, rec) || is_gone(world, g, path, known))
        return true;
    if (old->writer == g)
        return record->kept || record->boot < world->gateways[g].boot;
    return chain_has_value(world, old->value, rec) || gone_has_value(world, g, path, old->value);
}

static void
destroy(struct world *world, uint32_t rec, int key, int writer)
{
    struct record *record = &world->ledger.records[rec];

    record->destroyed_at = world->now;
    record->destroyed_by[key] = (uint8_t)(record->destroyed_by[key] | 1u << writer);
}

/* Also what had the same bytes and ETag as the replaced object counts as destroyed with it. */
void
ledger_replaced(struct world *world, int writer, int key, const struct object *old)
{
    if (!old->present)
        return;
    destroy(world, old->rec, key, writer);
    for (int g = 0; g < GATEWAYS; g++) {
        for (int i = 0; i < NODES; i++) {
            const struct node *node = &world->gateways[g].cur.nodes[i];
            if (node->id != 0 && node->place.kind == PLACE_KEY && node->place.at == key &&
                node->place.etag == old->etag)
                destroy(world, node->rec, key, writer);
        }
    }
}

/* Where the store ignores the condition, what counts is what lay there when the request was sent. */
void
ledger_sent_blind(struct world *world, const struct request *request)
{
    const struct object *at = &world->bucket.keys[request->key];
    uint32_t rec = request->kind == REQ_PUT ? request->version : 0;

    if (at->present && !may_replace(world, request->gateway, request->key, rec, at))
        violate(world,
                "a request is sent that would replace record %u at %s, which gateway %d had "
                "not seen",
                at->rec, path_names[request->key], request->gateway);
}

/* A look after the version was made proved that equal bytes lay there: what happened to those since, happened to it. */
void
ledger_adopted(struct world *world, int key, uint32_t rec, uint32_t equal)
{
    struct record *records = world->ledger.records;

    if (records[rec].value == records[equal].value &&
        records[equal].destroyed_at > records[rec].made_at)
        records[rec].destroyed_by[key] |= records[equal].destroyed_by[key];
}

static bool
was_sent(const struct world *world, int g, int key, uint32_t rec)
{
    const struct record *records = world->ledger.records;
    uint32_t value = records[rec].value;

    for (; rec != 0 && records[rec].value == value; rec = records[rec].parent) {
        if ((records[rec].sent_by[key] & 1u << g) != 0)
            return true;
    }
    return false;
}

void
ledger_sent(struct world *world, const struct request *request)
{
    struct record *record = &world->ledger.records[request->version];

    record->sent_by[request->key] |= (uint8_t)(1u << request->gateway);
}

/* A late version of its own, or a copy of it, taken for what it is: the gateway may replace or delete it. */
void
ledger_known(struct world *world, int g, int key, uint32_t rec)
{
    if (was_sent(world, g, key, rec))
        ledger_gone_add(world, g, key, rec);
}

/* The gateway was told that its file lies at the key. */
void
ledger_told(struct world *world, int g, int key, uint32_t rec)
{
    uint8_t *told = &world->ledger.records[rec].told[key];

    *told = (uint8_t)(*told | 1u << g);
}

/* A DELETE of its own without an answer: the gateway cannot tell whose deletion it sees, and keeps the bytes. */
static bool
may_be_own_delete(const struct world *world, int g, int key)
{
    const struct intent *intent = &world->gateways[g].cur.intents[key];

    for (int i = 0; i < intent->late_count; i++) {
        if (intent->late[i].op == SYNC_OP_DELETE)
            return true;
    }
    return false;
}

/* Somebody else deleted the file that this version was made from, and the user was not told. */
static bool
resurrects(const struct world *world, const struct request *request)
{
    int key = request->key;
    uint32_t deleted = world->bucket.deleted_rec[key];

    return deleted != 0 && request->sent_at >= world->bucket.deleted_at[key] &&
           (world->ledger.records[deleted].told[key] & 1u << request->gateway) != 0 &&
           world->bucket.deleted_by[key] != request->gateway &&
           ledger_ancestor(world, deleted, request->version) &&
           !is_gone(world, request->gateway, key, deleted) && request->at_home &&
           !may_be_own_delete(world, request->gateway, key);
}

static bool
loses_only_to_weakness(const struct request *request, const struct object *old)
{
    return request->free_of_conditions &&
           (old->writer == FOREIGN || old->writer == request->gateway);
}

/* What no rule can prevent: it counts as somebody else's doing. */
static bool
blameless(const struct world *world, const struct request *request, uint32_t rec,
          const struct object *old)
{
    int g = request->gateway;

    /* The store ignores conditions, and a foreign client came between the check and the write. */
    if (request->free_of_conditions && old->writer == FOREIGN)
        return true;
    /* Somebody else put equal bytes: their ETag is the same where it is an MD5. */
    if (world->md5_etags && old->writer != g && old->etag == request->cond_etag)
        return true;
    /* A request from before a power cut brings back a version that the cut had undone. */
    return world->ledger.records[rec].boot < world->gateways[g].boot;
}

static bool destroyed_by_others(const struct record *record, int g);

/* The bytes of what went lie in the history, or in the bucket under another key (a moved file's, a parked one's), where somebody else
 * may have destroyed them since: by value, for equal bytes are as good. */
static bool
is_preserved(const struct world *world, int g, const struct object *old)
{
    const struct ledger *ledger = &world->ledger;

    for (uint32_t rec = 1; rec < ledger->count; rec++) {
        const struct record *record = &ledger->records[rec];
        if (record->value == old->value && (record->in_history || destroyed_by_others(record, g)))
            return true;
    }
    for (int p = 0; p < PATHS; p++)
        if (world->bucket.keys[p].present && world->bucket.keys[p].value == old->value)
            return true;
    for (int i = 0; i < PARKS; i++)
        if (world->bucket.parks[i].present && world->bucket.parks[i].value == old->value)
            return true;
    return false;
}

void
ledger_landed(struct world *world, const struct request *request, const struct object *old)
{
    int g = request->gateway;
    uint32_t rec = request->kind == REQ_DELETE ? 0 : request->version;

    if (old->present && !may_replace(world, g, request->key, rec, old) &&
        !loses_only_to_weakness(request, old))
        violate(world, "gateway %d replaced record %u at %s by %u without having seen it", g,
                old->rec, path_names[request->key], rec);
    if (world->history && old->present && !is_preserved(world, g, old) &&
        !(request->free_of_conditions && old->etag != request->cond_etag))
        violate(world, "gateway %d ended record %u at %s, and the history has no copy", g, old->rec,
                path_names[request->key]);
    ledger_replaced(world, blameless(world, request, rec, old) ? FOREIGN : g, request->key, old);
    if (rec == 0)
        return;
    if (!old->present && resurrects(world, request))
        violate(world, "gateway %d resurrected %s, which somebody else had deleted", g,
                path_names[request->key]);
    world->ledger.records[rec].landed = true;
}

/* Whether the object is what gateway `g` put there since its machine last started: it must know it again. */
static bool
is_own(const struct world *world, int g, const struct object *at, uint32_t rec)
{
    return at->present && at->rec == rec && at->writer == g &&
           world->ledger.records[rec].boot >= world->gateways[g].boot;
}

/* A loser, and what the user made it from since it last lay in the bucket, are in the conflict list. */
void
ledger_kept(struct world *world, uint32_t rec)
{
    struct record *records = world->ledger.records;

    for (; rec != 0 && !records[rec].kept; rec = records[rec].parent) {
        records[rec].kept = true;
        if (records[rec].landed)
            return;
    }
}

void
ledger_since(struct lfile *file, uint32_t rec)
{
    if (file->since_count == SINCE)
        file->lacked = 0; /* too many to follow */
    else
        file->since[file->since_count++] = rec;
}

void
ledger_conflict(struct world *world, int g, int path, uint32_t mine)
{
    const struct keyrow *theirs = &world->gateways[g].cur.keys[path];

    if (theirs->present && is_own(world, g, &world->bucket.keys[path], theirs->rec))
        violate(world, "gateway %d made a conflict of its own versions %u and %u", g, mine,
                theirs->rec);
}

/* ---- what a name shows ---- */

static bool
read_place(const struct world *world, const struct place *place, uint32_t *value)
{
    const struct object *at;

    if (place->kind == PLACE_NONE)
        return false;
    at =
        place->kind == PLACE_KEY ? &world->bucket.keys[place->at] : &world->bucket.parks[place->at];
    *value = at->value;
    return at->present && at->etag == place->etag;
}

static bool
read_node(const struct world *world, const struct gateway *gateway, const struct node *node,
          uint32_t *rec, uint32_t *value)
{
    if (node->frozen >= 0) {
        *rec = gateway->cur.contents[node->frozen].rec;
        *value = gateway->disk[node->frozen].value;
        return true;
    }
    *rec = node->rec;
    return read_place(world, &node->place, value);
}

static bool
destroyed_by_others(const struct record *record, int g)
{
    for (int p = 0; p < PATHS; p++) {
        if ((record->destroyed_by[p] & ~(1u << g)) != 0)
            return true;
    }
    return false;
}

/* Kept as a conflict, or destroyed in the bucket by somebody else. */
static bool
excused(const struct world *world, int g, uint32_t rec)
{
    const struct record *records = world->ledger.records;
    const struct index *index = &world->gateways[g].cur;

    if (records[rec].kept || destroyed_by_others(&records[rec], g) ||
        destroyed_by_others(&records[unnamed(world, rec)], g))
        return true;
    for (int i = 0; i < CONTENTS; i++) {
        const struct content *content = &index->contents[i];
        if (content->used && content->state == CONTENT_LIVE &&
            (content->flags & CONTENT_ACKED) != 0 && ledger_ancestor(world, rec, content->rec))
            return true;
    }
    return false;
}

/* A later version of the gateway's own landed, and its index does not know it (any more): the next look finds it. */
static bool
will_be_looked_at(const struct world *world, int g, int path, uint32_t rec)
{
    const struct object *at = &world->bucket.keys[path];

    return at->present && at->writer == g && ledger_ancestor(world, rec, at->rec);
}

static void
check_open(struct world *world, int g, int path, const struct node *node, struct lfile *file)
{
    const struct gateway *gateway = &world->gateways[g];
    uint32_t rec, value;

    if (!file->exists || (gateway->cur.contents[node->live].flags & CONTENT_ACKED) != 0)
        return;
    if (read_node(world, gateway, node, &rec, &value) &&
        (rec == file->acked || value == world->ledger.records[file->acked].value))
        return;
    if (!excused(world, g, file->acked) && !will_be_looked_at(world, g, path, file->acked))
        violate(world, "gateway %d: %s is open, and the version before it (%u) is nowhere", g,
                path_names[path], file->acked);
}

static void
check_shown(struct world *world, int g, int path, struct lfile *file, uint32_t rec, uint32_t value)
{
    const struct record *record = &world->ledger.records[rec];

    if (record->value != value) {
        violate(world, "gateway %d: %s shows value %u, which is not that of record %u", g,
                path_names[path], value, rec);
        return;
    }
    if (file->exists && rec == file->acked)
        return;
    if (file->exists && world->ledger.records[file->acked].value != value &&
        !excused(world, g, file->acked) && !ledger_ancestor(world, file->acked, rec)) {
        violate(world, "gateway %d: %s shows record %u; the user was told that %u is kept", g,
                path_names[path], rec, file->acked);
        return;
    }
    if (!file->exists && is_own(world, g, &world->bucket.keys[path], rec)) {
        violate(world, "gateway %d: %s came back with record %u after it was removed", g,
                path_names[path], rec);
        return;
    }
    if (file->exists)
        ledger_gone_add(world, g, path, file->acked);
    *file = (struct lfile){ .exists = true, .acked = rec };
}

static void
check_name(struct world *world, int g, int path)
{
    struct gateway *gateway = &world->gateways[g];
    struct lfile *file = &world->ledger.files[g][path];
    const struct node *node = node_at(&gateway->cur, path);
    uint32_t rec, value;

    if (node == NULL) {
        if (file->exists && !excused(world, g, file->acked))
            violate(world, "gateway %d: %s is gone; the user was told that record %u is kept", g,
                    path_names[path], file->acked);
        if (file->exists)
            ledger_gone_add(world, g, path, file->acked); /* the user sees that it is gone */
        file->exists = false;
    } else if (node->live >= 0) {
        check_open(world, g, path, node, file);
    } else if (read_node(world, gateway, node, &rec, &value)) {
        check_shown(world, g, path, file, rec, value);
    } else if (file->exists && !excused(world, g, file->acked) &&
               !will_be_looked_at(world, g, path, file->acked)) {
        violate(world, "gateway %d: the bytes of %s (record %u) are nowhere", g, path_names[path],
                file->acked);
    }
}

static void
check_rows(struct world *world, int g)
{
    const struct gateway *gateway = &world->gateways[g];

    for (int p = 0; p < PATHS; p++) {
        const struct keyrow *row = &gateway->cur.keys[p];
        int claims = 0;
        for (int i = 0; i < NODES; i++) {
            const struct node *node = &gateway->cur.nodes[i];
            claims += node->id != 0 && row->present && row->owner != 0 &&
                      node->place.kind == PLACE_KEY && node->place.at == p &&
                      node->place.etag == row->etag;
            if (node->id != 0 && node->id == row->owner &&
                (node->place.kind != PLACE_KEY || node->place.at != p))
                violate(world, "gateway %d: the owner of %s has its bytes elsewhere", g,
                        path_names[p]);
        }
        if (claims > 1 && !world->md5_etags) /* an MD5 names equal bytes, not one object */
            violate(world, "gateway %d: two files own %s", g, path_names[p]);
    }
    for (int i = 0; i < CONFLICTS; i++) {
        const struct conflict *conflict = &gateway->cur.conflicts[i];
        if (!conflict->used || conflict->torn)
            continue;
        uint32_t value =
            conflict->uploaded ? conflict->value : gateway->disk[conflict->content].value;
        if (value != world->ledger.records[conflict->rec].value)
            violate(world, "gateway %d: the loser %u of a conflict has lost its bytes", g,
                    conflict->rec);
    }
}

static void
check_lease(struct world *world)
{
    int holders = 0;

    for (int g = 0; g < GATEWAYS; g++) {
        const struct gateway *gateway = &world->gateways[g];
        holders += lease_valid(&gateway->lease, gateway_clock(world, gateway));
    }
    if (holders > 1)
        violate(world, "two gateways hold the lease");
}

void
ledger_check(struct world *world)
{
    for (int g = 0; g < GATEWAYS; g++) {
        for (int p = 0; p < PATHS; p++)
            check_name(world, g, p);
        check_rows(world, g);
    }
    check_lease(world);
}

/* ---- after a power cut: what was fsynced is there, or something later, or it is kept ---- */

static bool
is_later(const struct world *world, const struct lfile *file, uint32_t rec)
{
    if (world->ledger.records[rec].value == world->ledger.records[file->lacked].value ||
        ledger_ancestor(world, file->lacked, rec) || ledger_ancestor(world, file->acked, rec))
        return true;
    for (int i = 0; i < file->since_count; i++) {
        if (ledger_ancestor(world, file->since[i], rec))
            return true;
    }
    return false;
}

static bool
is_found(const struct world *world, int g, const struct lfile *file)
{
    const struct gateway *gateway = &world->gateways[g];
    uint32_t rec, value;

    for (int i = 0; i < NODES; i++) {
        const struct node *node = &gateway->cur.nodes[i];
        if (node->id != 0 && node->path >= 0 && read_node(world, gateway, node, &rec, &value) &&
            world->ledger.records[rec].value == value && is_later(world, file, rec))
            return true;
    }
    for (int i = 0; i < CONFLICTS; i++) {
        const struct conflict *conflict = &gateway->cur.conflicts[i];
        if (conflict->used && !conflict->torn && is_later(world, file, conflict->rec))
            return true;
    }
    for (int p = 0; p < PATHS; p++) { /* landed, and this index will find it there */
        const struct object *at = &world->bucket.keys[p];
        if (at->present && is_later(world, file, at->rec))
            return true;
    }
    for (uint32_t rec_2 = 1; rec_2 < world->ledger.count; rec_2++) { /* or destroyed by others */
        if (is_later(world, file, rec_2) && excused(world, g, rec_2))
            return true;
    }
    return false;
}

static void
forget_told(struct world *world, int g)
{
    for (uint32_t rec = 1; rec < world->ledger.count; rec++) {
        for (int p = 0; p < PATHS; p++)
            world->ledger.records[rec].told[p] &= (uint8_t) ~(1u << g);
    }
}

void
ledger_power_cut(struct world *world, int g)
{
    struct gateway *gateway = &world->gateways[g];
    uint32_t rec, value;

    forget_told(world, g);

    for (int p = 0; p < PATHS; p++) {
        struct lfile *file = &world->ledger.files[g][p];
        if (file->exists && file->lacked != 0 && !is_found(world, g, file))
            violate(world,
                    "gateway %d: after a power cut record %u of %s, fsynced, is nowhere (acked %u, "
                    "%d since)",
                    g, file->lacked, path_names[p], file->acked, file->since_count);
    }
    for (int p = 0; p < PATHS; p++) {
        struct lfile *file = &world->ledger.files[g][p];
        const struct node *node = node_at(&gateway->cur, p);
        *file = (struct lfile){ .exists = false };
        if (node != NULL && read_node(world, gateway, node, &rec, &value)) {
            *file = (struct lfile){ .exists = true, .acked = rec, .lacked = rec };
            if (world->ledger.records[rec].value != value)
                violate(world, "gateway %d: after a power cut %s shows value %u as record %u", g,
                        path_names[p], value, rec);
        }
    }
}

/* ---- at rest: no user, no fault, nothing to do ---- */

static void
check_rest(struct world *world, int g, int p)
{
    const struct gateway *gateway = &world->gateways[g];
    const struct object *at = &world->bucket.keys[p];
    const struct node *node = node_at(&world->gateways[g].cur, p);
    uint32_t rec = 0, value = 0;
    bool shown = node != NULL && read_node(world, gateway, node, &rec, &value);

    if (shown != at->present || (shown && value != at->value))
        violate(world, "at rest gateway %d shows %s value %u at %s, the bucket has %s value %u", g,
                shown ? "" : "nothing,", value, path_names[p], at->present ? "" : "nothing,",
                at->value);
    if (gateway->cur.intents[p].attempt.op != SYNC_OP_NONE ||
        (node != NULL && node->frozen >= 0 &&
         gateway->cur.contents[node->frozen].state != CONTENT_CLEAN))
        violate(world, "at rest gateway %d has not synced %s", g, path_names[p]);
}

void
ledger_check_rest(struct world *world)
{
    for (int g = 0; g < GATEWAYS; g++) {
        for (int p = 0; p < PATHS; p++)
            check_rest(world, g, p);
    }
}
