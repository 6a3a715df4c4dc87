#include <linux/fs.h>

#include "base/path.h"
#include "base/scope.h"
#include "volume/audit.h"
#include "volume/form_impl.h"
#include "volume/link_impl.h"
#include "volume/move_impl.h"
#include "volume/preserve_impl.h"
#include "volume/reads_impl.h"

/* Renames: one index transaction, whatever lies below; the objects follow (docs/mechanisms.md section 7). */

struct rename_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    const struct volume_name *from, *to;
    unsigned flags;
    struct index_node moved, target;
    bool has_target;
    int64_t moved_inode, target_inode; /* the files that they are names of, or themselves */
    struct below_move below;
    struct index_node
        left; /* the file that the target was a name of, when it has others; id 0: none */
    struct drop_list drop;
    bool replayed;
    bool nothing;
    char path[LIMIT_PATH + 1], to_path[LIMIT_PATH + 1];
};

/* Its own key has its work at once; what lies below a folder gets it from a worker. */
static int
want_moved(struct index_tx *tx, const struct index_node *node, struct err *err)
{
    char key[LIMIT_KEY + 1];
    if (node->kind == INDEX_DIR && move_want(tx, node, err) != 0)
        return -1;
    if (node->kind == INDEX_DIR && (node->flags & INDEX_NODE_MARKER) == 0)
        return 0;
    if (key_of_node(tx, node, key, err) != 0)
        return -1;
    return key_want_sync(tx, node->volume, key, 0, err);
}

/* Whether `dir` is `node` or lies below it. */
static int
check_no_loop(struct index_tx *tx, int64_t dir, int64_t node, struct err *err)
{
    struct index_node row;
    for (unsigned depth = 0; dir != 0 && depth <= LIMIT_PATH_DEPTH; depth++) {
        if (dir == node)
            return err_set(err, ERR_INVAL, "a folder cannot be moved into itself");
        if (index_node_get(tx, dir, &row, err) != 0)
            return -1;
        dir = row.parent;
    }
    return 0;
}

static int
check_target(struct index_tx *tx, struct rename_call *call, struct err *err)
{
    bool children = false;
    if ((call->flags & RENAME_NOREPLACE) != 0)
        return err_set(err, ERR_EXISTS, "'%s' exists", call->target.name);
    if ((call->flags & RENAME_EXCHANGE) != 0)
        return check_no_loop(tx, call->from->parent, call->target.id, err);
    if (call->target.kind == INDEX_DIR && call->moved.kind != INDEX_DIR)
        return err_set(err, ERR_IS_DIR, "'%s' is a folder", call->target.name);
    if (call->target.kind != INDEX_DIR && call->moved.kind == INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "'%s' is not a folder", call->target.name);
    if (call->target.kind == INDEX_DIR &&
        index_node_has_children(tx, call->target.id, &children, err) != 0)
        return -1;
    return children ? err_set(err, ERR_NOT_EMPTY, "folder '%s' is not empty", call->target.name)
                    : 0;
}

static int
place(struct index_tx *tx, struct index_node *node, const struct volume_name *at, struct err *err)
{
    node->parent = at->parent;
    node->name_len = (uint16_t)at->len;
    memset(node->name, 0, sizeof(node->name));
    memcpy(node->name, at->name, at->len);
    node->ctime_ns = clock_wall_ns();
    return index_node_update(tx, node, err);
}

static int
exchange(struct index_tx *tx, struct rename_call *call, struct err *err)
{
    /* Two rows cannot hold one name even for a moment: park the first under a name nobody can type. */
    struct volume_name aside = { .parent = call->from->parent, .name = "\x01/exchange", .len = 10 };
    char old_key[LIMIT_KEY + 1];
    if (key_of_node(tx, &call->target, old_key, err) != 0 ||
        key_want_sync(tx, call->target.volume, old_key, 0, err) != 0)
        return -1;
    if (place(tx, &call->moved, &aside, err) != 0 ||
        place(tx, &call->target, call->from, err) != 0 ||
        place(tx, &call->moved, call->to, err) != 0)
        return -1;
    return want_moved(tx, &call->target, err);
}

/* What the target was a name of goes on under its other names. */
static int
replace_target(struct index_tx *tx, struct rename_call *call, struct index_node *target,
               struct err *err)
{
    bool left = (target->flags & (INDEX_NODE_LINK | INDEX_NODE_LINKED)) != 0;
    if (inode_open_count(&call->service->inodes, target->id) == 0 &&
        conflict_pass_base(tx, target, &call->moved, err) != 0)
        return -1;
    if (node_unname(call->service, tx, target, true, &call->drop, err) != 0)
        return -1;
    return left ? index_node_get(tx, call->target_inode, &call->left, err) : 0;
}

/* Its end comes first: the name is free when the other one takes it. */
static int
note_replaced(struct index_tx *tx, const struct rename_call *call, struct err *err)
{
    bool dir = call->target.kind == INDEX_DIR;
    return change_note(tx, call->ctx, dir ? CHANGE_RMDIR : CHANGE_DELETE, &call->target, NULL, err);
}

/* Before the rows change. */
static int
note_rename(struct index_tx *tx, const struct rename_call *call, const struct index_node *node,
            const struct volume_name *to, struct err *err)
{
    char path[LIMIT_PATH + 1];
    if (!change_wanted(call->ctx, CHANGE_RENAME, node))
        return 0;
    if (index_node_path(tx, to->parent, path, sizeof(path), err) != 0)
        return -1;
    size_t len = strlen(path);
    int more = snprintf(path + len, sizeof(path) - len, "%s%.*s", len > 0 ? "/" : "", (int)to->len,
                        to->name);
    if (more < 0 || (size_t)more >= sizeof(path) - len)
        return err_set(err, ERR_NAME_TOO_LONG, "the path would be too long");
    return change_note(tx, call->ctx, CHANGE_RENAME, node, path, err);
}

static int
rename_rows(struct index_tx *tx, struct rename_call *call, struct err *err)
{
    char old_key[LIMIT_KEY + 1];
    bool exchanged = call->has_target && (call->flags & RENAME_EXCHANGE) != 0;
    if (key_of_node(tx, &call->moved, old_key, err) != 0 ||
        (call->has_target && !exchanged && note_replaced(tx, call, err) != 0) ||
        note_rename(tx, call, &call->moved, call->to, err) != 0 ||
        (exchanged && note_rename(tx, call, &call->target, call->from, err) != 0))
        return -1;
    if (exchanged) {
        if (exchange(tx, call, err) != 0)
            return -1;
    } else {
        struct index_node gone = call->target;
        if (call->has_target && replace_target(tx, call, &gone, err) != 0)
            return -1;
        if (place(tx, &call->moved, call->to, err) != 0)
            return -1;
    }
    if (call->moved_inode != call->moved.id && link_touch_inode(tx, call->moved_inode, err) != 0)
        return -1;
    if (want_moved(tx, &call->moved, err) != 0 ||
        key_want_sync(tx, call->moved.volume, old_key, 0, err) != 0 ||
        node_touch_dir(tx, call->from->parent, err) != 0 ||
        node_touch_dir(tx, call->to->parent, err) != 0)
        return -1;
    return node_keep_empty(tx, call->from->parent, err);
}

static bool
moves_folder(const struct rename_call *call)
{
    bool exchange = call->has_target && (call->flags & RENAME_EXCHANGE) != 0;
    return call->moved.kind == INDEX_DIR || (exchange && call->target.kind == INDEX_DIR);
}

static int
rename_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct rename_call *call = arg;
    struct index_node to_dir;
    struct index_volume volume;
    struct err missing = ERR_INIT;
    call->replayed = answer_replay(tx, call->ctx, NULL);
    if (call->replayed)
        return 0;
    rest_begin(call->service, call->ctx, tx);
    if (node_parent_writable(call->service, tx, call->ctx, call->from->parent, err) != 0 ||
        index_node_child(tx, call->from->parent, call->from->name, call->from->len, &call->moved,
                         err) != 0 ||
        index_node_get(tx, call->to->parent, &to_dir, err) != 0 ||
        index_volume_get(tx, to_dir.volume, &volume, err) != 0)
        return -1;
    if (to_dir.volume != call->moved.volume)
        return err_set(err, ERR_CROSS_DEVICE, "a move between volumes is a copy");
    if (to_dir.kind != INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "not a folder");
    if (node_name_reserved(&volume, call->to))
        return err_set(err, ERR_PERM, "the name '.holdfast' is taken by Holdfast itself here");
    if (form_check(call->service, tx, call->to, err) != 0)
        return -1;
    if (call->moved.kind == INDEX_DIR &&
        check_no_loop(tx, call->to->parent, call->moved.id, err) != 0)
        return -1;
    call->has_target = index_node_child(tx, call->to->parent, call->to->name, call->to->len,
                                        &call->target, &missing) == 0;
    if (!call->has_target && missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    if (!call->has_target && (call->flags & RENAME_EXCHANGE) != 0)
        return err_set(err, ERR_NOT_FOUND, "no such file to exchange with");
    if (link_inode_of(tx, &call->moved, &call->moved_inode, err) != 0 ||
        (call->has_target && link_inode_of(tx, &call->target, &call->target_inode, err) != 0))
        return -1;
    /* Names of one file: POSIX. */
    call->nothing = call->has_target && call->target_inode == call->moved_inode;
    if (call->nothing)
        return 0;
    if ((call->has_target && check_target(tx, call, err) != 0) ||
        (moves_folder(call) && below_fits(tx, &call->below, err) != 0) ||
        index_node_path(tx, call->moved.id, call->path, sizeof(call->path), err) != 0 ||
        rename_rows(tx, call, err) != 0 ||
        index_node_path(tx, call->moved.id, call->to_path, sizeof(call->to_path), err) != 0)
        return -1;
    return answer_record(tx, call->ctx, NULL, err);
}

static int
know_both(const struct rename_call *call, struct err *err)
{
    struct volume_attr attr;
    struct err local = ERR_INIT;
    if (volume_lookup(
            call->service, call->ctx,
            &(struct volume_name){ call->from->parent, call->from->name, call->from->len }, &attr,
            err) != 0)
        return -1;
    if (volume_lookup(call->service, call->ctx,
                      &(struct volume_name){ call->to->parent, call->to->name, call->to->len },
                      &attr, &local) != 0) {
        if (local.code == ERR_NOT_FOUND)
            return 0;
        *err = local;
        return -1;
    }
    return attr.kind == INDEX_DIR ? node_know_folder(call->service, call->ctx, attr.node, err) : 0;
}

/* What one reading of the index tells before the change. */
struct survey {
    const struct rename_call *rename;
    bool unsure;  /* the bucket has to be asked about one of the names */
    bool folder;  /* what moves is one, or is not known */
    int64_t keep; /* the node whose bytes have to be durable first, 0: nothing */
};

static bool
is_kept(struct index_tx *tx, const struct index_node *node)
{
    struct index_content content;
    struct err ignored = ERR_INIT;
    if (node->key[0] != '\0')
        return true;
    return node->content != 0 && index_content_get(tx, node->content, &content, &ignored) == 0 &&
           (content.flags & CONTENT_DURABLE) != 0;
}

/* The name may not lose a version that survives a power cut to one that does not: its bytes reach the disk first. */
static int64_t
must_keep(struct index_tx *tx, const struct index_node *moved, const struct index_node *target)
{
    struct index_content content;
    struct err ignored = ERR_INIT;
    if (moved->kind != INDEX_FILE || target->kind != INDEX_FILE || !is_kept(tx, target) ||
        moved->content == 0 || index_content_get(tx, moved->content, &content, &ignored) != 0)
        return 0;
    bool lasts = content.state == CONTENT_CLEAN || (content.flags & CONTENT_DURABLE) != 0;
    return lasts ? 0 : moved->id;
}

static int
survey_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct survey *survey = arg;
    const struct rename_call *call = survey->rename;
    const struct volume_name *from = call->from, *to = call->to;
    struct index_node moved, target, dir;
    struct err ignored = ERR_INIT;
    bool found = index_node_child(tx, from->parent, from->name, from->len, &moved, &ignored) == 0;
    bool taken = index_node_child(tx, to->parent, to->name, to->len, &target, &ignored) == 0;
    survey->folder = !found || moved.kind == INDEX_DIR ||
                     ((call->flags & RENAME_EXCHANGE) != 0 && taken && target.kind == INDEX_DIR);
    survey->unsure =
        !found || (moved.flags & (INDEX_NODE_META_UNKNOWN | INDEX_NODE_NAME_HIDDEN)) != 0;
    if (taken)
        survey->unsure |= !node_is_known(call->service, &target);
    else
        survey->unsure |= index_node_get(tx, to->parent, &dir, &ignored) != 0 ||
                          !service_listed_lately(call->service, &dir);
    bool replaces = (call->flags & (RENAME_EXCHANGE | RENAME_NOREPLACE)) == 0;
    if ((found && link_resolve(tx, &moved, err) != 0) ||
        (taken && link_resolve(tx, &target, err) != 0))
        return -1;
    survey->keep = found && taken && replaces ? must_keep(tx, &moved, &target) : 0;
    return 0;
}

static int
prepare(struct rename_call *call, struct err *err)
{
    struct survey survey = { .rename = call };
    struct index *index = call->service->index;
    if (index_read(index, survey_tx, &survey, err) != 0)
        return -1;
    if (survey.unsure &&
        (know_both(call, err) != 0 || index_read(index, survey_tx, &survey, err) != 0))
        return -1;
    if (survey.folder && below_know(&call->below, err) != 0)
        return -1;
    return survey.keep == 0 ? 0 : close_keep(call->service, survey.keep, err);
}

static void
tell_target(const struct rename_call *call)
{
    if (!call->has_target || call->target.id == call->moved.id)
        return;
    bool exchanged = (call->flags & RENAME_EXCHANGE) != 0; /* then the row has its new name */
    reads_changed(call->service, call->target.id, call->ctx->run);
    if (exchanged)
        reads_changed(call->service, call->moved.id, call->ctx->run);
    event_emit(call->service, exchanged ? VOLUME_EVENT_CREATED : VOLUME_EVENT_REMOVED,
               &call->target, call->ctx->connection);
    if (call->left.id != 0)
        event_emit(call->service, VOLUME_EVENT_CHANGED, &call->left, call->ctx->connection);
}

static void
note_done(const struct rename_call *call)
{
    bool exchanged = call->has_target && (call->flags & RENAME_EXCHANGE) != 0;
    volume_audit_act(
        call->service, call->ctx,
        (struct audit_record){ .verb = exchanged ? "exchange" : "rename",
                               .volume = call->moved.volume,
                               .path = call->path,
                               .to = call->to_path,
                               .before = call->has_target ? call->target.version : NULL,
                               .after = call->moved.version,
                               .bytes = -1 });
}

int
volume_rename(struct volume_service *service, const struct volume_ctx *ctx,
              const struct volume_name *from, const struct volume_name *to, unsigned flags,
              struct err *err)
{
    struct rename_call call = {
        .service = service,
        .ctx = ctx,
        .from = from,
        .to = to,
        .flags = flags,
        .below = { .service = service,
                   .ctx = ctx,
                   .from = from,
                   .to = to,
                   .exchange = (flags & RENAME_EXCHANGE) != 0 },
    };
    if ((flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) != 0 ||
        (flags & (RENAME_NOREPLACE | RENAME_EXCHANGE)) == (RENAME_NOREPLACE | RENAME_EXCHANGE))
        return err_set(err, ERR_INVAL, "unknown rename flags %#x", flags);
    if (path_check_name(to->name, to->len, err) != 0 ||
        (!answer_waits(service, ctx) && prepare(&call, err) != 0))
        return -1;
    int rc = index_write(service->index, INDEX_NORMAL, rename_tx, &call, err);
    if (rc == 0)
        drop_run(service, &call.drop);
    free(call.drop.number);
    if (rc == 0 && !call.replayed && !call.nothing) {
        call.moved.id = call.moved_inode;
        call.target.id = call.target_inode;
        struct index_node old = call.moved;
        old.parent = from->parent;
        (void)snprintf(old.name, sizeof(old.name), "%.*s", (int)from->len, from->name);
        renamed_note(service, &call.moved);
        note_done(&call);
        if (call.has_target && (flags & RENAME_EXCHANGE) != 0)
            renamed_note(service, &call.target);
        rest_kick(service, ctx);
        event_emit(service, VOLUME_EVENT_RENAMED, &old, ctx->connection);
        tell_target(&call);
        event_emit(service, VOLUME_EVENT_CREATED, &call.moved, ctx->connection);
        event_settle(service, ctx);
    }
    return rc;
}
