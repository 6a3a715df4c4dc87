/* Open files of `.holdfast/`. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/scope.h"
#include "mount/session_virtual_impl.h"

#define MAX_SNAPSHOTS 64u

/* ---- state ---- */

int
session_virtual_init(struct session *session, struct err *err)
{
    struct session_virtual *state = &session->virtual;
    pthread_mutex_init(&state->mutex, NULL);
    buf_init(&state->events, MAX_TEXT);
    if (session_old_init(session, err) < 0)
        return -1;
    state->log = session->args.events;
    if (!state->log || event_log_want(state->log, session->args.volume, err) == 0)
        return 0;
    state->log = NULL;
    return -1;
}

static void
free_snapshot(struct snapshot *snapshot)
{
    if (!snapshot)
        return;
    buf_release(&snapshot->text);
    free(snapshot);
}

void
session_virtual_release(struct session *session)
{
    struct session_virtual *state = &session->virtual;
    for (struct snapshot *at = state->snapshots, *next; at; at = next) {
        next = at->next;
        free_snapshot(at);
    }
    buf_release(&state->events);
    session_old_release(session);
    pthread_mutex_destroy(&state->mutex);
    if (state->log)
        event_log_release(state->log, session->args.volume);
}

void
session_set_lease(struct session *session, int64_t end_ns)
{
    atomic_store(&session->virtual.lease_end_ns, end_ns);
}

/* Takes the text; `fh` 0: a new number, which no earlier process has given either. The oldest goes when there are too many. */
static int
keep_snapshot(struct session *session, struct buf *take_text, uint64_t *fh, struct err *err)
{
    struct session_virtual *state = &session->virtual;
    struct snapshot *snapshot = calloc(1, sizeof(*snapshot));
    struct snapshot **end, *oldest = NULL;
    unsigned count = 0;
    if (!snapshot)
        return err_nomem(err);
    snapshot->text = *take_text;
    buf_init(take_text, MAX_TEXT);
    pthread_mutex_lock(&state->mutex);
    if (*fh == 0) {
        uint64_t now = (uint64_t)clock_wall_ns();
        state->last_fh = *fh = now > state->last_fh ? now : state->last_fh + 1;
    }
    snapshot->fh = *fh;
    for (end = &state->snapshots; *end; end = &(*end)->next)
        count++;
    *end = snapshot;
    if (count >= MAX_SNAPSHOTS) {
        oldest = state->snapshots;
        state->snapshots = oldest->next;
    }
    pthread_mutex_unlock(&state->mutex);
    free_snapshot(oldest);
    return 0;
}

static void
drop_snapshot(struct session *session, uint64_t fh)
{
    struct session_virtual *state = &session->virtual;
    struct snapshot *found = NULL;
    pthread_mutex_lock(&state->mutex);
    for (struct snapshot **at = &state->snapshots; *at; at = &(*at)->next) {
        if ((*at)->fh != fh)
            continue;
        found = *at;
        *at = found->next;
        break;
    }
    pthread_mutex_unlock(&state->mutex);
    free_snapshot(found);
}

static int
copy_part(const struct buf *text, uint64_t off, size_t len, struct buf *out, struct err *err)
{
    if (off >= text->len)
        return 0;
    size_t left = text->len - (size_t)off;
    return buf_append(out, text->data + off, left < len ? left : len, err);
}

/* 1: not kept (any more). */
static int
read_snapshot(struct session *session, uint64_t fh, const struct call *call, struct buf *out,
              struct err *err)
{
    struct session_virtual *state = &session->virtual;
    scope_unlock pthread_mutex_t *held = scope_lock(&state->mutex);
    (void)held;
    for (const struct snapshot *at = state->snapshots; at; at = at->next)
        if (at->fh == fh)
            return copy_part(&at->text, call->off, call->size, out, err);
    return 1;
}

/* ---- requests ---- */

enum virtual_speed
session_virtual_speed(enum virtual_kind kind)
{
    switch (kind) {
    case VIRTUAL_UNSYNCED:
    case VIRTUAL_CONFLICTS:
    case VIRTUAL_CONFLICT:
    case VIRTUAL_CONFLICT_ID:
    case VIRTUAL_INFO:
    case VIRTUAL_THEIRS:
    case VIRTUAL_EVENTS:
        return MAY_TAKE_TIME;
    case VIRTUAL_MINE:
    case VIRTUAL_BASE:
    case VIRTUAL_MERGED:
        return MAY_WAIT_FOR_STORE;
    default:
        return AT_ONCE;
    }
}

int
session_virtual_check(struct session *session, const struct virtual_place *place, struct err *err)
{
    scope_free struct virtual_loser *loser = NULL;
    if (place->kind == VIRTUAL_NONE)
        return err_set(err, ERR_NOT_FOUND, "there is no such file in " VIRTUAL_NAME);
    if (place->id == 0)
        return 0;
    loser = malloc(sizeof(*loser));
    if (!loser)
        return err_nomem(err);
    return session_virtual_loser(session, place->id, loser, err);
}

/* ---- open files ---- */

static int
run_open(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct virtual_place place = session_virtual_place(call);
    struct fuse_file_info fi;
    uint64_t fh = 0;
    scope_buf text;
    buf_init(&text, MAX_TEXT);
    bool writes = (call->flags & O_ACCMODE) != O_RDONLY;
    if (session_virtual_check(call->session, &place, err) < 0)
        return -1;
    if (place.kind != VIRTUAL_EVENTS && place.kind != VIRTUAL_MINE && !writes &&
        (session_virtual_make(call, ctx, &place, &text, err) < 0 ||
         keep_snapshot(call->session, &text, &fh, err) < 0))
        return -1;
    memset(&fi, 0, sizeof(fi));
    fi.fh = fh;
    fi.direct_io = 1;
    fi.noflush = 1;
    if (!call_claim(call) || fuse_reply_open(call->req, &fi) < 0)
        drop_snapshot(call->session, fh);
    return 0;
}

void
session_virtual_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi)
{
    OPS("open", run_open);
    struct call call;
    enum virtual_kind kind = virtual_place(ino).kind;
    bool writes = (fi->flags & O_ACCMODE) != O_RDONLY;
    enum virtual_speed speed =
        kind == VIRTUAL_FLUSH && !writes ? MAY_WAIT_FOR_STORE : session_virtual_speed(kind);
    call_init(&call, req, &ops[speed], ino);
    call.flags = fi->flags;
    if (writes && kind != VIRTUAL_FLUSH)
        call_reply_errno(&call, EPERM);
    else
        call_start(&call);
}

static int
read_mine(struct call *call, const struct volume_ctx *ctx, uint64_t id, struct buf *out,
          struct err *err)
{
    scope_free struct virtual_loser *loser = malloc(sizeof(*loser));
    if (!loser)
        return err_nomem(err);
    char *to = buf_reserve(out, call->size, err);
    if (!to || session_virtual_loser(call->session, id, loser, err) < 0)
        return -1;
    ssize_t got = volume_conflict_read(call->session->args.volumes, ctx, loser->row.id, to,
                                       call->size, call->off, err);
    if (got > 0)
        buf_commit(out, (size_t)got);
    return got < 0 ? -1 : 0;
}

/* The file was opened under an earlier process, or so many others were since. */
static int
read_anew(struct call *call, const struct volume_ctx *ctx, const struct virtual_place *place,
          struct buf *out, struct err *err)
{
    uint64_t fh = call->fh;
    scope_buf text;
    buf_init(&text, MAX_TEXT);
    if (session_virtual_make(call, ctx, place, &text, err) < 0 ||
        copy_part(&text, call->off, call->size, out, err) < 0)
        return -1;
    return fh == 0 ? 0 : keep_snapshot(call->session, &text, &fh, err);
}

static int
run_read(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct virtual_place place = session_virtual_place(call);
    scope_buf out;
    int rc = 1;
    buf_init(&out, MAX_WRITE);
    if (place.kind == VIRTUAL_EVENTS)
        rc = session_events_read(call->session, call->off, call->size, &out, err);
    else if (place.kind == VIRTUAL_MINE)
        rc = read_mine(call, ctx, place.id, &out, err);
    else if (call->fh != 0)
        rc = read_snapshot(call->session, call->fh, call, &out, err);
    if (rc > 0 && place.kind == VIRTUAL_FLUSH && call->op->flags & CALL_AT_ONCE)
        return err_set(err, ERR_AGAIN, "this has to wait for the store");
    if (rc > 0)
        rc = read_anew(call, ctx, &place, &out, err);
    return rc < 0 ? -1 : call_reply_data(call, out.data, out.len);
}

void
session_virtual_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                     const struct fuse_file_info *fi)
{
    OPS("read", run_read);
    struct call call;
    call_init(&call, req, &ops[session_virtual_speed(virtual_place(ino).kind)], ino);
    call.size = size < MAX_WRITE ? size : MAX_WRITE;
    call.off = (uint64_t)off;
    call.fh = fi->fh;
    call_start(&call);
}

/* Whatever is written into flush: it comes back when all is synced. */
static int
run_write(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_barrier barrier;
    (void)ctx;
    if (volume_flush_quietly(call->session->args.volumes, call->session->args.volume,
                             call->deadline_ns - 2 * NS_PER_S, &barrier, err) < 0)
        return -1;
    if (call_claim(call))
        (void)fuse_reply_write(call->req, call->size);
    return 0;
}

void
session_virtual_write(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    OPS("write", run_write);
    struct call call;
    call_init(&call, req, &ops[MAY_WAIT_FOR_STORE], ino);
    call.size = size;
    if (virtual_place(ino).kind == VIRTUAL_FLUSH)
        call_start(&call);
    else
        call_reply_errno(&call, EPERM);
}

void
session_virtual_release_file(fuse_req_t req, const struct fuse_file_info *fi)
{
    drop_snapshot(session_of(req), fi->fh);
    (void)fuse_reply_err(req, 0);
}
