#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/parse.h"
#include "tests/fault/server/objects.h"

/* The S3 calls on single objects of the one bucket. */

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* protects all objects, uploads and modes */
_Atomic bool objects_lenient;
struct mode mode_default = { .page = 1000,
                             .min_part = 5u << 20,
                             .max_copy = MAX_OBJECT,
                             .write_ms = 1000,
                             .lag_ms = 3000,
                             .lag_lists = 0 };
struct mode objects_modes = { .page = 1000,
                              .min_part = 5u << 20,
                              .max_copy = MAX_OBJECT,
                              .write_ms = 1000,
                              .lag_ms = 3000,
                              .lag_lists = 0 };

void
objects_mode(const struct mode *mode)
{
    pthread_mutex_lock(&lock);
    objects_modes = *mode;
    pthread_mutex_unlock(&lock);
}

void
objects_clear(void)
{
    pthread_mutex_lock(&lock);
    table_clear();
    multipart_clear();
    roles_clear();
    pthread_mutex_unlock(&lock);
}

/* ---- what the calls share ---- */

void
objects_kept_head(const struct request *request, struct buf *out)
{
    struct err err = ERR_INIT;
    for (size_t i = 0; i < request->field_count; i++) {
        const struct field *field = &request->field[i];
        if (strcmp(field->name, "content-type") != 0 &&
            strcmp(field->name, "content-encoding") != 0 &&
            strncmp(field->name, "x-amz-meta-", 11) != 0)
            continue;
        if (buf_appendf(out, &err, "%s: %s\r\n", field->name, field->value) < 0)
            return;
    }
}

static bool
etag_matches(const char *value, const char *etag)
{
    size_t len = strlen(value);
    return len == strlen(etag) + 2 && value[0] == '"' && value[len - 1] == '"' &&
           strncmp(value + 1, etag, len - 2) == 0;
}

static bool
writes(const char *op)
{
    return strcmp(op, "GET") != 0 && strcmp(op, "HEAD") != 0;
}

int
objects_judge(const struct request *request, const char *op, const struct object *object)
{
    const char *match = request_field(request, "if-match");
    const char *none_match = request_field(request, "if-none-match");
    if ((match || none_match) && roles_has(ROLE_NOT_IMPLEMENTED) && writes(op))
        return 501;
    if (faults_ignore_conditions(op) || roles_ignore_conditions(op))
        return 0;
    if (none_match && strcmp(none_match, "*") == 0 && object)
        return 412;
    if (match && !object)
        return 404;
    if (match && strcmp(match, "*") != 0 && !etag_matches(match, object->now.etag))
        return 412;
    return 0;
}

void
objects_refuse(struct reply *reply, int status)
{
    if (status == 404)
        reply_error(reply, 404, "NoSuchKey", "The specified key does not exist.");
    else if (status == 501)
        reply_error(reply, 501, "NotImplemented", "A header implies what is not implemented.");
    else
        reply_error(reply, 412, "PreconditionFailed", "A precondition did not hold.");
}

void
objects_etag(struct reply *reply, const char *etag, struct hit hit)
{
    if (hit.fault == FAULT_NO_ETAG)
        return;
    reply_header(reply, "ETag: \"%s\"",
                 hit.fault == FAULT_WRONG_ETAG ? "0badc0de0badc0de0badc0de0badc0de" : etag);
}

bool
objects_md5_fits(const struct request *request, struct reply *reply)
{
    const char *want = request_field(request, "content-md5");
    struct err err = ERR_INIT;
    struct buf text;
    if (!want)
        return true;
    buf_init(&text, 64);
    bool fits = base64_encode(request->body_md5, MD5_SIZE, &text, &err) == 0 &&
                strcmp(buf_cstr(&text), want) == 0;
    buf_release(&text);
    if (!fits)
        reply_error(reply, 400, "BadDigest", "The Content-MD5 did not match");
    return fits;
}

bool
objects_may_write(const char *key, struct reply *reply)
{
    if (roles_may_write(key, objects_modes.write_ms))
        return true;
    reply_error(reply, 429, "SlowDown", "Reduce your concurrent request rate for the same object.");
    return false;
}

void
objects_result_date(struct reply *reply, const char *name, int64_t ns)
{
    char date[TIME_RFC3339_SIZE];
    time_rfc3339(ns / NS_PER_S * NS_PER_S, date, sizeof(date));
    reply_body(reply, "<%s>%s</%s>", name, date, name);
}

/* ---- PUT and COPY ---- */

static void
put(const struct request *request, struct hit hit, struct reply *reply)
{
    char etag[MD5_HEX];
    struct buf head;
    if (content_len(request->body) > MAX_OBJECT) {
        reply_error(reply, 400, "EntityTooLarge", "The proposed upload is too large");
        return;
    }
    if (!objects_md5_fits(request, reply))
        return;
    int status = objects_judge(request, "PUT", table_find(request->key));
    if (status) {
        objects_refuse(reply, status);
        return;
    }
    if (!objects_may_write(request->key, reply))
        return;
    buf_init(&head, 65536);
    objects_kept_head(request, &head);
    hex_encode(request->body_md5, MD5_SIZE, etag);
    (void)table_store(request->key, content_hold(request->body), etag, buf_cstr(&head));
    buf_release(&head);
    reply->status = 200;
    objects_etag(reply, etag, hit);
}

static bool
source_key(const struct request *request, char *key, size_t size)
{
    char text[2048];
    const char *source = request_field(request, "x-amz-copy-source");
    if (!decode(source, strlen(source), text, sizeof(text)))
        return false;
    const char *at = text[0] == '/' ? text + 1 : text;
    if (strncmp(at, BUCKET "/", sizeof(BUCKET)) != 0)
        return false;
    (void)snprintf(key, size, "%s", at + sizeof(BUCKET));
    return true;
}

struct object *
objects_copy_source(const struct request *request, const char *op, struct reply *reply)
{
    char key[1100];
    struct object *source = NULL;
    const char *match = request_field(request, "x-amz-copy-source-if-match");
    if (source_key(request, key, sizeof(key))) {
        roles_fold(key, sizeof(key));
        source = table_find(key);
    }
    if (!source) {
        objects_refuse(reply, 404);
        return NULL;
    }
    if (match && !etag_matches(match, source->now.etag) && !faults_ignore_conditions(op) &&
        !roles_ignore_conditions(op)) {
        objects_refuse(reply, 412);
        return NULL;
    }
    return source;
}

/* The ETag of an object made of parts does not survive a copy, as at AWS. */
static void
copied_etag(const char *from, char etag[ETAG_SIZE])
{
    uint8_t digest[MD5_SIZE];
    struct err err = ERR_INIT;
    (void)snprintf(etag, ETAG_SIZE, "%s", from);
    if (strchr(from, '-') && md5(from, strlen(from), digest, &err) == 0)
        hex_encode(digest, sizeof(digest), etag);
}

static void
copy(const struct request *request, struct reply *reply)
{
    const char *directive = request_field(request, "x-amz-metadata-directive");
    char etag[ETAG_SIZE];
    struct buf head;
    struct object *source = objects_copy_source(request, "COPY", reply);
    if (!source)
        return;
    if (source->now.size > objects_modes.max_copy) {
        reply_error(reply, 400, "InvalidRequest",
                    "The specified copy source is larger than the maximum allowable size");
        return;
    }
    int status = objects_judge(request, "COPY", table_find(request->key));
    if (status) {
        objects_refuse(reply, status);
        return;
    }
    if (!objects_may_write(request->key, reply))
        return;
    buf_init(&head, 65536);
    if (directive && strcmp(directive, "REPLACE") == 0)
        objects_kept_head(request, &head);
    else
        (void)!buf_append_str(&head, source->head, &(struct err)ERR_INIT);
    copied_etag(source->now.etag, etag);
    (void)table_store(request->key, content_hold(source->content), etag, buf_cstr(&head));
    buf_release(&head);
    reply->status = 200;
    reply_body(reply, "<CopyObjectResult>");
    objects_result_date(reply, "LastModified", server_wall_ns());
    reply_body(reply, "<ETag>&quot;%s&quot;</ETag></CopyObjectResult>", etag);
}

/* ---- GET, HEAD, DELETE ---- */

/* "bytes=a-b" or "bytes=a-"; 0 whole, 1 a range, -1 beyond the end. */
static int
read_range(const struct request *request, uint64_t len, uint64_t *first, uint64_t *end)
{
    const char *range = request_field(request, "range");
    uint64_t a = 0;
    uint64_t b = 0;
    *first = 0;
    *end = len;
    if (!range)
        return 0;
    const char *dash = strchr(range, '-');
    if (strncmp(range, "bytes=", 6) != 0 || !dash ||
        !parse_u64_n(range + 6, (size_t)(dash - range) - 6, &a) || a >= len)
        return -1;
    *first = a;
    if (parse_u64(dash + 1, &b) && b < len - 1)
        *end = b + 1;
    return 1;
}

static void
describe(const struct object *object, struct hit hit, struct reply *reply)
{
    char date[TIME_HTTP_SIZE];
    time_http(object->now.modified_ns, date, sizeof(date));
    reply_header(reply, "Last-Modified: %s", date);
    objects_etag(reply, object->now.etag, hit);
    (void)!buf_append_str(&reply->head, object->head, &(struct err)ERR_INIT);
}

/* FLIP: the answer has another byte in its middle. */
static void
flip(struct reply *reply)
{
    char *bytes = malloc((size_t)reply->len + 1);
    size_t len = content_read(reply->content, reply->off, bytes, (size_t)reply->len);
    content_drop(reply->content);
    reply->content = NULL;
    if (len > 0)
        bytes[len / 2] ^= 1;
    (void)!buf_append(&reply->body, bytes, len, &(struct err)ERR_INIT);
    free(bytes);
}

static void
range_header(struct reply *reply, uint64_t first, uint64_t end, uint64_t size, bool wrong)
{
    reply_header(reply, "Content-Range: bytes %llu-%llu/%llu",
                 (unsigned long long)(wrong ? first + 1 : first),
                 (unsigned long long)(wrong ? end : end - 1),
                 (unsigned long long)(wrong ? size + 1 : size));
}

static void
get(const struct request *request, struct hit hit, struct reply *reply)
{
    uint64_t first;
    uint64_t end;
    const struct object *object = table_find(request->key);
    int status = object ? objects_judge(request, "GET", object) : 404;
    if (status) {
        objects_refuse(reply, status);
        return;
    }
    int range = read_range(request, object->now.size, &first, &end);
    if (range < 0) {
        reply_error(reply, 416, "InvalidRange", "beyond the end");
        return;
    }
    if (hit.fault == FAULT_OTHER_RANGE && range > 0) {
        first = 0;
        end = object->now.size;
        range = 0;
    }
    describe(object, hit, reply);
    reply->status = range ? 206 : 200;
    if (range)
        range_header(reply, first, end, object->now.size, hit.fault == FAULT_WRONG_RANGE);
    reply_content(reply, object->content, first, end - first);
    if (hit.fault == FAULT_FLIP)
        flip(reply);
}

static void
head(const struct request *request, struct hit hit, struct reply *reply)
{
    const struct object *object = table_find(request->key);
    int status = object ? objects_judge(request, "HEAD", object) : 404;
    reply->no_body = true;
    reply->status = status;
    if (status)
        return;
    reply->status = 200;
    describe(object, hit, reply);
    reply_content(reply, object->content, 0, object->now.size);
}

static void
delete_object(const struct request *request, struct reply *reply)
{
    int status = objects_judge(request, "DELETE", table_find(request->key));
    if (status) {
        objects_refuse(reply, status);
        return;
    }
    table_erase(request->key);
    reply->status = 204;
}

void
objects_raw(const char *key, struct reply *reply)
{
    pthread_mutex_lock(&lock);
    const struct object *object = table_find(key);
    reply->status = object ? 200 : 404;
    if (object)
        reply_content(reply, object->content, 0, object->now.size);
    pthread_mutex_unlock(&lock);
}

static void
handle(const struct request *request, const char *op, struct hit hit, struct reply *reply)
{
    if (strcmp(op, "LIST") == 0)
        list_objects(request, hit, reply);
    else if (strcmp(op, "COPY") == 0)
        copy(request, reply);
    else if (strcmp(op, "PUT") == 0)
        put(request, hit, reply);
    else if (strcmp(op, "GET") == 0)
        get(request, hit, reply);
    else if (strcmp(op, "HEAD") == 0)
        head(request, hit, reply);
    else if (strcmp(op, "DELETE") == 0)
        delete_object(request, reply);
    else if (strcmp(op, "DELMANY") == 0)
        batch_delete(request, hit, reply);
    else if (!multipart_handle(request, op, hit, reply))
        reply_error(reply, 405, "MethodNotAllowed", "no such call here");
}

void
objects_handle(struct request *request, const char *op, struct hit hit, struct reply *reply)
{
    if (strcmp(request->bucket, BUCKET) != 0) {
        reply_error(reply, 404, "NoSuchBucket", "The specified bucket does not exist");
        reply->no_body = strcmp(op, "HEAD") == 0;
        return;
    }
    roles_fold(request->key, sizeof(request->key));
    pthread_mutex_lock(&lock);
    handle(request, op, hit, reply);
    pthread_mutex_unlock(&lock);
}
