#include "volume/audit.h"

#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "gateway/router.h"

/* The audit asked for and held against itself; what requests do besides files. */

#define LIST_DEFAULT 1000
#define LIST_MOST 10000
#define DETAIL_MOST 1024

/* ---- requests ---- */

static bool
is_one_of(const char *prefix, const char *const *list)
{
    while (*list != NULL && strcmp(prefix, *list) != 0)
        list++;
    return *list != NULL;
}

static bool
is_denial(const struct err *why)
{
    return why->code == ERR_UNAUTHENTICATED || why->code == ERR_DENIED || why->code == ERR_PERM ||
           why->code == ERR_MISDIRECTED;
}

/* Bodies that say what was asked for, and hold no secret. */
static bool
shows_body(const struct exchange *x)
{
    static const char *const list[] = { "v1/volumes", "v1/snapshots", "v1/restore",
                                        "v1/undo",    "v1/mounts",    "v1/conflicts",
                                        "v1/forks",   "v1/tokens",    "v1/links",
                                        NULL };
    return is_one_of(x->route->prefix, list) && x->body.len > 0 &&
           utf8_valid(x->body.data, x->body.len);
}

void
gateway_audit_request(const struct exchange *x, const struct err *why)
{
    /* Files tell of themselves, each one; what is asked and waited for changes nothing. */
    static const char *const quiet[] = { "v1/files", "v1/ops",  "v1/runs", "v1/flush",
                                         "v1/audit", "v1/fsck", NULL };
    char detail[DETAIL_MOST];
    struct volume_ctx ctx;
    if (x == NULL || x->gateway->service == NULL)
        return;
    bool changes = strcmp(x->method, "GET") != 0 && strcmp(x->method, "HEAD") != 0;
    bool denied = why != NULL && is_denial(why);
    bool link = x->route != NULL && strcmp(x->route->prefix, "l") == 0;
    if (link && why != NULL) /* whoever guesses fills nobody's audit */
        return;
    if (!link && !denied && (!changes || x->route == NULL || is_one_of(x->route->prefix, quiet)))
        return;
    (void)snprintf(detail, sizeof(detail), "%s /%.200s%s%.*s", x->method,
                   link ? "l/..." : buf_cstr(&x->target.path),
                   x->route != NULL && shows_body(x) ? " " : "",
                   x->route != NULL && shows_body(x) ? 800 : 0, buf_cstr(&x->body));
    exchange_ctx(x, 0, &ctx);
    volume_audit_act(x->gateway->service, &ctx,
                     (struct audit_record){ .verb = denied ? "denied" : "request",
                                            .result = why != NULL ? err_slug(why->code) : NULL,
                                            .detail = detail,
                                            .bytes = -1 });
}

/* ---- asked for ---- */

struct question {
    struct audit_query query;
    struct buf run, volume, path, verb;
    struct exchange_list list;
    uint64_t last; /* the number of the last record of the answer */
};

static int
read_text(struct exchange *x, const char *name, struct buf *text, const char **out, struct err *err)
{
    buf_init(text, LIMIT_PATH + 1);
    int found = gateway_request_query(&x->target, name, text, err);
    if (found > 0)
        *out = buf_cstr(text);
    return found < 0 ? -1 : 0;
}

static int
read_time(struct exchange *x, const char *name, int64_t *out, struct err *err)
{
    scope_buf text;
    int64_t ago;
    buf_init(&text, 64);
    int found = gateway_request_query(&x->target, name, &text, err);
    if (found <= 0 || time_parse_rfc3339(buf_cstr(&text), out) == 0)
        return found < 0 ? -1 : 0;
    if (!parse_duration(buf_cstr(&text), &ago))
        return err_set(err, ERR_INVAL, "'%s' is a time (RFC 3339) or how long ago (90m, 2h, 3d)",
                       name);
    *out = clock_wall_ns() - ago;
    return 0;
}

static int
read_question(struct exchange *x, struct question *q, struct err *err)
{
    q->list.limit = LIST_DEFAULT;
    if (read_text(x, "run", &q->run, &q->query.run, err) < 0 ||
        read_text(x, "volume", &q->volume, &q->query.volume, err) < 0 ||
        read_text(x, "path", &q->path, &q->query.path, err) < 0 ||
        read_text(x, "verb", &q->verb, &q->query.verb, err) < 0 ||
        read_time(x, "since", &q->query.since_ns, err) < 0 ||
        read_time(x, "until", &q->query.until_ns, err) < 0 ||
        exchange_query_uint(x, "cursor", &q->query.after, err) < 0 ||
        exchange_query_uint(x, "limit", &q->list.limit, err) < 0)
        return -1;
    if (q->list.limit < 1 || q->list.limit > LIST_MOST)
        return err_set(err, ERR_INVAL, "limit must be 1 to %d", LIST_MOST);
    return 0;
}

static int
add_record(void *arg, uint64_t seq, const char *line, size_t len, struct err *err)
{
    struct question *q = arg;
    int rc = exchange_list_add(&q->list, json_parse(line, len, err), err);
    if (rc == 0)
        q->last = seq;
    return rc;
}

int
gateway_audit_list(struct exchange *x, struct err *err)
{
    scope_json *items = json_array();
    struct question q = { .list = { .items = items, .room = EXCHANGE_LIST_ROOM } };
    if (!items)
        return err_nomem(err);
    int rc = read_question(x, &q, err);
    if (rc == 0)
        rc = volume_audit_each(x->gateway->service, &q.query, add_record, &q, err);
    buf_release(&q.run);
    buf_release(&q.volume);
    buf_release(&q.path);
    buf_release(&q.verb);
    if (rc < 0)
        return -1;
    json_t *next = q.list.truncated ? json_integer((json_int_t)q.last) : json_null();
    return exchange_reply_json(x, 200,
                               json_pack("{s:O, s:b, s:o}", "records", items, "truncated",
                                         (int)q.list.truncated, "next", next),
                               err);
}

/* ---- verified ---- */

static int
add_finding(void *arg, const struct audit_finding *finding, struct err *err)
{
    struct exchange_list *list = arg;
    int rc = exchange_list_add(list,
                               json_pack("{s:s, s:I, s:s}", "where", finding->where, "seq",
                                         (json_int_t)finding->seq, "what", finding->what),
                               err);
    return rc < 0 ? -1 : 0; /* all are counted */
}

int
gateway_audit_verify(struct exchange *x, struct err *err)
{
    struct audit_verified done;
    bool bucket = true;
    scope_json *items = json_array();
    struct exchange_list list = { .items = items,
                                  .room = EXCHANGE_LIST_ROOM,
                                  .limit = LIST_DEFAULT };
    if (!items)
        return err_nomem(err);
    if (strcmp(x->name, "verify") != 0)
        return err_set(err, ERR_NOT_FOUND, "there is only /v1/audit/verify");
    if (exchange_query_bool(x, "bucket", &bucket, err) < 0 ||
        volume_audit_verify(x->gateway->service, bucket, add_finding, &list, &done, err) < 0)
        return -1;
    return exchange_reply_json(
        x, 200,
        json_pack("{s:b, s:I, s:I, s:b, s:I, s:I, s:{s:I, s:s}, s:I, s:O}", "ok",
                  (int)(done.findings == 0), "records", (json_int_t)done.records, "segments",
                  (json_int_t)done.segments, "bucket", (int)done.bucket, "bucket_records",
                  (json_int_t)done.bucket_records, "bucket_segments",
                  (json_int_t)done.bucket_segments, "head", "seq", (json_int_t)done.head, "hash",
                  done.hash, "found", (json_int_t)done.findings, "findings", items),
        err);
}
