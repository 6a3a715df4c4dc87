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

/* VOLUME[@SNAPSHOT][/FOLDER] or with a colon before the slash, into the body. */
static int
add_source(json_t *body, const char *text, struct err *err)
{
    char volume[LIMIT_VOLUME_NAME + 1];
    char snapshot[LIMIT_VOLUME_NAME + 1] = "";
    size_t all = strcspn(text, "/:");
    size_t len = strcspn(text, "@/:");
    if (len > LIMIT_VOLUME_NAME)
        return err_set(err, ERR_BAD_NAME, "the volume's name in '%s' is too long", text);
    (void)snprintf(volume, sizeof(volume), "%.*s", (int)len, text);
    if (path_check_volume(volume, err) < 0)
        return -1;
    if (text[len] == '@') {
        (void)snprintf(snapshot, sizeof(snapshot), "%.*s", (int)(all - len - 1), text + len + 1);
        if (all - len > sizeof(snapshot) || path_check_volume(snapshot, err) < 0)
            return err_set(err, ERR_USAGE, "'%.*s' is not VOLUME@SNAPSHOT", (int)all, text);
    }
    const char *folder = text + all + (text[all] != '\0' ? 1 : 0);
    if (json_object_set_new(body, "volume", json_string(volume)) < 0 ||
        (snapshot[0] != '\0' && json_object_set_new(body, "snapshot", json_string(snapshot)) < 0) ||
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

/* What the user named: an id, or a path. */
struct named_mount {
    char id[24];
    char volume[LIMIT_VOLUME_NAME + 1];
    bool waits; /* something may be unsynced because of it */
};

static bool
is_named(const json_t *mount, const char *word, const char *full, const char *resolved)
{
    const char *path = get_text(mount, "path");
    return strcmp(get_text(mount, "id"), word) == 0 || strcmp(path, full) == 0 ||
           strcmp(path, resolved) == 0;
}

static int
find_mount(struct cli *cli, const char *word, struct named_mount *out, struct err *err)
{
    char full[PATH_MAX * 2];
    char real[PATH_MAX];
    json_t *answer = NULL;
    json_t *mount;
    size_t i;
    if (absolute(word, full, sizeof(full), err) < 0 ||
        client_json(cli, &(struct json_call){ "GET", "/v1/mounts", NULL, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    size_t len = strlen(full);
    while (len > 1 && full[len - 1] == '/')
        full[--len] = '\0';
    const char *resolved = realpath(full, real) ? real : full;
    json_array_foreach (json_object_get(held, "mounts"), i, mount) {
        if (!is_named(mount, word, full, resolved))
            continue;
        (void)snprintf(out->id, sizeof(out->id), "%s", get_text(mount, "id"));
        (void)snprintf(out->volume, sizeof(out->volume), "%s", get_text(mount, "volume"));
        out->waits =
            !get_bool(mount, "read_only") && strcmp(get_text(mount, "state"), "mounted") == 0;
        return 0;
    }
    return err_set(err, ERR_NOT_FOUND, "nothing of this gateway is mounted at '%s'", full);
}

/* The end of umount: what is unsynced or in conflict, in words or as one document. */
static int
tell_unmounted(struct cli *cli, const struct named_mount *mount, const struct cli_synced *synced,
               bool unmounted, struct err *err)
{
    char left[120];
    bool kept = synced->keys > 0;
    cli_synced_text(synced, left, sizeof(left));
    if (cli->json) {
        scope_json *out = json_pack(
            "{s:s, s:s, s:b, s:I, s:I, s:I, s:I}", "id", mount->id, "volume", mount->volume,
            "unmounted", (int)unmounted, "pending", (json_int_t)synced->keys, "unsynced_files",
            (json_int_t)synced->files, "unsynced_bytes", (json_int_t)synced->bytes, "conflicts",
            (json_int_t)synced->conflicts);
        if (!out)
            return err_nomem(err);
        if (print_json(out, err) < 0)
            return -1;
    }
    if (!unmounted)
        return 0;
    if (kept)
        (void)fprintf(stderr,
                      "holdfast: unmounted before all was in the bucket: %s; they stay here and "
                      "go up by themselves\n",
                      left);
    if (synced->conflicts > 0)
        (void)fprintf(
            stderr,
            "holdfast: unmounted, but %lld writes met a conflict: see 'holdfast conflicts list'\n",
            (long long)synced->conflicts);
    if (synced->conflicts > 0)
        return err_exit(ERR_CONFLICT);
    return kept ? err_exit(ERR_NOT_SYNCED) : 0;
}

static int
take_away(struct cli *cli, const struct named_mount *mount, bool force, struct cli_synced *synced,
          struct err *err)
{
    char target[128];
    json_t *answer = NULL;
    /* What was written since the wait has its own short barrier in the gateway. */
    (void)snprintf(target, sizeof(target), "/v1/mounts/%s?timeout_s=%d%s", mount->id,
                   force ? 1 : 10, force ? "&force=true" : "");
    if (client_json(cli, &(struct json_call){ "DELETE", target, NULL, 90 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    synced->conflicts += get_int(held, "conflicts");
    synced->keys = get_int(held, "pending");
    if (synced->keys == 0)
        synced->files = synced->bytes = 0;
    return 0;
}

int
cmd_umount(struct cli *cli, int argc, char **argv, struct err *err)
{
    bool force = false;
    const char *timeout = NULL;
    const char *words[1];
    uint64_t seconds = 30;
    struct named_mount mount;
    struct cli_synced synced = { 0 };
    struct err late = ERR_INIT;
    const struct cli_option options[] = { { "force", 'f', CLI_FLAG, &force },
                                          { "timeout", 0, CLI_TEXT, &timeout },
                                          { NULL, 0, CLI_FLAG, NULL } };
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 1, words }, err) < 0)
        return -1;
    if (timeout && (!parse_u64(timeout, &seconds) || seconds > 86400))
        return err_set(err, ERR_USAGE, "--timeout is 0 to 86400 seconds");
    if (!timeout && force)
        seconds = 5;
    if (find_mount(cli, words[0], &mount, err) < 0)
        return -1;
    if (mount.waits && cli_wait_synced(cli, mount.volume, (int64_t)seconds, &synced, &late) < 0 &&
        !force) {
        *err = late;
        if (late.code != ERR_NOT_SYNCED)
            return -1;
        if (cli->json && tell_unmounted(cli, &mount, &synced, false, err) < 0)
            return -1;
        return err_set(
            err, ERR_NOT_SYNCED,
            "still mounted: %s; wait longer (--timeout), or unmount with --force: what is "
            "left stays here and goes up by itself",
            late.msg);
    }
    if (take_away(cli, &mount, force, &synced, err) < 0)
        return -1;
    return tell_unmounted(cli, &mount, &synced, true, err);
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
        char source[2 * LIMIT_VOLUME_NAME + LIMIT_PATH + 3];
        const char *snapshot = get_text(m, "snapshot");
        const char *folder = get_text(m, "folder");
        (void)snprintf(source, sizeof(source), "%s%s%s%s%s", get_text(m, "volume"),
                       snapshot[0] != '\0' ? "@" : "", snapshot, folder[0] != '\0' ? "/" : "",
                       folder);
        table_add(&table, get_text(m, "id")), table_add(&table, source),
            table_add(&table, get_text(m, "path"));
        table_add(&table, get_bool(m, "read_only") ? "ro" : "rw"),
            table_add(&table, get_text(m, "state"));
        table_add(&table, get_text(m, "expires")), table_add(&table, get_text(m, "run"));
    }
    table_print(&table);
    return 0;
}
