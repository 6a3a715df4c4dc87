#ifndef MOUNT_SESSION_IMPL_H
#define MOUNT_SESSION_IMPL_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "mount/backing.h"
#include "mount/handle.h"
#include "mount/ino.h"
#include "mount/number.h"
#include "mount/old.h"
#include "mount/session.h"
#include "mount/virtual.h"
#include "volume/locks.h"

/* So long entries and attributes are believed at least, and at most: what else happens here is told at once, what others do in
 * the bucket is found when the folder is listed anew (attr.fresh_ns). */
#define TIMEOUT_MIN 1.0
#define TIMEOUT_MAX 3600.0
#define MAX_WRITE (1u << 20)
#define MAX_THREADS 16u
#define KEPT_STAMPS 8192u
#define KEPT_ENDS 512u

struct loop_thread {
    struct session *session;
    pthread_t thread;
    bool started;
    char *reply; /* for READ, MAX_WRITE bytes */
};

/* Of `.holdfast/`: texts as they were when their files were opened, so that a reader sees one of them. They may go at any time (a
 * takeover): then the text is made anew. */
struct snapshot {
    struct snapshot *next;
    uint64_t fh;
    struct buf text;
};
struct session_virtual {
    pthread_mutex_t mutex; /* all but the lease; may be held over reads of the index */
    struct event_log *log; /* NULL: none */
    struct snapshot *snapshots;
    uint64_t last_fh;
    struct buf events; /* the text so far */
    uint64_t seen;     /* number of the last event in it */
    int64_t changed_ns;
    _Atomic int64_t lease_end_ns; /* wall, 0: none */
};

/* Of `.holdfast/at/` and `.holdfast/versions/`. */
#define OLD_TIMES 8u
struct old_list;
struct session_at {
    pthread_mutex_t mutex; /* times and lists; a leaf */
    struct number_table numbers;
    atomic_bool all_known;
    struct old_time {
        char text[32];                    /* a duration; "": none */
        int64_t at_ns, begun_ns, used_ns; /* wall, and mono */
    } time[OLD_TIMES];
    struct old_list *lists;
    struct old_place root; /* of a mount that is such a past; else OLD_NONE */
};

struct session {
    struct session_args args; /* strings are copies */
    char volume_name[LIMIT_VOLUME_NAME + 1];
    char prefix[LIMIT_KEY + 1];
    char run[64];
    struct fuse_session *fuse;
    char *path; /* mounted by libfuse itself, else NULL */
    struct handle_table handles;
    struct session_virtual virtual;
    struct session_at at;
    struct backing_table backings;
    const struct mounter_backing
        *lent; /* while an adopted one's files are opened again: by the mounter's table */
    size_t lent_count;
    atomic_bool passthrough;
    char plain_why[LIMIT_ERR_MSG]; /* why it is off */
    _Atomic int64_t made_ns,
        made_before_ns;                 /* mono: the last two files that were made or emptied */
    _Atomic uint64_t kept[KEPT_STAMPS]; /* of what the kernel's pages hold, by node */
    _Atomic uint64_t next_stream;
    _Atomic uint64_t ends[KEPT_ENDS]; /* where listings ended, by stream: hints only */
    pthread_mutex_t mutex;            /* running, ended, refs, record */
    pthread_cond_t changed;
    unsigned refs;
    unsigned running; /* loop threads */
    bool ended;
    bool ready;                   /* INIT was answered */
    struct session_record record; /* init_len 0: INIT has not come yet */
    bool adopted;
    bool replay; /* the record's INIT is still to be read: by the first loop thread */
    uint64_t
        swallow; /* the reply with this number is not for the kernel, 0: none; the same thread's */
    atomic_bool met_resent; /* since it was adopted */
    _Atomic uint64_t requests;
    _Atomic uint64_t parked;
    atomic_uint reading; /* loop threads that wait for a request */
    struct loop_thread threads[MAX_THREADS];
};

extern _Thread_local struct loop_thread *session_thread;

/* Asked by a loop thread about a request that it has parked: whether it may be its worker, too. Only while another one waits
 * for requests; of several that ask, the last one finds none, so that one never waits for a commit. */
static inline bool
session_has_reader(struct session *session)
{
    return session_thread != NULL && atomic_load(&session->reading) > 0;
}

/* The raw header of the request that this loop thread is working on. */
struct request_id {
    uint64_t unique;
    uint32_t opcode;
    bool resent;
};
extern _Thread_local struct request_id session_request;

/*
 * One request. On the stack of the loop thread while it is tried at once; on the heap, with copies of what it points at, when
 * it is parked.
 */
struct call;
/* Does the work and answers. 0: answered (or somebody else had); -1: the caller answers with the error. */
typedef int call_fn(struct call *call, const struct volume_ctx *ctx, struct err *err);

enum call_flags {
    CALL_AT_ONCE = 1,       /* try in the loop thread, without waiting for the store */
    CALL_TO_STORE = 2,      /* park in the store pool (fsync); else in the meta pool */
    CALL_INTERRUPTIBLE = 4, /* changes nothing: EINTR is honest */
    CALL_MUST_RUN = 8,      /* also after its deadline */
    CALL_IS_LOCK = 32,      /* an interrupt is for session_locks_cancel() */
    CALL_THEN_META =
        16, /* what cannot be done at once goes to the meta pool: it waits for no store */
};
struct op {
    const char *name;
    call_fn *fn;
    unsigned flags;
};

struct call {
    struct park_call park; /* first; used when `parked` */
    bool parked;
    struct session *session;
    const struct op *op;
    fuse_req_t req;
    struct request_id id;
    bool replayed; /* done by an earlier gateway already */
    int64_t deadline_ns;
    uint32_t uid, gid;
    /* arguments */
    int64_t node;  /* of the file, or the parent of `name` */
    int64_t node2; /* the parent of `name2` */
    uint64_t fh;
    uint64_t fh2, off2; /* what is copied from */
    struct handle *handle;
    uint64_t off;
    size_t size;
    int flags;
    uint32_t mode;
    uint64_t rdev;
    struct volume_change change;
    const char *name, *name2;
    const void *data;         /* `size` bytes of a WRITE or SETXATTR */
    struct fuse_file_info fi; /* of the answer to an OPEN */
    struct lock_wait wait;    /* of a lock; what is wanted is in it */
    void (*finish)(struct call *call);
    char copies[]; /* of name, name2, data */
};

/* Fills a call from the request and runs or parks it. */
void call_init(struct call *call, fuse_req_t req, const struct op *op, fuse_ino_t ino);
/* Takes the handle `fh`; answers false after replying EBADF. */
bool call_handle(struct call *call, const struct fuse_file_info *fi);
void call_start(struct call *call);

/* `finish` answers, once the kernels of other mounts know what has changed so far; at once when there are none. Not for requests
 * that a kernel makes with a folder or a file locked: telling may need the same lock. */
void call_when_told(struct call *call, void (*finish)(struct call *call));

/* True: answer now, nobody else will. */
bool call_claim(struct call *call);
int call_reply_entry(struct call *call, const struct volume_attr *attr);
int call_reply_attr(struct call *call, const struct volume_attr *attr);
int call_reply_data(struct call *call, const void *data, size_t len);
/* `len` bytes of a file, without a copy. */
int call_reply_file(struct call *call, int fd, uint64_t off, size_t len);
int call_reply_ok(struct call *call);
void call_reply_errno(struct call *call, int error);

/* Seconds of belief in a name or in attributes. */
double call_timeout(int64_t fresh_ns);
/* We told the kernel that set-id bits are our business (FUSE_HANDLE_KILLPRIV). A new owner always takes them off, a write and a
 * new size unless root does it, as on Linux, where CAP_FSETID decides. */
bool call_takes_privileges(const struct call *call);
uint32_t call_mode_without_privileges(const struct call *call, const struct volume_attr *attr);

void call_fill_stat(const struct session *session, const struct volume_attr *attr,
                    struct stat *out);
void call_fill_entry(const struct session *session, const struct volume_attr *attr,
                     struct fuse_entry_param *out);
static inline struct session *
session_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* session_backing.c */
/* At INIT: whether this connection can have passthrough. */
void session_backing_init(struct session *session, struct fuse_conn_info *conn);
/* Decides how the open is answered, and counts it. The file is open; fi->flags are the program's, how->flags its handle's. */
int session_backing_open(struct call *call, const struct volume_ctx *ctx, struct volume_file *file,
                         struct handle_new *how, struct fuse_file_info *fi,
                         struct err *err) MUST_CHECK;
/* The same answer to the same request, sent again to another gateway. */
void session_backing_answer(struct fuse_file_info *fi, uint32_t answer, int32_t id);
/* An open of an earlier gateway goes on counting. */
int session_backing_restore(struct session *session, struct volume_file *file,
                            const struct carry_open *open, struct err *err) MUST_CHECK;
/* A handle_released_fn; `arg` is the session. */
void session_backing_release(void *arg, int64_t node, uint64_t stamp);
/* session_takeover.c: the raw read and write of libfuse's custom I/O, and what a takeover adds to them. */
ssize_t session_read(int fd, void *buf, size_t size, void *userdata);
ssize_t session_write(int fd, struct iovec *parts, int count, void *userdata);
/* What on_init() decided is kept, or an adopted connection's decision taken. */
void session_keep_wishes(struct session *session, struct fuse_conn_info *conn);
/* INIT was replayed: asks the kernel for what nobody has answered. */
int session_ask_again(struct session *session, struct err *err) MUST_CHECK;

/* The handlers: each file fills in its part. */
void session_names_ops(struct fuse_lowlevel_ops *ops);
void session_attributes_ops(struct fuse_lowlevel_ops *ops);
void session_xattrs_ops(struct fuse_lowlevel_ops *ops);
/* `.holdfast/`: stands before the others' handlers, so call it last. */
void session_virtual_ops(struct fuse_lowlevel_ops *ops);
int session_virtual_init(struct session *session, struct err *err) MUST_CHECK;
void session_virtual_release(struct session *session);
/* session_locks.c: at every FLUSH, RELEASE and reading OPEN. */
void session_locks_flush(const struct call *call, const struct fuse_file_info *fi);
void session_locks_release(const struct call *call, const struct fuse_file_info *fi);
void session_locks_cancel(struct park_call *parked);
bool session_locks_held(const struct call *call);
void session_locks_ops(struct fuse_lowlevel_ops *ops);
void session_files_ops(struct fuse_lowlevel_ops *ops);
void session_folders_ops(struct fuse_lowlevel_ops *ops);

#endif
