#include "volume/walk_impl.h"

#include <stdlib.h>

#include "base/path.h"

#define BATCH 512u

struct walk_frame {
    int64_t dir;
    size_t path_len; /* of the folder's own path */
    struct glob_at at;
    struct buf names; /* of a batch, those that lead somewhere: struct name_head, then the name */
    size_t next;      /* in it */
    bool ended;       /* nothing comes behind the batch */
    bool last_known;
    uint16_t last_len;
    char last[LIMIT_NAME]; /* the last name of the batch */
    bool folders_known;
    struct index_folder *folders;
    size_t folder_count, folder_cap;
};

struct name_head {
    int64_t node;
    int64_t listed_ns; /* of one to enter */
    uint16_t len;
    bool wanted, enter;
};

static void
frame_release(struct walk_frame *frame)
{
    buf_release(&frame->names);
    free(frame->folders);
}

void
walk_close(struct walk *walk)
{
    while (walk->depth > 0)
        frame_release(&walk->frames[--walk->depth]);
    free(steal(&walk->frames));
}

static struct walk_frame *
top(const struct walk *walk)
{
    return &walk->frames[walk->depth - 1];
}

static int
push(struct walk *walk, int64_t dir, const struct glob_at *at, struct err *err)
{
    if (walk->depth == walk->cap) {
        size_t cap = walk->cap > 0 ? 2 * walk->cap : 8;
        struct walk_frame *more = realloc(walk->frames, cap * sizeof(*more));
        if (more == NULL)
            return err_nomem(err);
        walk->frames = more;
        walk->cap = cap;
    }
    struct walk_frame *frame = &walk->frames[walk->depth++];
    memset(frame, 0, sizeof(*frame));
    frame->dir = dir;
    frame->path_len = walk->path_len;
    frame->at = *at;
    buf_init(&frame->names, BATCH * (sizeof(struct name_head) + LIMIT_NAME));
    return 0;
}

static void
pop(struct walk *walk)
{
    frame_release(top(walk));
    walk->depth--;
}

/* walk->path becomes the frame's folder with this name: what it was begins with that folder's path. False: it would be too
 * long, which no path in the index is. */
static bool
set_path(struct walk *walk, const struct walk_frame *frame, const char *name, size_t len)
{
    size_t at = frame->path_len;
    if (at + 1 + len > LIMIT_PATH)
        return false;
    if (at > 0)
        walk->path[at++] = '/';
    memcpy(walk->path + at, name, len);
    walk->path_len = at + len;
    walk->path[walk->path_len] = '\0';
    return true;
}

static void
set_last(struct walk_frame *frame, const char *name, size_t len)
{
    memcpy(frame->last, name, len);
    frame->last_len = (uint16_t)len;
    frame->last_known = true;
}

/* ---- which names are folders ---- */
static int
add_folder(void *arg, const struct index_folder *folder, struct err *err)
{
    struct walk_frame *frame = arg;
    if (frame->folder_count == frame->folder_cap) {
        size_t cap = frame->folder_cap > 0 ? 2 * frame->folder_cap : 16;
        struct index_folder *more = realloc(frame->folders, cap * sizeof(*more));
        if (more == NULL)
            return err_nomem(err);
        frame->folders = more;
        frame->folder_cap = cap;
    }
    frame->folders[frame->folder_count++] = *folder;
    return 0;
}

static int
by_node(const void *key, const void *item)
{
    int64_t node = *(const int64_t *)key;
    const struct index_folder *folder = item;
    return (node > folder->node) - (node < folder->node);
}

static const struct index_folder *
find_folder(const struct walk_frame *frame, int64_t node)
{
    return frame->folder_count == 0 ? NULL
                                    : bsearch(&node, frame->folders, frame->folder_count,
                                              sizeof(*frame->folders), by_node);
}

static void
count_unlisted(struct walk *walk)
{
    if (walk->unlisted++ == 0)
        memcpy(walk->unlisted_path, walk->path, walk->path_len + 1);
}

/* Goes into the folder that walk->path names. */
static int
enter(struct walk *walk, int64_t node, int64_t listed_ns, const struct glob_at *at, struct err *err)
{
    struct index_node dir = { .listed_ns = listed_ns };
    bool listed = service_listed(walk->service, &dir);
    if (push(walk, node, at, err) != 0)
        return -1;
    if (!listed && walk->list)
        walk->to_list = node;
    else if (!listed)
        count_unlisted(walk);
    return 0;
}

int
walk_list(struct walk *walk, const struct volume_ctx *ctx, struct err *err)
{
    struct err why = ERR_INIT;
    int64_t dir = walk->to_list;
    walk->to_list = 0;
    if (bucket_list_dir(walk->service, ctx, dir, &why) == 0)
        return 0;
    if (why.code == ERR_NOMEM || why.code == ERR_CANCELED)
        return err_set(err, why.code, "%s", why.msg);
    count_unlisted(walk);
    return 0;
}

/* ---- names ---- */
struct batch {
    struct walk *walk;
    struct walk_frame *frame;
    unsigned count;
};

/* Most names lead nowhere: they are not even copied. */
static int
add_name(void *arg, int64_t node, const char *name, size_t len, struct err *err)
{
    struct batch *batch = arg;
    const struct walk *walk = batch->walk;
    struct walk_frame *frame = batch->frame;
    struct glob_at at;
    batch->count++;
    set_last(frame, name, len);
    glob_step(walk->glob, &frame->at, name, len, &at);
    bool done = glob_done(walk->glob, &at), more = glob_more(walk->glob, &at);
    if (!done && !more)
        return 0;
    const struct index_folder *folder = find_folder(frame, node);
    if (folder != NULL && (folder->flags & INDEX_NODE_NAME_HIDDEN) != 0)
        return 0;
    struct name_head head = { .node = node,
                              .listed_ns = folder != NULL ? folder->listed_ns : 0,
                              .len = (uint16_t)len,
                              .wanted = done && (folder != NULL ? walk->folders : walk->files),
                              .enter = folder != NULL && more };
    if (!head.wanted && !head.enter)
        return 0;
    return buf_append(&frame->names, &head, sizeof(head), err) < 0 ||
                   buf_append(&frame->names, name, len, err) < 0
               ? -1
               : 0;
}

static int
next_batch(struct walk *walk, struct walk_frame *frame, struct index_tx *tx, struct err *err)
{
    struct batch batch = { walk, frame, 0 };
    if (!frame->folders_known &&
        index_node_folders_brief(tx, frame->dir, add_folder, frame, err) != 0)
        return -1;
    frame->folders_known = true;
    char after[LIMIT_NAME];
    const struct index_names want = { .parent = frame->dir,
                                      .after = after,
                                      .after_len = frame->last_known ? frame->last_len : 0,
                                      .limit = BATCH };
    memcpy(after, frame->last, want.after_len);
    buf_clear(&frame->names);
    frame->next = 0;
    if (index_node_names(tx, &want, add_name, &batch, err) != 0)
        return -1;
    frame->ended = batch.count < BATCH;
    walk->names += batch.count;
    return 0;
}

/* 1: a name that leads somewhere; 0: none up to the end of the batch, behind which walk->path is. */
static int
next_name(struct walk *walk, struct index_tx *tx, struct name_head *head, const char **name,
          struct err *err)
{
    struct walk_frame *frame = top(walk);
    if (frame->next == frame->names.len && !frame->ended && next_batch(walk, frame, tx, err) != 0)
        return -1;
    if (frame->next == frame->names.len) {
        if (frame->last_known)
            (void)set_path(walk, frame, frame->last, frame->last_len);
        return 0;
    }
    memcpy(head, frame->names.data + frame->next, sizeof(*head));
    *name = frame->names.data + frame->next + sizeof(*head);
    frame->next += sizeof(*head) + head->len;
    return 1;
}

/* ---- the walk ---- */
struct step {
    struct walk *walk;
    struct index_tx *tx;
    walk_fn *fn;
    void *arg;
};

/* What a name leads to: it is given, entered, or both. `fn`'s answer comes back. */
static int
look_at(const struct step *step, const struct name_head *head, const char *name, struct err *err)
{
    struct walk *walk = step->walk;
    struct walk_frame *frame = top(walk);
    struct glob_at at;
    if (!set_path(walk, frame, name, head->len))
        return 0;
    glob_step(walk->glob, &frame->at, name, head->len, &at);
    int rc = head->wanted ? step->fn(step->arg, step->tx, head->node, err) : 0;
    if (rc >= 0 && head->enter && enter(walk, head->node, head->listed_ns, &at, err) != 0)
        return -1;
    return rc;
}

int
walk_some(struct walk *walk, struct index_tx *tx, unsigned most, walk_fn *fn, void *arg,
          struct err *err)
{
    const struct step step = { walk, tx, fn, arg };
    struct name_head head;
    const char *name;
    uint64_t begun = walk->names;
    while (walk->depth > 0) {
        if (walk->names - begun >= most || walk->to_list != 0)
            return 1;
        int rc = next_name(walk, tx, &head, &name, err);
        if (rc < 0)
            return -1;
        if (rc == 0 && top(walk)->ended)
            pop(walk);
        else if (rc == 1 && (rc = look_at(&step, &head, name, err)) != 0)
            return rc;
    }
    return 0;
}

/* ---- where it begins ---- */
struct open_call {
    struct walk *walk;
    int64_t folder;
    const char *after;
};

static int
enter_node(struct walk *walk, struct index_tx *tx, int64_t node, const struct glob_at *at,
           struct err *err)
{
    struct index_node row;
    if (index_node_get(tx, node, &row, err) != 0)
        return -1;
    return enter(walk, node, row.listed_ns, at, err);
}

/* Down the path that was given last, as far as it is still there. */
static int
open_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct open_call *call = arg;
    struct walk *walk = call->walk;
    struct glob_at at;
    struct index_node row;
    const char *rest = call->after, *name;
    size_t rest_len = strlen(rest), len;
    glob_start(walk->glob, &at);
    if (enter_node(walk, tx, call->folder, &at, err) != 0)
        return -1;
    while (path_next(&rest, &rest_len, &name, &len)) {
        struct err missing = ERR_INIT;
        struct walk_frame *frame = top(walk);
        set_last(frame, name, len);
        glob_step(walk->glob, &frame->at, name, len, &at);
        if (!set_path(walk, frame, name, len) || !glob_more(walk->glob, &at))
            break;
        if (index_node_child(tx, frame->dir, name, len, &row, &missing) != 0) {
            if (missing.code != ERR_NOT_FOUND)
                return err_set(err, missing.code, "%s", missing.msg);
            break;
        }
        if (row.kind != INDEX_DIR || (row.flags & INDEX_NODE_NAME_HIDDEN) != 0)
            break;
        if (enter(walk, row.id, row.listed_ns, &at, err) != 0)
            return -1;
    }
    return 0;
}

int
walk_open(struct walk *walk, int64_t folder, const char *after, struct err *err)
{
    struct open_call call = { walk, folder, after };
    walk->frames = NULL;
    walk->depth = walk->cap = 0;
    walk->path_len = 0;
    walk->path[0] = '\0';
    walk->to_list = 0;
    if (index_read(walk->service->index, open_tx, &call, err) == 0)
        return 0;
    walk_close(walk);
    return -1;
}
