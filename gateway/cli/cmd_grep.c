#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "base/path.h"
#include "gateway/cli/cli.h"

/* Lines that a pattern matches, page by page. As grep(1): 0 when there was one, 1 when there was none. */

#define PAGE 1000

struct grep_ask {
    bool ignore_case, fixed, files, count;
    const char *context, *include, *limit, *fetch;
    uint64_t most, hits;
    int64_t searched;
    json_t *matches; /* with --json: of all pages */
    json_t *skipped; /* of all pages, added up */
    char last[LIMIT_PATH + 1];
    int64_t last_line;
};

static void
print_match(struct grep_ask *ask, const char *volume, const json_t *match)
{
    char room[LIMIT_PATH + 1];
    int64_t line = get_int(match, "line");
    const char *path = get_bytes(match, "path", room, sizeof(room));
    if (ask->files) {
        print_line("%s:/%s", volume, path);
        return;
    }
    if (ask->count) {
        print_line("%s:/%s:%lld", volume, path, (long long)get_int(match, "count"));
        return;
    }
    bool apart = ask->context && ask->last_line > 0 &&
                 (strcmp(path, ask->last) != 0 || line > ask->last_line + 1);
    if (apart)
        print_line("--");
    char mark = get_bool(match, "context") ? '-' : ':';
    char head[LIMIT_PATH + LIMIT_VOLUME_NAME + 32];
    scope_buf text;
    struct err full = ERR_INIT;
    buf_init(&text, 65536);
    (void)snprintf(head, sizeof(head), "%s:/%s%c%lld%c", volume, path, mark, (long long)line, mark);
    if (buf_append_str(&text, get_text(match, "text"), &full) == 0 && get_bool(match, "clipped"))
        (void)!buf_append_str(&text, " [clipped]", &full);
    print_text(head, buf_cstr(&text), text.len);
    (void)snprintf(ask->last, sizeof(ask->last), "%s", path);
    ask->last_line = line;
}

/* What single pages left out, in sum. */
static int
add_skipped(struct grep_ask *ask, const json_t *skipped, struct err *err)
{
    const char *why;
    json_t *item;
    json_object_foreach ((json_t *)(uintptr_t)skipped, why, item) {
        const json_t *have = json_object_get(ask->skipped, why);
        int64_t files = get_int(have, "files") + get_int(item, "files");
        int64_t bytes = get_int(have, "bytes") + get_int(item, "bytes");
        if (json_object_set(ask->skipped, why, item) < 0 ||
            json_object_set_new(item, "files", json_integer(files)) < 0 ||
            json_object_set_new(item, "bytes", json_integer(bytes)) < 0)
            return err_nomem(err);
    }
    return 0;
}

static int
take_page(struct cli *cli, struct grep_ask *ask, const char *volume, json_t *page, struct err *err)
{
    size_t i;
    json_t *match;
    json_t *matches = json_object_get(page, "matches");
    ask->hits += (uint64_t)get_int(page, "hits");
    ask->searched += get_int(page, "searched");
    if (add_skipped(ask, json_object_get(page, "skipped"), err) < 0)
        return -1;
    if (cli->json)
        return json_array_extend(ask->matches, matches) < 0 ? err_nomem(err) : 0;
    json_array_foreach (matches, i, match)
        print_match(ask, volume, match);
    return 0;
}

static void
tell_skipped(const struct grep_ask *ask)
{
    static const struct {
        const char *why, *words;
    } words[] = { { "too_large", "over 16 MiB" },
                  { "not_fetched", "not here, and more than --fetch allows to be fetched" },
                  { "too_hard", "the pattern takes too many steps there" },
                  { "failed", "cannot be read" } };
    char path[LIMIT_PATH + 1];
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const json_t *item = json_object_get(ask->skipped, words[i].why);
        if (item)
            (void)fprintf(stderr, "holdfast: not searched to the end: %lld files: %s ('%s')\n",
                          (long long)get_int(item, "files"), words[i].words,
                          get_bytes(item, "path", path, sizeof(path)));
    }
}

static int
finish(struct cli *cli, struct grep_ask *ask, const json_t *last, struct err *err)
{
    char path[LIMIT_PATH + 1];
    bool more = get_bool(last, "truncated");
    int64_t unlisted = get_int(last, "unlisted");
    if (cli->json) {
        scope_json *out =
            json_pack("{s:s, s:O, s:I, s:I, s:O, s:b, s:b}", "volume", get_text(last, "volume"),
                      "matches", ask->matches, "hits", (json_int_t)ask->hits, "searched",
                      (json_int_t)ask->searched, "skipped", ask->skipped, "truncated", (int)more,
                      "complete", (int)get_bool(last, "complete"));
        if (!out || print_json(out, err) < 0)
            return out ? -1 : err_nomem(err);
        return ask->hits > 0 ? 0 : 1;
    }
    tell_skipped(ask);
    if (unlisted > 0)
        (void)fprintf(stderr,
                      "holdfast: not complete: %lld folders of the bucket were never looked into, "
                      "'%s' for one: 'holdfast find VOLUME --list' does so\n",
                      (long long)unlisted, get_bytes(last, "unlisted_path", path, sizeof(path)));
    if (more)
        (void)fprintf(stderr, "holdfast: there are more: leave --limit out for all\n");
    return ask->hits > 0 ? 0 : 1;
}

static int
ask_pages(struct cli *cli, struct grep_ask *ask, const char *volume, const char *query,
          struct err *err)
{
    char cursor[2 * LIMIT_PATH + 48] = "";
    for (;;) {
        uint64_t left = ask->most - ask->hits;
        scope_buf target;
        json_t *answer = NULL;
        buf_init(&target, LIMIT_HTTP_TARGET);
        if (buf_appendf(&target, err, "%s&limit=%llu%s", query,
                        (unsigned long long)(left < PAGE ? left : PAGE), cursor) < 0 ||
            client_json(cli, &(struct json_call){ "GET", buf_cstr(&target), NULL, 120 }, &answer,
                        err) < 0)
            return -1;
        scope_json *page = answer;
        if (take_page(cli, ask, volume, page, err) < 0)
            return -1;
        if (!get_bool(page, "truncated") || ask->hits >= ask->most)
            return finish(cli, ask, page, err);
        (void)snprintf(cursor, sizeof(cursor), "&cursor=%s", get_text(page, "next"));
    }
}

static int
grep_place(struct cli *cli, struct grep_ask *ask, const char *pattern, const char *word,
           struct err *err)
{
    struct place place = { .path = "" };
    uint64_t fetch;
    scope_buf query;
    buf_init(&query, LIMIT_HTTP_TARGET);
    if (!cli_is_place(word)) {
        if (path_check_volume(word, err) < 0)
            return -1;
        (void)snprintf(place.volume, sizeof(place.volume), "%s", word);
    } else if (place_read(word, false, &place, err) < 0) {
        return -1;
    }
    if (ask->fetch && !parse_size(ask->fetch, &fetch))
        return err_set(err, ERR_USAGE, "--fetch is a number of bytes, as 1G");
    if (buf_appendf(&query, err, "/v1/grep/%s?regex=%s&ignore_case=%s&mode=%s", place.volume,
                    ask->fixed ? "false" : "true", ask->ignore_case ? "true" : "false",
                    ask->files   ? "files"
                    : ask->count ? "count"
                                 : "lines") < 0 ||
        client_query_add(&query, "q", pattern, err) < 0 ||
        client_query_add(&query, "prefix", place.path, err) < 0 ||
        client_query_add(&query, "include", ask->include, err) < 0 ||
        client_query_add(&query, "context", ask->context, err) < 0 ||
        (ask->fetch && buf_appendf(&query, err, "&fetch=%llu", (unsigned long long)fetch) < 0))
        return -1;
    return ask_pages(cli, ask, place.volume, buf_cstr(&query), err);
}

int
cmd_grep(struct cli *cli, int argc, char **argv, struct err *err)
{
    scope_json *matches = json_array();
    scope_json *skipped = json_object();
    struct grep_ask ask = { .most = UINT64_MAX, .matches = matches, .skipped = skipped };
    const char *words[2];
    uint64_t lines;
    const struct cli_option options[] = { { "ignore-case", 'i', CLI_FLAG, &ask.ignore_case },
                                          { "fixed-strings", 'F', CLI_FLAG, &ask.fixed },
                                          { "files-with-matches", 'l', CLI_FLAG, &ask.files },
                                          { "count", 'c', CLI_FLAG, &ask.count },
                                          { "context", 'C', CLI_TEXT, &ask.context },
                                          { "include", 0, CLI_TEXT, &ask.include },
                                          { "limit", 0, CLI_TEXT, &ask.limit },
                                          { "fetch", 0, CLI_TEXT, &ask.fetch },
                                          { NULL, 0, CLI_FLAG, NULL } };
    if (!matches || !skipped)
        return err_nomem(err);
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 2, 2, words }, err) < 0)
        return -1;
    if (ask.limit && (!parse_u64(ask.limit, &ask.most) || ask.most < 1))
        return err_set(err, ERR_USAGE, "--limit is a number from 1 on");
    if (ask.context && (!parse_u64(ask.context, &lines) || lines > 100))
        return err_set(err, ERR_USAGE, "-C is a number of lines up to 100");
    return grep_place(cli, &ask, words[0], words[1], err);
}
