/* Taking a living connection over from a gateway that died (docs/platform.md section 1). */
#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/scope.h"
#include "mount/session_impl.h"
#include "mount/wire.h"

#define NOTIFY_RESEND 7 /* FUSE_NOTIFY_RESEND, Linux 6.9; newer than many headers */

static _Thread_local const void *touched;

/* ---- the raw read and write ---- */

static void
keep_init(struct session *session, const void *data, size_t len)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&session->mutex);
    (void)held;
    struct session_record *record = &session->record;
    if (len > sizeof(record->init) || session->adopted)
        return;
    session_record_begin(record);
    record->root = session->args.root;
    memcpy(record->init, data, len);
    record->init_len = (uint32_t)len;
}

/* The INIT of this connection as the first gateway read it: libfuse negotiates once more, with itself. */
static ssize_t
read_replay(struct session *session, void *buf, size_t size)
{
    const struct session_record *record = &session->record;
    struct wire_header header;
    session->replay = false;
    if (record->init_len > size || !wire_header(record->init, record->init_len, &header)) {
        errno = EPROTO;
        return -1;
    }
    memcpy(buf, record->init, record->init_len);
    session->swallow = header.unique;
    return (ssize_t)record->init_len;
}

static void
note_resent(struct session *session)
{
    if (session->args.carry && !atomic_exchange(&session->met_resent, true))
        atomic_fetch_add(&session->args.carry->met, 1);
}

ssize_t
session_read(int fd, void *buf, size_t size, void *userdata)
{
    struct session *session = userdata;
    struct wire_header header;
    /* A request that is copied into a page which is not there yet fails when we are killed meanwhile, and the
     * client sees EIO (docs/platform.md section 1, rule 3). */
    if (touched != buf) {
        memset(buf, 0, size);
        touched = buf;
    }
    session_request = (struct request_id){ 0 };
    if (session->replay && session_thread == &session->threads[0])
        return read_replay(session, buf, size);
    ssize_t got = read(fd, buf, size);
    if (got <= 0 || !wire_header(buf, (size_t)got, &header))
        return got;
    session_request = (struct request_id){ .unique = header.unique,
                                           .opcode = header.opcode,
                                           .resent = header.resent };
    if (header.resent)
        note_resent(session);
    if (wire_is_init(&header))
        keep_init(session, buf, (size_t)got);
    return got;
}

/* Whether it is the reply to the replayed INIT, which the kernel has had from the first gateway. */
static bool
is_swallowed(struct session *session, const struct iovec *parts)
{
    struct fuse_out_header header;
    if (session_thread != &session->threads[0] || session->swallow == 0 ||
        parts[0].iov_len < sizeof(header))
        return false;
    memcpy(&header, parts[0].iov_base, sizeof(header));
    if (header.unique != session->swallow)
        return false;
    session->swallow = 0;
    return true;
}

ssize_t
session_write(int fd, struct iovec *parts, int count, void *userdata)
{
    size_t len = 0;
    if (count == 0 || !is_swallowed(userdata, parts))
        return writev(fd, parts, count);
    for (int i = 0; i < count; i++)
        len += parts[i].iov_len;
    return (ssize_t)len;
}

/* ---- INIT ---- */

void
session_keep_wishes(struct session *session, struct fuse_conn_info *conn)
{
    struct session_wishes *wishes = &session->record.wishes;
    scope_unlock pthread_mutex_t *held = scope_lock(&session->mutex);
    (void)held;
    if (session->adopted) {
        conn->want = (unsigned)wishes->want;
        conn->max_write = wishes->max_write;
        conn->max_background = wishes->max_background;
        conn->congestion_threshold = wishes->congestion;
        conn->time_gran = wishes->time_gran;
#ifdef FUSE_CAP_PASSTHROUGH
        conn->max_backing_stack_depth = wishes->stack_depth;
        if (!(wishes->want & FUSE_CAP_PASSTHROUGH))
            atomic_store(&session->passthrough, false);
#endif
        return;
    }
    *wishes = (struct session_wishes){ .want = conn->want,
                                       .max_write = conn->max_write,
                                       .max_background = conn->max_background,
                                       .congestion = conn->congestion_threshold,
                                       .time_gran = conn->time_gran };
#ifdef FUSE_CAP_PASSTHROUGH
    wishes->stack_depth = conn->max_backing_stack_depth;
#endif
}

bool
session_record(struct session *session, struct session_record *out)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&session->mutex);
    (void)held;
    *out = session->record;
    return session->ready && out->init_len > 0;
}

/* libfuse has no call for it. Everything that was read and not answered comes again, marked. */
int
session_ask_again(struct session *session, struct err *err)
{
    uint8_t notice[WIRE_NOTICE_SIZE];
    wire_notice(NOTIFY_RESEND, notice);
    if (write(fuse_session_fd(session->fuse), notice, sizeof(notice)) != (ssize_t)sizeof(notice))
        return err_sys(err, errno, "ask the kernel for what was not answered");
    return 0;
}

bool
session_can_adopt(void)
{
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
    return true;
#else
    return false;
#endif
}

/* ---- open files ---- */

static int
restore(struct session *session, uint32_t at, struct volume_file *file,
        const struct volume_ctx *ctx, struct err *err)
{
    struct carry_open *entry = &session->args.carry->opens[at];
    if (session_backing_restore(session, file, entry, err) < 0) {
        volume_file_close(file, ctx);
        return -1;
    }
    if (handle_restore(&session->handles, at, file, ctx, err) == 0) {
        handle_watch(&session->handles, entry->fh, entry->node, 0);
        return 0;
    }
    session_backing_release(session, entry->node, 0);
    return -1;
}

static void
reopen(struct session *session, uint32_t at, const struct volume_ctx *ctx)
{
    struct err err = ERR_INIT;
    struct volume_file *file;
    struct carry_open *entry = &session->args.carry->opens[at];
    bool writer = (entry->flags & (HANDLE_WRITER | HANDLE_MAKER)) != 0;
    if (volume_file_reopen(session->args.volumes, ctx, entry->node, writer, &file, &err) == 0 &&
        restore(session, at, file, ctx, &err) == 0)
        return;
    log_warn(mount, "an open file is lost mount=%lld node=%lld error=\"%s\"",
             (long long)session->args.id, (long long)entry->node, err.msg);
    if (err.code == ERR_NOT_FOUND)
        atomic_store(&entry->fh, 0);
}

void
session_reopen_files(struct session *session, const struct mounter_backing *lent, size_t count)
{
    struct volume_ctx ctx = { .actor = "mount", .run = session->run };
    struct carry *carry = session->args.carry;
    ctx.connection = session->args.id;
    session->lent = lent;
    session->lent_count = count;
    for (uint32_t i = 0; i < carry->opens_used; i++) {
        if (atomic_load(&carry->opens[i].fh) != 0)
            reopen(session, i, &ctx);
    }
    session->lent = NULL;
    session->lent_count = 0;
}

uint32_t
session_first_slot(const struct session *session)
{
    return session->args.carry ? (session->args.carry->incarnation & 0xffffu) << 16 : 0;
}

void
session_count_takeovers(struct session *session, struct mount_takeovers *sum)
{
    struct carry *carry = session->args.carry;
    if (!carry)
        return;
    sum->count += carry->incarnation;
    sum->met += atomic_load_explicit(&carry->met, memory_order_relaxed);
    for (unsigned i = 0; i < CARRY_OPCODES; i++) {
        sum->resent[i] += atomic_load_explicit(&carry->resent[i], memory_order_relaxed);
        sum->replayed[i] += atomic_load_explicit(&carry->replayed[i], memory_order_relaxed);
    }
}
