#include "base/path.h"

#include <string.h>

/* How much of a bad name an error shows. */
#define SHOWN 80

static int
shown(size_t len)
{
    return len < SHOWN ? (int)len : SHOWN;
}

int
path_check_name(const char *name, size_t len, struct err *err)
{
    if (len == 0)
        return err_set(err, ERR_BAD_NAME, "empty name");
    if (len > LIMIT_NAME)
        return err_set(err, ERR_NAME_TOO_LONG, "name '%.*s...' is longer than %d bytes", shown(len),
                       name, LIMIT_NAME);
    if ((len == 1 && name[0] == '.') || (len == 2 && memcmp(name, "..", 2) == 0))
        return err_set(err, ERR_BAD_NAME, "'%.*s' is not a name", shown(len), name);
    if (memchr(name, '\0', len))
        return err_set(err, ERR_BAD_NAME, "name '%.*s...' holds a NUL", shown(len), name);
    if (memchr(name, '/', len))
        return err_set(err, ERR_BAD_NAME, "name '%.*s' holds a slash", shown(len), name);
    return 0;
}

int
path_check(const char *path, size_t len, struct err *err)
{
    if (len > LIMIT_PATH)
        return err_set(err, ERR_NAME_TOO_LONG, "path '%.*s...' is longer than %d bytes", shown(len),
                       path, LIMIT_PATH);
    if (len > 0 && (path[0] == '/' || path[len - 1] == '/'))
        return err_set(err, ERR_BAD_NAME, "path '%.*s' starts or ends with a slash", shown(len),
                       path);
    const char *rest = path;
    const char *name;
    size_t rest_len = len;
    size_t name_len;
    unsigned depth = 0;
    while (path_next(&rest, &rest_len, &name, &name_len)) {
        if (++depth > LIMIT_PATH_DEPTH)
            return err_set(err, ERR_NAME_TOO_LONG, "path '%.*s...' is deeper than %d", shown(len),
                           path, LIMIT_PATH_DEPTH);
        if (path_check_name(name, name_len, err) < 0)
            return err_wrap(err, "path '%.*s'", shown(len), path);
    }
    return 0;
}

int
path_normalize(const char *text, size_t len, char *out, size_t size, struct err *err)
{
    if (len > 0 && text[0] == '/') {
        text++;
        len--;
    }
    while (len > 0 && text[len - 1] == '/')
        len--;
    if (path_check(text, len, err) < 0)
        return -1;
    if (len >= size)
        return err_set(err, ERR_NAME_TOO_LONG, "path '%.*s' does not fit", shown(len), text);
    memmove(out, text, len);
    out[len] = '\0';
    return (int)len;
}

bool
path_next(const char **rest, size_t *rest_len, const char **name, size_t *name_len)
{
    if (*rest_len == 0)
        return false;
    const char *slash = memchr(*rest, '/', *rest_len);
    *name = *rest;
    *name_len = slash ? (size_t)(slash - *rest) : *rest_len;
    size_t taken = *name_len + (slash ? 1 : 0);
    *rest += taken;
    *rest_len -= taken;
    return true;
}

static bool
is_volume_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

int
path_check_volume(const char *name, struct err *err)
{
    size_t len = strlen(name);
    if (len > LIMIT_VOLUME_NAME)
        return err_set(err, ERR_NAME_TOO_LONG, "volume name '%.*s...' is longer than %d characters",
                       shown(len), name, LIMIT_VOLUME_NAME);
    bool good = is_volume_start(name[0]);
    for (size_t i = 1; good && i < len; i++)
        good = is_volume_start(name[i]) || strchr("._-", name[i]);
    if (!good)
        return err_set(err, ERR_BAD_NAME,
                       "'%s' is not a volume name: use a-z, 0-9, '.', '_' and '-', starting with a "
                       "letter or digit",
                       name);
    return 0;
}

bool
path_within(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    if (len == 0)
        return true;
    return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}
