#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A property that does not hold ends the process; that is how libFuzzer learns of it. */
#define HOLDS(property)       \
    do {                      \
        if (!(property))      \
            __builtin_trap(); \
    } while (0)

/* The input as a string of its own (so that asan sees a read past its end), cut at the first NUL. */
static inline char *
fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    HOLDS(text);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

#endif
