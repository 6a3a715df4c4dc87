#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/ulid.h"
#include "gateway/cli/cli.h"

/* ---- publish, link create | list | show | revoke ---- */

#define COPY_SECONDS 600

struct link_words {
    struct cli *cli;
    const char *words[2];
    const char *expires, *name, *downloads, *max_bytes;
    bool put, proxy, show;
};

static int
number(const char *text, const char *option, uint64_t *out, struct err *err)
{
    *out = 0;
    if (text && !parse_size(text, out))
        return err_set(err, ERR_USAGE, "--%s is a number", option);
    return 0;
}

static int
make_body(const struct link_words *w, const char *where, json_t **out, struct err *err)
{
    struct place place;
    int64_t ns = 3600 * NS_PER_S;
    uint64_t downloads, most;
    if (place_read(where, true, &place, err) < 0 ||
        number(w->downloads, "downloads", &downloads, err) < 0 ||
        number(w->max_bytes, "max-bytes", &most, err) < 0)
        return -1;
    if (w->expires && (!parse_duration(w->expires, &ns) || ns < NS_PER_S))
        return err_set(err, ERR_USAGE, "--expires is a time as in 90m, 1h or 7d");
    *out = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:b}", "volume", place.volume, "path",
                     place.path, "method", w->put ? "PUT" : "GET", "expires_s",
                     (json_int_t)(ns / NS_PER_S), "downloads", (json_int_t)downloads, "max_bytes",
                     (json_int_t)most, "proxy", (int)w->proxy, "inline", (int)w->show);
    if (*out && w->name && json_object_set_new(*out, "name", json_string(w->name)) < 0) {
        json_decref(*out);
        *out = NULL;
    }
    return *out ? 0 : err_set(err, ERR_INVAL, "path and name must be UTF-8");
}

static int
create(const struct link_words *w, const char *where, struct err *err)
{
    char until[20];
    json_t *body = NULL;
    json_t *answer = NULL;
    if (make_body(w, where, &body, err) < 0 ||
        client_json(w->cli, &(struct json_call){ "POST", "/v1/links", body, COPY_SECONDS }, &answer,
                    err) < 0)
        return -1;
    scope_json *held = answer;
    if (w->cli->json)
        return print_json(held, err);
    format_local(get_text(held, "expires"), until);
    print_line("%s", get_text(held, "url"));
    (void)fprintf(stderr, "holdfast: link %s, until %s\n", get_text(held, "id"), until);
    return 0;
}

static int
do_create(const struct link_words *w, struct err *err)
{
    return create(w, w->words[1], err);
}

static void
add_row(struct table *table, const json_t *link)
{
    char path[LIMIT_PATH + 1], place[LIMIT_VOLUME_NAME + LIMIT_PATH + 3], hits[64], until[20];
    (void)snprintf(place, sizeof(place), "%s:/%s", get_text(link, "volume"),
                   get_bytes(link, "path", path, sizeof(path)));
    int64_t most = get_int(link, "downloads");
    int len = snprintf(hits, sizeof(hits), "%lld", (long long)get_int(link, "hits"));
    if (most > 0)
        (void)snprintf(hits + len, sizeof(hits) - (size_t)len, " of %lld", (long long)most);
    format_local(get_text(link, "expires"), until);
    table_add(table, get_text(link, "id")), table_add(table, get_text(link, "method"));
    table_add(table, hits), table_add(table, get_bool(link, "expired") ? "expired" : until);
    table_add(table, place);
}

static void
head(struct table *table)
{
    table_init(table, 5);
    table_add(table, "ID"), table_add(table, "FOR"), table_add(table, "HITS");
    table_add(table, "UNTIL"), table_add(table, "FILE");
}

static int
do_list(const struct link_words *w, struct err *err)
{
    struct table table;
    json_t *answer = NULL;
    json_t *link;
    size_t i;
    if (client_json(w->cli, &(struct json_call){ "GET", "/v1/links", NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (w->cli->json)
        return print_json(held, err);
    head(&table);
    json_array_foreach (json_object_get(held, "links"), i, link)
        add_row(&table, link);
    table_print(&table);
    return 0;
}

static int
ask_one(const struct link_words *w, const char *method, json_t **out, struct err *err)
{
    char target[64];
    if (!ulid_valid(w->words[1]))
        return err_set(err, ERR_USAGE, "'%s' is not the id of a link: see 'holdfast link list'",
                       w->words[1]);
    (void)snprintf(target, sizeof(target), "/v1/links/%s", w->words[1]);
    return client_json(w->cli, &(struct json_call){ method, target, NULL, 60 }, out, err);
}

static int
do_show(const struct link_words *w, struct err *err)
{
    struct table table;
    json_t *answer = NULL;
    if (ask_one(w, "GET", &answer, err) < 0)
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
do_revoke(const struct link_words *w, struct err *err)
{
    json_t *answer = NULL;
    if (ask_one(w, "DELETE", &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    return w->cli->json ? print_json(held, err) : 0;
}

#define LINK_OPTIONS(w)                                                                     \
    {                                                                                       \
        { "expires", 0, CLI_TEXT, &(w).expires }, { "name", 0, CLI_TEXT, &(w).name },       \
            { "downloads", 0, CLI_TEXT, &(w).downloads },                                   \
            { "max-bytes", 0, CLI_TEXT, &(w).max_bytes }, { "put", 0, CLI_FLAG, &(w).put }, \
            { "proxy", 0, CLI_FLAG, &(w).proxy }, { "inline", 0, CLI_FLAG, &(w).show },     \
        {                                                                                   \
            NULL, 0, CLI_FLAG, NULL                                                         \
        }                                                                                   \
    }

int
cmd_publish(struct cli *cli, int argc, char **argv, struct err *err)
{
    struct link_words w = { .cli = cli };
    const struct cli_option options[] = LINK_OPTIONS(w);
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 1, w.words }, err) < 0)
        return -1;
    if (w.put)
        return err_set(err, ERR_USAGE, "a link that takes a file: holdfast link create --put");
    return create(&w, w.words[0], err);
}

int
cmd_link(struct cli *cli, int argc, char **argv, struct err *err)
{
    static const struct {
        const char *word;
        int words;
        int (*run)(const struct link_words *w, struct err *err);
    } verbs[] = {
        { "create", 2, do_create },
        { "list", 1, do_list },
        { "show", 2, do_show },
        { "revoke", 2, do_revoke },
    };
    struct link_words w = { .cli = cli };
    const struct cli_option options[] = LINK_OPTIONS(w);
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 2, w.words }, err);
    if (count < 0)
        return -1;
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(w.words[0], verbs[i].word) != 0)
            continue;
        if (count != verbs[i].words)
            return err_set(err, ERR_USAGE, "'link %s' takes %s: see holdfast link --help",
                           verbs[i].word,
                           i == 0               ? "VOLUME:/path"
                           : verbs[i].words > 1 ? "an id"
                                                : "no more words");
        return verbs[i].run(&w, err);
    }
    return err_set(err, ERR_USAGE, "'%s' is none of create, list, show, revoke", w.words[0]);
}
