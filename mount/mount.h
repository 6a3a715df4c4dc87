#ifndef MOUNT_MOUNT_H
#define MOUNT_MOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "volume/volume.h"

/*
 * Mounts of volumes: a table of FUSE sessions, their rows in the index, their leases, and the privileged helper
 * `holdfast-mounter` that makes and removes them (docs/design.md section 8). Thread safe; every call may block.
 *
 * A gateway that dies leaves its connections with the helper; the next one serves them, and programs have only waited
 * (docs/adr/0007).
 *
 * Without a mounter (started by an ordinary user) mounts are made by libfuse through fusermount3: then only this user
 * sees them (no allow_other), a dead gateway leaves a mount that answers ENOTCONN until the next start clears it,
 * default mountpoints lie in STATE/mnt, and an unmounted mountpoint is guarded by its mode 000 only where we made it.
 */
struct mount_service;

/* Starts the helper; root only. The caller drops its privilege afterwards. `*socket_out` and `*pid_out` go to
 * mount_service_open(). ERR_PERM when not root. Call it before any thread exists. */
struct mounter_spawn {
    const char *exe_path;
    const char *
        default_parent; /* NULL: "/mnt/data"; the one directory under which the helper makes mountpoints by itself; made when
                                   it is missing */
    int listen; /* a listening SOCK_SEQPACKET socket for the gateways that come later (stays the caller's); -1: none */
    unsigned
        wait_s; /* how long programs may wait for the next gateway when this one dies; 0: not at all */
    uid_t owner; /* of the gateways that come later; root may come too */
};
int mounter_spawn(const struct mounter_spawn *args, int *socket_out, pid_t *pid_out,
                  struct err *err) MUST_CHECK;
/* Finds the helper of a gateway that died. ERR_NOT_FOUND: there is none; ERR_BUSY: a living gateway is served at `until_ns` (mono)
 * still; ERR_INTERNAL: it is of another version. */
int mounter_connect(const char *path, int64_t until_ns, int *socket_out,
                    struct err *err) MUST_CHECK;

/* What a gateway that died has left with the helper: living connections and what programs have open in them. */
struct mount_carried;
/* `socket` stays the caller's. NULL only on error; ERR_INTERNAL: the helper does not answer. */
struct mount_carried *mount_carried_load(int socket, struct err *err) MUST_CHECK;
/* For volume_service_open(); valid until mount_service_open(). */
const struct volume_carried *mount_carried_opens(const struct mount_carried *carried);
/* NULL is fine. The connections stay with the helper. */
void mount_carried_free(struct mount_carried *carried);

/* Takeovers of the mounts that are there now. */
#define MOUNT_OPCODES 64u
struct mount_takeovers {
    uint64_t count;
    uint64_t met;                                            /* that met a request under way */
    uint64_t resent[MOUNT_OPCODES], replayed[MOUNT_OPCODES]; /* by FUSE opcode; 0: all others */
};

struct mount_service_args {
    struct volume_service *volumes; /* must outlive the mount service */
    int mounter;                    /* taken, also on failure; -1: mount through fusermount3 */
    pid_t mounter_pid;              /* reaped at close; 0: none */
    struct mount_carried *carried;  /* taken, also on failure; NULL: none */
    const char *state_dir;          /* STATE/mnt/ID are the mountpoints of `run` */
    const char *default_parent;     /* NULL: "/mnt/data" */
    unsigned threads;               /* FUSE threads of each mount; 0: 2 x cores, at most 10 */
    unsigned meta_threads;          /* answer parked requests of the index and the disk; 0: 4 */
    unsigned store_threads;         /* answer parked requests that wait for the store; 0: 16 */
    int64_t request_deadline_ns;    /* a parked request is answered (EIO) by then; 0: 30 s */
};

/* Registers its watch, so: before volume_service_start(). Nothing is mounted yet. */
struct mount_service *mount_service_open(const struct mount_service_args *args,
                                         struct err *err) MUST_CHECK;
/* Before volume_service_start(): opens again what programs have open in living connections; they are not served yet. */
void mount_service_adopt(struct mount_service *service);
/* After volume_service_start(): serves the living connections, mounts what was mounted without an expiry when the last daemon ended, and clears dead
 * mounts of the others. One that cannot come back is logged, kept as failed in mount_each(), and is no error. */
int mount_service_restore(struct mount_service *service, struct err *err) MUST_CHECK;
/* Unmounts all (detached, then aborted at `deadline_ns` (mono)), stops the threads and the helper. The rows stay, so that
 * the next start restores them. Call it before volume_service_close(). NULL is fine. */
void mount_service_close(struct mount_service *service, int64_t deadline_ns);

/* Sums up; `*why` says in words why a gateway that dies now would not be replaced under running programs, "" when it would. */
void mount_service_takeovers(struct mount_service *service, struct mount_takeovers *out,
                             const char **why);
/* The same of this build and kernel alone. */
const char *mount_takeover_obstacle(void);
/* How the kernel calls a request, "OTHER" for what has no name here. */
const char *mount_opcode_name(unsigned opcode);

enum mount_state { MOUNT_STARTING, MOUNT_ACTIVE, MOUNT_ENDING, MOUNT_FAILED };
const char *mount_state_name(enum mount_state state);

#define MOUNT_LEASE_MIN_NS (60ll * 1000000000ll)
#define MOUNT_LEASE_MAX_NS (1440ll * 60ll * 1000000000ll)

struct mount_args {
    int64_t volume;
    const char *folder;   /* inside the volume, normal form; NULL or "": all of it */
    const char *snapshot; /* the volume as it was then, read-only; NULL: as it is */
    const char *
        path; /* absolute; an existing empty directory. NULL: default_parent/N, N the first free from 1 */
    bool private_path; /* with `path` NULL: STATE/mnt/ID, for `run` */
    bool read_only;    /* INV-14: of the connection; also when the volume is read-only */
    bool transient;    /* never restored by a later daemon (`run`) */
    const char *run;   /* NULL: none */
    int64_t lease_ns;  /* 0: until unmounted */
};

struct mount_info {
    int64_t id;
    int64_t volume;
    char volume_name[LIMIT_VOLUME_NAME + 1];
    char folder[LIMIT_PATH + 1];
    char snapshot[LIMIT_VOLUME_NAME + 1]; /* "": none */
    char path[LIMIT_PATH + 1];
    char run[64];
    bool read_only;
    enum mount_state state;
    int64_t lease_ns;
    int64_t expires_ns;            /* wall, 0: never */
    uint32_t dev_minor;            /* also the number in /sys/fs/fuse/connections */
    uint64_t requests;             /* answered so far */
    uint64_t parked;               /* waiting now */
    bool passthrough;              /* local files are read and written by the kernel itself */
    char plain_why[LIMIT_ERR_MSG]; /* why not */
    char error[LIMIT_ERR_MSG];     /* of a failed one */
};
typedef int mount_info_fn(void *arg, const struct mount_info *info, struct err *err);

/* Comes back when a stat through the mount has seen it. ERR_NOT_DIR: the path is no directory; ERR_NOT_EMPTY; ERR_BUSY: a
 * mount is there already; ERR_NOT_FOUND: no such volume, folder or path; ERR_DENIED. On failure nothing is left behind. */
int mount_add(struct mount_service *service, const struct mount_args *args, struct mount_info *out,
              struct err *err) MUST_CHECK;

struct mount_remove_args {
    bool force;          /* unmount although in use or not synced: detach, then abort */
    bool no_flush;       /* the caller had its barrier */
    int64_t deadline_ns; /* mono, of the barrier; 0: 30 s from now */
};
/* The barrier, then the unmount. ERR_NOT_SYNCED: still mounted; ERR_BUSY names processes that use it: still mounted.
 * Conflicts do not stop it; `barrier` (may be NULL) counts them. */
int mount_remove(struct mount_service *service, int64_t id, const struct mount_remove_args *args,
                 struct volume_barrier *barrier, struct err *err) MUST_CHECK;

/* In order of id. The callback runs without locks on copies. */
int mount_each(struct mount_service *service, mount_info_fn *fn, void *arg,
               struct err *err) MUST_CHECK;
int mount_find(struct mount_service *service, int64_t id, struct mount_info *out,
               struct err *err) MUST_CHECK;
int mount_find_by_path(struct mount_service *service, const char *path, struct mount_info *out,
                       struct err *err) MUST_CHECK;
/* A new end `lease_ns` from now; 0 takes the lease off. */
int mount_renew(struct mount_service *service, int64_t id, int64_t lease_ns, struct mount_info *out,
                struct err *err) MUST_CHECK;

#endif
