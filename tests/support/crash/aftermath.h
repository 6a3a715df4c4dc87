#ifndef SUPPORT_CRASH_AFTERMATH_H
#define SUPPORT_CRASH_AFTERMATH_H

#include "support/crash/ledger.h"
#include "support/crash/rig.h"

/*
 * The verdict after a crash (docs/faults.md, I1 to I7): what the bucket holds before anything runs again, then what the
 * gateway shows when it is started again, then whether bucket and volume are equal behind a barrier. Every broken promise
 * is told by rig_break(). At the end the ledger says what is there now, and everything in it is promised.
 */
enum aftermath_kind { AFTER_KILL, AFTER_POWER };
void aftermath_judge(const struct rig *rig, struct ledger *ledger, enum aftermath_kind kind);

#endif
