#ifndef SUPPORT_FAIL_SYS_H
#define SUPPORT_FAIL_SYS_H

#include <stdbool.h>

/*
 * A wrapper of base/sys.h's table that makes chosen system calls fail, or kills the process at one.
 * Linking with `test_sys` is enough for the environment to work: a program that starts with
 * HOLDFAST_TEST_SYS installs the wrapper before main(). The form is "kind:n:action", several
 * separated by commas:
 *
 *   kind    a function of the table ("pwrite", "fdatasync", "renameat2", ...) or "any"
 *   n       the n-th call of that kind, from 1; "3+" is the third and all after it
 *   action  an errno by name or number ("ENOSPC", "5"); "kill": SIGKILL instead of the call;
 *           "tear": half of a pwrite, then SIGKILL (for other kinds the same as "kill")
 *
 * Thread safe once the rules stand; change rules only while no other thread makes calls.
 */

/* Actions besides an errno. */
#define FAIL_SYS_KILL (-1)
#define FAIL_SYS_TEAR (-2)

/* Puts the wrapper around the table in use; a second call does nothing. */
void fail_sys_install(void);
/* Removes the wrapper and all rules. */
void fail_sys_remove(void);

/* Adds one rule; false when the kind is unknown or there are too many (16). `onwards`: all calls
 * from the n-th. */
bool fail_sys_at(const char *kind, unsigned long n, bool onwards, int action);
/* Adds the rules of `spec`; false at the first that is not of the form above. */
bool fail_sys_parse(const char *spec);
/* Forgets all rules and counts; the wrapper stays. */
void fail_sys_reset(void);
/* Calls of a kind (or "any") since the last reset; 0 for an unknown kind. */
unsigned long fail_sys_count(const char *kind);

#endif
