#include "gateway/request.h"

#include "base/path.h"
#include "gateway/range.h"
#include "tests/fuzz/fuzz.h"

/* INV-12: a target that passes holds no NUL and no component that leads out; a range that passes lies in the file. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct gateway_request_target target;
    char *text = fuzz_text(data, size);
    uint64_t first, last, length = size * 7;
    if (gateway_request_target(text, &target, &err) == 0) {
        const char *rest = buf_cstr(&target.path), *name;
        size_t rest_len = target.path.len, name_len;
        struct buf value;
        HOLDS(!memchr(rest, 0, rest_len));
        while (path_next(&rest, &rest_len, &name, &name_len))
            HOLDS(path_check_name(name, name_len, &err) == 0 || err.code == ERR_NAME_TOO_LONG);
        buf_init(&value, 8192);
        (void)!gateway_request_query(&target, "limit", &value, &err);
        buf_release(&value);
        gateway_request_target_release(&target);
    }
    if (gateway_range_parse(text, length, &first, &last) == GATEWAY_RANGE_PART)
        HOLDS(first <= last && last < length);
    (void)gateway_request_host_allowed(text, 8420, "example.org,other:1");
    free(text);
    return 0;
}
