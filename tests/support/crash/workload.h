#ifndef SUPPORT_CRASH_WORKLOAD_H
#define SUPPORT_CRASH_WORKLOAD_H

#include "support/crash/ledger.h"
#include "support/crash/rig.h"

/* What runs until it is killed: files saved, replaced, moved, uploaded, removed, changed in place, and barriers. */
struct workload {
    struct volume_service *service;
    struct ledger *ledger;
    int64_t volume;
    uint64_t seed;
    unsigned steps; /* of each thread; 0: until killed */
    bool slow;      /* rest now and then, so that uploads come between */
};
#define WORKLOAD_VOLUME "work"

/* Makes folders and block files and waits until the bucket has them. */
void workload_set_up(struct workload *work);
/* All threads; comes back after `steps`. Trouble ends the process. */
void workload_run(struct workload *work);

/* One scripted write for the sweep, by number; the first WORKLOAD_SCRIPTS. Thread 0's slots. */
#define WORKLOAD_SCRIPTS 10u
extern const char *const workload_script_names[WORKLOAD_SCRIPTS];
/* What has to be there before the script. */
void workload_script_prepare(struct workload *work, unsigned script);
void workload_script_run(struct workload *work, unsigned script);

#endif
