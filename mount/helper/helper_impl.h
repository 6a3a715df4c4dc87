#ifndef MOUNT_HELPER_HELPER_IMPL_H
#define MOUNT_HELPER_HELPER_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "mount/helper_proto.h"

/*
 * holdfast-mounter: the only process with CAP_SYS_ADMIN. One thread, libc only, messages of fixed size; it reads nothing that
 * a stranger wrote. Functions answer 0 or an errno, and name the failing step in `*what`.
 */

/* A directory to mount on, named twice: by descriptors, which count, and by a name for umount2(). */
struct target {
    int parent; /* O_PATH */
    int dir;    /* O_PATH; what lies on top at `name` */
    char name[256];
    bool created; /* by us: goes away with the mount */
    bool guarded; /* the read-only bind of INV-11 lies on it */
};

/* A file that the kernel may use in place of a node's. */
struct backing {
    int64_t node, content;
    int32_t id;
};

struct connection {
    int64_t id;
    int fuse; /* -1: given up */
    uint32_t dev_minor;
    struct target target;
    bool mounted;
    bool read_only;
    int kept; /* the descriptor kept beside the record, -1: none */
    uint32_t record_len;
    uint8_t record[HELPER_RECORD];
    struct backing *backings; /* by rising id */
    uint32_t backing_count, backing_room;
    struct connection *next; /* by rising id */
};

/* main.c: one request of the gateway whose turn it is. `*given` (-1: none) may be taken; what is put into `answer` stays ours. */
int helper_dispatch(const struct helper_request *request, int *given, struct helper_reply *reply,
                    int answer[2], const char **what);
bool helper_has_connections(void);

/* talk.c: serves gateways until one ends in order, or none comes within `wait_s` (0: the first one is the only one). */
void helper_talk(uid_t owner, unsigned wait_s);

/* confine.c: gives up every privilege but what mounting needs. After it only the listed system calls work. */
int helper_confine(const char **what);

/* target.c */
void helper_target_init(struct target *target);
void helper_target_release(struct target *target);
/* Opens the directory of `path` and its parent. `wanted` >= 0: must be the same directory. */
int helper_target_open(struct target *target, const char *path, int wanted, const char **what);
/* Makes `path`, a number directly under `parent`, mode 000. */
int helper_target_create(struct target *target, const char *path, const char *parent,
                         const char **what);
/* Empty, and no mount but our guard. */
int helper_target_check(struct target *target, const char **what);
/* Binds the directory read-only on itself. A failure is no error: mode 000 may still hold. */
void helper_target_guard(struct target *target);
int helper_target_umount(const struct target *target, int flags);
/* Takes guard and created directory away. */
void helper_target_clear(struct target *target);
/* The minor device number of what lies on top, without asking a FUSE server; 0 when nothing is there. */
uint32_t helper_target_minor(const struct target *target);
/* Detaches a mount of ours (type fuse, source "holdfast:...") from the top; with `parent` then a guard, then removes a directory
 * that helper_target_create() has made. */
int helper_target_clear_dead(struct target *target, const char *path, const char *parent,
                             const char **what);

/* connection.c */
/* Makes the superblock and moves it onto the target. */
int helper_connection_mount(struct connection *connection, const struct helper_request *request,
                            const char **what);
bool helper_connection_gone(const struct connection *connection);
int helper_connection_abort(const struct connection *connection);
/* Lets the kernel ask for more than 128 KiB at once; where it may not, reading is slower and nothing else. */
void helper_connection_read_ahead(const struct connection *connection);
/* Opens the control file system of FUSE without showing it anywhere; before helper_confine(). */
void helper_connection_control(void);

/* backing.c: ioctl(2) takes these two and nothing else (confine.c). */
#define HELPER_IOCTL_BACKING_OPEN 0x4010e501u
#define HELPER_IOCTL_BACKING_CLOSE 0x4004e502u
int helper_backing_open(struct connection *connection, const struct helper_request *request,
                        int given, struct helper_reply *reply);
int helper_backing_close(struct connection *connection, const struct helper_request *request);
int helper_backing_next(const struct connection *connection, const struct helper_request *request,
                        struct helper_reply *reply);

/* users.c: processes that have something of this device open, or stand in it. */
uint32_t helper_users(uint32_t dev_minor, int32_t pids[HELPER_PIDS]);

#endif
