#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/scope.h"
#include "volume/history_impl.h"

/*
 * The plan of volume_undo(). What a run did stands in three tables: versions that it wrote, versions that ended by it, and what it did
 * to names. For each file the state before the run's first change is wanted again, and only where the state of now is the one that
 * the run left. Order of the steps: files that it made go, its renames are taken back (last first), folders come back, then bytes,
 * and at last the folders that it made go if they are empty.
 */

struct undo_file {
    int64_t node;
    int64_t first_id;            /* of its first version by this run */
    char last[ULID_SIZE];        /* the newest version of this run */
    char base[ULID_SIZE];        /* what the first one was made from */
    char path[LIMIT_PATH + 1];   /* of the last version */
    bool has_before, covered;    /* covered: another step does it */
    struct index_history before; /* the version before the run's first */
};

struct undo {
    struct volume_service *service;
    const struct volume_restore *want;
    struct index_tx *tx;
    struct index_volume volume;
    struct restore_plan *plan;
    struct undo_nodes nodes;
    struct undo_file *file;
    size_t file_count, file_cap;
    struct index_change *change;
    size_t change_count, change_cap;
    struct index_history *gone;
    size_t gone_count, gone_cap;
    /* Changes: renames that are taken back, in this order; `gone`: what they named was removed by the run too, or is back, so they
     * count for where things were before only. */
    struct undo_back {
        size_t change;
        bool gone;
    } * back;
    size_t back_count;
    char **placed; /* where the planned renames have put things, as of the last of them */
    size_t placed_count, placed_cap;
};

#define GROW(list, count, cap, err) \
    ((count) < (cap) || undo_grow((void **)&(list), &(cap), sizeof(*(list)), (err)) == 0)

static int
undo_grow(void **list, size_t *cap, size_t size, struct err *err)
{
    size_t more = *cap == 0 ? 64 : *cap * 2;
    void *grown = reallocarray(*list, more, size);
    if (grown == NULL)
        return err_nomem(err);
    *list = grown;
    *cap = more;
    return 0;
}

/* ---- what is known of the run ---- */

static int
add_version(void *arg, const struct index_version *row, struct err *err)
{
    struct undo *call = arg;
    if (row->volume != call->want->volume || row->node == 0)
        return 0;
    struct undo_node *node = undo_nodes_add(&call->nodes, row->node, err);
    if (node == NULL)
        return -1;
    if (node->file == 0) {
        if (!GROW(call->file, call->file_count, call->file_cap, err))
            return -1;
        node->file = ++call->file_count;
        struct undo_file *first = &call->file[node->file - 1];
        *first = (struct undo_file){ .node = row->node, .first_id = row->id };
        text_set(first->base, row->base_version);
    }
    struct undo_file *file = &call->file[node->file - 1];
    text_set(file->last, row->version);
    text_set(file->path, row->path);
    return 0;
}

static int
add_change(void *arg, const struct index_change *row, struct err *err)
{
    struct undo *call = arg;
    if (row->volume != call->want->volume || row->node == 0)
        return 0;
    struct undo_node *node = undo_nodes_add(&call->nodes, row->node, err);
    if (node == NULL || !GROW(call->change, call->change_count, call->change_cap, err))
        return -1;
    node->made = node->made || strcmp(row->op, "make") == 0;
    node->removed = node->removed || strcmp(row->op, "delete") == 0;
    call->change[call->change_count++] = *row;
    return 0;
}

static int
add_gone(void *arg, const struct index_history *row, struct err *err)
{
    struct undo *call = arg;
    if (row->volume != call->want->volume || !history_is_kept(row) || row->node == 0)
        return 0;
    struct undo_node *node = undo_nodes_add(&call->nodes, row->node, err);
    if (node == NULL || !GROW(call->gone, call->gone_count, call->gone_cap, err))
        return -1;
    call->gone[call->gone_count++] = *row;
    /* The oldest: one that was staged may end before one that was made earlier. */
    if (node->gone == 0 || row->made_ns < call->gone[node->gone - 1].made_ns)
        node->gone = call->gone_count;
    return 0;
}

/* The first version of this file that ended by the run; NULL: none. */
static const struct index_history *
first_gone(const struct undo *call, int64_t node)
{
    size_t at = undo_nodes_get(&call->nodes, node)->gone;
    return at > 0 ? &call->gone[at - 1] : NULL;
}

static struct undo_file *
file_of(const struct undo *call, int64_t node)
{
    size_t at = undo_nodes_get(&call->nodes, node)->file;
    return at > 0 ? &call->file[at - 1] : NULL;
}

/* Whether the run made this file, link or folder: before it there was nothing. */
static bool
is_made(const struct undo *call, int64_t node)
{
    const struct index_history *before = first_gone(call, node);
    const struct undo_file *file = file_of(call, node);
    if (undo_nodes_get(&call->nodes, node)->made)
        return true;
    return file != NULL && file->base[0] == '\0' &&
           (before == NULL || strcmp(before->run, call->want->run) == 0);
}

/* ---- names, as they will be once renames are taken back ---- */

static bool
replace_prefix(const char *path, const char *from, const char *to, char out[LIMIT_PATH + 1])
{
    size_t len = strlen(from);
    if (strncmp(path, from, len) != 0 || (path[len] != '\0' && path[len] != '/'))
        return false;
    int all = snprintf(out, LIMIT_PATH + 1, "%s%s", to, path + len);
    return all >= 0 && all <= LIMIT_PATH;
}

#define NOW INT64_MAX

/* A path of now, or of the moment of the change `then`, after the renames that are planned. */
static void
after_back(const struct undo *call, int64_t then, const char *path, char out[LIMIT_PATH + 1])
{
    char next[LIMIT_PATH + 1];
    text_copy(out, LIMIT_PATH + 1, path);
    for (size_t i = 0; i < call->back_count; i++) {
        const struct index_change *rename = &call->change[call->back[i].change];
        if (rename->id < then && !(call->back[i].gone && then == NOW) &&
            replace_prefix(out, rename->to_path, rename->path, next))
            memcpy(out, next, sizeof(next));
    }
}

/* And where that is now. */
static void
before_back(const struct undo *call, const char *path, char out[LIMIT_PATH + 1])
{
    char next[LIMIT_PATH + 1];
    text_copy(out, LIMIT_PATH + 1, path);
    for (size_t i = call->back_count; i-- > 0;) {
        const struct index_change *rename = &call->change[call->back[i].change];
        if (!call->back[i].gone && replace_prefix(out, rename->path, rename->to_path, next))
            memcpy(out, next, sizeof(next));
    }
}

/* 1: there, 0: not, -1. */
static int
look_at(struct undo *call, const char *path, struct index_node *out, struct err *err)
{
    struct err missing = ERR_INIT;
    if (history_node_at(call->tx, &call->volume, path, out, &missing) == 0)
        return 1;
    if (missing.code == ERR_NOT_FOUND)
        return 0;
    *err = missing;
    return -1;
}

static int
get_node(struct undo *call, int64_t id, struct index_node *out, char path[LIMIT_PATH + 1],
         struct err *err)
{
    struct err missing = ERR_INIT;
    if (index_node_get(call->tx, id, out, &missing) == 0 && (out->flags & INDEX_NODE_ORPHAN) == 0)
        return index_node_path(call->tx, id, path, LIMIT_PATH + 1, err) == 0 ? 1 : -1;
    if (missing.code == ERR_NOT_FOUND || (out->flags & INDEX_NODE_ORPHAN) != 0)
        return 0;
    *err = missing;
    return -1;
}

/* ---- steps ---- */

/* Who made the present version, for the line that says why nothing is done. */
static int
skip_changed(struct undo *call, const char *path, const struct index_node *node, struct err *err)
{
    struct index_version made;
    struct err ignored = ERR_INIT;
    const char *who = "somebody";
    if (node->version[0] != '\0' &&
        index_version_find(call->tx, node->version, &made, &ignored) == 0)
        who = made.run[0] != '\0' ? made.run : made.actor[0] != '\0' ? made.actor : who;
    return restore_skip(call->plan, path, err, "changed since by %s", who);
}

/* Whether nothing came after what the run left: no version in the bucket and no bytes staged here. */
static int
is_still(struct undo *call, const struct index_node *node, const char *version, bool *out,
         struct err *err)
{
    char now[LIMIT_ETAG], then[LIMIT_ETAG];
    if (history_origin_of_node(call->tx, node, now, err) != 0 ||
        history_origin(call->tx, version, then, err) != 0)
        return -1;
    *out = now[0] != '\0' && strcmp(now, then) == 0;
    return 0;
}

/* Whether a file has the bytes from before the run already: an undo that was cut off, or done before, does nothing twice. */
static bool
is_back(const struct undo *call, const struct index_node *node, const struct index_history *before)
{
    struct index_content content;
    struct index_version made;
    struct err ignored = ERR_INIT;
    if (before == NULL || before->sha256[0] == '\0' || node->version[0] == '\0')
        return false;
    if (node->content != 0 &&
        (index_content_get(call->tx, node->content, &content, &ignored) != 0 ||
         content.state != CONTENT_CLEAN))
        return false;
    return index_version_find(call->tx, node->version, &made, &ignored) == 0 &&
           strcmp(made.sha256, before->sha256) == 0;
}

static int
plan_bytes(struct undo *call, enum volume_restore_action action, const char *path,
           const struct index_history *from, const char *expect, struct err *err)
{
    struct restore_step *step = restore_add(call->plan, action, path, NULL, err);
    if (step == NULL)
        return -1;
    text_set(step->copy, from->id);
    text_set(step->version, from->version[0] != '\0' ? from->version : from->source_etag);
    text_set(step->expect, expect);
    step->size = from->size;
    return 0;
}

/* A file that the run made stands where another one has to go back to. */
static int
make_room(struct undo *call, const char *path, const struct index_node *taken, bool *out,
          struct err *err)
{
    struct undo_file *own = file_of(call, taken->id);
    *out = false;
    if (own == NULL || own->covered || first_gone(call, taken->id) != NULL)
        return 0;
    if (is_still(call, taken, own->last, out, err) != 0)
        return -1;
    if (!*out)
        return 0;
    struct restore_step *step = restore_add(call->plan, VOLUME_RESTORE_REMOVE, path, NULL, err);
    if (step == NULL)
        return -1;
    text_set(step->expect, own->last);
    own->covered = true;
    return 0;
}

/* Plans a rename; what earlier ones have put below `from` goes along. */
static int
add_rename(struct undo *call, const char *from, const char *to, struct err *err)
{
    char next[LIMIT_PATH + 1];
    if (restore_add(call->plan, VOLUME_RESTORE_RENAME, from, to, err) == NULL ||
        !GROW(call->placed, call->placed_count, call->placed_cap, err))
        return -1;
    call->placed[call->placed_count] = strdup(to);
    if (call->placed[call->placed_count++] == NULL)
        return err_nomem(err);
    for (size_t i = 0; i + 1 < call->placed_count; i++) {
        if (!replace_prefix(call->placed[i], from, to, next))
            continue;
        free(call->placed[i]);
        call->placed[i] = strdup(next);
        if (call->placed[i] == NULL)
            return err_nomem(err);
    }
    return 0;
}

/* A folder that the run renamed and then removed: where something has been put below its last name on its way back, another folder
 * stands in for it, and goes on to where it was. */
static int
plan_stand_in(struct undo *call, const struct index_change *row, bool *moved, struct err *err)
{
    struct index_node taken;
    char now[LIMIT_PATH + 1], rest[LIMIT_PATH + 1];
    *moved = false;
    for (size_t i = 0; i < call->placed_count && !*moved && S_ISDIR(row->mode); i++)
        *moved = replace_prefix(call->placed[i], row->to_path, "", rest) && rest[0] == '/';
    if (!*moved)
        return 0;
    before_back(call, row->to_path, now);
    int there = look_at(call, now, &taken, err);
    if (there != 0) {
        *moved = false; /* it went into a folder of somebody's */
        return there < 0 ? -1 : 0;
    }
    return add_rename(call, row->to_path, row->path, err);
}

/* Whether a file is where it was before the run already: back by itself, or by an undo before this one. */
static bool
is_home(const struct undo *call, const struct index_change *row, const char *path)
{
    char at[LIMIT_PATH + 1], next[LIMIT_PATH + 1];
    text_set(at, row->path);
    while (row-- > call->change)
        if (strcmp(row->op, "rename") == 0 && replace_prefix(at, row->to_path, row->path, next))
            memcpy(at, next, sizeof(next));
    return strcmp(at, path) == 0;
}

enum { RENAME_LEFT, RENAME_BACK, RENAME_HOME };

/* Takes one rename back, unless its former name is taken, or it was moved since, or is back (HOME). */
static int
plan_rename(struct undo *call, const struct index_change *row, const struct index_node *node,
            const char *path, struct err *err)
{
    struct index_node taken;
    char simulated[LIMIT_PATH + 1], now[LIMIT_PATH + 1];
    after_back(call, NOW, path, simulated);
    if (strcmp(simulated, row->to_path) != 0) {
        if (is_home(call, row, simulated))
            return RENAME_HOME;
        return restore_skip(call->plan, path, err, "moved since") != 0 ? -1 : RENAME_LEFT;
    }
    before_back(call, row->path, now);
    int there = look_at(call, now, &taken, err);
    if (there < 0)
        return -1;
    bool free = there == 0 || taken.id == node->id;
    if (!free && make_room(call, row->path, &taken, &free, err) != 0)
        return -1;
    if (free)
        return add_rename(call, row->to_path, row->path, err) != 0 ? -1 : RENAME_BACK;
    return restore_skip(call->plan, path, err, "its former name '%s' is taken", row->path) != 0
               ? -1
               : RENAME_LEFT;
}

/* The run renamed it: back, the last rename first. What it made goes from where it is, but for folders, which may hold older files. */
static int
plan_renames(struct undo *call, struct err *err)
{
    call->back = calloc(call->change_count + 1, sizeof(*call->back));
    if (call->back == NULL)
        return err_nomem(err);
    for (size_t i = call->change_count; i-- > 0;) {
        const struct index_change *row = &call->change[i];
        struct index_node node;
        char path[LIMIT_PATH + 1];
        bool moved = false;
        if (strcmp(row->op, "rename") != 0)
            continue;
        int there = get_node(call, row->node, &node, path, err);
        if (there < 0 || (there == 0 && plan_stand_in(call, row, &moved, err) != 0))
            return -1;
        if (there > 0 && node.kind != INDEX_DIR && is_made(call, node.id))
            continue;
        int done = there > 0 ? plan_rename(call, row, &node, path, err)
                   : moved   ? RENAME_BACK
                             : RENAME_HOME;
        if (done < 0)
            return -1;
        if (done != RENAME_LEFT)
            call->back[call->back_count++] = (struct undo_back){ i, done == RENAME_HOME };
    }
    return 0;
}

/* The run removed it: it comes back with the bytes from before the run. Where the run put another file at the name, that one gets
 * the bytes. */
static int
plan_removed(struct undo *call, const struct index_change *row, struct err *err)
{
    const struct index_history *before = first_gone(call, row->node);
    struct index_node taken;
    char path[LIMIT_PATH + 1], now[LIMIT_PATH + 1], later[LIMIT_PATH + 1];
    bool still;
    after_back(call, row->id, row->path, path);
    if (is_made(call, row->node))
        return 0;
    if (before == NULL)
        return row->version[0] == '\0' && row->key[0] == '\0'
                   ? 0
                   : restore_skip(call->plan, path, err, "what was removed is not kept any more");
    before_back(call, path, now);
    int there = look_at(call, now, &taken, err);
    if (there < 0)
        return -1;
    after_back(call, NOW, now, later);
    if (there == 0 || strcmp(later, path) != 0) /* free, or it goes back to where it came from */
        return plan_bytes(call, VOLUME_RESTORE_CREATE, path, before, "", err);
    if (is_back(call, &taken, before))
        return 0;
    struct undo_file *own = file_of(call, taken.id);
    if (own == NULL)
        return restore_skip(call->plan, path, err, "the name is taken by another file");
    if (is_still(call, &taken, own->last, &still, err) != 0)
        return -1;
    if (!still)
        return skip_changed(call, path, &taken, err);
    own->covered = true;
    return plan_bytes(call, VOLUME_RESTORE_WRITE, path, before, own->last, err);
}

/* Whether this version of the file ended by the run itself. */
static bool
ended_by_run(const struct undo *call, const struct undo_file *file)
{
    if (undo_nodes_get(&call->nodes, file->node)->removed)
        return true;
    const struct index_history *end = call->gone_count > 0 ? call->gone + call->gone_count : NULL;
    for (const struct index_history *gone = first_gone(call, file->node);
         gone != NULL && gone < end; gone++)
        if (gone->node == file->node && strcmp(gone->version, file->last) == 0)
            return true;
    return false;
}

/* The file that the run wrote is no more: others removed it, or put another one in its place, as a save by rename does. */
static int
plan_lost(struct undo *call, const struct undo_file *file, bool made, struct err *err)
{
    struct index_node taken;
    char path[LIMIT_PATH + 1], now[LIMIT_PATH + 1];
    if (ended_by_run(call, file))
        return 0; /* told where it ended */
    after_back(call, NOW, file->path, path);
    before_back(call, path, now);
    int there = look_at(call, now, &taken, err);
    if (there < 0)
        return -1;
    if (there > 0)
        return file_of(call, taken.id) != NULL ||
                       is_back(call, &taken, first_gone(call, file->node))
                   ? 0
                   : skip_changed(call, path, &taken, err);
    return made ? 0 : restore_skip(call->plan, path, err, "removed since");
}

static int
plan_written(struct undo *call, struct undo_file *file, struct err *err)
{
    const struct index_history *before = first_gone(call, file->node);
    struct index_node node;
    char path[LIMIT_PATH + 1], later[LIMIT_PATH + 1];
    bool still;
    if (file->covered)
        return 0;
    bool made = before == NULL || strcmp(before->run, call->want->run) == 0;
    int there = get_node(call, file->node, &node, path, err);
    if (there <= 0)
        return there < 0 ? -1 : plan_lost(call, file, is_made(call, file->node), err);
    after_back(call, NOW, path, later);
    if (is_still(call, &node, file->last, &still, err) != 0)
        return -1;
    if (!still)
        return !made && is_back(call, &node, before) ? 0 : skip_changed(call, later, &node, err);
    if (!made)
        return plan_bytes(call, VOLUME_RESTORE_WRITE, later, before, file->last, err);
    if (file->base[0] != '\0')
        return restore_skip(call->plan, later, err, "the version before is not kept any more");
    struct restore_step *step = restore_add(call->plan, VOLUME_RESTORE_REMOVE, later, NULL, err);
    if (step == NULL)
        return -1;
    text_set(step->expect, file->last);
    return 0;
}

/* Symlinks and folders that the run made. */
static int
plan_made(struct undo *call, const struct index_change *row, struct err *err)
{
    struct index_node node;
    char path[LIMIT_PATH + 1], later[LIMIT_PATH + 1];
    int there = get_node(call, row->node, &node, path, err);
    if (there <= 0)
        return there;
    after_back(call, NOW, path, later);
    bool dir = S_ISDIR(row->mode);
    return restore_add(call->plan, dir ? VOLUME_RESTORE_RMDIR : VOLUME_RESTORE_REMOVE, later, NULL,
                       err) != NULL
               ? 0
               : -1;
}

static int
plan_folder_back(struct undo *call, const struct index_change *row, struct err *err)
{
    struct index_node taken;
    char path[LIMIT_PATH + 1], now[LIMIT_PATH + 1];
    if (is_made(call, row->node))
        return 0;
    after_back(call, row->id, row->path, path);
    before_back(call, path, now);
    int there = look_at(call, now, &taken, err);
    if (there != 0)
        return there < 0 ? -1 : 0;
    struct restore_step *step = restore_add(call->plan, VOLUME_RESTORE_MKDIR, path, NULL, err);
    if (step == NULL)
        return -1;
    step->mode = row->mode;
    return 0;
}

static int
plan_changes(struct undo *call, const char *op, bool last_first,
             int (*plan)(struct undo *, const struct index_change *, struct err *), struct err *err)
{
    for (size_t i = 0; i < call->change_count; i++) {
        size_t at = last_first ? call->change_count - 1 - i : i;
        if (strcmp(call->change[at].op, op) == 0 && plan(call, &call->change[at], err) != 0)
            return -1;
    }
    return 0;
}

static int
plan_links(struct undo *call, const struct index_change *row, struct err *err)
{
    return S_ISDIR(row->mode) ? 0 : plan_made(call, row, err);
}

static int
plan_folders(struct undo *call, const struct index_change *row, struct err *err)
{
    return S_ISDIR(row->mode) ? plan_made(call, row, err) : 0;
}

/* What lies in a folder has the longer path. */
static int
longest_first(const void *a, const void *b)
{
    const struct restore_step *x = a, *y = b;
    size_t x_len = strlen(x->path), y_len = strlen(y->path);
    return x_len < y_len ? 1 : x_len > y_len ? -1 : 0;
}

static int
plan_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct undo *call = arg;
    const char *run = call->want->run;
    call->tx = tx;
    if (index_volume_get(tx, call->want->volume, &call->volume, err) != 0 ||
        index_version_of_run(tx, run, add_version, call, err) != 0 ||
        index_change_of_run(tx, run, add_change, call, err) != 0 ||
        index_history_of_run(tx, run, add_gone, call, err) != 0)
        return -1;
    if (call->file_count == 0 && call->change_count == 0 && call->gone_count == 0)
        return err_set(err, ERR_NOT_FOUND, "nothing is known of a run '%s' in this volume", run);
    if (plan_renames(call, err) != 0 ||
        plan_changes(call, "rmdir", true, plan_folder_back, err) != 0 ||
        plan_changes(call, "delete", false, plan_removed, err) != 0)
        return -1;
    for (size_t i = 0; i < call->file_count; i++)
        if (plan_written(call, &call->file[i], err) != 0)
            return -1;
    if (plan_changes(call, "make", true, plan_links, err) != 0)
        return -1;
    size_t folders = call->plan->count;
    if (plan_changes(call, "make", true, plan_folders, err) != 0)
        return -1;
    if (call->plan->count > folders + 1)
        qsort(&call->plan->step[folders], call->plan->count - folders, sizeof(*call->plan->step),
              longest_first);
    return 0;
}

int
volume_undo(struct volume_service *service, const struct volume_ctx *ctx,
            const struct volume_restore *want, struct volume_restore_result *out, struct err *err)
{
    struct restore_plan plan = { 0 };
    struct undo call = { .service = service, .want = want, .plan = &plan };
    struct volume_barrier barrier;
    if (want->run == NULL || want->run[0] == '\0')
        return err_set(err, ERR_INVAL, "say which run is to be undone");
    if (volume_flush_quietly(service, want->volume, service_deadline(ctx), &barrier, err) != 0)
        return err_wrap(err, "nothing was undone");
    int rc = index_read(service->index, plan_tx, &call, err);
    if (rc == 0)
        rc = restore_do(service, ctx, want, &plan, "undo", out, err);
    restore_release(&plan);
    undo_nodes_release(&call.nodes);
    free(call.file);
    free(call.change);
    free(call.gone);
    free(call.back);
    for (size_t i = 0; i < call.placed_count; i++)
        free(call.placed[i]);
    free(call.placed);
    return rc;
}
