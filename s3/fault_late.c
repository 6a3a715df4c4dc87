#include <string.h>

#include "base/scope.h"
#include "base/ulid.h"
#include "s3/body.h"
#include "s3/fault_impl.h"

enum late_kind { LATE_PUT, LATE_DELETE, LATE_COPY };

/* A change whose answer was given up, with copies of all it needs. */
struct late {
    enum late_kind kind;
    char *key;
    char *from;
    char *etag; /* of the condition or NULL */
    char *content_type;
    char *body;
    uint64_t size;
    enum store_cond_kind cond;
    bool has_meta;
    struct meta meta;
};

static void
free_late(struct late *late)
{
    if (!late)
        return;
    free(late->key);
    free(late->from);
    free(late->etag);
    free(late->content_type);
    free(late->body);
    meta_release(&late->meta);
    free(late);
}

static int
copy_text(char **to, const char *from, struct err *err)
{
    *to = from ? strdup(from) : NULL;
    return from && !*to ? err_nomem(err) : 0;
}

static struct late *
new_late(enum late_kind kind, const char *key, const char *etag, const struct meta *meta,
         struct err *err)
{
    struct late *late = calloc(1, sizeof(*late));

    if (!late) {
        err_nomem(err);
        return NULL;
    }
    late->kind = kind;
    late->has_meta = meta != NULL;
    meta_init(&late->meta);
    if (copy_text(&late->key, key, err) < 0 || copy_text(&late->etag, etag, err) < 0 ||
        (meta && meta_copy(&late->meta, meta, err) < 0)) {
        free_late(late);
        return NULL;
    }
    return late;
}

static int
hold(struct fault_store *fault, struct late *late, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&fault->lock);

    (void)held;
    if (fault->late_count == fault->late_cap) {
        size_t cap = fault->late_cap ? fault->late_cap * 2 : 16;
        struct late **grown = reallocarray(fault->late, cap, sizeof(struct late *));
        if (!grown) {
            free_late(late);
            return err_nomem(err);
        }
        fault->late = grown;
        fault->late_cap = cap;
    }
    fault->late[fault->late_count++] = late;
    return 0;
}

int
fault_late_put(struct fault_store *fault, const struct store_put *req, struct err *err)
{
    const char *etag = req->cond.kind == STORE_COND_MATCH ? req->cond.etag : NULL;
    struct late *late = new_late(LATE_PUT, req->key, etag, req->meta, err);

    if (!late)
        return -1;
    late->cond = req->cond.kind;
    late->size = req->body.size;
    late->body = malloc((size_t)late->size + 1);
    if (!late->body)
        err_nomem(err);
    if (!late->body || body_read(&req->body, 0, late->body, (size_t)late->size, err) < 0 ||
        copy_text(&late->content_type, req->content_type, err) < 0) {
        free_late(late);
        return -1;
    }
    return hold(fault, late, err);
}

int
fault_late_delete(struct fault_store *fault, const struct store_delete *req, struct err *err)
{
    struct late *late = new_late(LATE_DELETE, req->key, req->if_match, NULL, err);

    return late ? hold(fault, late, err) : -1;
}

int
fault_late_copy(struct fault_store *fault, const struct store_copy *req, struct err *err)
{
    struct late *late = new_late(LATE_COPY, req->to, req->from_if_match, req->meta, err);

    if (!late)
        return -1;
    if (copy_text(&late->from, req->from, err) < 0) {
        free_late(late);
        return -1;
    }
    return hold(fault, late, err);
}

/* The lot decides who lands next. NULL when nobody waits. */
static struct late *
draw_late(struct fault_store *fault, struct fault_plan *plan)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&fault->lock);
    struct late *late;
    size_t at;

    (void)held;
    *plan = fault->plan;
    if (fault->late_count == 0)
        return NULL;
    at = (size_t)(random_next(&fault->random) % fault->late_count);
    late = fault->late[at];
    fault->late[at] = fault->late[--fault->late_count];
    return late;
}

static int
land_put(struct fault_store *fault, const struct late *late, const struct fault_plan *plan,
         struct err *err)
{
    struct store_put_result res;
    struct store_put req = {
        .key = late->key,
        .body = { .mem = late->body, .fd = -1, .size = late->size },
        .cond = { .kind = late->cond, .etag = late->etag },
        .content_type = late->content_type,
        .meta = late->has_meta ? &late->meta : NULL,
    };

    return fault_pass_put(fault, &req, plan, &res, err);
}

/* The change is judged now; nobody is there to hear the answer. */
static void
land(struct fault_store *fault, const struct late *late, const struct fault_plan *plan)
{
    struct err ignored = ERR_INIT;
    struct store_put_result res = { 0 };
    enum store_outcome outcome;
    struct store_delete del = { .key = late->key, .if_match = late->etag };
    struct store_copy copy = {
        .from = late->from,
        .from_if_match = late->etag,
        .to = late->key,
        .meta = late->has_meta ? &late->meta : NULL,
    };
    int rc = 0;

    switch (late->kind) {
    case LATE_PUT:
        rc = land_put(fault, late, plan, &ignored);
        break;
    case LATE_DELETE:
        rc = fault_pass_delete(fault, &del, plan, &outcome, &ignored);
        break;
    case LATE_COPY:
        rc = fault_pass_copy(fault, &copy, plan, &res, &ignored);
        break;
    }
    (void)rc;
}

unsigned
fault_store_deliver_late(struct store *store, unsigned limit)
{
    struct fault_store *fault = fault_of(store);
    struct fault_plan plan;
    unsigned landed = 0;

    while (limit == 0 || landed < limit) {
        struct late *late = draw_late(fault, &plan);
        if (!late)
            break;
        land(fault, late, &plan);
        free_late(late);
        landed++;
    }
    return landed;
}

unsigned
fault_store_pending(struct store *store)
{
    struct fault_store *fault = fault_of(store);
    scope_unlock pthread_mutex_t *held = scope_lock(&fault->lock);

    (void)held;
    return (unsigned)fault->late_count;
}

void
fault_store_drop_late(struct store *store)
{
    struct fault_store *fault = fault_of(store);
    struct fault_plan plan;

    for (struct late *late = draw_late(fault, &plan); late; late = draw_late(fault, &plan))
        free_late(late);
}
