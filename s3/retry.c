#include "s3/retry.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/ulid.h"

#define BACKOFF_BASE (100 * NS_PER_MS)
#define BACKOFF_MAX (5 * NS_PER_S)
#define RETRY_AFTER_MAX (60 * NS_PER_S)
#define DEADLINE_BASE (30 * NS_PER_S)
#define DEADLINE_RATE (1u << 20)

enum retry_verdict
retry_classify(int status, const char *code)
{
    if (strcmp(code, "RequestTimeTooSkewed") == 0)
        return RETRY_CLOCK;
    if (status == 429 || strcmp(code, "SlowDown") == 0 || strcmp(code, "TooManyRequests") == 0)
        return RETRY_SLOW;
    if (strcmp(code, "RequestTimeout") == 0 || strcmp(code, "InternalError") == 0 ||
        strcmp(code, "ServiceUnavailable") == 0)
        return RETRY_AGAIN;
    if (status == 500 || status == 502 || status == 503 || status == 504 || status == 409)
        return RETRY_AGAIN;
    return RETRY_NO;
}

int64_t
retry_backoff_ns(unsigned attempt, uint64_t *random_state)
{
    int64_t top = BACKOFF_MAX;
    if (attempt < 6 && (BACKOFF_BASE << attempt) < top)
        top = BACKOFF_BASE << attempt;
    return (int64_t)(random_next(random_state) % ((uint64_t)top + 1));
}

int64_t
retry_after_ns(const char *value, int64_t wall_now_ns)
{
    uint64_t seconds;
    int64_t at;
    if (!value)
        return 0;
    if (parse_u64(value, &seconds))
        return seconds > 60 ? RETRY_AFTER_MAX : (int64_t)seconds * NS_PER_S;
    if (time_parse_http(value, &at) < 0 || at <= wall_now_ns)
        return 0;
    return at - wall_now_ns > RETRY_AFTER_MAX ? RETRY_AFTER_MAX : at - wall_now_ns;
}

int64_t
retry_deadline_ns(int64_t mono_now_ns, uint64_t size)
{
    return mono_now_ns + DEADLINE_BASE + (int64_t)(size / DEADLINE_RATE) * NS_PER_S;
}

void
retry_limit_init(struct retry_limit *limit, unsigned max)
{
    *limit = (struct retry_limit){ .max = max,
                                   .window = max < RETRY_WINDOW_START ? max : RETRY_WINDOW_START };
}

bool
retry_limit_enter(struct retry_limit *limit)
{
    if (limit->in_flight >= limit->window)
        return false;
    limit->in_flight++;
    return true;
}

static void
halve(struct retry_limit *limit)
{
    limit->window = limit->window > 1 ? limit->window / 2 : 1;
    limit->settling = limit->in_flight;
    limit->slowed = true;
    limit->good = 0;
}

static void
grow(struct retry_limit *limit)
{
    limit->good++;
    if (limit->window == limit->max || (limit->slowed && limit->good < limit->window))
        return;
    limit->window++;
    limit->good = 0;
}

void
retry_limit_leave(struct retry_limit *limit, enum retry_result result)
{
    assert(limit->in_flight > 0);
    limit->in_flight--;
    bool old = limit->settling > 0;
    if (old)
        limit->settling--;
    if (result == RETRY_RESULT_SLOW && !old)
        halve(limit);
    else if (result == RETRY_RESULT_GOOD && !old)
        grow(limit);
}
