#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/ticker.h"
#include "volume/changelog_impl.h"

/* Who else follows a volume, found by a listing, and the objects that each of them wrote since we looked last. */

#define READ_MOST 32u /* objects of one gateway at a time; who is further behind sweeps */
#define CLEAR_BATCH 256u

/* ---- numbers below a gateway's prefix ---- */

struct numbers {
    size_t prefix;
    const struct changelog_member *member; /* whose bad ones are passed over; NULL: none is */
    uint64_t seq[READ_MOST + 1];
    size_t count;
};

static bool
is_bad(const struct changelog_member *member, uint64_t seq)
{
    for (unsigned i = 0; member != NULL && i < CHANGELOG_BAD; i++)
        if (member->bad[i] == seq)
            return true;
    return false;
}

static void
mark_bad(struct changelog_member *member, uint64_t seq)
{
    member->bad[member->bads++ % CHANGELOG_BAD] = seq;
}

/* What a listing shows below the prefix and is no number of a gateway's clock is nobody's. */
static bool
read_number(const struct store_list_entry *entry, size_t prefix, uint64_t *seq)
{
    return !entry->is_prefix && strlen(entry->key) > prefix &&
           changelog_format_seq_read(entry->key + prefix, seq) && changelog_write_plausible(*seq);
}

static int
take_number(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct numbers *numbers = arg;
    uint64_t seq;
    (void)err;
    if (read_number(entry, numbers->prefix, &seq) && !is_bad(numbers->member, seq) &&
        numbers->count <= READ_MOST)
        numbers->seq[numbers->count++] = seq;
    return 0;
}

struct clearing {
    struct changelog *log;
    size_t prefix;
    uint64_t before, last;
    char *key[CLEAR_BATCH];
    size_t count;
};

static int
take_old(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct clearing *call = arg;
    uint64_t seq;
    bool number = read_number(entry, call->prefix, &seq);
    if (number)
        call->last = seq;
    /* With the gateway goes what is nobody's. */
    bool old = number ? seq < call->before : call->before == UINT64_MAX && !entry->is_prefix;
    if (!old || call->count == CLEAR_BATCH)
        return 0;
    call->key[call->count] = strdup(entry->key);
    if (call->key[call->count] == NULL)
        return err_nomem(err);
    call->count++;
    return 0;
}

/* `last` is found by the first listing; each further one has the next batch to remove. */
int
changelog_member_clear(struct changelog *log, const struct changelog_volume *volume,
                       const char *gateway, uint64_t before, uint64_t *last, struct err *err)
{
    char prefix[LIMIT_KEY + 1];
    struct clearing call = { .log = log, .before = before };
    size_t removed;
    int rc;
    changelog_write_key(volume, gateway, 0, prefix);
    call.prefix = strlen(prefix);
    do {
        struct store_list list = { .prefix = prefix,
                                   .fn = take_old,
                                   .arg = &call,
                                   .deadline_ns = clock_mono_ns() + CHANGELOG_DEADLINE };
        call.count = 0;
        rc = store_list(log->service->store, &list, err);
        removed = call.count;
        if (rc == 0 && removed > 0)
            rc = store_delete_many(log->service->store, (const char *const *)call.key, removed,
                                   clock_mono_ns() + CHANGELOG_DEADLINE, NULL, NULL, err);
        for (size_t i = 0; i < removed; i++)
            free(call.key[i]);
    } while (rc == 0 && removed == CLEAR_BATCH && !atomic_load(&log->service->stopping));
    *last = call.last;
    return rc;
}

/* ---- who there is ---- */

struct meeting {
    struct changelog *log;
    struct changelog_volume *volume;
    size_t prefix;
    bool crowded;
};

static struct changelog_member *
find_member(struct changelog_volume *volume, const char *gateway)
{
    for (unsigned i = 0; i < volume->members; i++)
        if (strcmp(volume->member[i].gateway, gateway) == 0)
            return &volume->member[i];
    return NULL;
}

static int
meet_gateway(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct meeting *call = arg;
    struct changelog_volume *volume = call->volume;
    char gateway[ULID_SIZE];
    (void)err;
    const char *name = entry->key + call->prefix;
    if (!entry->is_prefix || strlen(name) != ULID_LEN + 1)
        return 0;
    memcpy(gateway, name, ULID_LEN);
    gateway[ULID_LEN] = '\0';
    if (!ulid_valid(gateway) || strcmp(gateway, call->log->service->gateway_id) == 0)
        return 0;
    struct changelog_member *member = find_member(volume, gateway);
    if (member == NULL && volume->members < CHANGELOG_MEMBERS) {
        member = &volume->member[volume->members++];
        *member = (struct changelog_member){ .cursor = UINT64_MAX };
        text_set(member->gateway, gateway);
    }
    if (member != NULL)
        member->shown = true;
    call->crowded |= member == NULL;
    return 0;
}

/* What it wrote so far is covered by the sweep that it makes; only its last word is read, it may be that it ended. */
static int
begin_member(struct changelog *log, struct changelog_volume *volume,
             struct changelog_member *member, struct err *err)
{
    uint64_t last;
    if (changelog_member_clear(log, volume, member->gateway, 0, &last, err) != 0)
        return -1;
    member->cursor = last > 0 ? last - 1 : 0;
    member->fresh = true;
    member->heard_ns = clock_mono_ns();
    volume->sweep = true;
    log_info(volume, "another gateway follows volume=%s gateway=%s", volume->name, member->gateway);
    return 0;
}

static bool
is_over(const struct changelog_member *member, int64_t now)
{
    return now - member->heard_ns > CHANGELOG_SILENT ||
           (member->ended_ns != 0 && now - member->ended_ns > CHANGELOG_ENDED);
}

static int
tend_members(struct changelog *log, struct changelog_volume *volume, struct err *err)
{
    int64_t now = clock_mono_ns();
    for (unsigned i = volume->members; i-- > 0;) {
        struct changelog_member *member = &volume->member[i];
        uint64_t last;
        if (member->cursor == UINT64_MAX) {
            if (begin_member(log, volume, member, err) != 0)
                return -1;
            continue;
        }
        bool over = is_over(member, now);
        if (member->shown && !over)
            continue;
        if (over &&
            changelog_member_clear(log, volume, member->gateway, UINT64_MAX, &last, err) != 0)
            return -1;
        *member = volume->member[--volume->members];
    }
    return 0;
}

/* Whether somebody listens. Who comes new is told at once when there was something that nobody was told. */
static void
note_others(struct changelog *log, struct changelog_volume *volume)
{
    bool others = false;
    for (unsigned i = 0; i < volume->members; i++)
        others |= volume->member[i].ended_ns == 0;
    pthread_mutex_lock(&log->lock);
    bool news = others && !volume->others && volume->gap;
    volume->others = others;
    volume->say |= news;
    pthread_mutex_unlock(&log->lock);
    if (news)
        ticker_kick(log->writer);
}

int
changelog_member_list(struct changelog *log, struct changelog_volume *volume, struct err *err)
{
    char prefix[LIMIT_KEY + 1];
    struct meeting call = { .log = log, .volume = volume };
    (void)snprintf(prefix, sizeof(prefix), CHANGELOG_PREFIX "%s/", volume->name);
    call.prefix = strlen(prefix);
    for (unsigned i = 0; i < volume->members; i++)
        volume->member[i].shown = false;
    struct store_list list = { .prefix = prefix,
                               .delimiter = '/',
                               .fn = meet_gateway,
                               .arg = &call,
                               .deadline_ns = clock_mono_ns() + CHANGELOG_DEADLINE };
    if (store_list(log->service->store, &list, err) != 0)
        return -1;
    if (call.crowded)
        log_warn(volume, "more than %u gateways on one volume: not all are followed volume=%s",
                 CHANGELOG_MEMBERS, volume->name);
    int rc = tend_members(log, volume, err);
    note_others(log, volume);
    return rc;
}

/* ---- what they wrote ---- */

struct reading {
    const struct changelog_volume *volume;
    struct changelog_hints *hints;
};

static int
take_line(void *arg, const struct changelog_line *line, struct err *err)
{
    struct reading *reading = arg;
    return changelog_hint_add(reading->hints, reading->volume, line, err);
}

static int
read_object(struct changelog *log, struct changelog_volume *volume, struct changelog_member *member,
            uint64_t seq, struct changelog_hints *hints, struct err *err)
{
    char key[LIMIT_KEY + 1];
    scope_free char *data = NULL;
    size_t len;
    struct changelog_head head;
    struct err local = ERR_INIT;
    struct reading reading = { volume, hints };
    struct changelog_sink sink = { .line = take_line, .arg = &reading };
    changelog_write_key(volume, member->gateway, seq, key);
    if (store_get_small(log->service->store, key, CHANGELOG_OBJECT_MAX, &data, &len, NULL,
                        &local) != 0) {
        if (local.code != ERR_NOT_FOUND && local.code != ERR_TOO_LARGE) {
            *err = local;
            return -1;
        }
        len = 0;
    }
    int rc = changelog_format_read(data, len, &head, &sink, &local);
    if (rc != 0 && local.code != ERR_CORRUPT) {
        *err = local;
        return -1;
    }
    if (rc != 0 || strcmp(head.gateway, member->gateway) != 0 || head.seq != seq) {
        log_debug(volume, "an object of the change log is none key=%s", key);
        mark_bad(member, seq);
        volume->sweep = true;
        return 0;
    }
    if ((head.prev != member->cursor && !member->fresh) || sink.odd > 0)
        volume->sweep = true;
    member->fresh = false;
    member->cursor = seq;
    member->heard_ns = clock_mono_ns();
    member->ended_ns = head.ends ? member->heard_ns : 0;
    return 0;
}

/* Too far behind to read it all. */
static int
skip_to_end(struct changelog *log, struct changelog_volume *volume, struct changelog_member *member,
            struct err *err)
{
    uint64_t last;
    if (changelog_member_clear(log, volume, member->gateway, 0, &last, err) != 0)
        return -1;
    member->cursor = last > member->cursor ? last : member->cursor;
    member->heard_ns = clock_mono_ns();
    volume->sweep = true;
    return 0;
}

static int
read_member(struct changelog *log, struct changelog_volume *volume, struct changelog_member *member,
            struct changelog_hints *hints, struct err *err)
{
    char prefix[LIMIT_KEY + 1], after[LIMIT_KEY + 1];
    struct numbers numbers = { .member = member };
    changelog_write_key(volume, member->gateway, 0, prefix);
    changelog_write_key(volume, member->gateway, member->cursor, after);
    numbers.prefix = strlen(prefix);
    struct store_list list = { .prefix = prefix,
                               .start_after = member->cursor > 0 ? after : NULL,
                               .limit = READ_MOST + CHANGELOG_BAD + 1,
                               .fn = take_number,
                               .arg = &numbers,
                               .deadline_ns = clock_mono_ns() + CHANGELOG_DEADLINE };
    if (store_list(log->service->store, &list, err) != 0)
        return -1;
    if (numbers.count > READ_MOST)
        return skip_to_end(log, volume, member, err);
    for (size_t i = 0; i < numbers.count; i++)
        if (read_object(log, volume, member, numbers.seq[i], hints, err) != 0)
            return -1;
    return 0;
}

int
changelog_member_read(struct changelog *log, struct changelog_volume *volume,
                      struct changelog_hints *hints, struct err *err)
{
    int rc = 0;
    for (unsigned i = 0; i < volume->members; i++) {
        struct err local = ERR_INIT;
        if (volume->member[i].cursor == UINT64_MAX ||
            read_member(log, volume, &volume->member[i], hints, &local) == 0)
            continue;
        /* The others' are read all the same. */
        *err = local;
        rc = -1;
    }
    note_others(log, volume);
    return rc;
}
