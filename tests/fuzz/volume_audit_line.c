#include "tests/fuzz/fuzz.h"
#include "volume/audit_line.h"

/* A segment of the audit as somebody may have left it; the first byte says whether it is being written still. */

struct seen {
    const uint8_t *from, *end;
    uint64_t lines;
};

static int
see(void *arg, const struct audit_link *link, const char *line, size_t len, const char *fault,
    struct err *err)
{
    struct seen *seen = arg;
    (void)err;
    HOLDS((const uint8_t *)line >= seen->from && (const uint8_t *)line + len <= seen->end);
    HOLDS(fault != NULL || (link->seq > 0 && strlen(link->hash) == SHA256_HEX - 1));
    seen->lines++;
    return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct audit_walk walk;
    if (size < 1)
        return 0;
    struct seen seen = { data + 1, data + size, 0 };
    audit_walk_init(&walk);
    walk.open = data[0] % 2 != 0;
    walk.fn = see;
    walk.arg = &seen;
    HOLDS(audit_walk_lines(&walk, (const char *)data + 1, size - 1, &err) == 0);
    HOLDS(walk.records == seen.lines && walk.rest < size);
    return 0;
}
