#include "tests/fuzz/fuzz.h"
#include "volume/changelog_format.h"

/* An object of the change log that anybody may have put there; what is understood of it is written and read again. */

static struct changelog_line last;
static unsigned lines;

static int
see_line(void *arg, const struct changelog_line *line, struct err *err)
{
    struct buf *again = arg;
    size_t len = strlen(line->path);
    HOLDS(len > 0 && len <= LIMIT_PATH + 1 && line->path[0] != '/' && !strstr(line->path, "//"));
    HOLDS(memchr(line->etag, 0, sizeof(line->etag)) && memchr(line->actor, 0, sizeof(line->actor)));
    HOLDS(line->version[0] == '\0' || ulid_valid(line->version));
    HOLDS(line->time_ns >= 0);
    last = *line;
    lines++;
    HOLDS(changelog_format_line(line, again, err) == 0);
    return 0;
}

static int
same_line(void *arg, const struct changelog_line *line, struct err *err)
{
    (void)err;
    (*(unsigned *)arg)++;
    if (*(unsigned *)arg == lines)
        HOLDS(strcmp(line->path, last.path) == 0 && line->gone == last.gone &&
              line->size == (last.gone ? 0 : last.size) && strcmp(line->etag, last.etag) == 0);
    return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct changelog_head head, head_again;
    unsigned seen = 0;
    struct buf again;
    char *text = fuzz_text(data, size);
    buf_init(&again, 8u << 20);
    struct changelog_sink first_sink = { .line = see_line, .arg = &again };
    struct changelog_sink again_sink = { .line = same_line, .arg = &seen };
    lines = 0;
    struct changelog_head first = { .gateway = "01ARZ3NDEKTSV4RRFFQ69G5FAV", .seq = 2, .prev = 1 };
    HOLDS(changelog_format_head(&first, &again, &err) == 0);
    if (changelog_format_read(text, size, &head, &first_sink, &err) == 0 &&
        again.len <= CHANGELOG_OBJECT_MAX) {
        HOLDS(ulid_valid(head.gateway) && head.prev < head.seq);
        HOLDS(changelog_format_read(again.data, again.len, &head_again, &again_sink, &err) == 0);
        HOLDS(again_sink.odd == 0 && seen == lines && head_again.seq == 2);
    }
    buf_release(&again);
    free(text);
    return 0;
}
