#include "gateway/edit.h"

#include "tests/fuzz/fuzz.h"

#define CAP (1u << 20)

/* A list of edits as JSON and, behind a NUL, the text that they are for: refused with nothing written, or applied; and what one
 * replaced once is there afterwards. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    const uint8_t *end = memchr(data, 0, size);
    size_t len = end ? (size_t)(end - data) : size;
    json_t *list = json_parse((const char *)data, len, &err);
    struct edit *edits = NULL;
    size_t count = 0;
    struct edits_result result;
    struct buf text;
    struct buf out;
    buf_init(&text, CAP);
    buf_init(&out, CAP);
    if (list && gateway_edit_parse(list, &edits, &count, &err) == 0) {
        HOLDS(count >= 1 && count <= EDITS_MAX);
        if (end && size > len + 1)
            HOLDS(buf_append(&text, end + 1, size - len - 1, &err) == 0 || size > CAP);
        if (edits_apply(&text, edits, count, &out, &result, &err) == 0) {
            HOLDS(result.reason == EDITS_OK && result.replacements >= count);
            if (count == 1 && !memchr(edits[0].text, '\n', edits[0].text_len))
                HOLDS(edits[0].text_len == 0 ||
                      memmem(buf_cstr(&out), out.len, edits[0].text, edits[0].text_len));
        } else {
            HOLDS(out.len == 0 && err.msg[0] != '\0');
        }
    }
    free(edits);
    json_decref(list);
    buf_release(&text);
    buf_release(&out);
    return 0;
}
