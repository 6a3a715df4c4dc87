#include <string.h>

#include "sim.h"

struct node *
node_get(struct index *index, int64_t id)
{
    for (int i = 0; i < NODES && id > 0; i++) {
        if (index->nodes[i].id == id)
            return &index->nodes[i];
    }
    return NULL;
}

struct node *
node_at(struct index *index, int path)
{
    for (int i = 0; i < NODES; i++) {
        if (index->nodes[i].id != 0 && index->nodes[i].path == path)
            return &index->nodes[i];
    }
    return NULL;
}

int
node_row(const struct index *index, const struct node *node)
{
    return (int)(node - index->nodes);
}

struct node *
node_new(struct world *world, struct gateway *gateway, int path)
{
    for (int i = 0; i < NODES; i++) {
        struct node *node = &gateway->cur.nodes[i];
        if (node->id != 0)
            continue;
        *node =
            (struct node){ .id = world->next_node++, .path = path, .live = NONE, .frozen = NONE };
        gateway->handles[i] = (struct handle){ .how = OPEN_NOT };
        gateway->fetching[i] = false;
        return node;
    }
    violate(world, "the simulator has no free node row");
    return &gateway->cur.nodes[0];
}

/* A row whose file name no durable row knows any more. */
int
content_new(struct world *world, struct gateway *gateway, struct node *node)
{
    for (int i = 0; i < CONTENTS; i++) {
        struct content *content = &gateway->cur.contents[i];
        if (content->used || gateway->dur.contents[i].used)
            continue;
        *content = (struct content){ .used = true, .node = node->id, .state = CONTENT_LIVE };
        gateway->disk[i] = (struct disk_file){ .value = EMPTY };
        return i;
    }
    violate(world, "the simulator has no free content row");
    return 0;
}

static bool
content_needed(const struct index *index, int content)
{
    for (int i = 0; i < NODES; i++) {
        const struct node *node = &index->nodes[i];
        if (node->id != 0 && (node->live == content || node->frozen == content))
            return true;
    }
    for (int p = 0; p < PATHS; p++) {
        if (index->intents[p].attempt.op == SYNC_OP_PUT &&
            index->intents[p].attempt.content == content)
            return true;
    }
    for (int i = 0; i < CONFLICTS; i++) {
        const struct conflict *conflict = &index->conflicts[i];
        if (conflict->used && conflict->content == content)
            return true;
    }
    return false;
}

/* Drops the rows that nothing needs; the files go when the rows' end is durable. */
static void
sweep(struct gateway *gateway)
{
    for (int i = 0; i < CONTENTS; i++) {
        struct content *content = &gateway->cur.contents[i];
        if (!content->used || content_needed(&gateway->cur, i))
            continue;
        content->used = false;
        if (!sync_rule_on(RULE_UNLINK_DURABLE))
            gateway->disk[i] = (struct disk_file){ .value = GARBAGE };
    }
}

void
commit(struct world *world, struct gateway *gateway, bool full)
{
    sweep(gateway);
    if (full || world_chance(world, 60)) /* somebody else's FULL commit carries all before it */
        gateway->dur = gateway->cur;
}

void
sync_content(struct gateway *gateway, int content)
{
    struct disk_file *file = &gateway->disk[content];

    file->durable = file->value;
    file->has_durable = true;
    gateway->cur.contents[content].flags |= CONTENT_DURABLE;
}

void
touch(struct world *world, struct gateway *gateway, int path)
{
    if (path < 0)
        return;
    gateway->cur.intents[path].active = true;
    gateway->cur.intents[path].not_before = world->now;
}

int
conflict_add(struct world *world, struct gateway *gateway, struct node *node, int content,
             bool torn)
{
    for (int i = 0; i < CONFLICTS; i++) {
        struct conflict *conflict = &gateway->cur.conflicts[i];
        if (conflict->used)
            continue;
        const struct content *row = &gateway->cur.contents[content];
        *conflict = (struct conflict){ .used = true,
                                       .torn = torn,
                                       .rec = row->rec,
                                       .version = row->version,
                                       .content = content,
                                       .node = node->id };
        if (!torn) {
            sync_content(gateway, content);
            ledger_kept(world, row->rec);
        }
        world->counts[torn ? COUNT_TORN : COUNT_CONFLICTS]++;
        return i;
    }
    violate(world, "the simulator has no free conflict row");
    return 0;
}
