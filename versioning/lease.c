#include "versioning/lease.h"

#include <string.h>

#include "versioning/rules.h"

/* The time to live stands in a record that somebody else wrote: none is taken as longer than this. */
#define TTL_MAX_NS (24ll * 3600 * 1000000000)

static bool
is_ours(const struct lease *lease)
{
    return lease->seen.present && strcmp(lease->seen.gateway, lease->gateway) == 0;
}

/* When a record that nobody renews may be taken: its time to live and the deadline of its holder's last request. */
static int64_t
free_at(const struct lease *lease)
{
    int64_t ttl = lease->seen.ttl_ns > lease->ttl_ns ? lease->seen.ttl_ns : lease->ttl_ns;

    if (ttl > TTL_MAX_NS)
        ttl = TTL_MAX_NS;
    bool let_go = lease->seen.gateway[0] == '\0'; /* its holder ended in order */
    if (!lease->seen.present || let_go || is_ours(lease) || !sync_rule_on(RULE_LEASE_UNCHANGED))
        return lease->seen_since_ns;
    return lease->seen_since_ns + ttl + lease->op_deadline_ns;
}

int64_t
lease_next_ns(const struct lease *lease)
{
    if (lease->seen_since_ns == 0)
        return 0;
    return lease->held ? lease->sent_ns + lease->ttl_ns / 3 : free_at(lease);
}

enum lease_step
lease_next(const struct lease *lease, int64_t now_ns)
{
    if (lease->seen_since_ns == 0)
        return LEASE_LOOK;
    if (now_ns < lease_next_ns(lease))
        return LEASE_NOTHING;
    return lease->held ? LEASE_RENEW : LEASE_CLAIM;
}

bool
lease_valid(const struct lease *lease, int64_t now_ns)
{
    if (!lease->held)
        return false;
    return now_ns - lease->sent_ns < lease->ttl_ns / 3 * 2 || !sync_rule_on(RULE_LEASE_STOP);
}

static bool
same_record(const struct lease_record *a, const struct lease_record *b)
{
    if (a->present != b->present)
        return false;
    return !a->present || (strcmp(a->nonce, b->nonce) == 0 && strcmp(a->etag, b->etag) == 0);
}

void
lease_saw(struct lease *lease, const struct lease_record *record, int64_t now_ns)
{
    if (lease->seen_since_ns == 0 || !same_record(&lease->seen, record)) {
        lease->seen = *record;
        lease->seen_since_ns = now_ns;
    }
    if (lease->held && (!is_ours(lease) || lease->seen.epoch != lease->epoch))
        lease->held = false;
}

void
lease_answered(struct lease *lease, enum lease_answer answer, const struct lease_record *sent,
               int64_t sent_ns)
{
    if (answer == LEASE_DONE) {
        lease->held = true;
        lease->epoch = sent->epoch;
        lease->sent_ns = sent_ns;
        lease->seen = *sent;
        lease->seen_since_ns = sent_ns;
        return;
    }
    /* Unknown: what is held stays so until two thirds of its time, counted from the last renewal that is known. */
    if (answer == LEASE_REFUSED)
        lease->held = false;
    lease->seen_since_ns = 0;
}
