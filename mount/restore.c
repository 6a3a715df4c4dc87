/* What was mounted when the last daemon ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "mount/service_impl.h"

static void
forget_row(struct mount_service *service, const struct index_mount *row)
{
    struct err err = ERR_INIT;
    attach_clear(service, row->path, false);
    if (attach_is_own_path(service, row->path))
        (void)rmdir(row->path);
    volume_connection_gone(service->args.volumes, row->id);
    if (record_delete(service, row->id, &err) < 0)
        log_warn(mount, "an old mount's row stays id=%lld error=\"%s\"", (long long)row->id,
                 err.msg);
}

static void
restore_lease(struct entry *entry, const struct index_mount *row)
{
    entry->transient = row->expires_ns == 1; /* record.c */
    entry->info.lease_ns = row->lease_ns;
    entry->info.expires_ns = entry->transient ? 0 : row->expires_ns;
    if (entry->info.expires_ns != 0)
        entry->expires_boot_ns = clock_boot_ns() + row->expires_ns - clock_wall_ns();
    if (entry->expires_boot_ns < 0)
        entry->expires_boot_ns = 1;
}

struct entry *
restore_entry(struct mount_service *service, const struct index_mount *row)
{
    struct entry *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return NULL;
    entry->service = service;
    entry->busy = true;
    entry->info.id = row->id;
    entry->info.volume = row->volume;
    entry->info.read_only = row->read_only;
    restore_lease(entry, row);
    record_read_folder(row->folder, &entry->info);
    (void)snprintf(entry->info.path, sizeof(entry->info.path), "%s", row->path);
    (void)snprintf(entry->info.run, sizeof(entry->info.run), "%s", row->run);
    return entry;
}

static void
restore_row(struct mount_service *service, const struct index_mount *row)
{
    struct err err = ERR_INIT;
    struct volume_info volume;
    struct entry *entry = restore_entry(service, row);
    if (!entry)
        return;
    volume_connection_gone(service->args.volumes, row->id);
    pthread_mutex_lock(&service->mutex);
    mount_insert_locked(service, entry);
    pthread_mutex_unlock(&service->mutex);
    size_t parent = strlen(service->default_parent);
    enum attach_where where = ATTACH_AT_PATH;
    if (attach_is_own_path(service, row->path))
        where = ATTACH_IN_STATE;
    else if (strncmp(row->path, service->default_parent, parent) == 0 && row->path[parent] == '/' &&
             service->mounter)
        where = ATTACH_AT_NUMBER;
    int done = record_find_volume(service->args.volumes, row->volume, &volume, &err);
    if (done == 0) {
        (void)snprintf(entry->info.volume_name, sizeof(entry->info.volume_name), "%s", volume.name);
        done = mount_bring_up(entry, &volume, where, &err);
    }
    if (done == 0) {
        log_info(mount, "mounted again id=%lld path=%s", (long long)row->id, entry->info.path);
        return;
    }
    log_error(mount, "cannot mount again id=%lld path=%s error=\"%s\"", (long long)row->id,
              row->path, err.msg);
    (void)snprintf(entry->info.error, sizeof(entry->info.error), "%s", err.msg);
    mount_set_state(entry, MOUNT_FAILED, false);
}

int
mount_service_restore(struct mount_service *service, struct err *err)
{
    struct record_list list;
    adopt_serve_all(service);
    int done = record_load(service, &list, err);
    for (size_t i = 0; done == 0 && i < list.count; i++) {
        if (list.rows[i].expires_ns != 0 && !mount_find_entry(service, list.rows[i].id))
            forget_row(service, &list.rows[i]);
    }
    for (size_t i = 0; done == 0 && i < list.count; i++) {
        if (list.rows[i].expires_ns == 0 && !mount_find_entry(service, list.rows[i].id))
            restore_row(service, &list.rows[i]);
    }
    free(list.rows);
    return done;
}
