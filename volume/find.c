#include "volume/find.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/path.h"
#include "volume/walk_impl.h"

#define CHUNK_NAMES 50000u /* in one read transaction */
#define CHUNK_FOUND 256u
#define PATIENCE (5 * NS_PER_S)

struct found {
    char path[LIMIT_PATH + 1]; /* below the folder */
    struct volume_attr attr;
};

struct find_call {
    const struct volume_find *want;
    struct walk walk;
    struct found *found; /* CHUNK_FOUND */
    size_t count;        /* of them */
    unsigned given;
    bool full; /* one more than the limit is there */
    bool ended;
    char last[LIMIT_PATH + 1];
};

static bool
is_wanted(const struct volume_find *want, const struct index_node *node,
          const struct volume_attr *attr)
{
    if ((node->flags & INDEX_NODE_NAME_HIDDEN) != 0)
        return false;
    if (want->newer_ns != 0 && attr->mtime_ns <= want->newer_ns)
        return false;
    return !want->by_size || (attr->kind != INDEX_DIR && attr->size > want->larger);
}

/* Size and time of a file that nobody has here are those of its row. */
static int
may_be_wanted(const struct volume_find *want, struct index_tx *tx, int64_t id, struct err *err)
{
    struct index_brief brief;
    if (want->newer_ns == 0 && !want->by_size)
        return 1;
    if (index_node_brief(tx, id, &brief, err) != 0)
        return -1;
    if (brief.content != 0 || (brief.flags & INDEX_NODE_LINK) != 0)
        return 1;
    return (want->newer_ns == 0 || brief.mtime_ns > want->newer_ns) &&
           (!want->by_size || brief.size > want->larger);
}

/* In the transaction: a row becomes a result, or does not. */
static int
look(void *arg, struct index_tx *tx, int64_t id, struct err *err)
{
    struct find_call *call = arg;
    struct index_node node;
    struct found *found = &call->found[call->count];
    int rc = may_be_wanted(call->want, tx, id, err);
    if (rc <= 0)
        return rc;
    if (index_node_get(tx, id, &node, err) != 0 || attr_fill(tx, &node, &found->attr, err) != 0)
        return -1;
    if (!is_wanted(call->want, &node, &found->attr))
        return 0;
    memcpy(found->path, call->walk.path, call->walk.path_len + 1);
    call->count++;
    return call->count == CHUNK_FOUND || call->given + call->count > call->want->limit;
}

static int
find_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct find_call *call = arg;
    int rc = walk_some(&call->walk, tx, CHUNK_NAMES, look, call, err);
    call->ended = rc == 0;
    return rc < 0 ? -1 : 0;
}

static int
whole_path(const struct volume_find *want, const char *below, char out[LIMIT_PATH + 1],
           struct err *err)
{
    bool both = want->folder[0] != '\0' && below[0] != '\0';
    int len = snprintf(out, LIMIT_PATH + 1, "%s%s%s", want->folder, both ? "/" : "", below);
    if (len < 0 || len > LIMIT_PATH)
        return err_set(err, ERR_NAME_TOO_LONG, "a path is longer than %d bytes", LIMIT_PATH);
    return 0;
}

static int
give(struct find_call *call, const struct volume_ctx *ctx, struct err *err)
{
    char path[LIMIT_PATH + 1];
    for (size_t i = 0; i < call->count; i++) {
        struct found *found = &call->found[i];
        struct err gone = ERR_INIT;
        if (call->given == call->want->limit) {
            call->full = true;
            return 0;
        }
        if (found->attr.writing && attr_live(call->walk.service, ctx, &found->attr, &gone) != 0) {
            if (gone.code == ERR_NOT_FOUND)
                continue; /* removed since the row was read */
            return err_set(err, gone.code, "%s", gone.msg);
        }
        if (whole_path(call->want, found->path, path, err) != 0)
            return -1;
        int rc = call->want->fn(call->want->arg, path, &found->attr, err);
        if (rc < 0)
            return -1;
        if (rc > 0) {
            call->full = true;
            return 0;
        }
        call->given++;
        text_copy(call->last, sizeof(call->last), found->path);
    }
    return 0;
}

static int
run(struct find_call *call, const struct volume_ctx *ctx, struct err *err)
{
    const struct volume_find *want = call->want;
    int64_t end_ns = clock_mono_ns() + (want->patience_ns > 0 ? want->patience_ns : PATIENCE);
    while (!call->ended) {
        call->count = 0;
        if (call->walk.to_list != 0 && walk_list(&call->walk, ctx, err) != 0)
            return -1;
        if (index_read(call->walk.service->index, find_tx, call, err) != 0 ||
            give(call, ctx, err) != 0)
            return -1;
        if (call->full)
            return 0;
        /* Everything up to here was looked at. */
        if (call->walk.path_len > 0)
            text_copy(call->last, sizeof(call->last), call->walk.path);
        if (clock_mono_ns() >= end_ns)
            return 0;
    }
    return 0;
}

static int
tell(const struct find_call *call, struct volume_find_result *out, struct err *err)
{
    const struct walk *walk = &call->walk;
    out->more = call->full || !call->ended;
    text_copy(out->last, sizeof(out->last), call->last);
    out->names = walk->names;
    out->unlisted = walk->unlisted;
    out->unlisted_path[0] = '\0';
    return walk->unlisted > 0 ? whole_path(call->want, walk->unlisted_path, out->unlisted_path, err)
                              : 0;
}

static int
begin(struct find_call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_attr attr;
    const struct volume_find *want = call->want;
    if (path_check(want->after, strlen(want->after), err) != 0 ||
        volume_resolve(call->walk.service, ctx, want->volume, want->folder, &attr, err) != 0)
        return -1;
    if (attr.kind != INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "'%s' is not a folder", want->folder);
    text_copy(call->last, sizeof(call->last), want->after);
    return walk_open(&call->walk, attr.node, want->after, err);
}

int
volume_find_paths(struct volume_service *service, const struct volume_ctx *ctx,
                  const struct volume_find *want, struct volume_find_result *out, struct err *err)
{
    scope_glob *glob = NULL;
    if (glob_compile(want->glob, strlen(want->glob), &glob, err) < 0)
        return -1;
    scope_free struct found *found = calloc(CHUNK_FOUND, sizeof(*found));
    scope_free struct find_call *call = calloc(1, sizeof(*call));
    if (found == NULL || call == NULL)
        return err_nomem(err);
    bool all = want->kinds == 0;
    *call = (struct find_call){ .want = want, .found = found };
    call->walk = (struct walk){ .service = service,
                                .glob = glob,
                                .files = all || (want->kinds & VOLUME_FIND_FILES) != 0,
                                .folders = all || (want->kinds & VOLUME_FIND_DIRS) != 0,
                                .list = want->list };
    if (begin(call, ctx, err) != 0)
        return -1;
    int rc = run(call, ctx, err);
    if (rc == 0)
        rc = tell(call, out, err);
    walk_close(&call->walk);
    return rc;
}
