#include <string.h>

#include "volume/conflicts_impl.h"

/* The name of a conflict's loser beside the file. */

/* Where the characters of a name end that fit `max` bytes: not inside one of UTF-8. */
static size_t
cut_name(const char *name, size_t len, size_t max)
{
    if (len <= max)
        return len;
    while (max > 0 && ((unsigned char)name[max] & 0xc0) == 0x80)
        max--;
    return max;
}

/* "dir/name (conflict abcd).ext" with four characters of the conflict's id, from the `nth` place of those that are random. */
int
beside_name(const char *path, const char *id, unsigned nth, char out[LIMIT_PATH + 1],
            struct err *err)
{
    char mark[24];
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    const char *dot = strrchr(name, '.');
    const char *end = dot == NULL || dot == name ? name + strlen(name) : dot;
    (void)snprintf(mark, sizeof(mark), " (conflict %.4s)", id + 22 - 4 * nth);
    for (char *c = mark + 11; *c != '\0'; c++)
        *c |= *c >= 'A' && *c <= 'Z' ? 0x20 : 0;
    if (strlen(end) > LIMIT_NAME / 2)
        end = name + strlen(name);
    size_t room = LIMIT_NAME - strlen(mark) - strlen(end);
    size_t stem = cut_name(name, (size_t)(end - name), room);
    int len = snprintf(out, LIMIT_PATH + 1, "%.*s%.*s%s%s", (int)(name - path), path, (int)stem,
                       name, mark, end);
    return len > 0 && len <= LIMIT_PATH
               ? 0
               : err_set(err, ERR_NAME_TOO_LONG, "there is no room for a name beside '%s'", path);
}
