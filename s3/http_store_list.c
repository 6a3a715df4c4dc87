#include <string.h>

#include "base/scope.h"
#include "s3/http_store_impl.h"

/* Listing page by page. A page is passed on only after it was checked whole: inside the prefix, behind the page before
 * it, and moving on (INV-9). An empty page with a token is not the end. */

struct listing {
    struct http_store *self;
    const struct store_list *req;
    struct buf prefix;        /* the store's and the caller's */
    struct buf start_after;   /* full key */
    char last[2 * LIMIT_KEY]; /* the last full key that came, "" before the first */
    char *token;              /* of the next page */
    unsigned passed;
    bool finished;
};

static int
bad_list(const char *what, const char *key, struct err *err)
{
    return err_set(err, ERR_STORE_BAD_ANSWER, "the store's listing %s '%.160s'", what, key);
}

/* Is it to be passed on? Stores may name a common prefix that begins before the start but reaches behind it. */
static int
check_entry(struct listing *listing, const struct xml_list_entry *entry, bool *skip,
            struct err *err)
{
    *skip = false;
    if (strncmp(entry->key, buf_cstr(&listing->prefix), listing->prefix.len) != 0)
        return bad_list("holds a key outside of the prefix:", entry->key, err);
    if (strcmp(entry->key, listing->last) <= 0 && listing->last[0])
        return bad_list("repeats or goes back at", entry->key, err);
    if (strlen(entry->key) >= sizeof(listing->last))
        return bad_list("holds a key that is too long:", entry->key, err);
    memcpy(listing->last, entry->key, strlen(entry->key) + 1);
    if (listing->start_after.len && strcmp(entry->key, buf_cstr(&listing->start_after)) <= 0) {
        *skip = true;
        return entry->is_prefix ? 0 : bad_list("begins before the key asked for:", entry->key, err);
    }
    /* The marker of the store's own prefix has no name in it. */
    *skip = entry->key[strlen(listing->self->client.prefix)] == '\0';
    return 0;
}

static int
pass_entry(struct listing *listing, const struct xml_list_entry *entry, struct err *err)
{
    const struct store_list_entry out = {
        .key = entry->key + strlen(listing->self->client.prefix),
        .is_prefix = entry->is_prefix,
        .size = entry->size,
        .etag = entry->etag,
        .last_modified_ns = entry->last_modified_ns,
    };
    if (listing->req->fn(listing->req->arg, &out, err) < 0)
        return -1;
    listing->passed++;
    listing->finished = listing->req->limit != 0 && listing->passed == listing->req->limit;
    return 0;
}

static int
next_token(struct listing *listing, struct xml_list *page, struct err *err)
{
    if (!page->truncated) {
        listing->finished = true;
        return 0;
    }
    if (!page->next_token || !*page->next_token)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the listing goes on but names no next page");
    if (listing->token && strcmp(listing->token, page->next_token) == 0)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the listing does not move on");
    free(listing->token);
    listing->token = steal(&page->next_token);
    return 0;
}

static int
pass_page(struct listing *listing, struct xml_list *page, struct err *err)
{
    for (size_t i = 0; i < page->count && !listing->finished; i++) {
        bool skip;
        if (check_entry(listing, &page->entry[i], &skip, err) < 0)
            return -1;
        if (!skip && pass_entry(listing, &page->entry[i], err) < 0)
            return -1;
    }
    return listing->finished ? 0 : next_token(listing, page, err);
}

static void
build_page(const struct listing *listing, struct client_request *request, char max_keys[16])
{
    const struct store_list *req = listing->req;
    unsigned left = req->limit ? req->limit - listing->passed : LIMIT_LIST_PAGE;
    (void)snprintf(max_keys, 16, "%u", left < LIMIT_LIST_PAGE ? left : LIMIT_LIST_PAGE);
    canonical_query_add(&request->query, "list-type", "2");
    canonical_query_add(&request->query, "encoding-type", "url");
    canonical_query_add(&request->query, "max-keys", max_keys);
    canonical_query_add(&request->query, "prefix", buf_cstr(&listing->prefix));
    if (req->delimiter)
        canonical_query_add(&request->query, "delimiter", "/");
    if (listing->token)
        canonical_query_add(&request->query, "continuation-token", listing->token);
    else if (listing->start_after.len)
        canonical_query_add(&request->query, "start-after", buf_cstr(&listing->start_after));
}

static int
get_page(struct listing *listing, struct xml_list *page, struct err *err)
{
    char max_keys[16];
    /* Each page has its own default deadline: a listing of millions of keys is no single operation. */
    struct client_request request = { .method = "GET",
                                      .deadline_ns =
                                          http_store_deadline(listing->req->deadline_ns, 0) };
    struct client_answer answer;
    build_page(listing, &request, max_keys);
    client_answer_init(&answer);
    int result = client_call(&listing->self->client, &request, &answer, err);
    if (result == 0)
        result = xml_list_parse(answer.response.body.data, answer.response.body.len, page, err);
    client_answer_release(&answer);
    return result;
}

static int
all_pages(struct listing *listing, struct err *err)
{
    while (!listing->finished) {
        struct xml_list page;
        xml_list_init(&page);
        int result = get_page(listing, &page, err);
        if (result == 0)
            result = pass_page(listing, &page, err);
        xml_list_release(&page);
        if (result < 0)
            return -1;
    }
    return 0;
}

int
http_store_list(struct store *store, const struct store_list *req, struct err *err)
{
    struct listing listing = { .self = http_store_of(store), .req = req };
    const char *own = listing.self->client.prefix;
    buf_init(&listing.prefix, 2 * LIMIT_KEY + 1);
    buf_init(&listing.start_after, 2 * LIMIT_KEY + 1);
    int result = buf_appendf(&listing.prefix, err, "%s%s", own, req->prefix ? req->prefix : "");
    if (result == 0 && req->start_after && *req->start_after)
        result = buf_appendf(&listing.start_after, err, "%s%s", own, req->start_after);
    if (result == 0)
        result = all_pages(&listing, err);
    buf_release(&listing.prefix);
    buf_release(&listing.start_after);
    free(listing.token);
    return result;
}
