#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parse.h"
#include "sim.h"

/*
 * sim [--steps N] [--seeds K] [--seed S]   random worlds, each of --run steps; ends with 1 at the first violation
 * sim --mutants [--budget N]               takes each rule away and must find that it is missed
 * sim --off RULE ... [--trace]             one rule away, to look at what it is for
 */

static int rule_off = NONE;

bool
sync_rule_on(int rule)
{
    return rule != rule_off;
}

static const struct {
    const char *name, *section, *text;
} rules[] = {
#define X(name, section, text) { #name, section, text },
    SYNC_RULES(X)
#undef X
};

struct options {
    uint64_t steps, seeds, seed, run, budget;
    bool mutants;
};

static void
work_somewhere(struct world *world, int g)
{
    int first = (int)world_pick(world, PATHS);

    for (int i = 0; i < PATHS; i++) {
        int path = (first + i) % PATHS;
        const struct intent *intent = &world->gateways[g].cur.intents[path];
        if (intent->active && world->gateways[g].workers[path].stage == STAGE_IDLE &&
            (world->now >= intent->not_before ||
             (intent->look_at != 0 && world->now >= intent->look_at))) {
            driver_work(world, g, path);
            return;
        }
    }
    driver_work(world, g, first);
}

static void
send_somewhere(struct world *world, int g)
{
    int first = (int)world_pick(world, PATHS);

    for (int i = 0; i < PATHS; i++) {
        int path = (first + i) % PATHS;
        if (world->gateways[g].workers[path].stage == STAGE_BEGUN) {
            driver_send(world, g, path);
            return;
        }
    }
}

static void
gateway_step(struct world *world, int g)
{
    unsigned dice = world_pick(world, 100);

    if (world->gateways[g].stalled_until > world->now)
        return;
    if (dice < 45 || dice >= 90)
        work_somewhere(world, g);
    else if (dice < 65)
        send_somewhere(world, g);
    else if (dice < 72)
        lease_work(world, g);
    else if (dice < 76)
        driver_upload_conflict(world, g);
    else if (dice < 86)
        driver_evict(world, g);
    else
        driver_list(world, g);
}

static void
step(struct world *world)
{
    int g = (int)world_pick(world, GATEWAYS);
    unsigned dice = world_pick(world, 1000);

    world->now += !world->calm && world_chance(world, 2) ? 20000 : (int64_t)world_pick(world, 500);
    if (!world->calm && dice < world->foreign_weight)
        net_foreign(world);
    else if (!world->calm && dice < world->foreign_weight + world->crash_weight)
        world_chance(world, 600) ? gateway_kill(world, g) : gateway_power_cut(world, g);
    else if (!world->calm &&
             dice < world->foreign_weight + world->crash_weight + world->stall_weight)
        world->gateways[g].stalled_until = world->now + 20000 + (int64_t)world_pick(world, 300000);
    else if (dice < 400)
        net_step(world);
    else if (!world->calm && dice < 400 + world->user_weight)
        user_step(world, g);
    else
        gateway_step(world, g);
    ledger_check(world);
}

static bool
is_quiet(const struct world *world)
{
    for (int i = 0; i < REQUESTS; i++) {
        if (world->requests[i].state != REQ_FREE && world->requests[i].key >= 0)
            return false;
    }
    for (int g = 0; g < GATEWAYS; g++) {
        for (int p = 0; p < PATHS; p++) {
            if (world->gateways[g].cur.intents[p].active)
                return false;
        }
        for (int i = 0; i < CONFLICTS; i++) {
            const struct conflict *conflict = &world->gateways[g].cur.conflicts[i];
            if (conflict->used && !conflict->uploaded)
                return false;
        }
    }
    return true;
}

static void
look_everywhere(struct world *world)
{
    for (int g = 0; g < GATEWAYS; g++) {
        for (int p = 0; p < PATHS; p++) {
            touch(world, &world->gateways[g], p);
            world->gateways[g].cur.intents[p].look_at = world->now;
        }
    }
}

/* Faults end, users leave, and within bounded time the bucket must equal every tree. */
static uint64_t
come_to_rest(struct world *world)
{
    uint64_t steps = 0;

    world->calm = true;
    world->faults = false;
    for (int g = 0; g < GATEWAYS; g++) {
        world->gateways[g].stalled_until = 0;
        user_close_all(world, g);
    }
    for (int round = 0; round < 3 && !world->violated; round++) {
        uint64_t limit = steps + 20000;
        look_everywhere(world);
        while (!world->violated && !is_quiet(world) && steps < limit) {
            step(world);
            steps++;
        }
        if (!world->violated && !is_quiet(world))
            violate(world, "the world does not come to rest");
    }
    if (!world->violated)
        ledger_check_rest(world);
    return steps;
}

/* One world; answers its steps. */
static uint64_t
run_world(struct world *world, uint64_t seed, uint64_t run)
{
    uint64_t steps = 0;

    world_start(world, seed);
    while (steps < run && !world->violated) {
        step(world);
        steps++;
    }
    if (!world->violated)
        steps += come_to_rest(world);
    return steps;
}

static void
report(const struct world *world, const struct options *options)
{
    printf("VIOLATION in world %llu: %s\n", (unsigned long long)world->seed, world->violation);
    printf("store: %s ETags, If-None-Match %s, If-Match %s, DELETE If-Match %s\n",
           world->md5_etags ? "MD5" : "opaque", world->put_if_absent ? "honoured" : "ignored",
           world->put_if_match ? "honoured" : "ignored",
           world->delete_if_match ? "honoured" : "ignored");
    trace_dump();
    world_dump(world);
    printf("again: sim --seed %llu --seeds 1 --run %llu", (unsigned long long)world->seed,
           (unsigned long long)options->run);
    if (rule_off != NONE)
        printf(" --off %s", rules[rule_off].name);
    printf("\n");
}

static void
add_counts(const struct world *world, uint64_t counts[COUNT_KINDS])
{
    for (int i = 0; i < COUNT_KINDS; i++)
        counts[i] += world->counts[i];
}

static void
print_counts(const uint64_t counts[COUNT_KINDS])
{
    static const char *const names[COUNT_KINDS] = {
        "PUTs",       "DELETEs",   "refused",   "answers lost", "landed late", "kills",
        "power cuts", "conflicts", "parked",    "fetched",      "torn",        "foreign changes",
        "renames",    "saves",     "late ours", "leases",       "preserved",
    };
    for (int i = 0; i < COUNT_KINDS; i++)
        printf("%s%s %llu", i == 0 ? "" : ", ", names[i], (unsigned long long)counts[i]);
    printf("\n");
}

static int
run_seeds(struct world *world, const struct options *options)
{
    uint64_t counts[COUNT_KINDS] = { 0 };
    uint64_t steps = 0, worlds = 0;

    while ((options->seeds == 0 || worlds < options->seeds) &&
           (options->steps == 0 || steps < options->steps)) {
        steps += run_world(world, options->seed + worlds, options->run);
        add_counts(world, counts);
        worlds++;
        if (world->violated) {
            report(world, options);
            return 1;
        }
    }
    printf("%llu steps in %llu worlds, no violation\n", (unsigned long long)steps,
           (unsigned long long)worlds);
    print_counts(counts);
    return 0;
}

static int
run_mutants(struct world *world, const struct options *options)
{
    int missed = 0;

    trace_set(TRACE_OFF);
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        uint64_t steps = 0, worlds = 0;
        rule_off = rule;
        do {
            steps += run_world(world, options->seed + worlds, options->run);
            worlds++;
        } while (!world->violated && steps < options->budget);
        printf("%-20s section %-9s found after %8llu steps: %s\n", rules[rule].name,
               rules[rule].section, (unsigned long long)steps, rules[rule].text);
        printf("%20s %s\n", "", world->violated ? world->violation : "NOT FOUND");
        (void)fflush(stdout);
        missed += !world->violated;
    }
    printf("%d rules taken away, %d not found\n", RULE_COUNT, missed);
    return missed == 0 ? 0 : 1;
}

static int
find_rule(const char *name)
{
    for (int i = 0; i < RULE_COUNT; i++) {
        if (strcmp(rules[i].name, name) == 0)
            return i;
    }
    return NONE;
}

static bool
set_option(struct options *options, const char *name, const char *value)
{
    const struct {
        const char *name;
        uint64_t *number;
    } table[] = {
        { "--steps", &options->steps },   { "--seeds", &options->seeds },
        { "--seed", &options->seed },     { "--run", &options->run },
        { "--budget", &options->budget },
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(name, table[i].name) == 0)
            return value != NULL && parse_u64(value, table[i].number);
    }
    rule_off = strcmp(name, "--off") == 0 && value != NULL ? find_rule(value) : NONE;
    return rule_off != NONE;
}

int
main(int argc, char **argv)
{
    struct options options = { .run = 1500, .seed = 1, .budget = 12000000 };

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--mutants") == 0) {
            options.mutants = true;
        } else if (strcmp(argv[i], "--trace") == 0) {
            trace_set(TRACE_PRINT);
        } else if (!set_option(&options, argv[i], argv[i + 1])) {
            fprintf(stderr, "sim: [--steps N] [--seeds K] [--seed S] [--run N] [--off RULE] "
                            "[--trace] "
                            "[--mutants [--budget N]]\n");
            return 2;
        } else {
            i++;
        }
    }
    if (options.steps == 0 && options.seeds == 0)
        options.steps = 100000;
    struct world *world = calloc(1, sizeof(*world));
    if (world == NULL)
        return 2;
    int status = options.mutants ? run_mutants(world, &options) : run_seeds(world, &options);
    free(world);
    return status;
}
