#include "support/crash/aftermath.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/scope.h"
#include "support/crash/tree.h"
#include "support/crash/workload.h"

#define FLUSH_TIME (15 * NS_PER_S)

struct judge {
    const struct rig *rig;
    struct ledger *ledger;
    enum aftermath_kind kind;
    struct volume_service *service;
    struct store *store;
    int64_t volume;
    uint32_t actual[LEDGER_THREADS][LEDGER_SLOTS];
    uint32_t *sector[LEDGER_THREADS][LEDGER_FILES];
};

/* ---- files that are replaced as a whole ---- */

static bool
is_content(uint32_t id, const uint8_t *data, size_t len)
{
    size_t size;
    if (id < LEDGER_FIRST)
        return id == LEDGER_EMPTY && len == 0;
    if (ledger_content_size(id) != len)
        return false;
    scope_free uint8_t *bytes = ledger_content(id, &size);
    return memcmp(bytes, data, len) == 0;
}

/* Index of the newest state from `floor` on that these bytes are; -1: none. `data` NULL: absent. */
static int64_t
match(const struct ledger_slot *slot, uint32_t floor, const uint8_t *data, size_t len)
{
    for (int64_t i = (int64_t)slot->count - 1; i >= (int64_t)floor; i--)
        if (data == NULL ? slot->state[i] == LEDGER_ABSENT
                         : slot->state[i] != LEDGER_ABSENT && is_content(slot->state[i], data, len))
            return i;
    return -1;
}

static void
describe(const struct ledger_slot *slot, uint32_t floor, const uint8_t *data, size_t len, char *out,
         size_t size)
{
    size_t full;
    int64_t old = match(slot, 0, data, len);
    if (data == NULL) {
        (void)snprintf(out, size, "is absent");
        return;
    }
    if (old >= 0) {
        (void)snprintf(out, size, "is old: state %lld of %u", (long long)old, slot->count - 1);
        return;
    }
    for (uint32_t i = floor; i < slot->count; i++) {
        scope_free uint8_t *bytes = ledger_content(slot->state[i], &full);
        size_t same = 0;
        while (same < len && same < full && bytes[same] == data[same])
            same++;
        if (same > 16 || (same == len && len > 0)) {
            (void)snprintf(out, size, "is HALF: %zu bytes, the first %zu of state %u (%zu bytes)",
                           len, same, i, full);
            return;
        }
    }
    (void)snprintf(out, size, "is none of ours (%zu bytes, begins %02x%02x%02x%02x)", len,
                   len > 0 ? data[0] : 0u, len > 1 ? data[1] : 0u, len > 2 ? data[2] : 0u,
                   len > 3 ? data[3] : 0u);
}

static int64_t
check_slot(const struct ledger_slot *slot, uint32_t floor, const char *what, const char *path,
           const uint8_t *data, size_t len)
{
    char text[160];
    int64_t found = match(slot, floor, data, len);
    if (found >= 0)
        return found;
    describe(slot, floor, data, len, text, sizeof(text));
    rig_break("%s '%s' %s; promised from state %u (content %u, %zu bytes), begun up to %u (acked "
              "%u, durable %u, "
              "synced %u)",
              what, path, text, floor, slot->state[floor],
              slot->state[floor] < LEDGER_FIRST ? 0 : ledger_content_size(slot->state[floor]),
              slot->count - 1, slot->acked, slot->durable, slot->synced);
    return -1;
}

/* ---- files that are changed in place ---- */

/* What the sectors hold after the first `writes` writes. */
static void
replay(const struct ledger_file *file, uint32_t writes, uint32_t *sector)
{
    memcpy(sector, file->base, file->sectors * sizeof(*sector));
    for (uint32_t i = 0; i < writes; i++)
        for (uint32_t k = 0; k < file->write[i].count; k++)
            sector[file->write[i].first + k] = file->write[i].seq;
}

static uint32_t *
sectors_alloc(void)
{
    uint32_t *sector = calloc(LEDGER_SECTORS, sizeof(*sector));
    if (sector == NULL)
        rig_die("out of memory");
    return sector;
}

/* Reads the numbers out of the bytes; false when they are no such file. */
static bool
read_sectors(unsigned thread, unsigned number, const struct ledger_file *file, const uint8_t *data,
             size_t len, uint32_t *out)
{
    if (len != (size_t)file->sectors * LEDGER_SECTOR)
        return false;
    for (uint32_t i = 0; i < file->sectors; i++) {
        out[i] = ledger_read_sector(thread, number, i, data + (size_t)i * LEDGER_SECTOR);
        if (out[i] == UINT32_MAX || out[i] == 0)
            return false;
    }
    return true;
}

/* The moment that the file shows: all writes up to its newest one. `cut`: that one may be there in part. */
static void
check_moment(const struct ledger_file *file, const uint32_t *have, bool cut, const char *what,
             const char *path)
{
    scope_free uint32_t *want = sectors_alloc();
    uint32_t newest = 0, writes = 0, wrong = 0;
    for (uint32_t i = 0; i < file->sectors; i++)
        newest = have[i] > newest ? have[i] : newest;
    while (writes < file->writes && file->write[writes].seq <= newest)
        writes++;
    replay(file, writes, want);
    for (uint32_t i = 0; i < file->sectors; i++)
        wrong +=
            have[i] != want[i] && !(cut && writes > 0 && want[i] == file->write[writes - 1].seq);
    if (wrong > 0)
        rig_break("%s '%s' is a mixture: newest write %u, %u sectors do not fit", what, path,
                  newest, wrong);
}

static void
check_floor(const struct ledger_file *file, const uint32_t *have, uint32_t floor, const char *what,
            const char *path)
{
    scope_free uint32_t *want = sectors_alloc();
    uint32_t lost = 0, first = 0;
    replay(file, floor, want);
    for (uint32_t i = 0; i < file->sectors; i++)
        if (have[i] < want[i] && lost++ == 0)
            first = i;
    if (lost > 0)
        rig_break("%s '%s' lost %u promised sectors: sector %u holds write %u, promised %u", what,
                  path, lost, first, have[first], want[first]);
}

/* ---- the bucket before anything runs ---- */

static void
key_of(const char *path, char *out, size_t size)
{
    (void)snprintf(out, size, WORKLOAD_VOLUME "/%s", path);
}

static void
bucket_slot(struct judge *judge, unsigned thread, unsigned number)
{
    char path[LEDGER_PATH], key[LEDGER_PATH + 16];
    scope_free uint8_t *data = NULL;
    size_t len = 0;
    struct err err = ERR_INIT;
    const struct ledger_slot *slot = &judge->ledger->thread[thread].slot[number];
    ledger_slot_path(thread, number, path);
    key_of(path, key, sizeof(key));
    if (tree_read_object(judge->store, key, &data, &len, &err) != 0 && err.code != ERR_NOT_FOUND)
        rig_die("cannot read '%s': %s", key, err.msg);
    (void)check_slot(slot, slot->synced, "bucket:", key, data, len);
}

static void
bucket_file(struct judge *judge, unsigned thread, unsigned number)
{
    char path[LEDGER_PATH], key[LEDGER_PATH + 16];
    scope_free uint8_t *data = NULL;
    scope_free uint32_t *have = sectors_alloc();
    size_t len = 0;
    struct err err = ERR_INIT;
    const struct ledger_file *file = &judge->ledger->thread[thread].file[number];
    ledger_file_path(thread, number, path);
    key_of(path, key, sizeof(key));
    if (tree_read_object(judge->store, key, &data, &len, &err) != 0 ||
        !read_sectors(thread, number, file, data, len, have)) {
        rig_break("bucket: '%s' is not a whole file of ours (%zu bytes): %s", key, len,
                  data == NULL ? err.msg : "");
        return;
    }
    check_moment(file, have, false, "bucket:", key);
    check_floor(file, have, file->synced, "bucket:", key);
}

static void
check_bucket(struct judge *judge)
{
    judge->store = rig_store(judge->rig);
    for (unsigned i = 0; i < judge->ledger->threads; i++) {
        for (unsigned k = 0; k < LEDGER_SLOTS; k++)
            bucket_slot(judge, i, k);
        for (unsigned k = 0; k < LEDGER_FILES; k++)
            bucket_file(judge, i, k);
    }
    store_free(judge->store);
}

/* ---- the volume ---- */

static void
volume_slot(struct judge *judge, unsigned thread, unsigned number)
{
    char path[LEDGER_PATH];
    scope_free uint8_t *data = NULL;
    size_t len = 0;
    struct err err = ERR_INIT;
    const struct ledger_slot *slot = &judge->ledger->thread[thread].slot[number];
    uint32_t floor = judge->kind == AFTER_KILL ? slot->acked : slot->durable;
    ledger_slot_path(thread, number, path);
    if (tree_read_file(judge->service, judge->volume, path, &data, &len, &err) != 0 &&
        err.code != ERR_NOT_FOUND) {
        rig_break("volume: '%s' cannot be read: %s", path, err.msg);
        return;
    }
    int64_t found = check_slot(slot, floor, "volume:", path, data, len);
    judge->actual[thread][number] = found < 0 ? ledger_now(slot) : slot->state[found];
}

static void
volume_file(struct judge *judge, unsigned thread, unsigned number)
{
    char path[LEDGER_PATH];
    scope_free uint8_t *data = NULL;
    size_t len = 0;
    struct err err = ERR_INIT;
    const struct ledger_file *file = &judge->ledger->thread[thread].file[number];
    uint32_t *have = judge->sector[thread][number];
    ledger_file_path(thread, number, path);
    if (tree_read_file(judge->service, judge->volume, path, &data, &len, &err) != 0) {
        rig_break("volume: '%s' cannot be read: %s", path, err.msg);
        return;
    }
    if (!read_sectors(thread, number, file, data, len, have)) {
        rig_break("volume: '%s' has sectors that nobody wrote (%zu bytes)", path, len);
        return;
    }
    if (judge->kind == AFTER_KILL)
        check_moment(file, have, true, "volume:", path);
    check_floor(file, have, judge->kind == AFTER_KILL ? file->acked : file->durable,
                "volume:", path);
}

static void
check_move(struct judge *judge, unsigned thread)
{
    const struct ledger_move *move = &judge->ledger->thread[thread].move;
    for (uint32_t i = 0; move->active && i < move->count; i++) {
        if (move->state[i] == LEDGER_ABSENT)
            continue;
        bool left = judge->actual[thread][move->from[i]] == LEDGER_ABSENT;
        bool came = judge->actual[thread][move->to[i]] == move->state[i];
        if (left != came)
            rig_break("thread %u: a rename is half: slot %u %s, slot %u %s", thread, move->from[i],
                      left ? "left" : "is still there", move->to[i],
                      came ? "came" : "did not come");
    }
}

static void
check_volume(struct judge *judge)
{
    for (unsigned i = 0; i < judge->ledger->threads; i++) {
        for (unsigned k = 0; k < LEDGER_SLOTS; k++)
            volume_slot(judge, i, k);
        for (unsigned k = 0; k < LEDGER_FILES; k++)
            volume_file(judge, i, k);
        if (judge->kind == AFTER_KILL)
            check_move(judge, i);
    }
}

static int
see_conflict(void *arg, const struct index_conflict *row, struct err *err)
{
    struct judge *judge = arg;
    (void)err;
    /* After a power cut the bucket may be ahead of what the disk remembers: then ours is kept beside it, never lost. */
    if (judge->kind == AFTER_POWER && strcmp(row->reason, "torn") == 0)
        judge->ledger->conflicts_torn++;
    else if (judge->kind == AFTER_POWER)
        judge->ledger->conflicts_behind++;
    else if (strcmp(row->reason, "torn") != 0)
        rig_break("a conflict nobody made: '%s', %s", row->path, row->reason);
    return 0;
}

static int
see_park(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct judge *judge = arg;
    (void)entry;
    (void)err;
    judge->ledger->parked++;
    return 0;
}

static unsigned
compare_once(struct judge *judge, const char *when)
{
    struct tree volume = { 0 }, bucket = { 0 };
    struct store *store = volume_service_store(judge->service);
    struct err err = ERR_INIT;
    unsigned differences = 0;
    if (tree_of_volume(judge->service, judge->volume, &volume, &err) != 0 ||
        tree_of_bucket(store, WORKLOAD_VOLUME "/", &bucket, &err) != 0)
        rig_break("cannot read everything: %s", err.msg);
    else
        differences = tree_compare(&volume, &bucket, when);
    tree_release(&volume);
    tree_release(&bucket);
    return differences;
}

/* After a power cut the bucket can be ahead of the index, and what it holds is seen by listings: they get a moment. What the volume
 * shows then is what the next life begins with. */
static void
compare_all(struct judge *judge)
{
    for (unsigned i = 0; i < 8 && judge->kind == AFTER_POWER; i++) {
        if (compare_once(judge, NULL) == 0) {
            check_volume(judge);
            return;
        }
        clock_sleep_ns(250 * NS_PER_MS);
    }
    (void)compare_once(judge, "after the barrier");
}

/* Behind a barrier bucket and volume are equal. */
static void
check_equal(struct judge *judge)
{
    struct volume_barrier barrier;
    struct err err = ERR_INIT;
    struct store_list park = { .prefix = ".holdfast/park/", .fn = see_park, .arg = judge };
    struct store *store = volume_service_store(judge->service);
    judge->ledger->conflicts_torn = judge->ledger->conflicts_behind = judge->ledger->parked = 0;
    if (volume_conflict_each(judge->service, 0, see_conflict, judge, &err) != 0)
        rig_break("conflicts cannot be listed: %s", err.msg);
    int rc = volume_flush(judge->service, 0, clock_mono_ns() + FLUSH_TIME, &barrier, &err);
    if (rc != 0 && err.code == ERR_NOT_SYNCED && barrier.first_error[0] == '\0') {
        /* A request of the dead process may still land and would meet its condition again: the key is left alone for
         * 20 minutes (versioning/sync.h, `late`). No other process ran here; a new start forgets it. */
        judge->ledger->held++;
        rig_close(judge->service);
        judge->service = rig_open(judge->rig->state, rig_store(judge->rig), &err);
        if (judge->service == NULL)
            rig_die("it does not start again: %s", err.msg);
        store = volume_service_store(judge->service);
        rc = volume_flush(judge->service, 0, clock_mono_ns() + FLUSH_TIME, &barrier, &err);
    }
    if (rc != 0)
        rig_break("the barrier fails: %s", err.msg);
    else
        compare_all(judge);
    if (store_list(store, &park, &err) != 0)
        rig_break("cannot list: %s", err.msg);
}

static void
take_over(struct judge *judge)
{
    for (unsigned i = 0; i < judge->ledger->threads; i++) {
        struct ledger_thread *thread = &judge->ledger->thread[i];
        for (unsigned k = 0; k < LEDGER_SLOTS; k++) {
            thread->slot[k].count = 1;
            thread->slot[k].state[0] = judge->actual[i][k];
        }
        for (unsigned k = 0; k < LEDGER_FILES; k++) {
            memcpy(thread->file[k].base, judge->sector[i][k], sizeof(thread->file[k].base));
            free(judge->sector[i][k]);
        }
    }
    ledger_settle(judge->ledger);
}

void
aftermath_judge(const struct rig *rig, struct ledger *ledger, enum aftermath_kind kind)
{
    struct judge *judge = calloc(1, sizeof(*judge));
    struct err err = ERR_INIT;
    struct volume_status status;
    if (judge == NULL)
        rig_die("out of memory");
    *judge = (struct judge){ .rig = rig, .ledger = ledger, .kind = kind };
    for (unsigned i = 0; i < ledger->threads; i++)
        for (unsigned k = 0; k < LEDGER_FILES; k++)
            judge->sector[i][k] = sectors_alloc();
    check_bucket(judge);
    judge->service = rig_open(rig->state, rig_store(rig), &err);
    if (judge->service == NULL) {
        rig_break("it does not start again: %s", err.msg);
        free(judge);
        return;
    }
    if (volume_status(judge->service, &status, &err) == 0 && status.recovered[0] != '\0')
        ledger->recoveries++;
    judge->volume = rig_volume(judge->service, WORKLOAD_VOLUME);
    check_volume(judge);
    check_equal(judge);
    rig_close(judge->service);
    take_over(judge);
    free(judge);
}
