#include "volume/history_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/scope.h"
#include "volume/aside_impl.h"
#include "volume/preserve_impl.h"

/* What versions there are: the rows of the history, and the present one. */

#define LIMIT_DEFAULT 1000u

/* ---- from rows ---- */

void
history_fill(const struct index_history *row, struct volume_version *out)
{
    memset(out, 0, sizeof(*out));
    text_set(out->id, row->id);
    text_set(out->version, row->version[0] != '\0' ? row->version : row->source_etag);
    text_set(out->base, row->base_version);
    text_set(out->path, row->path);
    text_set(out->sha256, row->sha256);
    out->size = row->size;
    out->made_ns = row->made_ns;
    text_set(out->actor, row->actor);
    text_set(out->run, row->run);
    out->synced = row->state == INDEX_HISTORY_KEPT;
    out->gone_ns = row->gone_ns;
    text_set(out->gone_op, row->gone_op);
    text_set(out->gone_actor, row->gone_actor);
    text_set(out->gone_run, row->gone_run);
}

/* The newest bytes of a file: staged ones, or those that the bucket has. */
static int
fill_present(struct index_tx *tx, const struct index_node *node, struct volume_version *out,
             struct err *err)
{
    struct index_content content;
    struct index_version made;
    struct err missing = ERR_INIT;
    struct volume_attr attr;
    memset(out, 0, sizeof(*out));
    if (attr_fill(tx, node, &attr, err) != 0 ||
        index_node_path(tx, node->id, out->path, sizeof(out->path), err) != 0)
        return -1;
    text_set(out->version, attr.version);
    out->size = attr.size;
    out->made_ns = attr.ctime_ns;
    out->present = true;
    out->synced = attr.synced;
    int64_t made_ns;
    if (history_made(tx, attr.version, &made_ns, err) != 0)
        return -1;
    if (made_ns != 0)
        out->made_ns = made_ns;
    if (index_version_find(tx, attr.version, &made, &missing) == 0) {
        text_set(out->base, made.base_version);
        text_set(out->sha256, made.sha256);
        text_set(out->actor, made.actor);
        text_set(out->run, made.run);
        return 0;
    }
    if (missing.code != ERR_NOT_FOUND || node->content == 0)
        return missing.code == ERR_NOT_FOUND ? 0 : err_set(err, missing.code, "%s", missing.msg);
    if (index_content_get(tx, node->content, &content, err) != 0)
        return -1;
    text_set(out->base, content.base_version);
    text_set(out->actor, content.actor);
    text_set(out->run, content.run);
    return 0;
}

#define MOVES_MOST 64u

int
history_origin(struct index_tx *tx, const char *version, char out[LIMIT_ETAG], struct err *err)
{
    struct index_version row;
    struct err missing = ERR_INIT;
    char at[LIMIT_ETAG];
    text_set(at, version);
    for (unsigned i = 0; i < MOVES_MOST && ulid_valid(at); i++) {
        if (index_version_find(tx, at, &row, &missing) != 0) {
            if (missing.code != ERR_NOT_FOUND) {
                *err = missing;
                return -1;
            }
            break;
        }
        if (strcmp(row.op, "move") != 0)
            break;
        text_set(at, row.base_version);
    }
    memcpy(out, at, sizeof(at));
    return 0;
}

int
history_made(struct index_tx *tx, const char *version, int64_t *out, struct err *err)
{
    char origin[LIMIT_ETAG];
    *out = 0;
    if (history_origin(tx, version, origin, err) != 0)
        return -1;
    if (ulid_valid(origin))
        *out = ulid_time_ms(origin) * NS_PER_MS;
    return 0;
}

int
history_origin_of_node(struct index_tx *tx, const struct index_node *node, char out[LIMIT_ETAG],
                       struct err *err)
{
    struct index_content content;
    struct index_version base;
    struct err missing = ERR_INIT;
    if (node->content == 0 || node->kind != INDEX_FILE)
        return history_origin(tx, node->version, out, err);
    if (index_content_get(tx, node->content, &content, err) != 0)
        return -1;
    if (content.state == CONTENT_CLEAN)
        return history_origin(tx, node->version, out, err);
    /* Staged for a move: the bytes of what it was made from. */
    out[0] = '\0';
    if (content.state != CONTENT_FROZEN)
        return 0;
    if (content.base_version[0] != '\0' && content.sha256[0] != '\0' &&
        index_version_find(tx, content.base_version, &base, &missing) == 0 &&
        strcmp(base.sha256, content.sha256) == 0)
        return history_origin(tx, content.base_version, out, err);
    text_copy(out, LIMIT_ETAG, content.version);
    return 0;
}

/* ---- gathering ---- */

struct gather {
    const struct volume_history_want *want;
    unsigned limit;
    int64_t node; /* what is there now, 0: nothing */
    struct volume_version present;
    struct index_history *row;
    size_t count, cap;
};

static int
add_row(void *arg, const struct index_history *row, struct err *err)
{
    struct gather *call = arg;
    if (!history_is_kept(row) || row->volume != call->want->volume)
        return 0;
    if (call->count == call->cap) {
        size_t cap = call->cap == 0 ? 16 : call->cap * 2;
        struct index_history *grown = reallocarray(call->row, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        call->row = grown;
        call->cap = cap;
    }
    call->row[call->count++] = *row;
    return 0;
}

/* By when they were made: a copy is as old as the end of its version, and one that was staged may end before an older one. */
static int
newest_first(const void *a, const void *b)
{
    const struct index_history *x = a, *y = b;
    if (x->made_ns != y->made_ns)
        return x->made_ns < y->made_ns ? 1 : -1;
    return strcmp(y->id, x->id);
}

int
history_node_at(struct index_tx *tx, const struct index_volume *volume, const char *path,
                struct index_node *out, struct err *err)
{
    const char *rest = path, *name;
    size_t rest_len = strlen(path), len;
    if (index_node_get(tx, volume->root, out, err) != 0)
        return -1;
    while (path_next(&rest, &rest_len, &name, &len)) {
        if (out->kind != INDEX_DIR)
            return err_set(err, ERR_NOT_FOUND, "there is no '%s'", path);
        if (index_node_child(tx, out->id, name, len, out, err) != 0)
            return -1;
    }
    return 0;
}

/* ---- files that took another one's name before they moved here ---- */

#define PLACES_MOST 16u

/* Where a file was, and since when. */
struct places {
    struct place {
        char path[LIMIT_PATH + 1];
        int64_t since_ns;
    } place[PLACES_MOST];
    size_t count;
};

static int
note_place(void *arg, const struct index_version *row, struct err *err)
{
    struct places *places = arg;
    size_t i = 0;
    (void)err;
    while (i < places->count && strcmp(places->place[i].path, row->path) != 0)
        i++;
    if (i == PLACES_MOST)
        return 0;
    if (i == places->count) {
        text_set(places->place[i].path, row->path);
        places->count++;
    }
    places->place[i].since_ns = row->time_ns; /* they come newest first */
    return 0;
}

struct before_call {
    struct gather *gather;
    int64_t since_ns;
};

/* Newest first: what was replaced there, down to where a name began. */
static int
add_replaced(void *arg, const struct index_history *row, struct err *err)
{
    struct before_call *call = arg;
    if (row->node == call->gather->node || row->gone_ns > call->since_ns)
        return 0;
    if (strcmp(row->gone_op, "replace") != 0 && strcmp(row->gone_op, "write") != 0)
        return 1;
    return add_row(call->gather, row, err);
}

/* A save by rename is another file at the same name. When that one moves, what it replaced is still its history
 * (docs/mechanisms.md section 5: a rename does not cut the chain). */
static int
gather_places(struct index_tx *tx, struct gather *call, struct err *err)
{
    scope_free struct places *places = calloc(1, sizeof(*places));
    if (places == NULL)
        return err_nomem(err);
    if (index_version_of_node(tx, call->node, call->limit, note_place, places, err) != 0)
        return -1;
    for (size_t i = 0; i < places->count; i++) {
        struct before_call before = { call, places->place[i].since_ns };
        if (strcmp(places->place[i].path, call->want->path) != 0 &&
            index_history_at(tx, call->want->volume, places->place[i].path, call->limit,
                             add_replaced, &before, err) != 0)
            return -1;
    }
    return 0;
}

static int
gather_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct gather *call = arg;
    const struct volume_history_want *want = call->want;
    struct index_volume volume;
    struct index_node node;
    struct err missing = ERR_INIT;
    if (index_volume_get(tx, want->volume, &volume, err) != 0)
        return -1;
    if (history_node_at(tx, &volume, want->path, &node, &missing) == 0) {
        if (node.kind == INDEX_DIR)
            return err_set(err, ERR_IS_DIR, "'%s' is a folder: its files have versions",
                           want->path);
        call->node = node.id;
        if (fill_present(tx, &node, &call->present, err) != 0)
            return -1;
    } else if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    if (index_history_at(tx, want->volume, want->path, call->limit, add_row, call, err) != 0)
        return -1;
    if (call->node == 0)
        return 0;
    if (index_history_of_node(tx, call->node, call->limit, add_row, call, err) != 0)
        return -1;
    return gather_places(tx, call, err);
}

/* Asks the bucket about the name where the index does not know: others may have put something there. */
static int
look(struct volume_service *service, const struct volume_ctx *ctx,
     const struct volume_history_want *want, struct err *err)
{
    struct volume_attr attr;
    struct err local = ERR_INIT;
    if (volume_resolve(service, ctx, want->volume, want->path, &attr, &local) == 0 ||
        local.code == ERR_NOT_FOUND || local.code == ERR_NOT_DIR)
        return 0;
    *err = local;
    return -1;
}

static int
gather(struct volume_service *service, const struct volume_ctx *ctx, struct gather *call,
       struct err *err)
{
    const struct volume_history_want *want = call->want;
    call->limit = want->limit != 0 ? want->limit : LIMIT_DEFAULT;
    if (look(service, ctx, want, err) != 0 || index_read(service->index, gather_tx, call, err) != 0)
        return -1;
    if (call->count > 1)
        qsort(call->row, call->count, sizeof(*call->row), newest_first);
    /* A row may have come by its path and by its file. */
    size_t kept = 0;
    for (size_t i = 0; i < call->count; i++)
        if (kept == 0 || strcmp(call->row[kept - 1].id, call->row[i].id) != 0)
            call->row[kept++] = call->row[i];
    call->count = kept;
    if (call->node == 0 && call->count == 0)
        return err_set(err, ERR_NOT_FOUND, "nothing is known of '%s', now or in the past",
                       want->path);
    return 0;
}

static int
tell(struct gather *call, volume_version_fn *fn, void *arg, struct err *err)
{
    struct volume_version version;
    unsigned left = call->limit;
    int rc = 0;
    if (call->node != 0 && left-- > 0)
        rc = fn(arg, &call->present, err);
    for (size_t i = 0; i < call->count && rc == 0 && left > 0; i++) {
        /* Copied before a change that came to nothing: it is the present one still. */
        if (call->node != 0 && call->row[i].version[0] != '\0' &&
            strcmp(call->row[i].version, call->present.version) == 0)
            continue;
        if (call->want->within != NULL && !path_within(call->row[i].path, call->want->within))
            continue;
        history_fill(&call->row[i], &version);
        left--;
        rc = fn(arg, &version, err);
    }
    return rc < 0 ? -1 : 0;
}

int
volume_history_each(struct volume_service *service, const struct volume_ctx *ctx,
                    const struct volume_history_want *want, volume_version_fn *fn, void *arg,
                    struct err *err)
{
    struct gather call = { .want = want };
    int rc = gather(service, ctx, &call, err);
    if (rc == 0)
        rc = tell(&call, fn, arg, err);
    free(call.row);
    return rc;
}

/* ---- one of them ---- */

#define PREFIX_MIN 8u

struct find {
    const char *which;
    int64_t at_ns;
    struct volume_version *out;
    unsigned found;
    bool exact;
};

static bool
begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static int
match(void *arg, const struct volume_version *version, struct err *err)
{
    struct find *find = arg;
    (void)err;
    if (strcmp(version->version, find->which) == 0 || strcmp(version->id, find->which) == 0) {
        *find->out = *version;
        find->found = 1;
        find->exact = true;
        return 1;
    }
    if (strlen(find->which) < PREFIX_MIN ||
        (!begins(version->version, find->which) && !begins(version->id, find->which)))
        return 0;
    if (find->found++ == 0)
        *find->out = *version;
    return 0;
}

int
volume_history_find(struct volume_service *service, const struct volume_ctx *ctx,
                    const struct volume_history_want *want, const char *which,
                    struct volume_version *out, struct err *err)
{
    struct find find = { .which = which, .out = out };
    if (volume_history_each(service, ctx, want, match, &find, err) != 0)
        return -1;
    if (find.found == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no version '%s' of '%s' (any more)", which,
                       want->path);
    if (!find.exact && find.found > 1)
        return err_set(err, ERR_INVAL, "%u versions of '%s' begin with '%s'", find.found,
                       want->path, which);
    return 0;
}

/* Newest first: the last one that was made by then, when it had not gone yet. */
static int
match_time(void *arg, const struct volume_version *version, struct err *err)
{
    struct find *find = arg;
    (void)err;
    if (version->made_ns > find->at_ns)
        return 0;
    if (version->id[0] != '\0' && version->gone_ns <= find->at_ns)
        return 1;
    *find->out = *version;
    find->found = 1;
    return 1;
}

int
volume_history_at(struct volume_service *service, const struct volume_ctx *ctx,
                  const struct volume_history_want *want, int64_t at_ns, struct volume_version *out,
                  struct err *err)
{
    struct find find = { .at_ns = at_ns, .out = out };
    if (volume_history_each(service, ctx, want, match_time, &find, err) != 0)
        return -1;
    if (find.found == 0)
        return err_set(err, ERR_NOT_FOUND, "'%s' was not there then, or its version is not kept",
                       want->path);
    return 0;
}

/* ---- bytes ---- */

struct row_call {
    const char *id;
    struct index_history row;
    char key[LIMIT_KEY + 1];
};

static int
row_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct row_call *call = arg;
    struct index_volume volume;
    if (index_history_get(tx, call->id, &call->row, err) != 0 ||
        index_volume_get(tx, call->row.volume, &volume, err) != 0)
        return -1;
    return preserve_key(&volume, call->row.path, call->row.id, call->key, err);
}

int
history_row(struct volume_service *service, const char *id, struct index_history *out,
            char key[LIMIT_KEY + 1], struct err *err)
{
    scope_free struct row_call *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return err_nomem(err);
    call->id = id;
    if (index_read(service->index, row_tx, call, err) != 0)
        return -1;
    *out = call->row;
    memcpy(key, call->key, sizeof(call->key));
    return 0;
}

ssize_t /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
volume_history_read(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
                    void *out, size_t len, uint64_t off, struct err *err)
{
    struct index_history row;
    char key[LIMIT_KEY + 1];
    if (history_row(service, id, &row, key, err) != 0)
        return -1;
    if (out == NULL)
        return (ssize_t)row.size;
    if (row.state == INDEX_HISTORY_STAGED) {
        struct err gone = ERR_INIT;
        struct cache_file *file = cache_get(service->cache, row.content, &gone);
        if (file != NULL) {
            ssize_t got = cache_file_read(file, out, len, off, err);
            cache_put(file);
            return got;
        }
        if (history_row(service, id, &row, key, err) != 0) /* it arrived a moment ago */
            return -1;
    }
    struct aside_object object = { .key = key, .etag = row.etag, .size = row.size };
    return aside_read(service, ctx, &object, &(struct aside_part){ out, len, off }, err);
}

/* ---- how much is kept ---- */

struct usage_call {
    int64_t volume;
    struct index_tx *tx;
    struct volume_history_kept *out;
};

static int
add_usage(void *arg, const struct index_volume *row, struct err *err)
{
    struct usage_call *call = arg;
    uint64_t versions, bytes;
    if (call->volume != 0 && call->volume != row->id)
        return 0;
    if (index_history_usage(call->tx, row->id, &versions, &bytes, err) != 0)
        return -1;
    call->out->versions += versions;
    call->out->bytes += bytes;
    return 0;
}

static int
usage_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct usage_call *call = arg;
    call->tx = tx;
    return index_volume_each(tx, add_usage, call, err);
}

int
volume_history_usage(struct volume_service *service, int64_t volume,
                     struct volume_history_kept *out, struct err *err)
{
    struct usage_call call = { .volume = volume, .out = out };
    *out = (struct volume_history_kept){ 0 };
    return index_read(service->index, usage_tx, &call, err);
}

/* ---- what is no more ---- */

struct trash {
    struct index_tx *tx;
    const struct volume_history_want *want;
    struct index_volume volume;
    struct index_history last; /* the newest of a path so far */
    unsigned left;
    volume_version_fn *fn;
    void *arg;
    bool ended;
};

static int
tell_last(struct trash *call, struct err *err)
{
    struct volume_version version;
    struct index_node node;
    struct err missing = ERR_INIT;
    if (call->last.id[0] == '\0' || call->ended || strcmp(call->last.gone_op, "move") == 0)
        return 0;
    if (history_node_at(call->tx, &call->volume, call->last.path, &node, &missing) == 0)
        return 0;
    if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    history_fill(&call->last, &version);
    int rc = call->fn(call->arg, &version, err);
    call->ended = rc != 0 || --call->left == 0;
    return rc < 0 ? -1 : 0;
}

static int
see_row(void *arg, const struct index_history *row, struct err *err)
{
    struct trash *call = arg;
    size_t len = strlen(call->want->path);
    /* Below the folder, or the file itself, and not what only begins so. */
    if (!history_is_kept(row) || (len > 0 && row->path[len] != '/' && row->path[len] != '\0'))
        return 0;
    if (strcmp(call->last.path, row->path) != 0 && tell_last(call, err) != 0)
        return -1;
    if (strcmp(call->last.path, row->path) != 0 || row->made_ns >= call->last.made_ns)
        call->last = *row;
    return call->ended ? 1 : 0;
}

static int
trash_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct trash *call = arg;
    call->tx = tx;
    if (index_volume_get(tx, call->want->volume, &call->volume, err) != 0 ||
        index_history_below(tx, call->want->volume, call->want->path, see_row, call, err) != 0)
        return -1;
    return tell_last(call, err);
}

int
volume_trash_each(struct volume_service *service, const struct volume_ctx *ctx,
                  const struct volume_history_want *want, volume_version_fn *fn, void *arg,
                  struct err *err)
{
    scope_free struct trash *call = calloc(1, sizeof(*call));
    (void)ctx;
    if (call == NULL)
        return err_nomem(err);
    call->want = want;
    call->left = want->limit != 0 ? want->limit : UINT32_MAX;
    call->fn = fn;
    call->arg = arg;
    return index_read(service->index, trash_tx, call, err);
}
