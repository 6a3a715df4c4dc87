#ifndef MOUNT_OLD_H
#define MOUNT_OLD_H

#include <stdbool.h>

#include "volume/history.h"

/*
 * What stands behind an inode below `.holdfast/at/` and `.holdfast/versions/`, as bytes from which its number is made (number.h): all
 * that fixes what it shows, so that a number never shows anything else. Pure.
 */
enum old_kind {
    OLD_NONE,
    OLD_PAST,    /* at/TEXT/...: `at_ns`, `text`, and `path` in the volume of then */
    OLD_PATH,    /* versions/...: `path` */
    OLD_VERSION, /* versions/.../NAME: a version of `path` */
};
struct old_place {
    enum old_kind kind;
    int64_t at_ns;
    char text[LIMIT_NAME + 1]; /* no '/' */
    char copy[ULID_SIZE];      /* "": the present one, when it was looked up, of `node` */
    int64_t node;
    uint64_t size;
    int64_t made_ns;
    char version[LIMIT_ETAG];
    char path[LIMIT_PATH + 1];
};
#define OLD_NAME_MAX (LIMIT_PATH + LIMIT_ETAG + LIMIT_NAME + 160)

size_t old_name(const struct old_place *place, char out[OLD_NAME_MAX]);
/* False: no such thing. */
bool old_parse(const char *name, size_t len, struct old_place *out);

/* How a version is called in its folder: when it was made, and the beginning of its id. */
#define OLD_VERSION_NAME 48
void old_version_name(const struct volume_version *version, char out[OLD_VERSION_NAME]);

#endif
