#ifndef MOUNT_HELPER_PROTO_H
#define MOUNT_HELPER_PROTO_H

#include <stdint.h>

/*
 * What the gateway and `holdfast-mounter` say to each other over a SOCK_SEQPACKET socket: one request, one reply, both of
 * fixed size, descriptors beside them (SCM_RIGHTS). Both ends are the same build: a version that differs ends the talk.
 * The helper includes this header and libc only.
 */
#define HELPER_FD 3        /* the helper's end */
#define HELPER_LISTEN_FD 4 /* a listening socket for the gateways that come later, or closed */
#define HELPER_VERSION 3u
#define HELPER_PATH 1025   /* with NUL */
#define HELPER_SOURCE 80   /* "holdfast:<volume>" with NUL */
#define HELPER_RECORD 4096 /* what a takeover needs of a connection (mount/session_record.h) */
#define HELPER_MOUNTS 4096
#define HELPER_PIDS 16
#define HELPER_BACKINGS 8192 /* of one connection */
#define HELPER_CLOSE_MANY (HELPER_RECORD / 4)

enum helper_op {
    HELPER_HELLO =
        1, /* HELPER_IS_TAKEN: another gateway lives, and is asked first; anything but HELLO is EBUSY then */
    /* Mounts at `path`. With a descriptor: it is the target (O_PATH), opened with the gateway's rights, and `path` must lead
     * to the same directory; it has to be empty and no mount but our own guard. With HELPER_CREATE: no descriptor, the
     * helper makes the directory `path`, which must lie directly under its permitted parent. Answers the descriptor of
     * /dev/fuse and the minor device number. */
    HELPER_MOUNT,
    /* Unmounts `id`. EBUSY when in use, unless HELPER_DETACH. HELPER_KEEP_GUARD leaves the mountpoint guarded (INV-11) for a
     * restart; else guard and created directory go. The /dev/fuse descriptor stays until HELPER_FORGET. */
    HELPER_UMOUNT,
    HELPER_ABORT,  /* ends the connection: every request fails with ENOTCONN */
    HELPER_FORGET, /* closes the connection's descriptor and drops its entry */
    /* `id` in, the smallest known id above it out (ENOENT at the end), with HELPER_IS_GONE when the kernel ended it. */
    HELPER_NEXT,
    /* Keeps `record`, and the descriptor that comes along in place of an older one, with the connection. */
    HELPER_RECORD_INIT,
    HELPER_CLEAR, /* takes a dead mount of ours away from `path`, and unless HELPER_KEEP_GUARD a guard too */
    HELPER_USERS, /* up to HELPER_PIDS processes that use mount `id` */
    /* Lets the kernel read and write the file of the descriptor that comes along in place of `node`'s, as its opens are
     * answered with the id that comes back. `node` and `content` are kept beside the id for a takeover. */
    HELPER_BACKING_OPEN,
    HELPER_BACKING_CLOSE, /* `record`: up to HELPER_CLOSE_MANY ids, int32_t each; unknown ones are passed over */
    HELPER_BACKING_NEXT, /* `backing` in, the smallest id above it with its node and content out (ENOENT at the end) */
    /* What HELPER_RECORD_INIT kept of `id`: record, and two descriptors: /dev/fuse and the one kept. ENODATA: nothing. */
    HELPER_ADOPT,
    HELPER_END, /* the gateway ends in order: unmount what is left, then end; without it the helper waits for the next one */
};

enum helper_flags {
    HELPER_CREATE = 1,
    HELPER_READ_ONLY = 2,
    HELPER_DETACH = 4,
    HELPER_KEEP_GUARD = 8,
    HELPER_IS_GONE = 32,  /* replies only */
    HELPER_IS_TAKEN = 64, /* replies only */
};

struct helper_request {
    uint32_t version;
    uint32_t op;
    uint32_t flags;
    uint32_t record_len;
    int64_t id;
    int64_t node, content;
    int32_t backing;
    uint32_t unused;
    char path[HELPER_PATH];     /* NUL-terminated */
    char source[HELPER_SOURCE]; /* NUL-terminated */
    uint8_t record[HELPER_RECORD];
};

struct helper_reply {
    uint32_t version;
    uint32_t op;
    int32_t error; /* errno, 0: done */
    uint32_t flags;
    int64_t id;
    int64_t node, content;
    int32_t backing;
    uint32_t unused;
    uint32_t dev_minor;
    uint32_t pid_count;
    int32_t pid[HELPER_PIDS];
    char what[64]; /* the step that failed */
    uint32_t record_len;
    uint32_t unused2;
    uint8_t record[HELPER_RECORD];
};

#endif
