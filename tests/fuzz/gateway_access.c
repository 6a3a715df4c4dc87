#include "gateway/router.h"

#include "base/path.h"
#include "tests/fuzz/fuzz.h"

#define FOLDER "in/here"

/* Says by itself whether a path lies in the folder: whole components, none of them a way up. */
static bool
is_inside(const char *path)
{
    size_t len = strlen(FOLDER);
    if (strncmp(path, FOLDER, len) != 0 || (path[len] != '\0' && path[len] != '/'))
        return false;
    for (const char *at = path; *at != '\0'; at += strspn(at, "/")) {
        size_t part = strcspn(at, "/");
        if ((part == 1 && at[0] == '.') || (part == 2 && at[0] == '.' && at[1] == '.'))
            return false;
        at += part;
    }
    return true;
}

static void
fill(struct gateway_access *access)
{
    *access = (struct gateway_access){ .who = GATEWAY_TOKEN,
                                       .verbs = GATEWAY_EVERYTHING,
                                       .volume = 7,
                                       .volume_name = "v",
                                       .folder = FOLDER };
}

/* Whatever the address: who is let in by its path is in the volume and below the folder. */
static void
try_target(const char *text)
{
    struct err err = ERR_INIT;
    struct exchange *x = exchange_new(NULL, false, "GET", text, &err);
    if (!x)
        return;
    fill(&x->access);
    if (gateway_request_target(x->raw, &x->target, &err) == 0 &&
        gateway_router_find(x, &err) == 0 && x->route->need.scope == GATEWAY_SCOPE_PATH &&
        gateway_access_begin(x, &err) == 0) {
        HOLDS(strcmp(x->name, "v") == 0);
        HOLDS(is_inside(x->path));
        HOLDS(!memchr(x->target.path.data, 0, x->target.path.len));
    }
    exchange_free(x);
}

static void
check_field(const json_t *body, const char *name)
{
    const char *path = json_string_value(json_object_get(body, name));
    if (path)
        HOLDS(is_inside(path + (path[0] == '/')));
}

/* The same for the paths of a body. */
static void
try_body(const char *text, size_t len)
{
    struct err err = ERR_INIT;
    struct gateway_access access;
    fill(&access);
    scope_json *body = json_parse(text, len, &err);
    if (!body || !json_is_object(body) ||
        gateway_access_fields(&access, body, "path,path_hex,from,to", &err) < 0)
        return;
    HOLDS(strcmp(json_string_value(json_object_get(body, "volume")), "v") == 0);
    check_field(body, "path");
    check_field(body, "from");
    check_field(body, "to");
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    if (text[0] == '/')
        try_target(text);
    else
        try_body(text, strlen(text));
    free(text);
    return 0;
}
