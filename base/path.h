#ifndef BASE_PATH_H
#define BASE_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/*
 * Checks for names that come from outside (INV-12), done once at the edge. Pure. Names are bytes,
 * not text: anything but NUL and '/' is allowed in a component, so a name needs a length.
 */

/* One component: 1 to 255 bytes, no '/', no NUL, not "." or "..". ERR_BAD_NAME or
 * ERR_NAME_TOO_LONG. */
int path_check_name(const char *name, size_t len, struct err *err) MUST_CHECK;

/* A path inside a volume in normal form: components joined by single slashes, no leading or
 * trailing slash, "" is the root; at most LIMIT_PATH bytes and LIMIT_PATH_DEPTH components. */
int path_check(const char *path, size_t len, struct err *err) MUST_CHECK;

/* Makes the normal form of what a user typed: one leading slash and trailing slashes are
 * dropped; "a//b", "." and ".." are refused (ERR_BAD_NAME), never resolved. `out` holds at least
 * LIMIT_PATH + 1 bytes. Answers the length or -1. */
int path_normalize(const char *text, size_t len, char *out, size_t size,
                   struct err *err) MUST_CHECK;

/* Splits off the next component: *rest moves past it and its slash. False at the end. */
bool path_next(const char **rest, size_t *rest_len, const char **name, size_t *name_len);

/* Volume names: [a-z0-9][a-z0-9._-]{0,62}. */
int path_check_volume(const char *name, struct err *err) MUST_CHECK;

/* Whether `path` is `dir` or lies below it ("" contains all); never a bare string prefix: "ab"
 * is not in "a". */
bool path_within(const char *path, const char *dir);

#endif
