#ifndef BASE_GLOB_H
#define BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/scope.h"

/*
 * Patterns for paths as people and agents write them. Pure. Names are bytes; where they are UTF-8 a character counts as one.
 *
 *   *        any part of one name          ?        one character of a name
 *   **       any number of folders, as a whole component: `a/` `**` `/b`; at the end, all that lies below
 *   [a-z]    one of these, [!a-z] or [^a-z] one of the others      {a,b}  either; nests, and may hold slashes
 *   \x       x itself
 *
 * A pattern without a slash is for the name, in whatever folder; one with a slash for the path from the folder where the search
 * begins (a leading slash says so of a name alone). Names that begin with a dot are names like others.
 */
struct glob;

#define GLOB_POSITIONS 512u
/* Where a match stands behind some components of a path. */
struct glob_at {
    uint64_t bits[GLOB_POSITIONS / 64];
};

/* ERR_INVAL names what is wrong and where; too many alternatives are ERR_TOO_LARGE. */
int glob_compile(const char *text, size_t len, struct glob **out, struct err *err) MUST_CHECK;
void glob_free(struct glob *glob);
void glob_free_ptr(struct glob **glob);
#define scope_glob scope(glob_free_ptr) struct glob

void glob_start(const struct glob *glob, struct glob_at *out);
/* Behind one more component. `out` may not be `at`. */
void glob_step(const struct glob *glob, const struct glob_at *at, const char *name, size_t len,
               struct glob_at *out);
/* The path so far is one that the pattern means. */
bool glob_done(const struct glob *glob, const struct glob_at *at);
/* Something below it may be one. */
bool glob_more(const struct glob *glob, const struct glob_at *at);
/* A whole path in normal form. */
bool glob_match(const struct glob *glob, const char *path);

#endif
