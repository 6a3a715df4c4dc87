#include <fcntl.h>
#include <string.h>

#include "base/scope.h"
#include "volume/conflicts_impl.h"
#include "volume/history.h"
#include "volume/merge.h"

/* The four sides of a conflict: mine, theirs, base, and the three merged. */

static const char *const side_words[] = {
    [VOLUME_MINE] = "mine", [VOLUME_THEIRS] = "theirs", [VOLUME_BASE] = "base", [VOLUME_MERGED] = "merged"
};

const char *
volume_side_word(enum volume_side side)
{
    return side_words[side];
}

bool
volume_side_parse(const char *word, enum volume_side *out)
{
    for (unsigned i = 0; i < sizeof(side_words) / sizeof(side_words[0]); i++) {
        if (strcmp(side_words[i], word) != 0)
            continue;
        *out = (enum volume_side)i;
        return true;
    }
    return false;
}

const char *
volume_merge_word(enum volume_merge merge)
{
    static const char *const words[] = {
        [VOLUME_MERGE_CLEAN] = "clean",         [VOLUME_MERGE_OVERLAPS] = "overlaps",
        [VOLUME_MERGE_NO_BASE] = "no-base",     [VOLUME_MERGE_NO_TEXT] = "no-text",
        [VOLUME_MERGE_TOO_LARGE] = "too-large", [VOLUME_MERGE_ABSENT] = "absent"
    };
    return words[merge];
}

/* ---- whole sides ---- */

static int
too_large(uint64_t size, struct err *err)
{
    return err_set(err, ERR_TOO_LARGE, "%llu bytes are too many to be compared (at most %u)",
                   (unsigned long long)size, LIMIT_MERGE);
}

static int
load_mine(struct volume_service *service, const struct volume_ctx *ctx,
          const struct conflict_place *place, struct buf *out, struct err *err)
{
    ssize_t size = conflict_read_at(service, ctx, place, NULL, 0, 0, err);
    if (size < 0)
        return -1;
    if ((uint64_t)size > LIMIT_MERGE)
        return too_large((uint64_t)size, err);
    char *to = buf_reserve(out, (size_t)size + 1, err);
    if (to == NULL)
        return -1;
    for (size_t have = 0; have < (size_t)size;) {
        ssize_t got =
            conflict_read_at(service, ctx, place, to + have, (size_t)size - have, have, err);
        if (got < 0)
            return -1;
        if (got == 0)
            return err_set(err, ERR_IO, "the bytes of conflict '%s' end early", place->row.id);
        have += (size_t)got;
    }
    buf_commit(out, (size_t)size);
    return 0;
}

static int
read_whole(struct volume_file *file, const struct volume_ctx *ctx, uint64_t size, struct buf *out,
           struct err *err)
{
    for (uint64_t off = 0; off < size;) {
        char *to = buf_reserve(out, (size_t)(size - off), err);
        ssize_t got =
            to == NULL ? -1 : volume_file_read(file, ctx, to, (size_t)(size - off), off, err);
        if (got < 0)
            return -1;
        if (got == 0)
            return err_set(err, ERR_AGAIN, "the file was cut while it was read");
        buf_commit(out, (size_t)got);
        off += (size_t)got;
    }
    return 0;
}

/* 1: it changed while it was read. */
static int
load_version(struct volume_service *service, const struct volume_ctx *ctx,
             const struct volume_attr *attr, struct buf *out, struct err *err)
{
    struct volume_file *file = NULL;
    struct volume_attr after;
    if (volume_file_open(service, ctx, attr->node, O_RDONLY, &file, err) != 0)
        return -1;
    int rc = read_whole(file, ctx, attr->size, out, err);
    if (rc == 0)
        rc = volume_getattr(service, ctx, attr->node, &after, err);
    volume_file_close(file, ctx);
    if (rc != 0)
        return err->code == ERR_AGAIN && !ctx->nowait ? 1 : -1;
    return after.writing || after.size != attr->size || strcmp(after.version, attr->version) != 0;
}

/* What lies at the path now; `version` tells which that is. */
static int
load_theirs(struct volume_service *service, const struct volume_ctx *ctx,
            const struct conflict_place *place, struct buf *out, char version[LIMIT_ETAG],
            struct err *err)
{
    struct volume_attr attr;
    for (unsigned tries = 0; tries < 5; tries++) {
        if (volume_resolve(service, ctx, place->row.volume, place->row.path, &attr, err) != 0)
            return -1;
        if (attr.kind != INDEX_FILE)
            return err_set(err, ERR_NOT_FOUND, "'%s' is no plain file now", place->row.path);
        if (attr.writing)
            return err_set(err, ERR_BUSY, "'%s' is open for writing: try again when it is closed",
                           place->row.path);
        if (attr.size > LIMIT_MERGE)
            return too_large(attr.size, err);
        buf_clear(out);
        int rc = load_version(service, ctx, &attr, out, err);
        text_copy(version, LIMIT_ETAG, attr.version);
        if (rc <= 0)
            return rc;
    }
    return err_set(err, ERR_AGAIN, "'%s' is being changed all the time: try again",
                   place->row.path);
}

/* 1: they are not there any more. */
static int
base_from_cache(struct volume_service *service, const struct conflict_place *place, struct buf *out,
                struct err *err)
{
    struct err gone = ERR_INIT;
    size_t size = (size_t)place->base.size;
    if (!place->has_base || place->base.size > LIMIT_MERGE)
        return 1;
    struct cache_file *file = cache_get(service->cache, place->base.id, &gone);
    if (file == NULL)
        return 1;
    char *to = cache_complete(file) ? buf_reserve(out, size + 1, err) : NULL;
    if (to == NULL) {
        int rc = cache_complete(file) ? -1 : 1;
        cache_put(file);
        return rc;
    }
    ssize_t got = cache_file_read(file, to, size, 0, err);
    cache_put(file);
    if (got < 0)
        return -1;
    if ((size_t)got != size)
        return 1;
    buf_commit(out, size);
    return 0;
}

static int
base_from_history(struct volume_service *service, const struct volume_ctx *ctx,
                  const struct conflict_place *place, struct buf *out, struct err *err)
{
    size_t size = (size_t)place->base_size;
    if (place->base_size > LIMIT_MERGE)
        return too_large(place->base_size, err);
    char *to = buf_reserve(out, size + 1, err);
    ssize_t got =
        to == NULL ? -1 : volume_history_read(service, ctx, place->base_copy, to, size, 0, err);
    if (got < 0)
        return -1;
    if ((size_t)got != size)
        return err_set(err, ERR_IO, "the base of conflict '%s' ends early", place->row.id);
    buf_commit(out, size);
    return 0;
}

static int
load_base(struct volume_service *service, const struct volume_ctx *ctx,
          const struct conflict_place *place, struct buf *out, struct err *err)
{
    int rc = base_from_cache(service, place, out, err);
    if (rc <= 0)
        return rc;
    if (place->base_copy[0] != '\0')
        return base_from_history(service, ctx, place, out, err);
    return err_set(err, ERR_NOT_FOUND, "what conflict '%s' began with is not known any more",
                   place->row.id);
}

int
volume_conflict_has_base(struct volume_service *service, const char *id, bool *out, struct err *err)
{
    scope_free struct conflict_place *place = malloc(sizeof(*place));
    if (place == NULL)
        return err_nomem(err);
    if (conflict_place(service, id, place, err) != 0)
        return -1;
    *out = place->has_base || place->base_copy[0] != '\0';
    return 0;
}

/* ---- merged ---- */

struct sides {
    struct conflict_place place;
    struct buf mine, theirs, base;
    char version[LIMIT_ETAG]; /* of theirs */
};

static void
sides_free(struct sides *sides)
{
    if (sides == NULL)
        return;
    buf_release(&sides->mine);
    buf_release(&sides->theirs);
    buf_release(&sides->base);
    free(sides);
}

static inline void
sides_free_scope(struct sides **sides)
{
    sides_free(*sides);
}
#define scope_sides __attribute__((cleanup(sides_free_scope))) struct sides

static struct sides *
sides_new(struct volume_service *service, const char *id, struct err *err)
{
    struct sides *sides = calloc(1, sizeof(*sides));
    if (sides == NULL) {
        err_nomem(err);
        return NULL;
    }
    buf_init(&sides->mine, LIMIT_MERGE + 64);
    buf_init(&sides->theirs, LIMIT_MERGE + 64);
    buf_init(&sides->base, LIMIT_MERGE + 64);
    if (conflict_place(service, id, &sides->place, err) == 0)
        return sides;
    sides_free(sides);
    return NULL;
}

/* A side that cannot be had for a reason that is an answer: *why says it. */
static int
excuse(int rc, enum volume_merge absent, enum volume_merge *why, const struct err *local,
       struct err *err)
{
    if (rc == 0)
        return 0;
    if (local->code == ERR_NOT_FOUND || local->code == ERR_TOO_LARGE) {
        *why = local->code == ERR_NOT_FOUND ? absent : VOLUME_MERGE_TOO_LARGE;
        return 1;
    }
    *err = *local;
    return -1;
}

/* 1: *why says why not. */
static int
load_sides(struct volume_service *service, const struct volume_ctx *ctx, struct sides *sides,
           enum volume_merge *why, struct err *err)
{
    const struct conflict_place *place = &sides->place;
    struct err local = ERR_INIT;
    int rc = excuse(load_mine(service, ctx, place, &sides->mine, &local), VOLUME_MERGE_ABSENT, why,
                    &local, err);
    if (rc == 0)
        rc = excuse(load_theirs(service, ctx, place, &sides->theirs, sides->version, &local),
                    VOLUME_MERGE_ABSENT, why, &local, err);
    if (rc == 0)
        rc = excuse(load_base(service, ctx, place, &sides->base, &local), VOLUME_MERGE_NO_BASE, why,
                    &local, err);
    if (rc != 0)
        return rc;
    if (merge_is_text(sides->mine.data, sides->mine.len) &&
        merge_is_text(sides->theirs.data, sides->theirs.len) &&
        merge_is_text(sides->base.data, sides->base.len))
        return 0;
    *why = VOLUME_MERGE_NO_TEXT;
    return 1;
}

int
volume_conflict_merge(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
                      struct volume_merged *out, struct err *err)
{
    bool clean = false;
    scope_sides *sides = sides_new(service, id, err);
    if (sides == NULL)
        return -1;
    int rc = load_sides(service, ctx, sides, &out->how, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    struct merge_text base = { "base", sides->base.data, sides->base.len };
    struct merge_text mine = { "mine", sides->mine.data, sides->mine.len };
    struct merge_text others = { "theirs", sides->theirs.data, sides->theirs.len };
    if (merge_three(&base, &mine, &others, out->text, &clean, err) != 0)
        return -1;
    out->how = clean ? VOLUME_MERGE_CLEAN : VOLUME_MERGE_OVERLAPS;
    text_set(out->theirs, sides->version);
    return 0;
}

/* ---- one side, two sides ---- */

static int
load_merged(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
            struct buf *out, struct err *err)
{
    scope_buf text;
    struct volume_merged merged = { .text = &text };
    buf_init(&text, VOLUME_MERGED_MAX);
    if (volume_conflict_merge(service, ctx, id, &merged, err) != 0)
        return -1;
    if (merged.how == VOLUME_MERGE_CLEAN || merged.how == VOLUME_MERGE_OVERLAPS)
        return text.len == 0 ? 0 : buf_append(out, text.data, text.len, err);
    return err_set(err, ERR_NO_MERGE, "conflict '%s' cannot be merged: %s", id,
                   volume_merge_word(merged.how));
}

int
volume_conflict_side(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
                     enum volume_side side, struct buf *out, struct err *err)
{
    char version[LIMIT_ETAG];
    scope_free struct conflict_place *place = malloc(sizeof(*place));
    if (place == NULL)
        return err_nomem(err);
    if (side == VOLUME_MERGED)
        return load_merged(service, ctx, id, out, err);
    if (conflict_place(service, id, place, err) != 0)
        return -1;
    if (side == VOLUME_MINE)
        return load_mine(service, ctx, place, out, err);
    if (side == VOLUME_THEIRS)
        return load_theirs(service, ctx, place, out, version, err);
    return load_base(service, ctx, place, out, err);
}

/* What is not there is empty. */
static int
load_text(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
          enum volume_side side, struct buf *out, struct err *err)
{
    struct err local = ERR_INIT;
    if (volume_conflict_side(service, ctx, id, side, out, &local) != 0 &&
        (local.code != ERR_NOT_FOUND || side != VOLUME_THEIRS)) {
        *err = local;
        return -1;
    }
    if (side == VOLUME_MERGED || merge_is_text(out->data, out->len))
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "%s is no text: only texts are compared",
                   side_words[side]);
}

int
volume_conflict_diff(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
                     const struct volume_sides *sides, struct buf *out, struct err *err)
{
    scope_buf from, to;
    buf_init(&from, VOLUME_MERGED_MAX);
    buf_init(&to, VOLUME_MERGED_MAX);
    if (load_text(service, ctx, id, sides->from, &from, err) != 0 ||
        load_text(service, ctx, id, sides->to, &to, err) != 0)
        return -1;
    struct merge_text a = { side_words[sides->from], from.data, from.len };
    struct merge_text b = { side_words[sides->to], to.data, to.len };
    return merge_diff(&a, &b, out, err);
}

/* ---- looked at ---- */

int
volume_conflict_find(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
                     struct volume_conflict *out, struct err *err)
{
    struct volume_attr attr;
    struct err local = ERR_INIT;
    scope_free struct conflict_place *place = malloc(sizeof(*place));
    if (place == NULL)
        return err_nomem(err);
    memset(out, 0, sizeof(*out));
    if (conflict_place(service, id, place, err) != 0)
        return -1;
    out->row = place->row;
    text_set(out->volume, place->volume.name);
    ssize_t size = conflict_read_at(service, ctx, place, NULL, 0, 0, err);
    if (size < 0)
        return -1;
    out->size = (uint64_t)size;
    if (volume_resolve(service, ctx, place->row.volume, place->row.path, &attr, &local) != 0) {
        if (local.code == ERR_NOT_FOUND || local.code == ERR_NOT_DIR)
            return 0;
        *err = local;
        return -1;
    }
    out->present = attr.kind == INDEX_FILE;
    text_set(out->now, attr.version);
    out->now_size = attr.size;
    return 0;
}
