#include <assert.h>
#include <string.h>

#include "s3/file_impl.h"

#define PREFIX_LEN 6 /* ".hf~o~" */

static bool
can_be_name(const char *part, size_t len)
{
    if (len == 0 || len > LIMIT_NAME)
        return false;
    if (part[0] == '.' && (len == 1 || (len == 2 && part[1] == '.')))
        return false;
    return len < sizeof(FILE_RESERVED) - 1 ||
           memcmp(part, FILE_RESERVED, sizeof(FILE_RESERVED) - 1) != 0;
}

static char *
append_escaped(char *out, char kind, const char *part, size_t len)
{
    memcpy(out, FILE_RESERVED, sizeof(FILE_RESERVED) - 1);
    out[4] = kind;
    out[5] = '~';
    memcpy(out + PREFIX_LEN, part, len);
    return out + PREFIX_LEN + len;
}

void
file_name_escape(const char *part, size_t len, char kind, char *out)
{
    while (len > LIMIT_NAME - PREFIX_LEN) {
        out = append_escaped(out, 'l', part, FILE_CHUNK);
        *out++ = '/';
        part += FILE_CHUNK;
        len -= FILE_CHUNK;
    }
    out = append_escaped(out, kind, part, len);
    *out = '\0';
}

void
file_name_of_key(const char *key, struct file_path *out)
{
    char *dir = out->dir;
    const char *part = key;
    size_t len;

    assert(strlen(key) <= LIMIT_KEY);
    for (const char *slash = strchr(part, '/'); slash; slash = strchr(part, '/')) {
        len = (size_t)(slash - part);
        if (dir != out->dir)
            *dir++ = '/';
        if (can_be_name(part, len)) {
            memcpy(dir, part, len);
            dir += len;
        } else {
            file_name_escape(part, len, 'd', dir);
            dir += strlen(dir);
        }
        part = slash + 1;
    }
    *dir = '\0';
    len = strlen(part);
    out->plain[0] = '\0';
    if (can_be_name(part, len))
        memcpy(out->plain, part, len + 1);
    file_name_escape(part, len, 'o', out->odd);
}

enum file_name_kind
file_name_decode(const char *name, const char **part)
{
    *part = name;
    if (strncmp(name, FILE_RESERVED, sizeof(FILE_RESERVED) - 1) != 0)
        return FILE_NAME_PLAIN;
    if (name[4] == '\0' || name[5] != '~')
        return FILE_NAME_OURS;
    *part = name + PREFIX_LEN;
    switch (name[4]) {
    case 'o':
        return FILE_NAME_OBJECT;
    case 'd':
        return FILE_NAME_DIR;
    case 'l':
        return FILE_NAME_LONG;
    default:
        return FILE_NAME_OURS;
    }
}
