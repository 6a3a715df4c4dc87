#include "base/log.h"
#include "base/scope.h"
#include "volume/found_impl.h"
#include "volume/rebuild_impl.h"

/*
 * A state directory without an index behind a store that has volumes: a second gateway of one bucket, a new machine, or an index
 * that was lost. The volumes and the kept conflicts are taken from the bucket; folders are listed when somebody looks, as with
 * objects of others, so the size of the bucket does not matter. Where staged files tell that an index was lost, only
 * `holdfast rebuild` can bring them back under their names, and the start says so.
 */

struct staged_count {
    unsigned count;
};

static int
count_staged(void *arg, int64_t number, uint64_t disk_bytes, bool has_meta, bool has_map,
             struct err *err)
{
    struct staged_count *staged = arg;
    (void)number;
    (void)disk_bytes;
    (void)has_map;
    (void)err;
    staged->count += has_meta;
    return 0;
}

int
found_check(struct volume_service *service, struct err *err)
{
    struct staged_count staged = { 0 };
    if (cache_scan(service->cache, count_staged, &staged, err) != 0)
        return -1;
    if (staged.count == 0)
        return 0;
    return err_set(err, ERR_CORRUPT,
                   "the index of '%s' is gone, but %u files in its cache may not be in the bucket "
                   "yet: run 'holdfast rebuild' with this --state and --store, then start again",
                   service->state_dir, staged.count);
}

static int
add_found(void *arg, const struct index_volume *row, struct err *err)
{
    struct rebuild *rebuild = arg;
    struct index_volume *grown =
        reallocarray(rebuild->volume, rebuild->volume_count + 1, sizeof(*grown));
    if (grown == NULL)
        return err_nomem(err);
    rebuild->volume = grown;
    rebuild->volume[rebuild->volume_count++] = *row;
    return 0;
}

static int
remember_names(struct volume_service *service, const struct rebuild *rebuild, struct err *err)
{
    if (rebuild->volume_count == 0)
        return 0;
    service->found = calloc(rebuild->volume_count, sizeof(*service->found));
    if (service->found == NULL)
        return err_nomem(err);
    for (size_t i = 0; i < rebuild->volume_count; i++) {
        text_set(service->found[i], rebuild->volume[i].name);
        log_info(volume, "found volume '%s' in the bucket", rebuild->volume[i].name);
    }
    service->found_count = rebuild->volume_count;
    return 0;
}

int
found_take(struct volume_service *service, struct err *err)
{
    struct volume_rebuild_args args = { .state_dir = service->state_dir, .store = service->store };
    struct volume_rebuild_report report = { 0 };
    struct rebuild rebuild = {
        .args = &args, .out = &report, .store = service->store, .index = service->index
    };
    struct rebuild_find find = { .store = service->store,
                                 .index = service->index,
                                 .fn = add_found,
                                 .arg = &rebuild,
                                 .left_out = report.left_out };
    int rc = rebuild_volumes(&find, err);
    if (rc == 0 && rebuild.volume_count > 0)
        rc = rebuild_conflicts(&rebuild, err);
    if (rc == 0)
        rc = remember_names(service, &rebuild, err);
    free(rebuild.volume);
    return rc;
}

bool
found_is(const struct volume_service *service, const char *name)
{
    for (size_t i = 0; i < service->found_count; i++)
        if (strcmp(service->found[i], name) == 0)
            return true;
    return false;
}

void
found_made(struct volume_service *service, const char *name)
{
    for (size_t i = 0; i < service->found_count; i++)
        if (strcmp(service->found[i], name) == 0)
            service->found[i][0] = '\0';
}
