#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/parse.h"
#include "base/path.h"
#include "gateway/cli/cli.h"

struct volume_words {
    const char *name;
    const char *prefix, *quota, *history, *versions, *sync, *storage_class, *encryption,
        *conflict_copy, *snapshots, *stale_reads, *audit_reads;
    bool read_only, read_write, force;
};

static int
add_number(json_t *body, const char *field, const char *text, bool size, struct err *err)
{
    uint64_t value;
    if (!text)
        return 0;
    if (!(size ? parse_size(text, &value) : parse_u64(text, &value)) || value > INT64_MAX)
        return err_set(err, ERR_USAGE, "'%s' is not a number for %s", text, field);
    return json_object_set_new(body, field, json_integer((json_int_t)value)) < 0 ? err_nomem(err)
                                                                                 : 0;
}

static int
add_text(json_t *body, const char *field, const char *text, struct err *err)
{
    if (!text)
        return 0;
    return json_object_set_new(body, field, json_string(text)) < 0
               ? err_set(err, ERR_USAGE, "%s must be UTF-8", field)
               : 0;
}

static int
add_switch(json_t *body, const char *field, const char *text, struct err *err)
{
    if (!text)
        return 0;
    bool on = strcmp(text, "on") == 0;
    if (!on && strcmp(text, "off") != 0)
        return err_set(err, ERR_USAGE, "'%s' must be on or off", text);
    return json_object_set_new(body, field, json_boolean(on)) < 0 ? err_nomem(err) : 0;
}

static json_t *
settings_body(const struct volume_words *w, struct err *err)
{
    json_t *body = json_object();
    int rc = body ? 0 : err_nomem(err);
    if (rc == 0)
        rc = add_text(body, "prefix", w->prefix, err);
    if (rc == 0)
        rc = add_text(body, "sync", w->sync, err);
    if (rc == 0)
        rc = add_text(body, "storage_class", w->storage_class, err);
    if (rc == 0)
        rc = add_text(body, "encryption", w->encryption, err);
    if (rc == 0)
        rc = add_switch(body, "conflict_copy", w->conflict_copy, err);
    if (rc == 0)
        rc = add_text(body, "snapshots", w->snapshots, err);
    if (rc == 0)
        rc = add_text(body, "stale_reads", w->stale_reads, err);
    if (rc == 0)
        rc = add_switch(body, "audit_reads", w->audit_reads, err);
    if (rc == 0 && (w->read_only || w->read_write))
        rc = json_object_set_new(body, "read_only", json_boolean(w->read_only)) < 0 ? err_nomem(err)
                                                                                    : 0;
    if (rc == 0)
        rc = add_number(body, "quota", w->quota, true, err);
    if (rc == 0)
        rc = add_number(body, "history_days", w->history, false, err);
    if (rc == 0)
        rc = add_number(body, "history_versions", w->versions, false, err);
    if (rc == 0)
        return body;
    json_decref(body);
    return NULL;
}

static void
show_history(const json_t *v)
{
    char size[16];
    char most[64] = "";
    int64_t versions = get_int(v, "history_versions");
    format_size((uint64_t)get_int(v, "kept_bytes"), size);
    if (versions > 0)
        (void)snprintf(most, sizeof(most), ", at most %lld versions of a file",
                       (long long)versions);
    if (get_int(v, "history_days") == 0)
        print_line("history    none is kept of what is replaced or removed from now on");
    else
        print_line("history    %lld days%s", (long long)get_int(v, "history_days"), most);
    print_line("kept       %lld versions, %s", (long long)get_int(v, "kept_versions"), size);
}

void
show_rule(const json_t *answer, const char *field)
{
    char when[20];
    int64_t next_ns;
    const char *next = get_text(answer, "next_snapshot");
    if (next[0] == '\0')
        return;
    format_local(next, when);
    bool over = time_parse_rfc3339(next, &next_ns) == 0 && next_ns <= clock_wall_ns();
    print_line("snapshots  %s, the next one %s", get_text(answer, field),
               over ? "with the next change" : when);
}

static void
show_volume(const json_t *v)
{
    char size[16];
    format_size((uint64_t)get_int(v, "bytes"), size);
    print_line("name       %s", get_text(v, "name"));
    print_line("prefix     %s", get_text(v, "prefix"));
    print_line("files      %lld, %s", (long long)get_int(v, "files"), size);
    print_line("unsynced   %lld", (long long)get_int(v, "unsynced_files"));
    print_line("conflicts  %lld", (long long)get_int(v, "conflicts"));
    print_line("sync       %s%s", get_text(v, "sync"),
               get_bool(v, "read_only") ? ", read-only" : "");
    if (get_bool(v, "frozen"))
        print_line("frozen     nothing is written, nothing goes to the bucket: 'holdfast thaw'");
    if (get_bool(v, "conflict_copy"))
        print_line("copies     a conflict's loser becomes a file beside the path");
    print_line("stale      %s", get_text(v, "stale_reads"));
    print_line("audit      %s", get_bool(v, "audit_reads") ? "changes and reads" : "changes");
    print_line("quota      %lld", (long long)get_int(v, "quota"));
    const json_t *fork = json_object_get(v, "fork");
    if (fork) {
        print_line("fork       of %s as of %s, %lld of %lld files are copied", get_text(fork, "of"),
                   get_text(fork, "at"), (long long)get_int(fork, "copied"),
                   (long long)get_int(fork, "files"));
        if (get_text(fork, "error")[0] != '\0')
            print_line("           it does not go on now: %s", get_text(fork, "error"));
    }
    show_history(v);
    show_rule(v, "snapshots");
    if (get_text(v, "storage_class")[0] != '\0')
        print_line("class      %s", get_text(v, "storage_class"));
    if (get_text(v, "encryption")[0] != '\0')
        print_line("encryption %s", get_text(v, "encryption"));
    print_line("created    %s", get_text(v, "created"));
}

static int
finish_volume(struct cli *cli, json_t *answer, const char *done, struct err *err)
{
    scope_json *held = answer;
    if (cli->json)
        return print_json(held, err);
    if (done)
        print_line("%s volume '%s'", done, get_text(held, "name"));
    else
        show_volume(held);
    return 0;
}

static int
volume_target_of(const struct volume_words *w, char *out, size_t size, struct err *err)
{
    if (path_check_volume(w->name, err) < 0)
        return -1;
    (void)snprintf(out, size, "/v1/volumes/%s", w->name);
    return 0;
}

static int
do_create(struct cli *cli, const struct volume_words *w, struct err *err)
{
    json_t *answer = NULL;
    if (path_check_volume(w->name, err) < 0)
        return -1;
    json_t *body = settings_body(w, err);
    if (!body)
        return -1;
    if (json_object_set_new(body, "name", json_string(w->name)) < 0) {
        json_decref(body);
        return err_nomem(err);
    }
    if (client_json(cli, &(struct json_call){ "POST", "/v1/volumes", body, 60 }, &answer, err) < 0)
        return -1;
    return finish_volume(cli, answer, "created", err);
}

static int
do_list(struct cli *cli, const struct volume_words *w, struct err *err)
{
    struct table table;
    json_t *answer = NULL;
    json_t *v;
    size_t i;
    (void)w;
    if (client_json(cli, &(struct json_call){ "GET", "/v1/volumes", NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json)
        return print_json(held, err);
    table_init(&table, 6);
    table_add(&table, "NAME"), table_add(&table, "FILES"), table_add(&table, "SIZE");
    table_add(&table, "UNSYNCED"), table_add(&table, "CONFLICTS"), table_add(&table, "PREFIX");
    json_array_foreach (json_object_get(held, "volumes"), i, v) {
        char number[3][24];
        (void)snprintf(number[0], sizeof(number[0]), "%lld", (long long)get_int(v, "files"));
        (void)snprintf(number[1], sizeof(number[1]), "%lld",
                       (long long)get_int(v, "unsynced_files"));
        (void)snprintf(number[2], sizeof(number[2]), "%lld", (long long)get_int(v, "conflicts"));
        table_add(&table, get_text(v, "name")), table_add(&table, number[0]);
        table_add_size(&table, get_int(v, "bytes"));
        table_add(&table, number[1]), table_add(&table, number[2]),
            table_add(&table, get_text(v, "prefix"));
    }
    table_print(&table);
    return 0;
}

static int
do_show(struct cli *cli, const struct volume_words *w, struct err *err)
{
    char target[128];
    json_t *answer = NULL;
    if (volume_target_of(w, target, sizeof(target), err) < 0 ||
        client_json(cli, &(struct json_call){ "GET", target, NULL, 60 }, &answer, err) < 0)
        return -1;
    return finish_volume(cli, answer, NULL, err);
}

static int
do_set(struct cli *cli, const struct volume_words *w, struct err *err)
{
    char target[128];
    json_t *answer = NULL;
    if (volume_target_of(w, target, sizeof(target), err) < 0)
        return -1;
    json_t *body = settings_body(w, err);
    if (!body ||
        client_json(cli, &(struct json_call){ "PATCH", target, body, 60 }, &answer, err) < 0)
        return -1;
    return finish_volume(cli, answer, "changed", err);
}

static int
do_delete(struct cli *cli, const struct volume_words *w, struct err *err)
{
    char target[144];
    if (volume_target_of(w, target, sizeof(target), err) < 0)
        return -1;
    if (w->force)
        (void)snprintf(target + strlen(target), sizeof(target) - strlen(target), "?force=true");
    if (client_json(cli, &(struct json_call){ "DELETE", target, NULL, 60 }, NULL, err) < 0)
        return -1;
    if (cli->json)
        (void)printf("{\"id\":\"%s\",\"deleted\":true}\n", w->name);
    else
        print_line("forgot volume '%s'; its objects stay in the bucket", w->name);
    return 0;
}

int
cmd_volume(struct cli *cli, int argc, char **argv, struct err *err)
{
    static const struct {
        const char *name;
        bool named;
        int (*fn)(struct cli *cli, const struct volume_words *w, struct err *err);
    } actions[] = { { "create", true, do_create },
                    { "list", false, do_list },
                    { "show", true, do_show },
                    { "set", true, do_set },
                    { "delete", true, do_delete } };
    static const char *const names[] = { "create", "list", "show", "set", "delete", NULL };
    struct volume_words w = { 0 };
    const char *words[2];
    const struct cli_option options[] = {
        { "prefix", 0, CLI_TEXT, &w.prefix },
        { "quota", 0, CLI_TEXT, &w.quota },
        { "history", 0, CLI_TEXT, &w.history },
        { "history-versions", 0, CLI_TEXT, &w.versions },
        { "sync", 0, CLI_TEXT, &w.sync },
        { "read-only", 0, CLI_FLAG, &w.read_only },
        { "read-write", 0, CLI_FLAG, &w.read_write },
        { "force", 0, CLI_FLAG, &w.force },
        { "storage-class", 0, CLI_TEXT, &w.storage_class },
        { "encryption", 0, CLI_TEXT, &w.encryption },
        { "conflict-copy", 0, CLI_TEXT, &w.conflict_copy },
        { "snapshots", 0, CLI_TEXT, &w.snapshots },
        { "stale-reads", 0, CLI_TEXT, &w.stale_reads },
        { "audit-reads", 0, CLI_TEXT, &w.audit_reads },
        { NULL, 0, CLI_FLAG, NULL },
    };
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 2, words }, err);
    if (count < 0)
        return -1;
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(actions[i].name, words[0]) != 0)
            continue;
        if ((count == 2) != actions[i].named)
            return err_set(err, ERR_USAGE, "volume %s takes %s", words[0],
                           actions[i].named ? "a name" : "no name");
        w.name = words[1];
        return actions[i].fn(cli, &w, err);
    }
    const char *near = nearest_word(words[0], names);
    return err_set(err, ERR_USAGE, "unknown word '%s', did you mean 'volume %s'?", words[0],
                   near ? near : "list");
}

/* ---- the emergency stop ---- */
static int
set_frozen(struct cli *cli, int argc, char **argv, bool frozen, struct err *err)
{
    const char *words[1];
    json_t *answer = NULL;
    const struct cli_option options[] = { { NULL, 0, CLI_FLAG, NULL } };
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 0, 1, words }, err);
    if (count < 0 || (count == 1 && path_check_volume(words[0], err) < 0))
        return -1;
    json_t *body =
        json_pack("{s:b, s:s*}", "frozen", (int)frozen, "volume", count == 1 ? words[0] : NULL);
    if (!body)
        return err_nomem(err);
    if (client_json(cli, &(struct json_call){ "POST", "/v1/freeze", body, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json)
        return print_json(held, err);
    print_line("%s %lld volume%s", frozen ? "froze" : "thawed", (long long)get_int(held, "changed"),
               get_int(held, "changed") == 1 ? "" : "s");
    return 0;
}

int
cmd_freeze(struct cli *cli, int argc, char **argv, struct err *err)
{
    return set_frozen(cli, argc, argv, true, err);
}

int
cmd_thaw(struct cli *cli, int argc, char **argv, struct err *err)
{
    return set_frozen(cli, argc, argv, false, err);
}
