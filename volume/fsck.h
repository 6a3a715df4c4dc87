#ifndef VOLUME_FSCK_H
#define VOLUME_FSCK_H

#include "volume/volume.h"

/*
 * `holdfast fsck`: index, cache and bucket held against one another, while the gateway runs or without one.
 *
 * Quick: each object of a volume by one listing against its row, the rows against the tree, each content file against its row, and
 * what lies below `.holdfast/`. Full: the bytes too, of the cache and of the bucket, against what was noted when they were
 * written. What is being worked on at the moment is no finding; every suspicion is looked at a second time before it is told.
 *
 * A repair never destroys: it looks again, takes in what nobody knew of, makes work anew, and lets go only of cached copies of
 * what the bucket has. Bytes that are nowhere else become a conflict, or go to STATE/lost.
 */
struct volume_finding {
    const char *code;   /* "object-missing"; docs/interface.md has them all */
    const char *volume; /* name, "" for none */
    const char *where;  /* a key of the bucket, a path, or a file of the state directory */
    const char *what;   /* in plain words, and what it means */
    const char *repair; /* what a repair does, or why there is none */
    bool repaired;
    const char *failed; /* a repair was tried in vain: why; else "" */
};
typedef int volume_finding_fn(void *arg, const struct volume_finding *finding, struct err *err);

struct volume_fsck_args {
    int64_t volume; /* 0: all, with the cache and `.holdfast/` */
    bool full, repair;
    volume_finding_fn *fn;
    void *arg;
    /* Told from time to time; may be NULL. */
    void (*progress)(void *arg, const char *what, uint64_t done);
    void *progress_arg;
};
struct volume_fsck_report {
    uint64_t objects, unlisted; /* of the volumes; in folders that nobody has looked into yet */
    uint64_t files, contents;   /* rows of the tree, and of the cache */
    uint64_t findings, repaired;
    uint64_t bytes_read,
        unverified; /* full: and objects or copies without a checksum to hold them to */
    uint64_t lists, heads, gets;
    int64_t took_ns;
};
/* Findings are no error. */
int volume_fsck(struct volume_service *service, const struct volume_fsck_args *args,
                struct volume_fsck_report *out, struct err *err) MUST_CHECK;

#endif
