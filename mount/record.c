#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "mount/service_impl.h"

static int
put_row(struct index_tx *tx, void *arg, struct err *err)
{
    return index_mount_put(tx, arg, err);
}

/* No folder begins with a slash: "/@NAME/FOLDER" is one of a snapshot. */
static int
record_folder(const struct mount_info *info, char *out, size_t size, struct err *err)
{
    int len = info->snapshot[0] != '\0'
                  ? snprintf(out, size, "/@%s/%s", info->snapshot, info->folder)
                  : snprintf(out, size, "%s", info->folder);
    /* Cut short it would be another folder when the mount comes back. */
    return len >= 0 && (size_t)len < size
               ? 0
               : err_set(err, ERR_NAME_TOO_LONG, "the folder's path is too long for a snapshot");
}

void
record_read_folder(const char *folder, struct mount_info *info)
{
    bool past = strncmp(folder, "/@", 2) == 0;
    size_t len = past ? strcspn(folder + 2, "/") : 0;
    const char *rest = past ? folder + 2 + len : folder;
    (void)snprintf(info->snapshot, sizeof(info->snapshot), "%.*s", (int)len,
                   past ? folder + 2 : "");
    (void)snprintf(info->folder, sizeof(info->folder), "%s", rest + (past && *rest == '/'));
}

int
record_put(struct entry *entry, struct err *err)
{
    const struct mount_info *info = &entry->info;
    struct index_mount *row = calloc(1, sizeof(*row));
    if (!row)
        return err_nomem(err);
    row->id = info->id;
    row->volume = info->volume;
    row->read_only = info->read_only;
    row->lease_ns = info->lease_ns;
    /* "Expired long ago" is how a row says that no later daemon brings it back. */
    row->expires_ns = entry->transient && info->expires_ns == 0 ? 1 : info->expires_ns;
    if (record_folder(info, row->folder, sizeof(row->folder), err) != 0) {
        free(row);
        return -1;
    }
    (void)snprintf(row->path, sizeof(row->path), "%s", info->path);
    (void)snprintf(row->run, sizeof(row->run), "%s", info->run);
    int done = index_write(volume_service_index(entry->service->args.volumes), INDEX_NORMAL,
                           put_row, row, err);
    if (done == 0)
        entry->info.id = row->id;
    free(row);
    return done;
}

static int
delete_row(struct index_tx *tx, void *arg, struct err *err)
{
    const int64_t *id = arg;
    return index_mount_delete(tx, *id, err);
}

int
record_delete(struct mount_service *service, int64_t id, struct err *err)
{
    return index_write(volume_service_index(service->args.volumes), INDEX_NORMAL, delete_row, &id,
                       err);
}

static int
collect(void *arg, const struct index_mount *row, struct err *err)
{
    struct record_list *list = arg;
    if (list->count == list->max) {
        size_t max = list->max == 0 ? 16 : list->max * 2;
        struct index_mount *rows = realloc(list->rows, max * sizeof(*rows));
        if (!rows)
            return err_nomem(err);
        list->rows = rows;
        list->max = max;
    }
    list->rows[list->count++] = *row;
    return 0;
}

static int
collect_all(struct index_tx *tx, void *arg, struct err *err)
{
    return index_mount_each(tx, collect, arg, err);
}

int
record_load(struct mount_service *service, struct record_list *out, struct err *err)
{
    memset(out, 0, sizeof(*out));
    return index_read(volume_service_index(service->args.volumes), collect_all, out, err);
}

struct wanted {
    int64_t id;
    struct volume_info *out;
    bool found;
};

static int
match_volume(void *arg, const struct volume_info *info, struct err *err)
{
    struct wanted *wanted = arg;
    (void)err;
    if (info->id == wanted->id) {
        *wanted->out = *info;
        wanted->found = true;
    }
    return 0;
}

int
record_find_volume(struct volume_service *volumes, int64_t id, struct volume_info *out,
                   struct err *err)
{
    struct wanted wanted = { .id = id, .out = out };
    if (volume_each(volumes, match_volume, &wanted, err) < 0)
        return -1;
    return wanted.found ? 0 : err_set(err, ERR_NOT_FOUND, "no volume with id %lld", (long long)id);
}
