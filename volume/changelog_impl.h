#ifndef VOLUME_CHANGELOG_IMPL_H
#define VOLUME_CHANGELOG_IMPL_H

#include "volume/changelog_format.h"
#include "volume/service_impl.h"

/*
 * What the files of the change log share (docs/mechanisms.md section 8): which volumes are followed, who else follows them, and what
 * of ours is still to be told. changelog.c has the life, changelog_write.c the thread that writes, changelog_read.c the one that reads
 * (with changelog_member.c and changelog_hint.c).
 */

#define CHANGELOG_PREFIX ".holdfast/log/"
#define CHANGELOG_SLOTS 256u
#define CHANGELOG_MEMBERS 64u
#define CHANGELOG_BAD 8u

/* How often, on clocks of our own: nobody's clock is compared with another's. */
#define CHANGELOG_BATCH (200 * NS_PER_MS)    /* a first change waits for others */
#define CHANGELOG_WRITE_EVERY NS_PER_S       /* one object of a volume in so long at most */
#define CHANGELOG_IDLE_POLL (15 * NS_PER_S)  /* nobody uses the volume, or nobody else follows it */
#define CHANGELOG_USED (60 * NS_PER_S)       /* so long a request keeps it in use */
#define CHANGELOG_FORGET (600 * NS_PER_S)    /* and so long it is followed */
#define CHANGELOG_SAY (1200 * NS_PER_S)      /* who follows says so at least that often */
#define CHANGELOG_SILENT (7200 * NS_PER_S)   /* whoever is not heard of for so long is gone */
#define CHANGELOG_ENDED (600 * NS_PER_S)     /* so long a last word stays, for the others */
#define CHANGELOG_KEEP_MS (3600 * 1000ull)   /* objects of ours */
#define CHANGELOG_AHEAD_MS (86400 * 1000ull) /* a number from further in the future is nobody's */
#define CHANGELOG_SWEEPS 2                   /* so many questions between two of one volume */
#define CHANGELOG_DEADLINE (10 * NS_PER_S)   /* of one request */

/* Another gateway that follows the volume. The reader's alone. */
struct changelog_member {
    char gateway[ULID_SIZE];
    uint64_t cursor;             /* read up to here */
    int64_t heard_ns;            /* mono: of an object that is new to us */
    int64_t ended_ns;            /* mono: it said that it ends, 0: not so */
    uint64_t bad[CHANGELOG_BAD]; /* objects behind the cursor that are none */
    unsigned bads;
    bool fresh; /* nothing was read of it yet: a sweep covers what was before */
    bool shown; /* in the listing at hand */
};

struct changelog_volume {
    int64_t id;
    char name[LIMIT_VOLUME_NAME + 1];
    char prefix[LIMIT_KEY + 1];
    /* Under changelog.lock. */
    bool joined;     /* we follow it, and have said so */
    bool others;     /* somebody else does */
    bool say;        /* an object is to be written, though no change may be in it */
    bool gap;        /* changes since `last_seq` were in no object */
    bool leaving;    /* the next object is our last */
    struct buf line; /* changes that no object holds yet */
    /* The writer's alone while the volume is joined, else the reader's. */
    struct buf out; /* changes in the object that is being written */
    bool has_out, out_gap, out_say, out_unknown;
    uint64_t out_seq, last_seq;
    int64_t not_before_ns, wrote_ns; /* mono */
    /* The reader's alone. */
    struct changelog_member member[CHANGELOG_MEMBERS];
    unsigned members;
    int64_t polled_ns, listed_ns; /* mono */
    int64_t swept_ns;             /* mono */
    bool sweep;                   /* what is known of it has to be listed anew */
    int64_t *todo;                /* folders for that */
    size_t todo_count;
    bool live; /* in use, or was lately */
};

struct changelog {
    struct volume_service *service;
    int64_t poll_ns;
    struct ticker *writer, *reader;
    pthread_mutex_t lock; /* a leaf */
    struct changelog_volume *volume[CHANGELOG_SLOTS];
    unsigned volumes;
    /* By the volume's number modulo: that two share a place costs a request. */
    _Atomic int64_t used_ns[CHANGELOG_SLOTS];  /* mono */
    _Atomic int64_t swept_ns[CHANGELOG_SLOTS]; /* wall: listings from before are old */
};

/* changelog_write.c */
int64_t changelog_write_tick(void *arg); /* the log; of the writer's thread */
/* Writes what there is, now; false when something is left. Nobody else writes. */
bool changelog_write_now(struct changelog *log, struct changelog_volume *volume);
/* A change for the volume's next object, or that there was one. */
void changelog_write_line(struct changelog *log, struct changelog_volume *volume,
                          const struct changelog_line *line);
/* The key of an object, or, without a number, the prefix of a gateway's. */
void changelog_write_key(const struct changelog_volume *volume, const char *gateway, uint64_t seq,
                         char out[LIMIT_KEY + 1]);
/* Numbers are times, so that they rise over restarts; false: this one is none. */
bool changelog_write_plausible(uint64_t seq);
/* The last number below our own prefix, 0: none. Objects before `keep_from` are removed. */
int changelog_write_own(struct changelog *log, const struct changelog_volume *volume,
                        uint64_t keep_from, uint64_t *last, struct err *err) MUST_CHECK;

/* changelog_read.c */
int64_t changelog_read_tick(void *arg); /* the log; of the reader's thread */

/* changelog_member.c: who else follows a volume, and what they wrote. */
/* Who there is; who comes new makes a sweep, whom nobody has heard of for long goes with its objects. */
int changelog_member_list(struct changelog *log, struct changelog_volume *volume,
                          struct err *err) MUST_CHECK;
struct changelog_hints;
/* What they wrote since: hints, or a sweep where something is missing. */
int changelog_member_read(struct changelog *log, struct changelog_volume *volume,
                          struct changelog_hints *hints, struct err *err) MUST_CHECK;
/* Removes what lies below the prefix of a gateway with numbers below `before`; `*last` is the last one that lies there. */
int changelog_member_clear(struct changelog *log, const struct changelog_volume *volume,
                           const char *gateway, uint64_t before, uint64_t *last,
                           struct err *err) MUST_CHECK;

/* changelog_hint.c: where to look. */
#define CHANGELOG_HINTS 1024u
struct changelog_hints {
    struct changelog_hint {
        char key[LIMIT_KEY + 1];
        char etag[LIMIT_ETAG], version[ULID_SIZE];
        bool gone;
        int64_t dir;     /* its folder, or the last one on the way there that is known */
        bool look, list; /* something is to be asked; by listing that folder */
    } * hint;
    size_t count;
    bool full; /* there were more */
};
int changelog_hint_add(struct changelog_hints *hints, const struct changelog_volume *volume,
                       const struct changelog_line *line, struct err *err) MUST_CHECK;
/* Looks at each of them; empties the list. */
int changelog_hint_follow(struct changelog *log, struct changelog_volume *volume,
                          struct changelog_hints *hints, struct err *err) MUST_CHECK;
/* A step of a sweep: true when it is over. */
bool changelog_hint_sweep(struct changelog *log, struct changelog_volume *volume);

#endif
