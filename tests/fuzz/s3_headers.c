#include "base/clock.h"
#include "s3/answer.h"
#include "s3/http_store_impl.h"
#include "s3/retry.h"
#include "s3/rfc2047.h"
#include "tests/fuzz/fuzz.h"

/*
 * Headers of our own making and of others. A metadata entry that we send is read back the same; what others send ends in a
 * bounded, terminated value or in an error. The input is "NAME=VALUE" lines; each value is also tried as every header that
 * has a parser of its own.
 */

/* As a server hands it back: `fields` of the request become headers of the answer. */
static void
echo(const struct client_request *request, struct http_response *response)
{
    struct err err = ERR_INIT;
    for (size_t i = 0; i < request->field_count; i++) {
        response->field_offset[response->field_count++] = response->text.len;
        HOLDS(buf_append(&response->text, request->field[i].name,
                         strlen(request->field[i].name) + 1, &err) == 0);
        HOLDS(buf_append(&response->text, request->field[i].value,
                         strlen(request->field[i].value) + 1, &err) == 0);
    }
    response->has_length = true;
}

/* Nothing but metadata and the few headers of the object itself leaves us: no acl, no host. */
static void
check_names(const struct client_request *request)
{
    static const char *const plain[] = { "etag", "cache-control", "content-disposition",
                                         "content-encoding", "content-language" };
    for (size_t i = 0; i < request->field_count; i++) {
        bool known = strncmp(request->field[i].name, "x-amz-meta-", 11) == 0;
        for (size_t j = 0; j < sizeof(plain) / sizeof(plain[0]); j++)
            known = known || strcmp(request->field[i].name, plain[j]) == 0;
        HOLDS(known);
    }
}

static void
check_round_trip(const struct meta *meta)
{
    struct err err = ERR_INIT;
    struct client_request request = { .method = "PUT" };
    struct http_response response;
    struct store_object object;
    struct buf text;
    buf_init(&text, LIMIT_HTTP_HEADERS);
    http_response_init(&response);
    store_object_init(&object);
    client_field(&request, "etag", "\"abc\"");
    if (http_store_meta_fields(meta, &text, &request, &err) == 0) {
        for (size_t i = 0; i < request.field_count; i++)
            for (const char *c = request.field[i].value; *c; c++)
                HOLDS((unsigned char)*c >= 0x20 && (unsigned char)*c < 0x7f);
        check_names(&request);
        echo(&request, &response);
        HOLDS(http_store_object(&response, UINT64_MAX, &object, &err) == 0);
        HOLDS(strcmp(object.etag, "abc") == 0);
        HOLDS(object.meta.count + 1 == request.field_count);
        for (size_t i = 0; i < meta->count; i++) {
            const char *back = meta_get(&object.meta, meta->entry[i].name);
            if (meta->entry[i].name[0] == '~')
                continue;
            HOLDS(back && strcmp(back, meta->entry[i].value) == 0);
        }
    }
    store_object_release(&object);
    http_response_release(&response);
    buf_release(&text);
}

static void
check_value(const char *value)
{
    char etag[LIMIT_ETAG];
    uint64_t first, last, total;
    int64_t wait = retry_after_ns(value, 1000 * NS_PER_S);
    HOLDS(wait >= 0 && wait <= 60 * NS_PER_S);
    if (etag_strip(value, etag) == 0)
        HOLDS(etag[0] && strnlen(etag, sizeof(etag)) < sizeof(etag) && !strchr(etag, '"'));
    if (answer_content_range(value, &first, &last, &total))
        HOLDS(first <= last && last < total);
    if (answer_is_md5(value))
        HOLDS(strlen(value) == 32);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct meta meta;
    char *text = fuzz_text(data, size);
    char *rest = text;
    char *line;
    meta_init(&meta);
    while ((line = strsep(&rest, "\n"))) {
        char *mark = strchr(line, '=');
        if (!mark)
            continue;
        *mark = '\0';
        check_value(mark + 1);
        (void)!meta_set(&meta, line, mark + 1, &err);
    }
    check_round_trip(&meta);
    meta_release(&meta);
    free(text);
    return 0;
}
