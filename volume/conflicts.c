#include <string.h>

#include "base/scope.h"
#include "volume/aside_impl.h"
#include "volume/conflicts_impl.h"
#include "volume/history_impl.h"

/* The bytes of a conflict's loser: in the cache, pinned, until the bucket has them; and what they were made from. */

/* ---- what it was made from ---- */

bool
conflict_is_base(const struct index_content *row, const struct index_content *mine)
{
    if (row->state != CONTENT_CLEAN || row->size > LIMIT_MERGE)
        return false;
    if (mine->base_version[0] != '\0')
        return strcmp(row->version, mine->base_version) == 0;
    /* A new file has CLEAN bytes only of the file that it took the name from. */
    return mine->base_etag[0] == '\0' || strcmp(row->etag, mine->base_etag) == 0;
}

int
conflict_pass_base(struct index_tx *tx, const struct index_node *from, const struct index_node *to,
                   struct err *err)
{
    struct index_content row;
    unsigned several = INDEX_NODE_LINK | INDEX_NODE_LINKED;
    if (from->kind != INDEX_FILE || to->kind != INDEX_FILE || from->content == 0 ||
        to->key[0] != '\0' || ((from->flags | to->flags) & several) != 0)
        return 0;
    if (index_content_get(tx, from->content, &row, err) != 0)
        return -1;
    if (row.state != CONTENT_CLEAN || row.size > LIMIT_MERGE)
        return 0;
    row.node = to->id;
    return index_content_update(tx, &row, err);
}

/* 60 of the id's 80 random bits: no node has a number below 0. */
static int64_t
base_number(const char *id)
{
    static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    int64_t number = 0;
    for (const char *c = id + 14; *c != '\0'; c++) {
        const char *digit = strchr(digits, *c);
        number = number << 5 | (digit == NULL ? 0 : digit - digits);
    }
    return -1 - number;
}

struct find_base {
    const struct index_content *mine; /* NULL: any row */
    struct index_content row;
    bool found;
};

static int
match_base(void *arg, const struct index_content *row, struct err *err)
{
    struct find_base *find = arg;
    (void)err;
    if (find->found || (find->mine != NULL && !conflict_is_base(row, find->mine)))
        return 0;
    find->row = *row;
    find->found = true;
    return 0;
}

int
conflict_keep_base(struct index_tx *tx, struct index_conflict *row,
                   const struct index_content *mine, const struct index_node *node, struct err *err)
{
    struct find_base find = { .mine = mine };
    if (index_content_of_node(tx, node->id, match_base, &find, err) != 0)
        return -1;
    if (!find.found || find.row.id == node->content || strcmp(row->reason, "torn") == 0)
        return 0;
    find.row.node = base_number(row->id);
    if (row->base_version[0] == '\0')
        text_set(row->base_version, find.row.version);
    return index_content_update(tx, &find.row, err);
}

int
conflict_base(struct index_tx *tx, const char *id, struct index_content *out, struct err *err)
{
    struct find_base find = { .mine = NULL };
    if (index_content_of_node(tx, base_number(id), match_base, &find, err) != 0)
        return -1;
    if (!find.found)
        return err_set(err, ERR_NOT_FOUND, "the base of conflict '%s' is not kept", id);
    *out = find.row;
    return 0;
}

/* ---- where the loser's bytes lie ---- */

struct place_call {
    const char *id;
    struct conflict_place *out;
};

static int
match_copy(void *arg, const struct index_history *row, struct err *err)
{
    struct conflict_place *out = arg;
    (void)err;
    if (!history_is_kept(row) || row->volume != out->row.volume)
        return 0;
    text_set(out->base_copy, row->id);
    out->base_size = row->size;
    return 1;
}

static int
place_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct place_call *call = arg;
    struct conflict_place *out = call->out;
    struct err missing = ERR_INIT;
    if (index_conflict_get(tx, call->id, &out->row, err) != 0 ||
        index_volume_get(tx, out->row.volume, &out->volume, err) != 0)
        return -1;
    (void)snprintf(out->key, sizeof(out->key), CONFLICT_PREFIX "%s/%s", out->volume.name, call->id);
    out->known = index_key_get(tx, out->key, &out->object, &missing) == 0;
    if (!out->known && missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    missing = (struct err)ERR_INIT;
    out->has_base = conflict_base(tx, call->id, &out->base, &missing) == 0;
    if (!out->has_base && missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    if (out->row.base_version[0] != '\0' &&
        index_history_of_version(tx, out->row.base_version, match_copy, out, err) != 0)
        return -1;
    return out->row.content == 0 ? 0 : index_content_get(tx, out->row.content, &out->content, err);
}

int
conflict_place(struct volume_service *service, const char *id, struct conflict_place *out,
               struct err *err)
{
    struct place_call call = { .id = id, .out = out };
    memset(out, 0, sizeof(*out));
    return index_read(service->index, place_tx, &call, err);
}

/* An object that no row describes, after a rebuild. */
static int
look_at(struct volume_service *service, const struct conflict_place *place, int64_t deadline_ns,
        uint64_t *size, struct err *err)
{
    struct store_object object;
    store_object_init(&object);
    int rc = store_head(service->store, place->key, deadline_ns, &object, err);
    *size = object.size;
    store_object_release(&object);
    return rc;
}

static ssize_t
read_bucket(struct volume_service *service, const struct volume_ctx *ctx,
            const struct conflict_place *place, const struct aside_part *want, struct err *err)
{
    struct aside_object object = { .key = place->key,
                                   .etag = place->known ? place->object.etag : "",
                                   .size = place->object.size };
    if (!place->known && ctx->nowait)
        return err_set(err, ERR_AGAIN, "the bytes are in the bucket");
    if (!place->known && look_at(service, place, service_deadline(ctx), &object.size, err) != 0)
        return -1;
    return want->out == NULL ? (ssize_t)object.size : aside_read(service, ctx, &object, want, err);
}

ssize_t /* NOLINTNEXTLINE(readability-function-size): a read has its seven parameters */
conflict_read_at(struct volume_service *service, const struct volume_ctx *ctx,
                 const struct conflict_place *place, void *out, size_t len, uint64_t off,
                 struct err *err)
{
    struct aside_part want = { out, len, off };
    struct conflict_place now;
    if (place->row.content == 0)
        return read_bucket(service, ctx, place, &want, err);
    if (out == NULL)
        return (ssize_t)place->content.size;
    struct err gone = ERR_INIT;
    struct cache_file *file = cache_get(service->cache, place->row.content, &gone);
    if (file != NULL) {
        ssize_t got = cache_file_read(file, out, len, off, err);
        cache_put(file);
        return got;
    }
    /* Synced a moment ago: the row of now says where. */
    if (conflict_place(service, place->row.id, &now, err) != 0)
        return -1;
    if (now.row.content != 0)
        return err_set(err, ERR_IO, "the bytes of conflict '%s' are not on the disk", now.row.id);
    return read_bucket(service, ctx, &now, &want, err);
}

ssize_t /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
volume_conflict_read(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
                     void *out, size_t len, uint64_t off, struct err *err)
{
    scope_free struct conflict_place *place = malloc(sizeof(*place));
    if (place == NULL)
        return err_nomem(err);
    if (conflict_place(service, id, place, err) != 0)
        return -1;
    return conflict_read_at(service, ctx, place, out, len, off, err);
}
