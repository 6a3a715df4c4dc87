#include "gateway/router.h"

#include <stdio.h>
#include <string.h>

#include "base/path.h"

#define NOTHING EXCHANGE_TAKES_NOTHING
#define NAME EXCHANGE_TAKES_NAME
#define FILE_PATH EXCHANGE_TAKES_FILE
#define TREE EXCHANGE_TAKES_TREE
#define PART EXCHANGE_TAKES_PART

#define READ GATEWAY_READ
#define WRITE GATEWAY_WRITE
#define DELETE GATEWAY_DELETE
#define SHARE GATEWAY_SHARE
#define MOUNT GATEWAY_MOUNT
#define ADMIN GATEWAY_ADMIN
/* NOLINTBEGIN(bugprone-macro-parentheses): initializers */
#define OPEN                        \
    {                               \
        GATEWAY_SCOPE_OPEN, 0, NULL \
    }
#define SELF                        \
    {                               \
        GATEWAY_SCOPE_SELF, 0, NULL \
    }
#define OWNER                        \
    {                                \
        GATEWAY_SCOPE_OWNER, 0, NULL \
    }
#define IN(scope, verbs)                   \
    {                                      \
        GATEWAY_SCOPE_##scope, verbs, NULL \
    }
#define IN_BODY(scope, verbs, fields)        \
    {                                        \
        GATEWAY_SCOPE_##scope, verbs, fields \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

/*
 * Every address of the API: method, prefix, what follows it, who may, begin, chunk, end. Who may is a scope of gateway/access.h and
 * the verbs that a token needs; a route without them is closed. A new route has to be added to the table of
 * tests/unit/gateway/access.c too.
 */
static const struct exchange_route routes[] = {
    { "GET", "healthz", NOTHING, OPEN, NULL, NULL, gateway_state_health },
    { "GET", "readyz", NOTHING, OPEN, NULL, NULL, gateway_state_ready },
    { "GET", "v1/files", FILE_PATH, IN(PATH, READ), NULL, NULL, gateway_files_get },
    { "HEAD", "v1/files", FILE_PATH, IN(PATH, READ), NULL, NULL, gateway_files_get },
    { "PUT", "v1/files", FILE_PATH, IN(PATH, WRITE), gateway_files_put_begin,
      gateway_files_put_chunk, gateway_files_put_end },
    { "DELETE", "v1/files", FILE_PATH, IN(PATH, DELETE), NULL, NULL, gateway_files_delete },
    { "GET", "v1/list", TREE, IN(PATH, READ), NULL, NULL, gateway_tree_list },
    { "GET", "v1/stat", TREE, IN(PATH, READ), NULL, NULL, gateway_tree_stat },
    { "GET", "v1/history", FILE_PATH, IN(PATH, READ), NULL, NULL, gateway_history_list },
    { "GET", "v1/trash", NAME, IN(PREFIX, READ), NULL, NULL, gateway_history_trash },
    { "POST", "v1/restore", NOTHING, IN_BODY(BODY, WRITE | DELETE, "path,path_hex"), NULL, NULL,
      gateway_restore_path },
    { "POST", "v1/undo", NOTHING, IN_BODY(BODY, WRITE | DELETE, "path"), NULL, NULL,
      gateway_restore_undo },
    { "GET", "v1/snapshots", NAME, IN(VOLUME, READ), NULL, NULL, gateway_snapshots_list },
    { "POST", "v1/snapshots", NAME, IN(VOLUME, WRITE), NULL, NULL, gateway_snapshots_create },
    { "GET", "v1/snapshots", PART, IN(VOLUME, READ), NULL, NULL, gateway_snapshots_show },
    { "DELETE", "v1/snapshots", PART, IN(VOLUME, ADMIN), NULL, NULL, gateway_snapshots_delete },
    { "GET", "v1/diff", NAME, IN(PREFIX, READ), NULL, NULL, gateway_snapshots_diff },
    { "GET", "v1/find", NAME, IN(PREFIX, READ), NULL, NULL, gateway_find_paths },
    { "GET", "v1/grep", NAME, IN(PREFIX, READ), NULL, NULL, gateway_grep_lines },
    { "POST", "v1/ops", NOTHING, IN_BODY(OPS, WRITE, "path,path_hex,from,to"), NULL, NULL,
      gateway_tree_ops },
    { "GET", "v1/volumes", NOTHING, IN(LIST, READ), NULL, NULL, gateway_volumes_list },
    { "POST", "v1/volumes", NOTHING, IN(GATEWAY, ADMIN), NULL, NULL, gateway_volumes_create },
    { "GET", "v1/volumes", NAME, IN(VOLUME, READ), NULL, NULL, gateway_volumes_show },
    { "PATCH", "v1/volumes", NAME, IN(VOLUME, ADMIN), NULL, NULL, gateway_volumes_set },
    { "DELETE", "v1/volumes", NAME, IN(GATEWAY, ADMIN), NULL, NULL, gateway_volumes_delete },
    { "GET", "v1/mounts", NOTHING, IN(LIST, MOUNT), NULL, NULL, gateway_mounts_list },
    { "POST", "v1/mounts", NOTHING, IN_BODY(BODY, MOUNT, "folder"), NULL, NULL,
      gateway_mounts_create },
    { "DELETE", "v1/mounts", NAME, IN(MOUNT, MOUNT), NULL, NULL, gateway_mounts_delete },
    { "POST", "v1/flush", NOTHING, IN_BODY(BODY, WRITE, "folder"), NULL, NULL,
      gateway_state_flush },
    { "GET", "v1/status", NOTHING, IN(GATEWAY, ADMIN), NULL, NULL, gateway_state_status },
    { "GET", "v1/unsynced", NOTHING, IN(LIST, READ), NULL, NULL, gateway_state_unsynced },
    { "GET", "v1/conflicts", NOTHING, IN(LIST, READ), NULL, NULL, gateway_conflicts_list },
    { "GET", "v1/conflicts", NAME, IN(CONFLICT, READ), NULL, NULL, gateway_conflicts_show },
    { "GET", "v1/conflicts", PART, IN(CONFLICT, READ), NULL, NULL, gateway_conflicts_part },
    { "POST", "v1/conflicts", PART, IN(CONFLICT, WRITE | DELETE), NULL, NULL,
      gateway_conflicts_resolve },
    { "GET", "v1/doctor", NOTHING, IN(GATEWAY, ADMIN), NULL, NULL, gateway_state_doctor },
    { "POST", "v1/fsck", NOTHING, IN(GATEWAY, ADMIN), NULL, NULL, gateway_fsck_post },
    { "POST", "v1/upgrade", NOTHING, OWNER, NULL, NULL, gateway_takeover_upgrade },
    { "GET", "metrics", NOTHING, IN(GATEWAY, READ), NULL, NULL, gateway_metrics },
    { "GET", "v1/events", NOTHING, IN(LIST, READ), NULL, NULL, gateway_events },
    { "GET", "v1/runs", NAME, IN(GATEWAY, READ), NULL, NULL, gateway_runs_show },
    { "POST", "v1/runs", NAME, IN(GATEWAY, ADMIN), NULL, NULL, gateway_runs_note },
    { "GET", "v1/audit", NOTHING, IN(GATEWAY, ADMIN), NULL, NULL, gateway_audit_list },
    { "POST", "v1/audit", NAME, IN(GATEWAY, ADMIN), NULL, NULL, gateway_audit_verify },
    { "POST", "v1/freeze", NOTHING, OWNER, NULL, NULL, gateway_volumes_freeze },
    { "GET", "l", NAME, OPEN, NULL, NULL, gateway_links_get },
    { "PUT", "l", NAME, OPEN, gateway_links_put_begin, gateway_files_put_chunk,
      gateway_links_put_end },
    { "GET", "v1/links", NOTHING, IN(LIST, SHARE), NULL, NULL, gateway_links_list },
    { "POST", "v1/links", NOTHING, IN_BODY(BODY, SHARE, "path"), NULL, NULL, gateway_links_create },
    { "GET", "v1/links", NAME, IN(LINK, SHARE), NULL, NULL, gateway_links_show },
    { "DELETE", "v1/links", NAME, IN(LINK, SHARE), NULL, NULL, gateway_links_revoke },
    { "GET", "v1/me", NOTHING, SELF, NULL, NULL, gateway_tokens_me },
    { "GET", "v1/tokens", NOTHING, OWNER, NULL, NULL, gateway_tokens_list },
    { "POST", "v1/tokens", NOTHING, OWNER, NULL, NULL, gateway_tokens_create },
    { "DELETE", "v1/tokens", NAME, OWNER, NULL, NULL, gateway_tokens_revoke },
};
#define ROUTE_COUNT (sizeof(routes) / sizeof(routes[0]))

/* What stands behind the prefix: NULL when the route is another one. */
static const char *
rest_of(const struct exchange_route *route, const char *path)
{
    size_t len = strlen(route->prefix);
    if (strncmp(path, route->prefix, len) != 0)
        return NULL;
    const char *rest = path + len;
    if (*rest == '\0')
        return route->takes == NOTHING ? rest : NULL;
    if (*rest != '/' || route->takes == NOTHING)
        return NULL;
    rest++;
    const char *slash = strchr(rest, '/');
    if (route->takes == PART)
        return slash && strchr(slash + 1, '/') == NULL ? rest : NULL;
    return route->takes == NAME && slash ? NULL : rest;
}

static void
allow_too(struct exchange *x, const char *method)
{
    size_t len = strlen(x->allow);
    (void)snprintf(x->allow + len, sizeof(x->allow) - len, "%s%s", len > 0 ? ", " : "", method);
}

/* Splits volume and path off. */
static int
fill_names(struct exchange *x, const char *rest, struct err *err)
{
    size_t len = strcspn(rest, "/");
    if (x->route->takes == NOTHING)
        return 0;
    (void)snprintf(x->name, sizeof(x->name), "%.*s", (int)len, rest);
    if (x->route->takes == NAME)
        return 0;
    if (x->route->takes == PART) {
        x->path = rest + len + 1;
        return 0;
    }
    if (path_check_volume(x->name, err) < 0)
        return -1;
    x->path = rest[len] == '/' ? rest + len + 1 : "";
    if (x->route->takes == FILE_PATH && x->path[0] == '\0')
        return err_set(err, ERR_INVAL, "the address needs a path inside volume '%s'", x->name);
    return path_check(x->path, strlen(x->path), err);
}

int
gateway_router_find(struct exchange *x, struct err *err)
{
    const char *path = buf_cstr(&x->target.path);
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        const char *rest = rest_of(&routes[i], path);
        if (!rest)
            continue;
        if (strcmp(routes[i].method, x->method) != 0) {
            allow_too(x, routes[i].method);
            continue;
        }
        x->route = &routes[i];
        if (x->target.trailing_slash && x->route->takes != TREE)
            return err_set(err, ERR_BAD_NAME,
                           "the path ends in a slash, which only names a folder");
        return fill_names(x, rest, err);
    }
    if (x->allow[0] != '\0')
        return err_set(err, ERR_METHOD, "'%s' cannot be done here, only %s", x->method, x->allow);
    return err_set(err, ERR_NOT_FOUND, "there is nothing at '/%s'", path);
}

size_t
gateway_router_count(void)
{
    return ROUTE_COUNT;
}

const struct exchange_route *
gateway_router_at(size_t i)
{
    return &routes[i];
}
