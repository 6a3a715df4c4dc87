#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>
#include <string.h>

/* Copies a NUL-terminated text into a field of `size` bytes; what does not fit is cut, the NUL is always there. For fields
 * whose texts were checked at the edge; where a cut would matter, check the length first. */
static inline void
text_copy(char *out, size_t size, const char *text)
{
    size_t len = strlen(text);
    if (len >= size)
        len = size - 1;
    memcpy(out, text, len);
    out[len] = '\0';
}

/* The same for an array, whose size is known. */
#define text_set(field, text) text_copy((field), sizeof(field), (text))

#endif
