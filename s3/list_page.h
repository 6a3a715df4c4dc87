#ifndef S3_LIST_PAGE_H
#define S3_LIST_PAGE_H

#include "s3/store.h"
#include "s3/xml.h"

/*
 * Pages of a listing are judged before anything of them is believed (INV-9): every key within the prefix, within the
 * delimiter, of a length that a key can have, and behind all before it; every page leads on to one that was not seen. An
 * empty page with a token is not the end. Pure.
 */
struct list_pages {
    const struct store_list *req;
    const char *own;          /* the store's prefix, in front of every key */
    char last[LIMIT_KEY * 2]; /* the last full key that came, "" before the first */
    char *token;              /* of the next page, NULL for the first */
    char *seen_token;         /* an earlier one: tokens that go round meet it (Brent's algorithm) */
    uint64_t pages, seen_at;
    unsigned passed;
    bool finished;
};
/* `req` and `own` are borrowed. */
void list_pages_init(struct list_pages *pages, const struct store_list *req, const char *own);
void list_pages_release(struct list_pages *pages);
/* Passes a page's entries to req->fn, relative to `own`. ERR_STORE_BAD_ANSWER for a page that cannot be true. */
int list_pages_pass(struct list_pages *pages, struct xml_list *page, struct err *err) MUST_CHECK;

#endif
