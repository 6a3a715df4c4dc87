#include "base/log.h"
#include "base/scope.h"
#include "base/ticker.h"
#include "volume/changelog_impl.h"

/*
 * What this gateway brought into the bucket, told in objects of its own: at most one a second for a volume, and none while nobody else
 * follows it. Lines that have no room, or come while nobody listens, make a gap: the next object says so, and its readers list anew
 * what they know.
 */

void
changelog_write_key(const struct changelog_volume *volume, const char *gateway, uint64_t seq,
                    char out[LIMIT_KEY + 1])
{
    char number[CHANGELOG_SEQ_DIGITS + 1] = "";
    if (seq != 0)
        changelog_format_seq(seq, number);
    (void)snprintf(out, LIMIT_KEY + 1, CHANGELOG_PREFIX "%s/%s/%s", volume->name, gateway, number);
}

static uint64_t
now_ms(void)
{
    int64_t now = clock_wall_ns() / NS_PER_MS;
    return now > 0 ? (uint64_t)now : 1;
}

bool
changelog_write_plausible(uint64_t seq)
{
    return seq > 0 && seq < now_ms() + CHANGELOG_AHEAD_MS;
}

int
changelog_write_own(struct changelog *log, const struct changelog_volume *volume,
                    uint64_t keep_from, uint64_t *last, struct err *err)
{
    return changelog_member_clear(log, volume, log->service->gateway_id, keep_from, last, err);
}

void
changelog_write_line(struct changelog *log, struct changelog_volume *volume,
                     const struct changelog_line *line)
{
    struct err ignored = ERR_INIT;
    pthread_mutex_lock(&log->lock);
    bool first = volume->line.len == 0;
    bool told = volume->joined && volume->others &&
                changelog_format_line(line, &volume->line, &ignored) == 0;
    volume->gap |= !told;
    if (told && first) {
        int64_t soon = clock_mono_ns() + CHANGELOG_BATCH;
        int64_t next = volume->wrote_ns + CHANGELOG_WRITE_EVERY;
        soon = soon > next ? soon : next;
        if (soon > volume->not_before_ns)
            volume->not_before_ns = soon;
    }
    pthread_mutex_unlock(&log->lock);
    if (told && first)
        ticker_kick(log->writer);
}

/* ---- one object ---- */

/* What is to be told becomes the object that is on its way. False: nothing. */
static bool
take_locked(struct changelog_volume *volume)
{
    if (volume->has_out)
        return true;
    if (volume->line.len == 0 && !volume->say)
        return false;
    struct buf empty = volume->out;
    volume->out = volume->line;
    volume->line = empty;
    buf_clear(&volume->line);
    volume->out_gap = volume->gap || volume->last_seq == 0;
    volume->gap = volume->say = false;
    volume->has_out = true;
    volume->out_unknown = false;
    uint64_t now = now_ms();
    volume->out_seq = volume->out_seq >= now ? volume->out_seq + 1 : now;
    return true;
}

static int
print_object(const struct changelog *log, const struct changelog_volume *volume, bool ends,
             struct buf *body, struct err *err)
{
    struct changelog_head head = { .seq = volume->out_seq,
                                   .prev = volume->out_gap ? 0 : volume->last_seq,
                                   .ends = ends };
    text_set(head.gateway, log->service->gateway_id);
    if (changelog_format_head(&head, body, err) != 0)
        return -1;
    return buf_append(body, buf_cstr(&volume->out), volume->out.len, err);
}

static int
send_object(struct changelog *log, struct changelog_volume *volume, bool ends,
            enum store_outcome *outcome, struct err *err)
{
    char key[LIMIT_KEY + 1];
    scope_buf body;
    struct store *store = log->service->store;
    struct store_put_result result = { .outcome = STORE_NOT_DONE };
    *outcome = STORE_NOT_DONE;
    buf_init(&body, CHANGELOG_OBJECT_MAX);
    changelog_write_key(volume, log->service->gateway_id, volume->out_seq, key);
    if (print_object(log, volume, ends, &body, err) != 0)
        return -1;
    struct store_put put = { .key = key,
                             .body = { .mem = body.data, .fd = -1, .size = body.len },
                             .content_type = "application/jsonl",
                             .deadline_ns = clock_mono_ns() + CHANGELOG_DEADLINE };
    if (store->caps.put_if_absent == STORE_YES)
        put.cond.kind = STORE_COND_ABSENT;
    int rc = store_put(store, &put, &result, err);
    *outcome = rc == 0 ? STORE_DONE : result.outcome;
    return rc;
}

static void
wrote_locked(struct changelog_volume *volume, bool ends)
{
    volume->last_seq = volume->out_seq;
    volume->has_out = false;
    buf_clear(&volume->out);
    volume->wrote_ns = clock_mono_ns();
    volume->not_before_ns = volume->wrote_ns + CHANGELOG_WRITE_EVERY;
    if (ends) {
        volume->joined = volume->leaving = false;
        volume->last_seq = 0;
    }
}

bool
changelog_write_now(struct changelog *log, struct changelog_volume *volume)
{
    struct err err = ERR_INIT;
    enum store_outcome outcome;
    pthread_mutex_lock(&log->lock);
    bool any = take_locked(volume);
    /* The last word is an object of its own when another one is on its way. */
    bool ends = any && volume->leaving && !volume->out_unknown && volume->line.len == 0;
    pthread_mutex_unlock(&log->lock);
    if (!any)
        return true;
    (void)send_object(log, volume, ends, &outcome, &err);
    pthread_mutex_lock(&log->lock);
    bool landed = outcome == STORE_DONE || (outcome == STORE_REFUSED && volume->out_unknown);
    if (landed) {
        wrote_locked(volume, ends);
    } else if (outcome == STORE_REFUSED) {
        /* Somebody else writes as this gateway: a copy of its state directory. */
        volume->out_seq++;
        volume->out_gap = true;
    } else {
        volume->out_unknown |= outcome == STORE_UNKNOWN;
        volume->not_before_ns = clock_mono_ns() + 2 * CHANGELOG_WRITE_EVERY;
    }
    bool left = !landed || volume->line.len > 0 || volume->say;
    pthread_mutex_unlock(&log->lock);
    if (!landed)
        log_debug(volume, "the change log was not written volume=%s why=%s", volume->name, err.msg);
    return !left;
}

/* ---- the thread ---- */

static struct changelog_volume *
next_due(struct changelog *log, unsigned *at, int64_t *pause_ns)
{
    int64_t now = clock_mono_ns();
    scope_unlock pthread_mutex_t *held = scope_lock(&log->lock);
    (void)held;
    while (*at < log->volumes) {
        struct changelog_volume *volume = log->volume[(*at)++];
        if (!volume->joined || (volume->line.len == 0 && !volume->say && !volume->has_out))
            continue;
        int64_t left = volume->not_before_ns - now;
        if (left <= 0)
            return volume;
        if (left < *pause_ns)
            *pause_ns = left;
    }
    return NULL;
}

int64_t
changelog_write_tick(void *arg)
{
    struct changelog *log = arg;
    struct changelog_volume *volume;
    int64_t pause_ns = 60 * NS_PER_S;
    unsigned at = 0;
    while ((volume = next_due(log, &at, &pause_ns)) != NULL)
        if (!changelog_write_now(log, volume))
            pause_ns = pause_ns < NS_PER_S / 4 ? pause_ns : NS_PER_S / 4;
    return pause_ns;
}
