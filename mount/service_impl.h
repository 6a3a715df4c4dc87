#ifndef MOUNT_SERVICE_IMPL_H
#define MOUNT_SERVICE_IMPL_H

#include <pthread.h>

#include "mount/lender.h"
#include "mount/mount.h"
#include "mount/mounter.h"
#include "mount/notify.h"
#include "mount/park.h"
#include "mount/past_cache.h"
#include "mount/session.h"

/* One mount. `busy` is the right to change it, taken under the service's mutex and kept while calls block without it. */
struct entry {
    struct entry *next; /* by rising id */
    struct mount_service *service;
    struct mount_info info;
    int64_t expires_boot_ns; /* CLOCK_BOOTTIME, 0: never */
    int64_t settled_ns;      /* mono: what was sent again has been answered by then; 0: done */
    struct session *session; /* NULL: starting or failed */
    bool busy;
    bool transient;
    bool own_path; /* STATE/mnt/ID: made and removed by us */
    bool gone;     /* the kernel ended the connection */
};

struct mount_service {
    struct mount_service_args args;
    char *state_dir;
    char *default_parent;
    struct mounter *mounter; /* NULL: fusermount3 */
    struct park *park;
    struct notifier *notifier;
    struct event_log *events;
    struct past_cache *pasts;
    struct watch *watch;
    struct lender *lender; /* NULL: no mounter, so no passthrough */
    pthread_mutex_t
        mutex; /* entries and their fields; taken before a session's mutex, never held over a blocking call */
    pthread_cond_t changed;
    struct entry *entries;
    pthread_t keeper;
    bool keeper_runs;
    bool closing;
};

enum attach_where {
    ATTACH_AT_PATH,   /* info.path, which has to exist */
    ATTACH_AT_NUMBER, /* default_parent/N; without a mounter as ATTACH_IN_STATE */
    ATTACH_IN_STATE,  /* STATE/mnt/ID */
};

/* attach.c: the steps between "wanted" and "mounted", and back. They need `busy`. */
int attach_mount(struct entry *entry, const struct volume_info *volume, enum attach_where where,
                 struct err *err) MUST_CHECK;
/* A session that is not started yet; `carry` as in session_args. */
struct session *attach_session(struct entry *entry, const struct volume_info *volume, int64_t root,
                               struct carry *carry, struct err *err) MUST_CHECK;
/* ERR_BUSY names the users. `keep_guard`: the mountpoint stays guarded for the next start. */
int attach_unmount(struct entry *entry, bool detach, bool keep_guard, struct err *err) MUST_CHECK;
/* After the unmount: waits for the end until `deadline_ns`, aborts, closes the files, forgets. */
void attach_finish(struct entry *entry, int64_t deadline_ns);
/* Takes a dead mount, and unless `keep_guard` a guard, of an earlier life away from `path`. */
void attach_clear(struct mount_service *service, const char *path, bool keep_guard);
bool attach_is_own_path(const struct mount_service *service, const char *path);

/* restore.c: a table entry from a row, not in the table yet; NULL without memory. */
struct entry *restore_entry(struct mount_service *service, const struct index_mount *row);

/* adopt.c: the first part of mount_service_restore(). Connections that nobody can take over are ended. */
void adopt_serve_all(struct mount_service *service);
int adopt_index_uuid(struct mount_service *service, char out[SESSION_UUID_SIZE],
                     struct err *err) MUST_CHECK;

/* record.c: rows in the index. */
int record_put(struct entry *entry, struct err *err) MUST_CHECK;
/* What a row's folder says: of which snapshot, and the folder in it. */
void record_read_folder(const char *folder,
                        struct mount_info *info); /* sets info.id when it is 0 */
int record_delete(struct mount_service *service, int64_t id, struct err *err) MUST_CHECK;
struct record_list {
    struct index_mount *rows;
    size_t count, max;
};
/* All rows; the caller frees `rows`. */
int record_load(struct mount_service *service, struct record_list *out, struct err *err) MUST_CHECK;
int record_find_volume(struct volume_service *volumes, int64_t id, struct volume_info *out,
                       struct err *err) MUST_CHECK;

/* mount.c: the table, for the other files of the service. */
void mount_insert_locked(struct mount_service *service, struct entry *entry);
/* Takes the entry out and frees it. */
void mount_drop(struct entry *entry);
void mount_set_state(struct entry *entry, enum mount_state state, bool busy);
/* The entry that only the caller works on, or NULL. */
struct entry *mount_find_entry(struct mount_service *service, int64_t id);
/* The right to change a mount, or NULL: ERR_NOT_FOUND, ERR_BUSY. Given back by mount_set_state() or mount_drop(). */
struct entry *mount_take(struct mount_service *service, int64_t id, struct err *err);
/* From a row and a table entry to an active mount. */
int mount_bring_up(struct entry *entry, const struct volume_info *volume, enum attach_where where,
                   struct err *err) MUST_CHECK;
/* After the unmount: ends the connection, deletes the row, drops the entry. */
void mount_take_down(struct entry *entry, bool forced);

/* keeper.c; the argument is the service, the result NULL. */
void *keeper_main(void *arg);

#define DEFAULT_DEADLINE_NS (30 * NS_PER_S)

#endif
