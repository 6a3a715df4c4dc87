#ifndef VOLUME_CHANGELOG_FORMAT_H
#define VOLUME_CHANGELOG_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/ulid.h"

/*
 * Pure: an object of the change log (docs/format/bucket.md). Lines of JSON: a head, then one for each change that its gateway brought
 * into the bucket. Whoever reads one believes nothing of it: a line says where to look.
 */

/* Of one object, and of one line in it. */
#define CHANGELOG_OBJECT_MAX (1u << 20)
#define CHANGELOG_LINE_MAX 8192u
/* Room that a head takes at most. */
#define CHANGELOG_HEAD_MAX 512u
#define CHANGELOG_SEQ_DIGITS 16

struct changelog_head {
    char gateway[ULID_SIZE];
    uint64_t seq, prev; /* prev 0: changes before this one are in no object */
    bool ends;          /* the gateway follows and writes no more */
};

struct changelog_line {
    bool gone;                 /* the object was deleted; else it was put */
    char path[LIMIT_PATH + 2]; /* below the volume's prefix; a folder's marker ends in a slash */
    char etag[LIMIT_ETAG], version[ULID_SIZE], base[ULID_SIZE];
    uint64_t size;
    char actor[64], run[64];
    int64_t time_ns; /* wall */
};

/* Each appends one line; a buffer without the room stays as it was (ERR_TOO_LARGE). */
int changelog_format_head(const struct changelog_head *head, struct buf *out,
                          struct err *err) MUST_CHECK;
int changelog_format_line(const struct changelog_line *line, struct buf *out,
                          struct err *err) MUST_CHECK;

struct changelog_sink {
    int (*line)(void *arg, const struct changelog_line *line, struct err *err);
    void *arg;
    unsigned odd; /* set: so many lines are not understood, and were passed over */
};
/* ERR_CORRUPT: it has no head that is understood. A callback that fails ends it. */
int changelog_format_read(const char *data, size_t len, struct changelog_head *head,
                          struct changelog_sink *sink, struct err *err) MUST_CHECK;

/* Name of an object below its gateway's prefix: the sequence number with its leading zeros. */
void changelog_format_seq(uint64_t seq, char out[CHANGELOG_SEQ_DIGITS + 1]);
bool changelog_format_seq_read(const char *text, uint64_t *seq);

#endif
