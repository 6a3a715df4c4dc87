#include <string.h>

#include "sim.h"

/* ---- what programs do in a mount. The ledger notes what they were told. ---- */

#define COPY_LIMIT 100u

static struct lfile *
lfile(struct world *world, int g, int path)
{
    return &world->ledger.files[g][path];
}

static bool
is_open(const struct gateway *gateway, const struct node *node)
{
    return gateway->handles[node_row(&gateway->cur, node)].how != OPEN_NOT;
}

static void
opened(struct gateway *gateway, struct node *node, enum open_how how)
{
    gateway->handles[node_row(&gateway->cur, node)] =
        (struct handle){ .node = node->id, .how = how, .modified = how == OPEN_EMPTY };
}

static int
live_copy(struct world *world, struct gateway *gateway, struct node *node, bool empty)
{
    int at = content_new(world, gateway, node);
    struct content *content = &gateway->cur.contents[at];

    node->live = at;
    content->flags = CONTENT_COMPLETE | (empty ? (unsigned)CONTENT_TRUNCATED : 0);
    if (!empty) {
        gateway->disk[at].value = gateway->disk[node->frozen].value;
        content->rec = gateway->cur.contents[node->frozen].rec;
    }
    return at;
}

/* The file itself becomes LIVE: its row is durable before its bytes change. */
static void
live_in_place(struct world *world, struct gateway *gateway, struct node *node, bool clean)
{
    struct content *content = &gateway->cur.contents[node->frozen];

    content->state = CONTENT_LIVE;
    content->flags &= ~(unsigned)CONTENT_TRUNCATED;
    if (clean)
        content->flags &= ~(unsigned)CONTENT_ACKED;
    node->live = node->frozen;
    node->frozen = NONE;
    commit(world, gateway, sync_rule_on(RULE_LIVE_ROW));
}

static void
open_write(struct world *world, int g, struct node *node, bool truncate)
{
    struct gateway *gateway = &world->gateways[g];
    struct content_view view;

    content_view_of(gateway, node, node->live >= 0 ? node->live : node->frozen, &view);
    switch (content_open_for_writing(&view, truncate, COPY_LIMIT)) {
    case CONTENT_OPEN_NEW_EMPTY:
        live_copy(world, gateway, node, true);
        opened(gateway, node, OPEN_EMPTY);
        break;
    case CONTENT_OPEN_NEW_COPY:
        live_copy(world, gateway, node, false);
        opened(gateway, node, OPEN_COPY);
        break;
    case CONTENT_OPEN_IN_PLACE:
        live_in_place(world, gateway, node, true);
        opened(gateway, node, OPEN_IN_PLACE);
        break;
    case CONTENT_OPEN_THAW:
        live_in_place(world, gateway, node, false);
        opened(gateway, node, OPEN_THAW);
        break;
    case CONTENT_OPEN_FETCH_FIRST:
        driver_fetch(world, g, node);
        return;
    default:
        violate(world, "a writing open that the simulator does not have");
        return;
    }
    trace(world, "user %d: open %s%s", g, path_names[node->path], truncate ? " O_TRUNC" : "");
    touch(world, gateway, node->path);
    commit(world, gateway, false);
}

static void
create(struct world *world, int g, int path)
{
    struct gateway *gateway = &world->gateways[g];
    struct node *node = node_new(world, gateway, path);

    live_copy(world, gateway, node, true);
    opened(gateway, node, OPEN_EMPTY);
    touch(world, gateway, path);
    commit(world, gateway, false);
    trace(world, "user %d: create %s", g, path_names[path]);
}

static void
write_to(struct world *world, int g, struct node *node)
{
    struct gateway *gateway = &world->gateways[g];
    uint32_t value = world_value(world);
    uint32_t theirs = node->path < 0 ? 0 : gateway->cur.keys[node->path].value;

    if (theirs != 0 && world_chance(world, 400)) /* two users come to the same bytes */
        value = theirs;
    gateway->disk[node->live].value = value;
    gateway->handles[node_row(&gateway->cur, node)].modified = true;
    trace(world, "user %d: write %s value %u", g, node->path < 0 ? "-" : path_names[node->path],
          value);
    if (node->path < 0)
        return;
    struct lfile *file = lfile(world, g, node->path);
    file->maybe[file->maybe_count++ % MAYBE] = value;
}

static void
acked(struct world *world, int g, int path, uint32_t rec, bool durable)
{
    if (path < 0)
        return;
    struct lfile *file = lfile(world, g, path);
    if (!file->exists) {
        file->lacked = 0;
        file->since_count = 0;
    }
    file->exists = true;
    file->acked = rec;
    file->maybe_count = 0;
    if (durable) {
        file->lacked = rec;
        file->since_count = 0;
    }
    ledger_since(file, rec);
}

static uint32_t
parent_of(struct world *world, int g, const struct node *node, const struct content *content)
{
    if (node->path >= 0 && lfile(world, g, node->path)->exists)
        return lfile(world, g, node->path)->acked;
    if (node->place.kind != PLACE_NONE)
        return node->rec; /* seen in a listing, not read */
    return (content->flags & CONTENT_ACKED) != 0 ? content->rec : 0;
}

static void
fsync_file(struct world *world, int g, struct node *node)
{
    struct gateway *gateway = &world->gateways[g];
    struct content *content = &gateway->cur.contents[node->live];

    if (!gateway->handles[node_row(&gateway->cur, node)].modified)
        return;
    content->rec = ledger_record(world, g, gateway->disk[node->live].value,
                                 parent_of(world, g, node, content));
    sync_content(gateway, node->live);
    content->flags |= CONTENT_ACKED;
    commit(world, gateway, true);
    acked(world, g, node->path, content->rec, true);
    trace(world, "user %d: fsync %s rec %u", g, node->path < 0 ? "-" : path_names[node->path],
          content->rec);
}

/* LIVE becomes FROZEN. Bytes that replace fsynced ones are durable first. */
void
user_freeze(struct world *world, struct gateway *gateway, struct node *node)
{
    int g = (int)(gateway - world->gateways);
    struct content *content = &gateway->cur.contents[node->live];
    const struct disk_file *file = &gateway->disk[node->live];
    const struct content *before = node->frozen >= 0 ? &gateway->cur.contents[node->frozen] : NULL;
    bool replaces =
        before != NULL && before->state == CONTENT_FROZEN && (before->flags & CONTENT_DURABLE) != 0;

    replaces |= (content->flags & CONTENT_DURABLE) != 0 && (content->flags & CONTENT_ACKED) != 0;
    uint32_t version = ledger_record(world, g, file->value, parent_of(world, g, node, content));
    content->state = CONTENT_FROZEN;
    content->flags = CONTENT_COMPLETE | CONTENT_ACKED;
    if (file->has_durable && file->durable == file->value)
        content->flags |= CONTENT_DURABLE;
    if (replaces && sync_rule_on(RULE_REPLACE_DURABLE))
        sync_content(gateway, node->live);
    content->version = content->rec = version;
    content->value = world_chance(world, 500) ? file->value : 0;
    node->frozen = node->live;
    node->live = NONE;
}

static void
close_unchanged(struct gateway *gateway, struct node *node, enum open_how how)
{
    struct content *content = &gateway->cur.contents[node->live];

    if (how != OPEN_COPY) {
        content->state = how == OPEN_THAW ? CONTENT_FROZEN : CONTENT_CLEAN;
        node->frozen = node->live;
    }
    node->live = NONE;
}

static void
close_orphan(struct world *world, struct gateway *gateway, struct node *node)
{
    if (node->orphan == ORPHAN_LOST && node->frozen >= 0 &&
        gateway->cur.contents[node->frozen].state == CONTENT_FROZEN)
        conflict_add(world, gateway, node, node->frozen, false);
    node->id = 0;
    commit(world, gateway, true);
}

static void
close_file(struct world *world, int g, struct node *node)
{
    struct gateway *gateway = &world->gateways[g];
    struct handle *handle = &gateway->handles[node_row(&gateway->cur, node)];
    enum open_how how = handle->how;
    bool modified = handle->modified;

    handle->how = OPEN_NOT;
    trace(world, "user %d: close %s%s", g, node->path < 0 ? "-" : path_names[node->path],
          modified ? "" : " unchanged");
    if (modified)
        user_freeze(world, gateway, node);
    else
        close_unchanged(gateway, node, how);
    if (node->orphan != ORPHAN_NOT) {
        close_orphan(world, gateway, node);
        return;
    }
    commit(world, gateway, world_chance(world, 200));
    touch(world, gateway, node->path);
    if (modified)
        acked(world, g, node->path, gateway->cur.contents[node->frozen].rec, false);
    world->counts[COUNT_SAVES] += modified;
}

/* ---- names ---- */

static void
remove_node(struct world *world, int g, struct node *node)
{
    struct gateway *gateway = &world->gateways[g];
    struct place place = node->place;
    int64_t id = node->id;

    ledger_gone(world, g, node);
    touch(world, gateway, node->path);
    lfile(world, g, node->path)->exists = false;
    node->place.kind = PLACE_NONE;
    node->path = NONE;
    node->orphan = ORPHAN_REMOVED;
    if (node->live < 0)
        node->id = 0;
    discard_place(world, gateway, &place, id);
}

/* `file` takes the place of `old`: after a power cut the old or the new must be found. */
static void
replace_promise(const struct world *world, struct lfile *file, const struct lfile *old)
{
    if (!old->exists)
        return;
    if (file->lacked == 0)
        file->lacked = old->lacked;
    if (file->lacked == 0 && world->ledger.records[old->acked].landed)
        file->lacked = old->acked;
    for (int i = 0; i < old->since_count; i++)
        ledger_since(file, old->since[i]);
    ledger_since(file, old->acked);
}

/* A rename; the target is the caller's matter. */
static void
move_node(struct world *world, int g, struct node *node, int to)
{
    struct gateway *gateway = &world->gateways[g];
    int from = node->path;

    ledger_gone(world, g, node);
    node->path = to;
    touch(world, gateway, from);
    touch(world, gateway, to);
    if (node->place.kind == PLACE_KEY && !sync_rule_on(RULE_DISCARD_LATE) && node->place.at != to)
        discard_place(world, gateway, &node->place, node->id);
    world->counts[COUNT_RENAMES]++;
}

static void
rename_over(struct world *world, int g, int from, int to)
{
    struct gateway *gateway = &world->gateways[g];
    struct node *node = node_at(&gateway->cur, from);
    struct node *target = node_at(&gateway->cur, to);
    struct lfile moved = *lfile(world, g, from);

    if (node == NULL || from == to || (target != NULL && node->live >= 0))
        return;
    trace(world, "user %d: rename %s to %s%s", g, path_names[from], path_names[to],
          target != NULL ? ", over a file" : "");
    if (target != NULL) {
        replace_promise(world, &moved, lfile(world, g, to));
        if (node->place.kind != PLACE_NONE)
            ledger_since(&moved, node->rec);
        if (node->frozen >= 0 && sync_rule_on(RULE_REPLACE_DURABLE))
            sync_content(gateway, node->frozen);
        remove_node(world, g, target);
    }
    move_node(world, g, node, to);
    *lfile(world, g, to) = moved;
    lfile(world, g, from)->exists = false;
    commit(world, gateway, world_chance(world, 200));
}

static void
exchange(struct world *world, int g, int a, int b)
{
    struct gateway *gateway = &world->gateways[g];
    struct node *first = node_at(&gateway->cur, a);
    struct node *second = node_at(&gateway->cur, b);
    struct lfile file = *lfile(world, g, a);

    if (first == NULL || second == NULL || a == b)
        return;
    trace(world, "user %d: exchange %s and %s", g, path_names[a], path_names[b]);
    move_node(world, g, first, b);
    move_node(world, g, second, a);
    *lfile(world, g, a) = *lfile(world, g, b);
    *lfile(world, g, b) = file;
    commit(world, gateway, world_chance(world, 200));
}

static void
rename_folder(struct world *world, int g, int from, int to)
{
    struct gateway *gateway = &world->gateways[g];

    for (int i = 0; i < DIR_FILES; i++) {
        if (node_at(&gateway->cur, to + i) != NULL)
            return;
    }
    for (int i = 0; i < DIR_FILES; i++) {
        struct node *node = node_at(&gateway->cur, from + i);
        if (node == NULL)
            continue;
        trace(world, "user %d: rename folder of %s", g, path_names[from + i]);
        move_node(world, g, node, to + i);
        *lfile(world, g, to + i) = *lfile(world, g, from + i);
        lfile(world, g, from + i)->exists = false;
    }
    commit(world, gateway, world_chance(world, 200));
}

/* A save as editors do it: a temporary file, closed, renamed over the name. */
static void
save_by_rename(struct world *world, int g, int path)
{
    struct gateway *gateway = &world->gateways[g];
    struct node *old = node_at(&gateway->cur, path);
    struct lfile before = *lfile(world, g, path);
    uint32_t parent = old != NULL && old->place.kind != PLACE_NONE ? old->rec : 0;
    if (old != NULL)
        remove_node(world, g, old);
    struct node *node = node_new(world, gateway, path);
    int at = live_copy(world, gateway, node, true);
    gateway->disk[at].value = world_value(world);
    user_freeze(world, gateway, node);
    struct content *content = &gateway->cur.contents[at];
    world->ledger.records[content->rec].parent = before.exists ? before.acked : parent;
    if (old != NULL && sync_rule_on(RULE_REPLACE_DURABLE))
        sync_content(gateway, at);
    touch(world, gateway, path);
    acked(world, g, path, content->rec, false);
    replace_promise(world, lfile(world, g, path), &before);
    commit(world, gateway, world_chance(world, 200));
    trace(world, "user %d: save %s by rename, version %u value %u", g, path_names[path],
          content->version, gateway->disk[at].value);
}

static struct node *
some_open(struct world *world, struct gateway *gateway)
{
    int first = (int)world_pick(world, NODES);

    for (int i = 0; i < NODES; i++) {
        struct node *node = &gateway->cur.nodes[(first + i) % NODES];
        if (node->id != 0 && node->live >= 0 && is_open(gateway, node))
            return node;
    }
    return NULL;
}

static void
work_on_open(struct world *world, int g, struct node *node)
{
    switch (world_pick(world, 4)) {
    case 0:
        fsync_file(world, g, node);
        break;
    case 1:
        close_file(world, g, node);
        break;
    default:
        write_to(world, g, node);
        break;
    }
}

void
user_close_all(struct world *world, int g)
{
    for (;;) {
        struct node *node = some_open(world, &world->gateways[g]);
        if (node == NULL)
            return;
        close_file(world, g, node);
    }
}

/* Users are not kinder than chance: often it is a name whose upload is on its way. */
static int
some_path(struct world *world, const struct gateway *gateway)
{
    int path = world_path(world);

    for (int tries = 0; tries < 3 && gateway->cur.intents[path].attempt.op != SYNC_OP_PUT; tries++)
        path = world_path(world);
    return path;
}

void
user_step(struct world *world, int g)
{
    struct gateway *gateway = &world->gateways[g];
    int path = world_chance(world, 300) ? some_path(world, gateway) : world_path(world);
    struct node *node = node_at(&gateway->cur, path);
    struct node *open = some_open(world, gateway);
    unsigned dice = world_pick(world, 100);

    if (open != NULL && dice < 45)
        work_on_open(world, g, open);
    else if (dice < 50)
        rename_over(world, g, path, world_path(world));
    else if (dice < 54)
        exchange(world, g, path, world_path(world));
    else if (dice < 56)
        rename_folder(world, g, dice == 54 ? DIR_1 : DIR_2, dice == 54 ? DIR_2 : DIR_1);
    else if (dice < 68)
        save_by_rename(world, g, path);
    else if (node == NULL)
        create(world, g, path);
    else if (dice < 74) {
        trace(world, "user %d: remove %s", g, path_names[path]);
        remove_node(world, g, node);
        commit(world, gateway, world_chance(world, 200));
    } else if (node->live < 0 && dice < 92)
        open_write(world, g, node, dice < 82);
    else if (node->live < 0)
        driver_fetch(world, g, node); /* a read */
}
