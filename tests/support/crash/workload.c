#include "support/crash/workload.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define BARRIER_TIME (60 * NS_PER_S)

/* One thread at work. */
struct worker {
    struct workload *work;
    unsigned number;
    struct ledger_thread *ledger;
    struct volume_ctx ctx;
    struct rig_random random;
};

__attribute__((format(printf, 3, 4), noreturn)) static void
trouble(struct worker *worker, const struct err *err, const char *fmt, ...)
{
    struct ledger *ledger = worker->work->ledger;
    char text[128];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)snprintf(ledger->trouble, sizeof(ledger->trouble), "thread %u: %s: %.100s",
                   worker->number, text, err->msg);
    rig_die("%s", ledger->trouble);
}

/* ---- names ---- */

static bool
lookup(struct worker *worker, const char *path, struct volume_attr *out)
{
    struct err err = ERR_INIT;
    if (volume_resolve(worker->work->service, &worker->ctx, worker->work->volume, path, out,
                       &err) == 0)
        return true;
    if (err.code != ERR_NOT_FOUND)
        trouble(worker, &err, "resolve %s", path);
    return false;
}

/* The folder and last component of a path. False when the folder is not there. */
static bool
place(struct worker *worker, const char *path, struct volume_name *out)
{
    struct volume_attr attr;
    char dir[LEDGER_PATH];
    const char *slash = strrchr(path, '/');
    (void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
    if (!lookup(worker, dir, &attr))
        return false;
    *out = (struct volume_name){ .parent = attr.node, .name = slash + 1, .len = strlen(slash + 1) };
    return true;
}

/* ---- whole files ---- */

struct save {
    bool fsync;
    bool flush_only; /* the handle is left open until the end of the process */
};

static void
write_bytes(struct worker *worker, struct volume_file *file, const uint8_t *bytes, size_t size)
{
    struct err err = ERR_INIT;
    size_t chunk = 1 + rig_below(&worker->random, 200000);
    for (size_t done = 0; done < size; done += chunk) {
        size_t len = size - done < chunk ? size - done : chunk;
        if (volume_file_write(file, &worker->ctx, bytes + done, len, done, &err) != 0)
            trouble(worker, &err, "write");
    }
}

/* Creates or truncates `path`, writes the content, answers like close(2) did. */
static void
save_as(struct worker *worker, const struct volume_name *at, uint32_t id, struct ledger_slot *slot,
        bool durable)
{
    struct err err = ERR_INIT;
    struct volume_attr attr;
    struct volume_file *file;
    size_t size;
    if (volume_file_create(
            worker->work->service, &worker->ctx,
            &(struct volume_new){ .at = *at, .mode = 0644, .flags = O_WRONLY | O_TRUNC }, &attr,
            &file, &err) != 0)
        trouble(worker, &err, "create %.*s", (int)at->len, at->name);
    uint8_t *bytes = ledger_content(id, &size);
    write_bytes(worker, file, bytes, size);
    free(bytes);
    if (durable) {
        if (volume_file_fsync(file, &worker->ctx, &err) != 0)
            trouble(worker, &err, "fsync");
        if (slot != NULL)
            ledger_ack(slot, LEDGER_L);
    }
    if (volume_file_flush(file, &worker->ctx, &err) != 0)
        trouble(worker, &err, "close");
    if (slot != NULL && !durable)
        ledger_ack(slot, LEDGER_C);
    if (rig_once_in(&worker->random, 4))
        clock_sleep_ns(2 * NS_PER_MS);
    volume_file_close(file, &worker->ctx);
}

static void
save(struct worker *worker, unsigned number, bool durable)
{
    char path[LEDGER_PATH];
    struct volume_name at;
    struct ledger_slot *slot = &worker->ledger->slot[number];
    ledger_slot_path(worker->number, number, path);
    if (!place(worker, path, &at))
        return;
    uint32_t id = ledger_new_content(worker->ledger, worker->number);
    if (ledger_now(slot) == LEDGER_ABSENT)
        ledger_begin(slot, LEDGER_EMPTY); /* create(2) and close(2) are two answers */
    ledger_begin(slot, id);
    save_as(worker, &at, id, slot, durable);
}

/* The way of editors: a temporary file beside it, then rename over. */
static void
replace(struct worker *worker, unsigned number, bool durable)
{
    char path[LEDGER_PATH], temp[LEDGER_PATH];
    struct volume_name at, from;
    struct err err = ERR_INIT;
    struct ledger_slot *slot = &worker->ledger->slot[number];
    ledger_slot_path(worker->number, number, path);
    if (!place(worker, path, &at))
        return;
    uint32_t id = ledger_new_content(worker->ledger, worker->number);
    /* Never a name from before a crash: a torn save goes back to what its file held, and that would be another's. */
    (void)snprintf(temp, sizeof(temp), ".tmp%u.%u", number, id);
    from = (struct volume_name){ .parent = at.parent, .name = temp, .len = strlen(temp) };
    save_as(worker, &from, id, NULL, durable);
    ledger_begin(slot, id);
    slot->bytes_durable[slot->count - 1] = durable;
    if (volume_rename(worker->work->service, &worker->ctx, &from, &at, 0, &err) != 0)
        trouble(worker, &err, "rename over %s", path);
    ledger_ack(slot, LEDGER_C);
}

static void
upload(struct worker *worker, unsigned number, bool wait)
{
    char path[LEDGER_PATH];
    struct volume_name at;
    struct err err = ERR_INIT;
    struct volume_attr attr;
    struct ledger_slot *slot = &worker->ledger->slot[number];
    struct volume_commit_args args = { .pre = { .kind = PRECONDITION_ANY },
                                       .wait_synced = wait,
                                       .make_dirs = true };
    bool created;
    size_t size;
    ledger_slot_path(worker->number, number, path);
    if (!place(worker, path, &at))
        return;
    uint32_t id = ledger_new_content(worker->ledger, worker->number);
    struct volume_upload *up =
        volume_upload_begin(worker->work->service, &worker->ctx, worker->work->volume, path, &err);
    uint8_t *bytes = ledger_content(id, &size);
    if (up == NULL || volume_upload_write(up, bytes, size / 2, &err) != 0 ||
        volume_upload_write(up, bytes + size / 2, size - size / 2, &err) != 0)
        trouble(worker, &err, "upload");
    free(bytes);
    ledger_begin(slot, id);
    int rc = volume_commit(up, &worker->ctx, &args, &attr, &created, &err);
    if (rc != 0 && err.code != ERR_NOT_SYNCED)
        trouble(worker, &err, "commit %s", path);
    ledger_ack(slot, rc == 0 && wait ? LEDGER_B : LEDGER_L);
}

static void
remove_file(struct worker *worker, unsigned number)
{
    char path[LEDGER_PATH];
    struct volume_name at;
    struct err err = ERR_INIT;
    struct ledger_slot *slot = &worker->ledger->slot[number];
    ledger_slot_path(worker->number, number, path);
    if (ledger_now(slot) == LEDGER_ABSENT || !place(worker, path, &at))
        return;
    ledger_begin(slot, LEDGER_ABSENT);
    if (volume_remove(worker->work->service, &worker->ctx, &at, false, NULL, &err) != 0)
        trouble(worker, &err, "remove %s", path);
    ledger_ack(slot, LEDGER_C);
}

/* ---- names that move ---- */

static void
move_begin(struct worker *worker, unsigned from, unsigned to)
{
    struct ledger_thread *ledger = worker->ledger;
    struct ledger_move *move = &ledger->move;
    struct ledger_slot *source = &ledger->slot[from];
    bool durable = source->bytes_durable[source->count - 1];
    uint32_t state = ledger_now(source);
    move->from[move->count] = from;
    move->to[move->count] = to;
    move->state[move->count++] = state;
    /* A torn save that was moved goes back to what the file was before, under the new name. */
    for (uint32_t i = source->durable; i + 1 < source->count; i++)
        ledger_begin(&ledger->slot[to], source->state[i]);
    ledger_begin(&ledger->slot[to], state);
    ledger->slot[to].bytes_durable[ledger->slot[to].count - 1] = durable;
    ledger_begin(source, LEDGER_ABSENT);
}

static void
move_end(struct worker *worker)
{
    struct ledger_move *move = &worker->ledger->move;
    for (uint32_t i = 0; i < move->count; i++) {
        ledger_ack(&worker->ledger->slot[move->to[i]], LEDGER_C);
        ledger_ack(&worker->ledger->slot[move->from[i]], LEDGER_C);
    }
    move->active = false;
    move->count = 0;
}

static void
move_file(struct worker *worker, unsigned from, unsigned to)
{
    char from_path[LEDGER_PATH], to_path[LEDGER_PATH];
    struct volume_name source, target;
    struct err err = ERR_INIT;
    ledger_slot_path(worker->number, from, from_path);
    ledger_slot_path(worker->number, to, to_path);
    if (from == to || ledger_now(&worker->ledger->slot[from]) == LEDGER_ABSENT ||
        !place(worker, from_path, &source) || !place(worker, to_path, &target))
        return;
    worker->ledger->move = (struct ledger_move){ .active = true };
    move_begin(worker, from, to);
    if (volume_rename(worker->work->service, &worker->ctx, &source, &target, 0, &err) != 0)
        trouble(worker, &err, "rename %s to %s", from_path, to_path);
    move_end(worker);
}

static void
move_folder(struct worker *worker)
{
    char path[LEDGER_PATH];
    struct volume_attr attr, top;
    struct err err = ERR_INIT;
    (void)snprintf(path, sizeof(path), "t%u/x", worker->number);
    bool at_x = lookup(worker, path, &attr);
    (void)snprintf(path, sizeof(path), "t%u", worker->number);
    if (!lookup(worker, path, &top))
        trouble(worker, &err, "%s is gone", path);
    unsigned from = at_x ? LEDGER_SLOT_X : LEDGER_SLOT_Y, to = at_x ? LEDGER_SLOT_Y : LEDGER_SLOT_X;
    struct volume_name source = { .parent = top.node, .name = at_x ? "x" : "y", .len = 1 };
    struct volume_name target = { .parent = top.node, .name = at_x ? "y" : "x", .len = 1 };
    worker->ledger->move = (struct ledger_move){ .active = true };
    move_begin(worker, from, to);
    move_begin(worker, from + 1, to + 1);
    if (volume_rename(worker->work->service, &worker->ctx, &source, &target, 0, &err) != 0)
        trouble(worker, &err, "rename of a folder");
    move_end(worker);
}

/* ---- in place ---- */

static struct volume_file *
open_blocks(struct worker *worker, unsigned number)
{
    char path[LEDGER_PATH];
    struct volume_attr attr;
    struct volume_file *file;
    struct err err = ERR_INIT;
    ledger_file_path(worker->number, number, path);
    if (!lookup(worker, path, &attr))
        trouble(worker, &err, "%s is gone", path);
    if (volume_file_open(worker->work->service, &worker->ctx, attr.node, O_RDWR, &file, &err) != 0)
        trouble(worker, &err, "open %s", path);
    return file;
}

static void
write_sectors(struct worker *worker, struct volume_file *file, unsigned number, uint32_t first,
              uint32_t count)
{
    uint8_t *bytes = malloc((size_t)count * LEDGER_SECTOR);
    struct err err = ERR_INIT;
    if (bytes == NULL)
        rig_die("out of memory");
    uint32_t seq = ledger_begin_write(&worker->ledger->file[number], first, count);
    for (uint32_t i = 0; i < count; i++)
        ledger_fill_sector(worker->number, number, first + i, seq,
                           bytes + (size_t)i * LEDGER_SECTOR);
    if (volume_file_write(file, &worker->ctx, bytes, (size_t)count * LEDGER_SECTOR,
                          (uint64_t)first * LEDGER_SECTOR, &err) != 0)
        trouble(worker, &err, "write in place");
    free(bytes);
}

static void
patch(struct worker *worker, unsigned number)
{
    struct ledger_file *ledger = &worker->ledger->file[number];
    struct volume_file *file = open_blocks(worker, number);
    struct err err = ERR_INIT;
    for (uint64_t i = 1 + rig_below(&worker->random, 6); i > 0; i--) {
        uint32_t count = 1 + (uint32_t)rig_below(&worker->random, 64);
        write_sectors(worker, file, number,
                      (uint32_t)rig_below(&worker->random, ledger->sectors - count), count);
        if (!rig_once_in(&worker->random, 3))
            continue;
        if (volume_file_fsync(file, &worker->ctx, &err) != 0)
            trouble(worker, &err, "fsync in place");
        ledger->acked = ledger->durable = ledger->writes;
    }
    if (volume_file_flush(file, &worker->ctx, &err) != 0)
        trouble(worker, &err, "close in place");
    ledger->acked = ledger->writes;
    volume_file_close(file, &worker->ctx);
}

/* ---- levels ---- */

static void
sync_names(struct worker *worker)
{
    struct err err = ERR_INIT;
    if (volume_fsync_dir(worker->work->service, &worker->ctx, 1 /* a root */, &err) != 0)
        trouble(worker, &err, "fsync of a folder");
    ledger_names_durable(worker->ledger);
}

static void
barrier(struct worker *worker)
{
    struct volume_barrier result;
    struct err err = ERR_INIT;
    if (volume_flush(worker->work->service, worker->work->volume, clock_mono_ns() + BARRIER_TIME,
                     &result, &err) != 0)
        trouble(worker, &err, "barrier");
    ledger_barrier(worker->ledger);
    __atomic_fetch_add(&worker->work->ledger->barriers, 1, __ATOMIC_SEQ_CST);
}

/* ---- random work ---- */

static void
step(struct worker *worker)
{
    struct rig_random *random = &worker->random;
    unsigned slot = (unsigned)rig_below(random, LEDGER_SLOTS);
    bool durable = rig_once_in(random, 3);
    switch (rig_below(random, 16)) {
    case 0:
    case 1:
    case 2:
    case 3:
        save(worker, slot, durable);
        break;
    case 4:
    case 5:
    case 6:
        replace(worker, slot, durable);
        break;
    case 7:
    case 8:
        upload(worker, slot, rig_once_in(random, 2));
        break;
    case 9:
        remove_file(worker, slot);
        break;
    case 10:
        move_file(worker, slot, (unsigned)rig_below(random, LEDGER_SLOTS));
        break;
    case 11:
        move_folder(worker);
        break;
    case 12:
    case 13:
        patch(worker, (unsigned)rig_below(random, LEDGER_FILES));
        break;
    case 14:
        sync_names(worker);
        break;
    default:
        if (rig_once_in(random, 3))
            barrier(worker);
    }
    __atomic_fetch_add(&worker->work->ledger->operations, 1, __ATOMIC_SEQ_CST);
    if (worker->work->slow && rig_once_in(random, 6))
        clock_sleep_ns((int64_t)rig_below(random, 12) * NS_PER_MS);
}

static void
worker_init(struct worker *worker, struct workload *work, unsigned number)
{
    *worker = (struct worker){ .work = work, .number = number, .ctx = rig_ctx(number + 1) };
    worker->ledger = &work->ledger->thread[number];
    worker->random.state = work->seed * 31 + number;
}

static void *
worker_main(void *arg)
{
    struct worker *worker = arg;
    /* The ledger's room bounds what can be done without a pause to judge. */
    for (unsigned i = 0; i < 400 && (worker->work->steps == 0 || i < worker->work->steps); i++)
        step(worker);
    if (worker->work->steps == 0)
        (void)pause();
    return NULL;
}

void
workload_run(struct workload *work)
{
    struct worker worker[LEDGER_THREADS];
    pthread_t thread[LEDGER_THREADS];
    work->ledger->ready = true;
    for (unsigned i = 0; i < work->ledger->threads; i++) {
        worker_init(&worker[i], work, i);
        if (pthread_create(&thread[i], NULL, worker_main, &worker[i]) != 0)
            rig_die("cannot start a thread");
    }
    for (unsigned i = 0; i < work->ledger->threads; i++)
        pthread_join(thread[i], NULL);
}

/* ---- setting up ---- */

static void
make_folder(struct worker *worker, const char *path)
{
    struct volume_attr attr;
    struct err err = ERR_INIT;
    if (volume_make_dirs(worker->work->service, &worker->ctx, worker->work->volume, path, &attr,
                         &err) != 0)
        trouble(worker, &err, "mkdir %s", path);
}

static void
make_blocks(struct worker *worker, unsigned number)
{
    char path[LEDGER_PATH];
    struct volume_name at;
    struct volume_attr attr;
    struct volume_file *file;
    struct err err = ERR_INIT;
    ledger_file_path(worker->number, number, path);
    if (!place(worker, path, &at) ||
        volume_file_create(
            worker->work->service, &worker->ctx,
            &(struct volume_new){ .at = at, .mode = 0600, .flags = O_RDWR | O_TRUNC }, &attr, &file,
            &err) != 0)
        trouble(worker, &err, "create %s", path);
    write_sectors(worker, file, number, 0, worker->ledger->file[number].sectors);
    if (volume_file_flush(file, &worker->ctx, &err) != 0)
        trouble(worker, &err, "close %s", path);
    volume_file_close(file, &worker->ctx);
}

void
workload_set_up(struct workload *work)
{
    static const char *const folders[] = { "d0", "d1", "x" };
    struct worker worker;
    char path[LEDGER_PATH];
    for (unsigned i = 0; i < work->ledger->threads; i++) {
        worker_init(&worker, work, i);
        for (unsigned k = 0; k < 3; k++) {
            (void)snprintf(path, sizeof(path), "t%u/%s", i, folders[k]);
            make_folder(&worker, path);
        }
        for (unsigned k = 0; k < LEDGER_FILES; k++)
            make_blocks(&worker, k);
        barrier(&worker);
    }
    for (unsigned i = 0; i < work->ledger->threads; i++)
        for (unsigned k = 0; k < LEDGER_FILES; k++) {
            struct ledger_file *file = &work->ledger->thread[i].file[k];
            for (uint32_t sector = 0; sector < file->sectors; sector++)
                file->base[sector] = file->seq;
        }
    ledger_settle(work->ledger);
    work->ledger->set_up = true;
}

/* ---- scripts ---- */

const char *const workload_script_names[WORKLOAD_SCRIPTS] = {
    "create", "overwrite", "overwrite with fsync", "rename over",    "rename over with fsync",
    "upload", "remove",    "rename a folder",      "write in place", "remove and create",
};

void
workload_script_prepare(struct workload *work, unsigned script)
{
    struct worker worker;
    worker_init(&worker, work, 0);
    if (script == 0)
        return;
    for (unsigned slot = 0; slot < LEDGER_SLOT_Y; slot++)
        save(&worker, slot, false);
    barrier(&worker);
}

void
workload_script_run(struct workload *work, unsigned script)
{
    struct worker worker;
    worker_init(&worker, work, 0);
    switch (script) {
    case 0:
    case 1:
        save(&worker, 0, false);
        break;
    case 2:
        save(&worker, 0, true);
        break;
    case 3:
        replace(&worker, 0, false);
        break;
    case 4:
        replace(&worker, 0, true);
        sync_names(&worker);
        break;
    case 5:
        upload(&worker, 0, true);
        break;
    case 6:
        remove_file(&worker, 0);
        break;
    case 7:
        move_folder(&worker);
        break;
    case 8:
        patch(&worker, 1);
        break;
    default:
        remove_file(&worker, 0);
        save(&worker, 0, false);
    }
    barrier(&worker);
}
