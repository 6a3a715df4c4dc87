/*
 * The gate: every call of the store contract passes here. Arguments are checked before the store sees them, and the
 * answer is held to the contract. What an outside server may get wrong is an error in s3/http_store.c; by the time it
 * arrives here it is our own promise, so it is asserted.
 */
#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/parse.h"
#include "s3/store.h"

#define SHORT_META 256 /* caps.long_meta: of one value */

static int
check_key(const char *key, struct err *err)
{
    size_t len = strlen(key);

    if (len == 0)
        return err_set(err, ERR_BAD_NAME, "empty object key");
    if (len > LIMIT_KEY)
        return err_set(err, ERR_NAME_TOO_LONG, "object key of %zu bytes, at most %d are possible",
                       len, LIMIT_KEY);
    return 0;
}

static bool
has_control(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f)
            return true;
    }
    return false;
}

static int
check_etag(const char *etag, struct err *err)
{
    if (!*etag || strlen(etag) >= LIMIT_ETAG || has_control(etag) || strchr(etag, '"'))
        return err_set(err, ERR_INVAL, "'%.40s' is not an ETag", etag);
    return 0;
}

static int
check_deadline(const struct store *store, int64_t deadline_ns, struct err *err)
{
    if (deadline_ns != 0 && clock_mono_ns() >= deadline_ns)
        return err_set(err, ERR_STORE_TIMEOUT, "no time left to ask store '%s'", store->url);
    return 0;
}

static int
unsupported(const struct store *store, const char *what, struct err *err)
{
    return err_set(err, ERR_STORE_UNSUPPORTED, "store '%s' has no %s", store->url, what);
}

static int
check_common(const struct store *store, const char *key, int64_t deadline_ns, struct err *err)
{
    if (check_key(key, err) < 0)
        return -1;
    return check_deadline(store, deadline_ns, err);
}

/* A store that would file the object under another name gets no such name. */
static int
check_new_key(const struct store *store, const char *key, struct err *err)
{
    if (store->caps.any_bytes == STORE_NO && !utf8_valid(key, strlen(key)))
        return err_set(err, ERR_BAD_NAME,
                       "'%.200s' is not UTF-8, and this store does not keep such names: rename it",
                       key);
    return 0;
}

/* Some stores answer 500 to it, for ever. */
static int
check_new_meta(const struct store *store, const char *key, const struct meta *meta, struct err *err)
{
    for (size_t i = 0; meta && i < meta->count && store->caps.long_meta == STORE_NO; i++) {
        if (strlen(meta->entry[i].value) > SHORT_META)
            return err_set(err, ERR_TOO_LARGE,
                           "'%.200s': this store keeps at most %d bytes in one value of metadata, "
                           "'%.60s' is longer",
                           key, SHORT_META, meta->entry[i].name);
    }
    return 0;
}

static void
assert_object(const struct store_object *object)
{
    assert(object->etag[0] != '\0');
    assert(memchr(object->etag, '\0', sizeof(object->etag)));
    assert(memchr(object->content_type, '\0', sizeof(object->content_type)));
    (void)object;
}

static void
assert_outcome(int rc, enum store_outcome outcome, const struct err *err)
{
    assert(rc == 0 || rc == -1);
    assert((rc == 0) == (outcome == STORE_DONE));
    assert(rc == 0 || err->code != ERR_CONFLICT || outcome == STORE_REFUSED);
    (void)rc;
    (void)outcome;
    (void)err;
}

int
store_head(struct store *store, const char *key, int64_t deadline_ns, struct store_object *out,
           struct err *err)
{
    struct store_object own;
    int rc;

    if (check_common(store, key, deadline_ns, err) < 0)
        return -1;
    store_object_init(&own);
    int64_t begun = clock_mono_ns();
    rc = store->ops->head(store, key, deadline_ns, out ? out : &own, err);
    store_timing_add(&store->timing, STORE_CALL_HEAD, begun, rc, err);
    if (rc == 0)
        assert_object(out ? out : &own);
    store_object_release(&own);
    return rc;
}

/* Counts what the sink gets, to hold the store to it. */
struct get_check {
    const struct store_get *req;
    uint64_t passed;
};

static int
counting_sink(void *arg, const void *data, size_t len, struct err *err)
{
    struct get_check *check = arg;

    check->passed += len;
    assert(check->req->len == 0 || check->passed <= check->req->len);
    return check->req->sink(check->req->sink_arg, data, len, err);
}

static int
check_get(const struct store *store, const struct store_get *req, struct err *err)
{
    if (check_common(store, req->key, req->deadline_ns, err) < 0)
        return -1;
    if (req->off > INT64_MAX || req->len > INT64_MAX - req->off)
        return err_set(err, ERR_INVAL, "range of '%s' does not fit", req->key);
    return req->if_match ? check_etag(req->if_match, err) : 0;
}

int
store_get(struct store *store, const struct store_get *req, struct store_object *out,
          struct err *err)
{
    struct get_check check = { .req = req };
    struct store_get counted = *req;
    struct store_object own;
    const struct store_object *got = out ? out : &own;
    int rc;

    if (check_get(store, req, err) < 0)
        return -1;
    counted.sink = counting_sink;
    counted.sink_arg = &check;
    store_object_init(&own);
    int64_t begun = clock_mono_ns();
    rc = store->ops->get(store, &counted, out ? out : &own, err);
    store_timing_add(&store->timing, STORE_CALL_GET, begun, rc, err);
    if (rc == 0) {
        assert_object(got);
        assert(req->off <= got->size);
        assert(
            check.passed ==
            (req->len != 0 && req->len < got->size - req->off ? req->len : got->size - req->off));
        assert(!req->if_match || strcmp(req->if_match, got->etag) == 0);
    }
    (void)got;
    store_object_release(&own);
    return rc;
}

static int
check_cond(const struct store *store, const struct store_cond *cond, struct err *err)
{
    switch (cond->kind) {
    case STORE_COND_NONE:
        return 0;
    case STORE_COND_ABSENT:
        if (store->caps.put_if_absent == STORE_NO)
            return unsupported(store, "conditional creation (If-None-Match)", err);
        return 0;
    case STORE_COND_MATCH:
        if (store->caps.put_if_match == STORE_NO)
            return unsupported(store, "conditional replacement (If-Match)", err);
        return check_etag(cond->etag, err);
    }
    return err_set(err, ERR_INTERNAL, "unknown condition %d", (int)cond->kind);
}

static int
check_put(const struct store *store, const struct store_put *req, struct err *err)
{
    uint64_t max = store->caps.max_put_bytes ? store->caps.max_put_bytes : LIMIT_PUT_BODY;

    if (store->caps.multipart != STORE_NO)
        max = LIMIT_FILE_SIZE;
    if (check_common(store, req->key, req->deadline_ns, err) < 0 ||
        check_new_key(store, req->key, err) < 0 || check_cond(store, &req->cond, err) < 0)
        return -1;
    if (check_new_meta(store, req->key, req->meta, err) < 0)
        return -1;
    if (req->body.size > max)
        return err_set(err, ERR_TOO_LARGE, "'%.200s' has %llu bytes, one write takes at most %llu",
                       req->key, (unsigned long long)req->body.size, (unsigned long long)max);
    if (req->content_type &&
        (strlen(req->content_type) >= sizeof(((struct store_object *)NULL)->content_type) ||
         has_control(req->content_type)))
        return err_set(err, ERR_INVAL, "bad content type for '%.200s'", req->key);
    return 0;
}

/* The result reaches the caller last: the ETag of the condition may lie in the result of the call before. */
static int
answer_put(int rc, const struct store_put_result *got, struct store_put_result *res,
           const struct err *err)
{
    assert_outcome(rc, got->outcome, err);
    assert(rc != 0 || got->etag[0] != '\0');
    if (!res)
        return rc;
    *res = *got;
    if (rc < 0)
        res->etag[0] = '\0'; /* whatever the store wrote: only a done write has one */
    return rc;
}

int
store_put(struct store *store, const struct store_put *req, struct store_put_result *res,
          struct err *err)
{
    struct store_put_result got = { .outcome = STORE_NOT_DONE };
    int rc = check_put(store, req, err);

    if (rc == 0) {
        int64_t begun = clock_mono_ns();
        rc = store->ops->put(store, req, &got, err);
        store_timing_add(&store->timing, STORE_CALL_PUT, begun, rc, err);
    }
    return answer_put(rc, &got, res, err);
}

int
store_delete(struct store *store, const struct store_delete *req, enum store_outcome *outcome,
             struct err *err)
{
    enum store_outcome own;
    int rc;

    if (!outcome)
        outcome = &own;
    *outcome = STORE_NOT_DONE;
    if (check_common(store, req->key, req->deadline_ns, err) < 0)
        return -1;
    if (req->if_match && check_etag(req->if_match, err) < 0)
        return -1;
    if (req->if_match && store->caps.delete_if_match == STORE_NO)
        return unsupported(store, "conditional deletion (DELETE with If-Match)", err);
    int64_t begun = clock_mono_ns();
    rc = store->ops->del(store, req, outcome, err);
    store_timing_add(&store->timing, STORE_CALL_DELETE, begun, rc, err);
    assert_outcome(rc, *outcome, err);
    return rc;
}

static int
check_copy(const struct store *store, const struct store_copy *req, struct err *err)
{
    if (check_key(req->from, err) < 0)
        return -1;
    if (check_common(store, req->to, req->deadline_ns, err) < 0 ||
        check_new_key(store, req->to, err) < 0 ||
        check_new_meta(store, req->to, req->meta, err) < 0)
        return -1;
    if (req->from_if_match && check_etag(req->from_if_match, err) < 0)
        return -1;
    if (store->caps.server_side_copy == STORE_NO)
        return unsupported(store, "copy inside the store", err);
    return 0;
}

int
store_copy(struct store *store, const struct store_copy *req, struct store_put_result *res,
           struct err *err)
{
    struct store_put_result got = { .outcome = STORE_NOT_DONE };
    int rc = check_copy(store, req, err);

    if (rc == 0) {
        int64_t begun = clock_mono_ns();
        rc = store->ops->copy(store, req, &got, err);
        store_timing_add(&store->timing, STORE_CALL_COPY, begun, rc, err);
    }
    return answer_put(rc, &got, res, err);
}

/* What a listing has passed on so far. */
struct list_check {
    const struct store_list *req;
    size_t prefix_len;
    unsigned count;
    char last[LIMIT_KEY + 1]; /* "" before the first; no key is empty */
};

static void
assert_entry(const struct list_check *check, const struct store_list_entry *entry)
{
    const struct store_list *req = check->req;
    size_t len = strlen(entry->key);
    const char *cut = NULL;

    assert(len > 0 && len <= LIMIT_KEY);
    assert(strncmp(entry->key, req->prefix, check->prefix_len) == 0);
    assert(strcmp(entry->key, check->last) > 0);
    assert(!req->start_after || strcmp(entry->key, req->start_after) > 0);
    assert(req->limit == 0 || check->count < req->limit);
    if (req->delimiter)
        cut = strchr(entry->key + check->prefix_len, req->delimiter);
    if (entry->is_prefix)
        assert(cut == entry->key + len - 1);
    else
        assert(!cut && entry->etag && entry->etag[0]);
    (void)len;
    (void)cut;
    (void)req;
}

static int
checking_fn(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct list_check *check = arg;
    size_t len = strlen(entry->key);

    assert_entry(check, entry);
    memcpy(check->last, entry->key, len < sizeof(check->last) ? len + 1 : 0);
    check->count++;
    return check->req->fn(check->req->arg, entry, err);
}

static int
check_list(const struct store *store, const struct store_list *req, struct err *err)
{
    if (strlen(req->prefix) > LIMIT_KEY ||
        (req->start_after && strlen(req->start_after) > LIMIT_KEY))
        return err_set(err, ERR_NAME_TOO_LONG, "listing prefix or start of more than %d bytes",
                       LIMIT_KEY);
    if (req->delimiter != '\0' && req->delimiter != '/')
        return err_set(err, ERR_INVAL, "delimiter '%c', only '/' is possible", req->delimiter);
    return check_deadline(store, req->deadline_ns, err);
}

int
store_list(struct store *store, const struct store_list *req, struct err *err)
{
    struct store_list plain = *req;
    struct list_check check = { .req = &plain, .last = "" };
    struct store_list checked;

    if (!plain.prefix)
        plain.prefix = "";
    if (check_list(store, &plain, err) < 0)
        return -1;
    check.prefix_len = strlen(plain.prefix);
    checked = plain;
    checked.fn = checking_fn;
    checked.arg = &check;
    int64_t begun = clock_mono_ns();
    int rc = store->ops->list(store, &checked, err);
    store_timing_add(&store->timing, STORE_CALL_LIST, begun, rc, err);
    return rc;
}

/* Holds a store to telling of each key once. */
struct delete_check {
    store_deleted_fn *fn;
    void *arg;
    size_t told, failed;
};

static void
counting_deleted(void *arg, const char *key, enum err_code code, const char *message)
{
    struct delete_check *check = arg;

    check->told++;
    check->failed += code != 0;
    if (check->fn)
        check->fn(check->arg, key, code, message);
}

/* For the stores that have no better way. */
static int
delete_each(struct store *store, const char *const *keys, size_t count, int64_t deadline_ns,
            struct delete_check *check, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < count; i++) {
        const struct store_delete req = { .key = keys[i], .deadline_ns = deadline_ns };
        struct err own = ERR_INIT;
        int one = store_delete(store, &req, NULL, &own);
        enum err_code code = one == 0 ? (enum err_code)0 : own.code;
        if (one < 0 && code == 0)
            code = ERR_IO; /* 0 says deleted */
        counting_deleted(check, keys[i], code, one == 0 ? "" : own.msg);
        if (one < 0 && rc == 0)
            *err = own;
        rc = one < 0 ? -1 : rc;
    }
    return rc;
}

int /* NOLINTNEXTLINE(readability-function-size): the operation's parameters */
store_delete_many(struct store *store, const char *const *keys, size_t count, int64_t deadline_ns,
                  store_deleted_fn *fn, void *arg, struct err *err)
{
    struct delete_check check = { .fn = fn, .arg = arg };
    int rc;

    for (size_t i = 0; i < count; i++) {
        if (check_key(keys[i], err) < 0)
            return -1;
    }
    if (check_deadline(store, deadline_ns, err) < 0)
        return -1;
    if (store->ops->delete_many)
        rc =
            store->ops->delete_many(store, keys, count, deadline_ns, counting_deleted, &check, err);
    else
        rc = delete_each(store, keys, count, deadline_ns, &check, err);
    assert(check.told == count);
    assert((rc == 0) == (check.failed == 0));
    return rc;
}

struct uploads_check {
    const char *prefix;
    store_uploads_fn *fn;
    void *arg;
};

static int
checking_upload(void *arg, const struct store_upload *upload, struct err *err)
{
    struct uploads_check *check = arg;

    assert(*upload->key && strlen(upload->key) <= LIMIT_KEY && *upload->upload_id);
    assert(strncmp(upload->key, check->prefix, strlen(check->prefix)) == 0);
    return check->fn(check->arg, upload, err);
}

int
store_uploads(struct store *store, const char *prefix, store_uploads_fn *fn, void *arg,
              struct err *err)
{
    struct uploads_check check = { .prefix = prefix ? prefix : "", .fn = fn, .arg = arg };

    if (strlen(check.prefix) > LIMIT_KEY)
        return err_set(err, ERR_NAME_TOO_LONG, "prefix of more than %d bytes", LIMIT_KEY);
    if (!store->ops->uploads || store->caps.list_uploads == STORE_NO)
        return unsupported(store, "list of uploads in parts", err);
    return store->ops->uploads(store, check.prefix, checking_upload, &check, err);
}

int
store_upload_abort(struct store *store, const char *key, const char *upload_id, int64_t deadline_ns,
                   struct err *err)
{
    if (check_common(store, key, deadline_ns, err) < 0)
        return -1;
    if (!*upload_id || has_control(upload_id))
        return err_set(err, ERR_INVAL, "'%.40s' is not the id of an upload", upload_id);
    if (!store->ops->upload_abort || store->caps.multipart == STORE_NO)
        return unsupported(store, "uploads in parts", err);
    return store->ops->upload_abort(store, key, upload_id, deadline_ns, err);
}

int
store_presign(struct store *store, const struct store_presign *req, struct buf *url,
              struct err *err)
{
    int rc;

    if (check_key(req->key, err) < 0)
        return -1;
    if (strcmp(req->method, "GET") != 0 && strcmp(req->method, "PUT") != 0 &&
        strcmp(req->method, "HEAD") != 0)
        return err_set(err, ERR_INVAL, "cannot presign '%.20s', only GET, HEAD and PUT",
                       req->method);
    if (req->expires_s < 1 || req->expires_s > 604800)
        return err_set(err, ERR_INVAL, "a presigned URL lives 1 second to 7 days, not %lld s",
                       (long long)req->expires_s);
    if (store->caps.presign == STORE_NO)
        return unsupported(store, "presigned URLs", err);
    rc = store->ops->presign(store, req, url, err);
    assert(rc != 0 || url->len > 0);
    return rc;
}

int
store_probe(struct store *store, struct err *err)
{
    struct store_caps caps = store->caps;

    if (store->ops->probe(store, &caps, err) < 0)
        return -1;
    store->caps = caps;
    return 0;
}

void
store_counters(struct store *store, struct store_counters *out)
{
    *out = (struct store_counters){ 0 };
    store->ops->counters(store, out);
}
