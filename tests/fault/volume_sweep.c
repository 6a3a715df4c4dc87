/*
 * One write after the other, killed at every file call that it makes: index, cache and bucket are files, so each
 * fdatasync, rename, index commit and PUT is such a point, before it and (the next one) behind it. Then the gateway is
 * started again and judged. Now and then the restart is killed too (docs/faults.md S2, S7).
 *
 *   --every N  each N-th point (1 with --long)   --script N  only that one   --seed N
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/parse.h"
#include "support/crash/crash.h"
#include "support/crash/io.h"

#define SHORT_POINTS 50u /* in all, for ctest */

static const char *const kind_names[] = {
#define X(name) #name,
    CRASH_IO_KINDS(X)
#undef X
};
#define KIND_COUNT (sizeof(kind_names) / sizeof(kind_names[0]))

struct sweep {
    struct crash crash;
    struct rig_random random;
    struct ledger *template_ledger;
    char template_dir[PATH_MAX + 16], counts[PATH_MAX + 16];
    char kill_env[48], tear_env[24], counts_env[PATH_MAX + 48];
    unsigned long points, of_kind[KIND_COUNT], again, not_reached;
};

static void
set_env(struct sweep *sweep, unsigned long kill, bool armed)
{
    const char **env = sweep->crash.env;
    size_t count = 0;
    (void)snprintf(sweep->kill_env, sizeof(sweep->kill_env), "CRASH_IO_KILL=%lu", kill);
    (void)snprintf(sweep->counts_env, sizeof(sweep->counts_env), "CRASH_IO_COUNTS=%s",
                   sweep->counts);
    env[count++] = sweep->crash.root_env;
    env[count++] = "CRASH_IO_NOSYNC=1";
    env[count++] = sweep->kill_env;
    env[count++] = sweep->counts_env;
    if (armed)
        env[count++] = "CRASH_IO_ARMED=1";
    if (kill > 0 && rig_once_in(&sweep->random, 2))
        env[count++] = "CRASH_IO_TEAR=1";
    env[count] = NULL;
}

/* Back to how it was before the write. */
static void
restore(struct sweep *sweep)
{
    rig_delete(sweep->crash.rig.dir);
    rig_copy(sweep->template_dir, sweep->crash.rig.dir);
    *sweep->crash.ledger = *sweep->template_ledger;
}

/* How many points of each kind the write has when nothing kills it. */
static unsigned long
count_points(struct sweep *sweep, unsigned script)
{
    char line[128];
    unsigned long total = 0;
    restore(sweep);
    set_env(sweep, 0, false);
    if (!crash_run(&sweep->crash, "script", script, false))
        return 0;
    FILE *file = fopen(sweep->counts, "re");
    if (file == NULL)
        rig_die("no counts: is libcrash_io.so there?");
    while (fgets(line, sizeof(line), file) != NULL) {
        uint64_t value;
        char *space = strchr(line, ' ');
        line[strcspn(line, "\n")] = '\0';
        if (space == NULL || !parse_u64(space + 1, &value))
            rig_die("bad count '%s'", line);
        *space = '\0';
        total += value;
        for (size_t i = 0; i < KIND_COUNT; i++)
            if (strcmp(kind_names[i], line) == 0)
                sweep->of_kind[i] += value;
    }
    (void)fclose(file);
    set_env(sweep, 0, false);
    (void)crash_run(&sweep->crash, "judge-kill", 0, false);
    return total;
}

static void
one_point(struct sweep *sweep, unsigned script, unsigned long point)
{
    restore(sweep);
    set_env(sweep, point, false);
    if (crash_run(&sweep->crash, "script", script, true))
        sweep->not_reached++; /* threads: not every run makes as many calls */
    if (rig_once_in(&sweep->random, 4)) {
        set_env(sweep, 1 + rig_below(&sweep->random, 60), true);
        sweep->again += !crash_run(&sweep->crash, "judge-kill", 0, true);
    }
    set_env(sweep, 0, false);
    (void)crash_run(&sweep->crash, "judge-kill", 0, false);
    sweep->points++;
    if (rig_broken() > 0)
        printf("at point %lu of '%s'\n", point, workload_script_names[script]);
}

static void
one_script(struct sweep *sweep, unsigned script, unsigned long every)
{
    rig_delete(sweep->template_dir);
    rig_delete(sweep->crash.rig.state);
    rig_delete(sweep->crash.rig.bucket);
    if (mkdir(sweep->crash.rig.state, 0700) != 0 || mkdir(sweep->crash.rig.bucket, 0700) != 0)
        rig_die("mkdir");
    memset(sweep->crash.ledger->thread, 0, sizeof(sweep->crash.ledger->thread));
    ledger_init(sweep->crash.ledger);
    set_env(sweep, 0, false);
    if (!crash_run(&sweep->crash, "prepare", script, false))
        return;
    ledger_settle(sweep->crash.ledger);
    rig_copy(sweep->crash.rig.dir, sweep->template_dir);
    *sweep->template_ledger = *sweep->crash.ledger;
    unsigned long total = count_points(sweep, script);
    if (every == 0)
        every = total * WORKLOAD_SCRIPTS / SHORT_POINTS + 1;
    unsigned long first = every == 1 ? 1 : 1 + rig_below(&sweep->random, every);
    unsigned long before = sweep->points;
    for (unsigned long point = first; point <= total && rig_broken() == 0; point += every)
        one_point(sweep, script, point);
    printf("%-22s %4lu points, %lu tried\n", workload_script_names[script], total,
           sweep->points - before);
    (void)fflush(stdout);
}

int
main(int argc, char **argv)
{
    static struct sweep sweep;
    int status;
    if (crash_child(argc, argv, &status))
        return status;
    uint64_t every = crash_option(argc, argv, "--every", crash_long(argc, argv) ? 1 : 0);
    uint64_t only = crash_option(argc, argv, "--script", WORKLOAD_SCRIPTS);
    sweep.random.state = crash_option(argc, argv, "--seed", rig_seed());
    printf("seed %llu\n", (unsigned long long)sweep.random.state);
    crash_begin(&sweep.crash, 1, 1);
    sweep.template_ledger = malloc(sizeof(*sweep.template_ledger));
    if (sweep.template_ledger == NULL)
        rig_die("out of memory");
    (void)snprintf(sweep.template_dir, sizeof(sweep.template_dir), "%s.template",
                   sweep.crash.rig.dir);
    (void)snprintf(sweep.counts, sizeof(sweep.counts), "%s.counts", sweep.crash.rig.dir);
    for (unsigned i = 0; i < WORKLOAD_SCRIPTS && rig_broken() == 0; i++)
        if (only == WORKLOAD_SCRIPTS || only == i)
            one_script(&sweep, i, every);
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (sweep.of_kind[i] > 0)
            printf("  %-10s %lu\n", kind_names[i], sweep.of_kind[i]);
    printf("%lu points killed at, %lu restarts killed too, %lu not reached, %u broken\n",
           sweep.points, sweep.again, sweep.not_reached, rig_broken());
    if (rig_broken() == 0)
        rig_delete(sweep.template_dir);
    (void)unlink(sweep.counts);
    free(sweep.template_ledger);
    crash_end(&sweep.crash);
    return rig_broken() == 0 ? 0 : 1;
}
