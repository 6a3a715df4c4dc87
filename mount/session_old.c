/* `.holdfast/at/` and `.holdfast/versions/`: requests for their inodes, answered by session_past.c and session_versions.c. Nothing here ever changes,
 * so kernels may believe it for long; what a number stands for is known as long as a kernel has it, and not by a later gateway (ESTALE). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/scope.h"
#include "mount/session_old_impl.h"
#include "mount/session_virtual_impl.h"

/* ---- state ---- */

int
session_old_init(struct session *session, struct err *err)
{
    struct old_place *root = &session->at.root;
    const struct session_past *past = session->args.past;
    pthread_mutex_init(&session->at.mutex, NULL);
    if (past) {
        root->kind = OLD_PAST;
        root->at_ns = past->at_ns;
        (void)snprintf(root->text, sizeof(root->text), "%s", past->name);
        (void)snprintf(root->path, sizeof(root->path), "%s", past->path);
        session->args.past = NULL; /* the caller's */
    }
    return number_table_init(&session->at.numbers, err);
}

void
session_old_release(struct session *session)
{
    session_versions_release(session);
    number_table_release(&session->at.numbers);
    pthread_mutex_destroy(&session->at.mutex);
}

int
session_old_folder(struct session *session, char *out, size_t size, struct err *err)
{
    out[0] = '\0';
    if (session->args.root == session->args.volume_root)
        return 0;
    return volume_path(session->args.volumes, session->args.root, out, size, err);
}

/* ---- numbers ---- */

bool
session_old_is_root(fuse_req_t req, fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID && session_of(req)->at.root.kind == OLD_PAST;
}

bool
session_old_is(fuse_req_t req, fuse_ino_t ino)
{
    enum virtual_kind kind = virtual_is(ino) ? virtual_place(ino).kind : VIRTUAL_NONE;
    return kind == VIRTUAL_AT || kind == VIRTUAL_VERSIONS || kind == VIRTUAL_OLD ||
           session_old_is_root(req, ino);
}

static uint64_t
ino_of(uint64_t number)
{
    return virtual_ino(&(struct virtual_place){ .kind = VIRTUAL_OLD, .id = number });
}

static bool
known(struct session *session, uint64_t number, struct old_place *out)
{
    char name[OLD_NAME_MAX];
    ssize_t len = number_name(&session->at.numbers, number, name, sizeof(name));
    return len >= 0 && (size_t)len < sizeof(name) && old_parse(name, (size_t)len, out);
}

/* Of a mount that is a past as a whole the next gateway knows where to look: everything in it has its number from then on. */
static int
know_all(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct session_at *state = &call->session->at;
    if (state->root.kind != OLD_PAST || !call->session->adopted || atomic_load(&state->all_known))
        return 0;
    int rc = session_past_number_all(call, ctx, &state->root, err);
    if (rc == 0)
        atomic_store(&state->all_known, true);
    return rc;
}

/* OLD_LATER also when it has answered: ESTALE, nobody knows the number. `.holdfast/at` itself is a past without a text. */
static int
find_place(struct call *call, const struct volume_ctx *ctx, struct old_place *out, struct err *err)
{
    struct virtual_place place = session_virtual_place(call);
    if (place.kind == VIRTUAL_OLD) {
        if (known(call->session, place.id, out))
            return 0;
        int rc = know_all(call, ctx, err);
        if (rc != 0 || known(call->session, place.id, out))
            return rc;
        call_reply_errno(call, ESTALE);
        return OLD_LATER;
    }
    if (call->session->at.root.kind == OLD_PAST) {
        *out = call->session->at.root;
        return 0;
    }
    memset(out, 0, sizeof(*out));
    out->kind = place.kind == VIRTUAL_AT ? OLD_PAST : OLD_PATH;
    return place.kind == VIRTUAL_AT
               ? 0
               : session_old_folder(call->session, out->path, sizeof(out->path), err);
}

static bool
is_at(const struct old_place *place)
{
    return place->kind == OLD_PAST && place->text[0] == '\0';
}

/* What is in memory mostly is tried at once. */
static enum virtual_speed
speed_of(struct session *session, uint64_t ino)
{
    char first = 0;
    struct virtual_place place = virtual_place(ino);
    if (place.kind == VIRTUAL_OLD)
        (void)number_name(&session->at.numbers, place.id, &first, 1);
    return place.kind == VIRTUAL_VERSIONS || first == 'v' ? MAY_TAKE_TIME : AT_ONCE;
}

static int
give(struct session *session, const struct old_place *place, struct fuse_entry_param *entry,
     struct err *err)
{
    char name[OLD_NAME_MAX];
    uint64_t number;
    uint32_t check;
    if (number_give(&session->at.numbers, name, old_name(place, name), &number, &check, err) < 0)
        return -1;
    entry->ino = entry->attr.st_ino = ino_of(number);
    entry->generation = check;
    return 0;
}

static void
take_back(struct session *session, uint64_t ino)
{
    number_forget(&session->at.numbers, virtual_place(ino).id, 1);
}

void
session_old_forget(struct session *session, uint64_t ino, uint64_t count)
{
    struct virtual_place place = virtual_place(ino);
    if (virtual_is(ino) && place.kind == VIRTUAL_OLD)
        number_forget(&session->at.numbers, place.id, count);
}

/* ---- lookup ---- */

static int
reply_entry(struct call *call, const struct old_entry *found, struct err *err)
{
    struct fuse_entry_param entry = { .attr = found->st,
                                      .entry_timeout = found->entry_timeout,
                                      .attr_timeout = found->attr_timeout };
    if (give(call->session, &found->place, &entry, err) < 0)
        return -1;
    if (!call_claim(call) || fuse_reply_entry(call->req, &entry) < 0)
        take_back(call->session, entry.ino);
    return 0;
}

static int
reply_absent(struct call *call)
{
    struct fuse_entry_param entry = { .ino = 0, .entry_timeout = TIMEOUT_MAX };
    if (call_claim(call))
        (void)fuse_reply_entry(call->req, &entry);
    return 0;
}

static int
run_lookup(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct old_place parent;
    struct err why = ERR_INIT;
    scope_free struct old_entry *found = calloc(1, sizeof(*found));
    if (!found)
        return err_nomem(err);
    int rc = find_place(call, ctx, &parent, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (parent.kind == OLD_PAST)
        rc = session_past_lookup(call, ctx, is_at(&parent) ? NULL : &parent, found, &why);
    else
        rc = session_versions_lookup(call, ctx, &parent, found, &why);
    if (rc == OLD_LATER)
        return 0;
    if (rc == 0)
        return reply_entry(call, found, err);
    if (why.code == ERR_NOT_FOUND && parent.kind == OLD_PAST && !is_at(&parent))
        return reply_absent(call);
    *err = why;
    return -1;
}

void
session_old_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    OPS("lookup", run_lookup);
    struct call call;
    call_init(&call, req, &ops[speed_of(session_of(req), parent)], parent);
    call.name = name;
    call_start(&call);
}

/* ---- attributes ---- */

static int
run_getattr(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct old_place place;
    struct stat st;
    int rc = find_place(call, ctx, &place, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    rc = place.kind == OLD_PAST ? session_past_stat(call, ctx, &place, &st, err)
                                : session_versions_stat(call, ctx, &place, &st, err);
    if (rc != 0)
        return rc == OLD_LATER ? 0 : -1;
    st.st_ino = ino_of_node(call->node, call->session->args.root);
    if (call_claim(call))
        (void)fuse_reply_attr(call->req, &st,
                              place.kind == OLD_PATH ? OLD_PATH_TIMEOUT : TIMEOUT_MAX);
    return 0;
}

void
session_old_getattr(fuse_req_t req, fuse_ino_t ino)
{
    OPS("getattr", run_getattr);
    struct call call;
    call_init(&call, req, &ops[speed_of(session_of(req), ino)], ino);
    call_start(&call);
}

/* ---- bytes ---- */

static int
read_place(struct call *call, const struct volume_ctx *ctx, char *out, size_t *got, struct err *err)
{
    struct old_place place;
    int rc = find_place(call, ctx, &place, err);
    if (rc != 0)
        return rc < 0 ? -1 : OLD_LATER;
    if (place.kind == OLD_PATH)
        return err_set(err, ERR_IS_DIR, "a folder");
    return place.kind == OLD_PAST ? session_past_read(call, ctx, &place, out, got, err)
                                  : session_versions_read(call, ctx, &place, out, got, err);
}

static int
run_read(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    size_t got = 0;
    scope_free char *out = malloc(call->size);
    if (!out)
        return err_nomem(err);
    int rc = read_place(call, ctx, out, &got, err);
    if (rc != 0)
        return rc == OLD_LATER ? 0 : -1;
    return call_reply_data(call, out, got);
}

void
session_old_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off)
{
    static const struct op op = { "read", run_read, CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    struct call call;
    call_init(&call, req, &op, ino);
    call.size = size < MAX_WRITE ? size : MAX_WRITE;
    call.off = (uint64_t)off;
    call_start(&call);
}

static int
run_readlink(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    size_t got = 0;
    char target[LIMIT_SYMLINK + 1];
    int rc = read_place(call, ctx, target, &got, err);
    if (rc != 0)
        return rc == OLD_LATER ? 0 : -1;
    target[got] = '\0';
    if (call_claim(call))
        (void)fuse_reply_readlink(call->req, target);
    return 0;
}

void
session_old_readlink(fuse_req_t req, fuse_ino_t ino)
{
    static const struct op op = { "readlink", run_readlink, CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    struct call call;
    call_init(&call, req, &op, ino);
    call.size = LIMIT_SYMLINK;
    call_start(&call);
}

/* An open that says ESTALE is tried once more by the kernel, with new lookups: better than a read that fails. */
static bool
is_stale(struct session *session, uint64_t ino)
{
    char first;
    struct virtual_place place = virtual_place(ino);
    return place.kind == VIRTUAL_OLD && session->at.root.kind != OLD_PAST &&
           number_name(&session->at.numbers, place.id, &first, 1) < 0;
}

/* The kernel keeps the pages: these bytes never change. */
void
session_old_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi)
{
    struct fuse_file_info answer = { .keep_cache = 1, .noflush = 1 };
    if ((fi->flags & O_ACCMODE) != O_RDONLY || fi->flags & O_TRUNC)
        (void)fuse_reply_err(req, EROFS);
    else if (is_stale(session_of(req), ino))
        (void)fuse_reply_err(req, ESTALE);
    else
        (void)fuse_reply_open(req, &answer);
}

/* ---- folders ---- */

#define OFF_DOTS 2 /* of "." and ".." */
#define ENTRY_PLUS_MIN 160u

struct listing {
    struct call *call;
    bool plus;
    char *to;
    size_t used;
    uint64_t *given;
    size_t given_count;
    struct err err;
};

static bool
put(struct listing *list, const char *name, const struct fuse_entry_param *entry, off_t next)
{
    char *to = list->to + list->used;
    size_t room = list->call->size - list->used;
    fuse_req_t req = list->call->req;
    size_t wanted = list->plus ? fuse_add_direntry_plus(req, to, room, name, entry, next)
                               : fuse_add_direntry(req, to, room, name, &entry->attr, next);
    list->used += wanted > room ? 0 : wanted;
    return wanted <= room;
}

static int
put_child(void *arg, const struct old_child *child, size_t next)
{
    struct listing *list = arg;
    char name[OLD_NAME_MAX];
    uint64_t number;
    struct fuse_entry_param entry = { .attr = child->st,
                                      .entry_timeout = TIMEOUT_MAX,
                                      .attr_timeout = TIMEOUT_MAX };
    if (list->plus && child->has_st) {
        if (give(list->call->session, &child->place, &entry, &list->err) < 0)
            return -1;
    } else {
        size_t len = old_name(&child->place, name);
        if (number_of(len > 0 ? name : child->name, len > 0 ? len : strlen(child->name), &number,
                      &list->err) < 0)
            return -1;
        entry.attr.st_ino = ino_of(number);
    }
    bool done = put(list, child->name, &entry, (off_t)next + OFF_DOTS);
    if (entry.ino != 0 && done)
        list->given[list->given_count++] = entry.ino;
    else if (entry.ino != 0)
        take_back(list->call->session, entry.ino);
    return done ? 0 : 1;
}

static void
put_dots(struct listing *list)
{
    struct fuse_entry_param dot = { .ino = 0 };
    dot.attr.st_mode = S_IFDIR;
    dot.attr.st_ino = ino_of_node(list->call->node, list->call->session->args.root);
    if (list->call->off < 1)
        (void)put(list, ".", &dot, 1);
    if (list->call->off < OFF_DOTS)
        (void)put(list, "..", &dot, OFF_DOTS);
}

static void
take_all_back(struct listing *list)
{
    while (list->given_count > 0)
        take_back(list->call->session, list->given[--list->given_count]);
}

static int
fill(struct listing *list, const struct volume_ctx *ctx, struct err *err)
{
    struct call *call = list->call;
    struct old_place dir;
    struct old_list_args args = { .at = call->off > OFF_DOTS ? (size_t)call->off - OFF_DOTS : 0,
                                  .fn = put_child,
                                  .arg = list };
    int rc = find_place(call, ctx, &dir, err);
    if (rc != 0)
        return rc < 0 ? -1 : OLD_LATER;
    put_dots(list);
    if (is_at(&dir))
        rc = session_past_texts(call, &args, err);
    else if (dir.kind == OLD_PAST)
        rc = session_past_list(call, ctx, &dir, &args, err);
    else
        rc = session_versions_list(call, ctx, &dir, &args, err);
    if (rc == 0 && list->err.code != 0) {
        *err = list->err;
        rc = -1;
    }
    return rc;
}

static int
answer_list(struct call *call, const struct volume_ctx *ctx, bool plus, struct err *err)
{
    scope_free char *to = malloc(call->size);
    scope_free uint64_t *given = calloc(call->size / ENTRY_PLUS_MIN + 1, sizeof(*given));
    struct listing list = { .call = call, .plus = plus, .to = to, .given = given };
    if (!to || !given)
        return err_nomem(err);
    int rc = fill(&list, ctx, err);
    if (rc == 0 && call_claim(call) && fuse_reply_buf(call->req, to, list.used) == 0)
        return 0;
    take_all_back(&list);
    return rc < 0 ? -1 : 0;
}

static int
run_readdir(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    return answer_list(call, ctx, false, err);
}

static int
run_readdirplus(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    return answer_list(call, ctx, true, err);
}

void
session_old_readdir(fuse_req_t req, fuse_ino_t ino, const struct virtual_stream *stream)
{
    OPS("readdir", run_readdir);
    static const struct op plus_ops[] = {
        [AT_ONCE] = { "readdirplus", run_readdirplus, CALL_AT_ONCE | CALL_INTERRUPTIBLE },
        [MAY_TAKE_TIME] = { "readdirplus", run_readdirplus, CALL_INTERRUPTIBLE },
    };
    struct call call;
    enum virtual_speed speed = speed_of(session_of(req), ino);
    call_init(&call, req, stream->plus ? &plus_ops[speed] : &ops[speed], ino);
    call.size = stream->size < MAX_WRITE ? stream->size : MAX_WRITE;
    call.off = (uint64_t)stream->off;
    call.fh = stream->fh;
    if (stream->off < 0)
        call_reply_errno(&call, EINVAL);
    else
        call_start(&call);
}

void
session_old_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct session *session = session_of(req);
    uint64_t incarnation = session->args.carry ? session->args.carry->incarnation : 0;
    if (is_stale(session, ino)) {
        (void)fuse_reply_err(req, ESTALE);
        return;
    }
    fi->fh = (incarnation + 1) << 40 | atomic_fetch_add(&session->next_stream, 1);
    (void)fuse_reply_open(req, fi);
}

void
session_old_releasedir(fuse_req_t req, const struct fuse_file_info *fi)
{
    session_versions_closedir(session_of(req), fi->fh);
    (void)fuse_reply_err(req, 0);
}
