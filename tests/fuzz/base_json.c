#include "base/json.h"

#include "base/buf.h"
#include "base/limits.h"
#include "tests/fuzz/fuzz.h"

/* What parses prints, and the print parses to the same. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    char *text = fuzz_text(data, size);
    json_t *value = json_parse(text, size, &err);
    if (value) {
        struct buf out;
        buf_init(&out, LIMIT_JSON_DOC);
        if (json_print(value, &out, &err) == 0) {
            json_t *again = json_parse(buf_cstr(&out), out.len, &err);
            HOLDS(again && json_equal(value, again));
            json_decref(again);
        }
        buf_release(&out);
        json_decref(value);
    }
    free(text);
    return 0;
}
