#include "base/glob.h"

#include "tests/fuzz/fuzz.h"

/* A pattern and, behind a newline, a path: any pattern is refused or means something, a name that is its own pattern is found, and what
 * lies below where nothing more can match does not match. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    const uint8_t *line = memchr(data, '\n', size);
    size_t len = line ? (size_t)(line - data) : size;
    char *path = fuzz_text(line ? line + 1 : data, line ? size - len - 1 : 0);
    struct glob *glob = NULL;
    if (glob_compile((const char *)data, len, &glob, &err) == 0) {
        struct glob_at at, next;
        bool found = glob_match(glob, path), dead = false;
        const char *rest = path, *name;
        size_t rest_len = strlen(path), name_len;
        glob_start(glob, &at);
        HOLDS(!glob_done(glob, &at) && glob_more(glob, &at));
        while (rest_len > 0) {
            name = rest;
            name_len = strcspn(rest, "/");
            rest += name_len + (rest[name_len] == '/');
            rest_len = strlen(rest);
            glob_step(glob, &at, name, name_len, &next);
            HOLDS(!dead || (!glob_done(glob, &next) && !glob_more(glob, &next)));
            dead = !glob_more(glob, &next);
            at = next;
        }
        HOLDS(strstr(path, "//") || found == glob_done(glob, &at) || path[0] == '/');
        glob_free(glob);
    }
    free(path);
    return 0;
}
