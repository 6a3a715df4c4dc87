#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/ulid.h"
#include "tests/fault/server/objects.h"

/* Multipart uploads. Parts and objects share their bytes: nothing is copied at completion. */

struct part {
    unsigned number;
    struct content *content;
    uint8_t md5[MD5_SIZE];
    char etag[ETAG_SIZE];
    int64_t modified_ns;
};
struct upload {
    char id[ULID_SIZE];
    char *key;
    char *head;
    int64_t initiated_ns;
    struct part *part; /* sorted by number */
    size_t count;
};
static struct upload **uploads; /* by key, then id */
static size_t upload_count;

static int
compare(const struct upload *upload, const char *key, const char *id)
{
    int order = strcmp(upload->key, key);
    return order ? order : strcmp(upload->id, id);
}

static struct upload *
find(const struct request *request, struct reply *reply)
{
    char id[64] = "";
    (void)request_param(request, "uploadId", id, sizeof(id));
    for (size_t i = 0; i < upload_count; i++) {
        if (compare(uploads[i], request->key, id) == 0)
            return uploads[i];
    }
    reply_error(reply, 404, "NoSuchUpload", "The specified upload does not exist.");
    return NULL;
}

static void
forget(struct upload *upload)
{
    for (size_t i = 0; i < upload->count; i++)
        content_drop(upload->part[i].content);
    free(upload->part);
    free(upload->key);
    free(upload->head);
    free(upload);
}

static void
erase(const struct upload *upload)
{
    size_t i = 0;
    while (uploads[i] != upload)
        i++;
    forget(uploads[i]);
    memmove((void *)(uploads + i), (void *)(uploads + i + 1),
            (upload_count - i - 1) * sizeof(struct upload *));
    upload_count--;
}

void
multipart_clear(void)
{
    while (upload_count > 0)
        forget(uploads[--upload_count]);
}

static void
xml(struct reply *reply, const char *root)
{
    reply->status = 200;
    reply_header(reply, "Content-Type: application/xml");
    reply_body(reply,
               "<?xml version=\"1.0\"?><%s xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
               "<Bucket>" BUCKET "</Bucket>",
               root);
}

static void
create(const struct request *request, struct reply *reply)
{
    struct err err = ERR_INIT;
    struct buf head;
    struct upload *upload = calloc(1, sizeof(*upload));
    if (ulid_new(upload->id, &err) < 0)
        abort();
    buf_init(&head, 65536);
    objects_kept_head(request, &head);
    upload->key = strdup(request->key);
    upload->head = strdup(buf_cstr(&head));
    upload->initiated_ns = server_wall_ns();
    buf_release(&head);
    uploads = reallocarray(uploads, upload_count + 1, sizeof(struct upload *));
    size_t at = upload_count++;
    for (; at > 0 && compare(uploads[at - 1], upload->key, upload->id) > 0; at--)
        uploads[at] = uploads[at - 1];
    uploads[at] = upload;
    xml(reply, "InitiateMultipartUploadResult");
    reply_body(reply, "<UploadId>%s</UploadId></InitiateMultipartUploadResult>", upload->id);
}

/* ---- parts ---- */

/* Takes `content`. */
static struct part *
store_part(struct upload *upload, unsigned number, struct content *content, const uint8_t *md5_of)
{
    size_t at = 0;
    while (at < upload->count && upload->part[at].number < number)
        at++;
    if (at < upload->count && upload->part[at].number == number) {
        content_drop(upload->part[at].content);
    } else {
        upload->part = reallocarray(upload->part, upload->count + 1, sizeof(struct part));
        memmove(upload->part + at + 1, upload->part + at,
                (upload->count - at) * sizeof(struct part));
        upload->count++;
    }
    struct part *part = &upload->part[at];
    *part = (struct part){ .number = number, .content = content, .modified_ns = server_wall_ns() };
    memcpy(part->md5, md5_of, MD5_SIZE);
    hex_encode(part->md5, MD5_SIZE, part->etag);
    return part;
}

static struct upload *
upload_of_part(const struct request *request, unsigned *number, struct reply *reply)
{
    struct upload *upload = find(request, reply);
    *number = (unsigned)request_number(request, "partNumber", 0);
    if (upload && (*number < 1 || *number > 10000)) {
        reply_error(reply, 400, "InvalidArgument", "Part number must be between 1 and 10000");
        return NULL;
    }
    return upload;
}

static void
put_part(const struct request *request, struct hit hit, struct reply *reply)
{
    unsigned number;
    struct upload *upload = upload_of_part(request, &number, reply);
    if (!upload || !objects_md5_fits(request, reply))
        return;
    if (content_len(request->body) > MAX_OBJECT) {
        reply_error(reply, 400, "EntityTooLarge", "The proposed part is too large");
        return;
    }
    const struct part *part =
        store_part(upload, number, content_hold(request->body), request->body_md5);
    reply->status = 200;
    objects_etag(reply, part->etag, hit);
}

/* "bytes=a-b" of the source, which must lie inside it; all of it without the header. */
static bool
source_range(const struct request *request, uint64_t size, uint64_t *off, uint64_t *len)
{
    const char *range = request_field(request, "x-amz-copy-source-range");
    uint64_t a = 0;
    uint64_t b = 0;
    *off = 0;
    *len = size;
    if (!range)
        return true;
    const char *dash = strchr(range, '-');
    if (strncmp(range, "bytes=", 6) != 0 || !dash ||
        !parse_u64_n(range + 6, (size_t)(dash - range) - 6, &a) || !parse_u64(dash + 1, &b) ||
        a > b || b >= size)
        return false;
    *off = a;
    *len = b - a + 1;
    return true;
}

#define HASH_MAX (64u << 20)
/* MD5 of the bytes, read back; of a large range something else, which no client can tell. */
static void
digest_of(const struct content *content, uint8_t out[MD5_SIZE])
{
    static char data[1 << 20]; /* under the lock of all objects */
    struct err err = ERR_INIT;
    struct hash *hash = hash_new(HASH_MD5, &err);
    uint64_t len = content_len(content);
    size_t got;
    if (hash && len > HASH_MAX && hash_update(hash, &len, sizeof(len), &err) < 0)
        abort();
    for (uint64_t at = 0;
         hash && at < HASH_MAX && (got = content_read(content, at, data, sizeof(data))) > 0;
         at += got) {
        if (hash_update(hash, data, got, &err) < 0)
            abort();
    }
    if (!hash || hash_final(hash, out, &err) < 0)
        abort();
}

static void
copy_part(const struct request *request, struct hit hit, struct reply *reply)
{
    unsigned number;
    uint64_t off;
    uint64_t len;
    uint8_t digest[MD5_SIZE];
    struct upload *upload = upload_of_part(request, &number, reply);
    const struct object *source = upload ? objects_copy_source(request, "PARTCOPY", reply) : NULL;
    if (!source)
        return;
    if (!source_range(request, source->now.size, &off, &len)) {
        reply_error(reply, 416, "InvalidRange", "The range is not inside the source");
        return;
    }
    if (len > objects_modes.max_copy) {
        reply_error(reply, 400, "InvalidRequest", "The range of the source is too large");
        return;
    }
    struct content *content = content_new(0);
    if (!content || !content_share(content, source->content, off, len))
        abort();
    digest_of(content, digest);
    const struct part *part = store_part(upload, number, content, digest);
    reply->status = 200;
    reply_body(reply, "<CopyPartResult>");
    objects_result_date(reply, "LastModified", part->modified_ns);
    reply_body(reply, "<ETag>&quot;%s&quot;</ETag></CopyPartResult>",
               hit.fault == FAULT_WRONG_ETAG ? "0badc0de0badc0de0badc0de0badc0de" : part->etag);
}

/* ---- completion ---- */

/* What the parts of a completion come to. */
struct whole {
    struct content *content;
    struct hash *hash; /* of the parts' digests */
    unsigned count, last_number;
    uint64_t first_size, last_size;
    const char *problem; /* error code */
};

static const struct part *
part_of(const struct upload *upload, unsigned long number)
{
    for (size_t i = 0; i < upload->count; i++) {
        if (upload->part[i].number == number)
            return &upload->part[i];
    }
    return NULL;
}

static bool
same_etag(const char *told, const char *etag)
{
    size_t len = strlen(told);
    if (len >= 2 && told[0] == '"' && told[len - 1] == '"')
        return len - 2 == strlen(etag) && strncmp(told + 1, etag, len - 2) == 0;
    return strcmp(told, etag) == 0;
}

/* The part before this one was not the last, so its size is judged now. */
static const char *
judge_part(const struct whole *whole, const struct part *part, const char *etag)
{
    if (!part || !same_etag(etag, part->etag))
        return "InvalidPart";
    if (part->number <= whole->last_number)
        return "InvalidPartOrder";
    if (whole->count > 0 && whole->last_size < objects_modes.min_part)
        return "EntityTooSmall";
    uint64_t size = content_len(part->content);
    if (roles_has(ROLE_EQUAL_PARTS) && whole->count > 0 &&
        (whole->last_size != whole->first_size || size > whole->first_size))
        return "InvalidPart"; /* "All non-trailing parts must have the same length" */
    return NULL;
}

static bool
add_part(struct whole *whole, const struct part *part)
{
    struct err err = ERR_INIT;
    uint64_t size = content_len(part->content);
    if (whole->count++ == 0)
        whole->first_size = size;
    whole->last_size = size;
    whole->last_number = part->number;
    return hash_update(whole->hash, part->md5, MD5_SIZE, &err) == 0 &&
           content_share(whole->content, part->content, 0, size);
}

static void
gather(const struct upload *upload, const char *text, struct whole *whole)
{
    char body[512];
    char number[16];
    char etag[64];
    const char *at = text;
    /* A <Part> holds other elements, which stay as they are. */
    while (text && !whole->problem && document_next(&at, "Part", body, sizeof(body))) {
        const char *first = body;
        const char *second = body; /* the two come in any order */
        if (!document_next(&first, "PartNumber", number, sizeof(number)) ||
            !document_next(&second, "ETag", etag, sizeof(etag))) {
            whole->problem = "MalformedXML";
            return;
        }
        const struct part *part = part_of(upload, strtoul(number, NULL, 10));
        whole->problem = judge_part(whole, part, etag);
        if (!whole->problem && !add_part(whole, part))
            abort();
    }
    if (!whole->problem && whole->count == 0)
        whole->problem = "MalformedXML";
}

static void
finish(const struct request *request, const struct upload *upload, struct whole *whole,
       struct hit hit, struct reply *reply)
{
    struct err err = ERR_INIT;
    uint8_t digest[MD5_SIZE];
    char hex[MD5_HEX];
    char etag[ETAG_SIZE];
    if (hash_final(steal(&whole->hash), digest, &err) < 0)
        abort();
    hex_encode(digest, sizeof(digest), hex);
    (void)snprintf(etag, sizeof(etag), "%s-%u", hex, whole->count);
    (void)table_store(request->key, steal(&whole->content), etag, upload->head);
    erase(upload);
    xml(reply, "CompleteMultipartUploadResult");
    if (hit.fault != FAULT_NO_ETAG)
        reply_body(reply, "<ETag>&quot;%s&quot;</ETag>",
                   hit.fault == FAULT_WRONG_ETAG ? "0badc0de0badc0de0badc0de0badc0de-2" : etag);
    reply_body(reply, "</CompleteMultipartUploadResult>");
}

static void
complete(const struct request *request, struct hit hit, struct reply *reply)
{
    struct err err = ERR_INIT;
    struct upload *upload = find(request, reply);
    if (!upload)
        return;
    int status = objects_judge(request, "COMPLETE", table_find(request->key));
    if (status) {
        objects_refuse(reply, status);
        return;
    }
    if (!objects_may_write(request->key, reply))
        return;
    char *text = content_text(request->body, 4u << 20);
    struct whole whole = { .content = content_new(0), .hash = hash_new(HASH_MD5, &err) };
    gather(upload, text, &whole);
    if (whole.problem)
        reply_error(reply, 400, whole.problem, "the parts do not fit");
    else
        finish(request, upload, &whole, hit, reply);
    hash_free(whole.hash);
    content_drop(whole.content);
    free(text);
}

static void
end_upload(const struct request *request, struct hit hit, struct reply *reply)
{
    const struct upload *upload = find(request, reply);
    if (!upload)
        return;
    if (hit.fault != FAULT_COMES_BACK)
        erase(upload);
    reply->status = 204;
}

/* ---- listings ---- */

static void
list_upload(const struct upload *upload, bool encoded, struct reply *reply)
{
    reply_body(reply, "<Upload><Key>");
    reply_text(reply, upload->key, encoded);
    reply_body(reply, "</Key><UploadId>%s</UploadId><StorageClass>STANDARD</StorageClass>",
               upload->id);
    objects_result_date(reply, "Initiated", upload->initiated_ns);
    reply_body(reply, "</Upload>");
}

static unsigned
page_size(const struct request *request, const char *name)
{
    uint64_t wanted = request_number(request, name, objects_modes.page);
    return wanted < objects_modes.page ? (unsigned)wanted : objects_modes.page;
}

static void
uploads_end(struct reply *reply, const struct upload *last, bool truncated, bool encoded,
            struct hit hit)
{
    bool lie = hit.fault == FAULT_NO_TOKEN;
    reply_body(reply, "%s<IsTruncated>%s</IsTruncated>",
               encoded ? "<EncodingType>url</EncodingType>" : "",
               truncated || lie ? "true" : "false");
    if (truncated && !lie && last) {
        reply_body(reply, "<NextKeyMarker>");
        reply_text(reply, last->key, encoded);
        reply_body(reply, "</NextKeyMarker><NextUploadIdMarker>%s</NextUploadIdMarker>", last->id);
    }
    reply_body(reply, "</ListMultipartUploadsResult>");
}

/* After the pair of markers, or after every upload of the key when there is no upload-id-marker. */
static void
list_uploads(const struct request *request, struct hit hit, struct reply *reply)
{
    char prefix[1100] = "";
    char key[1100] = "";
    char id[64] = "";
    const struct upload *last = NULL;
    bool truncated = false;
    bool encoded = request_has(request, "encoding-type");
    unsigned max = page_size(request, "max-uploads");
    (void)request_param(request, "prefix", prefix, sizeof(prefix));
    if (hit.fault != FAULT_DUP_PAGE) {
        (void)request_param(request, "key-marker", key, sizeof(key));
        (void)request_param(request, "upload-id-marker", id, sizeof(id));
    }
    xml(reply, "ListMultipartUploadsResult");
    for (size_t i = 0; i < upload_count && !truncated; i++) {
        const struct upload *upload = uploads[i];
        int order = id[0] ? compare(upload, key, id) : strcmp(upload->key, key);
        if (order <= 0 || strncmp(upload->key, prefix, strlen(prefix)) != 0)
            continue;
        truncated = max == 0;
        if (truncated)
            break;
        max--;
        last = upload;
        list_upload(upload, encoded, reply);
    }
    uploads_end(reply, last, truncated, encoded, hit);
}

static void
list_parts(const struct request *request, struct reply *reply)
{
    const struct upload *upload = find(request, reply);
    uint64_t after = request_number(request, "part-number-marker", 0);
    unsigned max = page_size(request, "max-parts");
    bool truncated = false;
    if (!upload)
        return;
    xml(reply, "ListPartsResult");
    for (size_t i = 0; i < upload->count; i++) {
        const struct part *part = &upload->part[i];
        if (part->number <= after)
            continue;
        truncated = max == 0;
        if (truncated)
            break;
        max--;
        after = part->number;
        reply_body(reply, "<Part><PartNumber>%u</PartNumber>", part->number);
        objects_result_date(reply, "LastModified", part->modified_ns);
        reply_body(reply, "<ETag>&quot;%s&quot;</ETag><Size>%llu</Size></Part>", part->etag,
                   (unsigned long long)content_len(part->content));
    }
    reply_body(reply,
               "<IsTruncated>%s</IsTruncated><NextPartNumberMarker>%llu"
               "</NextPartNumberMarker></ListPartsResult>",
               truncated ? "true" : "false", (unsigned long long)after);
}

bool
multipart_handle(const struct request *request, const char *op, struct hit hit, struct reply *reply)
{
    if (strcmp(op, "CREATE") == 0)
        create(request, reply);
    else if (strcmp(op, "PART") == 0)
        put_part(request, hit, reply);
    else if (strcmp(op, "PARTCOPY") == 0)
        copy_part(request, hit, reply);
    else if (strcmp(op, "COMPLETE") == 0)
        complete(request, hit, reply);
    else if (strcmp(op, "ABORT") == 0)
        end_upload(request, hit, reply);
    else if (strcmp(op, "UPLOADS") == 0)
        list_uploads(request, hit, reply);
    else if (strcmp(op, "PARTS") == 0)
        list_parts(request, reply);
    else
        return false;
    return true;
}
