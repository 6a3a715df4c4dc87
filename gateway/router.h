#ifndef GATEWAY_ROUTER_H
#define GATEWAY_ROUTER_H

#include "base/hash.h"
#include "gateway/exchange.h"

/* Finds the route of x->method and x->target, fills x->route, x->name and x->path. ERR_NOT_FOUND, ERR_METHOD, ERR_BAD_NAME. */
int gateway_router_find(struct exchange *x, struct err *err) MUST_CHECK;
/* The table, for tests that look at each route. */
size_t gateway_router_count(void);
const struct exchange_route *gateway_router_at(size_t i);
/* Host (421), the browser's origin (403) and login (401), for a request whose headers are read: x->access says who asks. */
int gateway_auth_check(struct exchange *x, struct err *err) MUST_CHECK;

/* The handlers, by file. */
exchange_fn gateway_files_get, gateway_files_put_begin, gateway_files_put_end, gateway_files_delete;
exchange_chunk_fn gateway_files_put_chunk;
exchange_fn gateway_volumes_list, gateway_volumes_create, gateway_volumes_show, gateway_volumes_set,
    gateway_volumes_delete, gateway_volumes_freeze;
exchange_fn gateway_tree_list, gateway_tree_stat, gateway_tree_ops;
exchange_fn gateway_find_paths, gateway_grep_lines;
exchange_fn gateway_history_list, gateway_history_trash;
exchange_fn gateway_restore_path, gateway_restore_undo;
exchange_fn gateway_snapshots_list, gateway_snapshots_create, gateway_snapshots_show,
    gateway_snapshots_delete, gateway_snapshots_diff;
exchange_fn gateway_state_health, gateway_state_ready, gateway_state_status, gateway_state_flush,
    gateway_state_unsynced, gateway_state_doctor;
exchange_fn gateway_conflicts_list, gateway_conflicts_show, gateway_conflicts_part,
    gateway_conflicts_resolve;
exchange_fn gateway_fsck_post;
exchange_fn gateway_events, gateway_metrics;
exchange_fn gateway_runs_show, gateway_runs_note;
exchange_fn gateway_audit_list, gateway_audit_verify;
/* A request that changed something besides files, which tell themselves, or was denied, is a record. `why` NULL: it worked. */
void gateway_audit_request(const struct exchange *x, const struct err *why);
exchange_fn gateway_tokens_me, gateway_tokens_list, gateway_tokens_create, gateway_tokens_revoke;
/* Whose token this is: fills x->access. ERR_UNAUTHENTICATED. */
int gateway_tokens_login(struct exchange *x, const char *secret, struct err *err) MUST_CHECK;
/* The token with this id still holds, for answers that last: ERR_UNAUTHENTICATED, ERR_NOT_FOUND. */
int gateway_tokens_check(const struct gateway *gateway, const char *id, struct err *err) MUST_CHECK;
exchange_fn gateway_links_list, gateway_links_create, gateway_links_show, gateway_links_revoke;
exchange_fn gateway_links_get, gateway_links_put_begin, gateway_links_put_end;
/* What the index knows a link by. */
int gateway_links_hash(const char *secret, char out[SHA256_HEX], struct err *err) MUST_CHECK;
exchange_fn gateway_mounts_list, gateway_mounts_create, gateway_mounts_delete;

/* Shared by the handlers. */
/* Entries of a folder (gateway_tree_json()) whose path has a conflict say so. */
int gateway_conflicts_mark(struct exchange *x, int64_t volume, const char *dir, json_t *entries,
                           struct err *err) MUST_CHECK;
/* Adds `next_snapshot` where the volume has a rule. */
int gateway_snapshots_next(struct volume_service *service, const struct volume_info *info,
                           json_t *out, struct err *err) MUST_CHECK;
/* Since when (wall) the oldest change waits for the bucket, 0: none does. */
int gateway_state_oldest(struct volume_service *service, int64_t *since_ns,
                         struct err *err) MUST_CHECK;
/* The number of the volume that `?volume=` names, 0 without one. */
int gateway_state_volume(struct exchange *x, int64_t *volume, struct err *err) MUST_CHECK;
int gateway_volume_of(struct exchange *x, struct volume_info *out, struct err *err) MUST_CHECK;
/* The head of a reply with bytes of a file; 304 and a range are in x->reply and `part`. `fixed`: the address names the version, so that
 * other bytes never stand there. */
struct gateway_part {
    uint64_t first; /* of the range */
    uint64_t size;
};
int gateway_files_answer(struct exchange *x, struct gateway_part *part,
                         const struct volume_attr *attr, bool fixed, struct err *err) MUST_CHECK;
/* `?at=`: a folder, or a file, as it was. */
bool gateway_past_asked(const struct exchange *x);
int gateway_past_list(struct exchange *x, struct err *err) MUST_CHECK;
int gateway_past_get(struct exchange *x, struct err *err) MUST_CHECK;
json_t *gateway_tree_json(const char *name, size_t name_len, const struct volume_attr *attr);
/* JSON strings are text, names are bytes: what is not UTF-8 goes along in hexadecimal as FIELD_hex. */
int gateway_tree_text(json_t *object, const char *field, const char *text, size_t len) MUST_CHECK;
/* The folder that the query names by `prefix`, in normal form; "" when it names none. */
int gateway_tree_prefix(struct exchange *x, char out[LIMIT_PATH + 1], struct err *err) MUST_CHECK;
/* `?cursor=`: a path, "" without one; and how a page tells its own. */
int gateway_find_cursor(struct exchange *x, char out[LIMIT_PATH + 1], struct err *err) MUST_CHECK;
json_t *gateway_find_next(const char *path);
/* A parameter that is text: 1, 0 when it is not there. */
int gateway_find_text(struct exchange *x, const char *name, struct buf *out,
                      struct err *err) MUST_CHECK;
/* Whether all was known: `complete`, and how many folders nobody has listed. */
int gateway_find_unlisted(json_t *answer, uint64_t count, const char *path) MUST_CHECK;

#endif
