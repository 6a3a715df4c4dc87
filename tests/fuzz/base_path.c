#include "base/path.h"

#include "base/limits.h"
#include "tests/fuzz/fuzz.h"

/* INV-12: whatever passes is in normal form, names nothing outside, and passes again unchanged. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    char out[LIMIT_PATH + 1], again[LIMIT_PATH + 1];
    char *text = fuzz_text(data, size);
    int len = path_normalize(text, size, out, sizeof(out), &err);
    if (len >= 0) {
        const char *rest = out, *name;
        size_t rest_len = (size_t)len, name_len, total = 0;
        HOLDS((size_t)len <= LIMIT_PATH && !memchr(out, 0, (size_t)len) && out[len] == '\0');
        HOLDS(path_check(out, (size_t)len, &err) == 0);
        HOLDS(path_normalize(out, (size_t)len, again, sizeof(again), &err) == len);
        HOLDS(memcmp(out, again, (size_t)len) == 0 && path_within(out, ""));
        while (path_next(&rest, &rest_len, &name, &name_len)) {
            HOLDS(path_check_name(name, name_len, &err) == 0);
            HOLDS(!(name_len <= 2 && memcmp(name, "..", name_len) == 0));
            total += name_len + 1;
        }
        HOLDS(total == 0 || total == (size_t)len + 1);
    }
    (void)!path_check_volume(text, &err);
    free(text);
    return 0;
}
