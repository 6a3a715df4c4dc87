#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/scope.h"
#include "volume/history_impl.h"

/*
 * The plan of volume_restore(): a file to a version, or all that lies or lay below a folder to a time. By paths: what was renamed since
 * is at its old path again as a copy of its bytes, and goes from the new one.
 */

struct planning {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    const struct volume_restore *want;
    struct restore_plan *plan;
    struct index_tx *tx;
    struct index_volume volume;
    bool known; /* anything was found */
};

/* ---- one file ---- */

static int
plan_version(struct planning *call, const char *path, const struct volume_version *version,
             const struct volume_version *present, struct err *err)
{
    bool there = present->present;
    /* As it was already: no step, and nothing that was in the way. */
    if (version->id[0] == '\0' ||
        (there && version->sha256[0] != '\0' && strcmp(version->sha256, present->sha256) == 0))
        return 0;
    struct restore_step *step = restore_add(
        call->plan, there ? VOLUME_RESTORE_WRITE : VOLUME_RESTORE_CREATE, path, NULL, err);
    if (step == NULL)
        return -1;
    text_set(step->copy, version->id);
    text_set(step->version, version->version);
    text_set(step->expect, present->version);
    step->size = version->size;
    return 0;
}

struct two {
    struct volume_version *present, *last;
};

static int
first_two(void *arg, const struct volume_version *version, struct err *err)
{
    struct two *two = arg;
    (void)err;
    if (version->present)
        *two->present = *version;
    else
        *two->last = *version;
    return version->present ? 0 : 1;
}

static int
plan_file(struct planning *call, struct err *err)
{
    const struct volume_restore *want = call->want;
    struct volume_history_want which = { .volume = want->volume, .path = want->path };
    scope_free struct volume_version *version = calloc(2, sizeof(*version));
    if (version == NULL)
        return err_nomem(err);
    struct two two = { .present = &version[0], .last = &version[1] };
    struct volume_version *chosen = two.last;
    if (volume_history_each(call->service, call->ctx, &which, first_two, &two, err) != 0)
        return -1;
    if (want->version != NULL) {
        if (volume_history_find(call->service, call->ctx, &which, want->version, chosen, err) != 0)
            return -1;
    } else if (want->at_ns != 0) {
        struct err local = ERR_INIT;
        if (volume_history_at(call->service, call->ctx, &which, want->at_ns, chosen, &local) != 0) {
            if (local.code != ERR_NOT_FOUND || !two.present->present)
                return err_set(err, local.code, "%s", local.msg);
            struct restore_step *step =
                restore_add(call->plan, VOLUME_RESTORE_REMOVE, want->path, NULL, err);
            if (step == NULL)
                return -1;
            text_set(step->expect, two.present->version);
            return 0;
        }
        if (chosen->present)
            chosen->id[0] = '\0';
    } else if (chosen->id[0] == '\0') {
        return err_set(err, ERR_NOT_FOUND, "'%s' has no older version that is kept", want->path);
    }
    return plan_version(call, want->path, chosen, two.present, err);
}

/* ---- a folder ---- */

struct walk_call {
    struct planning *plan;
    int64_t dir, after;
    unsigned seen;
    char **path; /* files of this folder */
    size_t count, cap;
    int64_t *todo;
    size_t todo_count, todo_cap;
    char prefix[LIMIT_PATH + 1];
};

#define SLICE 512u

static int
add_path(struct walk_call *call, const char *path, struct err *err)
{
    if (call->count == call->cap) {
        size_t cap = call->cap == 0 ? 256 : call->cap * 2;
        char **grown = reallocarray(call->path, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        call->path = grown;
        call->cap = cap;
    }
    call->path[call->count] = strdup(path);
    return call->path[call->count++] != NULL ? 0 : err_nomem(err);
}

static int
see_child(void *arg, const struct index_node *node, struct err *err)
{
    struct walk_call *call = arg;
    char path[LIMIT_PATH + 1];
    call->after = node->id;
    call->seen++;
    if (node->kind == INDEX_DIR) {
        if (call->todo_count == call->todo_cap) {
            size_t cap = call->todo_cap == 0 ? 64 : call->todo_cap * 2;
            int64_t *grown = reallocarray(call->todo, cap, sizeof(*grown));
            if (grown == NULL)
                return err_nomem(err);
            call->todo = grown;
            call->todo_cap = cap;
        }
        call->todo[call->todo_count++] = node->id;
        return 0;
    }
    int len = snprintf(path, sizeof(path), "%s%s%s", call->prefix,
                       call->prefix[0] != '\0' ? "/" : "", node->name);
    return len >= 0 && (size_t)len < sizeof(path) ? add_path(call, path, err) : 0;
}

static int
slice_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct walk_call *call = arg;
    struct err missing = ERR_INIT;
    call->seen = 0;
    if (index_node_path(tx, call->dir, call->prefix, sizeof(call->prefix), &missing) != 0)
        return missing.code == ERR_NOT_FOUND ? 0 : err_set(err, missing.code, "%s", missing.msg);
    return index_node_children(tx, call->dir, call->after, SLICE, see_child, call, err);
}

/* The paths of all files below a folder, as the index has them, in slices: nobody waits for a long reading. */
static int
walk(struct walk_call *call, int64_t top, struct err *err)
{
    call->dir = top;
    for (;;) {
        call->after = 0;
        do {
            if (index_read(call->plan->service->index, slice_tx, call, err) != 0)
                return -1;
        } while (call->seen == SLICE);
        if (call->todo_count == 0)
            return 0;
        call->dir = call->todo[--call->todo_count];
    }
}

static int
see_gone(void *arg, const struct volume_version *version, struct err *err)
{
    return add_path(arg, version->path, err);
}

static int
by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int
plan_path(struct planning *call, const char *path, struct err *err)
{
    struct volume_restore one = *call->want;
    struct planning file = *call;
    struct err local = ERR_INIT;
    one.path = path;
    file.want = &one;
    if (plan_file(&file, &local) != 0) {
        if (local.code == ERR_NOT_FOUND) /* neither then nor now */
            return 0;
        *err = local;
        return -1;
    }
    call->known = true;
    return 0;
}

static int
plan_folder(struct planning *call, int64_t dir, struct err *err)
{
    const struct volume_restore *want = call->want;
    struct volume_history_want below = { .volume = want->volume, .path = want->path };
    struct walk_call walking = { .plan = call };
    int rc = dir != 0 ? walk(&walking, dir, err) : 0;
    if (rc == 0)
        rc = volume_trash_each(call->service, call->ctx, &below, see_gone, &walking, err);
    if (rc == 0 && walking.count > 1)
        qsort(walking.path, walking.count, sizeof(char *), by_text);
    for (size_t i = 0; i < walking.count; i++) {
        if (rc == 0)
            rc = plan_path(call, walking.path[i], err);
        free(walking.path[i]);
    }
    free(walking.path);
    free(walking.todo);
    return rc;
}

/* ---- both ---- */

static int
find_place(struct planning *call, int64_t *dir, bool *file, struct err *err)
{
    const struct volume_restore *want = call->want;
    struct volume_attr attr;
    struct err local = ERR_INIT;
    *dir = 0;
    *file = false;
    if (volume_resolve(call->service, call->ctx, want->volume, want->path, &attr, &local) == 0) {
        *file = attr.kind != INDEX_DIR;
        *dir = attr.kind == INDEX_DIR ? attr.node : 0;
        return 0;
    }
    if (local.code == ERR_NOT_FOUND || local.code == ERR_NOT_DIR)
        return 0;
    *err = local;
    return -1;
}

static int
is_file_row(void *arg, const struct index_history *row, struct err *err)
{
    (void)row;
    (void)err;
    *(bool *)arg = true;
    return 1;
}

struct was_file {
    const struct volume_restore *want;
    bool found;
};

static int
was_file_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct was_file *call = arg;
    return index_history_at(tx, call->want->volume, call->want->path, 1, is_file_row, &call->found,
                            err);
}

int
volume_restore(struct volume_service *service, const struct volume_ctx *ctx,
               const struct volume_restore *want, struct volume_restore_result *out,
               struct err *err)
{
    struct restore_plan plan = { 0 };
    struct planning call = { .service = service, .ctx = ctx, .want = want, .plan = &plan };
    struct was_file was = { .want = want };
    int64_t dir;
    bool file;
    if (find_place(&call, &dir, &file, err) != 0 ||
        index_read(service->index, was_file_tx, &was, err) != 0)
        return -1;
    int rc;
    if (file || (dir == 0 && was.found))
        rc = plan_file(&call, err);
    else if (want->version != NULL)
        rc = err_set(err, ERR_INVAL, "a folder has no versions: say a time");
    else if (want->at_ns == 0 && dir != 0)
        rc = err_set(err, ERR_INVAL, "say to what time the folder is to be restored");
    else
        rc = plan_folder(&call, dir, err);
    if (rc == 0 && !file && !was.found && dir == 0 && !call.known)
        rc =
            err_set(err, ERR_NOT_FOUND, "nothing is known of '%s', now or in the past", want->path);
    if (rc == 0)
        rc = restore_do(service, ctx, want, &plan, "restore", out, err);
    restore_release(&plan);
    return rc;
}
