#include "gateway/sandbox.h"

#include "tests/fuzz/fuzz.h"

/* The launcher's packets come from any client of its socket: what passes binds nothing but volumes, to allowed places. */

#define MOUNTS "/state/mnt"

static void
check_binds(const struct sandbox_args *args)
{
    static const char *const dangerous[] = { "--bind", "--ro-bind", "--dev-bind" };
    for (size_t i = 0; i + 2 < args->command; i++) {
        for (size_t k = 0; k < 3; k++) {
            const char *from = args->argv[i + 1];
            if (strcmp(args->argv[i], dangerous[k]) != 0 || strcmp(from, "/usr") == 0)
                continue;
            HOLDS(strncmp(from, MOUNTS "/", strlen(MOUNTS) + 1) == 0 && !strstr(from, "/../"));
            HOLDS(gateway_sandbox_place_ok(args->argv[i + 2]));
        }
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sandbox_fds fds = { .status = 5, .passwd = 6, .group = 7 };
    struct err err = ERR_INIT;
    struct sandbox_args *args = calloc(1, sizeof(*args));
    char *text = fuzz_text(data, size);
    json_t *spec = json_parse(text, size, &err);
    HOLDS(args);
    if (spec && gateway_sandbox_args(spec, MOUNTS, &fds, args, &err) == 0) {
        HOLDS(args->count < SANDBOX_ARGS_MAX && !args->argv[args->count]);
        HOLDS(args->command < args->count && strcmp(args->argv[args->command], "--") == 0);
        check_binds(args);
    }
    if (gateway_sandbox_place_ok(text))
        HOLDS(text[0] == '/' && text[1] && !strstr(text, "//") && !strstr(text, "/../"));
    json_decref(spec);
    free(text);
    free(args);
    return 0;
}
