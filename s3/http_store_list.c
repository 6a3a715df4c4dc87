#include <string.h>

#include "base/scope.h"
#include "s3/http_store_impl.h"
#include "s3/list_page.h"

/* Listing page by page; list_page.c judges each before it is passed on. */

struct listing {
    struct http_store *self;
    const struct store_list *req;
    struct buf prefix;      /* the store's and the caller's */
    struct buf start_after; /* full key */
    struct list_pages pages;
};

static void
build_page(const struct listing *listing, struct client_request *request, char max_keys[16])
{
    const struct store_list *req = listing->req;
    unsigned left = req->limit ? req->limit - listing->pages.passed : LIMIT_LIST_PAGE;
    (void)snprintf(max_keys, 16, "%u", left < LIMIT_LIST_PAGE ? left : LIMIT_LIST_PAGE);
    canonical_query_add(&request->query, "list-type", "2");
    canonical_query_add(&request->query, "encoding-type", "url");
    canonical_query_add(&request->query, "max-keys", max_keys);
    canonical_query_add(&request->query, "prefix", buf_cstr(&listing->prefix));
    if (req->delimiter)
        canonical_query_add(&request->query, "delimiter", "/");
    if (listing->pages.token)
        canonical_query_add(&request->query, "continuation-token", listing->pages.token);
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
    while (!listing->pages.finished) {
        struct xml_list page;
        xml_list_init(&page);
        int result = get_page(listing, &page, err);
        if (result == 0)
            result = list_pages_pass(&listing->pages, &page, err);
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
    list_pages_init(&listing.pages, req, own);
    int result = buf_appendf(&listing.prefix, err, "%s%s", own, req->prefix ? req->prefix : "");
    if (result == 0 && req->start_after && *req->start_after)
        result = buf_appendf(&listing.start_after, err, "%s%s", own, req->start_after);
    if (result == 0)
        result = all_pages(&listing, err);
    buf_release(&listing.prefix);
    buf_release(&listing.start_after);
    list_pages_release(&listing.pages);
    return result;
}
