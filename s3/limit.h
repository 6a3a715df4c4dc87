#ifndef S3_LIMIT_H
#define S3_LIMIT_H

#include <pthread.h>
#include <stdint.h>

/*
 * A rate that is not gone beyond: a token bucket with a tenth of a second of burst. Whoever comes gets the next free
 * time, so that nobody is passed over. Takes the time as an argument; thread safe.
 */
struct limit {
    pthread_mutex_t lock;
    uint64_t per_s;  /* 0: no limit */
    int64_t free_ns; /* when the bucket has tokens again */
};

void limit_init(struct limit *limit, uint64_t per_s);
void limit_release(struct limit *limit);

/* Takes `amount`; answers how many nanoseconds the caller has to wait before it uses it, or -1 without taking when that
 * would be longer than `patience_ns`. */
int64_t limit_take(struct limit *limit, uint64_t amount, int64_t now_ns, int64_t patience_ns);

/* How many bytes to move in one piece, so that no pause is so long that the other end takes it for silence. */
uint64_t limit_piece(const struct limit *limit);

#endif
