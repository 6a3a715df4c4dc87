#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "base/path.h"
#include "gateway/cli/cli.h"

static int
absolute(const char *path, char *out, size_t size, struct err *err)
{
    char cwd[PATH_MAX];
    int len;
    if (path[0] == '/')
        len = snprintf(out, size, "%s", path);
    else if (getcwd(cwd, sizeof(cwd)))
        len = snprintf(out, size, "%s/%s", cwd, path);
    else
        return err_set(err, ERR_USAGE, "give '%s' as an absolute path", path);
    return len >= 0 && (size_t)len < size ? 0
                                          : err_set(err, ERR_NAME_TOO_LONG, "the path is too long");
}

/* VOLUME[/FOLDER] or VOLUME:/FOLDER into the body. */
static int
add_source(json_t *body, const char *text, struct err *err)
{
    char volume[LIMIT_VOLUME_NAME + 1];
    size_t len = strcspn(text, "/:");
    if (len > LIMIT_VOLUME_NAME)
        return err_set(err, ERR_BAD_NAME, "the volume's name in '%s' is too long", text);
    (void)snprintf(volume, sizeof(volume), "%.*s", (int)len, text);
    if (path_check_volume(volume, err) < 0)
        return -1;
    const char *folder = text + len + (text[len] != '\0' ? 1 : 0);
    if (json_object_set_new(body, "volume", json_string(volume)) < 0 ||
        json_object_set_new(body, "folder", json_string(folder)) < 0)
        return err_set(err, ERR_INVAL, "'%s' is not a volume and folder", text);
    return 0;
}

struct mount_words {
    const char *lease, *run;
    bool read_only;
};

static json_t *
mount_body(const struct mount_words *w, const char *source, const char *path, struct err *err)
{
    char full[PATH_MAX * 2];
    uint64_t minutes = 0;
    json_t *body = json_pack("{s:b}", "read_only", (int)w->read_only);
    int rc = body ? add_source(body, source, err) : err_nomem(err);
    if (rc == 0 && path)
        rc = absolute(path, full, sizeof(full), err);
    if (rc == 0 && path && json_object_set_new(body, "path", json_string(full)) < 0)
        rc = err_set(err, ERR_INVAL, "the path must be UTF-8");
    if (rc == 0 && w->lease && (!parse_u64(w->lease, &minutes) || minutes < 1 || minutes > 1440))
        rc = err_set(err, ERR_USAGE, "a lease is 1 to 1440 minutes");
    if (rc == 0 && minutes &&
        json_object_set_new(body, "lease_minutes", json_integer((json_int_t)minutes)) < 0)
        rc = err_nomem(err);
    if (rc == 0 && w->run && json_object_set_new(body, "run", json_string(w->run)) < 0)
        rc = err_set(err, ERR_USAGE, "a run's id is a ULID");
    if (rc == 0)
        return body;
    json_decref(body);
    return NULL;
}

int
cmd_mount(struct cli *cli, int argc, char **argv, struct err *err)
{
    struct mount_words w = { 0 };
    const char *words[2] = { NULL, NULL };
    json_t *answer = NULL;
    const struct cli_option options[] = { { "read-only", 'r', CLI_FLAG, &w.read_only },
                                          { "lease", 0, CLI_TEXT, &w.lease },
                                          { "run", 0, CLI_TEXT, &w.run },
                                          { NULL, 0, CLI_FLAG, NULL } };
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 2, words }, err);
    if (count < 0)
        return -1;
    json_t *body = mount_body(&w, words[0], count == 2 ? words[1] : NULL, err);
    if (!body ||
        client_json(cli, &(struct json_call){ "POST", "/v1/mounts", body, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json)
        return print_json(held, err);
    print_line("%s", get_text(held, "path"));
    return 0;
}

/* The id of what the user named: an id, or a path. */
static int
find_mount(struct cli *cli, const char *word, char *id, size_t size, struct err *err)
{
    char full[PATH_MAX * 2];
    char real[PATH_MAX];
    uint64_t number;
    json_t *answer = NULL;
    json_t *mount;
    size_t i;
    if (parse_u64(word, &number)) {
        (void)snprintf(id, size, "%s", word);
        return 0;
    }
    if (absolute(word, full, sizeof(full), err) < 0 ||
        client_json(cli, &(struct json_call){ "GET", "/v1/mounts", NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    size_t len = strlen(full);
    while (len > 1 && full[len - 1] == '/')
        full[--len] = '\0';
    const char *resolved = realpath(full, real) ? real : full;
    json_array_foreach (json_object_get(held, "mounts"), i, mount) {
        const char *path = get_text(mount, "path");
        if (strcmp(path, full) == 0 || strcmp(path, resolved) == 0) {
            (void)snprintf(id, size, "%s", get_text(mount, "id"));
            return 0;
        }
    }
    return err_set(err, ERR_NOT_FOUND, "nothing of this gateway is mounted at '%s'", full);
}

int
cmd_umount(struct cli *cli, int argc, char **argv, struct err *err)
{
    bool force = false;
    const char *timeout = "30";
    const char *words[1];
    char id[24];
    char target[128];
    uint64_t seconds;
    json_t *answer = NULL;
    const struct cli_option options[] = { { "force", 'f', CLI_FLAG, &force },
                                          { "timeout", 0, CLI_TEXT, &timeout },
                                          { NULL, 0, CLI_FLAG, NULL } };
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 1, words }, err) < 0)
        return -1;
    if (!parse_u64(timeout, &seconds) || seconds > 3600)
        return err_set(err, ERR_USAGE, "--timeout is 0 to 3600 seconds");
    if (find_mount(cli, words[0], id, sizeof(id), err) < 0)
        return -1;
    (void)snprintf(target, sizeof(target), "/v1/mounts/%s?timeout_s=%llu%s", id,
                   (unsigned long long)seconds, force ? "&force=true" : "");
    if (client_json(cli, &(struct json_call){ "DELETE", target, NULL, (int)seconds + 60 }, &answer,
                    err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json && print_json(held, err) < 0)
        return -1;
    if (get_int(held, "conflicts") > 0) {
        (void)fprintf(
            stderr, "holdfast: unmounted, but %lld writes met a conflict: see 'holdfast status'\n",
            (long long)get_int(held, "conflicts"));
        return err_exit(ERR_CONFLICT);
    }
    return 0;
}

int
cmd_mounts(struct cli *cli, int argc, char **argv, struct err *err)
{
    static const char *const heads[] = { "ID", "VOLUME", "PATH", "MODE", "STATE", "EXPIRES", "RUN" };
    const char *words[1];
    struct table table;
    json_t *answer = NULL;
    json_t *m;
    size_t i;
    if (cli_parse(cli, argc, argv, NULL, &(struct cli_words){ 0, 0, words }, err) < 0 ||
        client_json(cli, &(struct json_call){ "GET", "/v1/mounts", NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json)
        return print_json(held, err);
    table_init(&table, sizeof(heads) / sizeof(heads[0]));
    for (i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
        table_add(&table, heads[i]);
    json_array_foreach (json_object_get(held, "mounts"), i, m) {
        char source[LIMIT_VOLUME_NAME + LIMIT_PATH + 2];
        const char *folder = get_text(m, "folder");
        (void)snprintf(source, sizeof(source), "%s%s%s", get_text(m, "volume"),
                       folder[0] != '\0' ? "/" : "", folder);
        table_add(&table, get_text(m, "id")), table_add(&table, source),
            table_add(&table, get_text(m, "path"));
        table_add(&table, get_bool(m, "read_only") ? "ro" : "rw"),
            table_add(&table, get_text(m, "state"));
        table_add(&table, get_text(m, "expires")), table_add(&table, get_text(m, "run"));
    }
    table_print(&table);
    return 0;
}
