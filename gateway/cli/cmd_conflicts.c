#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/path.h"
#include "base/ulid.h"
#include "gateway/cli/cli.h"

/* ---- conflicts list | show | diff | resolve ---- */

struct conflict_words {
    const char *word; /* a volume or an id, NULL: none */
    const char *run, *keep, *base, *from, *to;
    bool create;
};

/* "/v1/conflicts/ID" and what follows it. */
static int
target_of(const struct conflict_words *w, const char *rest, char *out, size_t size, struct err *err)
{
    if (!w->word || !ulid_valid(w->word))
        return err_set(err, ERR_USAGE,
                       "'%s' is not the id of a conflict: see 'holdfast conflicts list'",
                       w->word ? w->word : "");
    (void)snprintf(out, size, "/v1/conflicts/%s%s", w->word, rest);
    return 0;
}

static const char *
why_of(const json_t *conflict)
{
    const char *reason = get_text(conflict, "reason");
    if (strcmp(reason, "deleted") == 0)
        return "removed meanwhile";
    return strcmp(reason, "torn") == 0 ? "torn by a crash" : "changed meanwhile";
}

static void
time_of(const json_t *conflict, char out[20])
{
    (void)snprintf(out, 20, "%.19s", get_text(conflict, "time"));
    if (strlen(out) > 10)
        out[10] = ' ';
}

static void
add_row(struct table *table, const json_t *conflict)
{
    char when[20], place[LIMIT_VOLUME_NAME + LIMIT_PATH + 3];
    const char *run = get_text(conflict, "run");
    time_of(conflict, when);
    (void)snprintf(place, sizeof(place), "%s:/%s", get_text(conflict, "volume"),
                   get_text(conflict, "path"));
    table_add(table, get_text(conflict, "id"));
    table_add(table, when);
    table_add(table, why_of(conflict));
    table_add(table, run[0] != '\0' ? run : get_text(conflict, "actor"));
    table_add(table, place);
}

static int
do_list(struct cli *cli, const struct conflict_words *w, struct err *err)
{
    char target[256];
    struct table table;
    json_t *answer = NULL;
    json_t *conflict;
    size_t i;
    if (w->word && path_check_volume(w->word, err) < 0)
        return -1;
    if (w->run && !ulid_valid(w->run))
        return err_set(err, ERR_USAGE, "'%s' is not the id of a run", w->run);
    (void)snprintf(target, sizeof(target), "/v1/conflicts%s%s%s%s", w->word ? "?volume=" : "",
                   w->word ? w->word : "",
                   !w->run   ? ""
                   : w->word ? "&run="
                             : "?run=",
                   w->run ? w->run : "");
    if (client_json(cli, &(struct json_call){ "GET", target, NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json)
        return print_json(held, err);
    table_init(&table, 5);
    table_add(&table, "ID"), table_add(&table, "FOUND"), table_add(&table, "WHY");
    table_add(&table, "WHO"), table_add(&table, "FILE");
    json_array_foreach (json_object_get(held, "conflicts"), i, conflict)
        add_row(&table, conflict);
    table_print(&table);
    return 0;
}

static void
merge_line(const json_t *c)
{
    static const struct {
        const char *word, *text;
    } words[] = {
        { "clean", "yes: --keep merge puts both changes together" },
        { "overlaps", "no: both changed the same lines" },
        { "no-base", "no: what both began with is not known any more" },
        { "no-text", "no: it is no text" },
        { "too-large", "no: it is too large" },
        { "absent", "no: no file lies there now" },
        { "open", "not now: the file is being written" },
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(words[i].word, get_text(c, "merge")) == 0)
            print_line("merge    %s", words[i].text);
}

static int
do_show(struct cli *cli, const struct conflict_words *w, struct err *err)
{
    char target[64], when[20];
    json_t *answer = NULL;
    if (target_of(w, "", target, sizeof(target), err) < 0 ||
        client_json(cli, &(struct json_call){ "GET", target, NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json)
        return print_json(held, err);
    const json_t *now = json_object_get(held, "now");
    time_of(held, when);
    print_line("id       %s", get_text(held, "id"));
    print_line("file     %s:/%s", get_text(held, "volume"), get_text(held, "path"));
    print_line("why      %s, found %s", why_of(held), when);
    print_line("who      %s %s", get_text(held, "actor"), get_text(held, "run"));
    print_line("base     %s", get_text(held, "base"));
    print_line("mine     %s, %lld bytes%s", get_text(held, "mine"),
               (long long)get_int(held, "size"),
               get_bool(held, "synced") ? "" : ", not in the bucket yet");
    print_line("theirs   %s", get_text(held, "theirs"));
    if (json_is_object(now))
        print_line("now      %s, %lld bytes", get_text(now, "version"),
                   (long long)get_int(now, "size"));
    else
        print_line("now      nothing lies there");
    merge_line(held);
    print_line("next     holdfast conflicts diff %s; holdfast conflicts resolve %s --keep "
               "mine|theirs|both|merge",
               get_text(held, "id"), get_text(held, "id"));
    return 0;
}

static bool
is_side(const char *word)
{
    static const char *const sides[] = { "mine", "theirs", "base", "merged" };
    for (size_t i = 0; i < sizeof(sides) / sizeof(sides[0]); i++)
        if (strcmp(sides[i], word) == 0)
            return true;
    return false;
}

static int
do_diff(struct cli *cli, const struct conflict_words *w, struct err *err)
{
    char target[128], rest[64];
    const char *from = w->from ? w->from : "theirs", *to = w->to ? w->to : "mine";
    struct client_response response;
    if (!is_side(from) || !is_side(to))
        return err_set(err, ERR_USAGE, "--from and --to are mine, theirs, base or merged");
    (void)snprintf(rest, sizeof(rest), "/diff?from=%s&to=%s", from, to);
    if (target_of(w, rest, target, sizeof(target), err) < 0)
        return -1;
    struct client_request request = { .method = "GET", .target = target };
    client_response_init(&response);
    int rc = cli_client_call(cli, &request, &response, err);
    if (rc == 0 && cli->json) {
        scope_json *out =
            json_pack("{s:s, s:s, s:s, s:o}", "id", w->word, "from", from, "to", to, "diff",
                      json_bytes(buf_cstr(&response.body), response.body.len));
        rc = out ? print_json(out, err) : err_nomem(err);
    } else if (rc == 0 && response.body.len > 0) {
        (void)fwrite(response.body.data, 1, response.body.len, stdout);
    }
    client_response_release(&response);
    return rc;
}

static int
send_resolve(struct cli *cli, const struct conflict_words *w, json_t **answer, struct err *err)
{
    char target[64], tag[LIMIT_ETAG + 2], body[32];
    struct client_response response;
    if (target_of(w, "/resolve", target, sizeof(target), err) < 0)
        return -1;
    (void)snprintf(body, sizeof(body), "{\"keep\":\"%.10s\"}", w->keep);
    struct client_request request = {
        .method = "POST", .target = target, .body = body, .timeout_s = 120
    };
    (void)snprintf(tag, sizeof(tag), "\"%.*s\"", LIMIT_ETAG - 1, w->base ? w->base : "");
    if (w->base)
        request.headers[request.header_count++] = (struct client_header){ "If-Match", tag };
    if (w->create)
        request.headers[request.header_count++] = (struct client_header){ "If-None-Match", "*" };
    client_response_init(&response);
    int rc = cli_client_call(cli, &request, &response, err);
    if (rc == 0) {
        *answer = json_parse(buf_cstr(&response.body), response.body.len, err);
        rc = *answer ? 0 : -1;
    }
    client_response_release(&response);
    return rc;
}

static int
do_resolve(struct cli *cli, const struct conflict_words *w, struct err *err)
{
    static const char *const ways[] = { "mine", "theirs", "both", "merge", NULL };
    json_t *answer = NULL;
    size_t i = 0;
    if (!w->keep)
        return err_set(err, ERR_USAGE, "say what to keep: --keep mine, theirs, both or merge");
    while (ways[i] && strcmp(ways[i], w->keep) != 0)
        i++;
    if (!ways[i])
        return err_set(err, ERR_USAGE, "--keep is mine, theirs, both or merge, not '%s'", w->keep);
    if (w->base && w->create)
        return err_set(err, ERR_USAGE, "--base and --create exclude each other");
    if (send_resolve(cli, w, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json)
        return print_json(held, err);
    if (get_text(held, "version")[0] != '\0')
        print_line("resolved: %s:/%s is version %s", get_text(held, "volume"),
                   get_text(held, "path"), get_text(held, "version"));
    else
        print_line("resolved: nothing lies at %s:/%s", get_text(held, "volume"),
                   get_text(held, "path"));
    return 0;
}

int
cmd_conflicts(struct cli *cli, int argc, char **argv, struct err *err)
{
    static const struct {
        const char *name;
        bool one; /* takes an id */
        int (*fn)(struct cli *cli, const struct conflict_words *w, struct err *err);
    } actions[] = { { "list", false, do_list },
                    { "show", true, do_show },
                    { "diff", true, do_diff },
                    { "resolve", true, do_resolve } };
    static const char *const names[] = { "list", "show", "diff", "resolve", NULL };
    struct conflict_words w = { 0 };
    const char *words[2];
    const struct cli_option options[] = {
        { "keep", 0, CLI_TEXT, &w.keep },     { "base", 0, CLI_TEXT, &w.base },
        { "create", 0, CLI_FLAG, &w.create }, { "run", 0, CLI_TEXT, &w.run },
        { "from", 0, CLI_TEXT, &w.from },     { "to", 0, CLI_TEXT, &w.to },
        { NULL, 0, CLI_FLAG, NULL },
    };
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 0, 2, words }, err);
    if (count < 0)
        return -1;
    if (count == 0)
        return do_list(cli, &w, err);
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(actions[i].name, words[0]) != 0)
            continue;
        if (actions[i].one && count != 2)
            return err_set(err, ERR_USAGE, "conflicts %s takes the id of a conflict", words[0]);
        w.word = count == 2 ? words[1] : NULL;
        return actions[i].fn(cli, &w, err);
    }
    const char *near = nearest_word(words[0], names);
    return err_set(err, ERR_USAGE, "unknown word '%s', did you mean 'conflicts %s'?", words[0],
                   near ? near : "list");
}
