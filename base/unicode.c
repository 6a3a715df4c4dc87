#include "base/unicode.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/parse.h"

static bool
is_ascii(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

int
unicode_compose(const char *text, size_t len, char **out, struct err *err)
{
    utf8proc_uint8_t *composed = NULL;
    *out = NULL;
    if (is_ascii(text, len) || !utf8_valid(text, len))
        return 0;
    utf8proc_ssize_t made = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len,
                                         &composed, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (made == UTF8PROC_ERROR_NOMEM)
        return err_nomem(err);
    if (made < 0)
        return 0;
    if ((size_t)made == len && memcmp(composed, text, len) == 0)
        free(composed);
    else
        *out = (char *)composed;
    return 0;
}
