#include <string.h>

#include "base/parse.h"
#include "base/path.h"
#include "gateway/router.h"

/* Whether this login may use this route, by what the router's table says of it. */

/* "?volume=" of a token of one volume names that volume, or nothing. */
static int
check_list(struct exchange *x, struct err *err)
{
    scope_buf name;
    buf_init(&name, LIMIT_VOLUME_NAME);
    int found = gateway_request_query(&x->target, "volume", &name, err);
    if (found <= 0)
        return found;
    return gateway_access_reaches(&x->access, buf_cstr(&name), x->access.folder, err);
}

static int
check_prefix(struct exchange *x, struct err *err)
{
    char prefix[LIMIT_PATH + 1];
    if (gateway_tree_prefix(x, prefix, err) < 0)
        return -1;
    return gateway_access_reaches(&x->access, x->name, prefix, err);
}

struct wanted_conflict {
    const char *id;
    struct index_conflict row;
};

static int
conflict_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct wanted_conflict *wanted = arg;
    return index_conflict_get(tx, wanted->id, &wanted->row, err);
}

/* One that lies elsewhere is said to be none: its id tells nothing. */
static int
check_conflict(struct exchange *x, struct err *err)
{
    struct wanted_conflict wanted = { .id = x->name };
    struct err missing = ERR_INIT;
    if (ulid_valid(x->name) &&
        index_read(volume_service_index(x->gateway->service), conflict_tx, &wanted, &missing) !=
            0 &&
        missing.code != ERR_NOT_FOUND)
        return err_set(err, missing.code, "%s", missing.msg);
    if (wanted.row.id[0] != '\0' &&
        gateway_access_sees(&x->access, wanted.row.volume, wanted.row.path))
        return 0;
    return err_set(err, ERR_NOT_FOUND, "there is no conflict '%s'", x->name);
}

struct wanted_mount {
    const struct gateway_access *access;
    int64_t id;
    bool seen;
};

static int
match_mount(void *arg, const struct mount_info *info, struct err *err)
{
    struct wanted_mount *wanted = arg;
    (void)err;
    wanted->seen |=
        info->id == wanted->id && gateway_access_sees(wanted->access, info->volume, info->folder);
    return 0;
}

static int
check_mount(struct exchange *x, struct err *err)
{
    struct wanted_mount wanted = { .access = &x->access };
    if (x->gateway->mounts && parse_i64(x->name, &wanted.id) &&
        mount_each(x->gateway->mounts, match_mount, &wanted, err) < 0)
        return -1;
    return wanted.seen ? 0 : err_set(err, ERR_NOT_FOUND, "there is no mount '%s'", x->name);
}

static int
check_scope(struct exchange *x, struct err *err)
{
    switch (x->route->need.scope) {
    case GATEWAY_SCOPE_OPEN:
    case GATEWAY_SCOPE_SELF:
    case GATEWAY_SCOPE_BODY: /* gateway_access_body() */
    case GATEWAY_SCOPE_OPS:
    case GATEWAY_SCOPE_LINK: /* the handler, with the row in its hands */
        return 0;
    case GATEWAY_SCOPE_PATH:
        return gateway_access_reaches(&x->access, x->name, x->path, err);
    case GATEWAY_SCOPE_VOLUME:
        return gateway_access_reaches(&x->access, x->name, "", err);
    case GATEWAY_SCOPE_PREFIX:
        return check_prefix(x, err);
    case GATEWAY_SCOPE_LIST:
        return check_list(x, err);
    case GATEWAY_SCOPE_CONFLICT:
        return check_conflict(x, err);
    case GATEWAY_SCOPE_MOUNT:
        return check_mount(x, err);
    case GATEWAY_SCOPE_GATEWAY:
        return gateway_access_reaches(&x->access, "", "", err);
    case GATEWAY_SCOPE_OWNER:
    case GATEWAY_SCOPE_NOBODY:
        break;
    }
    return err_set(err, ERR_DENIED, "only the owner may do this, no token");
}

/* What a token that is bound to a run does is that run's. */
static int
check_run(const struct exchange *x, struct err *err)
{
    const char *run = exchange_header(x, "Holdfast-Run");
    if (x->access.run[0] == '\0' || !run || strcmp(run, x->access.run) == 0)
        return 0;
    return err_set(err, ERR_DENIED, "this token is bound to run '%s'", x->access.run);
}

int
gateway_access_begin(struct exchange *x, struct err *err)
{
    const struct gateway_need *need = &x->route->need;
    if (need->scope == GATEWAY_SCOPE_NOBODY)
        return err_set(err, ERR_DENIED, "nobody may do this");
    if (need->scope == GATEWAY_SCOPE_OPEN || gateway_access_is_owner(&x->access))
        return 0;
    if (x->access.who != GATEWAY_TOKEN)
        return err_set(err, ERR_UNAUTHENTICATED, "log in first");
    if (check_run(x, err) < 0 || gateway_access_may(&x->access, need->verbs, err) < 0)
        return -1;
    return check_scope(x, err);
}

int
gateway_access_body(struct exchange *x, struct err *err)
{
    const struct gateway_need *need = &x->route->need;
    bool ops = need->scope == GATEWAY_SCOPE_OPS;
    if (x->access.who != GATEWAY_TOKEN || (need->scope != GATEWAY_SCOPE_BODY && !ops))
        return 0;
    scope_json *body = x->body.len > 0 ? exchange_json(x, err) : json_object();
    if (!body)
        return -1;
    const char *op;
    if (ops && (json_need_str(body, "op", &op, err) < 0 ||
                gateway_access_may(&x->access, gateway_access_op(op), err) < 0))
        return -1;
    return gateway_access_fields(&x->access, body, need->fields, err);
}
