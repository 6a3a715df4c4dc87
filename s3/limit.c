#include "s3/limit.h"

#include "base/clock.h"

#define BURST (NS_PER_S / 10)
#define PIECE_MIN 1024u
#define PIECE_MAX (256u << 10)

void
limit_init(struct limit *limit, uint64_t per_s)
{
    pthread_mutex_init(&limit->lock, NULL);
    limit->per_s = per_s;
    limit->free_ns = 0;
}

void
limit_release(struct limit *limit)
{
    pthread_mutex_destroy(&limit->lock);
}

/* Both factors are below 2^63 / NS_PER_S in practice; what is more is cut to an hour. */
static int64_t
cost_ns(uint64_t amount, uint64_t per_s)
{
    double ns = (double)amount * (double)NS_PER_S / (double)per_s;
    double most = 3600.0 * (double)NS_PER_S;
    return (int64_t)(ns < most ? ns : most);
}

int64_t
limit_take(struct limit *limit, uint64_t amount, int64_t now_ns, int64_t patience_ns)
{
    if (limit->per_s == 0)
        return 0;
    pthread_mutex_lock(&limit->lock);
    int64_t from = limit->free_ns > now_ns - BURST ? limit->free_ns : now_ns - BURST;
    int64_t wait = from > now_ns ? from - now_ns : 0;
    if (wait > patience_ns)
        wait = -1;
    else
        limit->free_ns = from + cost_ns(amount, limit->per_s);
    pthread_mutex_unlock(&limit->lock);
    return wait;
}

uint64_t
limit_piece(const struct limit *limit)
{
    uint64_t piece = limit->per_s / 8;
    if (limit->per_s == 0 || piece > PIECE_MAX)
        return PIECE_MAX;
    return piece < PIECE_MIN ? PIECE_MIN : piece;
}
