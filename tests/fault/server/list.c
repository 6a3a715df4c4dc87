#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "tests/fault/server/objects.h"

/* ListObjectsV2. */

struct listing {
    char prefix[1100], after[1100], delimiter[8], last[1100];
    unsigned count, max;
    bool truncated, encoded;
};

static void
list_contents(struct reply *reply, const char *key, const struct view *view, bool encoded)
{
    reply_body(reply, "<Contents><Key>");
    reply_text(reply, key, encoded);
    reply_body(reply, "</Key>");
    objects_result_date(reply, "LastModified", view->modified_ns);
    reply_body(reply, "<ETag>&quot;%s&quot;</ETag><Size>%llu</Size></Contents>", view->etag,
               (unsigned long long)view->size);
}

static void
list_one(struct listing *listing, struct reply *reply, const struct object *object)
{
    size_t prefix_len = strlen(listing->prefix);
    const struct view *view = table_view(object);
    if (!view->there || strncmp(object->key, listing->prefix, prefix_len) != 0 ||
        strcmp(object->key, listing->after) <= 0)
        return;
    const char *cut =
        listing->delimiter[0] ? strchr(object->key + prefix_len, listing->delimiter[0]) : NULL;
    char name[1100];
    (void)snprintf(name, sizeof(name), "%.*s",
                   cut ? (int)(cut - object->key) + 1 : (int)strlen(object->key), object->key);
    /* A prefix that was given already, on this page or the one before. */
    if (cut &&
        (strcmp(name, listing->last) == 0 || strncmp(listing->after, name, strlen(name)) == 0))
        return;
    if (listing->count == listing->max) {
        listing->truncated = true;
        return;
    }
    listing->count++;
    (void)snprintf(listing->last, sizeof(listing->last), "%s", name);
    if (!cut) {
        list_contents(reply, object->key, view, listing->encoded);
        return;
    }
    reply_body(reply, "<CommonPrefixes><Prefix>");
    reply_text(reply, name, listing->encoded);
    reply_body(reply, "</Prefix></CommonPrefixes>");
}

/* Tokens are a page number and the last name in hexadecimal, so that they survive any encoding and an empty page moves on. */
static void
list_end(struct reply *reply, const struct listing *listing, const char *asked_token,
         struct hit hit)
{
    char token[MAX_TOKEN];
    bool lie = hit.fault == FAULT_NO_TOKEN || hit.fault == FAULT_SAME_TOKEN;
    int used = snprintf(token, sizeof(token), "%lu.", strtoul(asked_token, NULL, 10) + 1);
    hex_encode(listing->last, strlen(listing->last), token + used);
    if (hit.fault == FAULT_FOREIGN_KEY)
        reply_body(reply, "<Contents><Key>~foreign</Key><LastModified>2026-01-01T00:00:00.000Z"
                          "</LastModified><ETag>x</ETag><Size>1</Size></Contents>");
    reply_body(reply, "<IsTruncated>%s</IsTruncated>",
               listing->truncated || lie ? "true" : "false");
    if (listing->truncated && hit.fault != FAULT_NO_TOKEN)
        reply_body(reply, "<NextContinuationToken>%s</NextContinuationToken>",
                   hit.fault == FAULT_SAME_TOKEN && *asked_token ? asked_token : token);
    reply_body(reply, "%s</ListBucketResult>",
               listing->encoded ? "<EncodingType>url</EncodingType>" : "");
}

static void
list_start(const struct request *request, struct listing *listing, char *token, size_t size,
           struct hit hit)
{
    char max[16] = "1000";
    uint64_t number = 0;
    *token = '\0';
    (void)request_param(request, "prefix", listing->prefix, sizeof(listing->prefix));
    (void)request_param(request, "delimiter", listing->delimiter, sizeof(listing->delimiter));
    (void)request_param(request, "start-after", listing->after, sizeof(listing->after));
    (void)request_param(request, "max-keys", max, sizeof(max));
    listing->encoded = request_has(request, "encoding-type");
    listing->max = objects_modes.page;
    if (parse_u64(max, &number) && number < listing->max)
        listing->max = (unsigned)number;
    if (request_param(request, "continuation-token", token, size) && hit.fault != FAULT_DUP_PAGE) {
        const char *name = strchr(token, '.');
        size_t len = name ? strlen(name + 1) / 2 : 0;
        if (name && len < sizeof(listing->after) &&
            hex_decode(name + 1, strlen(name + 1), listing->after, len))
            listing->after[len] = '\0';
    }
    if (hit.fault == FAULT_EMPTY_PAGE || (hit.fault == FAULT_SAME_TOKEN && hit.arg))
        listing->max = 0;
}

void
list_objects(const struct request *request, struct hit hit, struct reply *reply)
{
    struct listing *listing = calloc(1, sizeof(*listing));
    char token[MAX_TOKEN];
    list_start(request, listing, token, sizeof(token), hit);
    /* An empty page goes on where it began. */
    (void)snprintf(listing->last, sizeof(listing->last), "%s", listing->after);
    reply->status = 200;
    reply_header(reply, "Content-Type: application/xml");
    reply_body(reply, "<?xml version=\"1.0\"?><ListBucketResult xmlns=\""
                      "http://s3.amazonaws.com/doc/2006-03-01/\"><Name>" BUCKET "</Name>");
    table_listed();
    for (size_t i = 0; i < table_count() && !listing->truncated; i++)
        list_one(listing, reply, table_at(i));
    list_end(reply, listing, token, hit);
    free(listing);
}
