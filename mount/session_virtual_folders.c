/* Folders of `.holdfast/`, but for `at` and `versions`. */
#include <errno.h>
#include <stdlib.h>

#include "base/scope.h"
#include "mount/session_virtual_impl.h"

/* An entry's offset is its place in the list. */
struct listing {
    struct call *call;
    bool plus, full;
    char *to;
    size_t used;
    uint64_t at;
};

static void
put(struct listing *list, const char *name, const struct virtual_place *place)
{
    struct fuse_entry_param entry = { .ino = 0 }; /* no lookup: sizes are not asked for here */
    char *to = list->to + list->used;
    size_t room = list->call->size - list->used;
    uint64_t at = list->at++;
    if (list->full || at < list->call->off)
        return;
    entry.attr.st_ino = virtual_ino(place);
    entry.attr.st_mode = session_virtual_mode(place->kind);
    fuse_req_t req = list->call->req;
    size_t wanted = list->plus ? fuse_add_direntry_plus(req, to, room, name, &entry, (off_t)at + 1)
                               : fuse_add_direntry(req, to, room, name, &entry.attr, (off_t)at + 1);
    list->full = wanted > room;
    list->used += list->full ? 0 : wanted;
}

static int
put_loser(void *arg, const struct index_conflict *row, const char *path, struct err *err)
{
    struct virtual_place place = { .kind = VIRTUAL_CONFLICT_ID, .id = virtual_id(row->id) };
    (void)path;
    (void)err;
    put(arg, row->id, &place);
    return 0;
}

static int
list(struct call *call, bool plus, struct err *err)
{
    struct virtual_place dir = session_virtual_place(call);
    scope_free char *to = malloc(call->size);
    struct listing list = { .call = call, .plus = plus, .to = to };
    struct virtual_place place = { .id = dir.id };
    const char *name;
    if (!to)
        return err_nomem(err);
    if (!virtual_is_dir(dir.kind))
        return err_set(err, ERR_NOT_DIR, "not a folder");
    bool base = false;
    if (dir.kind == VIRTUAL_CONFLICT_ID &&
        session_virtual_has_base(call->session, dir.id, &base, err) < 0)
        return -1;
    put(&list, ".", &dir);
    put(&list, "..", &dir);
    for (unsigned i = 0; (name = virtual_entry(dir.kind, i, &place.kind)) != NULL; i++)
        if (base || (place.kind != VIRTUAL_BASE && place.kind != VIRTUAL_MERGED))
            put(&list, name, &place);
    if (dir.kind == VIRTUAL_CONFLICT &&
        session_virtual_losers(call->session, put_loser, &list, err) < 0)
        return -1;
    return call_reply_data(call, to, list.used);
}

static int
run_readdir(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    (void)ctx;
    return list(call, false, err);
}

static int
run_readdirplus(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    (void)ctx;
    return list(call, true, err);
}

void
session_virtual_readdir(fuse_req_t req, fuse_ino_t ino, const struct virtual_stream *stream)
{
    static const struct op slow_plus = { "readdirplus", run_readdirplus, CALL_INTERRUPTIBLE };
    static const struct op plus = { "readdirplus", run_readdirplus,
                                    CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    OPS("readdir", run_readdir);
    struct call call;
    enum virtual_speed speed = session_virtual_speed(virtual_place(ino).kind);
    const struct op *op = &ops[speed];
    if (stream->plus)
        op = speed == AT_ONCE ? &plus : &slow_plus;
    call_init(&call, req, op, ino);
    call.size = stream->size < MAX_WRITE ? stream->size : MAX_WRITE;
    call.off = (uint64_t)stream->off;
    if (stream->off < 0)
        call_reply_errno(&call, EINVAL);
    else
        call_start(&call);
}
