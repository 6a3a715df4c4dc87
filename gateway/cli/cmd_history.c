#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "gateway/cli/cli.h"

/* What is known of files' versions: history of one, trash of a folder. */

static int
read_limit(const char *text, char *out, size_t size, struct err *err)
{
    uint64_t limit = 1000;
    if (text && (!parse_u64(text, &limit) || limit < 1 || limit > 10000))
        return err_set(err, ERR_USAGE, "--limit is 1 to 10000");
    (void)snprintf(out, size, "limit=%llu", (unsigned long long)limit);
    return 0;
}

/* A copy that nobody's version id names is named by its own. */
static const char *
version_of(const json_t *v)
{
    const char *version = get_text(v, "version");
    return version[0] != '\0' ? version : get_text(v, "id");
}

static const char *
actor_of(const json_t *v)
{
    const char *run = get_text(v, "run");
    return run[0] != '\0' ? run : get_text(v, "actor");
}

/* Whether its writer had read what others changed meanwhile. */
static const char *
stale_words(const json_t *v)
{
    const json_t *stale = json_object_get(v, "stale_reads");
    if (!stale)
        return "";
    return get_int(stale, "changed") > 0 ? "; read stale" : "; reads not all known";
}

/* When and by what a version ended to be the present one. */
static void
end_text(const json_t *v, char *out, size_t size)
{
    static const struct {
        const char *op, *words;
    } words[] = { { "write", "overwritten" },
                  { "replace", "replaced" },
                  { "delete", "removed" },
                  { "move", "moved over" },
                  { "foreign", "replaced by others" } };
    char when[20];
    const json_t *gone = json_object_get(v, "gone");
    const char *op = get_text(gone, "op");
    if (get_bool(v, "present")) {
        (void)snprintf(out, size, "%s%s", get_bool(v, "synced") ? "present" : "present, staged",
                       stale_words(v));
        return;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        op = strcmp(op, words[i].op) == 0 ? words[i].words : op;
    format_local(get_text(gone, "time"), when);
    (void)snprintf(out, size, "%s %s%s", when, op, stale_words(v));
}

static void
add_version(struct table *table, const json_t *v, const char *path)
{
    char when[20];
    char end[80];
    char own[LIMIT_PATH + 1];
    format_local(get_text(v, "made"), when);
    end_text(v, end, sizeof(end));
    table_add(table, version_of(v)), table_add(table, when);
    table_add_size(table, get_int(v, "size"));
    table_add(table, actor_of(v)), table_add(table, end);
    if (path)
        table_add(table, get_bytes(v, "path", own, sizeof(own)));
}

/* Whether a version lay elsewhere: then each row says where. */
static bool
was_moved(const json_t *versions, const char *path)
{
    char own[LIMIT_PATH + 1];
    size_t i;
    json_t *v;
    json_array_foreach ((json_t *)(uintptr_t)versions, i, v) {
        if (strcmp(get_bytes(v, "path", own, sizeof(own)), path) != 0)
            return true;
    }
    return false;
}

static void
tell_more(const json_t *answer, const char *what)
{
    if (get_bool(answer, "truncated"))
        (void)fprintf(stderr, "holdfast: there are more: %s\n", what);
}

int
cmd_history(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *limit = NULL;
    const char *words[1];
    char query[48] = "?";
    struct place place;
    struct table table;
    json_t *answer = NULL;
    size_t i;
    json_t *v;
    const struct cli_option options[] = { { "limit", 0, CLI_TEXT, &limit },
                                          { NULL, 0, CLI_FLAG, NULL } };
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 1, words }, err) < 0 ||
        place_read(words[0], true, &place, err) < 0 ||
        read_limit(limit, query + 1, sizeof(query) - 1, err) < 0 ||
        place_get(cli, "/v1/history", &place, query, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json)
        return print_json(held, err);
    json_t *versions = json_object_get(held, "versions");
    const char *path = was_moved(versions, place.path) ? place.path : NULL;
    table_init(&table, path ? 6 : 5);
    table_add(&table, "VERSION"), table_add(&table, "MADE"), table_add(&table, "SIZE");
    table_add(&table, "BY"), table_add(&table, "UNTIL");
    if (path)
        table_add(&table, "PATH");
    json_array_foreach (versions, i, v)
        add_version(&table, v, path);
    table_print(&table);
    tell_more(held, "--limit takes up to 10000");
    return 0;
}

/* ---- trash ---- */
static void
add_removed(struct table *table, const json_t *v)
{
    char when[20];
    char path[LIMIT_PATH + 1];
    const json_t *gone = json_object_get(v, "gone");
    format_local(get_text(gone, "time"), when);
    table_add(table, when);
    table_add_size(table, get_int(v, "size"));
    table_add(table, actor_of(gone)), table_add(table, version_of(v));
    table_add(table, get_bytes(v, "path", path, sizeof(path)));
}

static int
list_trash(struct cli *cli, const char *word, const char *limit, struct err *err)
{
    struct place place;
    struct table table;
    char number[32];
    scope_buf target;
    json_t *answer = NULL;
    size_t i;
    json_t *v;
    buf_init(&target, LIMIT_HTTP_TARGET);
    if (cli_place(word, place.volume, place.path, err) < 0 ||
        read_limit(limit, number, sizeof(number), err) < 0 ||
        buf_appendf(&target, err, "/v1/trash/%s?%s&prefix=", place.volume, number) < 0 ||
        percent_encode(place.path, strlen(place.path), false, &target, err) < 0 ||
        client_json(cli, &(struct json_call){ "GET", buf_cstr(&target), NULL, 60 }, &answer, err) <
            0)
        return -1;
    scope_json *held = answer;
    if (cli->json)
        return print_json(held, err);
    table_init(&table, 5);
    table_add(&table, "REMOVED"), table_add(&table, "SIZE"), table_add(&table, "BY");
    table_add(&table, "VERSION"), table_add(&table, "PATH");
    json_array_foreach (json_object_get(held, "files"), i, v)
        add_removed(&table, v);
    table_print(&table);
    tell_more(held, "name a folder, --limit takes up to 10000");
    return 0;
}

int
cmd_trash(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *limit = NULL;
    const char *words[2];
    const struct cli_option options[] = { { "limit", 0, CLI_TEXT, &limit },
                                          { NULL, 0, CLI_FLAG, NULL } };
    /* What comes back comes back as anything else does. */
    if (argc > 1 && strcmp(argv[0], "restore") == 0)
        return cmd_restore(cli, argc - 1, argv + 1, err);
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 1, words }, err) < 0)
        return -1;
    return list_trash(cli, words[0], limit, err);
}
