#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "base/path.h"
#include "gateway/cli/cli.h"

/* Who did what: records by run, volume, path, verb and time; the chain verified. */

#define PAGE 1000

struct audit_words {
    const char *run, *volume, *path, *verb, *since, *until, *limit;
    bool local;
};

static void
show_record(const json_t *r)
{
    char when[20];
    const char *volume = get_text(r, "volume"), *to = get_text(r, "to");
    const char *run = get_text(r, "run"), *result = get_text(r, "result");
    format_local(get_text(r, "time"), when);
    (void)printf("%lld  %s  %s  %s", (long long)get_int(r, "seq"), when,
                 run[0] != '\0' ? run : get_text(r, "actor"), get_text(r, "verb"));
    if (volume[0] != '\0')
        (void)printf("  %s:%s", volume, get_text(r, "path"));
    if (to[0] != '\0')
        (void)printf(" -> %s", to);
    if (get_text(r, "command")[0] != '\0')
        (void)printf("  %s", get_text(r, "command"));
    if (get_text(r, "detail")[0] != '\0')
        (void)printf("  (%s)", get_text(r, "detail"));
    if (strcmp(result, "ok") != 0)
        (void)printf("  %s", result);
    (void)putchar('\n');
}

static int
page_target(const struct audit_words *w, uint64_t limit, int64_t cursor, struct buf *target,
            struct err *err)
{
    if (buf_appendf(target, err, "/v1/audit?limit=%llu&cursor=%lld",
                    (unsigned long long)(limit < PAGE ? limit : PAGE), (long long)cursor) < 0 ||
        client_query_add(target, "run", w->run, err) < 0 ||
        client_query_add(target, "volume", w->volume, err) < 0 ||
        client_query_add(target, "path", w->path, err) < 0 ||
        client_query_add(target, "verb", w->verb, err) < 0)
        return -1;
    return client_query_add(target, "since", w->since, err) < 0
               ? -1
               : client_query_add(target, "until", w->until, err);
}

/* Page after page; with --json all of them are one document. */
static int
list(struct cli *cli, const struct audit_words *w, uint64_t limit, struct err *err)
{
    scope_json *all = json_array();
    int64_t cursor = 0;
    bool more = true;
    while (more && limit > 0) {
        scope_buf target;
        json_t *answer = NULL, *r;
        size_t i;
        buf_init(&target, LIMIT_HTTP_TARGET);
        if (page_target(w, limit, cursor, &target, err) < 0 ||
            client_json(cli, &(struct json_call){ "GET", buf_cstr(&target), NULL, 120 }, &answer,
                        err) < 0)
            return -1;
        scope_json *held = answer;
        json_t *records = json_object_get(held, "records");
        json_array_foreach (records, i, r) {
            if (!cli->json)
                show_record(r);
            else if (json_array_append(all, r) < 0)
                return err_nomem(err);
        }
        limit -= json_array_size(records) < limit ? json_array_size(records) : limit;
        more = get_bool(held, "truncated");
        cursor = get_int(held, "next");
    }
    if (!cli->json && more)
        (void)fprintf(stderr, "holdfast: there are more: --limit\n");
    if (!cli->json)
        return 0;
    scope_json *doc = json_pack("{s:O, s:b}", "records", all, "truncated", (int)more);
    return doc ? print_json(doc, err) : err_nomem(err);
}

static int
verify(struct cli *cli, bool local, struct err *err)
{
    json_t *answer = NULL, *f;
    size_t i;
    const char *target = local ? "/v1/audit/verify?bucket=false" : "/v1/audit/verify?bucket=true";
    if (client_json(cli, &(struct json_call){ "POST", target, NULL, 600 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    bool ok = get_bool(held, "ok");
    if (cli->json) {
        int rc = print_json(held, err);
        return rc < 0 ? rc : !ok;
    }
    json_array_foreach (json_object_get(held, "findings"), i, f)
        print_line("%s, record %lld: %s", get_text(f, "where"), (long long)get_int(f, "seq"),
                   get_text(f, "what"));
    print_line("%lld records here, %lld in the bucket: %s", (long long)get_int(held, "records"),
               (long long)get_int(held, "bucket_records"),
               ok ? "nothing is missing or changed" : "the audit is not what was written");
    return ok ? 0 : 1;
}

int
cmd_audit(struct cli *cli, int argc, char **argv, struct err *err)
{
    struct audit_words w = { 0 };
    const char *words[1];
    uint64_t limit = PAGE;
    const struct cli_option options[] = {
        { "run", 0, CLI_TEXT, &w.run },     { "volume", 0, CLI_TEXT, &w.volume },
        { "path", 0, CLI_TEXT, &w.path },   { "verb", 0, CLI_TEXT, &w.verb },
        { "since", 0, CLI_TEXT, &w.since }, { "until", 0, CLI_TEXT, &w.until },
        { "limit", 0, CLI_TEXT, &w.limit }, { "local", 0, CLI_FLAG, &w.local },
        { NULL, 0, CLI_FLAG, NULL },
    };
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 0, 1, words }, err);
    if (count < 0)
        return -1;
    if (count == 1 && strcmp(words[0], "verify") != 0)
        return err_set(err, ERR_USAGE, "unknown word '%s': 'audit verify' is known", words[0]);
    if (count == 1)
        return verify(cli, w.local, err);
    if (w.limit && (!parse_u64(w.limit, &limit) || limit < 1))
        return err_set(err, ERR_USAGE, "--limit is a number from 1");
    return list(cli, &w, limit, err);
}
