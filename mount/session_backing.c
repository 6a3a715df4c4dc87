/* How an open is answered: passthrough, or with pages of the kernel, and with which of them kept. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "mount/lender.h"
#include "mount/session_impl.h"

/* A shorter file comes with one READ, which costs no more than an id, and its pages stay. */
#define WORTH_AN_ID (128u << 10)

#define MANY_PAUSE (5 * NS_PER_MS)

#ifdef FUSE_CAP_PASSTHROUGH
#define HAVE_PASSTHROUGH 1
#else
#define HAVE_PASSTHROUGH 0
#endif

void
session_backing_init(struct session *session, struct fuse_conn_info *conn)
{
    const char *why = "";
    if (!session->args.lender)
        why = "the gateway was not started by root";
    else if (!HAVE_PASSTHROUGH)
        why = "built with a libfuse older than 3.17";
#if HAVE_PASSTHROUGH
    else if (!(conn->capable & FUSE_CAP_PASSTHROUGH))
        why = "the kernel does not offer it (Linux 6.9 or newer does)";
    else {
        conn->want |= FUSE_CAP_PASSTHROUGH;
        conn->max_backing_stack_depth =
            1; /* the cache lies on a disk, not on another stacked file system */
    }
#else
    (void)conn;
#endif
    scope_unlock pthread_mutex_t *held = scope_lock(&session->mutex);
    (void)held;
    (void)snprintf(session->plain_why, sizeof(session->plain_why), "%s", why);
    atomic_store(&session->passthrough, why[0] == '\0');
}

bool
session_passthrough(struct session *session, char *why, size_t size)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&session->mutex);
    (void)held;
    (void)snprintf(why, size, "%s", session->plain_why);
    return atomic_load(&session->passthrough);
}

/* Once and for all: asking again for each open would cost and not help. What is lent stays lent. */
static void
turn_off(struct session *session, const struct err *err)
{
    if (!atomic_exchange(&session->passthrough, false))
        return;
    log_warn(mount, "no passthrough any more mount=%lld error=\"%s\"", (long long)session->args.id,
             err->msg);
    scope_unlock pthread_mutex_t *held = scope_lock(&session->mutex);
    (void)held;
    (void)snprintf(session->plain_why, sizeof(session->plain_why), "%s", err->msg);
}

/* ---- one open ---- */

struct opening {
    struct session *session;
    const struct volume_ctx *ctx;
    struct volume_file *file;
    struct backing *backing;
    bool writer, privileged;
    bool emptied; /* made, or cut to nothing, by this open */
};

static bool
is_permanent(const struct err *err)
{
    return err->sys != ENFILE && err->sys != ENOMEM && err->sys != EBADF;
}

static int
register_file(struct opening *opening, int64_t content, struct err *err)
{
    struct session *session = opening->session;
    int fd;
    struct mounter_backing asked = { .node = opening->backing->node, .content = content };
    if (!backing_make_room(&session->backings))
        return err_set(err, ERR_FILES, "too many files are lent to the kernel");
    if (volume_file_backing_fd(opening->file, &fd, err) < 0)
        return -1;
    int done = lender_open(session->args.lender, session->args.id, fd, &asked, err);
    (void)close(fd);
    if (done < 0) {
        if (is_permanent(err))
            turn_off(session, err);
        return -1;
    }
    backing_set_id(&session->backings, opening->backing, content, asked.id);
    return 0;
}

/* Nobody here has it open: whatever its bytes are, an id can be had for them. */
static bool
lend_anew(struct opening *opening, uint64_t min_size)
{
    struct err err = ERR_INIT;
    struct volume_backing bytes = { .min_size = min_size };
    struct backing *backing = opening->backing;
    if (!atomic_load(&opening->session->passthrough) ||
        volume_file_back(opening->file, opening->ctx, &bytes, &err) != 0)
        return false;
    if (backing->id != 0 && backing->content == bytes.content && !backing->gone)
        return true;
    if (register_file(opening, bytes.content, &err) == 0)
        return true;
    log_debug(mount, "not lent mount=%lld node=%lld error=\"%s\"",
              (long long)opening->session->args.id, (long long)backing->node, err.msg);
    volume_file_unback(opening->file);
    return false;
}

/* Others have it open with an id: the same, if the bytes are still those. What is written through the gateway all the same may
 * be mapped, too. */
static void
lend_same(struct opening *opening, struct io_view *view)
{
    struct err err = ERR_INIT;
    struct volume_backing bytes = { .direct = false };
    view->lent =
        !opening->privileged && volume_file_back(opening->file, opening->ctx, &bytes, &err) == 0;
    view->same = view->lent && bytes.content == opening->backing->content;
    if (view->lent && !view->same)
        volume_file_unback(opening->file);
    if (view->lent || !opening->writer)
        return;
    bytes.direct = true;
    if (volume_file_back(opening->file, opening->ctx, &bytes, &err) == 0 &&
        bytes.content != opening->backing->content)
        volume_file_unback(opening->file);
}

/* Where many files are made one after the other they are small: each is written by one or two requests, which cost less than an
 * id. A single new file may become anything. */
static bool
is_one_of_many(struct session *session)
{
    int64_t now = clock_mono_ns();
    int64_t last = atomic_exchange(&session->made_ns, now);
    int64_t before = atomic_exchange(&session->made_before_ns, last);
    return now - last < MANY_PAUSE && last - before < MANY_PAUSE;
}

static bool
is_worth_it(const struct opening *opening)
{
    if (!opening->writer)
        return true;
    /* The kernel leaves set-id bits to us (KILLPRIV), so we have to see the first write. */
    if (opening->privileged)
        return false;
    return !opening->emptied || !is_one_of_many(opening->session);
}

static enum io_answer
decide(struct opening *opening)
{
    struct io_view view = { .mode =
                                opening->backing->opens > 0 ? opening->backing->mode : IO_NONE };
    switch (view.mode) {
    case IO_PASS:
        lend_same(opening, &view);
        break;
    case IO_CACHED:
        (void)volume_file_paged(opening->file);
        break;
    case IO_DIRECT:
        break;
    case IO_NONE:
        view.lent = is_worth_it(opening) && lend_anew(opening, WORTH_AN_ID);
        view.pages = !view.lent && volume_file_paged(opening->file);
        /* A writer elsewhere goes past us: then this one has to as well. */
        if (!view.lent && !view.pages)
            view.lent = lend_anew(opening, 0);
        break;
    }
    return io_decide(&view);
}

void
session_backing_answer(struct fuse_file_info *fi, uint32_t answer, int32_t id)
{
    bool pass = answer == IO_ANSWER_PASS || answer == IO_ANSWER_DIRECT_PASS;
    fi->direct_io = answer == IO_ANSWER_DIRECT || answer == IO_ANSWER_DIRECT_PASS;
#if HAVE_PASSTHROUGH
    fi->backing_id = pass ? id : 0;
#else
    (void)pass;
    (void)id;
#endif
}

/* The kernel may keep the pages of the last open while the bytes are the same: known once that open was closed again. */
static bool
may_keep(struct session *session, int64_t node, uint64_t stamp)
{
    return stamp != 0 && atomic_load(&session->kept[(uint64_t)node % KEPT_STAMPS]) ==
                             (stamp ^ (uint64_t)node * 0x9e3779b97f4a7c15ull);
}

int
session_backing_open(struct call *call, const struct volume_ctx *ctx, struct volume_file *file,
                     struct handle_new *how, struct fuse_file_info *fi, struct err *err)
{
    struct session *session = call->session;
    struct opening opening = { .session = session, .ctx = ctx, .file = file };
    enum io_answer answer = IO_ANSWER_CACHED;
    opening.emptied = (fi->flags & (O_TRUNC | O_CREAT)) != 0;
    opening.writer = (fi->flags & O_ACCMODE) != O_RDONLY || opening.emptied;
    opening.privileged = (how->flags & HANDLE_PRIVILEGED) != 0;
    if (session->args.lender) {
        opening.backing = backing_take(&session->backings, volume_file_node(file), err);
        if (!opening.backing)
            return -1;
        answer = decide(&opening);
        how->backing = opening.backing->id;
        session_backing_answer(fi, answer, how->backing);
        backing_put_open(&session->backings, opening.backing, answer);
    }
    how->answer = answer;
    if (!opening.writer && answer == IO_ANSWER_CACHED)
        fi->keep_cache = may_keep(session, volume_file_node(file), volume_file_stamp(file));
    return 0;
}

/* What the id stands for, as the mounter knows it; 0: it does not. */
static int64_t
content_of(const struct session *session, int32_t id)
{
    for (size_t i = 0; i < session->lent_count; i++) {
        if (session->lent[i].id == id)
            return session->lent[i].content;
    }
    return 0;
}

int
session_backing_restore(struct session *session, struct volume_file *file,
                        const struct carry_open *open, struct err *err)
{
    enum io_answer answer = (enum io_answer)open->answer;
    bool pass = answer == IO_ANSWER_PASS || answer == IO_ANSWER_DIRECT_PASS;
    if (!session->args.lender)
        return 0;
    struct backing *backing = backing_take(&session->backings, open->node, err);
    if (!backing)
        return -1;
    int64_t content = pass ? content_of(session, open->backing) : 0;
    if (pass && backing->id == 0)
        backing_set_id(&session->backings, backing, content, open->backing);
    if (pass && !volume_file_back_again(file, content))
        log_debug(mount, "an old backing goes on mount=%lld node=%lld", (long long)session->args.id,
                  (long long)open->node);
    if (answer == IO_ANSWER_CACHED)
        (void)volume_file_paged(file);
    backing_put_open(&session->backings, backing, answer);
    return 0;
}

void
session_backing_release(void *arg, int64_t node, uint64_t stamp)
{
    struct session *session = arg;
    if (stamp != 0)
        atomic_store(&session->kept[(uint64_t)node % KEPT_STAMPS],
                     stamp ^ (uint64_t)node * 0x9e3779b97f4a7c15ull);
    if (session->args.lender)
        backing_release(&session->backings, node);
}

/* ---- for the lender ---- */

void
session_backing_gone(struct session *session, const int64_t *contents, size_t count, bool all)
{
    for (size_t i = 0; i < count; i++)
        backing_gone(&session->backings, contents[i]);
    if (all)
        backing_forget_idle(&session->backings);
}

size_t
session_backing_dead(struct session *session, int32_t *out, size_t max)
{
    return backing_take_dead(&session->backings, out, max);
}

void
session_backing_closed(struct session *session, size_t count)
{
    backing_closed(&session->backings, count);
}
