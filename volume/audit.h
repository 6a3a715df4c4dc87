#ifndef VOLUME_AUDIT_H
#define VOLUME_AUDIT_H

#include "volume/volume.h"

/*
 * The audit: who did what, when, in which run, to which file, and how it ended. Records are lines of JSON in STATE/audit, each
 * with its number and the hash of the one before, so that one that is removed, changed, moved or cut off is found
 * (volume_audit_verify()); closed segments go to the bucket. Kept by a thread of its own: a note costs who notes it a copy in
 * memory. The queue is bounded: who finds it full waits for room, two seconds at most; what is lost then, or for want of
 * memory, is counted in a record `lost`.
 *
 * The death of the process loses what was noted in its last 50 ms, a power cut what was noted in the last second or two: an
 * orderly shorter chain, that goes on with a record `start` which says how the last process ended. What was on the disk once is
 * remembered in the index, and missed when it is gone.
 */
struct audit_record {
    const char *verb;  /* "write", "remove", "login", ... */
    const char *face;  /* "mount", "http", "cli", "gateway", "bucket" */
    const char *actor; /* who; this and all below may be NULL or "" */
    const char *run;
    int64_t volume; /* 0: none, or its name is given */
    const char *volume_name;
    const char *path, *to;      /* in the volume */
    const char *before, *after; /* versions */
    const char *result;         /* NULL: "ok"; else the slug of an error */
    const char *detail; /* one short text: of an object, a setting, a token's label; never a secret */
    const char *command; /* what was executed */
    int64_t bytes;       /* < 0: not told */
    int64_t uid;         /* of the program, < 0: not told */
};
/* Never fails and takes no lock that anybody holds over store or index: usable everywhere, also inside index functions. */
void volume_audit_note(struct volume_service *service, const struct audit_record *record);
/* The same for who acts through a context: face, actor, run and uid are its. */
void volume_audit_act(struct volume_service *service, const struct volume_ctx *ctx,
                      struct audit_record record);

/* What was noted before the call can be read. */
void volume_audit_flush(struct volume_service *service);

struct audit_query {
    const char *run, *volume, *path, *verb; /* NULL: any; `path`: itself and what lies below */
    int64_t since_ns, until_ns;             /* wall; 0: any */
    uint64_t after;                         /* the number of a record: those behind it */
};
/* Records in their order; `line` is one JSON object. `fn` > 0: stop. */
typedef int volume_audit_fn(void *arg, uint64_t seq, const char *line, size_t len, struct err *err);
int volume_audit_each(struct volume_service *service, const struct audit_query *query,
                      volume_audit_fn *fn, void *arg, struct err *err) MUST_CHECK;

/* Reads all there is, here and in the bucket. */
struct audit_finding {
    const char *where; /* the segment's file or key */
    uint64_t seq;      /* at or behind which, 0: of a whole segment */
    const char *what;
};
typedef int volume_audit_finding_fn(void *arg, const struct audit_finding *finding,
                                    struct err *err);
struct audit_verified {
    uint64_t records, segments;               /* here */
    uint64_t bucket_records, bucket_segments; /* there */
    uint64_t findings;
    uint64_t head; /* the number of the last record */
    char hash[65]; /* and its hash */
    bool bucket;   /* it was looked at */
};
int volume_audit_verify(struct volume_service *service, bool bucket, volume_audit_finding_fn *fn,
                        void *arg, struct audit_verified *out, struct err *err) MUST_CHECK;

#endif
