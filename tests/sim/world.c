#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim.h"

const char *const path_names[PATHS] = { "a", "b", "c", "d", "d1/x", "d1/y", "d2/x", "d2/y" };

#define TRACE_LINES 60
static char trace_lines[TRACE_LINES][200];
static unsigned trace_count;
static enum trace_mode trace_mode = TRACE_KEEP;

void
trace_set(enum trace_mode mode)
{
    trace_mode = mode;
}

void
trace(struct world *world, const char *fmt, ...)
{
    va_list ap;
    if (trace_mode == TRACE_OFF)
        return;
    char *line = trace_lines[trace_count++ % TRACE_LINES];
    int len = snprintf(line, sizeof(trace_lines[0]), "%8lld ", (long long)world->now);
    va_start(ap, fmt);
    (void)vsnprintf(line + len, sizeof(trace_lines[0]) - (size_t)len, fmt, ap);
    va_end(ap);
    if (trace_mode == TRACE_PRINT)
        printf("%s\n", line);
}

void
trace_dump(void)
{
    unsigned first = trace_count > TRACE_LINES ? trace_count - TRACE_LINES : 0;
    for (unsigned i = first; i < trace_count; i++)
        printf("  %s\n", trace_lines[i % TRACE_LINES]);
}

void
violate(struct world *world, const char *fmt, ...)
{
    va_list ap;
    if (world->violated)
        return;
    world->violated = true;
    va_start(ap, fmt);
    (void)vsnprintf(world->violation, sizeof(world->violation), fmt, ap);
    va_end(ap);
}

/* splitmix64 */
uint64_t
world_random(struct world *world)
{
    uint64_t z = (world->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

unsigned
world_pick(struct world *world, unsigned below)
{
    return (unsigned)(world_random(world) % below);
}

bool
world_chance(struct world *world, unsigned per_mille)
{
    return world_pick(world, 1000) < per_mille;
}

uint32_t
world_value(struct world *world)
{
    return world_chance(world, world->small_weight) ? 2 + world_pick(world, 2 + world->paths / 4)
                                                    : 100 + ++world->serial;
}

int
world_path(struct world *world)
{
    return (int)world_pick(world, world->paths);
}

bool
world_weak(const struct world *world)
{
    return !world->put_if_absent || !world->put_if_match || !world->delete_if_match;
}

int64_t
gateway_clock(const struct world *world, const struct gateway *gateway)
{
    return gateway->clock_offset + world->now + world->now / 1000000 * gateway->clock_ppm +
           world->now % 1000000 * gateway->clock_ppm / 1000000;
}

/* How busy and how rough the world is: in a quiet one more gets synced, and less is excused by somebody else's doing. */
static void
choose_weather(struct world *world)
{
    static const unsigned foreign[] = { 0, 5, 15, 30, 45 }, crash[] = { 0, 2, 5, 12 };
    static const unsigned user[] = { 60, 140, 220 }, small[] = { 300, 600, 950 };
    static const unsigned stall[] = { 0, 2, 8 }, paths[] = { 2, 4, PATHS };

    world->foreign_weight = foreign[world_pick(world, 5)];
    world->crash_weight = crash[world_pick(world, 4)];
    world->user_weight = user[world_pick(world, 3)];
    world->small_weight = small[world_pick(world, 3)];
    world->stall_weight = stall[world_pick(world, 3)];
    world->paths = paths[world_pick(world, 3)];
}

static void
choose_store(struct world *world)
{
    unsigned kind = world_pick(world, 10);

    world->history = world_chance(world, 700);
    world->md5_etags = world_chance(world, 700);
    world->put_if_absent = world->put_if_match = world->delete_if_match = true;
    if (kind < 2) {
        world->delete_if_match = false;
    } else if (kind == 2) {
        world->put_if_match = world->delete_if_match = false;
    } else if (kind == 3) {
        world->put_if_absent = world->put_if_match = world->delete_if_match = false;
    }
}

void
world_start(struct world *world, uint64_t seed)
{
    memset(world, 0, sizeof(*world));
    world->seed = seed;
    world->random = seed * 0x2545f4914f6cdd1du + 1;
    world->serial = 100;
    world->next_node = 1;
    world->now = 1000;
    world->faults = true;
    world->ledger.count = 1;
    choose_weather(world);
    choose_store(world);
    trace_count = 0;
    for (int g = 0; g < GATEWAYS; g++) {
        struct gateway *gateway = &world->gateways[g];
        gateway->boot = 1;
        gateway->clock_offset = (int64_t)world_pick(world, 1000000) + 10000000;
        gateway->clock_ppm = (int64_t)world_pick(world, 20000) - 10000;
        for (int p = 0; p < PATHS; p++)
            gateway->cur.intents[p].attempt.content = NONE;
        gateway_start(world, gateway);
        gateway->dur = gateway->cur;
    }
}

static void
dump_path(const struct world *world, const struct gateway *gateway, int path)
{
    const struct keyrow *row = &gateway->cur.keys[path];
    const struct intent *intent = &gateway->cur.intents[path];

    printf("    %-5s row etag %x owner %lld%s%s", path_names[path], row->etag,
           (long long)row->owner, row->discard ? " discard" : "", row->present ? "" : " absent");
    if (intent->active)
        printf(", active, op %d version %u, late %d", (int)intent->attempt.op,
               intent->attempt.version, intent->late_count);
    for (int i = 0; i < NODES; i++) {
        const struct node *node = &gateway->cur.nodes[i];
        if (node->id == 0 || node->path != path)
            continue;
        printf(", node %lld live %d frozen %d place %d at %d etag %x base %u rec %u",
               (long long)node->id, node->live, node->frozen, (int)node->place.kind, node->place.at,
               node->place.etag, node->base_version, node->rec);
    }
    const struct object *at = &world->bucket.keys[path];
    printf("; bucket etag %x value %u rec %u%s\n", at->etag, at->value, at->rec,
           at->present ? "" : " absent");
}

void
world_dump(const struct world *world)
{
    for (int g = 0; g < GATEWAYS; g++) {
        printf("  gateway %d, life %d, boot %d\n", g, world->gateways[g].life,
               world->gateways[g].boot);
        for (int p = 0; p < PATHS; p++)
            dump_path(world, &world->gateways[g], p);
    }
}
