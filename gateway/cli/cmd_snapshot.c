#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "gateway/cli/cli.h"

/* ---- snapshot create | list | show | diff | restore | fork | delete ---- */

#define WORK_SECONDS 3600

struct snapshot_words {
    struct cli *cli;
    const char *words[4];
    int count;
    const char *path, *limit, *timeout;
    bool dry_run, no_wait;
};

static int
target_of(const struct snapshot_words *w, bool named, char *out, size_t size, struct err *err)
{
    if (path_check_volume(w->words[1], err) < 0)
        return -1;
    if (named && path_check_volume(w->words[2], err) < 0)
        return err_wrap(err, "the snapshot");
    (void)snprintf(out, size, "/v1/snapshots/%s%s%s", w->words[1], named ? "/" : "",
                   named ? w->words[2] : "");
    return 0;
}

static int
wait_seconds(const struct snapshot_words *w, uint64_t *out, struct err *err)
{
    *out = 60;
    if (w->timeout && (!parse_u64(w->timeout, out) || *out < 1 || *out > 86400))
        return err_set(err, ERR_USAGE, "--timeout is 1 to 86400 seconds");
    return 0;
}

static int
do_create(const struct snapshot_words *w, struct err *err)
{
    char target[256];
    uint64_t seconds;
    json_t *answer = NULL;
    if (target_of(w, false, target, sizeof(target), err) < 0 || wait_seconds(w, &seconds, err) < 0)
        return -1;
    json_t *body = json_pack("{s:s, s:I}", "name", w->words[2], "timeout_s", (json_int_t)seconds);
    if (!body)
        return err_set(err, ERR_INVAL, "the name must be UTF-8");
    if (client_json(w->cli, &(struct json_call){ "POST", target, body, (int)seconds + 60 }, &answer,
                    err) < 0)
        return -1;
    scope_json *held = answer;
    if (w->cli->json)
        return print_json(held, err);
    print_line("%s@%s is the volume as of %s", w->words[1], get_text(held, "name"),
               get_text(held, "at"));
    return 0;
}

static void
add_row(struct table *table, const json_t *snapshot)
{
    char when[20], files[24];
    const char *run = get_text(snapshot, "run");
    bool published = get_bool(snapshot, "published");
    format_local(get_text(snapshot, "at"), when);
    (void)snprintf(files, sizeof(files), "%lld", (long long)get_int(snapshot, "files"));
    table_add(table, get_text(snapshot, "name")), table_add(table, when);
    table_add(table, published ? files : "-");
    if (published)
        table_add_size(table, get_int(snapshot, "bytes"));
    else
        table_add(table, "-");
    table_add(table, run[0] != '\0' ? run : get_text(snapshot, "actor"));
    table_add(table, published ? "in the bucket" : "manifest under way");
}

static void
head(struct table *table)
{
    table_init(table, 6);
    table_add(table, "NAME"), table_add(table, "TAKEN"), table_add(table, "FILES");
    table_add(table, "BYTES"), table_add(table, "BY"), table_add(table, "STATE");
}

static int
do_list(const struct snapshot_words *w, struct err *err)
{
    char target[256];
    struct table table;
    json_t *answer = NULL;
    json_t *snapshot;
    size_t i;
    if (target_of(w, false, target, sizeof(target), err) < 0 ||
        client_json(w->cli, &(struct json_call){ "GET", target, NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (w->cli->json)
        return print_json(held, err);
    head(&table);
    json_array_foreach (json_object_get(held, "snapshots"), i, snapshot)
        add_row(&table, snapshot);
    table_print(&table);
    show_rule(held, "rule");
    return 0;
}

static int
do_show(const struct snapshot_words *w, struct err *err)
{
    char target[256];
    struct table table;
    json_t *answer = NULL;
    if (target_of(w, true, target, sizeof(target), err) < 0 ||
        client_json(w->cli, &(struct json_call){ "GET", target, NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (w->cli->json)
        return print_json(held, err);
    head(&table);
    add_row(&table, held);
    table_print(&table);
    return 0;
}

static int
do_delete(const struct snapshot_words *w, struct err *err)
{
    char target[256];
    json_t *answer = NULL;
    if (target_of(w, true, target, sizeof(target), err) < 0 ||
        client_json(w->cli, &(struct json_call){ "DELETE", target, NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    return w->cli->json ? print_json(held, err) : 0;
}

/* ---- differences ---- */

static int
diff_target(const struct snapshot_words *w, struct buf *out, struct err *err)
{
    uint64_t limit = 10000;
    if (w->limit && (!parse_u64(w->limit, &limit) || limit > 100000))
        return err_set(err, ERR_USAGE, "--limit is 0 to 100000");
    if (buf_appendf(out, err, "/v1/diff/%s?limit=%llu&from=", w->words[1],
                    (unsigned long long)limit) < 0 ||
        percent_encode(w->words[2], strlen(w->words[2]), false, out, err) < 0)
        return -1;
    if (w->count > 3 && (buf_append_str(out, "&to=", err) < 0 ||
                         percent_encode(w->words[3], strlen(w->words[3]), false, out, err) < 0))
        return -1;
    if (w->path && (buf_append_str(out, "&prefix=", err) < 0 ||
                    percent_encode(w->path, strlen(w->path), false, out, err) < 0))
        return -1;
    return 0;
}

static void
add_difference(struct table *table, const json_t *what)
{
    char path[LIMIT_PATH + 1], to[LIMIT_PATH + 1], line[2 * LIMIT_PATH + 8];
    const char *from = get_bytes(what, "path", path, sizeof(path));
    const char *target = get_bytes(what, "to", to, sizeof(to));
    bool folder = get_bool(what, "folder");
    (void)snprintf(line, sizeof(line), "%s%s%s%s", from, folder ? "/" : "",
                   target[0] != '\0' ? " -> " : "", target);
    table_add(table, get_text(what, "change"));
    if (json_object_get(what, "size_before"))
        table_add_size(table, get_int(what, "size_before"));
    else
        table_add(table, "-");
    if (json_object_get(what, "size"))
        table_add_size(table, get_int(what, "size"));
    else
        table_add(table, "-");
    table_add(table, line);
}

static int
do_diff(const struct snapshot_words *w, struct err *err)
{
    scope_buf target;
    struct table table;
    json_t *answer = NULL;
    json_t *what;
    size_t i;
    buf_init(&target, LIMIT_HTTP_TARGET);
    if (path_check_volume(w->words[1], err) < 0 || diff_target(w, &target, err) < 0 ||
        client_json(w->cli, &(struct json_call){ "GET", buf_cstr(&target), NULL, WORK_SECONDS },
                    &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (w->cli->json)
        return print_json(held, err);
    json_t *list = json_object_get(held, "differences");
    if (json_array_size(list) > 0) {
        table_init(&table, 4);
        table_add(&table, "CHANGE"), table_add(&table, "BEFORE"), table_add(&table, "AFTER");
        table_add(&table, "PATH");
        json_array_foreach (list, i, what)
            add_difference(&table, what);
        table_print(&table);
    }
    if (get_bool(held, "truncated"))
        print_line("... and more: the list was cut off, the numbers below count all");
    print_line("%lld added, %lld removed, %lld changed, %lld moved",
               (long long)get_int(held, "added"), (long long)get_int(held, "removed"),
               (long long)get_int(held, "changed"), (long long)get_int(held, "moved"));
    return 0;
}

/* ---- back ---- */

/* `restore VOLUME:/PATH --at NAME`. */
static int
do_restore(const struct snapshot_words *w, struct err *err)
{
    char place[LIMIT_VOLUME_NAME + LIMIT_PATH + 3];
    char *argv[8];
    int argc = 0;
    (void)snprintf(place, sizeof(place), "%s:/%s", w->words[1], w->path ? w->path : "");
    argv[argc++] = place;
    argv[argc++] = (char[]){ "--at" };
    argv[argc++] = (char *)(uintptr_t)w->words[2];
    if (w->dry_run)
        argv[argc++] = (char[]){ "--dry-run" };
    if (w->timeout) {
        argv[argc++] = (char[]){ "--timeout" };
        argv[argc++] = (char *)(uintptr_t)w->timeout;
    }
    return cmd_restore(w->cli, argc, argv, err);
}

/* ---- a new volume ---- */

#define FORK_LOOK (200 * NS_PER_MS)
#define FORK_LINE (5 * NS_PER_S)

/* The gateway goes on by itself when this is ended. */
static int
wait_fork(const struct snapshot_words *w, struct err *err)
{
    char target[128];
    int64_t line_ns = clock_mono_ns() + FORK_LINE;
    (void)snprintf(target, sizeof(target), "/v1/volumes/%s", w->words[3]);
    for (;;) {
        json_t *answer = NULL;
        if (client_json(w->cli, &(struct json_call){ "GET", target, NULL, 60 }, &answer, err) < 0)
            return -1;
        scope_json *held = answer;
        const json_t *fork = json_object_get(held, "fork");
        if (!fork && w->cli->json)
            return print_json(held, err);
        if (!fork)
            print_line("volume '%s' is %s@%s", w->words[3], w->words[1], w->words[2]);
        if (!fork)
            return 0;
        if (clock_mono_ns() > line_ns) {
            const char *error = get_text(fork, "error");
            (void)fprintf(stderr, "holdfast: %lld of %lld files are copied%s%s\n",
                          (long long)get_int(fork, "copied"), (long long)get_int(fork, "files"),
                          error[0] != '\0' ? "; now waiting: " : "", error);
            line_ns = clock_mono_ns() + FORK_LINE;
        }
        clock_sleep_ns(FORK_LOOK);
    }
}

static int
do_fork(const struct snapshot_words *w, struct err *err)
{
    uint64_t seconds;
    json_t *answer = NULL;
    if (path_check_volume(w->words[1], err) < 0 || path_check_volume(w->words[3], err) < 0 ||
        wait_seconds(w, &seconds, err) < 0)
        return -1;
    json_t *body = json_pack("{s:s, s:s, s:s, s:I}", "name", w->words[3], "from", w->words[1], "at",
                             w->words[2], "timeout_s", (json_int_t)seconds);
    if (!body)
        return err_set(err, ERR_INVAL, "the snapshot's name must be UTF-8");
    if (client_json(w->cli, &(struct json_call){ "POST", "/v1/volumes", body, (int)seconds + 60 },
                    &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (!w->no_wait)
        return wait_fork(w, err);
    if (w->cli->json)
        return print_json(held, err);
    print_line("volume '%s' is being made: holdfast volume show %s", w->words[3], w->words[3]);
    return 0;
}

int
cmd_snapshot(struct cli *cli, int argc, char **argv, struct err *err)
{
    static const struct {
        const char *word;
        int least, most;
        int (*run)(const struct snapshot_words *w, struct err *err);
    } verbs[] = {
        { "create", 3, 3, do_create }, { "list", 2, 2, do_list },       { "show", 3, 3, do_show },
        { "diff", 3, 4, do_diff },     { "restore", 3, 3, do_restore }, { "fork", 4, 4, do_fork },
        { "delete", 3, 3, do_delete },
    };
    struct snapshot_words w = { .cli = cli };
    const struct cli_option options[] = {
        { "path", 0, CLI_TEXT, &w.path },       { "limit", 0, CLI_TEXT, &w.limit },
        { "timeout", 0, CLI_TEXT, &w.timeout }, { "dry-run", 0, CLI_FLAG, &w.dry_run },
        { "no-wait", 0, CLI_FLAG, &w.no_wait }, { NULL, 0, CLI_FLAG, NULL }
    };
    w.count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 4, w.words }, err);
    if (w.count < 0)
        return -1;
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(w.words[0], verbs[i].word) != 0)
            continue;
        if (w.count < verbs[i].least || w.count > verbs[i].most)
            return err_set(err, ERR_USAGE,
                           "'snapshot %s' takes a volume%s: see holdfast snapshot --help",
                           verbs[i].word, verbs[i].least > 2 ? " and a name" : "");
        return verbs[i].run(&w, err);
    }
    return err_set(err, ERR_USAGE,
                   "'%s' is none of create, list, show, diff, restore, fork, delete", w.words[0]);
}
