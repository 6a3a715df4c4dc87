#include "s3/http_store_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "s3/answer.h"
#include "s3/retry.h"
#include "s3/rfc2047.h"
#include "s3/sigv4.h"

/* How long one proof that the bucket exists is good for, when a HEAD says 404. */
#define BUCKET_PROOF (30 * NS_PER_S)
#define META_PREFIX "x-amz-meta-"

int64_t
http_store_deadline(int64_t deadline_ns, uint64_t size)
{
    return deadline_ns ? deadline_ns : retry_deadline_ns(clock_mono_ns(), size);
}

int
http_store_etag(const struct http_store *self, const char *etag, struct buf *out, struct err *err)
{
    bool bare = self->store.caps.etag_quoted == STORE_NO;
    return buf_appendf(out, err, bare ? "%s" : "\"%s\"", etag);
}

/* ---- metadata on the wire ---- */

/* The headers that an object has beside its user metadata and its type (s3/meta.h). */
static const char *const object_headers[] = { "~cache-control", "~content-disposition",
                                              "~content-encoding", "~content-language" };
#define OBJECT_HEADERS (sizeof(object_headers) / sizeof(object_headers[0]))

/* "~name" is a header of its own, sent as it is; only those above, since names may be somebody else's, and not one without a
 * value. */
static bool
is_plain_header(const struct meta_entry *entry)
{
    return entry->name[0] == '~';
}

static bool
is_sent(const struct meta_entry *entry)
{
    if (!is_plain_header(entry))
        return true;
    bool known = false;
    for (size_t i = 0; i < OBJECT_HEADERS; i++)
        known = known || strcmp(entry->name, object_headers[i]) == 0;
    for (const char *c = entry->value; *c; c++) {
        if ((unsigned char)*c > 0x7e)
            return false;
    }
    return known && entry->value[0] != '\0';
}

static int
encode_header(const struct meta_entry *entry, struct buf *text, size_t offset[], struct err *err)
{
    offset[0] = text->len;
    if (buf_append(text, entry->name + 1, strlen(entry->name), err) < 0)
        return -1;
    offset[1] = text->len;
    return buf_append(text, entry->value, strlen(entry->value) + 1, err);
}

static int
encode_meta(const struct meta *meta, struct buf *text, size_t offset[], struct err *err)
{
    for (size_t i = 0; i < meta->count; i++) {
        if (is_plain_header(&meta->entry[i])) {
            if (encode_header(&meta->entry[i], text, offset + 2 * i, err) < 0)
                return -1;
            continue;
        }
        offset[2 * i] = text->len;
        if (buf_appendf(text, err, META_PREFIX "%s", meta->entry[i].name) < 0 ||
            buf_append(text, "", 1, err) < 0)
            return -1;
        offset[2 * i + 1] = text->len;
        if (rfc2047_encode(meta->entry[i].value, text, err) < 0 || buf_append(text, "", 1, err) < 0)
            return -1;
    }
    return 0;
}

int
http_store_meta_fields(const struct meta *meta, struct buf *text, struct client_request *request,
                       struct err *err)
{
    size_t offset[2 * LIMIT_META_ENTRIES];
    if (!meta)
        return 0;
    if (encode_meta(meta, text, offset, err) < 0)
        return -1;
    for (size_t i = 0; i < meta->count; i++)
        if (is_sent(&meta->entry[i]))
            client_field(request, text->data + offset[2 * i], text->data + offset[2 * i + 1]);
    return 0;
}

static int
placement_field(const char *name, const char *value, struct client_request *request,
                struct err *err)
{
    if (!value || !*value)
        return 0;
    for (const char *c = value; *c; c++) {
        if (*c <= 0x20 || *c > 0x7e)
            return err_set(err, ERR_INVAL, "%s holds a blank or a character that is not ASCII",
                           name);
    }
    client_field(request, name, value);
    return 0;
}

int
http_store_placement_fields(const struct store_placement *placement, struct client_request *request,
                            struct err *err)
{
    if (!placement)
        return 0;
    if (placement->kms_key_id && *placement->kms_key_id &&
        (!placement->encryption || strncmp(placement->encryption, "aws:kms", 7) != 0))
        return err_set(err, ERR_INVAL, "a KMS key goes with the encryption aws:kms only");
    if (placement_field("x-amz-storage-class", placement->storage_class, request, err) < 0 ||
        placement_field("x-amz-server-side-encryption", placement->encryption, request, err) < 0)
        return -1;
    return placement_field("x-amz-server-side-encryption-aws-kms-key-id", placement->kms_key_id,
                           request, err);
}

static int
read_headers(const struct http_response *response, struct meta *out, struct err *err)
{
    for (size_t i = 0; i < OBJECT_HEADERS; i++) {
        struct err own = ERR_INIT;
        const char *value = http_response_field(response, object_headers[i] + 1);
        if (!value || meta_set(out, object_headers[i], value, &own) == 0)
            continue;
        if (own.code == ERR_NOMEM) {
            *err = own;
            return -1;
        }
        log_debug(s3, "a header left out name=%s why=%s", object_headers[i] + 1, own.msg);
    }
    return 0;
}

static int
read_meta(const struct http_response *response, struct meta *out, struct err *err)
{
    const char *name;
    const char *value;
    for (size_t i = 0; http_response_nth(response, i, &name, &value); i++) {
        /* x-amz-meta-~... of somebody else must not become a header of ours. */
        if (strncmp(name, META_PREFIX, strlen(META_PREFIX)) != 0 ||
            name[strlen(META_PREFIX)] == '~')
            continue;
        struct err own = ERR_INIT;
        scope_buf decoded;
        buf_init(&decoded, LIMIT_META_BYTES);
        if (rfc2047_decode(value, &decoded, &own) == 0)
            value = buf_cstr(&decoded);
        if (meta_set(out, name + strlen(META_PREFIX), value, &own) == 0)
            continue;
        if (own.code == ERR_NOMEM) {
            *err = own;
            return -1;
        }
        /* Somebody else's metadata beyond our limits does not make the object unreadable. */
        log_debug(s3, "metadata left out name=%s why=%s", name, own.msg);
    }
    return read_headers(response, out, err);
}

int
http_store_object(const struct http_response *response, uint64_t total, struct store_object *out,
                  struct err *err)
{
    const char *etag = http_response_field(response, "etag");
    const char *modified = http_response_field(response, "last-modified");
    const char *type = http_response_field(response, "content-type");
    if (!etag || etag_strip(etag, out->etag) < 0)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the store's answer has no usable ETag");
    if (total == UINT64_MAX && !response->has_length)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the store's answer has no Content-Length");
    out->size = total == UINT64_MAX ? response->length : total;
    out->last_modified_ns = 0;
    if (modified && time_parse_http(modified, &out->last_modified_ns) < 0)
        out->last_modified_ns = 0;
    (void)snprintf(out->content_type, sizeof(out->content_type), "%s", type ? type : "");
    return read_meta(response, &out->meta, err);
}

/* ---- HEAD ---- */

/* A GET of the bucket tells what a HEAD, which has no body, cannot: NoSuchBucket, a bad signature, the right region.
 * `generation`: of the keys that it was signed with in the end. */
static int
ask_bucket(struct client *client, int64_t deadline_ns, uint64_t *generation, struct err *err)
{
    struct client_request request = { .method = "GET", .deadline_ns = deadline_ns };
    struct client_answer answer;
    canonical_query_add(&request.query, "list-type", "2");
    canonical_query_add(&request.query, "max-keys", "1");
    canonical_query_add(&request.query, "prefix", client->prefix);
    client_answer_init(&answer);
    int result = client_call(client, &request, &answer, err);
    *generation = answer.keys_generation;
    /* Keys may be allowed to read objects but not to list: the bucket exists all the same. */
    if (result < 0 && strcmp(answer.error.code, "AccessDenied") == 0)
        result = 0;
    client_answer_release(&answer);
    return result;
}

/* INV-9: the 404 of a HEAD is believed when the bucket is known to be there. */
static int
confirm_absence(struct client *client, int64_t deadline_ns, struct err *err)
{
    int64_t seen = atomic_load(&client->bucket_seen_ns);
    uint64_t generation;
    struct err own = ERR_INIT;
    if (seen != 0 && clock_mono_ns() - seen < BUCKET_PROOF)
        return -1;
    if (ask_bucket(client, deadline_ns, &generation, &own) < 0)
        *err = own;
    return -1;
}

/* True when the HEAD is worth another try: its keys had ended, and asking why brought fresh ones. */
static bool
explain_head(struct client *client, const struct client_answer *answer, int64_t deadline_ns,
             struct err *err)
{
    int status = answer->response.status;
    uint64_t generation = answer->keys_generation;
    struct err own = ERR_INIT;
    if (status == 404)
        (void)confirm_absence(client, deadline_ns, err);
    if (status != 400 && status != 403)
        return false;
    if (ask_bucket(client, deadline_ns, &generation, &own) < 0)
        *err = own;
    return generation != answer->keys_generation;
}

int
http_store_head(struct store *store, const char *key, int64_t deadline_ns, struct store_object *out,
                struct err *err)
{
    struct client *client = &http_store_of(store)->client;
    struct client_request request = { .method = "HEAD",
                                      .key = key,
                                      .deadline_ns = http_store_deadline(deadline_ns, 0) };
    struct client_answer answer;
    client_answer_init(&answer);
    int result = client_call(client, &request, &answer, err);
    if (result < 0 && explain_head(client, &answer, request.deadline_ns, err)) {
        client_answer_reset(&answer);
        result = client_call(client, &request, &answer, err);
        if (result < 0)
            (void)explain_head(client, &answer, request.deadline_ns, err);
    }
    if (result == 0 && http_store_object(&answer.response, UINT64_MAX, out, err) < 0)
        result = err_wrap(err, "'%.160s'", key);
    client_answer_release(&answer);
    return result;
}

/* ---- presigned URLs ---- */

struct presigning {
    struct client *client;
    const struct client_endpoint *endpoint;
    const struct store_presign *req;
    struct s3_credentials keys;
};

static int
presign_query(struct presigning *presigning, const char *path, struct buf *url, struct err *err)
{
    struct client *client = presigning->client;
    const struct store_presign *req = presigning->req;
    struct canonical_query query = { .count = 0 };
    scope_buf host;
    buf_init(&host, 1024);
    if (client_host(client, presigning->endpoint, &host, err) < 0)
        return -1;
    if (req->response_content_type)
        canonical_query_add(&query, "response-content-type", req->response_content_type);
    if (req->response_content_disposition)
        canonical_query_add(&query, "response-content-disposition",
                            req->response_content_disposition);
    if (client->requester_pays)
        canonical_query_add(&query, "x-amz-request-payer", "requester");
    const struct sigv4_header header = { "host", buf_cstr(&host) };
    const struct sigv4_request request = { .method = req->method,
                                           .path = path,
                                           .query = "",
                                           .headers = &header,
                                           .header_count = 1,
                                           .wall_ns = client_wall_ns(client) };
    const struct sigv4_scope scope = { presigning->keys.access_key, presigning->keys.secret_key,
                                       client->region, "s3" };
    const struct sigv4_link link = { &query, req->expires_s, presigning->keys.session_token };
    return sigv4_presign(&request, &scope, &link, url, err);
}

static int
presign_url(struct presigning *presigning, struct buf *out, struct err *err)
{
    struct client *client = presigning->client;
    scope_buf key;
    scope_buf path;
    scope_buf url;
    buf_init(&key, LIMIT_KEY + 1);
    buf_init(&path, 4 * LIMIT_KEY);
    buf_init(&url, LIMIT_HTTP_HEADERS);
    if (client_full_key(client, presigning->req->key, &key, err) < 0 ||
        canonical_path(presigning->endpoint->path, client->path_style ? client->bucket : NULL,
                       buf_cstr(&key), &path, err) < 0 ||
        client_url(client, presigning->endpoint, buf_cstr(&path), &url, err) < 0 ||
        buf_append_str(&url, "?", err) < 0 ||
        presign_query(presigning, buf_cstr(&path), &url, err) < 0)
        return -1;
    return buf_append(out, url.data, url.len, err);
}

int
http_store_presign(struct store *store, const struct store_presign *req, struct buf *url,
                   struct err *err)
{
    struct client *client = &http_store_of(store)->client;
    struct presigning presigning = {
        .client = client,
        .endpoint = client->public_endpoint.host ? &client->public_endpoint : &client->endpoint,
        .req = req,
    };
    uint64_t generation;
    int result = client_keys(client, http_store_deadline(0, 0), &presigning.keys, &generation, err);
    int64_t key_ends = presigning.keys.expires_wall_ns;
    bool for_others = strncmp(req->key, ".holdfast/probe/", 16) != 0;
    if (result == 0 && for_others && key_ends != 0 &&
        key_ends < clock_wall_ns() + req->expires_s * NS_PER_S)
        log_warn(s3, "a link outlives the temporary keys that sign it key=%.200s", req->key);
    if (result == 0)
        result = presign_url(&presigning, url, err);
    secret_wipe(&presigning.keys, sizeof(presigning.keys));
    return result;
}

/* ---- the store ---- */

static void
http_store_end(struct store *store, int64_t deadline_ns)
{
    client_end(&http_store_of(store)->client, deadline_ns);
}

static void
http_store_counters(struct store *store, struct store_counters *out)
{
    struct client *client = &http_store_of(store)->client;
    *out = (struct store_counters){
        .requests = atomic_load(&client->requests),
        .retries = atomic_load(&client->retries),
        .errors = atomic_load(&client->errors),
        .bytes_up = atomic_load(&client->bytes_up),
        .bytes_down = atomic_load(&client->bytes_down),
        .gets = atomic_load(&client->gets),
        .puts = atomic_load(&client->puts),
        .heads = atomic_load(&client->heads),
        .deletes = atomic_load(&client->deletes),
        .lists = atomic_load(&client->lists),
        .copies = atomic_load(&client->copies),
        .upload_calls = atomic_load(&client->upload_calls),
        .other = atomic_load(&client->other),
        .slow_downs = atomic_load(&client->slow_downs),
        .limited_ns = atomic_load(&client->limited_ns),
        .silent_ns = atomic_load(&client->silent_ns),
    };
    pthread_mutex_lock(&client->lock);
    out->window = client->limit.window;
    out->in_flight = client->limit.in_flight;
    pthread_mutex_unlock(&client->lock);
}

static void
http_store_free(struct store *store)
{
    struct http_store *self = http_store_of(store);
    client_close(&self->client);
    free(self);
}

static const struct store_ops http_store_ops = {
    .name = "s3",
    .head = http_store_head,
    .get = http_store_get,
    .put = http_store_put,
    .del = http_store_delete,
    .copy = http_store_copy,
    .list = http_store_list,
    .delete_many = http_store_delete_many,
    .uploads = http_store_uploads,
    .upload_abort = http_store_upload_abort,
    .presign = http_store_presign,
    .probe = http_store_probe,
    .counters = http_store_counters,
    .end = http_store_end,
    .free = http_store_free,
};

struct store *
s3_store_open(const struct store_open_args *args, struct err *err)
{
    struct http_store *self = calloc(1, sizeof(*self));
    if (!self) {
        err_nomem(err);
        return NULL;
    }
    if (client_open(&self->client, args, err) < 0) {
        client_close(&self->client);
        free(self);
        return NULL;
    }
    self->store.ops = &http_store_ops;
    provider_caps(self->client.provider, &self->store.caps);
    client_limit_caps(&self->client, &self->store.caps);
    (void)snprintf(self->store.provider, sizeof(self->store.provider), "%s",
                   self->client.provider->name);
    const char *slash = self->client.prefix[0] ? "/" : "";
    (void)snprintf(self->store.url, sizeof(self->store.url), "s3://%.100s%s%.250s at %.120s",
                   self->client.bucket, slash, self->client.prefix, self->client.endpoint.host);
    return &self->store;
}
