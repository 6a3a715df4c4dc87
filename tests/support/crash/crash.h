#ifndef SUPPORT_CRASH_CRASH_H
#define SUPPORT_CRASH_CRASH_H

#include "support/crash/aftermath.h"
#include "support/crash/workload.h"

/* One crash test: this program runs itself again as the workload and as the judge, so that each can die by itself. */
struct crash {
    struct rig rig;
    struct ledger *ledger;
    int ledger_fd;
    uint64_t seed;
    char root_env[PATH_MAX + 32]; /* CRASH_IO_ROOT=... of the rig's directory */
    const char *env[12];          /* for the next child, NULL at the end */
};

/* main() of a crash test calls this first: true when this process is a child, whose status is then in *status. */
bool crash_child(int argc, char **argv, int *status);

void crash_begin(struct crash *crash, unsigned threads, uint64_t seed);
void crash_end(struct crash *crash);
/* Starts "work", "idle" (starts and waits for its end), "setup", "prepare", "script", "judge-kill" or "judge-power"; `number`: the script or the steps. */
pid_t crash_start(struct crash *crash, const char *command, unsigned number);
/* The same, waited for: it has to end with 0 (or by SIGKILL when `may_die`, then false). Others are told as broken. */
bool crash_run(struct crash *crash, const char *command, unsigned number, bool may_die);
/* True for --long or HOLDFAST_TEST_LONG=1. */
bool crash_long(int argc, char **argv);
/* The number behind an option, or `otherwise`. */
uint64_t crash_option(int argc, char **argv, const char *name, uint64_t otherwise);

#endif
