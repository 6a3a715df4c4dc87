#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "base/path.h"
#include "gateway/cli/cli.h"

/* Paths by a pattern: page by page until all are there, or as many as were asked for. */

#define PAGE 10000

struct find_ask {
    const char *kind, *newer, *larger, *limit;
    bool list;
    uint64_t most; /* paths, UINT64_MAX: all */
    uint64_t given;
};

static int
add_filters(const struct find_ask *ask, struct buf *target, struct err *err)
{
    char newer[TIME_RFC3339_SIZE];
    uint64_t larger;
    if (ask->newer && place_time(ask->newer, newer, err) < 0)
        return -1;
    if (ask->larger && !parse_size(ask->larger, &larger))
        return err_set(err, ERR_USAGE, "--larger is a number of bytes, as 10M");
    if (ask->larger && buf_appendf(target, err, "&larger=%llu", (unsigned long long)larger) < 0)
        return -1;
    if (ask->list && buf_append_str(target, "&list=true", err) < 0)
        return -1;
    return client_query_add(target, "kind", ask->kind, err) < 0 ||
                   client_query_add(target, "newer", ask->newer ? newer : NULL, err) < 0
               ? -1
               : 0;
}

/* All pages in one document, or each path on its line. */
static int
take_page(struct cli *cli, struct find_ask *ask, const char *volume, json_t *page, json_t **all,
          struct err *err)
{
    char path[LIMIT_PATH + 1];
    size_t i;
    json_t *file;
    json_t *files = json_object_get(page, "files");
    ask->given += json_array_size(files);
    if (!cli->json) {
        json_array_foreach (files, i, file)
            print_line("%s:/%s%s", volume, get_bytes(file, "path", path, sizeof(path)),
                       strcmp(get_text(file, "kind"), "dir") == 0 ? "/" : "");
        json_decref(*all);
        *all = json_incref(page);
        return 0;
    }
    if (*all &&
        (json_array_extend(json_object_get(*all, "files"), files) < 0 ||
         json_object_set(page, "files", json_object_get(*all, "files")) < 0 ||
         (!get_bool(*all, "complete") && json_object_set_new(page, "complete", json_false()) < 0)))
        return err_nomem(err);
    json_decref(*all);
    *all = json_incref(page);
    return 0;
}

static int
ask_pages(struct cli *cli, struct find_ask *ask, const char *volume, const char *query,
          json_t **all, struct err *err)
{
    char cursor[2 * LIMIT_PATH + 16] = "";
    for (;;) {
        uint64_t left = ask->most - ask->given;
        scope_buf target;
        json_t *answer = NULL;
        buf_init(&target, LIMIT_HTTP_TARGET);
        if (buf_appendf(&target, err, "%s&limit=%llu%s", query,
                        (unsigned long long)(left < PAGE ? left : PAGE), cursor) < 0 ||
            client_json(cli, &(struct json_call){ "GET", buf_cstr(&target), NULL, 60 }, &answer,
                        err) < 0)
            return -1;
        scope_json *page = answer;
        if (take_page(cli, ask, volume, page, all, err) < 0)
            return -1;
        if (!get_bool(page, "truncated") || ask->given >= ask->most)
            return 0;
        (void)snprintf(cursor, sizeof(cursor), "&cursor=%s", get_text(page, "next"));
    }
}

static void
tell_rest(const json_t *last)
{
    char path[LIMIT_PATH + 1];
    if (get_bool(last, "truncated"))
        (void)fprintf(stderr, "holdfast: there are more: leave --limit out for all\n");
    if (!get_bool(last, "complete"))
        (void)fprintf(stderr,
                      "holdfast: not complete: %lld folders of the bucket were never looked into, "
                      "'%s' for one: --list does so first\n",
                      (long long)get_int(last, "unlisted"),
                      get_bytes(last, "unlisted_path", path, sizeof(path)));
}

static int
find_place(struct cli *cli, struct find_ask *ask, const char *word, const char *glob,
           struct err *err)
{
    struct place place = { .path = "" };
    scope_buf query;
    json_t *all = NULL;
    buf_init(&query, LIMIT_HTTP_TARGET);
    if (!cli_is_place(word)) {
        if (path_check_volume(word, err) < 0)
            return -1;
        (void)snprintf(place.volume, sizeof(place.volume), "%s", word);
    } else if (place_read(word, false, &place, err) < 0) {
        return -1;
    }
    if (buf_appendf(&query, err, "/v1/find/%s?", place.volume) < 0 ||
        buf_append_str(&query, "prefix=", err) < 0 ||
        percent_encode(place.path, strlen(place.path), false, &query, err) < 0 ||
        client_query_add(&query, "glob", glob, err) < 0 || add_filters(ask, &query, err) < 0)
        return -1;
    int rc = ask_pages(cli, ask, place.volume, buf_cstr(&query), &all, err);
    scope_json *held = all;
    if (rc < 0)
        return -1;
    if (cli->json)
        return print_json(held, err);
    tell_rest(held);
    return 0;
}

int
cmd_find(struct cli *cli, int argc, char **argv, struct err *err)
{
    struct find_ask ask = { .most = UINT64_MAX };
    const char *words[2] = { NULL, NULL };
    const struct cli_option options[] = {
        { "kind", 0, CLI_TEXT, &ask.kind },     { "newer", 0, CLI_TEXT, &ask.newer },
        { "larger", 0, CLI_TEXT, &ask.larger }, { "limit", 0, CLI_TEXT, &ask.limit },
        { "list", 0, CLI_FLAG, &ask.list },     { NULL, 0, CLI_FLAG, NULL }
    };
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 2, words }, err) < 0)
        return -1;
    if (ask.limit && (!parse_u64(ask.limit, &ask.most) || ask.most < 1))
        return err_set(err, ERR_USAGE, "--limit is a number from 1 on");
    return find_place(cli, &ask, words[0], words[1], err);
}
