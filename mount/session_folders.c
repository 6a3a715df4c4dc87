/* Folders. Streams have no state: an offset is the cookie of volume_list() moved behind "." and "..". They have numbers, so that the
 * question that ends each listing, whether something comes behind the last entry, need not be asked of the index. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/scope.h"
#include "mount/session_impl.h"

#define OFF_DOT 1
#define OFF_DOTDOT 2 /* cookies follow, moved by this */
#define BATCH 512u
/* Least bytes of an entry in the reply: more than fit need not be read. */
#define ENTRY_MIN 32u
#define ENTRY_PLUS_MIN 160u

struct listing {
    struct call *call;
    bool plus;
    bool full;
    char *to;
    size_t size;
    size_t used;
    bool ended;     /* what was put last is the end */
    int64_t last;   /* cookie of the last entry that was put */
    unsigned count; /* entries seen in this batch */
};

static bool
put(struct listing *list, const char *name, const struct fuse_entry_param *entry, off_t off)
{
    char *at = list->to + list->used;
    size_t room = list->size - list->used;
    fuse_req_t req = list->call->req;
    size_t wanted = list->plus ? fuse_add_direntry_plus(req, at, room, name, entry, off)
                               : fuse_add_direntry(req, at, room, name, &entry->attr, off);
    if (wanted > room) {
        list->full = true;
        return false;
    }
    list->used += wanted;
    return true;
}

static int
put_entry(void *arg, const struct volume_entry *entry, struct err *err)
{
    struct listing *list = arg;
    struct fuse_entry_param param;
    char name[LIMIT_NAME + 1];
    (void)err;
    list->count++;
    if (entry->name_len > LIMIT_NAME)
        return 0;
    memcpy(name, entry->name, entry->name_len);
    name[entry->name_len] = '\0';
    call_fill_entry(list->call->session, &entry->attr, &param);
    if (entry->name_only)
        param.ino = 0; /* "no attributes": the kernel looks it up when somebody wants it */
    if (!put(list, name, &param, (off_t)(entry->cookie + OFF_DOTDOT)))
        return 1;
    list->last = entry->cookie;
    return 0;
}

/* "." and ".." carry no inode of theirs: the kernel knows both. */
static void
put_dots(struct listing *list, uint64_t off)
{
    struct fuse_entry_param dot = { .ino = 0 };
    dot.attr.st_mode = S_IFDIR;
    dot.attr.st_ino = ino_of_node(list->call->node, list->call->session->args.root);
    if (off < OFF_DOT && !put(list, ".", &dot, OFF_DOT))
        return;
    if (off < OFF_DOTDOT)
        (void)put(list, "..", &dot, OFF_DOTDOT);
}

/* The kernel asks for the first page with attributes before it knows whether anybody wants some, for the others when somebody
 * did: the first one gives those that are known, and asks the bucket for none. */
static int
list_entries(struct listing *list, const struct volume_ctx *ctx, struct err *err)
{
    struct call *call = list->call;
    list->last = call->off > OFF_DOTDOT ? (int64_t)call->off - OFF_DOTDOT : 0;
    put_dots(list, call->off);
    while (!list->full) {
        size_t fits = (list->size - list->used) / (list->plus ? ENTRY_PLUS_MIN : ENTRY_MIN) + 1;
        struct volume_page page = { .dir = call->node,
                                    .after = list->last,
                                    .limit = fits < BATCH ? (unsigned)fits : BATCH,
                                    .partial = true,
                                    .names = !list->plus || call->off == 0,
                                    .ended = &list->ended };
        list->count = 0;
        if (volume_list(call->session->args.volumes, ctx, &page, put_entry, list, err) < 0)
            return -1;
        if (list->count < page.limit)
            break;
    }
    list->ended = list->ended && !list->full;
    return 0;
}

/* ---- where a stream ended ---- */

/* 0 for streams without a number. */
static uint64_t
end_mark(uint64_t stream, uint64_t off)
{
    uint64_t mark = (stream ^ off * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;
    return stream == 0 ? 0 : mark | 1;
}

static void
note_end(const struct listing *list)
{
    const struct call *call = list->call;
    uint64_t mark = end_mark(call->fh, (uint64_t)list->last + OFF_DOTDOT);
    if (list->ended && mark != 0)
        atomic_store(&call->session->ends[call->fh % KEPT_ENDS], mark);
}

/* POSIX leaves open whether a stream shows what was made since it was opened or rewound. */
static bool
is_at_end(const struct call *call)
{
    uint64_t mark = end_mark(call->fh, call->off);
    return call->off >= OFF_DOTDOT && mark != 0 &&
           atomic_load(&call->session->ends[call->fh % KEPT_ENDS]) == mark;
}

static int
answer_listing(struct call *call, const struct volume_ctx *ctx, bool plus, struct err *err)
{
    scope_free char *to = malloc(call->size);
    struct listing list = { .call = call, .plus = plus, .to = to, .size = call->size };
    if (!to)
        return err_nomem(err);
    if (list_entries(&list, ctx, err) < 0)
        return -1;
    note_end(&list);
    return call_reply_data(call, to, list.used);
}

static int
run_readdir(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    return answer_listing(call, ctx, false, err);
}

static int
run_readdirplus(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    return answer_listing(call, ctx, true, err);
}

static void
start_listing(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi, size_t size,
              off_t off, const struct op *op)
{
    struct call call;
    call_init(&call, req, op, ino);
    call.fh = fi->fh;
    call.size = size < MAX_WRITE ? size : MAX_WRITE;
    call.off = (uint64_t)off;
    if (off < 0)
        call_reply_errno(&call, EINVAL);
    else if (is_at_end(&call))
        (void)call_reply_data(&call, NULL, 0);
    else
        call_start(&call);
}

static void
on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    static const struct op op = { "readdir", run_readdir, CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    start_listing(req, ino, fi, size, off, &op);
}

static void
on_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    static const struct op op = { "readdirplus", run_readdirplus,
                                  CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    start_listing(req, ino, fi, size, off, &op);
}

static void
on_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct session *session = session_of(req);
    uint64_t incarnation = session->args.carry ? session->args.carry->incarnation : 0;
    (void)ino;
    fi->fh = (incarnation + 1) << 40 | atomic_fetch_add(&session->next_stream, 1);
    (void)fuse_reply_open(req, fi);
}

static void
on_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    (void)fuse_reply_err(req, 0);
}

static int
run_fsyncdir(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    if (volume_fsync_dir(call->session->args.volumes, ctx, call->node, err) < 0)
        return -1;
    return call_reply_ok(call);
}

static void
on_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    static const struct op op = { "fsyncdir", run_fsyncdir, CALL_TO_STORE };
    struct call call;
    (void)datasync;
    (void)fi;
    call_init(&call, req, &op, ino);
    call_start(&call);
}

void
session_folders_ops(struct fuse_lowlevel_ops *ops)
{
    ops->opendir = on_opendir;
    ops->readdir = on_readdir;
    ops->readdirplus = on_readdirplus;
    ops->releasedir = on_releasedir;
    ops->fsyncdir = on_fsyncdir;
}
