#include "s3/answer.h"

#include "base/clock.h"
#include "s3/http_store_impl.h"
#include "s3/retry.h"
#include "tests/fuzz/fuzz.h"

/*
 * A whole answer of a store: "STATUS", header lines, an empty line, the body. INV-9: whatever it says, trouble is never taken for
 * absence, and what is believed is complete.
 */

static int
take_status(const char **at)
{
    int status = 0;
    while (**at >= '0' && **at <= '9' && status < 1000)
        status = status * 10 + (*(*at)++ - '0');
    return status;
}

/* As s3/http.c keeps them: the name in lower case, both with a NUL. */
static void
take_field(struct http_response *response, const char *line, size_t len)
{
    struct err err = ERR_INIT;
    const char *colon = memchr(line, ':', len);
    if (!colon || response->field_count == HTTP_FIELDS_MAX)
        return;
    size_t name = (size_t)(colon - line), at = response->text.len;
    const char *value = colon + 1, *end = line + len;
    while (value < end && *value == ' ')
        value++;
    if (buf_append(&response->text, line, name, &err) < 0 ||
        buf_append(&response->text, "", 1, &err) < 0 ||
        buf_append(&response->text, value, (size_t)(end - value), &err) < 0 ||
        buf_append(&response->text, "", 1, &err) < 0)
        return;
    for (size_t i = 0; i < name; i++) {
        char *c = &response->text.data[at + i];
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
    }
    response->field_offset[response->field_count++] = at;
}

static void
take_answer(const char *text, struct http_response *response)
{
    struct err err = ERR_INIT;
    response->status = take_status(&text);
    text += *text == '\n';
    while (*text && *text != '\n') {
        size_t len = strcspn(text, "\n");
        take_field(response, text, len);
        text += len + (text[len] == '\n');
    }
    text += *text == '\n';
    HOLDS(buf_append_str(&response->body, text, &err) == 0);
    response->has_length = true;
    response->length = response->received = response->body.len;
}

static void
check_error(const struct http_response *response, bool is_head)
{
    struct err err = ERR_INIT;
    struct xml_error error = { .code = "" };
    int status = response->status;
    if (!is_head && response->body.len > 0)
        (void)xml_error_parse(response->body.data, response->body.len, &error);
    enum retry_verdict verdict = retry_classify(status, error.code);
    HOLDS(answer_error(status, &error, "'key'", is_head, &err) == -1);
    HOLDS(err.msg[0] != 0);
    bool trouble = status >= 500 || status == 429;
    if (trouble)
        HOLDS(err.code != ERR_NOT_FOUND && err.code != ERR_CONFLICT &&
              err.code != ERR_STORE_NO_BUCKET);
    if (status == 500 || status == 502 || status == 503 || status == 504 || status == 429)
        HOLDS(verdict != RETRY_NO);
    if (err.code == ERR_NOT_FOUND)
        HOLDS(status == 404 || strcmp(error.code, "NoSuchKey") == 0);
    int64_t wait = retry_after_ns(http_response_field(response, "retry-after"), clock_wall_ns());
    HOLDS(wait >= 0 && wait <= 60 * NS_PER_S);
}

static void
check_object(const struct http_response *response)
{
    struct err err = ERR_INIT;
    struct store_object object;
    uint64_t first, last, total = UINT64_MAX;
    const char *range = http_response_field(response, "content-range");
    if (range && answer_content_range(range, &first, &last, &total))
        HOLDS(first <= last && last < total);
    else
        total = UINT64_MAX;
    store_object_init(&object);
    if (http_store_object(response, total, &object, &err) == 0) {
        HOLDS(object.etag[0] && !strpbrk(object.etag, "\" \r\n"));
        HOLDS(object.size == (total == UINT64_MAX ? response->length : total));
        HOLDS(object.meta.count <= LIMIT_META_ENTRIES);
    }
    store_object_release(&object);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_response response;
    char *text = fuzz_text(data, size);
    http_response_init(&response);
    take_answer(text, &response);
    check_error(&response, false);
    check_error(&response, true);
    check_object(&response);
    http_response_release(&response);
    free(text);
    return 0;
}
