#include "support/crash/crash.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"
#include "s3/fault.h"
#include "support/crash/io.h"

#define CHILD "--child"
#define CHILD_TIME 180

/* --child COMMAND DIR LEDGER-FD SEED NUMBER */
struct child {
    const char *command;
    struct rig rig;
    struct ledger *ledger;
    uint64_t seed, number;
};

/* A store that loses answers and fails now and then, when HOLDFAST_CRASH_FAULTS says how many in a thousand. */
static struct store *
child_store(const struct child *child)
{
    uint64_t per_mille = 0;
    const char *text = rig_env("HOLDFAST_CRASH_FAULTS");
    struct fault_plan plan = { .seed = child->seed };
    struct err err = ERR_INIT;
    struct store *store = rig_store(&child->rig);
    if (text == NULL || !parse_u64(text, &per_mille) || per_mille == 0)
        return store;
    store = fault_store_wrap(store, &plan, &err); /* opening and its probe are left alone */
    if (store == NULL)
        rig_die("fault store: %s", err.msg);
    return store;
}

static void
child_faults(struct store *store)
{
    uint64_t per_mille = 0;
    const char *text = rig_env("HOLDFAST_CRASH_FAULTS");
    if (text == NULL || !parse_u64(text, &per_mille) || per_mille == 0)
        return;
    struct fault_plan plan = { .seed = per_mille };
    plan.per_mille[FAULT_ERROR] = (unsigned)per_mille;
    plan.per_mille[FAULT_LOST_ANSWER] = (unsigned)per_mille;
    fault_store_set_plan(store, &plan);
}

static void
child_work(const struct child *child)
{
    struct err err = ERR_INIT;
    struct store *store = child_store(child);
    struct workload work = { .ledger = child->ledger, .seed = child->seed, .slow = true };
    bool script = strcmp(child->command, "script") == 0;
    work.service = rig_open(child->rig.state, store, &err);
    if (work.service == NULL) {
        (void)snprintf(child->ledger->trouble, sizeof(child->ledger->trouble),
                       "it does not start: %.200s", err.msg);
        rig_die("%s", child->ledger->trouble);
    }
    work.volume = rig_volume(work.service, WORKLOAD_VOLUME);
    if (!child->ledger->set_up)
        workload_set_up(&work);
    child_faults(store);
    if (crash_io_arm != NULL)
        crash_io_arm();
    work.steps = strcmp(child->command, "work") == 0 ? (unsigned)child->number : 0;
    if (strcmp(child->command, "work") == 0)
        workload_run(&work);
    else if (strcmp(child->command, "idle") == 0)
        (void)pause();
    else if (strcmp(child->command, "prepare") == 0)
        workload_script_prepare(&work, (unsigned)child->number);
    else if (script)
        workload_script_run(&work, (unsigned)child->number);
    if (crash_io_report != NULL && script)
        crash_io_report();
    rig_close(work.service);
}

static uint64_t
number_of(const char *text)
{
    uint64_t value;
    if (!parse_u64(text, &value))
        rig_die("not a number: %s", text);
    return value;
}

bool
crash_child(int argc, char **argv, int *status)
{
    struct child child = { .command = "" };
    struct err err = ERR_INIT;
    if (argc < 7 || strcmp(argv[1], CHILD) != 0)
        return false;
    child.command = argv[2];
    (void)snprintf(child.rig.dir, sizeof(child.rig.dir), "%s", argv[3]);
    (void)snprintf(child.rig.state, sizeof(child.rig.state), "%s/state", argv[3]);
    (void)snprintf(child.rig.bucket, sizeof(child.rig.bucket), "%s/bucket", argv[3]);
    child.ledger = ledger_map((int)number_of(argv[4]));
    child.seed = number_of(argv[5]);
    child.number = number_of(argv[6]);
    if (log_configure(rig_env("HOLDFAST_LOG") == NULL ? "error" : rig_env("HOLDFAST_LOG"), &err) !=
        0)
        rig_die("%s", err.msg);
    if (strcmp(child.command, "judge-kill") == 0)
        aftermath_judge(&child.rig, child.ledger, AFTER_KILL);
    else if (strcmp(child.command, "judge-power") == 0)
        aftermath_judge(&child.rig, child.ledger, AFTER_POWER);
    else
        child_work(&child);
    *status = rig_broken() > 0 ? RIG_STATUS_BROKEN : 0;
    return true;
}

/* ---- the parent's side ---- */

void
crash_begin(struct crash *crash, unsigned threads, uint64_t seed)
{
    memset(crash, 0, sizeof(*crash));
    crash->seed = seed;
    crash->ledger = ledger_make(&crash->ledger_fd);
    crash->ledger->threads = threads;
    rig_make(&crash->rig);
    (void)snprintf(crash->root_env, sizeof(crash->root_env), "CRASH_IO_ROOT=%s", crash->rig.dir);
}

void
crash_end(struct crash *crash)
{
    if (rig_broken() == 0)
        rig_remove(&crash->rig);
    else
        printf("kept for a look: %s\n", crash->rig.dir);
    (void)close(crash->ledger_fd);
}

pid_t
crash_start(struct crash *crash, const char *command, unsigned number)
{
    char fd[16], seed[32], steps[16];
    (void)snprintf(fd, sizeof(fd), "%d", crash->ledger_fd);
    (void)snprintf(seed, sizeof(seed), "%llu", (unsigned long long)crash->seed);
    (void)snprintf(steps, sizeof(steps), "%u", number);
    const char *args[] = { CHILD, command, crash->rig.dir, fd, seed, steps, NULL };
    crash->ledger->trouble[0] = '\0';
    return rig_spawn(args, crash->env);
}

bool
crash_run(struct crash *crash, const char *command, unsigned number, bool may_die)
{
    int status = rig_wait(crash_start(crash, command, number), CHILD_TIME);
    if (status == 0)
        return true;
    if (may_die && status > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return false;
    if (status == -1)
        rig_break("'%s' did not end within %d s", command, CHILD_TIME);
    else
        rig_break("'%s' ended with %s %d%s%s", command, WIFSIGNALED(status) ? "signal" : "status",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                  crash->ledger->trouble[0] == '\0' ? "" : ": ", crash->ledger->trouble);
    return false;
}

bool
crash_long(int argc, char **argv)
{
    const char *text = rig_env("HOLDFAST_TEST_LONG");
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--long") == 0)
            return true;
    return text != NULL && strcmp(text, "1") == 0;
}

uint64_t
crash_option(int argc, char **argv, const char *name, uint64_t otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return number_of(argv[i + 1]);
    return otherwise;
}
