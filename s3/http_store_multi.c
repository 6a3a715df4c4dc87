#include "s3/http_store_multi_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "s3/answer.h"
#include "s3/sigv4.h"

#define CLEAN_UP_MAX (5 * NS_PER_S)
#define THREADS_MIN 4
#define THREADS_MAX 16
/* A store may take minutes to put 10,000 parts together, and not every one sends blanks meanwhile. */
#define COMPLETE_IDLE (5 * 60 * NS_PER_S)

int
http_store_multi_init(struct http_store_multi *multi, struct http_store *self, const char *key,
                      int64_t end_ns, struct err *err)
{
    int64_t left = end_ns - clock_mono_ns();
    int64_t reserve = left / 8 < CLEAN_UP_MAX ? left / 8 : CLEAN_UP_MAX;
    multi->self = self;
    multi->key = key;
    multi->end_ns = end_ns;
    multi->deadline_ns = end_ns - reserve;
    multi->id[0] = '\0';
    buf_init(&multi->document, LIMIT_XML_BODY);
    atomic_init(&multi->failed, false);
    atomic_init(&multi->lost, false);
    multi->etag = calloc(multi->parts.count, sizeof(multi->etag[0]));
    return multi->etag ? 0 : err_nomem(err);
}

void
http_store_multi_release(struct http_store_multi *multi)
{
    free(multi->etag);
    multi->etag = NULL;
    buf_release(&multi->document);
}

static const struct store_body empty = { .mem = "", .fd = -1, .size = 0 };

int
http_store_multi_begin(struct http_store_multi *multi, struct client_request *request,
                       struct err *err)
{
    struct client_answer answer;
    request->count = CLIENT_UPLOAD;
    request->method = "POST";
    request->key = multi->key;
    request->body = &empty; /* R2, Hetzner and GCS answer 411 without Content-Length: 0 */
    request->deadline_ns = multi->deadline_ns;
    canonical_query_add(&request->query, "uploads", "");
    client_answer_init(&answer);
    /* May be repeated: an upload whose answer was lost holds no part, and the sweep finds it by its key and age. */
    int result = client_call(&multi->self->client, request, &answer, err);
    if (result == 0)
        result = xml_multi_initiated(buf_cstr(&answer.response.body), answer.response.body.len,
                                     multi->id, err);
    client_answer_release(&answer);
    return result < 0 ? err_wrap(err, "begin of the upload in parts of '%.160s'", multi->key) : 0;
}

/* ---- parts ---- */

unsigned
http_store_multi_threads(const struct http_store_multi *multi)
{
    /* The other half stays free for everybody else: a part may take long on a slow link. */
    unsigned half = multi->self->client.limit.max / 2;
    return half < THREADS_MIN ? THREADS_MIN : half > THREADS_MAX ? THREADS_MAX : half;
}

bool
http_store_multi_is_lost(const struct client_answer *answer)
{
    const char *code = answer->error.code;
    return strcmp(code, "NoSuchUpload") == 0 || strcmp(code, "InvalidPart") == 0 ||
           strcmp(code, "InvalidPartOrder") == 0;
}

static int64_t
part_deadline(const struct http_store_multi *multi, unsigned index)
{
    uint64_t with_it = parts_len(&multi->parts, index) * http_store_multi_threads(multi);
    int64_t own = retry_deadline_ns(clock_mono_ns(), with_it) +
                  client_slack_ns(&multi->self->client, parts_len(&multi->parts, index));
    return own < multi->deadline_ns ? own : multi->deadline_ns;
}

static int
part_attempts(struct http_store_multi *multi, unsigned index, http_store_part_fn *fn, void *arg,
              http_store_part_etag_fn *etag_fn, struct err *err)
{
    struct client_try tries = { .deadline_ns = part_deadline(multi, index) };
    char number[16];
    (void)snprintf(number, sizeof(number), "%u", index + 1);
    for (;;) {
        struct client_request request = { .count = CLIENT_UPLOAD,
                                          .method = "PUT",
                                          .key = multi->key,
                                          .deadline_ns = tries.deadline_ns };
        struct client_answer answer;
        canonical_query_add(&request.query, "partNumber", number);
        canonical_query_add(&request.query, "uploadId", multi->id);
        client_answer_init(&answer);
        int result = fn(arg, index, &request, err);
        if (result == 0)
            result = client_attempt(&multi->self->client, &request, &answer, err);
        if (result == 0 && etag_fn(&answer, multi->etag[index], err) < 0) {
            result = -1;
            answer.verdict = RETRY_AGAIN; /* the same part once more does no harm */
        }
        if (result < 0 && http_store_multi_is_lost(&answer))
            atomic_store(&multi->lost, true);
        bool again = result < 0 && !atomic_load(&multi->failed) &&
                     client_again(&multi->self->client, &tries, &answer);
        client_answer_release(&answer);
        if (!again)
            return result;
    }
}

int
http_store_multi_part(struct http_store_multi *multi, unsigned index, http_store_part_fn *fn,
                      void *arg, http_store_part_etag_fn *etag_fn, struct err *err)
{
    if (part_attempts(multi, index, fn, arg, etag_fn, err) == 0)
        return 0;
    atomic_store(&multi->failed, true);
    multi->etag[index][0] = '\0';
    /* "Conflict" and "absent" would say something of the object, and this is about a part. */
    if (err->code == ERR_CONFLICT || err->code == ERR_NOT_FOUND)
        err->code = ERR_STORE_BAD_ANSWER;
    return err_wrap(err, "part %u of %u", index + 1, multi->parts.count);
}

/* ---- the end ---- */

static int
write_document(struct http_store_multi *multi, char payload_hash[SHA256_HEX], struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    for (unsigned i = 0; i < multi->parts.count; i++)
        assert(multi->etag[i][0] != '\0'); /* never completed with a part missing */
    buf_clear(&multi->document);
    if (xml_multi_complete((const char(*)[LIMIT_ETAG])multi->etag, multi->parts.count,
                           &multi->document, err) < 0 ||
        sha256(multi->document.data, multi->document.len, digest, err) < 0)
        return -1;
    hex_encode(digest, sizeof(digest), payload_hash);
    return 0;
}

/* The MD5 of the parts' MD5s and their number: S3's own rule for such an object, which RGW follows too. */
static int
composite_etag(const struct http_store_multi *multi, char etag[LIMIT_ETAG], struct err *err)
{
    unsigned count = multi->parts.count;
    uint8_t digest[MD5_SIZE];
    char hex[MD5_HEX];
    scope_free uint8_t *digests = malloc((size_t)count * MD5_SIZE);
    etag[0] = '\0';
    if (!digests)
        return err_nomem(err);
    for (unsigned i = 0; i < count; i++) {
        if (!answer_is_md5(multi->etag[i]) ||
            !hex_decode(multi->etag[i], MD5_HEX - 1, digests + (size_t)i * MD5_SIZE, MD5_SIZE))
            return 0;
    }
    if (md5(digests, (size_t)count * MD5_SIZE, digest, err) < 0)
        return -1;
    hex_encode(digest, sizeof(digest), hex);
    (void)snprintf(etag, LIMIT_ETAG, "%s-%u", hex, count);
    return 0;
}

int
http_store_multi_complete(struct http_store_multi *multi, struct client_request *request,
                          struct client_answer *answer, char etag[LIMIT_ETAG], struct err *err)
{
    char payload_hash[SHA256_HEX];
    answer->verdict = RETRY_NO;
    if (write_document(multi, payload_hash, err) < 0)
        return -1;
    const struct store_body body = { .mem = multi->document.data,
                                     .fd = -1,
                                     .size = multi->document.len };
    request->count = CLIENT_UPLOAD;
    request->method = "POST";
    request->key = multi->key;
    request->body = &body;
    request->payload_hash = payload_hash;
    request->deadline_ns = multi->deadline_ns;
    request->idle_max_ns = COMPLETE_IDLE;
    client_field(request, "content-type", "application/xml");
    canonical_query_add(&request->query, "uploadId", multi->id);
    int result = client_attempt(&multi->self->client, request, answer, err);
    request->body = NULL;
    request->payload_hash = NULL;
    if (result < 0)
        return -1;
    /* The 200 comes before the object is put together: only the whole result says that it was. */
    if (xml_multi_completed(buf_cstr(&answer->response.body), answer->response.body.len, etag,
                            err) == 0 &&
        (etag[0] || composite_etag(multi, etag, err) == 0))
        return 0;
    answer->verdict = RETRY_AGAIN;
    answer->maybe_done = true;
    return -1;
}

void
http_store_multi_drop(struct http_store_multi *multi)
{
    struct err err = ERR_INIT;
    if (multi->id[0] && http_store_upload_abort(&multi->self->store, multi->key, multi->id,
                                                multi->end_ns, &err) < 0)
        log_warn(s3, "an upload in parts is left behind key=%.200s upload=%.100s why=%s",
                 multi->key, multi->id, err.msg);
}
