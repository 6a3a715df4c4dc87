#ifndef VOLUME_TRAIL_H
#define VOLUME_TRAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Whether the files of a folder are being read one after the other, and which come next: pure, without clock, locks or I/O.
 * The order may be that of readdir (the nodes' numbers) or that of the names; either is noticed.
 */
#define TRAIL_STEP 8u   /* a reader may skip so many entries and still be in order */
#define TRAIL_FIRST 8u  /* how many files are fetched ahead at first, */
#define TRAIL_MOST 128u /* and at most */

struct trail_entry {
    int64_t node;
    uint32_t rank;    /* in the order of names */
    uint32_t at_rank; /* the entry that stands at this place in the order of names */
    bool small;       /* worth fetching: a small file of which nothing is here */
    bool fetched;     /* asked for ahead, and not opened yet */
};

/* Entries in the order of their nodes. */
struct trail {
    struct trail_entry *entry;
    size_t count;
    bool named;              /* ranks are known */
    size_t last;             /* opened last; count: none */
    unsigned score[2];       /* steps in order: of numbers, of names */
    unsigned window, breaks; /* breaks: the reader left the order with files unread */
    size_t planned;          /* entries ahead of `last` that were looked at for fetching */
    uint64_t used, wasted;
};

/* Takes over `entry`, sorted by node, and its names (may be NULL: unknown) to rank them; 0 or -1 without memory. */
int trail_init(struct trail *trail, struct trail_entry *entry, size_t count,
               const char *const *names);
void trail_release(struct trail *trail);
/* `node` was opened. False: it is not among the entries. */
bool trail_opened(struct trail *trail, int64_t node);
/* Without waiting for steps in order: readers of other folders have shown some. */
void trail_trust(struct trail *trail);
/* The next one to fetch, 0: none now. */
int64_t trail_next(struct trail *trail);
/* Files that were fetched ahead and not opened. */
size_t trail_unread(const struct trail *trail);

#endif
