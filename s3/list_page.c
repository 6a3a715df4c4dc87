#include "s3/list_page.h"

#include <stdlib.h>
#include <string.h>

#include "base/scope.h"

void
list_pages_init(struct list_pages *pages, const struct store_list *req, const char *own)
{
    memset(pages, 0, sizeof(*pages));
    pages->req = req;
    pages->own = own;
}

void
list_pages_release(struct list_pages *pages)
{
    free(pages->token);
    free(pages->seen_token);
    pages->token = pages->seen_token = NULL;
}

static int
bad_list(const char *what, const char *key, struct err *err)
{
    return err_set(err, ERR_STORE_BAD_ANSWER, "the store's listing %s '%.160s'", what, key);
}

/* `text` without the prefix in front of it, NULL when it has another. */
static const char *
behind(const char *text, const char *prefix)
{
    size_t len = strlen(prefix);
    return strncmp(text, prefix, len) == 0 ? text + len : NULL;
}

/* Below the delimiter there are prefixes only, and a prefix ends with the first one. */
static int
check_shape(const struct list_pages *pages, const struct xml_list_entry *entry, const char *name,
            struct err *err)
{
    const char *cut = strchr(name, '/');
    if (entry->is_prefix) {
        if (!pages->req->delimiter || !cut || cut[1] != '\0')
            return bad_list("holds a prefix that is none:", entry->key, err);
    } else if (pages->req->delimiter && cut) {
        return bad_list("goes below the delimiter at", entry->key, err);
    }
    return 0;
}

/* The name behind the prefixes of the store and the caller. */
static int
check_place(struct list_pages *pages, const struct xml_list_entry *entry, const char **key,
            struct err *err)
{
    const char *prefix = pages->req->prefix ? pages->req->prefix : "";
    const char *name;
    *key = behind(entry->key, pages->own);
    name = *key ? behind(*key, prefix) : NULL;
    if (!name)
        return bad_list("holds a key outside of the prefix:", entry->key, err);
    if (strlen(*key) > LIMIT_KEY || strlen(entry->key) >= sizeof(pages->last))
        return bad_list("holds a key that is too long:", entry->key, err);
    if (pages->last[0] && strcmp(entry->key, pages->last) <= 0)
        return bad_list("repeats or goes back at", entry->key, err);
    return check_shape(pages, entry, name, err);
}

/* Is it to be passed on? Stores may name a common prefix that begins before the start but reaches behind it. */
static int
check_entry(struct list_pages *pages, const struct xml_list_entry *entry, const char **key,
            bool *skip, struct err *err)
{
    const char *start = pages->req->start_after;
    *skip = false;
    if (check_place(pages, entry, key, err) < 0)
        return -1;
    memcpy(pages->last, entry->key, strlen(entry->key) + 1);
    if (start && *start && strcmp(*key, start) <= 0) {
        *skip = true;
        return entry->is_prefix ? 0 : bad_list("begins before the key asked for:", entry->key, err);
    }
    /* The marker of the store's own prefix has no name in it. */
    *skip = **key == '\0';
    return 0;
}

static int
pass_entry(struct list_pages *pages, const struct xml_list_entry *entry, const char *key,
           struct err *err)
{
    const struct store_list_entry out = {
        .key = key,
        .is_prefix = entry->is_prefix,
        .size = entry->size,
        .etag = entry->etag,
        .last_modified_ns = entry->last_modified_ns,
    };
    if (pages->req->fn(pages->req->arg, &out, err) < 0)
        return -1;
    pages->passed++;
    pages->finished = pages->req->limit != 0 && pages->passed == pages->req->limit;
    return 0;
}

/* Empty pages whose tokens go round would never end. */
static int
check_round(struct list_pages *pages, struct err *err)
{
    pages->pages++;
    if (pages->seen_token && strcmp(pages->seen_token, pages->token) == 0)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the listing does not move on");
    if (pages->pages < 2 * pages->seen_at)
        return 0;
    free(pages->seen_token);
    pages->seen_token = strdup(pages->token);
    if (!pages->seen_token)
        return err_nomem(err);
    pages->seen_at = pages->pages;
    return 0;
}

static int
next_token(struct list_pages *pages, struct xml_list *page, struct err *err)
{
    if (!page->truncated) {
        pages->finished = true;
        return 0;
    }
    if (!page->next_token || !*page->next_token)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the listing goes on but names no next page");
    free(pages->token);
    pages->token = steal(&page->next_token);
    return check_round(pages, err);
}

int
list_pages_pass(struct list_pages *pages, struct xml_list *page, struct err *err)
{
    for (size_t i = 0; i < page->count && !pages->finished; i++) {
        const char *key;
        bool skip;
        if (check_entry(pages, &page->entry[i], &key, &skip, err) < 0)
            return -1;
        if (!skip && pass_entry(pages, &page->entry[i], key, err) < 0)
            return -1;
    }
    return pages->finished ? 0 : next_token(pages, page, err);
}
