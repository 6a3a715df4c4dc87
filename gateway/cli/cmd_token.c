#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/ulid.h"
#include "gateway/cli/cli.h"

/* ---- token create | list | revoke ---- */

struct token_words {
    struct cli *cli;
    const char *words[2];
    const char *volume, *allow, *expires, *label, *run;
};

/* V, V/FOLDER or V:/FOLDER into the body. */
static int
set_place(const struct token_words *w, json_t *body, struct err *err)
{
    char volume[LIMIT_VOLUME_NAME + 1];
    if (!w->volume)
        return 0;
    size_t len = strcspn(w->volume, ":/");
    if (len >= sizeof(volume))
        return err_set(err, ERR_BAD_NAME, "the volume's name in '%s' is too long", w->volume);
    (void)snprintf(volume, sizeof(volume), "%.*s", (int)len, w->volume);
    const char *folder = w->volume + len + strspn(w->volume + len, ":/");
    if (path_check_volume(volume, err) < 0)
        return -1;
    if (json_object_set_new(body, "volume", json_string(volume)) < 0)
        return err_nomem(err);
    if (folder[0] != '\0' && json_object_set_new(body, "folder", json_string(folder)) < 0)
        return err_set(err, ERR_BAD_NAME, "the folder's name must be UTF-8");
    return 0;
}

static int
set_allow(const struct token_words *w, json_t *body, struct err *err)
{
    json_t *list = json_array();
    if (!w->allow || !list || json_object_set_new(body, "allow", list) < 0) {
        if (!w->allow)
            json_decref(list);
        return list ? 0 : err_nomem(err);
    }
    for (const char *at = w->allow; *at != '\0'; at += strspn(at, ", ")) {
        size_t len = strcspn(at, ", ");
        if (json_array_append_new(list, json_stringn(at, len)) < 0)
            return err_set(err, ERR_USAGE, "--allow takes words, as in read,write");
        at += len;
    }
    return 0;
}

static int
set_rest(const struct token_words *w, json_t *body, struct err *err)
{
    int64_t ns = 0;
    bool never = w->expires && strcmp(w->expires, "never") == 0;
    if (w->expires && !never && (!parse_duration(w->expires, &ns) || ns < NS_PER_S))
        return err_set(err, ERR_USAGE, "--expires is a time as in 90m, 1h or 7d, or 'never'");
    if (w->run && !ulid_valid(w->run))
        return err_set(err, ERR_USAGE, "'%s' is not the id of a run", w->run);
    if ((w->expires &&
         json_object_set_new(body, "expires_s", json_integer((json_int_t)(ns / NS_PER_S))) < 0) ||
        (w->run && json_object_set_new(body, "run", json_string(w->run)) < 0))
        return err_nomem(err);
    if (w->label && json_object_set_new(body, "label", json_string(w->label)) < 0)
        return err_set(err, ERR_USAGE, "--label must be UTF-8");
    return 0;
}

static int
do_create(const struct token_words *w, struct err *err)
{
    json_t *answer = NULL;
    scope_json *body = json_object();
    if (!body)
        return err_nomem(err);
    if (set_place(w, body, err) < 0 || set_allow(w, body, err) < 0 || set_rest(w, body, err) < 0)
        return -1;
    if (client_json(w->cli, &(struct json_call){ "POST", "/v1/tokens", json_incref(body), 60 },
                    &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (w->cli->json)
        return print_json(held, err);
    print_line("%s", get_text(held, "token"));
    (void)fprintf(stderr,
                  "holdfast: token %s; it is shown this once: HOLDFAST_TOKEN, or 'Authorization: "
                  "Bearer'\n",
                  get_text(held, "id"));
    return 0;
}

static void
add_row(struct table *table, const json_t *token)
{
    char place[LIMIT_VOLUME_NAME + LIMIT_PATH + 3];
    char verbs[80] = "";
    char ends[20];
    size_t i;
    json_t *verb;
    const char *volume = get_text(token, "volume");
    (void)snprintf(place, sizeof(place), "%s%s%s", volume[0] != '\0' ? volume : "all volumes",
                   volume[0] != '\0' ? ":/" : "", get_text(token, "folder"));
    json_array_foreach (json_object_get(token, "allow"), i, verb) {
        size_t len = strlen(verbs);
        (void)snprintf(verbs + len, sizeof(verbs) - len, "%s%s", len > 0 ? "," : "",
                       json_string_value(verb));
    }
    format_local(get_text(token, "expires"), ends);
    table_add(table, get_text(token, "id")), table_add(table, place), table_add(table, verbs);
    table_add(table, get_bool(token, "expired") ? "expired" : ends);
    table_add(table, get_text(token, "label"));
}

static int
do_list(const struct token_words *w, struct err *err)
{
    struct table table;
    json_t *answer = NULL;
    json_t *token;
    size_t i;
    if (client_json(w->cli, &(struct json_call){ "GET", "/v1/tokens", NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (w->cli->json)
        return print_json(held, err);
    table_init(&table, 5);
    table_add(&table, "ID"), table_add(&table, "FOR"), table_add(&table, "MAY");
    table_add(&table, "UNTIL"), table_add(&table, "LABEL");
    json_array_foreach (json_object_get(held, "tokens"), i, token)
        add_row(&table, token);
    table_print(&table);
    return 0;
}

static int
do_revoke(const struct token_words *w, struct err *err)
{
    char target[64];
    json_t *answer = NULL;
    if (!ulid_valid(w->words[1]))
        return err_set(err, ERR_USAGE, "'%s' is not the id of a token: see 'holdfast token list'",
                       w->words[1]);
    (void)snprintf(target, sizeof(target), "/v1/tokens/%s", w->words[1]);
    if (client_json(w->cli, &(struct json_call){ "DELETE", target, NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    return w->cli->json ? print_json(held, err) : 0;
}

int
cmd_token(struct cli *cli, int argc, char **argv, struct err *err)
{
    static const struct {
        const char *word;
        int words;
        int (*run)(const struct token_words *w, struct err *err);
    } verbs[] = { { "create", 1, do_create }, { "list", 1, do_list }, { "revoke", 2, do_revoke } };
    struct token_words w = { .cli = cli };
    const struct cli_option options[] = {
        { "volume", 'v', CLI_TEXT, &w.volume }, { "allow", 0, CLI_TEXT, &w.allow },
        { "expires", 0, CLI_TEXT, &w.expires }, { "label", 0, CLI_TEXT, &w.label },
        { "run", 0, CLI_TEXT, &w.run },         { NULL, 0, CLI_FLAG, NULL },
    };
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 2, w.words }, err);
    if (count < 0)
        return -1;
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(w.words[0], verbs[i].word) != 0)
            continue;
        if (count != verbs[i].words)
            return err_set(err, ERR_USAGE, "'token %s' takes %s: see holdfast token --help",
                           verbs[i].word, verbs[i].words > 1 ? "an id" : "options only");
        return verbs[i].run(&w, err);
    }
    return err_set(err, ERR_USAGE, "'%s' is none of create, list, revoke", w.words[0]);
}
