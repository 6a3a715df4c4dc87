#ifndef VERSIONING_LEASE_H
#define VERSIONING_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/ulid.h"

/*
 * The writer lease of a volume (docs/mechanisms.md section 6), kept in `.holdfast/leases/<volume>.json` by conditional
 * PUTs. Pure: times are CLOCK_BOOTTIME nanoseconds of the own machine; the expiry in the record is informative only.
 */
struct lease_record {
    bool present;
    char gateway[ULID_SIZE];
    uint64_t epoch;
    int64_t ttl_ns;
    char nonce[ULID_SIZE]; /* changes with each renewal */
    char etag[LIMIT_ETAG];
};

struct lease {
    char gateway[ULID_SIZE]; /* who we are */
    int64_t ttl_ns;
    int64_t op_deadline_ns;
    bool held;
    uint64_t epoch;
    int64_t sent_ns;          /* when the last successful renewal was *sent* */
    struct lease_record seen; /* the record as last read */
    int64_t seen_since_ns; /* when this very record (nonce, etag) was first seen; 0: never looked */
};

enum lease_step {
    LEASE_NOTHING, /* until lease_next_ns() */
    LEASE_LOOK,    /* GET the record, then lease_saw() */
    LEASE_CLAIM, /* PUT a record with epoch + 1: absent → If-None-Match, else If-Match seen.etag; then lease_answer() */
    LEASE_RENEW, /* PUT with the same epoch and If-Match; then lease_answer() */
};
enum lease_step lease_next(const struct lease *lease, int64_t now_ns);
/* When lease_next() says something else than LEASE_NOTHING; in the past: now. */
int64_t lease_next_ns(const struct lease *lease);
/* Whether writes may be sent now: held and less than two thirds of the time to live since the renewal was sent. */
bool lease_valid(const struct lease *lease, int64_t now_ns);
void lease_saw(struct lease *lease, const struct lease_record *record, int64_t now_ns);
/* The PUT of `sent` (its etag filled from the answer) that began at `sent_ns` ended: done → held; refused → lost; unknown
 * → look; an unanswered claim that landed is seen as our own record and claimed again at once. */
enum lease_answer { LEASE_DONE, LEASE_REFUSED, LEASE_UNKNOWN };
void lease_answered(struct lease *lease, enum lease_answer answer, const struct lease_record *sent,
                    int64_t sent_ns);

#endif
