#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "tests/fault/server/objects.h"

/* DeleteObjects, and a scanner for the documents that clients send. */

static const struct {
    const char *entity;
    char byte;
} entities[] = {
    { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' }, { "&quot;", '"' }, { "&apos;", '\'' },
};

/* A reference at `text` into `out`; answers the length of the reference, 0 for none that is known. */
static size_t
reference(const char *text, char *out)
{
    for (size_t i = 0; i < sizeof(entities) / sizeof(entities[0]); i++) {
        size_t len = strlen(entities[i].entity);
        if (strncmp(text, entities[i].entity, len) == 0) {
            *out = entities[i].byte;
            return len;
        }
    }
    if (strncmp(text, "&#", 2) != 0)
        return 0;
    char *end = NULL;
    unsigned long code = text[2] == 'x' ? strtoul(text + 3, &end, 16) : strtoul(text + 2, &end, 10);
    *out = (char)code; /* clients write ASCII control characters so, no others */
    return code > 0 && code < 0x80 && *end == ';' ? (size_t)(end - text) + 1 : 0;
}

static bool
unescape(const char *text, size_t len, char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < len; used++) {
        size_t skip = 1;
        if (used + 1 >= size)
            return false;
        out[used] = text[i];
        if (text[i] == '&')
            skip = reference(text + i, &out[used]);
        if (skip == 0)
            return false;
        i += skip;
    }
    out[used] = '\0';
    return true;
}

bool
document_next(const char **at, const char *name, char *out, size_t size)
{
    char open[64];
    char close[64];
    (void)snprintf(open, sizeof(open), "<%s>", name);
    (void)snprintf(close, sizeof(close), "</%s>", name);
    const char *start = strstr(*at, open);
    const char *end = start ? strstr(start, close) : NULL;
    if (!end)
        return false;
    start += strlen(open);
    *at = end + strlen(close);
    return unescape(start, (size_t)(end - start), out, size);
}

static void
delete_one(const char *key, bool quiet, struct reply *reply)
{
    table_erase(key);
    if (quiet)
        return;
    reply_body(reply, "<Deleted><Key>");
    reply_text(reply, key, false);
    reply_body(reply, "</Key></Deleted>");
}

static void
deny_one(const char *key, struct reply *reply)
{
    reply_body(reply, "<Error><Key>");
    reply_text(reply, key, false);
    reply_body(reply, "</Key><Code>AccessDenied</Code><Message>as planned</Message></Error>");
}

static bool
delete_all(const char *text, struct hit hit, struct reply *reply)
{
    char key[1100];
    char word[16] = "";
    const char *at = text;
    bool quiet = document_next(&at, "Quiet", word, sizeof(word)) && strcmp(word, "true") == 0;
    unsigned long count = 0;
    for (at = text; strstr(at, "<Key>"); count++) {
        if (count == 1000 || !document_next(&at, "Key", key, sizeof(key)))
            return false;
        roles_fold(key, sizeof(key));
        if (hit.fault == FAULT_KEY_DENIED && count == hit.arg)
            deny_one(key, reply);
        else
            delete_one(key, quiet, reply);
    }
    return count > 0;
}

/* As AWS: one of the two, against a cut list. Only Content-MD5 is checked. */
static bool
has_checksum(const struct request *request)
{
    bool found = false;
    for (size_t i = 0; i < request->field_count; i++)
        found = found || strcmp(request->field[i].name, "content-md5") == 0 ||
                strncmp(request->field[i].name, "x-amz-checksum-", 15) == 0;
    return found;
}

void
batch_delete(const struct request *request, struct hit hit, struct reply *reply)
{
    if (!has_checksum(request)) {
        reply_error(reply, 400, "InvalidRequest", "Missing required header: Content-MD5");
        return;
    }
    if (!objects_md5_fits(request, reply))
        return;
    char *text = content_text(request->body, 4u << 20);
    reply->status = 200;
    reply_header(reply, "Content-Type: application/xml");
    reply_body(reply, "<?xml version=\"1.0\"?><DeleteResult>");
    if (!text || !delete_all(text, hit, reply))
        reply_error(reply, 400, "MalformedXML", "1 to 1,000 keys");
    else
        reply_body(reply, "</DeleteResult>");
    free(text);
}
