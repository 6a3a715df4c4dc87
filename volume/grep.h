#ifndef VOLUME_GREP_H
#define VOLUME_GREP_H

#include "volume/volume.h"

/*
 * Lines of files that a pattern (pattern.h) matches, in order of paths (find.h), then of lines. Bytes that are here are read where they
 * lie; what only the bucket has is fetched as far as the caller allows, and else counted. Files with a NUL in their first 8 KiB are no
 * text, larger ones than GREP_FILE_MAX are left out: both are counted.
 */
#define GREP_FILE_MAX (16u << 20)
#define GREP_CONTEXT_MAX 100u
#define GREP_CLIP 400u /* bytes of a line that are told */

enum volume_grep_mode { VOLUME_GREP_LINES, VOLUME_GREP_FILES, VOLUME_GREP_COUNT };
struct volume_grep_line {
    const char *path; /* inside the volume */
    uint64_t line;    /* LINES: from 1 on */
    const char *text; /* LINES: any bytes; clipped around the match */
    size_t len;
    size_t column;  /* LINES: of the match, bytes from 1 on, in the whole line */
    bool clipped;   /* LINES */
    bool context;   /* LINES: matches not, stands beside one that does */
    uint64_t count; /* COUNT */
};
/* > 0: not this one, and no more: the next page begins with it. Without locks. */
typedef int volume_grep_fn(void *arg, const struct volume_grep_line *line, struct err *err);
struct volume_grep {
    int64_t volume;
    const char *folder;  /* in normal form, "": the volume; or a file */
    const char *pattern; /* UTF-8 */
    bool fixed, ignore_case;
    const char *include; /* a glob of paths below the folder; NULL: all */
    enum volume_grep_mode mode;
    unsigned context;    /* lines around each hit */
    const char *after;   /* as `last` of the page before; "": from the start */
    uint64_t after_line; /* of that file, 0: behind the whole file */
    unsigned limit;      /* hits, or files */
    uint64_t fetch;      /* bytes that may be fetched from the bucket */
    int64_t patience_ns; /* 0: 10 s */
    volume_grep_fn *fn;
    void *arg;
};
struct volume_grep_count {
    uint64_t files, bytes;
    char path[LIMIT_PATH + 1]; /* one of them, inside the volume */
};
struct volume_grep_result {
    bool more; /* go on behind `last`, `last_line` */
    char last[LIMIT_PATH + 1];
    uint64_t last_line;
    uint64_t hits, files; /* given; files with one */
    uint64_t searched;
    struct volume_grep_count binary, large, absent, hard,
        failed;        /* absent: not fetched; hard: the pattern took too long */
    uint64_t unlisted; /* folders that nobody has looked into */
    char unlisted_path[LIMIT_PATH + 1];
};
/* ERR_INVAL: the pattern (and where), or the glob. ERR_NOT_FOUND. */
int volume_grep(struct volume_service *service, const struct volume_ctx *ctx,
                const struct volume_grep *want, struct volume_grep_result *out,
                struct err *err) MUST_CHECK;

#endif
