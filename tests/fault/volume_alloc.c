/*
 * A round of volume operations with each of its allocations failing in turn, those of the background threads too: no crash,
 * no leak (which the asan build checks at the end), nothing acknowledged is lost, and behind a barrier the bucket equals
 * the volume. Then the same for opening a service.
 *
 *   --every N  each N-th allocation (1 with --long)
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "s3/open.h"
#include "support/alloc.h"
#include "support/crash/crash.h"
#include "support/crash/tree.h"

#define POINTS 150u

struct run {
    struct rig rig;
    struct store *bottom;
    struct volume_service *service;
    int64_t volume;
    struct volume_ctx ctx;
    struct volume_attr root;
    unsigned long turn;
    uint32_t committed; /* content of "kept", by the last acknowledged commit */
    uint32_t tried;     /* by one whose answer was an error: may be there too */
    unsigned long failed, closed, used;
};

/* Made before the failures begin: the test's own allocations are not under test. */
struct content {
    uint32_t id;
    uint8_t *bytes;
    size_t size;
};

static struct content
make_content(uint32_t id)
{
    struct content content = { .id = id };
    content.bytes = ledger_content(id, &content.size);
    return content;
}

static bool
save(struct run *run, const char *name, const struct content *content)
{
    struct volume_name at = { .parent = run->root.node, .name = name, .len = strlen(name) };
    struct volume_attr attr;
    struct volume_file *file;
    struct err err = ERR_INIT;
    if (volume_file_create(
            run->service, &run->ctx,
            &(struct volume_new){ .at = at, .mode = 0644, .flags = O_WRONLY | O_TRUNC }, &attr,
            &file, &err) != 0)
        return false;
    bool ok = content->size == 0 ||
              volume_file_write(file, &run->ctx, content->bytes, content->size, 0, &err) == 0;
    ok = ok && volume_file_flush(file, &run->ctx, &err) == 0;
    volume_file_close(file, &run->ctx);
    return ok;
}

static bool
commit(struct run *run, const char *path, const struct content *content)
{
    struct volume_commit_args args = { .pre = { .kind = PRECONDITION_ANY }, .make_dirs = true };
    struct volume_attr attr;
    struct err err = ERR_INIT;
    bool created;
    struct volume_upload *up =
        volume_upload_begin(run->service, &run->ctx, run->volume, path, &err);
    if (up == NULL)
        return false;
    if (volume_upload_write(up, content->bytes, content->size, &err) != 0) {
        volume_upload_abort(up);
        return false;
    }
    return volume_commit(up, &run->ctx, &args, &attr, &created, &err) == 0;
}

static int
see_entry(void *arg, const struct volume_entry *entry, struct err *err)
{
    (void)entry;
    (void)err;
    ++*(unsigned *)arg;
    return 0;
}

/* Content `id` under `path`, or broken. */
static void
check(struct run *run, const char *path, uint32_t id, uint32_t other)
{
    uint8_t *data;
    size_t len, size;
    struct err err = ERR_INIT;
    if (tree_read_file(run->service, run->volume, path, &data, &len, &err) != 0) {
        rig_break("allocation %lu: '%s' cannot be read: %s", run->turn, path, err.msg);
        return;
    }
    bool found = false;
    for (unsigned i = 0; i < 2 && !found; i++) {
        uint8_t *bytes = ledger_content(i == 0 ? id : other, &size);
        found = size == len && memcmp(bytes, data, len) == 0;
        free(bytes);
    }
    if (!found)
        rig_break("allocation %lu: '%s' holds other bytes (%zu)", run->turn, path, len);
    free(data);
}

static bool
is_there(struct run *run, const char *name)
{
    struct volume_attr attr;
    struct err err = ERR_INIT;
    return volume_lookup(run->service, &run->ctx,
                         &(struct volume_name){ run->root.node, name, strlen(name) }, &attr,
                         &err) == 0;
}

/* One round with the n-th allocation failing; 0: none. */
static void
one_round(struct run *run, unsigned long n)
{
    struct volume_name from = { .parent = run->root.node, .name = "fresh", .len = 5 };
    struct volume_name to = { .parent = run->root.node, .name = "moved", .len = 5 };
    struct err err = ERR_INIT;
    unsigned seen = 0;
    uint32_t id = LEDGER_FIRST + (uint32_t)++run->turn * 2;
    struct content fresh = make_content(id), kept = make_content(id + 1);
    alloc_fail_at(n);
    bool saved = save(run, "fresh", &fresh);
    bool done = commit(run, "dir/kept", &kept);
    bool listed =
        volume_list(run->service, &run->ctx,
                    &(struct volume_page){ .dir = run->root.node, .after = 0, .limit = 100 },
                    see_entry, &seen, &err) == 0;
    bool moved = saved && volume_rename(run->service, &run->ctx, &from, &to, 0, &err) == 0;
    run->used = alloc_count();
    alloc_reset();
    free(fresh.bytes);
    free(kept.bytes);
    run->failed += n > 0 && !(saved && done && listed && moved);
    run->closed += saved;
    if (n == 0 && !(saved && done && listed && moved))
        rig_die("a round without failures fails: %s", err.msg);
    if (done)
        run->committed = id + 1;
    else
        run->tried = id + 1;
    if (moved)
        check(run, "moved", id, id);
    else if (saved) /* the rename's answer was an error: it is under one of the names */
        check(run, is_there(run, "fresh") ? "fresh" : "moved", id, id);
    check(run, "dir/kept", run->committed, run->tried);
}

static void
check_end(struct run *run)
{
    struct volume_barrier barrier;
    struct tree volume = { 0 }, bucket = { 0 };
    struct err err = ERR_INIT;
    if (volume_flush(run->service, 0, clock_mono_ns() + 60 * NS_PER_S, &barrier, &err) != 0)
        rig_break("the barrier fails: %s", err.msg);
    else if (tree_of_volume(run->service, run->volume, &volume, &err) != 0 ||
             tree_of_bucket(run->bottom, "v/", &bucket, &err) != 0)
        rig_break("cannot read everything: %s", err.msg);
    else
        (void)tree_compare(&volume, &bucket, "at the end");
    tree_release(&volume);
    tree_release(&bucket);
}

/* Two rounds without failures: what they need. */
static unsigned long
count_round(struct run *run)
{
    one_round(run, 0);
    one_round(run, 0);
    return run->used + run->used / 4;
}

/* Opening: an error each time, and the next attempt goes well. */
static void
fail_opens(struct run *run, unsigned long every)
{
    unsigned long refused = 0;
    for (unsigned long n = 1; n < 400 && rig_broken() == 0; n += every) {
        struct err err = ERR_INIT;
        struct store *store = rig_borrow(run->bottom);
        alloc_fail_at(n);
        struct volume_service *service = rig_open(run->rig.state, store, &err);
        alloc_reset();
        if (service == NULL && err.code != ERR_NOMEM)
            rig_break("opening, allocation %lu: %s", n, err.msg);
        refused += service == NULL;
        rig_close(service);
    }
    printf("%lu openings refused\n", refused);
}

int
main(int argc, char **argv)
{
    static struct run run;
    struct err err = ERR_INIT;
    if (log_configure("off", &err) != 0 && log_configure("error", &err) != 0)
        rig_die("%s", err.msg);
    rig_make(&run.rig);
    run.bottom = mem_store_open(&err);
    run.service = run.bottom == NULL ? NULL : rig_open(run.rig.state, rig_borrow(run.bottom), &err);
    if (run.service == NULL)
        rig_die("cannot begin: %s", err.msg);
    run.ctx = rig_ctx(1);
    run.volume = rig_volume(run.service, "v");
    if (volume_resolve(run.service, &run.ctx, run.volume, "", &run.root, &err) != 0)
        rig_die("no root: %s", err.msg);
    unsigned long total = count_round(&run);
    unsigned long every =
        crash_option(argc, argv, "--every", crash_long(argc, argv) ? 1 : total / POINTS + 1);
    unsigned long points = 0;
    for (unsigned long n = 1; n <= total && rig_broken() == 0; n += every, points++)
        one_round(&run, n);
    check_end(&run);
    rig_close(run.service);
    fail_opens(&run, crash_long(argc, argv) ? 1 : 7);
    printf("%lu allocations, %lu failed in turn, %lu rounds noticed, %lu files closed, %u broken\n",
           total, points, run.failed, run.closed, rig_broken());
    store_free(run.bottom);
    rig_remove(&run.rig);
    return rig_broken() == 0 ? 0 : 1;
}
