#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "s3/http_store_multi_impl.h"
#include "s3/http_store_put_impl.h"
#include "s3/sigv4.h"

/*
 * Writing in parts. The completion is what makes the object; where it was not proven to judge the condition, a HEAD right
 * before it must find the condition held and one right after it must find our object (docs/mechanisms.md section 1). An
 * upload whose completion may have been carried out is never aborted: that could take the bytes from under the object.
 */

#define PARALLEL_FROM (64ull << 20)
#define PART_MAX (5ull << 30)
#define RESTARTS 2 /* after the store has lost an upload */

static bool
is_judged(const struct store_caps *caps, enum store_cond_kind cond)
{
    return cond == STORE_COND_NONE ||
           (cond == STORE_COND_ABSENT ? caps->complete_if_absent : caps->complete_if_match) ==
               STORE_YES;
}

bool
http_store_put_wants_parts(const struct store_caps *caps, enum store_cond_kind cond, uint64_t size)
{
    uint64_t max = caps->max_put_bytes ? caps->max_put_bytes : LIMIT_PUT_BODY;
    if (size > max)
        return true;
    return size > PARALLEL_FROM && caps->multipart == STORE_YES && is_judged(caps, cond);
}

struct upload {
    struct writing *writing;
    struct http_store_multi multi;
};

/* ---- begin and parts ---- */

static int
begin(struct upload *upload, struct err *err)
{
    const struct store_put *req = upload->writing->req;
    struct client_request request = { .method = "POST" };
    buf_clear(&upload->writing->meta);
    client_field(&request, "content-type",
                 req->content_type ? req->content_type : "application/octet-stream");
    if (http_store_placement_fields(req->placement, &request, err) < 0 ||
        http_store_meta_fields(req->meta, &upload->writing->meta, &request, err) < 0 ||
        http_store_multi_begin(&upload->multi, &request, err) < 0)
        return -1;
    return req->on_upload ? req->on_upload(req->on_upload_arg, upload->multi.id, err) : 0;
}

/* What a part's request points at. */
struct slice {
    const struct upload *upload;
    struct store_body body;
    char payload_hash[SHA256_HEX];
};

static int
part_request(void *arg, unsigned index, struct client_request *request, struct err *err)
{
    (void)index;
    (void)err;
    struct slice *slice = arg;
    request->body = &slice->body;
    request->payload_hash = slice->payload_hash[0] ? slice->payload_hash : SIGV4_UNSIGNED_PAYLOAD;
    return 0;
}

static int
part_etag(const struct client_answer *answer, char etag[LIMIT_ETAG], struct err *err)
{
    const char *value = http_response_field(&answer->response, "etag");
    if (value && etag_strip(value, etag) == 0)
        return 0;
    return err_set(err, ERR_STORE_BAD_ANSWER, "the store's answer has no usable ETag");
}

static int
send_part(void *arg, unsigned index, struct err *err)
{
    struct upload *upload = arg;
    const struct store_body *whole = &upload->writing->req->body;
    uint64_t off = parts_off(&upload->multi.parts, index);
    struct slice slice = { .upload = upload, .body = *whole };
    if (whole->mem)
        slice.body.mem = (const char *)whole->mem + off;
    slice.body.off = whole->off + off;
    slice.body.size = parts_len(&upload->multi.parts, index);
    slice.body.sha256 = slice.body.md5 = NULL;
    if (http_store_payload_hash(upload->writing->self, &slice.body, slice.payload_hash, err) < 0) {
        atomic_store(&upload->multi.failed, true);
        return -1;
    }
    return http_store_multi_part(&upload->multi, index, part_request, &slice, part_etag, err);
}

/* ---- completion ---- */

enum step { STEP_DONE, STEP_FAILED, STEP_AGAIN /* with a new upload */, STEP_RETRY };

static bool
still_holds(const struct writing *writing, enum http_store_look found)
{
    const struct store_cond *cond = &writing->req->cond;
    if (cond->kind == STORE_COND_ABSENT)
        return found == LOOK_ABSENT;
    if (cond->kind == STORE_COND_MATCH)
        return writing->seen[0] && strcmp(writing->seen, cond->etag) == 0;
    return false;
}

/* Somebody else's version is there, or the one of the condition is not. */
static enum step
refuse(struct upload *upload, struct err *err)
{
    if (upload->writing->maybe_done) {
        err_set(err, ERR_CONFLICT, "another version is there");
        (void)http_store_put_undecided(upload->writing, err);
        return STEP_FAILED;
    }
    http_store_multi_drop(&upload->multi);
    (void)http_store_put_refused(upload->writing, err);
    return STEP_FAILED;
}

static enum step
give_up(struct upload *upload, struct err *err)
{
    if (!upload->writing->maybe_done)
        http_store_multi_drop(&upload->multi);
    (void)http_store_put_undecided(upload->writing, err);
    return STEP_FAILED;
}

/* Where the completion does not judge: may it go out now? STEP_RETRY: yes. */
static enum step
look_before(struct upload *upload, struct err *err)
{
    struct writing *writing = upload->writing;
    if (is_judged(&writing->self->store.caps, writing->req->cond.kind))
        return STEP_RETRY;
    writing->seen[0] = '\0';
    enum http_store_look found = http_store_put_look(writing, err);
    if (found == LOOK_OURS) {
        (void)http_store_put_done(writing);
        return STEP_DONE;
    }
    if (still_holds(writing, found))
        return STEP_RETRY;
    /* LOOK_FAILED with an ETag: it was seen, and is not the one of the condition. */
    return found == LOOK_FAILED && !writing->seen[0] ? give_up(upload, err) : refuse(upload, err);
}

/* A whole result came: what lies there now? */
static enum step
look_after(struct upload *upload, const char *etag, struct err *err)
{
    struct writing *writing = upload->writing;
    struct err own = ERR_INIT;
    bool judged = is_judged(&writing->self->store.caps, writing->req->cond.kind);
    writing->maybe_done = true;
    writing->seen[0] = '\0';
    enum http_store_look found = http_store_put_look(writing, &own);
    bool same = etag[0] && strcmp(writing->seen, etag) == 0;
    bool whole = writing->seen_size == writing->req->body.size;
    if (found == LOOK_OURS || (same && whole)) {
        if (found != LOOK_OURS)
            memcpy(writing->res->etag, etag, LIMIT_ETAG);
        (void)http_store_put_done(writing);
        return STEP_DONE;
    }
    /* A condition that was judged held; who wrote after us is no business of ours. */
    if (judged && !same && etag[0]) {
        memcpy(writing->res->etag, etag, LIMIT_ETAG);
        (void)http_store_put_done(writing);
        return STEP_DONE;
    }
    err_set(err, ERR_STORE_BAD_ANSWER,
            "'%.160s': the store says that it was written in parts, and what lies there is not it",
            writing->req->key);
    (void)http_store_put_undecided(writing, err);
    return STEP_FAILED;
}

static enum step
judge_refusal(struct upload *upload, const struct client_answer *answer, struct err *err)
{
    struct writing *writing = upload->writing;
    struct err own = ERR_INIT;
    writing->maybe_done = writing->maybe_done || answer->maybe_done;
    enum http_store_look found = http_store_put_look(writing, &own);
    if (found == LOOK_OURS) {
        (void)http_store_put_done(writing);
        return STEP_DONE;
    }
    if (found == LOOK_FAILED && writing->maybe_done)
        return give_up(upload, err);
    /* A completion that judges is refused whenever it lands. */
    if (is_judged(&writing->self->store.caps, writing->req->cond.kind))
        writing->maybe_done = false;
    return refuse(upload, err);
}

/* No result: an error, or nothing. It may have been carried out all the same. */
static enum step
judge_failure(struct upload *upload, const struct client_answer *answer, struct client_try *tries,
              struct err *err)
{
    struct writing *writing = upload->writing;
    struct err own = ERR_INIT;
    enum http_store_look found = LOOK_FAILED;
    bool lost = http_store_multi_is_lost(answer);
    writing->maybe_done = writing->maybe_done || answer->maybe_done;
    writing->seen[0] = '\0';
    if (writing->maybe_done || lost || answer->response.status == 409)
        found = http_store_put_look(writing, &own);
    if (found == LOOK_OURS) {
        (void)http_store_put_done(writing);
        return STEP_DONE;
    }
    /* The upload is gone, and what the condition names is there as before: ours has never landed. */
    if (lost && (!writing->maybe_done || still_holds(writing, found))) {
        writing->maybe_done = false;
        return STEP_AGAIN;
    }
    if (!lost && client_again(&writing->self->client, tries, answer))
        return STEP_RETRY;
    return give_up(upload, err);
}

static enum step
complete_once(struct upload *upload, struct client_try *tries, struct err *err)
{
    struct writing *writing = upload->writing;
    struct client_request request = { .method = "POST" };
    struct client_answer answer;
    char etag[LIMIT_ETAG];
    enum step step = look_before(upload, err);
    if (step != STEP_RETRY)
        return step;
    buf_clear(&writing->etag);
    /* Where it is known to be ignored or refused, the condition is left out. */
    const struct store_caps *caps = &writing->self->store.caps;
    enum store_yes_no can = writing->req->cond.kind == STORE_COND_ABSENT ? caps->complete_if_absent
                                                                         : caps->complete_if_match;
    if (can != STORE_NO && http_store_put_condition(writing, &request, err) < 0)
        return give_up(upload, err);
    client_answer_init(&answer);
    if (http_store_multi_complete(&upload->multi, &request, &answer, etag, err) == 0)
        step = look_after(upload, etag, err);
    else if (http_store_put_is_refusal(writing, &answer))
        step = judge_refusal(upload, &answer, err);
    else
        step = judge_failure(upload, &answer, tries, err);
    client_answer_release(&answer);
    return step;
}

static enum step
complete(struct upload *upload, struct err *err)
{
    struct client_try tries = { .deadline_ns = upload->multi.deadline_ns };
    enum step step;
    const struct store_put *req = upload->writing->req;
    if (req->still && !req->still(req->still_arg)) {
        err_set(err, ERR_BUSY, "'%.160s': the file was changed while it was sent", req->key);
        return give_up(upload, err);
    }
    do {
        step = complete_once(upload, &tries, err);
    } while (step == STEP_RETRY);
    return step;
}

static enum step
one_upload(struct upload *upload, struct err *err)
{
    struct http_store_multi *multi = &upload->multi;
    if (begin(upload, err) < 0)
        return give_up(upload, err);
    if (parts_run(multi->parts.count, http_store_multi_threads(multi), send_part, upload, err) == 0)
        return complete(upload, err);
    if (!atomic_load(&multi->lost))
        return give_up(upload, err);
    return STEP_AGAIN;
}

int
http_store_put_parts(struct writing *writing, struct err *err)
{
    struct upload upload = { .writing = writing };
    const struct store_caps *caps = &writing->self->store.caps;
    enum step step = STEP_AGAIN;
    if (parts_plan(writing->req->body.size, caps->part_bytes, PART_MAX, &upload.multi.parts, err) <
        0)
        return -1;
    for (int i = 0; step == STEP_AGAIN; i++) {
        if (http_store_multi_init(&upload.multi, writing->self, writing->req->key,
                                  writing->deadline_ns, err) < 0)
            return -1;
        step = one_upload(&upload, err);
        if (step == STEP_AGAIN) {
            log_warn(s3, "the store has lost an upload in parts key=%.200s", writing->req->key);
            http_store_multi_drop(&upload.multi); /* what is left of it */
            if (i == RESTARTS)
                step = give_up(&upload, err);
        }
        http_store_multi_release(&upload.multi);
    }
    return step == STEP_DONE ? 0 : -1;
}
