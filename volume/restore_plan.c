#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/scope.h"
#include "volume/history_impl.h"
#include "volume/past.h"

/*
 * The plan of volume_restore(): a file to a version, or all that lies or lay below a folder to a time: the volume of then against that
 * of now (volume/past.h).
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
    struct volume_history_want which = { .volume = want->volume,
                                         .path = want->path,
                                         .within = want->within };
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

static int
plan_copy(struct planning *call, const struct volume_past_difference *what, struct err *err)
{
    const struct volume_past_entry *then = what->then, *now = what->now;
    if (now != NULL && now->kind == INDEX_DIR)
        return restore_skip(call->plan, then->path, err, "a folder has its name now");
    if (then->copy[0] == '\0')
        return restore_skip(call->plan, then->path, err, "its bytes are another file's now");
    struct restore_step *step =
        restore_add(call->plan, now != NULL ? VOLUME_RESTORE_WRITE : VOLUME_RESTORE_CREATE,
                    then->path, NULL, err);
    if (step == NULL)
        return -1;
    text_set(step->copy, then->copy);
    text_set(step->version, then->version);
    text_set(step->expect, now != NULL ? now->version : "");
    step->size = then->size;
    return 0;
}

/* The way back from a difference. */
static int
plan_difference(void *arg, const struct volume_past_difference *what, struct err *err)
{
    struct planning *call = arg;
    struct restore_step *step = NULL;
    switch (what->change) {
    case VOLUME_PAST_CHANGED:
        return plan_copy(call, what, err);
    case VOLUME_PAST_REMOVED:
        if (what->then->kind != INDEX_DIR)
            return plan_copy(call, what, err);
        if (what->then->node == 0)
            return 0; /* it comes with what lies in it */
        step = restore_add(call->plan, VOLUME_RESTORE_MKDIR, what->then->path, NULL, err);
        if (step != NULL)
            step->mode = what->then->mode;
        break;
    case VOLUME_PAST_MOVED:
        step =
            restore_add(call->plan, VOLUME_RESTORE_RENAME, what->now->path, what->then->path, err);
        break;
    case VOLUME_PAST_ADDED:
        step = restore_add(
            call->plan, what->now->kind == INDEX_DIR ? VOLUME_RESTORE_RMDIR : VOLUME_RESTORE_REMOVE,
            what->now->path, NULL, err);
        if (step != NULL)
            text_set(step->expect, what->now->version);
        break;
    }
    return step != NULL ? 0 : -1;
}

/* All that was changed before is in the bucket, and what it replaced in the history, before the plan is made. */
static int
plan_folder(struct planning *call, struct err *err)
{
    const struct volume_restore *want = call->want;
    struct volume_past *then = NULL, *now = NULL;
    struct volume_barrier barrier;
    if (volume_flush_quietly(call->service, want->volume, service_deadline(call->ctx), &barrier,
                             err) != 0)
        return err_wrap(err, "nothing was restored");
    int64_t now_ns = clock_wall_ns();
    int rc = volume_past_open(call->service, want->volume, want->at_ns, &then, err);
    if (rc == 0)
        rc = volume_past_open(call->service, want->volume, now_ns, &now, err);
    if (rc == 0) {
        call->known = volume_past_find(then, want->path) != NULL;
        rc = volume_past_diff(then, now, want->path, plan_difference, call, err);
    }
    volume_past_close(then);
    volume_past_close(now);
    return rc;
}

/* ---- what was removed with its folder ---- */

static int
see_gone(void *arg, const struct volume_version *version, struct err *err)
{
    struct planning *call = arg;
    struct volume_version nothing = { .present = false };
    call->known = true;
    return plan_version(call, version->path, version, &nothing, err);
}

static int
plan_removed(struct planning *call, struct err *err)
{
    struct volume_history_want below = { .volume = call->want->volume, .path = call->want->path };
    return volume_trash_each(call->service, call->ctx, &below, see_gone, call, err);
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
    else if (want->at_ns == 0)
        rc = plan_removed(&call, err);
    else
        rc = plan_folder(&call, err);
    if (rc == 0 && !file && !was.found && dir == 0 && !call.known)
        rc =
            err_set(err, ERR_NOT_FOUND, "nothing is known of '%s', now or in the past", want->path);
    if (rc == 0)
        rc = restore_do(service, ctx, want, &plan, "restore", out, err);
    restore_release(&plan);
    return rc;
}
