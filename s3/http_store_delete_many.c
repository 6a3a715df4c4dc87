#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "s3/answer.h"
#include "s3/http_store_impl.h"
#include "s3/parts.h"
#include "s3/xml_multi.h"

/*
 * DeleteObjects, 1,000 keys at a time. What it does not answer for, what it answers with a passing error, and the keys that
 * XML cannot carry are deleted one by one, side by side; so is everything where the store has no such call. Deleting is
 * repeated without harm: these keys are write-once.
 */

#define BYTES_PER_KEY 131072 /* what a key counts as in the default deadline */
#define BATCH 1000
#define SINGLES_AT_ONCE 8

enum state { TO_DELETE, TOLD, DELETED, FAILED };
struct doomed {
    const char *key;
    char *full; /* as in the answers; NULL: XML cannot carry it */
    enum state state;
    struct err err;
};
struct batch {
    struct http_store *self;
    struct doomed *doomed; /* sorted by `full` for the search while a batch is out */
    size_t count;
    int64_t deadline_ns;
};

/* ---- one by one ---- */

static int
delete_single(void *arg, unsigned index, struct err *ignored)
{
    (void)ignored;
    const struct batch *batch = arg;
    struct doomed *doomed = &batch->doomed[index];
    const struct store_delete req = { .key = doomed->key, .deadline_ns = batch->deadline_ns };
    enum store_outcome outcome;
    if (doomed->state != TO_DELETE)
        return 0;
    doomed->err = (struct err)ERR_INIT;
    int result = http_store_delete(&batch->self->store, &req, &outcome, &doomed->err);
    doomed->state = result == 0 ? DELETED : FAILED;
    return 0;
}

static void
delete_singly(struct batch *batch)
{
    struct err err = ERR_INIT;
    int result = parts_run((unsigned)batch->count, SINGLES_AT_ONCE, delete_single, batch, &err);
    (void)result; /* each key has its own error */
}

/* ---- all in one ---- */

static int
compare_doomed(const void *a, const void *b)
{
    const struct doomed *x = a;
    const struct doomed *y = b;
    if (!x->full || !y->full)
        return (y->full != NULL) - (x->full != NULL);
    return strcmp(x->full, y->full);
}

/* "Passing" errors leave the key to be deleted by itself, where the retries are. */
static void
take_error(struct doomed *doomed, const char *code, const char *message)
{
    struct xml_error error = { .code = "" };
    char what[200];
    if (retry_classify(400, code) != RETRY_NO)
        return;
    (void)snprintf(error.code, sizeof(error.code), "%s", code);
    (void)snprintf(error.message, sizeof(error.message), "%s", message);
    (void)snprintf(what, sizeof(what), "'%.160s'", doomed->key);
    (void)answer_error(400, &error, what, false, &doomed->err);
    doomed->state = FAILED;
}

static int
on_deleted(void *arg, const char *key, const char *code, const char *message, struct err *err)
{
    (void)err;
    struct batch *batch = arg;
    const struct doomed wanted = { .full = (char *)(uintptr_t)key };
    struct doomed *doomed =
        bsearch(&wanted, batch->doomed, batch->count, sizeof(batch->doomed[0]), compare_doomed);
    if (!doomed)
        return 0; /* a key that nobody asked for */
    if (!*code || strcmp(code, "NoSuchKey") == 0)
        doomed->state = DELETED;
    else
        take_error(doomed, code, message);
    return 0;
}

static int
write_document(const struct batch *batch, struct buf *out, size_t *named, struct err *err)
{
    *named = 0;
    if (xml_multi_delete_begin(out, err) < 0)
        return -1;
    for (size_t i = 0; i < batch->count; i++) {
        if (!batch->doomed[i].full)
            continue;
        if (xml_multi_delete_key(batch->doomed[i].full, out, err) < 0)
            return -1;
        (*named)++;
    }
    return xml_multi_delete_end(out, err);
}

static int
send_document(struct batch *batch, const struct buf *document, struct err *err)
{
    uint8_t md5_digest[MD5_SIZE];
    char payload_hash[SHA256_HEX];
    struct client_answer answer;
    scope_buf md5_text;
    const struct store_body body = { .mem = document->data, .fd = -1, .size = document->len };
    struct client_request request = { .count = CLIENT_OTHER,
                                      .method = "POST",
                                      .body = &body,
                                      .payload_hash = payload_hash,
                                      .deadline_ns = batch->deadline_ns };
    uint8_t sha_digest[SHA256_SIZE];
    buf_init(&md5_text, 64);
    if (md5(document->data, document->len, md5_digest, err) < 0 ||
        sha256(document->data, document->len, sha_digest, err) < 0 ||
        base64_encode(md5_digest, MD5_SIZE, &md5_text, err) < 0)
        return -1;
    hex_encode(sha_digest, sizeof(sha_digest), payload_hash);
    client_field(&request, "content-md5", buf_cstr(&md5_text)); /* S3 insists on it */
    client_field(&request, "content-type", "application/xml");
    canonical_query_add(&request.query, "delete", "");
    client_answer_init(&answer);
    int result = client_call(&batch->self->client, &request, &answer, err);
    if (result == 0)
        result = xml_multi_deleted(buf_cstr(&answer.response.body), answer.response.body.len,
                                   on_deleted, batch, err);
    client_answer_release(&answer);
    return result;
}

static void
delete_batch(struct batch *batch)
{
    struct err err = ERR_INIT;
    size_t named = 0;
    scope_buf document;
    buf_init(&document, LIMIT_XML_BODY);
    if (batch->self->store.caps.delete_many == STORE_NO)
        return;
    qsort(batch->doomed, batch->count, sizeof(batch->doomed[0]), compare_doomed);
    if (write_document(batch, &document, &named, &err) < 0 ||
        (named > 1 && send_document(batch, &document, &err) < 0))
        log_debug(s3, "keys are deleted one by one why=%s", err.msg);
}

/* ---- the calls ---- */

static int
name_keys(struct batch *batch, const char *const *keys, struct err *err)
{
    for (size_t i = 0; i < batch->count; i++)
        batch->doomed[i] = (struct doomed){ .key = keys[i], .err = ERR_INIT };
    for (size_t i = 0; i < batch->count; i++) {
        scope_buf full;
        struct doomed *doomed = &batch->doomed[i];
        buf_init(&full, LIMIT_KEY + 1);
        if (client_full_key(&batch->self->client, keys[i], &full, &doomed->err) < 0) {
            doomed->state = FAILED;
            continue;
        }
        if (!xml_multi_can_name(buf_cstr(&full)))
            continue;
        doomed->full = buf_steal(&full);
        if (!doomed->full)
            return err_nomem(err);
    }
    return 0;
}

struct teller {
    store_deleted_fn *fn; /* may be NULL */
    void *arg;
};

/* Tells of each key, and takes the first error. */
static int
report(const struct batch *batch, const struct teller *teller, struct err *err)
{
    int result = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const struct doomed *doomed = &batch->doomed[i];
        bool failed = doomed->state != DELETED;
        enum err_code code = failed ? doomed->err.code : (enum err_code)0;
        if (failed && code == 0)
            code = ERR_IO; /* 0 says deleted */
        if (teller->fn)
            teller->fn(teller->arg, doomed->key, code, failed ? doomed->err.msg : "");
        if (failed && result == 0)
            *err = doomed->err;
        result = failed ? -1 : result;
    }
    return result;
}

static int
delete_some(struct batch *batch, const char *const *keys, const struct teller *teller,
            struct err *err)
{
    batch->doomed = calloc(batch->count, sizeof(struct doomed));
    if (!batch->doomed) {
        for (size_t i = 0; teller->fn && i < batch->count; i++)
            teller->fn(teller->arg, keys[i], ERR_NOMEM, "out of memory");
        return err_nomem(err);
    }
    if (name_keys(batch, keys, err) == 0)
        delete_batch(batch);
    delete_singly(batch);
    int result = report(batch, teller, err);
    for (size_t i = 0; i < batch->count; i++)
        free(batch->doomed[i].full);
    free(batch->doomed);
    return result;
}

bool
http_store_delete_batched(struct http_store *self, const char *const *keys, size_t count)
{
    struct doomed doomed[4];
    struct err err = ERR_INIT;
    struct batch batch = {
        .self = self, .doomed = doomed, .count = count, .deadline_ns = http_store_deadline(0, 0)
    };
    scope_buf document;
    size_t named = 0;
    bool all = true;
    assert(count <= sizeof(doomed) / sizeof(doomed[0]));
    buf_init(&document, LIMIT_XML_BODY);
    if (name_keys(&batch, keys, &err) == 0) {
        qsort(doomed, count, sizeof(doomed[0]), compare_doomed);
        if (write_document(&batch, &document, &named, &err) < 0 ||
            send_document(&batch, &document, &err) < 0)
            log_debug(s3, "keys are not deleted together why=%s", err.msg);
    }
    for (size_t i = 0; i < count; i++) {
        all = all && doomed[i].state == DELETED;
        free(doomed[i].full);
    }
    return all;
}

int /* NOLINTNEXTLINE(readability-function-size): the operation's parameters */
http_store_delete_many(struct store *store, const char *const *keys, size_t count,
                       int64_t deadline_ns, store_deleted_fn *fn, void *arg, struct err *err)
{
    const struct teller teller = { fn, arg };
    int result = 0;
    for (size_t at = 0; at < count; at += BATCH) {
        struct batch batch = { .self = http_store_of(store),
                               .count = count - at < BATCH ? count - at : BATCH,
                               .deadline_ns = 0 };
        /* Swift deletes the keys of a batch one after the other. */
        batch.deadline_ns = http_store_deadline(deadline_ns, batch.count * BYTES_PER_KEY);
        struct err own = ERR_INIT;
        if (delete_some(&batch, keys + at, &teller, &own) == 0)
            continue;
        if (result == 0)
            *err = own;
        result = -1;
    }
    return result;
}
