#include "s3/xml_multi.h"

#include "s3/xml.h"
#include "tests/fuzz/fuzz.h"

/* The documents of uploads in parts and of batch deletes (INV-9): what is believed is whole; what is written, any reader reads. */

struct deleted {
    const char *key;
    unsigned count;
};

static int
note_deleted(void *arg, const char *key, const char *code, const char *message, struct err *err)
{
    struct deleted *deleted = arg;
    (void)err;
    HOLDS(key && code && message);
    deleted->count++;
    return 0;
}

static int
find_key(void *arg, const char *key, const char *code, const char *message, struct err *err)
{
    struct deleted *deleted = arg;
    (void)message;
    (void)err;
    HOLDS(code[0] == '\0');
    deleted->count += strcmp(key, deleted->key) == 0;
    return 0;
}

/* A key that XML can carry comes back as it was, from an answer that says it as our request does. */
static void
check_key(const char *key)
{
    struct err err = ERR_INIT;
    struct buf request, answer;
    if (!*key || strlen(key) > LIMIT_KEY || !xml_multi_can_name(key))
        return;
    buf_init(&request, 1u << 20);
    buf_init(&answer, 1u << 20);
    HOLDS(xml_multi_delete_begin(&request, &err) == 0);
    HOLDS(xml_multi_delete_key(key, &request, &err) == 0);
    HOLDS(xml_multi_delete_end(&request, &err) == 0);
    const char *from = strstr(buf_cstr(&request), "<Key>");
    HOLDS(from);
    const char *to = strstr(from, "</Key>");
    HOLDS(to);
    HOLDS(buf_appendf(&answer, &err, "<DeleteResult><Deleted>%.*s</Key></Deleted></DeleteResult>",
                      (int)(to - from), from) == 0);
    struct deleted deleted = { .key = key };
    HOLDS(xml_multi_deleted(answer.data, answer.len, find_key, &deleted, &err) == 0);
    HOLDS(deleted.count == 1);
    buf_release(&request);
    buf_release(&answer);
}

static void
check_uploads(const char *text, size_t size)
{
    struct err err = ERR_INIT;
    struct xml_uploads uploads;
    xml_uploads_init(&uploads);
    if (xml_multi_uploads(text, size, &uploads, &err) == 0) {
        for (size_t i = 0; i < uploads.count; i++)
            HOLDS(uploads.entry[i].key && uploads.entry[i].id && *uploads.entry[i].id);
    }
    xml_uploads_release(&uploads);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct xml_error error;
    struct deleted deleted = { .key = NULL };
    char id[XML_UPLOAD_ID], etag[LIMIT_ETAG];
    char *text = fuzz_text(data, size);
    bool is_error = xml_error_parse(text, size, &error);
    if (xml_multi_initiated(text, size, id, &err) == 0)
        HOLDS(!is_error && id[0] && memchr(id, 0, sizeof(id)));
    if (xml_multi_part_copied(text, size, etag, &err) == 0)
        HOLDS(!is_error && etag[0] && !strchr(etag, '"'));
    /* "" is one that is not told (Ceph RGW 16) or cannot be used: the HEAD afterwards tells it. */
    if (xml_multi_completed(text, size, etag, &err) == 0)
        HOLDS(!is_error && !strchr(etag, '"'));
    if (xml_multi_deleted(text, size, note_deleted, &deleted, &err) == 0)
        HOLDS(!is_error);
    check_uploads(text, size);
    check_key(text);
    free(text);
    return 0;
}
