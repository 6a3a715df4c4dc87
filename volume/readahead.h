#ifndef VOLUME_READAHEAD_H
#define VOLUME_READAHEAD_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What to fetch before it is asked for, told from the reads of a file: pure, without clock, locks or I/O. A few places where
 * somebody reads on are remembered (several programs, or several parts, may read one file). Reads of one reader may arrive out
 * of order, since the kernel sends several at once.
 */
#define READAHEAD_STREAMS 4u
#define READAHEAD_START (128u << 10) /* so much read in order makes a reader sequential */
#define READAHEAD_MIN (2u << 20)
#define READAHEAD_MAX (64u << 20)

struct readahead_stream {
    uint64_t next;   /* behind the last byte read */
    uint64_t goal;   /* fetch up to here */
    uint64_t window; /* how far ahead of the reader, 0: not sequential */
    uint64_t mark;   /* `next` when the window was doubled last */
    uint64_t run;    /* bytes read in order */
    uint64_t used;   /* tick of the last read; 0: never */
};

struct readahead {
    struct readahead_stream stream[READAHEAD_STREAMS];
    uint64_t tick;
};

/* Somebody reads here. The window doubles each time the reader has used up half of it, and while it has to wait; a read
 * elsewhere begins anew without one. `max`: the largest window. */
void readahead_saw(struct readahead *ahead, uint64_t off, uint64_t len, bool waited, uint64_t max);
/* A request failed or the cache is full: readers have to show again that they keep up. */
void readahead_cut(struct readahead *ahead);
/* Where stream `i` wants bytes of a file of `size`; false: nowhere. */
bool readahead_want(const struct readahead *ahead, unsigned i, uint64_t size, uint64_t *off,
                    uint64_t *end);
/* How much one request of stream `i` brings: small at first, so that its bytes come soon. */
uint64_t readahead_span(const struct readahead *ahead, unsigned i);

#endif
