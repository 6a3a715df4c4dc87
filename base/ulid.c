#include "base/ulid.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/scope.h"

#define RANDOM_SIZE 10

/* Crockford's base 32 without I, L, O and U. */
static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/* The last value given out; a child after fork(2) starts anew, or it would repeat its parent's. */
static struct {
    pthread_mutex_t mutex;
    pid_t pid;
    int64_t ms;
    uint8_t random[RANDOM_SIZE];
} last = { .mutex = PTHREAD_MUTEX_INITIALIZER, .ms = -1 };

int
random_bytes(void *out, size_t len, struct err *err)
{
    uint8_t *to = out;
    while (len > 0) {
        ssize_t got = getrandom(to, len, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, errno, "getrandom");
        to += got;
        len -= (size_t)got;
    }
    return 0;
}

uint64_t
random_next(uint64_t *state)
{
    /* Sebastiano Vigna's splitmix64, public domain constants. */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Adds one to the random part; false when it was all ones. */
static bool
increment(uint8_t random[RANDOM_SIZE])
{
    for (int i = RANDOM_SIZE - 1; i >= 0; i--) {
        if (++random[i] != 0)
            return true;
    }
    return false;
}

static int
advance_locked(struct err *err)
{
    int64_t ms = clock_wall_ns() / NS_PER_MS;
    if (last.pid != getpid()) {
        last.pid = getpid();
        last.ms = -1;
    }
    if (ms < 0)
        ms = 0;
    if (ms <= last.ms) {
        if (increment(last.random))
            return 0;
        ms = last.ms + 1;
    }
    /* 48 bits of milliseconds reach further than int64 nanoseconds do. */
    uint8_t fresh[RANDOM_SIZE];
    if (random_bytes(fresh, sizeof(fresh), err) < 0)
        return -1;
    memcpy(last.random, fresh, sizeof(fresh));
    last.ms = ms;
    return 0;
}

/* 130 bits, of which the top two are zero, five at a time. */
static void
encode(int64_t ms, const uint8_t random[RANDOM_SIZE], char out[ULID_SIZE])
{
    for (int i = 9; i >= 0; i--, ms >>= 5)
        out[i] = digits[ms & 31];
    for (int half = 0; half < 2; half++) {
        uint64_t bits = 0;
        for (int i = 0; i < 5; i++)
            bits = bits << 8 | random[half * 5 + i];
        for (int i = 7; i >= 0; i--, bits >>= 5)
            out[10 + half * 8 + i] = digits[bits & 31];
    }
    out[ULID_LEN] = '\0';
}

int
ulid_new(char out[ULID_SIZE], struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&last.mutex);
    (void)held;
    if (advance_locked(err) < 0)
        return -1;
    encode(last.ms, last.random, out);
    return 0;
}

bool
ulid_valid(const char *text)
{
    return strlen(text) == ULID_LEN && strspn(text, digits) == ULID_LEN && text[0] <= '7';
}

int64_t
ulid_time_ms(const char *text)
{
    if (!ulid_valid(text))
        return -1;
    int64_t ms = 0;
    for (int i = 0; i < 10; i++)
        ms = ms << 5 | (strchr(digits, text[i]) - digits);
    return ms;
}
