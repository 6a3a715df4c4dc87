/*
 * What keeps versions, killed at every fdatasync, rename, commit of the index, PUT, COPY and DELETE (before the request is sent, and
 * when it was done and nobody knows): overwriting, removing, moving, restoring, undoing, pruning, snapshots. For each n the tale is
 * told until the n-th such call, SIGKILL; then the gateway is started again and judged (support/crash/tale.h). Now and then the
 * restart is killed too (docs/faults.md S2 to S4, S7, S30).
 *
 *   --every N  each N-th point (1 with --long)   --tale N  only that one   --point N  only that one   --seed N
 *   --kinds K,K  other kinds of calls, or "any" (support/crash/io.h)
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "support/crash/crash.h"
#include "support/crash/io.h"
#include "support/crash/tale.h"

#define INNER "--inner"
#define SHORT_POINTS 24u /* in all tales, of which ctest takes every other one */
#define CHILD_TIME 240u
#define KINDS \
    "fdatasync,fsync,rename,commit,put,put_done,copy_object,copy_object_done,delete,delete_done"

static const char *const kind_names[] = {
#define X(name) #name,
    CRASH_IO_KINDS(X)
#undef X
};
#define KIND_COUNT (sizeof(kind_names) / sizeof(kind_names[0]))

/* Shared with the processes that are killed. */
struct shared {
    struct tale_ledger ledger;
    unsigned long counts[KIND_COUNT], total;
};

struct sweep {
    struct rig rig; /* of the tale */
    char template_dir[PATH_MAX];
    struct shared *shared;
    const struct tale *tale;
    struct tale_ledger begun; /* after the beginning */
    struct rig_random random;
    const char *kinds;
    unsigned long of_kind[KIND_COUNT], total, killed, again, not_reached;
};

enum part { PART_BEGIN, PART_ACT, PART_JUDGE };

static void
tell_counts(struct shared *shared)
{
    for (size_t i = 0; i < KIND_COUNT; i++)
        shared->counts[i] = crash_io_count(kind_names[i]);
    shared->total = crash_io_count("any");
}

static void
child(struct sweep *sweep, enum part part, unsigned long kill_at)
{
    struct tale_life life = { .rig = &sweep->rig,
                              .tale = sweep->tale,
                              .ledger = &sweep->shared->ledger };
    bool later = false;
    for (unsigned i = 0; i < TALE_OPS; i++)
        later = later || sweep->tale->act[i].what == TALE_PRUNE;
    if (later && part != PART_BEGIN)
        tale_later();
    if (part == PART_JUDGE) {
        crash_io_aim(sweep->kinds, kill_at);
        tale_judge(&sweep->rig, sweep->tale, life.ledger);
        return;
    }
    tale_open(&life);
    if (part == PART_BEGIN) {
        tale_begin(&life);
        rig_close(life.service);
        return;
    }
    crash_io_aim(sweep->kinds, kill_at);
    tale_act(&life, false);
    rig_close(life.service);
    tell_counts(sweep->shared);
}

/* True: it came to its end; false: killed, as it may with `kill_at`. */
static bool
run(struct sweep *sweep, enum part part, unsigned long kill_at)
{
    static const char *const names[] = { "the beginning", "the tale", "the judge" };
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        rig_die("fork: %m");
    if (pid == 0) {
        child(sweep, part, kill_at);
        (void)fflush(stdout);
        _exit(rig_broken() > 0 ? RIG_STATUS_BROKEN : 0);
    }
    int status = rig_wait(pid, CHILD_TIME);
    if (status > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && kill_at > 0)
        return false;
    if (status != 0)
        rig_break("'%s', %s, point %lu: status %x", sweep->tale->name, names[part], kill_at,
                  (unsigned)status);
    return true;
}

/* Back to how it was after the beginning. */
static void
restore(struct sweep *sweep)
{
    rig_delete(sweep->rig.dir);
    rig_copy(sweep->template_dir, sweep->rig.dir);
    sweep->shared->ledger = sweep->begun;
}

static void
judge(struct sweep *sweep, bool may_kill)
{
    if (may_kill && rig_once_in(&sweep->random, 4))
        sweep->again += !run(sweep, PART_JUDGE, 1 + rig_below(&sweep->random, 80));
    (void)run(sweep, PART_JUDGE, 0);
}

/* False: the tale ended before. */
static bool
one_point(struct sweep *sweep, unsigned long point)
{
    restore(sweep);
    bool ended = run(sweep, PART_ACT, point);
    sweep->killed += !ended;
    unsigned begun = sweep->shared->ledger.begun;
    judge(sweep, true);
    struct tale_ledger next = sweep->shared->ledger; /* its counts go on */
    next.begun = next.done = 0;
    memcpy(next.at_ns, sweep->begun.at_ns, sizeof(next.at_ns));
    sweep->begun = next;
    if (rig_broken() > 0)
        printf("at point %lu of '%s', in step %u\n", point, sweep->tale->name, begun);
    return !ended;
}

static unsigned long
begin(struct sweep *sweep)
{
    struct tale_ledger *ledger = &sweep->shared->ledger;
    rig_delete(sweep->template_dir);
    rig_delete(sweep->rig.dir);
    if (mkdir(sweep->rig.dir, 0700) != 0 || mkdir(sweep->rig.state, 0700) != 0 ||
        mkdir(sweep->rig.bucket, 0700) != 0)
        rig_die("mkdir: %m");
    ledger->begun = ledger->done = 0;
    if (!run(sweep, PART_BEGIN, 0) || rig_broken() > 0)
        return 0;
    rig_copy(sweep->rig.dir, sweep->template_dir);
    sweep->begun = *ledger;
    (void)run(sweep, PART_ACT, 0);
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (strstr(sweep->kinds, kind_names[i]) != NULL || strcmp(sweep->kinds, "any") == 0)
            sweep->of_kind[i] += sweep->shared->counts[i];
    judge(sweep, false);
    sweep->total += sweep->shared->total;
    return sweep->shared->total;
}

static void
one_tale(struct sweep *sweep, unsigned number, unsigned long every, unsigned long only)
{
    sweep->tale = &tales[number];
    unsigned long total = begin(sweep), tried = 0;
    if (every == 0)
        every = total * tale_count / SHORT_POINTS + 1;
    unsigned long first = every == 1 ? 1 : 1 + rig_below(&sweep->random, every);
    /* Threads: not every telling has as many points. */
    for (unsigned long point = only > 0 ? only : first; rig_broken() == 0; point += every) {
        if (every > 1 && point > total)
            break;
        bool reached = one_point(sweep, point);
        tried++;
        sweep->not_reached += !reached;
        if ((!reached && point > total) || only > 0)
            break;
    }
    printf("%-32s %4lu points, %lu tried\n", sweep->tale->name, total, tried);
    (void)fflush(stdout);
}

static int
inner(int argc, char **argv)
{
    static struct sweep sweep;
    struct rig base;
    struct err err = ERR_INIT;
    const char *log = rig_env("HOLDFAST_LOG");
    uint64_t every = crash_option(argc, argv, "--every", crash_long(argc, argv) ? 1 : 0);
    uint64_t only = crash_option(argc, argv, "--tale", tale_count);
    uint64_t point = crash_option(argc, argv, "--point", 0);
    sweep.random.state = crash_option(argc, argv, "--seed", rig_seed());
    sweep.kinds = KINDS;
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--kinds") == 0)
            sweep.kinds = argv[i + 1];
    if (log_configure(log == NULL ? "error" : log, &err) != 0)
        rig_die("%s", err.msg);
    if (crash_io_aim == NULL || crash_io_event == NULL)
        rig_die("libcrash_io.so is not there");
    sweep.shared = mmap(NULL, sizeof(*sweep.shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sweep.shared == MAP_FAILED)
        rig_die("mmap: %m");
    (void)snprintf(base.dir, sizeof(base.dir), "%s", argv[2]);
    (void)snprintf(sweep.template_dir, sizeof(sweep.template_dir), "%.4000s/template", base.dir);
    rig_at(&sweep.rig, base.dir, "now");
    printf("seed %llu\n", (unsigned long long)sweep.random.state);
    for (unsigned i = 0; i < tale_count && rig_broken() == 0; i++)
        if (only == i || (only == tale_count && (every > 0 || rig_once_in(&sweep.random, 2))))
            one_tale(&sweep, i, (unsigned long)every, (unsigned long)point);
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (sweep.of_kind[i] > 0)
            printf("  %-18s %lu\n", kind_names[i], sweep.of_kind[i]);
    printf("%lu points, killed at %lu, %lu restarts killed too, %lu not reached; %lu times all was "
           "compared, %lu versions kept twice, "
           "%lu copies swept, %lu files torn, %lu starts held back, %u broken\n",
           sweep.total, sweep.killed, sweep.again, sweep.not_reached, sweep.begun.checks,
           sweep.begun.twice, sweep.begun.swept, sweep.begun.torn, sweep.begun.held, rig_broken());
    return rig_broken() == 0 ? 0 : RIG_STATUS_BROKEN;
}

int
main(int argc, char **argv)
{
    struct rig rig;
    char root[PATH_MAX + 16];
    const char *args[16] = { INNER };
    if (argc > 2 && strcmp(argv[1], INNER) == 0)
        return inner(argc, argv);
    rig_make(&rig);
    (void)snprintf(root, sizeof(root), "CRASH_IO_ROOT=%s", rig.dir);
    const char *env[] = { root, "CRASH_IO_NOSYNC=1", NULL };
    args[1] = rig.dir;
    for (int i = 1; i < argc && i < 13; i++)
        args[i + 1] = argv[i];
    int status = rig_wait(rig_spawn(args, env), crash_long(argc, argv) ? 4 * 3600 : 280);
    if (status == 0)
        rig_remove(&rig);
    else
        printf("status %x; kept for a look: %s\n", (unsigned)status, rig.dir);
    return status == 0 ? 0 : 1;
}
