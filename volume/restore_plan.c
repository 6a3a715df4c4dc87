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

struct file_now {
    const struct volume_past_entry *entry;
};

/* A volume then and now, and which entries of now are taken care of. */
struct comparing {
    struct planning *plan;
    struct volume_past *then, *now;
    struct file_now *by_node;
    size_t node_count;
    char **taken; /* paths of now that are renamed back */
    size_t taken_count, taken_cap;
};

static bool
is_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    return len == 0 || (strncmp(path, folder, len) == 0 && (path[len] == '/' || path[len] == '\0'));
}

static bool
same_bytes(const struct volume_past_entry *a, const struct volume_past_entry *b)
{
    return strcmp(a->version, b->version) == 0 ||
           (a->sha256[0] != '\0' && strcmp(a->sha256, b->sha256) == 0);
}

static int
node_order(const void *a, const void *b)
{
    const struct volume_past_entry *x = ((const struct file_now *)a)->entry;
    const struct volume_past_entry *y = ((const struct file_now *)b)->entry;
    return (x->node > y->node) - (x->node < y->node);
}

static int
index_nodes(struct comparing *call, struct err *err)
{
    const struct volume_past_entry *entry;
    uint64_t files, bytes;
    volume_past_usage(call->now, &files, &bytes);
    call->by_node = calloc(files + 1, sizeof(*call->by_node));
    if (call->by_node == NULL)
        return err_nomem(err);
    for (size_t at = 0; (entry = volume_past_next(call->now, &at)) != NULL;)
        if (entry->kind != INDEX_DIR)
            call->by_node[call->node_count++].entry = entry;
    if (call->node_count > 1)
        qsort(call->by_node, call->node_count, sizeof(*call->by_node), node_order);
    return 0;
}

/* Where the file is now that had this entry. */
static const struct volume_past_entry *
find_moved(const struct comparing *call, const struct volume_past_entry *then)
{
    struct file_now wanted = { then };
    const struct file_now *found =
        call->node_count == 0
            ? NULL
            : bsearch(&wanted, call->by_node, call->node_count, sizeof(*call->by_node), node_order);
    return found != NULL && same_bytes(found->entry, then) ? found->entry : NULL;
}

static int
take(struct comparing *call, const char *path, struct err *err)
{
    if (call->taken_count == call->taken_cap) {
        size_t cap = call->taken_cap == 0 ? 64 : call->taken_cap * 2;
        char **grown = reallocarray(call->taken, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        call->taken = grown;
        call->taken_cap = cap;
    }
    call->taken[call->taken_count] = strdup(path);
    return call->taken[call->taken_count++] != NULL ? 0 : err_nomem(err);
}

static int
by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool
is_taken(const struct comparing *call, const char *path)
{
    return call->taken_count > 0 &&
           bsearch(&path, call->taken, call->taken_count, sizeof(char *), by_text) != NULL;
}

static int
plan_copy(struct comparing *call, const struct volume_past_entry *then,
          const struct volume_past_entry *now, struct err *err)
{
    struct restore_plan *plan = call->plan->plan;
    if (then->copy[0] == '\0')
        return restore_skip(plan, then->path, err, "its bytes are another file's now");
    struct restore_step *step = restore_add(
        plan, now != NULL ? VOLUME_RESTORE_WRITE : VOLUME_RESTORE_CREATE, then->path, NULL, err);
    if (step == NULL)
        return -1;
    text_set(step->copy, then->copy);
    text_set(step->version, then->version);
    text_set(step->expect, now != NULL ? now->version : "");
    step->size = then->size;
    return 0;
}

/* Folders first: what lies in them comes next. */
static int
plan_dir(struct comparing *call, const struct volume_past_entry *then, struct err *err)
{
    if (then->kind != INDEX_DIR || then->node == 0 || then->path[0] == '\0' ||
        !is_below(then->path, call->plan->want->path) ||
        volume_past_find(call->now, then->path) != NULL)
        return 0;
    struct restore_step *step =
        restore_add(call->plan->plan, VOLUME_RESTORE_MKDIR, then->path, NULL, err);
    if (step == NULL)
        return -1;
    step->mode = then->mode;
    return 0;
}

/* Then what goes back to its former name. */
static int
plan_moved(struct comparing *call, const struct volume_past_entry *then, struct err *err)
{
    if (then->kind == INDEX_DIR || then->copy[0] != '\0' ||
        !is_below(then->path, call->plan->want->path) ||
        volume_past_find(call->now, then->path) != NULL)
        return 0;
    const struct volume_past_entry *moved = find_moved(call, then);
    if (moved == NULL)
        return 0;
    if (restore_add(call->plan->plan, VOLUME_RESTORE_RENAME, moved->path, then->path, err) == NULL)
        return -1;
    return take(call, moved->path, err);
}

static int
plan_then(struct comparing *call, const struct volume_past_entry *then, struct err *err)
{
    struct restore_plan *plan = call->plan->plan;
    if (!is_below(then->path, call->plan->want->path))
        return 0;
    call->plan->known = true;
    const struct volume_past_entry *now = volume_past_find(call->now, then->path);
    if (then->kind == INDEX_DIR)
        return 0;
    if (now != NULL && now->kind == INDEX_DIR)
        return restore_skip(plan, then->path, err, "a folder has its name now");
    if (now != NULL && same_bytes(then, now))
        return 0;
    if (now == NULL && then->copy[0] == '\0' && find_moved(call, then) != NULL)
        return 0; /* it goes back */
    return plan_copy(call, then, now, err);
}

static int
plan_now(struct comparing *call, const struct volume_past_entry *now, bool dirs, struct err *err)
{
    bool dir = now->kind == INDEX_DIR;
    if (dir != dirs || now->path[0] == '\0' || !is_below(now->path, call->plan->want->path) ||
        volume_past_find(call->then, now->path) != NULL || is_taken(call, now->path))
        return 0;
    struct restore_step *step = restore_add(
        call->plan->plan, dir ? VOLUME_RESTORE_RMDIR : VOLUME_RESTORE_REMOVE, now->path, NULL, err);
    if (step == NULL)
        return -1;
    text_set(step->expect, now->version);
    return 0;
}

/* Folders that are not wanted go last, the deepest first. */
static void
turn_round(struct restore_plan *plan, size_t from)
{
    for (size_t i = from, j = plan->count; i + 1 < j; i++, j--) {
        struct restore_step step = plan->step[i];
        plan->step[i] = plan->step[j - 1];
        plan->step[j - 1] = step;
    }
}

static int
compare(struct comparing *call, struct err *err)
{
    const struct volume_past_entry *entry;
    if (index_nodes(call, err) != 0)
        return -1;
    for (size_t at = 0; (entry = volume_past_next(call->then, &at)) != NULL;)
        if (plan_dir(call, entry, err) != 0)
            return -1;
    for (size_t at = 0; (entry = volume_past_next(call->then, &at)) != NULL;)
        if (plan_moved(call, entry, err) != 0)
            return -1;
    if (call->taken_count > 1)
        qsort(call->taken, call->taken_count, sizeof(char *), by_text);
    for (size_t at = 0; (entry = volume_past_next(call->then, &at)) != NULL;)
        if (plan_then(call, entry, err) != 0)
            return -1;
    for (size_t at = 0; (entry = volume_past_next(call->now, &at)) != NULL;)
        if (plan_now(call, entry, false, err) != 0)
            return -1;
    size_t from = call->plan->plan->count;
    for (size_t at = 0; (entry = volume_past_next(call->now, &at)) != NULL;)
        if (plan_now(call, entry, true, err) != 0)
            return -1;
    turn_round(call->plan->plan, from);
    return 0;
}

/* All that was changed before is in the bucket, and what it replaced in the history, before the plan is made. */
static int
plan_folder(struct planning *call, struct err *err)
{
    const struct volume_restore *want = call->want;
    struct comparing comparing = { .plan = call };
    struct volume_barrier barrier;
    if (volume_flush_quietly(call->service, want->volume, service_deadline(call->ctx), &barrier,
                             err) != 0)
        return err_wrap(err, "nothing was restored");
    int64_t now_ns = clock_wall_ns();
    int rc = volume_past_open(call->service, want->volume, want->at_ns, &comparing.then, err);
    if (rc == 0)
        rc = volume_past_open(call->service, want->volume, now_ns, &comparing.now, err);
    if (rc == 0)
        rc = compare(&comparing, err);
    for (size_t i = 0; i < comparing.taken_count; i++)
        free(comparing.taken[i]);
    free(comparing.taken);
    free(comparing.by_node);
    volume_past_close(comparing.then);
    volume_past_close(comparing.now);
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
