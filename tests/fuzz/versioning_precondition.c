#include "versioning/precondition.h"

#include "tests/fuzz/fuzz.h"

/* If-Match and If-None-Match as clients send them: the first line of the input, and the rest. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct precondition pre;
    char *text = fuzz_text(data, size);
    char *rest = strchr(text, '\n');
    if (rest)
        *rest++ = '\0';
    if (precondition_parse(*text ? text : NULL, rest, &pre, &err) == 0) {
        HOLDS(pre.count <= PRECONDITION_TAGS && pre.kind != PRECONDITION_ANY);
        for (size_t i = 0; i < pre.count; i++) {
            HOLDS(memchr(pre.tag[i], 0, LIMIT_ETAG) && !strchr(pre.tag[i], '"'));
            if (pre.kind == PRECONDITION_MATCH)
                HOLDS(precondition_holds(&pre, pre.tag[i]));
        }
        if (pre.kind == PRECONDITION_ABSENT)
            HOLDS(precondition_holds(&pre, NULL) && !precondition_holds(&pre, "x"));
        if (pre.kind == PRECONDITION_MATCH || pre.kind == PRECONDITION_EXISTS)
            HOLDS(!precondition_holds(&pre, NULL));
    }
    free(text);
    return 0;
}
