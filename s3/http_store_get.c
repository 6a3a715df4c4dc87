#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "s3/answer.h"
#include "s3/http_store_impl.h"

/*
 * Reading: one GET, gone on with Range and If-Match after a cut, so that the sink sees each byte of one version once
 * and in order (INV-1, INV-9).
 */

struct reading {
    struct http_store *self;
    const struct store_get *req;
    struct store_object *out;
    bool started;      /* `out` describes the version being read; `first`, `end` hold */
    uint64_t first;    /* offset in the object of the first byte asked for */
    uint64_t end;      /* behind the last byte wanted */
    uint64_t next;     /* of the next byte for the sink */
    struct hash *hash; /* sha256 while a whole object with a known one is read */
    bool sink_failed;
    bool other_version; /* 2xx in spite of If-Match, with another ETag */
};

/* Identity of a version (docs/mechanisms.md section 4): its own sha256 counts only where size and MD5 agree. */
static bool
sha256_is_known(const struct store_object *object, uint8_t want[SHA256_SIZE])
{
    const char *sha = meta_get(&object->meta, "holdfast-sha256");
    const char *md5_text = meta_get(&object->meta, "holdfast-md5");
    const char *size_text = meta_get(&object->meta, "holdfast-size");
    uint64_t size = 0;
    return sha && md5_text && size_text && parse_u64(size_text, &size) && size == object->size &&
           strcasecmp(md5_text, object->etag) == 0 &&
           hex_decode(sha, strlen(sha), want, SHA256_SIZE);
}

static int
begin_hash(struct reading *reading, struct err *err)
{
    uint8_t want[SHA256_SIZE];
    if (reading->first != 0 || reading->end != reading->out->size ||
        !sha256_is_known(reading->out, want))
        return 0;
    reading->hash = hash_new(HASH_SHA256, err);
    return reading->hash ? 0 : -1;
}

static int
check_hash(struct reading *reading, struct err *err)
{
    uint8_t want[SHA256_SIZE];
    uint8_t got[SHA256_SIZE];
    if (!reading->hash)
        return 0;
    struct hash *hash = steal(&reading->hash);
    if (hash_final(hash, got, err) < 0)
        return -1;
    if (sha256_is_known(reading->out, want) && !hash_equal(want, got, SHA256_SIZE)) {
        log_error(s3, "checksum mismatch key=%.200s", reading->req->key);
        return err_set(err, ERR_STORE_BAD_ANSWER,
                       "checksum mismatch: the bytes are not those of "
                       "the version's sha256");
    }
    return 0;
}

/* Where the bytes of this answer lie in the object. */
struct span {
    uint64_t first, end, total;
};

static int
read_span(const struct http_response *response, struct span *out, struct err *err)
{
    if (!response->has_length)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the store's answer has no Content-Length");
    if (response->status == 200) {
        *out = (struct span){ 0, response->length, response->length };
        return 0;
    }
    const char *range = http_response_field(response, "content-range");
    uint64_t last = 0;
    if (!range || !answer_content_range(range, &out->first, &last, &out->total))
        return err_set(err, ERR_STORE_BAD_ANSWER, "bad Content-Range '%.60s'", range ? range : "");
    out->end = last + 1;
    if (out->end - out->first != response->length) {
        return err_set(err, ERR_STORE_BAD_ANSWER,
                       "Content-Range and Content-Length contradict each other");
    }
    return 0;
}

static int
check_version(struct reading *reading, const char *etag, const struct span *span, struct err *err)
{
    const char *want = reading->started ? reading->out->etag : reading->req->if_match;
    char got[LIMIT_ETAG];
    assert(reading->out); /* the gate gives one where its caller wants none */
    if (!etag || etag_strip(etag, got) < 0)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the store's answer has no usable ETag");
    if (want && strcmp(want, got) != 0) {
        reading->other_version = true;
        return err_set(err, ERR_STORE_BAD_ANSWER, "the store sent another version than asked for");
    }
    if (reading->started && span->total != reading->out->size)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the object's size changed within one version");
    return 0;
}

static int
start(struct reading *reading, const struct http_response *response, const struct span *span,
      struct err *err)
{
    const struct store_get *req = reading->req;
    if (http_store_object(response, span->total, reading->out, err) < 0)
        return -1;
    reading->end = span->total;
    if (req->len != 0 && req->off < span->total && req->len < span->total - req->off)
        reading->end = req->off + req->len;
    reading->started = true;
    return begin_hash(reading, err);
}

static int
on_head(void *arg, const struct http_response *response, struct err *err)
{
    struct reading *reading = arg;
    struct span span;
    if (response->status != 200 && response->status != 206)
        return 0;
    if (read_span(response, &span, err) < 0 ||
        check_version(reading, http_response_field(response, "etag"), &span, err) < 0)
        return -1;
    if (!reading->started && start(reading, response, &span, err) < 0)
        return -1;
    if (span.first != reading->next || span.end != reading->end)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the store sent another range than asked for");
    return 0;
}

static int
on_data(void *arg, const void *data, size_t len, struct err *err)
{
    struct reading *reading = arg;
    if (len > reading->end - reading->next)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the store sent more than it announced");
    if (reading->hash && hash_update(reading->hash, data, len, err) < 0)
        return -1;
    if (reading->req->sink(reading->req->sink_arg, data, len, err) < 0) {
        reading->sink_failed = true;
        return -1;
    }
    reading->next += len;
    return 0;
}

struct get_texts {
    char range[64];
    struct buf etag;
};

static int
build(struct reading *reading, struct client_request *request, struct get_texts *texts,
      struct err *err)
{
    const struct store_get *req = reading->req;
    uint64_t first = reading->next;
    const char *etag = reading->started ? reading->out->etag : req->if_match;
    request->field_count = 0;
    if (reading->started || req->len != 0) {
        uint64_t end = reading->started ? reading->end : req->off + req->len;
        (void)snprintf(texts->range, sizeof(texts->range), "bytes=%" PRIu64 "-%" PRIu64, first,
                       end - 1);
        client_field(request, "range", texts->range);
    } else if (first > 0) {
        (void)snprintf(texts->range, sizeof(texts->range), "bytes=%" PRIu64 "-", first);
        client_field(request, "range", texts->range);
    }
    if (!etag)
        return 0;
    buf_clear(&texts->etag);
    if (http_store_etag(reading->self, etag, &texts->etag, err) < 0)
        return -1;
    client_field(request, "if-match", buf_cstr(&texts->etag));
    return 0;
}

/* An ETag that If-Match excludes: a store that ignores the condition, or one that lies. A HEAD decides. */
static int
explain_other_version(struct reading *reading, int64_t deadline_ns, struct err *err)
{
    struct store_object now;
    struct err own = ERR_INIT;
    const char *want = reading->started ? reading->out->etag : reading->req->if_match;
    store_object_init(&now);
    if (http_store_head(&reading->self->store, reading->req->key, deadline_ns, &now, &own) == 0 &&
        want && strcmp(now.etag, want) != 0)
        err_set(err, ERR_CONFLICT, "'%.160s': its version is another one", reading->req->key);
    else if (own.code == ERR_NOT_FOUND)
        *err = own;
    store_object_release(&now);
    return -1;
}

static bool
is_cut(const struct client_answer *answer)
{
    return answer->verdict != RETRY_NO;
}

static int
attempts(struct reading *reading, struct client_request *request, struct client_answer *answer,
         struct get_texts *texts, struct err *err)
{
    struct client *client = &reading->self->client;
    struct client_try tries = { .deadline_ns = request->deadline_ns };
    for (;;) {
        uint64_t before = reading->next;
        if (build(reading, request, texts, err) < 0)
            return -1;
        int result = client_attempt(client, request, answer, err);
        if (result == 0 && reading->started && reading->next == reading->end)
            return 0;
        if (result == 0)
            return err_set(err, ERR_STORE_BAD_ANSWER, "'%.160s': unexpected answer %d",
                           reading->req->key, answer->response.status);
        if (reading->started && reading->next == reading->end && is_cut(answer))
            return 0; /* all bytes are here; only the end of the exchange went wrong */
        if (reading->next > before)
            tries.attempt = 0;
        /* The deadline has moved with the bytes that came. */
        request->deadline_ns +=
            (int64_t)(reading->next - before) * request->deadline_bonus_ns_per_mib / (1 << 20);
        tries.deadline_ns = request->deadline_ns;
        if (!client_again(client, &tries, answer))
            return -1;
        client_answer_reset(answer);
    }
}

int
http_store_get(struct store *store, const struct store_get *req, struct store_object *out,
               struct err *err)
{
    struct reading reading = {
        .self = http_store_of(store), .req = req, .out = out, .first = req->off, .next = req->off
    };
    struct client_request request = {
        .method = "GET",
        .key = req->key,
        .head = on_head,
        .sink = on_data,
        .arg = &reading,
        .deadline_ns = http_store_deadline(req->deadline_ns, req->len),
        .deadline_bonus_ns_per_mib = req->deadline_ns == 0 && req->len == 0 ? NS_PER_S : 0,
    };
    struct get_texts texts;
    struct client_answer answer;
    buf_init(&texts.etag, LIMIT_ETAG + 3);
    client_answer_init(&answer);
    int result = attempts(&reading, &request, &answer, &texts, err);
    if (result == 0)
        result = check_hash(&reading, err);
    else if (reading.other_version)
        (void)explain_other_version(&reading, request.deadline_ns, err);
    else if (reading.started && err->code == ERR_RANGE)
        err_set(err, ERR_STORE_BAD_ANSWER, "the object is shorter than the store announced");
    if (result < 0 && !reading.sink_failed && !strstr(err->msg, req->key))
        err_wrap(err, "'%.160s'", req->key);
    hash_free(reading.hash);
    client_answer_release(&answer);
    buf_release(&texts.etag);
    return result;
}
