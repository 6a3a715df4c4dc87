#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "s3/answer.h"
#include "s3/http_store_put_impl.h"
#include "s3/sigv4.h"

/*
 * Writing: a conditional PUT whose lost answers are found again. Every answer but a clean success may hide that an
 * attempt of ours has landed (docs/mechanisms.md sections 1 and 4), so we look before we act (INV-10): an object with
 * our write id, our size and our MD5 is ours.
 */

#define HASH_ALWAYS (8ull << 20) /* up to here the payload is always signed */

/*
 * A signed payload is hashed by us before it is sent, and by the store when it comes: a quarter of what a large PUT costs
 * Ceph RGW. Behind TLS, and to a store on this machine, nobody can change the bytes on their way, so a large body goes
 * unsigned: that it arrived whole is told by Content-MD5, which the store compares with the MD5 that it makes for the ETag
 * anyhow. Without an MD5 a known hash is sent.
 */
int
http_store_payload_hash(const struct http_store *self, const struct store_body *body,
                        char out[SHA256_HEX], struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    const struct client *client = &self->client;
    bool safe_way = client->endpoint.tls || client->loopback;
    out[0] = '\0';
    if (safe_way && body->size > HASH_ALWAYS && (body->md5 || !body->sha256))
        return 0;
    if (body->sha256) {
        hex_encode(body->sha256, SHA256_SIZE, out);
        return 0;
    }
    if (body->mem || body->size == 0) {
        if (sha256(body->mem ? body->mem : "", (size_t)body->size, digest, err) < 0)
            return -1;
    } else if (hash_fd(body->fd, body->off, body->size, digest, NULL, err) < 0) {
        return -1;
    }
    hex_encode(digest, SHA256_SIZE, out);
    return 0;
}

int
http_store_put_condition(struct writing *writing, struct client_request *request, struct err *err)
{
    const struct store_cond *cond = &writing->req->cond;
    if (cond->kind == STORE_COND_ABSENT)
        client_field(request, "if-none-match", "*");
    if (cond->kind != STORE_COND_MATCH)
        return 0;
    if (http_store_etag(writing->self, cond->etag, &writing->etag, err) < 0)
        return -1;
    client_field(request, "if-match", buf_cstr(&writing->etag));
    return 0;
}

static int
build(struct writing *writing, struct client_request *request, struct err *err)
{
    const struct store_put *req = writing->req;
    if (http_store_payload_hash(writing->self, &req->body, writing->payload_hash, err) < 0)
        return -1;
    request->payload_hash =
        writing->payload_hash[0] ? writing->payload_hash : SIGV4_UNSIGNED_PAYLOAD;
    client_field(request, "content-type",
                 req->content_type ? req->content_type : "application/octet-stream");
    if (req->body.md5) {
        if (base64_encode(req->body.md5, MD5_SIZE, &writing->md5, err) < 0)
            return -1;
        client_field(request, "content-md5", buf_cstr(&writing->md5));
    }
    if (http_store_put_condition(writing, request, err) < 0 ||
        http_store_placement_fields(req->placement, request, err) < 0)
        return -1;
    return http_store_meta_fields(req->meta, &writing->meta, request, err);
}

/* ---- is it ours? ---- */

static bool
md5_agrees(const struct writing *writing, const struct store_object *object)
{
    char hex[MD5_HEX];
    /* With KMS encryption an ETag looks like an MD5 and is none (seen from earlier answers); that of an object put
     * together from parts is none anywhere. */
    if (writing->in_parts || !writing->req->body.md5 || !answer_is_md5(object->etag) ||
        atomic_load(&writing->self->client.etag_is_md5) == STORE_NO)
        return true;
    hex_encode(writing->req->body.md5, MD5_SIZE, hex);
    return strcasecmp(hex, object->etag) == 0;
}

static bool
is_ours(const struct writing *writing, const struct store_object *object)
{
    const char *id = meta_get(&object->meta, HTTP_STORE_WRITE_ID);
    return writing->write_id && id && strcmp(id, writing->write_id) == 0 &&
           object->size == writing->req->body.size && md5_agrees(writing, object);
}

/* Without a write id the bytes can only tell that an object is not ours. */
static bool
cannot_be_ours(const struct writing *writing, const struct store_object *object)
{
    const struct store_body *body = &writing->req->body;
    uint8_t digest[MD5_SIZE];
    char hex[MD5_HEX];
    struct err ignored = ERR_INIT;
    int result;
    if (object->size != body->size)
        return true;
    if (writing->in_parts || !answer_is_md5(object->etag) ||
        atomic_load(&writing->self->client.etag_is_md5) == STORE_NO)
        return false;
    if (body->mem || body->size == 0)
        result = md5(body->mem ? body->mem : "", (size_t)body->size, digest, &ignored);
    else
        result = hash_fd(body->fd, body->off, body->size, NULL, digest, &ignored);
    hex_encode(digest, MD5_SIZE, hex);
    return result == 0 && strcasecmp(hex, object->etag) != 0;
}

enum http_store_look
http_store_put_look(struct writing *writing, struct err *err)
{
    struct store_object object;
    struct err own = ERR_INIT;
    enum http_store_look found;
    store_object_init(&object);
    if (http_store_head(&writing->self->store, writing->req->key, writing->deadline_ns, &object,
                        &own) < 0) {
        found = own.code == ERR_NOT_FOUND ? LOOK_ABSENT : LOOK_FAILED;
        if (found == LOOK_FAILED)
            *err = own;
    } else if (is_ours(writing, &object)) {
        memcpy(writing->res->etag, object.etag, sizeof(object.etag));
        found = LOOK_OURS;
    } else {
        /* An object made from ours shows that ours had landed. */
        const char *base = meta_get(&object.meta, "holdfast-base");
        bool unclear = writing->write_id ? base && strcmp(base, writing->write_id) == 0
                                         : !cannot_be_ours(writing, &object);
        found = unclear ? LOOK_FAILED : LOOK_OTHER;
    }
    const char *id = meta_get(&object.meta, HTTP_STORE_WRITE_ID);
    writing->seen_torn = id && writing->write_id && strcmp(id, writing->write_id) == 0 &&
                         object.size < writing->req->body.size;
    memcpy(writing->seen, object.etag, sizeof(object.etag));
    writing->seen_size = object.size;
    store_object_release(&object);
    log_debug(s3, "looked for an own write key=%.200s found=%d", writing->req->key, (int)found);
    return found;
}

int
http_store_put_done(struct writing *writing)
{
    writing->res->outcome = STORE_DONE;
    return 0;
}

int
http_store_put_undecided(struct writing *writing, struct err *err)
{
    writing->res->outcome = writing->maybe_done ? STORE_UNKNOWN : STORE_NOT_DONE;
    /* "Conflict" and "absent" say that nothing was written: not after a lost answer. */
    if (err->code == ERR_CONFLICT || err->code == ERR_NOT_FOUND) {
        return err_set(err, ERR_STORE_TIMEOUT,
                       "'%.160s': it could not be found out whether the write was carried out",
                       writing->req->key);
    }
    return -1;
}

int
http_store_put_refused(struct writing *writing, struct err *err)
{
    writing->res->outcome = STORE_REFUSED;
    return err_set(err, ERR_CONFLICT, "'%.160s': its version is another one", writing->req->key);
}

/* The ETag of a 200 is an MD5 of other bytes than ours: KMS encryption, or a store that errs. */
static bool
is_odd_etag(const struct writing *writing)
{
    atomic_int *known = &writing->self->client.etag_is_md5;
    char hex[MD5_HEX];
    if (!writing->req->body.md5 || !answer_is_md5(writing->res->etag))
        return false;
    hex_encode(writing->req->body.md5, MD5_SIZE, hex);
    if (strcasecmp(hex, writing->res->etag) != 0)
        return atomic_load(known) != STORE_NO;
    atomic_store(known, STORE_YES);
    return false;
}

/* Asks with a HEAD what lies there now; its ETag, size and write id lead. */
static int
confirm(struct writing *writing, struct err *err)
{
    struct store_object object;
    struct err own = ERR_INIT;
    store_object_init(&object);
    bool seen = http_store_head(&writing->self->store, writing->req->key, writing->deadline_ns,
                                &object, &own) == 0;
    const char *id = seen ? meta_get(&object.meta, HTTP_STORE_WRITE_ID) : NULL;
    bool ours = id && writing->write_id && strcmp(id, writing->write_id) == 0 &&
                object.size == writing->req->body.size;
    if (ours && strcmp(object.etag, writing->res->etag) == 0)
        atomic_store(&writing->self->client.etag_is_md5, STORE_NO);
    if (ours)
        memcpy(writing->res->etag, object.etag, sizeof(object.etag));
    store_object_release(&object);
    if (ours)
        return http_store_put_done(writing);
    writing->maybe_done = true;
    err_set(err, ERR_STORE_BAD_ANSWER, "'%.160s': the answer to the write has no usable ETag",
            writing->req->key);
    return http_store_put_undecided(writing, err);
}

/* A clean 200. */
static int
accepted(struct writing *writing, const struct client_answer *answer, struct err *err)
{
    const char *etag = http_response_field(&answer->response, "etag");
    if (!etag || etag_strip(etag, writing->res->etag) < 0) {
        writing->res->etag[0] = '\0';
        return confirm(writing, err);
    }
    return is_odd_etag(writing) && writing->write_id ? confirm(writing, err)
                                                     : http_store_put_done(writing);
}

bool
http_store_put_is_refusal(const struct writing *writing, const struct client_answer *answer)
{
    return answer->response.status == 412 || (writing->req->cond.kind == STORE_COND_MATCH &&
                                              strcmp(answer->error.code, "NoSuchKey") == 0);
}

/* 412, or 404 for If-Match. Even a first attempt may have been sent twice below us (a connection that broke and was
 * made anew), so the write id is looked for each time; without one a clean refusal is believed. */
static int
judge_refusal(struct writing *writing, const struct client_answer *answer, struct err *err)
{
    writing->maybe_done = writing->maybe_done || answer->maybe_done;
    if (!writing->write_id && !writing->maybe_done)
        return http_store_put_refused(writing, err);
    struct err own = ERR_INIT;
    switch (http_store_put_look(writing, &own)) {
    case LOOK_OURS:
        return http_store_put_done(writing);
    case LOOK_FAILED:
        if (writing->maybe_done)
            return http_store_put_undecided(writing, err);
        return http_store_put_refused(writing, err);
    case LOOK_OTHER:
    case LOOK_ABSENT:
        break;
    }
    return http_store_put_refused(writing, err);
}

enum next { NEXT_AGAIN, NEXT_DONE, NEXT_FAILED };

/* A failed attempt that was no refusal. */
static enum next
judge_failure(struct writing *writing, const struct client_answer *answer, struct client_try *tries,
              struct err *err)
{
    writing->maybe_done = writing->maybe_done || answer->maybe_done;
    bool raced = answer->response.status == 409;
    struct err own = ERR_INIT;
    if (writing->write_id && (writing->maybe_done || raced) &&
        http_store_put_look(writing, &own) == LOOK_OURS) {
        (void)http_store_put_done(writing);
        return NEXT_DONE;
    }
    if (client_again(&writing->self->client, tries, answer))
        return NEXT_AGAIN;
    (void)http_store_put_undecided(writing, err);
    return NEXT_FAILED;
}

static void
set_match(struct client_request *request, const char *etag)
{
    for (size_t i = 0; i < request->field_count; i++) {
        if (strcmp(request->field[i].name, "if-none-match") == 0 ||
            strcmp(request->field[i].name, "if-match") == 0)
            request->field[i] = (struct http_field){ "if-match", etag };
    }
}

/* There are stores that keep what came of a PUT that was cut. While none of ours was sent whole, an object with our write id and
 * fewer bytes is such a piece: the next attempt takes its place. */
static bool
replaces_torn(struct writing *writing, struct client_request *request,
              const struct client_answer *answer)
{
    struct err own = ERR_INIT;
    char before[LIMIT_ETAG];
    if (!writing->cut || writing->maybe_done || answer->maybe_done)
        return false;
    memcpy(before, writing->seen, sizeof(before));
    if (http_store_put_look(writing, &own) != LOOK_OTHER || !writing->seen_torn ||
        strcmp(before, writing->seen) == 0)
        return false;
    buf_clear(&writing->etag);
    if (http_store_etag(writing->self, writing->seen, &writing->etag, &own) < 0)
        return false;
    log_warn(s3, "the store kept a piece of a write that was cut, it is replaced key=%.200s",
             writing->req->key);
    set_match(request, buf_cstr(&writing->etag));
    return true;
}

static int
attempts(struct writing *writing, struct client_request *request, struct client_answer *answer,
         struct err *err)
{
    struct client_try tries = { .deadline_ns = writing->deadline_ns };
    for (;;) {
        if (client_attempt(&writing->self->client, request, answer, err) == 0)
            return accepted(writing, answer, err);
        writing->cut = writing->cut || (answer->response.status == 0 && !answer->maybe_done);
        if (http_store_put_is_refusal(writing, answer)) {
            if (!replaces_torn(writing, request, answer))
                return judge_refusal(writing, answer, err);
            client_answer_reset(answer);
            continue;
        }
        switch (judge_failure(writing, answer, &tries, err)) {
        case NEXT_DONE:
            return 0;
        case NEXT_FAILED:
            return -1;
        case NEXT_AGAIN:
            break;
        }
        client_answer_reset(answer);
    }
}

int
http_store_put(struct store *store, const struct store_put *req, struct store_put_result *res,
               struct err *err)
{
    struct writing writing = { .self = http_store_of(store),
                               .req = req,
                               .res = res,
                               .write_id =
                                   req->meta ? meta_get(req->meta, HTTP_STORE_WRITE_ID) : NULL,
                               .deadline_ns =
                                   http_store_deadline(req->deadline_ns, req->body.size) };
    if (req->deadline_ns == 0)
        writing.deadline_ns += client_slack_ns(&writing.self->client, req->body.size);
    struct client_request request = {
        .method = "PUT", .key = req->key, .body = &req->body, .deadline_ns = writing.deadline_ns
    };
    struct client_answer answer;
    buf_init(&writing.etag, LIMIT_ETAG + 3);
    buf_init(&writing.md5, 64);
    buf_init(&writing.meta, LIMIT_HTTP_HEADERS);
    client_answer_init(&answer);
    res->outcome = STORE_NOT_DONE;
    writing.in_parts = http_store_put_wants_parts(&store->caps, req->cond.kind, req->body.size);
    int result =
        writing.in_parts ? http_store_put_parts(&writing, err) : build(&writing, &request, err);
    if (result == 0 && !writing.in_parts)
        result = attempts(&writing, &request, &answer, err);
    client_answer_release(&answer);
    buf_release(&writing.etag);
    buf_release(&writing.md5);
    buf_release(&writing.meta);
    return result;
}
