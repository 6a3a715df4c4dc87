#ifndef VOLUME_MANIFEST_IMPL_H
#define VOLUME_MANIFEST_IMPL_H

#include "volume/past.h"

/*
 * manifest.c: a snapshot's manifest (docs/format/bucket.md), the only includer of zstd.h. Lines of JSON, compressed, written to `fd` from
 * its start; *size is what was written.
 */
struct manifest_head {
    const char *volume, *name;
};
int manifest_write(const struct volume_past *past, const struct manifest_head *head, int fd,
                   uint64_t *size, struct err *err) MUST_CHECK;

/* The same as its bytes come. A callback answers 0, 1 to stop, or -1. */
struct manifest_found {
    int64_t at_ns;
    uint64_t files, bytes;
};
struct manifest_line {
    enum index_kind kind;
    char path[LIMIT_PATH + 1];
    char version[LIMIT_ETAG], sha256[SHA256_HEX]; /* "" unknown */
    char copy[ULID_SIZE];                         /* in the history; "": it lay at its file's key */
    uint64_t size;
    uint32_t mode, uid, gid; /* mode 0: nobody had looked */
    int64_t mtime_ns;
};
struct manifest_reader;
struct manifest_readers {
    int (*head)(void *arg, const struct manifest_found *head, struct err *err);
    int (*line)(void *arg, const struct manifest_line *line,
                struct err *err); /* NULL: only the head */
    void *arg;
};
struct manifest_reader *manifest_reader_new(const struct manifest_readers *fns, struct err *err);
/* 1: a callback has stopped it, or the head is read and no more was wanted. ERR_CORRUPT: it is none. */
int manifest_feed(struct manifest_reader *reader, const void *data, size_t len,
                  struct err *err) MUST_CHECK;
void manifest_reader_free(struct manifest_reader *reader);

#endif
