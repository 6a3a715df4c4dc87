#include "volume/move_impl.h"

#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"

#define SLICE 256u /* children in one transaction */
#define BACK_OFF_MIN (200 * NS_PER_MS)
#define BACK_OFF_MAX (60 * NS_PER_S)

/* One walk over all that lies below the folder. What is moved out of it meanwhile gets work of its own by that move. */
struct pass {
    struct index_tx *tx;
    struct volume_service *service;
    const char *key;
    struct index_intent
        row; /* as the walk found it: `attempt.node` the folder, `attempt.size` counts its moves */
    int64_t *dir; /* folders still to be read */
    size_t count, cap;
    int64_t at; /* the one that is being read, 0: none */
    int64_t last;
    unsigned seen;
    char prefix[LIMIT_KEY + 1]; /* its key in this transaction */
    char error[160];
    bool ended;
};

bool
move_is_work(const char *key)
{
    return strncmp(key, MOVE_PREFIX, sizeof(MOVE_PREFIX) - 1) == 0;
}

/* 1: there, 0: not, -1. */
static int
get_item(struct index_tx *tx, const char *key, struct index_intent *out, struct err *err)
{
    struct err missing = ERR_INIT;
    if (index_intent_get(tx, key, out, &missing) == 0)
        return 1;
    if (missing.code == ERR_NOT_FOUND)
        return 0;
    *err = missing;
    return -1;
}

/* The same for a folder that still has a name. */
static int
get_folder(struct index_tx *tx, int64_t id, struct index_node *out, struct err *err)
{
    struct err missing = ERR_INIT;
    if (index_node_get(tx, id, out, &missing) == 0)
        return (out->flags & INDEX_NODE_ORPHAN) == 0;
    if (missing.code == ERR_NOT_FOUND)
        return 0;
    *err = missing;
    return -1;
}

int
move_want(struct index_tx *tx, const struct index_node *folder, struct err *err)
{
    struct index_intent row;
    char key[sizeof(MOVE_PREFIX) + 20];
    (void)snprintf(key, sizeof(key), MOVE_PREFIX "%lld", (long long)folder->id);
    /* It rests as a key does, so that there and back again costs nothing. */
    if (key_want_sync(tx, folder->volume, key, 0, err) != 0 ||
        index_intent_get(tx, key, &row, err) != 0)
        return -1;
    row.attempt.node = folder->id;
    row.attempt.size++; /* a walk that is under way has to be followed by another one */
    if (row.tries > 0)
        row.not_before_ns = clock_wall_ns(); /* it may fit here */
    row.tries = 0;
    row.last_error[0] = '\0';
    return index_intent_put(tx, &row, err);
}

int
move_view(struct index_tx *tx, const char *key, struct key_view *out, struct err *err)
{
    (void)key;
    int rc = get_folder(tx, out->intent.attempt.node, &out->node, err);
    out->view.want.present = rc == 1;
    out->view.want.node = rc == 1 ? out->node.id : 0;
    return rc < 0 ? -1 : 0;
}

static int
push(struct pass *pass, int64_t dir, struct err *err)
{
    if (pass->count == pass->cap) {
        size_t cap = pass->cap == 0 ? 64 : pass->cap * 2;
        int64_t *grown = reallocarray(pass->dir, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        pass->dir = grown;
        pass->cap = cap;
    }
    pass->dir[pass->count++] = dir;
    return 0;
}

static void
note(struct pass *pass, const char *why)
{
    (void)snprintf(pass->error, sizeof(pass->error), "%.*s", (int)sizeof(pass->error) - 1, why);
}

/* An item that is there already is due when its own change wants it to be; a barrier waits for it all the same. */
static int
want_key(struct pass *pass, const char *key, struct err *err)
{
    struct index_intent row;
    int rc = get_item(pass->tx, key, &row, err);
    if (rc < 0 || (rc == 1 && row.since_ns <= pass->row.since_ns))
        return rc < 0 ? -1 : 0;
    if (rc == 0) {
        memset(&row, 0, sizeof(row));
        text_set(row.key, key);
        row.volume = pass->row.volume;
        row.not_before_ns = clock_wall_ns();
    }
    row.since_ns = pass->row.since_ns;
    return index_intent_put(pass->tx, &row, err);
}

static int
want_child(void *arg, const struct index_node *node, struct err *err)
{
    struct pass *pass = arg;
    char key[LIMIT_KEY + 1];
    pass->last = node->id;
    pass->seen++;
    if (node->kind == INDEX_DIR && push(pass, node->id, err) != 0)
        return -1;
    if (node->kind == INDEX_DIR && (node->flags & INDEX_NODE_MARKER) == 0)
        return 0;
    int len = snprintf(key, sizeof(key), "%s%s%s", pass->prefix, node->name,
                       node->kind == INDEX_DIR ? "/" : "");
    if (len < 0 || (size_t)len >= sizeof(key)) {
        note(pass, "the key of a file below would be too long: move it to a shorter path");
        return 0;
    }
    return want_key(pass, key, err);
}

static int
slice_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct pass *pass = arg;
    struct index_node node;
    struct err local = ERR_INIT;
    pass->tx = tx;
    pass->seen = 0;
    int rc = get_folder(tx, pass->at, &node, err);
    if (rc <= 0)
        return rc;
    if (key_of_node(tx, &node, pass->prefix, &local) != 0) {
        if (local.code != ERR_NAME_TOO_LONG) {
            *err = local;
            return -1;
        }
        note(pass, local.msg);
        return 0;
    }
    return index_node_children(tx, pass->at, pass->last, SLICE, want_child, pass, err);
}

static int
begin_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct pass *pass = arg;
    int rc = get_item(tx, pass->key, &pass->row, err);
    pass->ended = rc == 0 || (rc == 1 && rest_holds(&pass->row));
    return rc < 0 ? -1 : 0;
}

/* Moved again meanwhile: the first ones have work for a place that is not theirs any more. */
static int
end_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct pass *pass = arg;
    struct index_intent row;
    int rc = get_item(tx, pass->key, &row, err);
    pass->ended = rc == 0;
    if (rc <= 0)
        return rc;
    if (row.attempt.size != pass->row.attempt.size) {
        pass->row = row;
        pass->ended = rest_holds(&row);
        return 0;
    }
    pass->ended = true;
    if (pass->error[0] == '\0')
        return index_intent_delete(tx, pass->key, err);
    int64_t wait = BACK_OFF_MIN << (row.tries < 9 ? row.tries : 9);
    row.not_before_ns = clock_wall_ns() + (wait < BACK_OFF_MAX ? wait : BACK_OFF_MAX);
    row.tries++;
    text_set(row.last_error, pass->error);
    return index_intent_put(tx, &row, err);
}

/* 0: all was read; 1: the gateway stops. */
static int
walk(struct pass *pass, struct err *err)
{
    struct volume_service *service = pass->service;
    pass->count = 0;
    pass->error[0] = '\0';
    if (push(pass, pass->row.attempt.node, err) != 0)
        return -1;
    while (pass->count > 0) {
        pass->at = pass->dir[--pass->count];
        pass->last = 0;
        do {
            if (atomic_load(&service->stopping))
                return 1;
            if (index_write(service->index, INDEX_NORMAL, slice_tx, pass, err) != 0)
                return -1;
            if (pass->seen > 0)
                sync_kick(service);
        } while (pass->seen == SLICE);
    }
    return 0;
}

static int
run(struct pass *pass, struct err *err)
{
    struct index *index = pass->service->index;
    if (index_read(index, begin_tx, pass, err) != 0)
        return -1;
    while (!pass->ended) {
        struct err why = ERR_INIT;
        int rc = walk(pass, &why);
        if (rc > 0)
            return 0;
        if (rc < 0)
            note(pass, why.msg);
        if (index_write(index, INDEX_NORMAL, end_tx, pass, err) != 0)
            return -1;
    }
    return 0;
}

bool
move_run(struct volume_service *service, const char *key)
{
    struct err err = ERR_INIT;
    struct pass *pass = calloc(1, sizeof(*pass));
    if (pass == NULL)
        return false;
    pass->service = service;
    pass->key = key;
    if (run(pass, &err) != 0)
        log_warn(sync, "cannot make the work of a moved folder key=%s why=%s", key, err.msg);
    else if (pass->error[0] != '\0')
        log_warn(sync, "not all of a moved folder can follow key=%s why=%s", key, pass->error);
    free(pass->dir);
    free(pass);
    sync_progressed(service);
    return false;
}
