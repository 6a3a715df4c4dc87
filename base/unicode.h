#ifndef BASE_UNICODE_H
#define BASE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Normal forms of text (Unicode Standard Annex 15), by utf8proc, whose only includer unicode.c is. Pure. */

/*
 * The composed form (NFC) of `text`. `*out` is a new NUL-terminated text, or NULL when `text` is in that form already or is
 * no UTF-8. ERR_NOMEM.
 */
int unicode_compose(const char *text, size_t len, char **out, struct err *err) MUST_CHECK;

#endif
