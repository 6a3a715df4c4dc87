#include "base/scope.h"
#include "volume/move_impl.h"

/* What lies below a folder that is to be moved: is it all known, and does it fit under the new name? Only folders are read, so
 * that a folder of a million files moves as fast as one of ten. */

#define UNLISTED_MAX 256u
#define PAGE 512u

struct folder {
    int64_t id;
    size_t len;     /* of its key at the new place, with the slash; 0: it becomes no longer */
    unsigned depth; /* of what lies in it */
};

struct survey {
    const struct below_move *move;
    struct index_tx *tx;
    bool names_only; /* whether all fits; the bucket is not asked */
    uint64_t sequence;
    struct folder *stack;
    size_t count, cap;
    struct folder at;
    int64_t last;
    unsigned seen;
    int64_t dir[UNLISTED_MAX];
    size_t unlisted;
};

static int
push(struct survey *survey, struct folder folder, struct err *err)
{
    if (survey->count == survey->cap) {
        size_t cap = survey->cap == 0 ? 64 : survey->cap * 2;
        struct folder *grown = reallocarray(survey->stack, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        survey->stack = grown;
        survey->cap = cap;
    }
    survey->stack[survey->count++] = folder;
    return 0;
}

static int
note_folder(struct survey *survey, const struct index_node *node, struct folder folder,
            struct err *err)
{
    if (node->kind != INDEX_DIR || (survey->names_only && folder.len == 0))
        return 0;
    if (survey->names_only || service_listed(survey->move->service, node))
        return push(survey, folder, err);
    if (survey->unlisted < UNLISTED_MAX)
        survey->dir[survey->unlisted++] = node->id;
    return 0;
}

static int
note_child(void *arg, const struct index_node *node, struct err *err)
{
    struct survey *survey = arg;
    const struct folder *at = &survey->at;
    survey->last = node->id;
    survey->seen++;
    struct folder folder = { .id = node->id,
                             .len = at->len == 0 ? 0 : at->len + node->name_len + 1,
                             .depth = at->depth + 1 };
    return note_folder(survey, node, folder, err);
}

static int
check_child(void *arg, const struct index_node *node, struct err *err)
{
    struct survey *survey = arg;
    survey->last = node->id;
    survey->seen++;
    if (survey->at.len + node->name_len + (node->kind == INDEX_DIR) > LIMIT_KEY ||
        survey->at.depth > LIMIT_PATH_DEPTH)
        return err_set(err, ERR_NAME_TOO_LONG,
                       "the key of '%s' below would be too long at the new place", node->name);
    return 0;
}

/* The names in a folder are read only where one of them might not fit. */
static int
check_names(struct survey *survey, struct err *err)
{
    if (survey->at.len == 0 ||
        (survey->at.len + LIMIT_NAME + 1 <= LIMIT_KEY && survey->at.depth <= LIMIT_PATH_DEPTH))
        return 0;
    survey->last = 0;
    do {
        survey->seen = 0;
        if (index_node_children(survey->tx, survey->at.id, survey->last, PAGE, check_child, survey,
                                err) != 0)
            return -1;
    } while (survey->seen == PAGE);
    return 0;
}

static unsigned
depth_of(const char *path)
{
    unsigned depth = path[0] != '\0';
    for (; *path != '\0'; path++)
        depth += *path == '/';
    return depth;
}

/* What has the name `at` and is to have the name `to`. */
static int
note_top(struct survey *survey, const struct volume_name *at, const struct volume_name *to,
         struct err *err)
{
    struct index_node node;
    struct index_volume volume;
    struct err missing = ERR_INIT;
    char old_dir[LIMIT_PATH + 1], new_dir[LIMIT_PATH + 1];
    if (index_node_child(survey->tx, at->parent, at->name, at->len, &node, &missing) != 0) {
        if (missing.code == ERR_NOT_FOUND)
            return 0;
        *err = missing;
        return -1;
    }
    if (node.kind != INDEX_DIR)
        return 0;
    if (index_volume_get(survey->tx, node.volume, &volume, err) != 0 ||
        index_node_path(survey->tx, at->parent, old_dir, sizeof(old_dir), err) != 0 ||
        index_node_path(survey->tx, to->parent, new_dir, sizeof(new_dir), err) != 0)
        return -1;
    size_t old_len = strlen(old_dir) + (old_dir[0] != '\0') + at->len;
    size_t new_len = strlen(new_dir) + (new_dir[0] != '\0') + to->len;
    unsigned depth = depth_of(new_dir);
    bool grows = new_len > old_len || depth > depth_of(old_dir);
    struct folder folder = { .id = node.id,
                             .len = grows ? strlen(volume.prefix) + new_len + 1 : 0,
                             .depth = depth + 2 };
    return note_folder(survey, &node, folder, err);
}

static int
survey_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct survey *survey = arg;
    const struct below_move *move = survey->move;
    survey->tx = tx;
    survey->sequence = index_sequence(tx);
    survey->count = survey->unlisted = 0;
    int rc = note_top(survey, move->from, move->to, err);
    if (rc == 0 && move->exchange)
        rc = note_top(survey, move->to, move->from, err);
    while (rc == 0 && survey->count > 0 && survey->unlisted < UNLISTED_MAX) {
        survey->at = survey->stack[--survey->count];
        rc = check_names(survey, err);
        survey->last = 0;
        do {
            survey->seen = 0;
            if (rc == 0)
                rc = index_node_folders(tx, survey->at.id, survey->last, PAGE, note_child, survey,
                                        err);
        } while (rc == 0 && survey->seen == PAGE);
    }
    return rc;
}

static int
list_folder(const struct below_move *move, int64_t dir, struct err *err)
{
    struct err local = ERR_INIT;
    if (bucket_list_dir(move->service, move->ctx, dir, &local) == 0 ||
        local.code == ERR_NOT_FOUND) /* gone meanwhile */
        return 0;
    *err = local;
    return -1;
}

/* Only what the index knows moves along: a folder of others that was never looked into would stay behind. */
int
below_know(struct below_move *move, struct err *err)
{
    struct volume_service *service = move->service;
    scope_free struct survey *survey = calloc(1, sizeof(*survey));
    int rc = 0;
    if (survey == NULL)
        return err_nomem(err);
    survey->move = move;
    do {
        rc = index_read(service->index, survey_tx, survey, err);
        if (rc == 0 && survey->unlisted > 0 && move->ctx->nowait)
            rc = err_set(err, ERR_AGAIN, "folders have to be listed first");
        for (size_t i = 0; rc == 0 && i < survey->unlisted; i++)
            bucket_refresh_dir(service, survey->dir[i]);
        for (size_t i = 0; rc == 0 && i < survey->unlisted; i++)
            rc = list_folder(move, survey->dir[i], err);
    } while (rc == 0 && survey->unlisted > 0);
    move->sequence = survey->sequence;
    free(survey->stack);
    return rc;
}

/* A file that was made below since, or a folder above that was moved: a node whose key is too long could never be closed. */
int
below_fits(struct index_tx *tx, const struct below_move *move, struct err *err)
{
    if (index_sequence(tx) == move->sequence + 1) /* that of this change itself */
        return 0;
    scope_free struct survey *survey = calloc(1, sizeof(*survey));
    if (survey == NULL)
        return err_nomem(err);
    survey->move = move;
    survey->names_only = true;
    int rc = survey_tx(tx, survey, err);
    free(survey->stack);
    return rc;
}
