#include "volume/fsck_impl.h"

#include "base/log.h"
#include "base/scope.h"

/* The order of fsck, and how a finding is told and mended. */

void
fsck_progress(const struct fsck *fsck, const char *what, uint64_t done)
{
    if (fsck->args->progress != NULL)
        fsck->args->progress(fsck->args->progress_arg, what, done);
}

int
fsck_go_on(const struct fsck *fsck, struct err *err)
{
    if (atomic_load(&fsck->service->stopping))
        return err_set(err, ERR_STORE_AWAY, "the gateway is stopping");
    return 0;
}

const struct index_volume *
fsck_volume(const struct fsck *fsck, const char *name, size_t len)
{
    for (size_t i = 0; i < fsck->volume_count; i++) {
        const struct index_volume *volume = &fsck->volume[i];
        if (strlen(volume->name) == len && memcmp(volume->name, name, len) == 0)
            return volume;
    }
    return NULL;
}

int /* NOLINTNEXTLINE(readability-function-size) */
fsck_tell(struct fsck *fsck, const struct fsck_fault *fault, const char *volume, const char *where,
          void *arg, struct err *err)
{
    struct err why = ERR_INIT;
    struct volume_finding finding = { .code = fault->code,
                                      .volume = volume != NULL ? volume : "",
                                      .where = where,
                                      .what = fault->what,
                                      .repair = fault->repair,
                                      .failed = "" };
    fsck->out->findings++;
    if (fsck->args->repair && fault->mend != NULL) {
        finding.repaired = fault->mend(fsck, arg, &why) == 0;
        finding.failed = finding.repaired ? "" : why.msg;
        fsck->out->repaired += finding.repaired;
    }
    log_info(volume, "fsck: %s%s at '%s'", fault->code, finding.repaired ? " (repaired)" : "",
             where);
    return fsck->args->fn(fsck->args->arg, &finding, err);
}

static int
add_volume(void *arg, const struct index_volume *row, struct err *err)
{
    struct fsck *fsck = arg;
    if (fsck->volume_count == fsck->volume_cap) {
        size_t cap = fsck->volume_cap == 0 ? 16 : fsck->volume_cap * 2;
        struct index_volume *grown = reallocarray(fsck->volume, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        fsck->volume = grown;
        fsck->volume_cap = cap;
    }
    fsck->volume[fsck->volume_count++] = *row;
    return 0;
}

static int
volumes_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_volume_each(tx, add_volume, arg, err);
}

static int
check_volume(struct fsck *fsck, const struct index_volume *volume, struct err *err)
{
    if (fsck_objects(fsck, volume, err) != 0 || fsck_tree(fsck, volume, err) != 0)
        return -1;
    return fsck->args->full ? fsck_bytes(fsck, volume, err) : 0;
}

static int
check_all(struct fsck *fsck, struct err *err)
{
    for (size_t i = 0; i < fsck->volume_count; i++) {
        const struct index_volume *volume = &fsck->volume[i];
        if (fsck->args->volume != 0 && volume->id != fsck->args->volume)
            continue;
        if (check_volume(fsck, volume, err) != 0)
            return -1;
    }
    if (fsck_own(fsck, err) != 0 || fsck_history(fsck, err) != 0 || fsck_snapshots(fsck, err) != 0)
        return -1;
    return fsck->args->volume == 0 ? fsck_cache(fsck, err) : 0;
}

int
volume_fsck(struct volume_service *service, const struct volume_fsck_args *args,
            struct volume_fsck_report *out, struct err *err)
{
    struct fsck fsck = { .service = service, .args = args, .out = out };
    struct store_counters before, after;
    int64_t began = clock_mono_ns();
    memset(out, 0, sizeof(*out));
    store_counters(service->store, &before);
    int rc = index_read(service->index, volumes_tx, &fsck, err);
    if (rc == 0)
        rc = check_all(&fsck, err);
    free(fsck.volume);
    store_counters(service->store, &after);
    out->lists = after.lists - before.lists;
    out->heads = after.heads - before.heads;
    out->gets = after.gets - before.gets;
    out->took_ns = clock_mono_ns() - began;
    sync_kick(service);
    return rc;
}
