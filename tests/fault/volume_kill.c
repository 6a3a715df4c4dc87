/*
 * kill -9 at random moments of a busy gateway, many rounds on one state directory and bucket (docs/faults.md S1 to S4,
 * S7, S30): every file whose close was answered is whole, none is half, and behind the barrier the bucket equals the
 * volume. Now and then the kill comes early, into recovery, and the store loses answers.
 *
 *   --rounds N  --seed N  --threads N  --long
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "support/crash/crash.h"

#define SHORT_ROUNDS 15
#define LONG_ROUNDS 300

static bool keep;

static void
set_env(struct crash *crash, bool faults)
{
    crash->env[0] = crash->root_env;
    crash->env[1] = "CRASH_IO_NOSYNC=1";
    crash->env[2] = faults ? "HOLDFAST_CRASH_FAULTS=30" : NULL;
    crash->env[3] = NULL;
}

static void
wait_ready(const struct ledger *ledger)
{
    for (unsigned i = 0; i < 20000 && !ledger->ready && ledger->trouble[0] == '\0'; i++)
        clock_sleep_ns(NS_PER_MS);
}

static void
one_round(struct crash *crash, struct rig_random *random)
{
    bool early = rig_once_in(random, 5);
    set_env(crash, rig_once_in(random, 3));
    crash->seed = rig_random(random) % 1000000007u;
    pid_t pid = crash_start(crash, "work", 0);
    if (!early)
        wait_ready(crash->ledger);
    clock_sleep_ns((int64_t)rig_below(random, early ? 60 : 500) * NS_PER_MS);
    if (kill(pid, SIGKILL) != 0)
        rig_die("kill");
    (void)rig_wait(pid, 10);
    if (crash->ledger->trouble[0] != '\0')
        rig_break("the workload could not go on: %s", crash->ledger->trouble);
    set_env(crash, false);
    if (keep) { /* what the judge found, for a look */
        char before[PATH_MAX + 16];
        (void)snprintf(before, sizeof(before), "%s.before", crash->rig.dir);
        rig_delete(before);
        rig_copy(crash->rig.dir, before);
    }
    (void)crash_run(crash, "judge-kill", 0, false);
}

int
main(int argc, char **argv)
{
    struct crash crash;
    int status;
    if (crash_child(argc, argv, &status))
        return status;
    keep = rig_env("HOLDFAST_CRASH_KEEP") != NULL;
    uint64_t rounds =
        crash_option(argc, argv, "--rounds", crash_long(argc, argv) ? LONG_ROUNDS : SHORT_ROUNDS);
    struct rig_random random = { .state = crash_option(argc, argv, "--seed", rig_seed()) };
    printf("seed %llu, %llu rounds\n", (unsigned long long)random.state,
           (unsigned long long)rounds);
    crash_begin(&crash, (unsigned)crash_option(argc, argv, "--threads", LEDGER_THREADS),
                random.state);
    set_env(&crash, false);
    (void)crash_run(&crash, "setup", 0, false);
    uint64_t done = 0;
    for (; done < rounds && rig_broken() == 0; done++)
        one_round(&crash, &random);
    printf("%llu rounds, %llu operations, %llu barriers, %llu recoveries with something to mend, "
           "%llu objects left in park/, %llu barriers held by late requests, %u broken\n",
           (unsigned long long)done, (unsigned long long)crash.ledger->operations,
           (unsigned long long)crash.ledger->barriers, (unsigned long long)crash.ledger->recoveries,
           (unsigned long long)crash.ledger->parked, (unsigned long long)crash.ledger->held,
           rig_broken());
    crash_end(&crash);
    return rig_broken() == 0 ? 0 : 1;
}
