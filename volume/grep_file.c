#include <fcntl.h>
#include <stdlib.h>

#include "base/parse.h"
#include "volume/grep_impl.h"

#define LOOKED_AT 8192u /* for a NUL, which no text has */
#define ROOM_MIN (256u << 10)
#define LINES_MAX (32u << 20) /* of one file */

/* ---- its bytes ---- */
static int
make_room(struct grep_hand *hand, size_t size, struct err *err)
{
    if (size <= hand->room)
        return 0;
    size_t room = size < ROOM_MIN ? ROOM_MIN : size;
    char *more = malloc(room);
    if (more == NULL)
        return err_nomem(err);
    free(hand->bytes);
    hand->bytes = more;
    hand->room = room;
    return 0;
}

/* 1: all of it is here and was read; 0: it is not here. */
static int
read_cached(struct grep_hand *hand, const struct grep_item *item, size_t *len, struct err *err)
{
    struct err absent = ERR_INIT;
    uint64_t size;
    if (item->content == 0)
        return 0;
    struct cache_file *file = cache_get(hand->job->service->cache, item->content, &absent);
    if (file == NULL)
        return 0;
    int rc = cache_complete(file) && cache_file_size(file, &size, &absent) == 0;
    if (rc == 1 && size > GREP_FILE_MAX)
        size = GREP_FILE_MAX; /* it grew since it was looked at */
    if (rc == 1 && make_room(hand, (size_t)size, err) != 0)
        rc = -1;
    if (rc == 1) {
        ssize_t got = size == 0 ? 0 : cache_file_read(file, hand->bytes, (size_t)size, 0, &absent);
        rc = got >= 0;
        *len = got >= 0 ? (size_t)got : 0;
    }
    cache_put(file);
    return rc;
}

/* By the one way that everybody reads, which fetches. */
static int
read_fetched(struct grep_hand *hand, struct grep_item *item, size_t *len, struct err *err)
{
    struct grep_job *job = hand->job;
    struct volume_file *file = NULL;
    struct err why = ERR_INIT;
    int64_t size = (int64_t)item->size;
    item->fate = GREP_ABSENT;
    if (atomic_fetch_sub(&job->fetch_left, size) < size) {
        atomic_fetch_add(&job->fetch_left, size);
        return 0;
    }
    item->fate = GREP_FAILED;
    if (make_room(hand, (size_t)item->size + 1, err) != 0)
        return -1;
    if (volume_file_open(job->service, job->ctx, item->node, O_RDONLY, &file, &why) != 0)
        return why.code == ERR_NOMEM ? err_nomem(err) : 0;
    ssize_t got = 0;
    size_t have = 0;
    while (have < item->size && (got = volume_file_read(file, job->ctx, hand->bytes + have,
                                                        item->size - have, have, &why)) > 0)
        have += (size_t)got;
    volume_file_close(file, job->ctx);
    *len = have;
    return got >= 0;
}

/* ---- what is told of a line ---- */
struct telling {
    struct grep_hand *hand;
    struct grep_item *item;
    size_t len;
    uint64_t most;
    /* Context: lines up to here are told; of the last hit so many are still to come. */
    uint64_t told;
    size_t told_end;
    unsigned owed;
};

/* A part of the line that begins and ends with whole characters. */
static void
clip(const char *bytes, const struct pattern_hit *hit, size_t *from, size_t *to)
{
    size_t before = hit->match - hit->start;
    *from = hit->start + (before > GREP_CLIP / 4 ? before - GREP_CLIP / 4 : 0);
    if (hit->end - hit->start <= GREP_CLIP)
        *from = hit->start;
    *to = hit->end - *from > GREP_CLIP ? *from + GREP_CLIP : hit->end;
    while (*from < hit->match && ((unsigned char)bytes[*from] & 0xc0) == 0x80)
        (*from)++;
    while (*to<hit->end && * to> * from && ((unsigned char)bytes[*to] & 0xc0) == 0x80)
        (*to)--;
}

static int
tell_line(struct telling *tell, const struct pattern_hit *hit, bool context, struct err *err)
{
    const char *bytes = tell->hand->bytes;
    size_t from, to;
    clip(bytes, hit, &from, &to);
    struct grep_line line = { .line = hit->line,
                              .column = context ? 0 : hit->match - hit->start + 1,
                              .clipped = from > hit->start || to < hit->end,
                              .context = context };
    if (to == hit->end && to > from && bytes[to - 1] == '\r')
        to--;
    line.len = to - from;
    tell->told = hit->line;
    tell->told_end = hit->end + 1;
    return buf_append(&tell->item->lines, &line, sizeof(line), err) < 0 ||
                   buf_append(&tell->item->lines, bytes + from, line.len, err) < 0
               ? -1
               : 0;
}

/* Lines from behind the last one that was told, as many as are owed, but none from `end` on. */
static int
tell_behind(struct telling *tell, size_t end, struct err *err)
{
    const char *bytes = tell->hand->bytes;
    while (tell->owed > 0 && tell->told_end < end) {
        size_t start = tell->told_end;
        const char *stop = memchr(bytes + start, '\n', tell->len - start);
        size_t line_end = stop != NULL ? (size_t)(stop - bytes) : tell->len;
        struct pattern_hit line = { tell->told + 1, start, line_end, start, start };
        tell->owed--;
        if (tell_line(tell, &line, true, err) != 0)
            return -1;
    }
    return 0;
}

static int
tell_before(struct telling *tell, const struct pattern_hit *hit, struct err *err)
{
    const char *bytes = tell->hand->bytes;
    unsigned lines = tell->hand->job->want->context;
    size_t start = hit->start;
    uint64_t line = hit->line;
    while (lines-- > 0 && line > tell->told + 1 && start > 0) {
        const char *before = start > 1 ? memrchr(bytes, '\n', start - 1) : NULL;
        start = before != NULL ? (size_t)(before - bytes) + 1 : 0;
        line--;
    }
    if (line == hit->line)
        return 0;
    tell->told = line - 1;
    tell->told_end = start;
    tell->owed = (unsigned)(hit->line - line);
    return tell_behind(tell, hit->start, err);
}

static int
take_hit(void *arg, const struct pattern_hit *hit, struct err *err)
{
    struct telling *tell = arg;
    const struct volume_grep *want = tell->hand->job->want;
    if (tell->item->hits == tell->most)
        return 1;
    tell->item->hits++;
    if (want->mode != VOLUME_GREP_LINES)
        return want->mode == VOLUME_GREP_FILES;
    if (want->context > 0 &&
        (tell_behind(tell, hit->start, err) != 0 || tell_before(tell, hit, err) != 0))
        return -1;
    tell->owed = want->context;
    return tell_line(tell, hit, false, err);
}

static int
search(struct grep_hand *hand, struct grep_item *item, size_t len, uint64_t most, struct err *err)
{
    struct telling tell = {
        .hand = hand, .item = item, .len = len, .most = most, .told = item->after_line
    };
    enum pattern_end end;
    item->fate = GREP_BINARY;
    if (len > 0 && memchr(hand->bytes, '\0', len < LOOKED_AT ? len : LOOKED_AT) != NULL)
        return 0;
    item->fate = GREP_SEARCHED;
    if (len == 0)
        return 0;
    if (pattern_lines(hand->matcher, hand->bytes, len, item->after_line, take_hit, &tell, &end,
                      err) != 0) {
        item->cut = err->code == ERR_TOO_LARGE; /* the rest of its lines comes with the next page */
        return item->cut ? 0 : -1;
    }
    if (end == PATTERN_LIMIT)
        item->fate = GREP_HARD;
    return hand->job->want->mode == VOLUME_GREP_LINES ? tell_behind(&tell, len, err) : 0;
}

int
grep_file(struct grep_hand *hand, struct grep_item *item, uint64_t most, struct err *err)
{
    size_t len = 0;
    item->fate = GREP_LARGE;
    buf_init(&item->lines, LINES_MAX);
    if (item->size > GREP_FILE_MAX)
        return 0;
    int rc = read_cached(hand, item, &len, err);
    if (rc == 0)
        rc = read_fetched(hand, item, &len, err);
    return rc <= 0 ? rc : search(hand, item, len, most, err);
}
