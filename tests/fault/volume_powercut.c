/*
 * Power cuts of a busy gateway (docs/faults.md S8, S9): the state directory is rebuilt as a disk may hold it after the
 * power went (tests/support/crash/powercut.h says what the model covers), the bucket is as it was, the boot id is another
 * one. Every fsynced byte and name is there, what the barrier promised is in the bucket, the rest is old or new.
 *
 *   --cuts N  --seed N  --threads N  --long
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/crash/crash.h"
#include "support/crash/powercut.h"

#define SHORT_CUTS 6
#define LONG_CUTS 200

struct cutter {
    struct crash crash;
    struct rig_random random;
    unsigned boot;
    char base[PATH_MAX + 16], image[PATH_MAX + 16], journal[PATH_MAX + 16];
    char boot_env[80], journal_env[PATH_MAX + 64], dir_env[PATH_MAX + 64];
    uint64_t records, loose, compound;
};

static void
next_boot(struct cutter *cutter, bool journal)
{
    const char **env = cutter->crash.env;
    (void)snprintf(cutter->boot_env, sizeof(cutter->boot_env),
                   "HOLDFAST_TEST_BOOT_ID=00000000-0000-4000-8000-%012u", cutter->boot++);
    env[0] = cutter->boot_env;
    env[1] = cutter->crash.root_env;
    env[2] = "CRASH_IO_NOSYNC=1";
    env[3] = journal ? cutter->journal_env : NULL;
    env[4] = cutter->dir_env;
    env[5] = NULL;
}

/* One life of the gateway under the journal, ended by the cut; then the state directory is what the disk kept. `early`: it goes
 * again while the gateway starts, before anything new is promised: the ledger does not know yet what is left of the life before. */
static void
live_and_cut(struct cutter *cutter, bool early)
{
    struct crash *crash = &cutter->crash;
    struct powercut *cut = powercut_begin(crash->rig.state, cutter->base);
    (void)unlink(cutter->journal);
    next_boot(cutter, true);
    crash->seed = rig_random(&cutter->random) % 1000000007u;
    pid_t pid = crash_start(crash, early ? "idle" : "work", 0);
    for (unsigned i = 0;
         !early && i < 20000 && !crash->ledger->ready && crash->ledger->trouble[0] == '\0'; i++)
        clock_sleep_ns(NS_PER_MS);
    clock_sleep_ns((int64_t)rig_below(&cutter->random, early ? 80 : 700) * NS_PER_MS);
    if (kill(pid, SIGKILL) != 0)
        rig_die("kill");
    (void)rig_wait(pid, 10);
    if (crash->ledger->trouble[0] != '\0')
        rig_break("the workload could not go on: %s", crash->ledger->trouble);
    if (access(cutter->journal, R_OK) == 0) {
        powercut_build(cut, cutter->journal, cutter->image, rig_random(&cutter->random));
        rig_delete(crash->rig.state);
        if (rename(cutter->image, crash->rig.state) != 0)
            rig_die("rename");
    }
    cutter->records += powercut_records(cut);
    cutter->loose += powercut_loose(cut);
    powercut_end(cut);
}

static void
one_cut(struct cutter *cutter)
{
    live_and_cut(cutter, false);
    if (rig_once_in(&cutter->random, 4)) {
        cutter->compound++;
        live_and_cut(cutter, true);
    }
    next_boot(cutter, false);
    (void)crash_run(&cutter->crash, "judge-power", 0, false);
}

static void
prepare(struct cutter *cutter, unsigned threads)
{
    struct crash *crash = &cutter->crash;
    crash_begin(crash, threads, cutter->random.state);
    (void)snprintf(cutter->base, sizeof(cutter->base), "%s/base", crash->rig.dir);
    (void)snprintf(cutter->image, sizeof(cutter->image), "%s/image", crash->rig.dir);
    (void)snprintf(cutter->journal, sizeof(cutter->journal), "%s/journal", crash->rig.dir);
    (void)snprintf(cutter->journal_env, sizeof(cutter->journal_env), "CRASH_IO_JOURNAL=%s",
                   cutter->journal);
    (void)snprintf(cutter->dir_env, sizeof(cutter->dir_env), "CRASH_IO_DIR=%s", crash->rig.state);
    next_boot(cutter, false);
    (void)crash_run(crash, "setup", 0, false);
}

int
main(int argc, char **argv)
{
    static struct cutter cutter;
    int status;
    if (crash_child(argc, argv, &status))
        return status;
    uint64_t cuts =
        crash_option(argc, argv, "--cuts", crash_long(argc, argv) ? LONG_CUTS : SHORT_CUTS);
    cutter.random.state = crash_option(argc, argv, "--seed", rig_seed());
    printf("seed %llu, %llu cuts\n", (unsigned long long)cutter.random.state,
           (unsigned long long)cuts);
    prepare(&cutter, (unsigned)crash_option(argc, argv, "--threads", LEDGER_THREADS));
    uint64_t done = 0;
    for (; done < cuts && rig_broken() == 0; done++)
        one_cut(&cutter);
    const struct ledger *ledger = cutter.crash.ledger;
    printf(
        "%llu cuts (%llu of them twice), %llu operations, %llu barriers, %llu file calls seen, "
        "%llu loose at a cut, "
        "%llu torn saves and %llu others kept as conflicts, %llu barriers held by late requests, "
        "%u broken\n",
        (unsigned long long)done, (unsigned long long)cutter.compound,
        (unsigned long long)ledger->operations, (unsigned long long)ledger->barriers,
        (unsigned long long)cutter.records, (unsigned long long)cutter.loose,
        (unsigned long long)ledger->conflicts_torn, (unsigned long long)ledger->conflicts_behind,
        (unsigned long long)ledger->held, rig_broken());
    crash_end(&cutter.crash);
    return rig_broken() == 0 ? 0 : 1;
}
