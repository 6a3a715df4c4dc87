#ifndef MOUNT_SESSION_H
#define MOUNT_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "mount/carry.h"
#include "mount/event_log.h"
#include "mount/mount.h"
#include "mount/mounter.h"
#include "mount/park.h"
#include "mount/session_record.h"
#include "volume/volume.h"

/*
 * One FUSE connection: libfuse's low-level session on a descriptor of /dev/fuse, our loop threads, its open files. Counted:
 * parked requests and the notifier keep it alive.
 */
struct session;
struct lender;
struct past_cache;

/* What is mounted is the volume as it was, and only that. */
struct session_past {
    int64_t at_ns;
    const char *name; /* of the snapshot */
    const char *path; /* of the folder, then */
};

struct session_args {
    struct volume_service *volumes;
    struct park *park;        /* shared by all mounts */
    struct event_log *events; /* likewise; NULL: `.holdfast/events` tells nothing */
    struct past_cache *pasts; /* likewise; NULL: `.holdfast/at` has none */
    struct lender *lender;    /* NULL: no passthrough */
    int64_t id;               /* connection number = mount id */
    int64_t volume;
    int64_t root;        /* the mounted folder's node */
    int64_t volume_root; /* the volume's root node: there `.holdfast` is reserved */
    const char *volume_name;
    const char *prefix; /* of keys, for user.holdfast.key */
    const char *run;
    const struct session_past *past; /* NULL: the volume as it is */
    bool read_only;
    unsigned threads;
    int64_t deadline_ns; /* time that a request may take */
    /* The kernel ended the connection (unmounted or aborted); called once by a loop thread without locks. */
    void (*ended)(void *arg);
    void *ended_arg;
    struct carry *carry; /* taken by session_new(), also on failure; NULL: nobody will take over */
};

struct session *session_new(const struct session_args *args, struct err *err) MUST_CHECK;
/* Serves a descriptor that the mounter made (taken, also on failure). */
int session_start(struct session *session, int fuse, struct err *err) MUST_CHECK;
/* Serves a connection that an earlier gateway negotiated, as it has (`fuse` is taken, also on failure): its INIT is replayed, and
 * the kernel sends again what was not answered. That gateway must be dead. */
int session_adopt(struct session *session, int fuse, const struct session_record *record,
                  struct err *err) MUST_CHECK;
/* Whether this build's libfuse can. */
bool session_can_adopt(void);
/* Before session_adopt(): opens again what programs have open. `lent`: the ids that the kernel has. */
void session_reopen_files(struct session *session, const struct mounter_backing *lent,
                          size_t count);
/* Mounts at `path` through libfuse itself (fusermount3 when not root) and serves it. */
int session_start_user(struct session *session, const char *path, struct err *err) MUST_CHECK;
/* The counterpart of session_start_user(). ERR_BUSY unless `detach`. */
int session_unmount_user(struct session *session, bool detach, struct err *err) MUST_CHECK;
/* Waits for the end of the connection, at most until `deadline_ns` (mono). */
bool session_wait_end(struct session *session, int64_t deadline_ns);
bool session_ended(struct session *session);
/* fusermount3 -u, for a mount of this user's earlier life. */
int session_fusermount(const char *path, bool detach, struct err *err) MUST_CHECK;
/* After the end: closes what programs had open. A request that is still running keeps its file until it is done. */
void session_close_files(struct session *session);
struct session *session_ref(struct session *session);
/* The last one joins the loop threads, which must have ended, and closes everything. NULL is fine. */
void session_unref(struct session *session);

int64_t session_id(const struct session *session);
int64_t session_volume(const struct session *session);
/* When the mount's lease ends (wall, 0: never), for `.holdfast/status`. */
void session_set_lease(struct session *session, int64_t end_ns);
uint64_t session_requests(struct session *session);
uint64_t session_parked(struct session *session);
/* What a takeover needs, once INIT came; false before. The index's uuid is the caller's to add. */
bool session_record(struct session *session, struct session_record *out);
/* Answers are recorded in slots from here on; those of earlier gateways lie below or above (docs/adr/0007). */
uint32_t session_first_slot(const struct session *session);
/* Adds to what is there. */
void session_count_takeovers(struct session *session, struct mount_takeovers *sum);

/* Whether files can be opened in passthrough; else why not. */
bool session_passthrough(struct session *session, char *why, size_t size);
/* For lender.c: content files that were removed (`all`: and others); ids to be closed, and that they are. */
void session_backing_gone(struct session *session, const int64_t *contents, size_t count, bool all);
size_t session_backing_dead(struct session *session, int32_t *out, size_t max);
void session_backing_closed(struct session *session, size_t count);

/* Tell the kernel to forget (never call these with a lock held or from inside a request, INV-8). False: it knows no such
 * node, or name. A name that is being looked up meanwhile is waited for, and forgotten then. */
bool session_forget_node(struct session *session, int64_t node, bool data);
bool session_forget_name(struct session *session, int64_t parent, const char *name);
/* The name is gone for good: who watches the file itself (inotify) hears of it. */
bool session_forget_removed(struct session *session, int64_t parent, int64_t node,
                            const char *name);
/* No name is believed without asking any more; false: this kernel cannot (before Linux 6.16). */
bool session_forget_all(struct session *session);

#endif
