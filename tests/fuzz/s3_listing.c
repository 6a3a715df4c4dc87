#include "s3/list_page.h"

#include "tests/fuzz/fuzz.h"

/*
 * The first byte chooses prefix, delimiter, start and limit; behind it come documents, one after the other, each ended by
 * byte 0: the pages of one listing. INV-9: what is passed on rises, lies within what was asked for, and a listing of n
 * pages ends.
 */
struct seen {
    const struct store_list *req;
    char last[LIMIT_KEY + 1];
    unsigned count;
};

static int
see(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct seen *seen = arg;
    const struct store_list *req = seen->req;
    size_t len = strlen(entry->key);
    (void)err;
    HOLDS(len > 0 && len <= LIMIT_KEY);
    HOLDS(strncmp(entry->key, req->prefix, strlen(req->prefix)) == 0);
    HOLDS(strcmp(entry->key, seen->last) > 0);
    HOLDS(!req->start_after || strcmp(entry->key, req->start_after) > 0);
    HOLDS(req->limit == 0 || seen->count < req->limit);
    const char *cut = req->delimiter ? strchr(entry->key + strlen(req->prefix), '/') : NULL;
    HOLDS(entry->is_prefix ? cut == entry->key + len - 1 : !cut && entry->etag && entry->etag[0]);
    memcpy(seen->last, entry->key, len + 1);
    seen->count++;
    return 0;
}

static int
one_page(struct list_pages *pages, const char *text, size_t len)
{
    struct xml_list page;
    struct err err = ERR_INIT;
    xml_list_init(&page);
    int rc = xml_list_parse(text, len, &page, &err);
    if (rc == 0)
        rc = list_pages_pass(pages, &page, &err);
    xml_list_release(&page);
    HOLDS(rc == 0 || err.code == ERR_STORE_BAD_ANSWER || err.code == ERR_NOMEM);
    return rc;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const prefixes[] = { "", "d/", "v/d/" };
    struct seen seen = { .last = "" };
    struct store_list req = { .fn = see, .arg = &seen };
    struct list_pages pages;
    if (size == 0)
        return 0;
    req.prefix = prefixes[data[0] % 3];
    req.delimiter = (data[0] & 4) != 0 ? '/' : '\0';
    req.start_after = (data[0] & 8) != 0 ? "d/m" : NULL;
    req.limit = (data[0] & 16) != 0 ? 3 : 0;
    seen.req = &req;
    list_pages_init(&pages, &req, (data[0] & 32) != 0 ? "own/" : "");
    for (size_t at = 1; at < size && !pages.finished;) {
        const uint8_t *end = memchr(data + at, 0, size - at);
        size_t len = end ? (size_t)(end - data) - at : size - at;
        char *text = fuzz_text(data + at, len);
        int rc = one_page(&pages, text, len);
        free(text);
        if (rc < 0)
            break;
        at += len + 1;
    }
    list_pages_release(&pages);
    return 0;
}
