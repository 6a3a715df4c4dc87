#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "s3/http_store_copy_impl.h"
#include "s3/http_store_multi_impl.h"

/*
 * A copy beyond what one CopyObject takes: UploadPartCopy, side by side, to a fresh key. Each part names the version of
 * the source; since some stores ignore that (Hetzner, Spaces, Wasabi), the source is looked at again before the completion,
 * so that nothing is put together from two versions.
 */

#define PART_BYTES (256ull << 20)
#define PART_MAX ((5ull << 30) - (5ull << 20)) /* R2's limit, a little below S3's */

struct copy_upload {
    struct copying *copying;
    struct http_store_multi multi;
    struct store_object source;
};

static int
changed(const struct copy_upload *upload, struct err *err)
{
    upload->copying->res->outcome = STORE_REFUSED;
    return err_set(err, ERR_CONFLICT, "'%.160s': its version is another one",
                   upload->copying->req->from);
}

static int
look_at_source(struct copy_upload *upload, struct err *err)
{
    const struct store_copy *req = upload->copying->req;
    if (http_store_head(&upload->copying->self->store, req->from, upload->copying->deadline_ns,
                        &upload->source, err) < 0)
        return http_store_copy_source_error(upload->copying, err);
    if (req->from_if_match && strcmp(req->from_if_match, upload->source.etag) != 0)
        return changed(upload, err);
    return 0;
}

/* Is the source still the version that was begun with? 0 also when that cannot be found out and `must_know` is false. */
static int
check_source(struct copy_upload *upload, bool must_know, struct err *err)
{
    struct store_object now;
    struct err own = ERR_INIT;
    store_object_init(&now);
    int result = http_store_head(&upload->copying->self->store, upload->copying->req->from,
                                 upload->multi.deadline_ns, &now, &own);
    bool other = result == 0
                     ? strcmp(now.etag, upload->source.etag) != 0 || now.size != upload->source.size
                     : own.code == ERR_NOT_FOUND;
    store_object_release(&now);
    if (other)
        return changed(upload, err);
    if (result == 0 || !must_know)
        return 0;
    *err = own;
    return http_store_copy_source_error(upload->copying, err);
}

/* CreateMultipartUpload takes nothing from the source: its type and metadata are stated anew. */
static int
begin(struct copy_upload *upload, struct err *err)
{
    struct copying *copying = upload->copying;
    struct client_request request = { .method = "POST" };
    const char *type = upload->source.content_type;
    client_field(&request, "content-type", *type ? type : "application/octet-stream");
    if (http_store_placement_fields(copying->req->placement, &request, err) < 0 ||
        http_store_meta_fields(copying->req->meta ? copying->req->meta : &upload->source.meta,
                               &copying->meta, &request, err) < 0)
        return -1;
    return http_store_multi_begin(&upload->multi, &request, err);
}

struct part {
    const struct copy_upload *upload;
    char range[64];
};

static int
part_request(void *arg, unsigned index, struct client_request *request, struct err *err)
{
    (void)err;
    static const struct store_body empty = { .mem = "", .fd = -1, .size = 0 };
    struct part *part = arg;
    const struct http_store_multi *multi = &part->upload->multi;
    uint64_t off = parts_off(&multi->parts, index);
    /* Both ends belong to the range: the last one ends at size - 1. */
    (void)snprintf(part->range, sizeof(part->range), "bytes=%" PRIu64 "-%" PRIu64, off,
                   off + parts_len(&multi->parts, index) - 1);
    request->body = &empty;
    client_field(request, "x-amz-copy-source", buf_cstr(&part->upload->copying->source));
    client_field(request, "x-amz-copy-source-range", part->range);
    client_field(request, "x-amz-copy-source-if-match", buf_cstr(&part->upload->copying->etag));
    return 0;
}

static int
part_etag(const struct client_answer *answer, char etag[LIMIT_ETAG], struct err *err)
{
    return xml_multi_part_copied(buf_cstr(&answer->response.body), answer->response.body.len, etag,
                                 err);
}

static int
copy_part(void *arg, unsigned index, struct err *err)
{
    struct copy_upload *upload = arg;
    struct part part = { .upload = upload };
    return http_store_multi_part(&upload->multi, index, part_request, &part, part_etag, err);
}

static int
all_parts(struct copy_upload *upload, struct err *err)
{
    const struct http_store_multi *multi = &upload->multi;
    struct err own = ERR_INIT;
    if (parts_run(multi->parts.count, http_store_multi_threads(multi), copy_part, upload, err) == 0)
        return 0;
    /* 412, or 416 of a source that became shorter: what is wrong is its version. */
    if (check_source(upload, false, &own) < 0)
        *err = own;
    return -1;
}

/* The key is fresh, so whatever is there with the right size is ours. True: the copy is there. */
static bool
has_landed(struct copy_upload *upload)
{
    struct store_object copy;
    struct err own = ERR_INIT;
    struct copying *copying = upload->copying;
    store_object_init(&copy);
    bool landed = http_store_head(&copying->self->store, copying->req->to, upload->multi.end_ns,
                                  &copy, &own) == 0 &&
                  copy.size == upload->source.size;
    if (landed)
        memcpy(copying->res->etag, copy.etag, sizeof(copy.etag));
    store_object_release(&copy);
    return landed;
}

/* 0: complete; -1 with `again`: to be tried once more. */
static int
complete_once(struct copy_upload *upload, struct client_try *tries, bool *again, struct err *err)
{
    struct copying *copying = upload->copying;
    struct client_request request = { .method = "POST" };
    struct client_answer answer;
    client_answer_init(&answer);
    int result =
        http_store_multi_complete(&upload->multi, &request, &answer, copying->res->etag, err);
    copying->maybe_done = copying->maybe_done || result == 0 || answer.maybe_done;
    if (copying->maybe_done && has_landed(upload))
        result = 0;
    else if (result == 0)
        result =
            err_set(err, ERR_STORE_BAD_ANSWER,
                    "'%.160s': the store says copied, and the copy is not there", copying->req->to);
    else
        *again = !http_store_multi_is_lost(&answer) &&
                 client_again(&copying->self->client, tries, &answer);
    client_answer_release(&answer);
    return result;
}

static int
complete(struct copy_upload *upload, struct err *err)
{
    struct client_try tries = { .deadline_ns = upload->multi.deadline_ns };
    bool again = true;
    int result = check_source(upload, true, err);
    if (result < 0)
        return -1;
    while (again) {
        again = false;
        result = complete_once(upload, &tries, &again, err);
    }
    if (result == 0)
        upload->copying->res->outcome = STORE_DONE;
    return result;
}

static int
run(struct copy_upload *upload, struct err *err)
{
    struct copying *copying = upload->copying;
    copying->res->outcome = STORE_NOT_DONE;
    if (begin(upload, err) == 0 && all_parts(upload, err) == 0 && complete(upload, err) == 0)
        return 0;
    if (!copying->maybe_done)
        http_store_multi_drop(&upload->multi);
    if (copying->res->outcome == STORE_REFUSED)
        return -1;
    if (err->code == ERR_CONFLICT)
        err->code = ERR_STORE_BAD_ANSWER; /* of a request that named no condition */
    return http_store_copy_give_up(copying, 0, err);
}

/* A name that a second decoding changes must not be sent to a store that was not asked: it would copy another object. */
static int
name_source(struct copying *copying, struct err *err)
{
    enum store_yes_no twice = copying->self->store.caps.copy_parts_decodes_twice;
    if (twice == STORE_NOT_PROBED && strpbrk(copying->req->from, "%+"))
        return err_set(err, ERR_STORE_UNSUPPORTED,
                       "'%.160s': that this store copies objects of such names in parts was not "
                       "proven",
                       copying->req->from);
    return http_store_copy_source(&copying->self->client, copying->req->from, twice == STORE_YES,
                                  &copying->source, err);
}

static int
prepare(struct copy_upload *upload, struct err *err)
{
    struct copying *copying = upload->copying;
    uint64_t max = copying->self->store.caps.max_copy_bytes;
    max = max && max < PART_MAX ? max : PART_MAX;
    buf_clear(&copying->meta);
    buf_clear(&copying->etag);
    if (look_at_source(upload, err) < 0 || name_source(copying, err) < 0 ||
        http_store_etag(copying->self, upload->source.etag, &copying->etag, err) < 0)
        return -1;
    /* A deadline of our own grows with what the HEAD has told. */
    if (copying->req->deadline_ns == 0)
        copying->deadline_ns = http_store_deadline(0, upload->source.size / 8);
    return parts_plan(upload->source.size, PART_BYTES, max, &upload->multi.parts, err);
}

int
http_store_copy_parts(struct copying *copying, struct err *err)
{
    struct copy_upload upload = { .copying = copying };
    store_object_init(&upload.source);
    int result = prepare(&upload, err);
    if (result == 0) {
        result = http_store_multi_init(&upload.multi, copying->self, copying->req->to,
                                       copying->deadline_ns, err);
        if (result == 0)
            result = run(&upload, err);
        http_store_multi_release(&upload.multi);
    }
    store_object_release(&upload.source);
    return result;
}
