#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "gateway/cli/cli.h"

/* The way back: restore of a file, folder or volume, undo of a run. */

#define STEPS_MOST "100000"
#define WORK_SECONDS 3600 /* for the work itself; --timeout is the wait for the bucket behind it */

/* ---- what was done ---- */
static void
add_step(struct table *table, const json_t *step, bool why)
{
    char path[LIMIT_PATH + 1];
    char to[LIMIT_PATH + 1];
    char line[2 * LIMIT_PATH + 8];
    const char *action = get_text(step, "action");
    bool bytes = strcmp(action, "write") == 0 || strcmp(action, "create") == 0;
    const char *from = get_bytes(step, "path", path, sizeof(path));
    const char *target = get_bytes(step, "to", to, sizeof(to));
    (void)snprintf(line, sizeof(line), "%s%s%s", from, target[0] != '\0' ? " -> " : "", target);
    table_add(table, get_bool(step, "failed") ? "FAILED" : action);
    if (bytes)
        table_add_size(table, get_int(step, "size"));
    else
        table_add(table, "-");
    table_add(table, get_text(step, "version")), table_add(table, line);
    if (why)
        table_add(table, get_text(step, "why"));
}

static void
print_steps(const json_t *answer)
{
    struct table table;
    size_t i;
    bool why = false;
    json_t *step;
    json_t *steps = json_object_get(answer, "steps");
    json_array_foreach (steps, i, step)
        why = why || get_text(step, "why")[0] != '\0';
    if (json_array_size(steps) > 0) {
        table_init(&table, why ? 5 : 4);
        table_add(&table, "ACTION"), table_add(&table, "SIZE"), table_add(&table, "VERSION");
        table_add(&table, "PATH");
        if (why)
            table_add(&table, "WHY");
        json_array_foreach (steps, i, step)
            add_step(&table, step, why);
        table_print(&table);
    }
    if (get_bool(answer, "truncated"))
        print_line("... and more: the list was cut off, the numbers below count all");
}

/* The last line: how much, and how to take it back. */
static void
print_sum(const json_t *answer)
{
    const char *run = get_text(answer, "run");
    bool dry = get_bool(answer, "dry_run");
    if (get_int(answer, "done") + get_int(answer, "skipped") + get_int(answer, "failed") == 0) {
        print_line("nothing to do: all is as it was then");
        return;
    }
    print_line("%lld %s, %lld skipped, %lld failed", (long long)get_int(answer, "done"),
               dry ? "to do" : "done", (long long)get_int(answer, "skipped"),
               (long long)get_int(answer, "failed"));
    if (!dry && run[0] != '\0' && get_int(answer, "done") > 0)
        print_line("take it back with: holdfast undo --run %s %s", run, get_text(answer, "volume"));
}

static int
finish(struct cli *cli, json_t *answer, struct err *err)
{
    scope_json *held = answer;
    int64_t skipped = get_int(held, "skipped");
    int64_t failed = get_int(held, "failed");
    if (cli->json && print_json(held, err) < 0)
        return -1;
    if (!cli->json) {
        print_steps(held);
        print_sum(held);
    }
    if (get_bool(held, "dry_run"))
        return 0;
    if (failed > 0)
        return err_set(err, ERR_IO, "%lld steps failed", (long long)failed);
    if (skipped > 0)
        return err_set(err, ERR_CONFLICT, "%lld were left as they are: somebody changed them since",
                       (long long)skipped);
    if (!get_bool(held, "synced"))
        return err_set(err, ERR_NOT_SYNCED,
                       "done, and safe on this machine, but not all of it is in the bucket yet");
    return 0;
}

struct way_words {
    const char *version, *at, *run, *timeout, *limit;
    bool dry_run;
};

/* Adds what both calls take, sends, and prints the answer. Takes `body`. */
static int
call(struct cli *cli, const char *target, json_t *body, const struct way_words *w, struct err *err)
{
    uint64_t seconds = 60;
    uint64_t limit;
    json_t *answer = NULL;
    scope_json *held = body;
    if (!held)
        return err_set(err, ERR_INVAL, "names given here must be UTF-8");
    if (w->timeout && (!parse_u64(w->timeout, &seconds) || seconds > 86400))
        return err_set(err, ERR_USAGE, "--timeout is 0 to 86400 seconds");
    if (!parse_u64(w->limit ? w->limit : STEPS_MOST, &limit) || limit > 100000)
        return err_set(err, ERR_USAGE, "--limit is 0 to " STEPS_MOST);
    if (json_object_set_new(held, "dry_run", json_boolean(w->dry_run)) < 0 ||
        json_object_set_new(held, "timeout_s", json_integer((json_int_t)seconds)) < 0 ||
        json_object_set_new(held, "limit", json_integer((json_int_t)limit)) < 0)
        return err_nomem(err);
    struct json_call request = { "POST", target, json_incref(held), (int)seconds + WORK_SECONDS };
    if (client_json(cli, &request, &answer, err) < 0)
        return -1;
    return finish(cli, answer, err);
}

int
cmd_restore(struct cli *cli, int argc, char **argv, struct err *err)
{
    struct way_words w = { 0 };
    struct place place;
    char hex[2 * LIMIT_PATH + 1];
    char at[TIME_RFC3339_SIZE];
    const char *words[1];
    const struct cli_option options[] = {
        { "version", 0, CLI_TEXT, &w.version }, { "at", 0, CLI_TEXT, &w.at },
        { "dry-run", 0, CLI_FLAG, &w.dry_run }, { "timeout", 0, CLI_TEXT, &w.timeout },
        { "limit", 0, CLI_TEXT, &w.limit },     { NULL, 0, CLI_FLAG, NULL }
    };
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 1, words }, err) < 0 ||
        place_read(words[0], false, &place, err) < 0)
        return -1;
    if (w.version && w.at)
        return err_set(err, ERR_USAGE, "--version and --at exclude each other");
    if (place.path[0] == '\0' && !w.at)
        return err_set(err, ERR_USAGE, "a whole volume goes back to a time: --at TIME");
    if (w.at && place_time(w.at, at, err) < 0)
        return -1;
    size_t len = strlen(place.path);
    bool text = utf8_valid(place.path, len);
    hex_encode(place.path, len, hex);
    return call(cli, "/v1/restore",
                json_pack("{s:s, s:s, s:s*, s:s*}", "volume", place.volume,
                          text ? "path" : "path_hex", text ? place.path : hex, "version", w.version,
                          "at", w.at ? at : NULL),
                &w, err);
}

/* ---- undo ---- */

/* The volume that is meant when none is named: the only one. */
static int
only_volume(struct cli *cli, char *out, size_t size, struct err *err)
{
    json_t *answer = NULL;
    if (client_json(cli, &(struct json_call){ "GET", "/v1/volumes", NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    json_t *list = json_object_get(held, "volumes");
    if (json_array_size(list) == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no volume");
    if (json_array_size(list) > 1)
        return err_set(err, ERR_USAGE, "there are several volumes: holdfast undo --run ID VOLUME");
    (void)snprintf(out, size, "%s", get_text(json_array_get(list, 0), "name"));
    return 0;
}

int
cmd_undo(struct cli *cli, int argc, char **argv, struct err *err)
{
    struct way_words w = { 0 };
    char volume[LIMIT_VOLUME_NAME + 1];
    const char *words[1];
    const struct cli_option options[] = { { "run", 0, CLI_TEXT, &w.run },
                                          { "dry-run", 0, CLI_FLAG, &w.dry_run },
                                          { "timeout", 0, CLI_TEXT, &w.timeout },
                                          { "limit", 0, CLI_TEXT, &w.limit },
                                          { NULL, 0, CLI_FLAG, NULL } };
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 0, 1, words }, err);
    if (count < 0)
        return -1;
    if (!w.run || w.run[0] == '\0')
        return err_set(err, ERR_USAGE, "say which run: --run ID");
    if (count == 1) {
        if (path_check_volume(words[0], err) < 0)
            return -1;
        (void)snprintf(volume, sizeof(volume), "%s", words[0]);
    } else if (only_volume(cli, volume, sizeof(volume), err) < 0) {
        return -1;
    }
    return call(cli, "/v1/undo", json_pack("{s:s, s:s}", "volume", volume, "run", w.run), &w, err);
}
