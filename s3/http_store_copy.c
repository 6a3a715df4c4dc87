#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "s3/answer.h"
#include "s3/http_store_copy_impl.h"

#define COPY_IDLE (5 * 60 * NS_PER_S) /* nothing may come while a large object is copied */
#define LOW_LIMIT (1ull << 30)

/*
 * Copies inside the store, to fresh keys (INV-15), and deletes. Some stores ignore the condition on the source, so the
 * copy is compared afterwards.
 */

int
http_store_copy_source(const struct client *client, const char *from, bool twice, struct buf *out,
                       struct err *err)
{
    scope_buf key;
    scope_buf once;
    buf_init(&key, LIMIT_KEY + 1);
    buf_init(&once, 4 * LIMIT_KEY);
    buf_clear(out);
    /* "/bucket/key", encoded like a path but without the endpoint's own. */
    if (client_full_key(client, from, &key, err) < 0)
        return -1;
    if (!twice)
        return canonical_path("", client->bucket, buf_cstr(&key), out, err);
    if (canonical_path("", NULL, buf_cstr(&key), &once, err) < 0)
        return -1;
    return canonical_path("", client->bucket, buf_cstr(&once) + 1, out, err);
}

static int
build_copy(struct copying *copying, struct client_request *request, struct err *err)
{
    const struct store_copy *req = copying->req;
    if (http_store_copy_source(&copying->self->client, req->from, false, &copying->source, err) < 0)
        return -1;
    client_field(request, "x-amz-copy-source", buf_cstr(&copying->source));
    if (req->from_if_match) {
        if (http_store_etag(copying->self, req->from_if_match, &copying->etag, err) < 0)
            return -1;
        client_field(request, "x-amz-copy-source-if-match", buf_cstr(&copying->etag));
    }
    client_field(request, "x-amz-metadata-directive", req->meta ? "REPLACE" : "COPY");
    if (http_store_placement_fields(req->placement, request, err) < 0)
        return -1;
    return http_store_meta_fields(req->meta, &copying->meta, request, err);
}

int
http_store_copy_source_error(const struct copying *copying, struct err *err)
{
    if (err->code == ERR_NOT_FOUND)
        return err_set(err, ERR_NOT_FOUND, "'%.160s': it does not exist", copying->req->from);
    return err_wrap(err, "copy of '%.160s'", copying->req->from);
}

/* With another ETag at the copy (multipart objects, other encryption) the source must still be the version asked for
 * and the sizes must agree: then that version was the one copied. */
static int
compare_with_source(const struct copying *copying, const struct store_object *copy, struct err *err)
{
    struct store_object source;
    store_object_init(&source);
    int result = http_store_head(&copying->self->store, copying->req->from, copying->deadline_ns,
                                 &source, err);
    if (result == 0 &&
        (strcmp(source.etag, copying->req->from_if_match) != 0 || source.size != copy->size))
        result =
            err_set(err, ERR_CONFLICT, "'%.160s': its version is another one", copying->req->from);
    store_object_release(&source);
    return result;
}

/* The key is fresh, so nobody else's bytes can be there; left alone they would pass for the version asked for. */
static void
remove_wrong_copy(const struct copying *copying)
{
    const struct store_delete req = { .key = copying->req->to,
                                      .deadline_ns = copying->deadline_ns };
    enum store_outcome outcome;
    struct err err = ERR_INIT;
    if (http_store_delete(&copying->self->store, &req, &outcome, &err) < 0)
        log_warn(s3, "a wrong copy is left behind key=%.200s why=%s", copying->req->to, err.msg);
}

static int
finish_copy(struct copying *copying, const struct store_object *copy, struct err *err)
{
    const struct store_copy *req = copying->req;
    bool trusted = copying->self->store.caps.copy_source_if_match == STORE_YES;
    if (req->from_if_match && !trusted && strcmp(req->from_if_match, copy->etag) != 0 &&
        compare_with_source(copying, copy, err) < 0) {
        copying->res->outcome = err->code == ERR_CONFLICT ? STORE_REFUSED : STORE_UNKNOWN;
        if (err->code == ERR_CONFLICT)
            remove_wrong_copy(copying);
        return -1;
    }
    memcpy(copying->res->etag, copy->etag, sizeof(copy->etag));
    copying->res->outcome = STORE_DONE;
    return 0;
}

/* The key was fresh: what is there now is the copy. */
int
http_store_copy_look(struct copying *copying, struct err *err)
{
    struct store_object copy;
    store_object_init(&copy);
    int result =
        http_store_head(&copying->self->store, copying->req->to, copying->deadline_ns, &copy, err);
    if (result == 0)
        result = finish_copy(copying, &copy, err);
    store_object_release(&copy);
    return result;
}

int
http_store_copy_give_up(struct copying *copying, int status, struct err *err)
{
    copying->res->outcome = copying->maybe_done ? STORE_UNKNOWN
                            : status == 412     ? STORE_REFUSED
                                                : STORE_NOT_DONE;
    if (copying->maybe_done && (err->code == ERR_CONFLICT || err->code == ERR_NOT_FOUND)) {
        return err_set(err, ERR_STORE_TIMEOUT,
                       "'%.160s': it could not be found out whether the copy was made",
                       copying->req->to);
    }
    return http_store_copy_source_error(copying, err);
}

/* The store said yes (or an error in a 200 that may hide a yes): look at what is there. True: `result` is final. */
static bool
settle_copy(struct copying *copying, bool accepted, int *result, struct err *err)
{
    struct err own = ERR_INIT;
    if (!copying->maybe_done)
        return false;
    *result = http_store_copy_look(copying, &own);
    if (*result == 0)
        return true;
    if (copying->res->outcome != STORE_REFUSED && !accepted)
        return false;
    *err = own;
    if (copying->res->outcome != STORE_REFUSED)
        copying->res->outcome = STORE_UNKNOWN;
    if (own.code == ERR_NOT_FOUND)
        err_set(err, ERR_STORE_BAD_ANSWER, "'%.160s': the store says copied, and it is not there",
                copying->req->to);
    return true;
}

/* What S3 and its likes say of a source beyond the limit of one CopyObject. */
static bool
is_too_large(const struct copying *copying, const struct client_answer *answer)
{
    const char *code = answer->error.code;
    return !copying->maybe_done && copying->self->store.caps.copy_parts != STORE_NO &&
           (answer->response.status == 413 || strcmp(code, "EntityTooLarge") == 0 ||
            (answer->response.status == 400 && strcmp(code, "InvalidRequest") == 0 &&
             strstr(answer->error.message, "size")));
}

static int
copy_attempts(struct copying *copying, const struct client_request *request,
              struct client_answer *answer, struct err *err)
{
    struct client *client = &copying->self->client;
    struct client_try tries = { .deadline_ns = copying->deadline_ns };
    char etag[LIMIT_ETAG];
    for (;;) {
        int result = client_attempt(client, request, answer, err);
        copying->maybe_done = copying->maybe_done || result == 0 || answer->maybe_done;
        /* The 200 comes before the copy is made: only the whole document says that it was. */
        if (result == 0)
            result = xml_copy_parse(buf_cstr(&answer->response.body), answer->response.body.len,
                                    etag, err);
        bool accepted = result == 0;
        if (settle_copy(copying, accepted, &result, err))
            return result;
        if (is_too_large(copying, answer))
            return http_store_copy_parts(copying, err);
        if (!client_again(client, &tries, answer))
            return http_store_copy_give_up(copying, answer->response.status, err);
        client_answer_reset(answer);
    }
}

static int
whole_copy(struct copying *copying, struct err *err)
{
    static const struct store_body empty = { .mem = "", .fd = -1, .size = 0 };
    struct client_request request = { .method = "PUT",
                                      .key = copying->req->to,
                                      .body = &empty,
                                      .deadline_ns = copying->deadline_ns,
                                      .idle_max_ns = COPY_IDLE };
    struct client_answer answer;
    client_answer_init(&answer);
    int result = build_copy(copying, &request, err);
    if (result == 0)
        result = copy_attempts(copying, &request, &answer, err);
    client_answer_release(&answer);
    return result;
}

/* A limit as low as this may be met by any object, so the size is asked for when it is not told. Else the refusal of the
 * few that are too large tells it for nothing. */
static uint64_t
learn_size(const struct copying *copying, uint64_t max)
{
    struct store_object source;
    struct err ignored = ERR_INIT;
    uint64_t size = copying->req->from_size;
    if (size || max >= LOW_LIMIT)
        return size;
    store_object_init(&source);
    if (http_store_head(&copying->self->store, copying->req->from, copying->deadline_ns, &source,
                        &ignored) == 0)
        size = source.size;
    store_object_release(&source);
    return size;
}

static bool
wants_parts(const struct copying *copying)
{
    const struct store_caps *caps = &copying->self->store.caps;
    uint64_t max = caps->max_copy_bytes ? caps->max_copy_bytes : LIMIT_PUT_BODY;
    return caps->copy_parts != STORE_NO && learn_size(copying, max) > max;
}

int
http_store_copy(struct store *store, const struct store_copy *req, struct store_put_result *res,
                struct err *err)
{
    struct copying copying = { .self = http_store_of(store),
                               .req = req,
                               .res = res,
                               .deadline_ns =
                                   http_store_deadline(req->deadline_ns, req->from_size / 8) };
    buf_init(&copying.source, 4 * LIMIT_KEY);
    buf_init(&copying.etag, LIMIT_ETAG + 3);
    buf_init(&copying.meta, LIMIT_HTTP_HEADERS);
    res->outcome = STORE_NOT_DONE;
    int result =
        wants_parts(&copying) ? http_store_copy_parts(&copying, err) : whole_copy(&copying, err);
    buf_release(&copying.source);
    buf_release(&copying.etag);
    buf_release(&copying.meta);
    return result;
}

/* ---- DELETE ---- */

struct deleting {
    struct http_store *self;
    const struct store_delete *req;
    enum store_outcome *outcome;
    bool maybe_done;
    int64_t deadline_ns;
};

/* After a lost answer: gone is gone, whoever did it. */
static bool
is_gone(const struct deleting *deleting)
{
    struct store_object object;
    struct err err = ERR_INIT;
    store_object_init(&object);
    int result = http_store_head(&deleting->self->store, deleting->req->key, deleting->deadline_ns,
                                 &object, &err);
    store_object_release(&object);
    return result < 0 && err.code == ERR_NOT_FOUND;
}

static int
deleted(struct deleting *deleting)
{
    *deleting->outcome = STORE_DONE;
    return 0;
}

static int
judge_delete(struct deleting *deleting, const struct client_answer *answer, struct err *err)
{
    bool missing = strcmp(answer->error.code, "NoSuchKey") == 0;
    /* Deleting what is not there is a success in S3, also for the stores that say 404. */
    if (missing && (!deleting->req->if_match || deleting->maybe_done))
        return deleted(deleting);
    if (deleting->maybe_done && is_gone(deleting))
        return deleted(deleting);
    *deleting->outcome = deleting->maybe_done ? STORE_UNKNOWN : STORE_NOT_DONE;
    if ((answer->response.status == 412 || missing) && !deleting->maybe_done) {
        *deleting->outcome = STORE_REFUSED;
        return err_set(err, ERR_CONFLICT, "'%.160s': its version is another one",
                       deleting->req->key);
    }
    if (err->code == ERR_CONFLICT)
        return err_set(err, ERR_STORE_TIMEOUT,
                       "'%.160s': it could not be found out whether it was deleted",
                       deleting->req->key);
    return -1;
}

static int
delete_attempts(struct deleting *deleting, const struct client_request *request,
                struct client_answer *answer, struct err *err)
{
    struct client *client = &deleting->self->client;
    struct client_try tries = { .deadline_ns = deleting->deadline_ns };
    for (;;) {
        if (client_attempt(client, request, answer, err) == 0)
            return deleted(deleting);
        deleting->maybe_done = deleting->maybe_done || answer->maybe_done;
        if (!client_again(client, &tries, answer))
            return judge_delete(deleting, answer, err);
        client_answer_reset(answer);
    }
}

int
http_store_delete(struct store *store, const struct store_delete *req, enum store_outcome *outcome,
                  struct err *err)
{
    struct deleting deleting = { .self = http_store_of(store),
                                 .req = req,
                                 .outcome = outcome,
                                 .deadline_ns = http_store_deadline(req->deadline_ns, 0) };
    struct client_request request = { .method = "DELETE",
                                      .key = req->key,
                                      .deadline_ns = deleting.deadline_ns };
    struct client_answer answer;
    scope_buf etag;
    buf_init(&etag, LIMIT_ETAG + 3);
    *outcome = STORE_NOT_DONE;
    if (req->if_match) {
        if (http_store_etag(deleting.self, req->if_match, &etag, err) < 0)
            return -1;
        client_field(&request, "if-match", buf_cstr(&etag));
    }
    client_answer_init(&answer);
    int result = delete_attempts(&deleting, &request, &answer, err);
    client_answer_release(&answer);
    return result;
}
