#include <string.h>

#include "base/clock.h"
#include "base/scope.h"
#include "s3/http_store_multi_impl.h"

/*
 * Unfinished multipart uploads: listing them, and ending one. An upload that was aborted comes back when a part that was
 * still under way lands, so it is looked for afterwards (docs/stores.md).
 */

#define ABORT_TRIES 4
#define PAGES_OF_KEY_MAX 1000
#define ABORT_PAUSE (100 * NS_PER_MS)

/* ---- listing ---- */

struct uploads {
    struct http_store *self;
    int64_t deadline_ns; /* of each page; 0: the default */
    struct buf prefix;   /* the store's and the caller's */
    store_uploads_fn *fn;
    void *arg;
    char *key_marker, *id_marker; /* NULL on the first page */
    unsigned pages_of_key;        /* that ended at this key */
};

static int
pass_upload(struct uploads *uploads, const struct xml_upload *upload, struct err *err)
{
    if (strncmp(upload->key, buf_cstr(&uploads->prefix), uploads->prefix.len) != 0)
        return err_set(err, ERR_STORE_BAD_ANSWER,
                       "the store's list of uploads holds a key outside of the prefix: '%.160s'",
                       upload->key);
    const struct store_upload out = {
        .key = upload->key + strlen(uploads->self->client.prefix),
        .upload_id = upload->id,
        .initiated_ns = upload->initiated_ns,
    };
    if (!*out.key || strlen(out.key) > LIMIT_KEY)
        return 0; /* at the prefix itself, or longer than any key: not ours */
    return uploads->fn(uploads->arg, &out, err);
}

static bool
same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static int
move_on(struct uploads *uploads, struct xml_uploads *page, struct err *err)
{
    if (!page->next_key || !*page->next_key)
        return err_set(err, ERR_STORE_BAD_ANSWER,
                       "the list of uploads goes on but names no next page");
    int order = uploads->key_marker ? strcmp(page->next_key, uploads->key_marker) : 1;
    /* Ids have no order, so of one key only the number of pages tells. */
    uploads->pages_of_key = order == 0 ? uploads->pages_of_key + 1 : 0;
    if (order < 0 || uploads->pages_of_key > PAGES_OF_KEY_MAX ||
        (order == 0 && same(uploads->id_marker, page->next_id)))
        return err_set(err, ERR_STORE_BAD_ANSWER, "the list of uploads does not move on");
    free(uploads->key_marker);
    free(uploads->id_marker);
    uploads->key_marker = steal(&page->next_key);
    uploads->id_marker = steal(&page->next_id);
    return 0;
}

static int
get_page(const struct uploads *uploads, struct xml_uploads *page, struct err *err)
{
    struct client_request request = { .count = CLIENT_UPLOAD,
                                      .method = "GET",
                                      .deadline_ns = http_store_deadline(uploads->deadline_ns, 0) };
    struct client_answer answer;
    canonical_query_add(&request.query, "uploads", "");
    canonical_query_add(&request.query, "encoding-type", "url");
    canonical_query_add(&request.query, "max-uploads", "1000");
    canonical_query_add(&request.query, "prefix", buf_cstr(&uploads->prefix));
    if (uploads->key_marker)
        canonical_query_add(&request.query, "key-marker", uploads->key_marker);
    if (uploads->id_marker)
        canonical_query_add(&request.query, "upload-id-marker", uploads->id_marker);
    client_answer_init(&answer);
    int result = client_call(&uploads->self->client, &request, &answer, err);
    if (result == 0)
        result =
            xml_multi_uploads(buf_cstr(&answer.response.body), answer.response.body.len, page, err);
    client_answer_release(&answer);
    return result;
}

static int
all_pages(struct uploads *uploads, struct err *err)
{
    bool more = true;
    while (more) {
        struct xml_uploads page;
        xml_uploads_init(&page);
        int result = get_page(uploads, &page, err);
        for (size_t i = 0; result == 0 && i < page.count; i++)
            result = pass_upload(uploads, &page.entry[i], err);
        more = page.truncated;
        if (result == 0 && more)
            result = move_on(uploads, &page, err);
        xml_uploads_release(&page);
        if (result < 0)
            return -1;
    }
    return 0;
}

static int
list_uploads(struct uploads *uploads, const char *prefix, struct err *err)
{
    buf_init(&uploads->prefix, 2 * LIMIT_KEY + 1);
    int result = buf_appendf(&uploads->prefix, err, "%s%s", uploads->self->client.prefix, prefix);
    if (result == 0)
        result = all_pages(uploads, err);
    buf_release(&uploads->prefix);
    free(uploads->key_marker);
    free(uploads->id_marker);
    return result;
}

int
http_store_uploads(struct store *store, const char *prefix, store_uploads_fn *fn, void *arg,
                   struct err *err)
{
    struct uploads uploads = { .self = http_store_of(store), .fn = fn, .arg = arg };
    return list_uploads(&uploads, prefix, err);
}

/* ---- ending one ---- */

struct wanted {
    const char *key;
    const char *id;
    bool found;
};

static int
compare_upload(void *arg, const struct store_upload *upload, struct err *err)
{
    (void)err;
    struct wanted *wanted = arg;
    if (strcmp(upload->key, wanted->key) == 0 && strcmp(upload->upload_id, wanted->id) == 0)
        wanted->found = true;
    return 0;
}

static int
is_listed(struct store *store, int64_t deadline_ns, struct wanted *wanted, struct err *err)
{
    struct uploads uploads = { .self = http_store_of(store),
                               .deadline_ns = deadline_ns,
                               .fn = compare_upload,
                               .arg = wanted };
    wanted->found = false;
    return list_uploads(&uploads, wanted->key, err);
}

/* *gone: the store does not know the upload (any more). */
static int
abort_once(struct store *store, const struct wanted *upload, int64_t deadline_ns, bool *gone,
           struct err *err)
{
    struct client_request request = {
        .count = CLIENT_UPLOAD, .method = "DELETE", .key = upload->key, .deadline_ns = deadline_ns
    };
    struct client_answer answer;
    canonical_query_add(&request.query, "uploadId", upload->id);
    client_answer_init(&answer);
    int result = client_call(&http_store_of(store)->client, &request, &answer, err);
    *gone = result < 0 && (strcmp(answer.error.code, "NoSuchUpload") == 0 ||
                           strcmp(answer.error.code, "NoSuchKey") == 0);
    client_answer_release(&answer);
    return *gone ? 0 : result;
}

int
http_store_upload_abort(struct store *store, const char *key, const char *upload_id,
                        int64_t deadline_ns, struct err *err)
{
    struct wanted upload = { .key = key, .id = upload_id };
    int64_t until = http_store_deadline(deadline_ns, 0);
    bool listed = false;
    for (int i = 0; i < ABORT_TRIES; i++) {
        bool gone;
        struct err own = ERR_INIT;
        if (abort_once(store, &upload, until, &gone, err) < 0)
            return err_wrap(err, "end of the upload in parts of '%.160s'", key);
        if (gone)
            return 0;
        /* Where uploads cannot be listed, a second abort that finds nothing tells the same. */
        listed =
            store->caps.list_uploads != STORE_NO && is_listed(store, until, &upload, &own) == 0;
        if (listed && !upload.found)
            return 0;
        if (clock_mono_ns() + (ABORT_PAUSE << i) >= until)
            break;
        clock_sleep_ns(ABORT_PAUSE << i);
    }
    /* Some stores say yes to each abort, whether or not there is anything. */
    if (!listed)
        return 0;
    return err_set(err, ERR_STORE_BAD_ANSWER,
                   "'%.160s': an upload in parts is still there after it was ended", key);
}
