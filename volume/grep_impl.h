#ifndef VOLUME_GREP_IMPL_H
#define VOLUME_GREP_IMPL_H

#include "volume/grep.h"
#include "volume/pattern.h"
#include "volume/walk_impl.h"

/* What the two files of grep share: one file searched (grep_file.c), and many in order (grep.c). */
enum grep_fate {
    GREP_NOT_YET, /* time ran out before */
    GREP_SEARCHED,
    GREP_HARD, /* searched as far as the pattern allowed */
    GREP_BINARY,
    GREP_LARGE,
    GREP_ABSENT,
    GREP_FAILED,
};
struct grep_item {
    char path[LIMIT_PATH + 1]; /* below the folder */
    int64_t node;
    int64_t content; /* 0: nothing of it is here */
    uint64_t size;
    uint64_t after_line;
    enum grep_fate fate;
    bool cut; /* it has more hits than there was room for */
    uint64_t hits;
    struct buf lines; /* struct grep_line, then its text */
};
struct grep_line {
    uint64_t line;
    size_t len, column;
    bool clipped, context;
};

struct grep_job {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    const struct volume_grep *want;
    struct pattern *pattern;
    _Atomic int64_t fetch_left;
};
/* One thread's. */
struct grep_hand {
    struct grep_job *job;
    struct pattern_matcher *matcher;
    char *bytes;
    size_t room;
};
/* At most `most` hits. An error is one of memory or of ours: what is wrong with a file is its fate. */
int grep_file(struct grep_hand *hand, struct grep_item *item, uint64_t most,
              struct err *err) MUST_CHECK;

#endif
