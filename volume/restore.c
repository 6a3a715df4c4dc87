#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/extra_impl.h"
#include "volume/history_impl.h"

/*
 * How a plan of steps back is done: by the same calls that programs and HTTP use, each with what it believes to be there, so that
 * whatever it replaces goes to the history and a change meanwhile is left alone.
 */

/* ---- plans ---- */

struct restore_step *
restore_add(struct restore_plan *plan, enum volume_restore_action action, const char *path,
            const char *to, struct err *err)
{
    if (plan->count == plan->cap) {
        size_t cap = plan->cap == 0 ? 64 : plan->cap * 2;
        struct restore_step *grown = reallocarray(plan->step, cap, sizeof(*grown));
        if (grown == NULL) {
            err_nomem(err);
            return NULL;
        }
        plan->step = grown;
        plan->cap = cap;
    }
    struct restore_step *step = &plan->step[plan->count];
    *step = (struct restore_step){ .action = action };
    step->path = strdup(path);
    step->to = to != NULL ? strdup(to) : NULL;
    if (step->path == NULL || (to != NULL && step->to == NULL)) {
        free(step->path);
        err_nomem(err);
        return NULL;
    }
    plan->count++;
    return step;
}

int
restore_skip(struct restore_plan *plan, const char *path, struct err *err, const char *fmt, ...)
{
    va_list ap;
    struct restore_step *step = restore_add(plan, VOLUME_RESTORE_SKIP, path, NULL, err);
    if (step == NULL)
        return -1;
    va_start(ap, fmt);
    int len = vasprintf(&step->why, fmt, ap);
    va_end(ap);
    if (len >= 0)
        return 0;
    step->why = NULL;
    return err_nomem(err);
}

void
restore_release(struct restore_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        free(plan->step[i].path);
        free(plan->step[i].to);
        free(plan->step[i].why);
    }
    free(plan->step);
    *plan = (struct restore_plan){ 0 };
}

/* ---- doing ---- */

struct doing {
    struct volume_service *service;
    struct volume_ctx ctx;
    const struct volume_restore *want;
    const struct restore_plan *plan;
    struct volume_restore_result *out;
    int64_t *
        passed; /* nodes: folders that were made for something to pass through, outer ones first; 0: gone again */
    size_t passed_count, passed_cap;
};

/* The folder that holds the last name of a path. */
static int
parent_of(struct doing *call, const char *path, bool make, struct volume_name *at, struct err *err)
{
    char dir[LIMIT_PATH + 1];
    struct volume_attr attr;
    const char *slash = strrchr(path, '/');
    (void)snprintf(dir, sizeof(dir), "%.*s", slash != NULL ? (int)(slash - path) : 0, path);
    at->name = slash != NULL ? slash + 1 : path;
    at->len = strlen(at->name);
    int rc = make ? volume_make_dirs(call->service, &call->ctx, call->want->volume, dir, &attr, err)
                  : volume_resolve(call->service, &call->ctx, call->want->volume, dir, &attr, err);
    if (rc != 0)
        return -1;
    at->parent = attr.node;
    return 0;
}

/* ---- folders that files pass through on their way back ---- */

static int
note_passed(struct doing *call, int64_t node, struct err *err)
{
    if (call->passed_count == call->passed_cap) {
        size_t cap = call->passed_cap == 0 ? 16 : call->passed_cap * 2;
        int64_t *grown = reallocarray(call->passed, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        call->passed = grown;
        call->passed_cap = cap;
    }
    call->passed[call->passed_count++] = node;
    return 0;
}

/* Makes the folders above a path that are not there, and notes them. */
static int
make_way(struct doing *call, const char *path, struct err *err)
{
    char dir[LIMIT_PATH + 1];
    struct volume_attr attr;
    struct volume_name at;
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        struct err local = ERR_INIT;
        (void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
        if (volume_resolve(call->service, &call->ctx, call->want->volume, dir, &attr, &local) == 0)
            continue;
        if (local.code != ERR_NOT_FOUND)
            return err_set(err, local.code, "%s", local.msg);
        if (parent_of(call, dir, false, &at, err) != 0 ||
            volume_mkdir(call->service, &call->ctx, &at, 0755, &attr, err) != 0 ||
            note_passed(call, attr.node, err) != 0)
            return -1;
    }
    return 0;
}

static bool
is_wanted_folder(const struct doing *call, const char *path)
{
    for (size_t i = 0; i < call->plan->count; i++)
        if (call->plan->step[i].action == VOLUME_RESTORE_MKDIR &&
            strcmp(call->plan->step[i].path, path) == 0)
            return true;
    return false;
}

/* Those below a folder ("": all) that nothing has stayed in, and that no step wanted, go again. */
static void
drop_passed(struct doing *call, const char *below)
{
    char path[LIMIT_PATH + 1];
    size_t len = strlen(below);
    struct volume_name at;
    for (size_t i = call->passed_count; i-- > 0;) {
        struct err ignored = ERR_INIT;
        if (call->passed[i] == 0 ||
            volume_path(call->service, call->passed[i], path, sizeof(path), &ignored) != 0 ||
            (len > 0 && (strncmp(path, below, len) != 0 || path[len] != '/')) ||
            is_wanted_folder(call, path))
            continue;
        if (parent_of(call, path, false, &at, &ignored) == 0 &&
            volume_remove(call->service, &call->ctx, &at, true, NULL, &ignored) == 0)
            call->passed[i] = 0;
    }
}

struct expecting {
    const struct volume_restore *want;
    const struct restore_step *step;
    struct precondition *pre;
};

/* The very bytes that are expected may have got a new id meanwhile, when the file moved. */
static int
expect_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct expecting *call = arg;
    struct index_volume volume;
    struct index_node node;
    struct volume_attr attr;
    struct err missing = ERR_INIT;
    char now[LIMIT_ETAG], then[LIMIT_ETAG];
    if (index_volume_get(tx, call->want->volume, &volume, err) != 0)
        return -1;
    if (history_node_at(tx, &volume, call->step->path, &node, &missing) != 0)
        return missing.code == ERR_NOT_FOUND ? 0 : err_set(err, missing.code, "%s", missing.msg);
    if (history_origin_of_node(tx, &node, now, err) != 0 ||
        history_origin(tx, call->step->expect, then, err) != 0 ||
        attr_fill(tx, &node, &attr, err) != 0)
        return -1;
    if (now[0] != '\0' && strcmp(now, then) == 0)
        text_set(call->pre->tag[0], attr.version);
    return 0;
}

static int
expects(struct doing *call, const struct restore_step *step, struct precondition *out,
        struct err *err)
{
    *out = (struct precondition){ .kind = PRECONDITION_ABSENT };
    if (step->action == VOLUME_RESTORE_CREATE)
        return 0;
    out->kind = PRECONDITION_MATCH;
    out->count = 1;
    text_set(out->tag[0], step->expect);
    struct expecting expecting = { .want = call->want, .step = step, .pre = out };
    return index_read(call->service->index, expect_tx, &expecting, err);
}

static int
upload_sink(void *arg, const void *data, size_t len, struct err *err)
{
    return volume_upload_write(arg, data, len, err);
}

/* The copy, and what its metadata say. */
struct source {
    struct index_history row;
    char key[LIMIT_KEY + 1];
    struct object_attrs attrs;
    struct observed seen;
    char extra[LIMIT_EXTRA + 1];
};

static int
read_source(struct doing *call, const struct restore_step *step, struct source *out,
            struct err *err)
{
    struct store_object object;
    struct index_node nobody = { .kind = INDEX_FILE };
    struct volume_barrier barrier;
    if (history_row(call->service, step->copy, &out->row, out->key, err) != 0)
        return -1;
    if (out->row.state == INDEX_HISTORY_STAGED &&
        (volume_flush_quietly(call->service, out->row.volume, service_deadline(&call->ctx),
                              &barrier, err) != 0 ||
         history_row(call->service, step->copy, &out->row, out->key, err) != 0))
        return -1;
    store_object_init(&object);
    int rc = store_head(call->service->store, out->key, service_deadline(&call->ctx), &object, err);
    if (rc == 0) {
        object_read(&object, &out->seen, &out->attrs);
        extra_collect(&object, &nobody, out->extra);
    }
    store_object_release(&object);
    if (rc != 0 && err->code == ERR_NOT_FOUND)
        return err_set(err, ERR_NOT_FOUND, "its copy is not in the bucket any more");
    return rc;
}

static int
put_symlink(struct doing *call, const struct restore_step *step, const struct source *source,
            struct err *err)
{
    scope_free char *target = NULL;
    size_t len;
    struct volume_name at;
    struct volume_attr attr;
    struct precondition pre;
    struct store_object object;
    if (expects(call, step, &pre, err) != 0)
        return -1;
    store_object_init(&object);
    int rc = store_get_small(call->service->store, source->key, LIMIT_SYMLINK, &target, &len,
                             &object, err);
    store_object_release(&object);
    if (rc != 0 || parent_of(call, step->path, true, &at, err) != 0)
        return -1;
    if (step->action == VOLUME_RESTORE_WRITE &&
        volume_remove(call->service, &call->ctx, &at, false, &pre, err) != 0)
        return -1;
    return volume_symlink(call->service, &call->ctx, &at, target, &attr, err);
}

static int
put_bytes(struct doing *call, const struct restore_step *step, const struct source *source,
          struct err *err)
{
    struct volume_service *service = call->service;
    struct store_object object;
    struct volume_attr attr;
    bool created;
    struct volume_like like = { .has_owner = source->attrs.has_owner,
                                .uid = source->attrs.uid,
                                .gid = source->attrs.gid,
                                .extra = source->extra };
    struct volume_commit_args args = { .mode =
                                           source->attrs.has_mode ? source->attrs.mode & 07777 : 0,
                                       .mtime_ns = source->attrs.mtime_ns,
                                       .make_dirs = true,
                                       .like = &like };
    struct volume_upload *upload =
        volume_upload_begin(service, &call->ctx, call->want->volume, step->path, err);
    if (upload == NULL)
        return -1;
    struct store_get get = {
        .key = source->key, .if_match = source->row.etag, .sink = upload_sink, .sink_arg = upload
    };
    store_object_init(&object);
    int rc = source->row.size == 0 ? 0 : store_get(service->store, &get, &object, err);
    store_object_release(&object);
    if (rc != 0 || expects(call, step, &args.pre, err) != 0) {
        volume_upload_abort(upload);
        return -1;
    }
    return volume_commit(upload, &call->ctx, &args, &attr, &created, err);
}

static int
do_write(struct doing *call, const struct restore_step *step, struct err *err)
{
    scope_free struct source *source = calloc(1, sizeof(*source));
    if (source == NULL)
        return err_nomem(err);
    if (read_source(call, step, source, err) != 0)
        return -1;
    if (source->attrs.has_mode && S_ISLNK(source->attrs.mode) && source->row.size > 0 &&
        source->row.size <= LIMIT_SYMLINK)
        return put_symlink(call, step, source, err);
    return put_bytes(call, step, source, err);
}

static int
do_remove(struct doing *call, const struct restore_step *step, struct err *err)
{
    struct volume_name at;
    struct precondition pre;
    bool dir = step->action == VOLUME_RESTORE_RMDIR;
    if (dir)
        drop_passed(call, step->path);
    if (expects(call, step, &pre, err) != 0 || parent_of(call, step->path, false, &at, err) != 0)
        return -1;
    return volume_remove(call->service, &call->ctx, &at, dir,
                         dir || step->expect[0] == '\0' ? NULL : &pre, err);
}

static int
do_rename(struct doing *call, const struct restore_step *step, struct err *err)
{
    struct volume_name from, to;
    if (make_way(call, step->to, err) != 0 || parent_of(call, step->path, false, &from, err) != 0 ||
        parent_of(call, step->to, false, &to, err) != 0)
        return -1;
    return volume_rename(call->service, &call->ctx, &from, &to, RENAME_NOREPLACE, err);
}

static int
do_mkdir(struct doing *call, const struct restore_step *step, struct err *err)
{
    struct volume_name at;
    struct volume_attr attr;
    struct err local = ERR_INIT;
    struct volume_change change = { .bits = VOLUME_SET_MODE, .mode = step->mode & 07777 };
    if (parent_of(call, step->path, true, &at, err) != 0)
        return -1;
    if (volume_mkdir(call->service, &call->ctx, &at, step->mode & 07777, &attr, &local) == 0)
        return 0;
    /* It came with what was put into it. */
    if (local.code != ERR_EXISTS ||
        volume_lookup(call->service, &call->ctx, &at, &attr, err) != 0 || attr.kind != INDEX_DIR) {
        *err = local;
        return -1;
    }
    return volume_setattr(call->service, &call->ctx, attr.node, &change, &attr, err);
}

static int
do_step(struct doing *call, const struct restore_step *step, struct err *err)
{
    call->ctx.deadline_ns =
        clock_mono_ns() + 60 * NS_PER_S + (int64_t)(step->size >> 20) * NS_PER_S;
    switch (step->action) {
    case VOLUME_RESTORE_WRITE:
    case VOLUME_RESTORE_CREATE:
        return do_write(call, step, err);
    case VOLUME_RESTORE_REMOVE:
    case VOLUME_RESTORE_RMDIR:
        return do_remove(call, step, err);
    case VOLUME_RESTORE_RENAME:
        return do_rename(call, step, err);
    case VOLUME_RESTORE_MKDIR:
        return do_mkdir(call, step, err);
    case VOLUME_RESTORE_SKIP:
        break;
    }
    return 0;
}

/* Changed, taken or filled by others since the plan was made: theirs to decide. */
static bool
is_meanwhile(enum err_code code)
{
    return code == ERR_CONFLICT || code == ERR_EXISTS || code == ERR_NOT_FOUND ||
           code == ERR_NOT_EMPTY || code == ERR_NOT_DIR || code == ERR_IS_DIR ||
           code == ERR_PRECONDITION || code == ERR_BUSY;
}

static int
tell_step(struct doing *call, const struct restore_step *step, const struct err *failed,
          struct err *err)
{
    struct volume_restored what = { .action = step->action,
                                    .path = step->path,
                                    .to = step->to,
                                    .version = step->version,
                                    .size = step->size,
                                    .why = step->why };
    if (failed != NULL) {
        what.why = failed->msg;
        what.failed = !is_meanwhile(failed->code);
        if (!what.failed)
            what.action = VOLUME_RESTORE_SKIP;
    }
    if (what.failed)
        call->out->failed++;
    else if (what.action == VOLUME_RESTORE_SKIP)
        call->out->skipped++;
    else
        call->out->done++;
    if (call->want->fn == NULL)
        return 0;
    return call->want->fn(call->want->arg, &what, err) < 0 ? -1 : 0;
}

/* A file that was moved since would come back from where the caller may not reach, or go there. */
static int
check_within(const struct restore_plan *plan, const char *within, struct err *err)
{
    for (size_t i = 0; within != NULL && i < plan->count; i++) {
        const struct restore_step *step = &plan->step[i];
        if (!path_within(step->path, within) ||
            (step->to != NULL && step->to[0] != '\0' && !path_within(step->to, within)))
            return err_set(err, ERR_DENIED,
                           "a part of it lies, or lay, outside of '%s': ask the owner to do it",
                           within);
    }
    return 0;
}

int /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
restore_do(struct volume_service *service, const struct volume_ctx *ctx,
           const struct volume_restore *want, const struct restore_plan *plan, const char *word,
           struct volume_restore_result *out, struct err *err)
{
    struct doing call = { .service = service, .ctx = *ctx, .want = want, .plan = plan, .out = out };
    int told = 0;
    char id[ULID_SIZE];
    memset(out, 0, sizeof(*out));
    if (check_within(plan, want->within, err) != 0 || ulid_new(id, err) != 0)
        return -1;
    (void)snprintf(out->run, sizeof(out->run), "%s-%s", word, id);
    if (ctx->run != NULL && ctx->run[0] != '\0')
        text_set(out->run, ctx->run);
    call.ctx.run = out->run;
    for (size_t i = 0; i < plan->count && told == 0; i++) {
        struct err failed = ERR_INIT;
        int rc = want->dry_run ? 0 : do_step(&call, &plan->step[i], &failed);
        /* Its bytes may have got their new id between the look and the change. */
        for (unsigned tries = 0; rc != 0 && failed.code == ERR_CONFLICT && tries < 3; tries++)
            rc = do_step(&call, &plan->step[i], &failed);
        told = tell_step(&call, &plan->step[i], rc != 0 ? &failed : NULL, err);
    }
    drop_passed(&call, "");
    free(call.passed);
    if (told != 0)
        return -1;
    log_info(volume, "%s run=%s done=%llu skipped=%llu failed=%llu", word, out->run,
             (unsigned long long)out->done, (unsigned long long)out->skipped,
             (unsigned long long)out->failed);
    return 0;
}
