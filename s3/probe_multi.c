#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "s3/http_store_copy_impl.h"
#include "s3/http_store_multi_impl.h"
#include "s3/probe_impl.h"

/* Asking a store how it treats uploads in parts, and whether it deletes many keys in one request. */

#define WRONG_ETAG "\"00000000000000000000000000000000\""
#define TIME (15 * NS_PER_S)

struct asking {
    struct http_store *self;
    const char *key;
    const char *source; /* an object that is there; another decoding would change its name */
    bool quoted;
    struct probe_seen *seen;
    struct http_store_multi multi;
    bool open; /* an upload with its part is there */
    char text[8]; /* of that part: another one for each upload, so that what lies there shows whose it is */
    char there[8]; /* what lies at the key */
    char etag[LIMIT_ETAG];
    unsigned uploads;
};

static bool
good(int status)
{
    return status >= 200 && status < 300;
}

/* ---- one upload of one part ---- */

static int
text_part(void *arg, unsigned index, struct client_request *request, struct err *err)
{
    (void)index;
    (void)err;
    struct store_body *body = arg;
    request->body = body;
    request->payload_hash = "UNSIGNED-PAYLOAD";
    return 0;
}

static int
text_etag(const struct client_answer *answer, char etag[LIMIT_ETAG], struct err *err)
{
    const char *value = http_response_field(&answer->response, "etag");
    if (value && etag_strip(value, etag) == 0)
        return 0;
    return err_set(err, ERR_STORE_BAD_ANSWER, "no usable ETag");
}

static int
note_listed(void *arg, const struct store_upload *upload, struct err *err)
{
    (void)err;
    struct asking *asking = arg;
    if (strcmp(upload->upload_id, asking->multi.id) == 0)
        asking->seen->upload_listed = true;
    return 0;
}

static int
begin(struct asking *asking, struct err *err)
{
    struct client_request request = { .method = "POST" };
    asking->multi.parts = (struct parts){ .total = 1, .bytes = 1, .count = 1 };
    if (http_store_multi_init(&asking->multi, asking->self, asking->key, clock_mono_ns() + TIME,
                              err) < 0)
        return -1;
    if (http_store_multi_begin(&asking->multi, &request, err) == 0)
        return 0;
    http_store_multi_release(&asking->multi);
    return -1;
}

static void
give_up(struct asking *asking)
{
    http_store_multi_drop(&asking->multi);
    http_store_multi_release(&asking->multi);
    asking->open = false;
}

static int
open_upload(struct asking *asking, struct err *err)
{
    struct err own = ERR_INIT;
    if (asking->open)
        return 0;
    if (begin(asking, err) < 0)
        return -1;
    (void)snprintf(asking->text, sizeof(asking->text), "%u", ++asking->uploads % 10);
    struct store_body body = { .mem = asking->text, .fd = -1, .size = 1 };
    if (asking->uploads == 1 &&
        http_store_uploads(&asking->self->store, asking->key, note_listed, asking, &own) < 0)
        log_debug(s3, "probe: no list of uploads why=%s", own.msg);
    asking->open = http_store_multi_part(&asking->multi, 0, text_part, &body, text_etag, err) == 0;
    if (!asking->open)
        give_up(asking);
    return asking->open ? 0 : -1;
}

/* One completion, tried again only when the store was too busy to look at it. *gone: the upload is no longer there. */
static int
complete_once(struct asking *asking, const char *header, const char *value, bool *gone)
{
    struct client_try tries = { .deadline_ns = asking->multi.deadline_ns };
    for (;;) {
        struct client_request request = { .method = "POST" };
        struct client_answer answer;
        struct err err = ERR_INIT;
        if (header)
            client_field(&request, header, value);
        client_answer_init(&answer);
        char etag[LIMIT_ETAG];
        int result = http_store_multi_complete(&asking->multi, &request, &answer, etag, &err);
        int status = result < 0 && good(answer.response.status) ? 0 : answer.response.status;
        *gone = result == 0 || http_store_multi_is_lost(&answer);
        bool again = result < 0 &&
                     (answer.verdict == RETRY_SLOW || answer.verdict == RETRY_CLOCK) &&
                     client_again(&asking->self->client, &tries, &answer);
        client_answer_release(&answer);
        if (!again)
            return status;
    }
}

/* The status of a completion with this condition; 0: none. */
static int
complete(struct asking *asking, const char *header, const char *value)
{
    int status = 0;
    /* Some stores forget an upload whose completion they refuse: once more with a new one. */
    for (int i = 0; i < 2; i++) {
        struct err err = ERR_INIT;
        bool gone = false;
        if (open_upload(asking, &err) < 0) {
            log_debug(s3, "probe: no upload in parts why=%s", err.msg);
            return 0;
        }
        status = complete_once(asking, header, value, &gone);
        if (good(status))
            memcpy(asking->there, asking->text, sizeof(asking->there));
        if (gone) {
            http_store_multi_release(&asking->multi);
            asking->open = false;
        }
        if (!gone || good(status))
            break;
    }
    return status;
}

/* ---- what lies there ---- */

static int
collect(void *arg, const void *data, size_t len, struct err *err)
{
    return buf_append(arg, data, len, err);
}

static bool
holds(struct asking *asking, const char *text)
{
    scope_buf got;
    struct store_object object;
    struct err err = ERR_INIT;
    const struct store_get req = { .key = asking->key, .sink = collect, .sink_arg = &got };
    buf_init(&got, 64);
    store_object_init(&object);
    bool same = http_store_get(&asking->self->store, &req, &object, &err) == 0 &&
                strcmp(buf_cstr(&got), text) == 0;
    if (same)
        memcpy(asking->etag, object.etag, sizeof(object.etag));
    store_object_release(&object);
    return same;
}

static bool
is_absent(struct asking *asking)
{
    struct store_object object;
    struct err err = ERR_INIT;
    store_object_init(&object);
    int result = http_store_head(&asking->self->store, asking->key, 0, &object, &err);
    store_object_release(&object);
    return result < 0 && err.code == ERR_NOT_FOUND;
}

/* ---- the questions ---- */

static void
ask_completion(struct asking *asking)
{
    struct probe_seen *seen = asking->seen;
    char match[LIMIT_ETAG + 3];
    char before[sizeof(asking->there)];
    seen->complete_absent = complete(asking, "if-none-match", "*");
    if (!good(seen->complete_absent))
        seen->complete = complete(asking, NULL, NULL);
    seen->kept_parts = holds(asking, asking->there);
    if (!seen->kept_parts)
        return;
    memcpy(before, asking->there, sizeof(before));
    seen->complete_again = complete(asking, "if-none-match", "*");
    seen->kept_after_complete_again = holds(asking, before);
    memcpy(before, asking->there, sizeof(before));
    seen->complete_wrong_match = complete(asking, "if-match", WRONG_ETAG);
    seen->kept_after_complete_match = holds(asking, before);
    (void)snprintf(match, sizeof(match), asking->quoted ? "\"%s\"" : "%s", asking->etag);
    if (seen->complete_wrong_match == 412)
        seen->complete_match = complete(asking, "if-match", match);
    if (asking->open)
        give_up(asking);
}

struct part_source {
    struct buf name;
    char match[LIMIT_ETAG + 3]; /* its ETag, as conditions want it; "" when unknown */
    bool range;
};

static int
copy_part(void *arg, unsigned index, struct client_request *request, struct err *err)
{
    static const struct store_body empty = { .mem = "", .fd = -1, .size = 0 };
    const struct part_source *source = arg;
    (void)index;
    (void)err;
    request->body = &empty;
    client_field(request, "x-amz-copy-source", buf_cstr(&source->name));
    if (source->match[0])
        client_field(request, "x-amz-copy-source-if-match", source->match);
    if (source->range)
        client_field(request, "x-amz-copy-source-range", "bytes=0-1");
    return 0;
}

static int
copy_etag(const struct client_answer *answer, char etag[LIMIT_ETAG], struct err *err)
{
    return xml_multi_part_copied(buf_cstr(&answer->response.body), answer->response.body.len, etag,
                                 err);
}

static void
look_at_source(struct asking *asking, struct part_source *source)
{
    struct store_object object;
    struct err err = ERR_INIT;
    store_object_init(&object);
    if (http_store_head(&asking->self->store, asking->source, 0, &object, &err) == 0)
        (void)snprintf(source->match, sizeof(source->match), asking->quoted ? "\"%s\"" : "%s",
                       object.etag);
    store_object_release(&object);
}

/*
 * As copies in parts are sent: a range of one version. R2's local server answers 501 to that condition, which it takes for
 * whole copies. AWS answers 400 to a range of a source as small as this one, so the whole is asked for next.
 */
static bool
copies_part(struct asking *asking, bool twice)
{
    struct err err = ERR_INIT;
    struct part_source source = { .range = true };
    bool copied = false;
    buf_init(&source.name, 16 * LIMIT_KEY);
    look_at_source(asking, &source);
    if (http_store_copy_source(&asking->self->client, asking->source, twice, &source.name, &err) ==
            0 &&
        begin(asking, &err) == 0) {
        copied = http_store_multi_part(&asking->multi, 0, copy_part, &source, copy_etag, &err) == 0;
        source.range = false;
        if (!copied && err.code != ERR_STORE_UNSUPPORTED)
            copied =
                http_store_multi_part(&asking->multi, 0, copy_part, &source, copy_etag, &err) == 0;
        give_up(asking);
    }
    if (!copied)
        log_debug(s3, "probe: no copy of a part twice=%d why=%s", (int)twice, err.msg);
    buf_release(&source.name);
    return copied;
}

/* The object of our own upload, too: Swift's condition holds for no object that was made of parts. */
static void
ask_copy_part(struct asking *asking)
{
    const char *plain = asking->source;
    asking->seen->part_copied = copies_part(asking, false);
    if (!asking->seen->part_copied)
        asking->seen->part_copied_twice = copies_part(asking, true);
    asking->source = asking->key;
    bool works = !asking->seen->kept_parts || copies_part(asking, false);
    asking->source = plain;
    asking->seen->part_copied = asking->seen->part_copied && works;
    asking->seen->part_copied_twice = asking->seen->part_copied_twice && works;
}

static void
ask_delete_many(struct asking *asking)
{
    char other[96];
    (void)snprintf(other, sizeof(other), "%.80s-none", asking->key);
    const char *keys[] = { asking->key, other };
    asking->seen->deleted_many =
        http_store_delete_batched(asking->self, keys, 2) && is_absent(asking);
}

void
probe_multi(struct http_store *self, const char *key, const char *source, struct probe_seen *seen)
{
    struct asking asking = {
        .self = self, .key = key, .source = source, .quoted = !good(seen->match_bare), .seen = seen
    };
    if (!self->client.provider->no_multipart)
        ask_completion(&asking);
    if (good(seen->complete_absent) || good(seen->complete))
        ask_copy_part(&asking);
    ask_delete_many(&asking);
}
