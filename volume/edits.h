#ifndef VOLUME_EDITS_H
#define VOLUME_EDITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/*
 * Replacements in a text, all found in the text as it is, not one after the other. Pure. Bytes are compared exactly; only line
 * endings may differ: what was found so is written with the file's own. A byte order mark stays where it is.
 */
#define EDITS_TEXT_MAX (5u << 20)
#define EDITS_MAX 1000u

enum edit_at { EDIT_MATCH, EDIT_START, EDIT_END };
struct edit {
    const char *old; /* EDIT_MATCH: occurs exactly once, or with `all` at least once */
    size_t old_len;
    const char *text;
    size_t text_len;
    bool all;
    enum edit_at at; /* EDIT_START, EDIT_END: `text` is put there */
};

#define EDITS_LINES 10
enum edits_reason {
    EDITS_OK,
    EDITS_NOT_FOUND,
    EDITS_AMBIGUOUS,
    EDITS_OVERLAP,
    EDITS_SAME, /* old and new do not differ */
    EDITS_BINARY,
    EDITS_TOO_LARGE,
};
const char *edits_reason_word(enum edits_reason reason);
struct edits_result {
    enum edits_reason reason; /* of an error */
    size_t edit;              /* which one, from 1 on */
    size_t found;             /* AMBIGUOUS: so often */
    size_t lines
        [EDITS_LINES]; /* AMBIGUOUS: where; NOT_FOUND: where its longest line is; from 1 on, 0: no more */
    size_t replacements;
    size_t first_line; /* of the first change */
};
/* Appends the new text. ERR_UNSUPPORTED with the reason: nothing was appended. ERR_TOO_LARGE: the text, or what becomes of it. */
int edits_apply(const struct buf *text, const struct edit *edits, size_t count, struct buf *out,
                struct edits_result *result, struct err *err) MUST_CHECK;

#endif
