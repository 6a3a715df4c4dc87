#include "support/crash/tale.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/scope.h"
#include "support/crash/points.h"
#include "volume/prune_impl.h"
#include "volume/snapshot.h"

#define FLUSH_TIME (90 * NS_PER_S)
#define HELD_TIME (3 * NS_PER_S)
#define LATER (40ll * 24 * 3600 * NS_PER_S)

/* ---- time ---- */

static int64_t
wall_later(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec + LATER;
}

static int64_t
real(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int64_t
mono_now(void)
{
    return real(CLOCK_MONOTONIC);
}

static int64_t
boot_now(void)
{
    return real(CLOCK_BOOTTIME);
}

static void
sleep_for(int64_t ns)
{
    struct timespec time = { .tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S };
    (void)nanosleep(&time, NULL);
}

void
tale_later(void)
{
    static const struct clock_table later = {
        .wall = wall_later, .mono = mono_now, .boot = boot_now, .sleep = sleep_for
    };
    clock_replace(&later);
}

/* ---- the service ---- */

void
tale_open(struct tale_life *life)
{
    struct err err = ERR_INIT;
    struct volume_service_args args = {
        .state_dir = life->rig->state,
        .store = points_store(rig_store(life->rig), life->tale->weak),
        .cache = { .max_bytes = 1u << 30, .reserve_bytes = 1u << 16 },
        .list_ttl_ns = 3600 * NS_PER_S,
        .upload_threads = 2,
        .fetch_threads = 1
    };
    life->service = volume_service_open(&args, &err);
    if (life->service == NULL || volume_service_start(life->service, &err) != 0)
        rig_die("it does not start: %s", err.msg);
    life->volume = rig_volume(life->service, TALE_VOLUME);
}

/* A request of a dead process may still land and would meet its condition again: then its key is left alone for 20 minutes
 * (versioning/sync.h, `late`). No other process ran here; a new start forgets it. */
void
tale_flush(struct tale_life *life)
{
    struct volume_barrier barrier;
    struct err err = ERR_INIT;
    if (volume_flush(life->service, 0, clock_mono_ns() + HELD_TIME, &barrier, &err) == 0)
        return;
    if (err.code == ERR_NOT_SYNCED && barrier.first_error[0] == '\0') {
        life->ledger->held++;
        rig_close(life->service);
        tale_open(life);
        if (volume_flush(life->service, 0, clock_mono_ns() + FLUSH_TIME, &barrier, &err) == 0)
            return;
    }
    rig_die("'%s', step %u: the barrier fails: %s", life->tale->name, life->ledger->begun, err.msg);
}

/* ---- steps ---- */

struct doing {
    struct tale_life *life;
    const struct tale_op *op;
    struct volume_ctx ctx;
    bool again;
};

__attribute__((noreturn)) static void
stuck(const struct doing *doing, const struct err *err)
{
    rig_die("'%s': step %d, '%s' '%s'%s: %s", doing->life->tale->name, (int)doing->op->what,
            doing->op->path == NULL ? "" : doing->op->path,
            doing->op->other == NULL ? "" : doing->op->other, doing->again ? " again" : "",
            err->msg);
}

static int
place(const struct doing *doing, const char *path, struct volume_name *at, struct err *err)
{
    struct volume_attr attr;
    char dir[64] = "";
    const char *slash = strrchr(path, '/');
    if (slash != NULL)
        (void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
    at->name = slash == NULL ? path : slash + 1;
    at->len = strlen(at->name);
    if (volume_resolve(doing->life->service, &doing->ctx, doing->life->volume, dir, &attr, err) !=
        0)
        return -1;
    at->parent = attr.node;
    return 0;
}

static int
do_save(struct doing *doing, struct err *err)
{
    struct volume_name at;
    struct volume_attr attr;
    struct volume_file *file;
    size_t len;
    scope_free uint8_t *data = tale_bytes(doing->op->other, &len);
    if (place(doing, doing->op->path, &at, err) != 0 ||
        volume_file_create(
            doing->life->service, &doing->ctx,
            &(struct volume_new){ .at = at, .mode = 0644, .flags = O_CREAT | O_TRUNC | O_RDWR },
            &attr, &file, err) != 0)
        return -1;
    int rc = volume_file_write(file, &doing->ctx, data, len, 0, err);
    if (rc == 0)
        rc = volume_file_flush(file, &doing->ctx, err);
    volume_file_close(file, &doing->ctx);
    return rc;
}

static int
do_put(struct doing *doing, struct err *err)
{
    struct volume_attr attr;
    bool created;
    size_t len;
    scope_free uint8_t *data = tale_bytes(doing->op->other, &len);
    struct volume_commit_args args = { .pre = { .kind = PRECONDITION_ANY } };
    doing->ctx.connection = 0;
    doing->ctx.actor = "http";
    struct volume_upload *upload = volume_upload_begin(doing->life->service, &doing->ctx,
                                                       doing->life->volume, doing->op->path, err);
    if (upload == NULL)
        return -1;
    if (volume_upload_write(upload, data, len, err) == 0)
        return volume_commit(upload, &doing->ctx, &args, &attr, &created, err);
    volume_upload_abort(upload);
    return -1;
}

/* As HTTP does, so that what it was told is saved stays. */
static int
do_remove(struct doing *doing, struct err *err)
{
    struct volume_name at;
    if (place(doing, doing->op->path, &at, err) != 0)
        return -1;
    doing->ctx.connection = 0;
    doing->ctx.actor = "http";
    return volume_remove(doing->life->service, &doing->ctx, &at, false, NULL, err);
}

static int
do_mkdir(struct doing *doing, struct err *err)
{
    struct volume_attr attr;
    return volume_make_dirs(doing->life->service, &doing->ctx, doing->life->volume, doing->op->path,
                            &attr, err);
}

static int
do_move(struct doing *doing, struct err *err)
{
    struct volume_name from, to;
    if (place(doing, doing->op->path, &from, err) != 0 ||
        place(doing, doing->op->other, &to, err) != 0)
        return -1;
    return volume_rename(doing->life->service, &doing->ctx, &from, &to, 0, err);
}

/* ---- steps back ---- */

struct looking {
    const struct doing *doing;
    char id[ULID_SIZE], version[LIMIT_ETAG];
};

static int
see_version(void *arg, const struct volume_version *version, struct err *err)
{
    struct looking *looking = arg;
    char content[16];
    struct volume_ctx ctx = rig_ctx(99);
    if (version->present || looking->version[0] != '\0')
        return 0;
    scope_free uint8_t *data = malloc(version->size + 1);
    if (data == NULL)
        rig_die("out of memory");
    ssize_t got = volume_history_read(looking->doing->life->service, &ctx, version->id, data,
                                      version->size + 1, 0, err);
    if (got < 0)
        return -1;
    if (tale_content_of(data, (size_t)got, content) &&
        strcmp(content, looking->doing->op->other) == 0)
        (void)snprintf(looking->version, sizeof(looking->version), "%s", version->version);
    return 0;
}

static int
tell(void *arg, const struct volume_restored *what, struct err *err)
{
    (void)err;
    if (what->failed)
        rig_break("'%s': '%s' cannot be brought back: %s", (const char *)arg, what->path,
                  what->why);
    return 0;
}

static int
do_back(struct doing *doing, struct err *err)
{
    struct looking looking = { .doing = doing };
    struct volume_restore_result result;
    struct volume_history_want want = { .volume = doing->life->volume, .path = doing->op->path };
    union { /* it is only told with */
        const char *from;
        void *to;
    } name = { .from = doing->life->tale->name };
    struct volume_restore how = {
        .volume = want.volume, .path = want.path, .fn = tell, .arg = name.to
    };
    if (doing->op->what == TALE_UNDO) {
        how.path = "";
        how.run = doing->op->path;
        return volume_undo(doing->life->service, &doing->ctx, &how, &result, err);
    }
    how.at_ns = doing->life->ledger->at_ns[doing->op->moment];
    if (doing->op->what == TALE_BACK) {
        how.at_ns = 0;
        how.version = looking.version;
        if (volume_history_each(doing->life->service, &doing->ctx, &want, see_version, &looking,
                                err) != 0)
            return -1;
        if (looking.version[0] == '\0')
            return err_set(err, ERR_NOT_FOUND, "the history of '%s' has no '%s'", want.path,
                           doing->op->other);
    }
    return volume_restore(doing->life->service, &doing->ctx, &how, &result, err);
}

/* ---- moments ---- */

static int
do_moment(struct doing *doing, struct err *err)
{
    (void)err;
    sleep_for(2 * NS_PER_MS);
    doing->life->ledger->at_ns[doing->op->moment] = clock_wall_ns();
    sleep_for(2 * NS_PER_MS);
    return 0;
}

static int
do_snapshot(struct doing *doing, struct err *err)
{
    struct volume_snapshot snapshot;
    return volume_snapshot_create(doing->life->service, &doing->ctx, doing->life->volume,
                                  doing->op->other, &snapshot, err);
}

static int
do_unsnapshot(struct doing *doing, struct err *err)
{
    return volume_snapshot_delete(doing->life->service, doing->life->volume, doing->op->other, err);
}

static int
do_prune(struct doing *doing, struct err *err)
{
    size_t dropped;
    return prune_all(doing->life->service, &dropped, err);
}

static int
do_flush(struct doing *doing, struct err *err)
{
    (void)err;
    tale_flush(doing->life);
    return 0;
}

static int
do_nothing(struct doing *doing, struct err *err)
{
    (void)doing;
    (void)err;
    return 0;
}

/* What a step says that is made a second time, because a kill came between it and its answer. */
static const struct {
    int (*fn)(struct doing *doing, struct err *err);
    enum err_code again;
} doings[] = {
    [TALE_SAVE] = { do_save, ERR_CODE_COUNT },
    [TALE_PUT] = { do_put, ERR_CODE_COUNT },
    [TALE_REMOVE] = { do_remove, ERR_NOT_FOUND },
    [TALE_MKDIR] = { do_mkdir, ERR_CODE_COUNT },
    [TALE_MOVE] = { do_move, ERR_NOT_FOUND },
    [TALE_FLUSH] = { do_flush, ERR_CODE_COUNT },
    [TALE_RUN] = { do_nothing, ERR_CODE_COUNT },
    [TALE_MOMENT] = { do_moment, ERR_CODE_COUNT },
    [TALE_BACK] = { do_back, ERR_CODE_COUNT },
    [TALE_BACK_TO] = { do_back, ERR_CODE_COUNT },
    [TALE_UNDO] = { do_back, ERR_CODE_COUNT },
    [TALE_PRUNE] = { do_prune, ERR_CODE_COUNT },
    [TALE_SNAPSHOT] = { do_snapshot, ERR_EXISTS },
    [TALE_UNSNAPSHOT] = { do_unsnapshot, ERR_NOT_FOUND },
};

static void
step(struct tale_life *life, const struct tale_op *op, const char *run, bool again)
{
    struct err err = ERR_INIT;
    struct doing doing = { .life = life, .op = op, .ctx = rig_ctx(1), .again = again };
    doing.ctx.run = run;
    doing.ctx.deadline_ns = clock_mono_ns() + FLUSH_TIME;
    if (doings[op->what].fn(&doing, &err) != 0 && !(again && err.code == doings[op->what].again))
        stuck(&doing, &err);
}

void
tale_begin(struct tale_life *life)
{
    const char *run = "";
    for (unsigned i = 0; i < TALE_OPS && life->tale->begin[i].what != TALE_END; i++) {
        run = life->tale->begin[i].what == TALE_RUN ? life->tale->begin[i].other : run;
        step(life, &life->tale->begin[i], run, false);
    }
    tale_flush(life);
}

void
tale_act(struct tale_life *life, bool again)
{
    const char *run = "";
    unsigned from = life->ledger->done, count = tale_acts(life->tale);
    for (unsigned i = 0; i < count; i++) {
        run = life->tale->act[i].what == TALE_RUN ? life->tale->act[i].other : run;
        if (i < from)
            continue;
        life->ledger->begun = i + 1;
        step(life, &life->tale->act[i], run, again && i == from);
        life->ledger->done = i + 1;
    }
}
