#include "volume/readahead.h"

#include <stddef.h>

#include "base/limits.h"

#define SLACK_MIN (256u << 10) /* how far a read may lie beside the place where it was expected */
#define SLACK_READS 4u
#define SPAN_MAX (4u << 20)

static uint64_t
distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static struct readahead_stream *
find(struct readahead *ahead, uint64_t off, uint64_t len)
{
    struct readahead_stream *best = NULL;
    uint64_t slack = len * SLACK_READS > SLACK_MIN ? len * SLACK_READS : SLACK_MIN;
    for (unsigned i = 0; i < READAHEAD_STREAMS; i++) {
        struct readahead_stream *at = &ahead->stream[i];
        if (at->used == 0 || distance(at->next, off) > slack)
            continue;
        if (best == NULL || distance(at->next, off) < distance(best->next, off))
            best = at;
    }
    return best;
}

static struct readahead_stream *
oldest(struct readahead *ahead)
{
    struct readahead_stream *best = &ahead->stream[0];
    for (unsigned i = 1; i < READAHEAD_STREAMS; i++)
        if (ahead->stream[i].used < best->used)
            best = &ahead->stream[i];
    return best;
}

static void
widen(struct readahead_stream *at, bool waited, uint64_t max)
{
    bool half_used = at->next - at->mark >= at->window / 2;
    /* A reader that waits is faster than the window; but what it may cost is bounded by what it has read. */
    bool hungry = waited && at->window < at->run * 8;
    if (at->window == 0 || half_used || hungry) {
        at->window = at->window == 0 ? READAHEAD_MIN : at->window * 2;
        at->mark = at->next;
    }
    if (at->window > max)
        at->window = max;
    if (at->goal < at->next + at->window)
        at->goal = at->next + at->window;
}

void
readahead_saw(struct readahead *ahead, uint64_t off, uint64_t len, bool waited, uint64_t max)
{
    uint64_t end = off + len;
    struct readahead_stream *at = find(ahead, off, len);
    if (at == NULL) {
        at = oldest(ahead);
        *at = (struct readahead_stream){ .next = off, .goal = off };
    }
    at->used = ++ahead->tick;
    if (end <= at->next)
        return; /* a late one of several reads at once, or the same bytes again */
    at->run += end - at->next < len ? end - at->next : len;
    at->next = end;
    if (at->run >= READAHEAD_START)
        widen(at, waited, max);
}

void
readahead_cut(struct readahead *ahead)
{
    for (unsigned i = 0; i < READAHEAD_STREAMS; i++) {
        struct readahead_stream *at = &ahead->stream[i];
        at->window = at->run = 0;
        at->goal = at->next;
    }
}

bool
readahead_want(const struct readahead *ahead, unsigned i, uint64_t size, uint64_t *off,
               uint64_t *end)
{
    const struct readahead_stream *at = &ahead->stream[i];
    *off = at->next;
    *end = at->goal < size ? at->goal : size;
    return at->window > 0 && *off < *end;
}

uint64_t
readahead_span(const struct readahead *ahead, unsigned i)
{
    uint64_t span = ahead->stream[i].window / 4 / CACHE_BLOCK_SIZE * CACHE_BLOCK_SIZE;
    if (span < CACHE_BLOCK_SIZE)
        return CACHE_BLOCK_SIZE;
    return span < SPAN_MAX ? span : SPAN_MAX;
}
