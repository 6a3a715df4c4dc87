#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/parse.h"
#include "tests/fault/server/server.h"

/* The objects of the one bucket "test", sorted by key, and the S3 calls on them. */

#define BUCKET "test"

struct object {
    char *key;
    char *data;
    size_t len;
    char etag[MD5_HEX];
    char *head; /* Content-Type and x-amz-meta-* lines */
    int64_t modified_ns;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the two below */
static struct object *objects;
static size_t object_count;
_Atomic unsigned objects_page_size = 1000;

static size_t
position(const char *key)
{
    size_t low = 0;
    size_t high = object_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(objects[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct object *
find(const char *key)
{
    size_t at = position(key);
    return at < object_count && strcmp(objects[at].key, key) == 0 ? &objects[at] : NULL;
}

static void
free_object(struct object *object)
{
    free(object->key);
    free(object->data);
    free(object->head);
}

static void
erase(const char *key)
{
    struct object *object = find(key);
    if (!object)
        return;
    size_t at = (size_t)(object - objects);
    free_object(object);
    memmove(objects + at, objects + at + 1, (object_count - at - 1) * sizeof(*objects));
    object_count--;
}

void
objects_clear(void)
{
    pthread_mutex_lock(&lock);
    while (object_count > 0)
        free_object(&objects[--object_count]);
    pthread_mutex_unlock(&lock);
}

static struct object *
store(const char *key, const char *data, size_t len, const char *head)
{
    struct err err = ERR_INIT;
    uint8_t digest[MD5_SIZE];
    erase(key);
    objects = reallocarray(objects, object_count + 1, sizeof(*objects));
    size_t at = position(key);
    memmove(objects + at + 1, objects + at, (object_count - at) * sizeof(*objects));
    object_count++;
    struct object *object = &objects[at];
    *object = (struct object){ .key = strdup(key),
                               .data = malloc(len + 1),
                               .len = len,
                               .head = strdup(head),
                               .modified_ns = server_wall_ns() };
    memcpy(object->data, data, len);
    if (md5(data, len, digest, &err) == 0)
        hex_encode(digest, sizeof(digest), object->etag);
    return object;
}

/* Headers to be kept with an object. */
static void
kept_head(const struct request *request, struct buf *out)
{
    struct err err = ERR_INIT;
    for (size_t i = 0; i < request->field_count; i++) {
        const struct field *field = &request->field[i];
        if (strcmp(field->name, "content-type") != 0 &&
            strncmp(field->name, "x-amz-meta-", 11) != 0)
            continue;
        if (buf_appendf(out, &err, "%s: %s\r\n", field->name, field->value) < 0)
            return;
    }
}

static bool
etag_matches(const char *value, const struct object *object)
{
    size_t len = strlen(value);
    return len == strlen(object->etag) + 2 && value[0] == '"' && value[len - 1] == '"' &&
           strncmp(value + 1, object->etag, len - 2) == 0;
}

/* 0: go on; else the status of the refusal. */
static int
judge_conditions(const struct request *request, const char *op, const struct object *object)
{
    const char *match = request_field(request, "if-match");
    const char *none_match = request_field(request, "if-none-match");
    if (faults_ignore_conditions(op))
        return 0;
    if (none_match && strcmp(none_match, "*") == 0 && object)
        return 412;
    if (match && !object)
        return 404;
    if (match && strcmp(match, "*") != 0 && !etag_matches(match, object))
        return 412;
    return 0;
}

static void
refuse(struct reply *reply, int status)
{
    if (status == 404)
        reply_error(reply, 404, "NoSuchKey", "The specified key does not exist.");
    else
        reply_error(reply, 412, "PreconditionFailed", "A precondition did not hold.");
}

static void
reply_etag(struct reply *reply, const char *etag, struct hit hit)
{
    if (hit.fault == FAULT_NO_ETAG)
        return;
    reply_header(reply, "ETag: \"%s\"",
                 hit.fault == FAULT_WRONG_ETAG ? "0badc0de0badc0de0badc0de0badc0de" : etag);
}

static bool
md5_fits(const struct request *request)
{
    const char *want = request_field(request, "content-md5");
    struct err err = ERR_INIT;
    uint8_t digest[MD5_SIZE];
    struct buf text;
    if (!want)
        return true;
    buf_init(&text, 64);
    bool fits = md5(request->body ? request->body : "", request->body_len, digest, &err) == 0 &&
                base64_encode(digest, sizeof(digest), &text, &err) == 0 &&
                strcmp(buf_cstr(&text), want) == 0;
    buf_release(&text);
    return fits;
}

static void
put(const struct request *request, struct hit hit, struct reply *reply)
{
    struct object *old = find(request->key);
    if (!md5_fits(request)) {
        reply_error(reply, 400, "BadDigest", "The Content-MD5 did not match");
        return;
    }
    int status = judge_conditions(request, "PUT", old);
    if (status) {
        refuse(reply, status);
        return;
    }
    struct buf head;
    buf_init(&head, 65536);
    kept_head(request, &head);
    struct object *object =
        store(request->key, request->body ? request->body : "", request->body_len, buf_cstr(&head));
    buf_release(&head);
    reply->status = 200;
    reply_etag(reply, object->etag, hit);
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

static void
copy(const struct request *request, struct reply *reply)
{
    char key[1100];
    struct object *source = source_key(request, key, sizeof(key)) ? find(key) : NULL;
    const char *match = request_field(request, "x-amz-copy-source-if-match");
    const char *directive = request_field(request, "x-amz-metadata-directive");
    if (!source) {
        refuse(reply, 404);
        return;
    }
    if (match && !etag_matches(match, source) && !faults_ignore_conditions("COPY")) {
        refuse(reply, 412);
        return;
    }
    struct buf head;
    buf_init(&head, 65536);
    if (directive && strcmp(directive, "REPLACE") == 0)
        kept_head(request, &head);
    else
        (void)!buf_append_str(&head, source->head, &(struct err)ERR_INIT);
    char *data = malloc(source->len + 1);
    size_t len = source->len;
    memcpy(data, source->data, len);
    struct object *object = store(request->key, data, len, buf_cstr(&head));
    free(data);
    buf_release(&head);
    reply->status = 200;
    reply_body(reply,
               "<CopyObjectResult><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
               "<ETag>&quot;%s&quot;</ETag></CopyObjectResult>",
               object->etag);
}

/* "bytes=a-b" or "bytes=a-"; 0 whole, 1 a range, -1 beyond the end. */
static int
read_range(const struct request *request, size_t len, size_t *first, size_t *end)
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
    *first = (size_t)a;
    if (parse_u64(dash + 1, &b) && b < len - 1)
        *end = (size_t)b + 1;
    return 1;
}

static void
describe(const struct object *object, struct hit hit, struct reply *reply)
{
    char date[TIME_HTTP_SIZE];
    time_http(object->modified_ns, date, sizeof(date));
    reply_header(reply, "Last-Modified: %s", date);
    reply_etag(reply, object->etag, hit);
    (void)!buf_append_str(&reply->head, object->head, &(struct err)ERR_INIT);
}

static void
get(const struct request *request, struct hit hit, struct reply *reply)
{
    size_t first;
    size_t end;
    const struct object *object = find(request->key);
    int status = object ? judge_conditions(request, "GET", object) : 404;
    if (status) {
        refuse(reply, status);
        return;
    }
    int range = read_range(request, object->len, &first, &end);
    if (range < 0) {
        reply_error(reply, 416, "InvalidRange", "beyond the end");
        return;
    }
    if (hit.fault == FAULT_OTHER_RANGE && range > 0) {
        first = 0;
        end = object->len;
        range = 0;
    }
    describe(object, hit, reply);
    reply->status = range ? 206 : 200;
    if (range)
        reply_header(reply, "Content-Range: bytes %zu-%zu/%zu",
                     hit.fault == FAULT_WRONG_RANGE ? first + 1 : first,
                     hit.fault == FAULT_WRONG_RANGE ? end : end - 1,
                     hit.fault == FAULT_WRONG_RANGE ? object->len + 1 : object->len);
    (void)!buf_append(&reply->body, object->data + first, end - first, &(struct err)ERR_INIT);
    if (hit.fault == FAULT_FLIP && reply->body.len > 0)
        reply->body.data[reply->body.len / 2] ^= 1;
}

static void
head(const struct request *request, struct hit hit, struct reply *reply)
{
    const struct object *object = find(request->key);
    reply->no_body = true;
    reply->status = 404;
    if (!object)
        return;
    reply->status = 200;
    describe(object, hit, reply);
    (void)!buf_append(&reply->body, object->data, object->len, &(struct err)ERR_INIT);
}

static void
delete_object(const struct request *request, struct reply *reply)
{
    const struct object *object = find(request->key);
    int status = judge_conditions(request, "DELETE", object);
    if (status) {
        refuse(reply, status);
        return;
    }
    erase(request->key);
    reply->status = 204;
}

/* ---- listing ---- */

static void
xml_encoded(struct reply *reply, const char *key)
{
    struct err err = ERR_INIT;
    (void)!percent_encode(key, strlen(key), true, &reply->body, &err);
}

struct listing {
    char prefix[1100], after[1100], delimiter[8], last[1100];
    unsigned count, max;
    bool truncated;
};

static void
list_contents(struct reply *reply, const struct object *object)
{
    char date[TIME_RFC3339_SIZE];
    time_rfc3339(object->modified_ns / NS_PER_S * NS_PER_S, date, sizeof(date));
    reply_body(reply, "<Contents><Key>");
    xml_encoded(reply, object->key);
    reply_body(reply,
               "</Key><LastModified>%s</LastModified><ETag>&quot;%s&quot;</ETag><Size>%zu</Size>"
               "</Contents>",
               date, object->etag, object->len);
}

static void
list_one(struct listing *listing, struct reply *reply, const struct object *object)
{
    size_t prefix_len = strlen(listing->prefix);
    if (strncmp(object->key, listing->prefix, prefix_len) != 0 ||
        strcmp(object->key, listing->after) <= 0)
        return;
    const char *cut =
        listing->delimiter[0] ? strchr(object->key + prefix_len, listing->delimiter[0]) : NULL;
    char name[1100];
    (void)snprintf(name, sizeof(name), "%.*s",
                   cut ? (int)(cut - object->key) + 1 : (int)strlen(object->key), object->key);
    /* A prefix that was given already, on this page or the one before. */
    if (cut &&
        (strcmp(name, listing->last) == 0 || strncmp(listing->after, name, strlen(name)) == 0))
        return;
    if (listing->count == listing->max) {
        listing->truncated = true;
        return;
    }
    listing->count++;
    (void)snprintf(listing->last, sizeof(listing->last), "%s", name);
    if (!cut) {
        list_contents(reply, object);
        return;
    }
    reply_body(reply, "<CommonPrefixes><Prefix>");
    xml_encoded(reply, name);
    reply_body(reply, "</Prefix></CommonPrefixes>");
}

/* Tokens are a page number and the last name in hexadecimal, so that they survive any encoding and an empty page moves on. */
static void
list_end(struct reply *reply, const struct listing *listing, const char *asked_token,
         struct hit hit)
{
    char token[2300];
    bool lie = hit.fault == FAULT_NO_TOKEN || hit.fault == FAULT_SAME_TOKEN;
    int used = snprintf(token, sizeof(token), "%lu.", strtoul(asked_token, NULL, 10) + 1);
    hex_encode(listing->last, strlen(listing->last), token + used);
    if (hit.fault == FAULT_FOREIGN_KEY)
        reply_body(reply, "<Contents><Key>~foreign</Key><LastModified>2026-01-01T00:00:00.000Z"
                          "</LastModified><ETag>x</ETag><Size>1</Size></Contents>");
    reply_body(reply, "<IsTruncated>%s</IsTruncated>",
               listing->truncated || lie ? "true" : "false");
    if (listing->truncated && hit.fault != FAULT_NO_TOKEN)
        reply_body(reply, "<NextContinuationToken>%s</NextContinuationToken>",
                   hit.fault == FAULT_SAME_TOKEN && *asked_token ? asked_token : token);
    reply_body(reply, "<EncodingType>url</EncodingType></ListBucketResult>");
}

static void
list_start(const struct request *request, struct listing *listing, char *token, size_t size,
           struct hit hit)
{
    char max[16] = "1000";
    uint64_t number = 0;
    *token = '\0';
    (void)request_param(request, "prefix", listing->prefix, sizeof(listing->prefix));
    (void)request_param(request, "delimiter", listing->delimiter, sizeof(listing->delimiter));
    (void)request_param(request, "start-after", listing->after, sizeof(listing->after));
    (void)request_param(request, "max-keys", max, sizeof(max));
    listing->max = atomic_load(&objects_page_size);
    if (parse_u64(max, &number) && number < listing->max)
        listing->max = (unsigned)number;
    if (request_param(request, "continuation-token", token, size) && hit.fault != FAULT_DUP_PAGE) {
        const char *name = strchr(token, '.');
        size_t len = name ? strlen(name + 1) / 2 : 0;
        if (name && len < sizeof(listing->after) &&
            hex_decode(name + 1, strlen(name + 1), listing->after, len))
            listing->after[len] = '\0';
    }
    if (hit.fault == FAULT_EMPTY_PAGE || (hit.fault == FAULT_SAME_TOKEN && hit.arg))
        listing->max = 0;
}

static void
list(const struct request *request, struct hit hit, struct reply *reply)
{
    struct listing *listing = calloc(1, sizeof(*listing));
    char token[2300];
    list_start(request, listing, token, sizeof(token), hit);
    /* An empty page goes on where it began. */
    (void)snprintf(listing->last, sizeof(listing->last), "%s", listing->after);
    reply->status = 200;
    reply_header(reply, "Content-Type: application/xml");
    reply_body(reply, "<?xml version=\"1.0\"?><ListBucketResult xmlns=\""
                      "http://s3.amazonaws.com/doc/2006-03-01/\"><Name>" BUCKET "</Name>");
    for (size_t i = 0; i < object_count && !listing->truncated; i++)
        list_one(listing, reply, &objects[i]);
    list_end(reply, listing, token, hit);
    free(listing);
}

void
objects_raw(const char *key, struct reply *reply)
{
    pthread_mutex_lock(&lock);
    const struct object *object = find(key);
    reply->status = object ? 200 : 404;
    if (object)
        (void)!buf_append(&reply->body, object->data, object->len, &(struct err)ERR_INIT);
    pthread_mutex_unlock(&lock);
}

static void
handle(const struct request *request, const char *op, struct hit hit, struct reply *reply)
{
    if (strcmp(op, "LIST") == 0)
        list(request, hit, reply);
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
    else
        reply_error(reply, 405, "MethodNotAllowed", "no such call here");
}

void
objects_handle(const struct request *request, const char *op, struct hit hit, struct reply *reply)
{
    if (strcmp(request->bucket, BUCKET) != 0) {
        reply_error(reply, 404, "NoSuchBucket", "The specified bucket does not exist");
        reply->no_body = strcmp(op, "HEAD") == 0;
        return;
    }
    pthread_mutex_lock(&lock);
    handle(request, op, hit, reply);
    pthread_mutex_unlock(&lock);
}
