#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/parse.h"
#include "base/scope.h"
#include "volume/audit_impl.h"

/* Records found, and the chain held against itself, against what the index remembers, and against the bucket. */

/* ---- queries ---- */

struct query_call {
    const struct audit_query *query;
    volume_audit_fn *fn;
    void *arg;
};

static bool
is_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    if (len == 0)
        return true;
    return strncmp(path, folder, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

static bool
has_text(const json_t *doc, const char *field, const char *wanted)
{
    const char *text = json_string_value(json_object_get(doc, field));
    return wanted == NULL || (text != NULL && strcmp(text, wanted) == 0);
}

static bool
has_path(const json_t *doc, const char *wanted)
{
    static const char *const fields[] = { "path", "to" };
    for (unsigned i = 0; wanted != NULL && i < 2; i++) {
        const char *text = json_string_value(json_object_get(doc, fields[i]));
        if (text != NULL && is_below(text, wanted))
            return true;
    }
    return wanted == NULL;
}

static bool
matches(const struct audit_query *query, const char *line, size_t len)
{
    struct err ignored = ERR_INIT;
    if (query->run != NULL && memmem(line, len, query->run, strlen(query->run)) == NULL)
        return false;
    scope_json *doc = json_parse(line, len, &ignored);
    int64_t time_ns = 0;
    const char *time = json_string_value(json_object_get(doc, "time"));
    if (doc == NULL || time == NULL || time_parse_rfc3339(time, &time_ns) != 0)
        return false;
    if ((query->since_ns != 0 && time_ns < query->since_ns) ||
        (query->until_ns != 0 && time_ns >= query->until_ns))
        return false;
    return has_text(doc, "run", query->run) && has_text(doc, "volume", query->volume) &&
           has_text(doc, "verb", query->verb) && has_path(doc, query->path);
}

static int
see_line(void *arg, const struct audit_link *link, const char *line, size_t len, const char *fault,
         struct err *err)
{
    const struct query_call *call = arg;
    (void)fault; /* told by verify */
    if (link->seq <= call->query->after || !matches(call->query, line, len))
        return 0;
    return call->fn(call->arg, link->seq, line, len, err);
}

int
volume_audit_each(struct volume_service *service, const struct audit_query *query,
                  volume_audit_fn *fn, void *arg, struct err *err)
{
    struct query_call call = { query, fn, arg };
    struct audit_segments list = { .item = NULL };
    int dir = audit_dir(service->audit);
    volume_audit_flush(service);
    int rc = audit_segments_list(dir, &list, err);
    for (size_t i = 0; rc == 0 && i < list.count; i++) {
        struct audit_walk walk;
        char *data = NULL;
        size_t len = 0;
        if (i + 1 < list.count && list.item[i + 1].first <= query->after + 1)
            continue;
        rc = audit_segment_read(dir, &list.item[i], &data, &len, err);
        if (rc != 0)
            break;
        scope_free char *held = data;
        audit_walk_init(&walk);
        walk.open = true;
        walk.fn = see_line;
        walk.arg = &call;
        rc = audit_walk_lines(&walk, held, len, err);
    }
    audit_segments_release(&list);
    return rc < 0 ? -1 : 0;
}

/* ---- verify ---- */

struct verify_call {
    struct volume_service *service;
    volume_audit_finding_fn *fn;
    void *arg;
    struct audit_verified *out;
    char where[LIMIT_KEY + 1];
    struct audit_link known; /* what the index remembers */
    bool seen;               /* the record that it remembers is there */
    uint64_t sent;           /* the first record of the last segment that was sent */
};

static int
tell(struct verify_call *call, uint64_t seq, const char *what, struct err *err)
{
    struct audit_finding finding = { .where = call->where, .seq = seq, .what = what };
    call->out->findings++;
    return call->fn == NULL ? 0 : call->fn(call->arg, &finding, err);
}

static int
check_line(void *arg, const struct audit_link *link, const char *line, size_t len,
           const char *fault, struct err *err)
{
    struct verify_call *call = arg;
    (void)line;
    (void)len;
    if (link->seq == call->known.seq && strcmp(link->hash, call->known.hash) == 0)
        call->seen = true;
    return fault == NULL ? 0 : tell(call, link->seq, fault, err);
}

static int
verify_segments(struct verify_call *call, struct err *err)
{
    struct audit_segments list = { .item = NULL };
    struct audit_walk walk;
    int dir = audit_dir(call->service->audit);
    char name[AUDIT_NAME_SIZE];
    audit_walk_init(&walk);
    walk.fn = check_line;
    walk.arg = call;
    int rc = audit_segments_list(dir, &list, err);
    for (size_t i = 0; rc == 0 && i < list.count; i++) {
        char *data = NULL;
        size_t len = 0;
        struct err damaged = ERR_INIT;
        audit_segment_name(&list.item[i], name);
        text_set(call->where, name);
        walk.open = i + 1 == list.count;
        if (audit_segment_read(dir, &list.item[i], &data, &len, &damaged) != 0) {
            rc = tell(call, 0, damaged.msg, err);
            continue;
        }
        scope_free char *held = data;
        if (list.item[i].first != walk.last.seq + 1)
            rc = tell(call, list.item[i].first, "a segment is missing before this one", err);
        if (rc == 0)
            rc = audit_walk_lines(&walk, held, len, err);
        call->out->segments++;
    }
    audit_segments_release(&list);
    call->out->records = walk.records;
    call->out->head = walk.last.seq;
    text_set(call->out->hash, walk.last.hash);
    return rc < 0 ? -1 : 0;
}

/* ---- the bucket ---- */

struct bucket_call {
    struct audit_segments list;
    size_t prefix;
};

static int
see_object(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct bucket_call *call = arg;
    struct audit_segment segment;
    if (!audit_segment_parse(entry->key + call->prefix, &segment))
        return 0;
    return audit_segments_add(&call->list, &segment, err);
}

struct fetch_call {
    struct buf data;
};

static int
take(void *arg, const void *data, size_t len, struct err *err)
{
    return buf_append(&((struct fetch_call *)arg)->data, data, len, err);
}

static int
fetch(struct volume_service *service, const char *key, char **data, size_t *len, struct err *err)
{
    struct fetch_call call;
    struct store_object object;
    struct store_get get = { .key = key, .sink = take, .sink_arg = &call };
    buf_init(&call.data, AUDIT_SEGMENT_ROOM);
    store_object_init(&object);
    int rc = store_get(service->store, &get, &object, err);
    store_object_release(&object);
    if (rc == 0)
        rc = audit_unpack(buf_cstr(&call.data), call.data.len, data, len, err);
    buf_release(&call.data);
    return rc;
}

static int
verify_object(struct verify_call *call, struct audit_walk *walk,
              const struct audit_segment *segment, struct err *err)
{
    char key[LIMIT_KEY + 1];
    char *data = NULL;
    size_t len = 0;
    struct err damaged = ERR_INIT;
    audit_key(call->service->audit, segment, key);
    text_set(call->where, key);
    if (fetch(call->service, key, &data, &len, &damaged) != 0) {
        if (damaged.code != ERR_CORRUPT)
            return err_set(err, damaged.code, "%s", damaged.msg);
        return tell(call, 0, damaged.msg, err);
    }
    scope_free char *held = data;
    if (segment->first != walk->last.seq + 1 &&
        tell(call, segment->first, "a segment is missing before this one", err) != 0)
        return -1;
    call->out->bucket_segments++;
    return audit_walk_lines(walk, held, len, err);
}

static int
verify_bucket(struct verify_call *call, struct err *err)
{
    struct bucket_call bucket = { .list = { .item = NULL } };
    struct audit_walk walk;
    char prefix[LIMIT_KEY + 1];
    (void)snprintf(prefix, sizeof(prefix), ".holdfast/audit/%s/",
                   audit_chain(call->service->audit));
    bucket.prefix = strlen(prefix);
    struct store_list list = { .prefix = prefix, .fn = see_object, .arg = &bucket };
    audit_walk_init(&walk);
    walk.fn = check_line;
    walk.arg = call;
    call->out->bucket = true;
    int rc = store_list(call->service->store, &list, err);
    audit_segments_sort(&bucket.list);
    for (size_t i = 0; rc == 0 && i < bucket.list.count; i++)
        rc = verify_object(call, &walk, &bucket.list.item[i], err);
    audit_segments_release(&bucket.list);
    call->out->bucket_records = walk.records;
    text_set(call->where, "the bucket");
    if (rc == 0 && walk.last.seq < call->sent)
        rc = tell(call, walk.last.seq, "segments that were sent are missing behind this record",
                  err);
    return rc < 0 ? -1 : 0;
}

int
volume_audit_verify(struct volume_service *service, bool bucket, volume_audit_finding_fn *fn,
                    void *arg, struct audit_verified *out, struct err *err)
{
    struct verify_call call = { .service = service, .fn = fn, .arg = arg, .out = out };
    memset(out, 0, sizeof(*out));
    volume_audit_flush(service);
    if (audit_head_get(service, &call.known, err) != 0 ||
        audit_sent_get(service, &call.sent, err) != 0 || verify_segments(&call, err) != 0)
        return -1;
    text_set(call.where, "the end");
    if (call.known.seq != 0 && !call.seen) {
        const char *what = out->head < call.known.seq
                               ? "records were cut off: the index remembers more"
                               : "another record stands where the index remembers one";
        if (tell(&call, call.known.seq, what, err) != 0)
            return -1;
    }
    return bucket ? verify_bucket(&call, err) : 0;
}
