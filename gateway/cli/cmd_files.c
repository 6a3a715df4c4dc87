#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/scope.h"
#include "gateway/cli/cli.h"

/* ---- ls, stat ---- */
static const char *
state_of(const json_t *entry)
{
    if (get_bool(entry, "conflict"))
        return "conflict";
    if (get_bool(entry, "writing"))
        return "writing";
    return get_bool(entry, "synced") ? "synced" : "staged";
}

static void
add_entry(struct table *table, const json_t *entry)
{
    char name[LIMIT_PATH + 1];
    char when[20];
    const char *kind = get_text(entry, "kind");
    format_local(get_text(entry, "mtime"), when);
    table_add(table, kind);
    table_add(table, get_text(entry, "mode"));
    if (strcmp(kind, "dir") == 0)
        table_add(table, "-");
    else
        table_add_size(table, get_int(entry, "size"));
    table_add(table, when);
    table_add(table, strcmp(kind, "dir") == 0 ? "-" : state_of(entry));
    table_add(table, get_bytes(entry, "name", name, sizeof(name)));
}

/* `at` NULL: now. */
static int
place_then(struct place *place, const char *at, char when[TIME_RFC3339_SIZE], struct err *err)
{
    place->at = at ? when : NULL;
    return at ? place_time(at, when, err) : 0;
}

/* All pages of a folder as one array. */
static int
list_all(struct cli *cli, const struct place *place, json_t *all, struct err *err)
{
    char query[64 + 3 * TIME_RFC3339_SIZE] = "?limit=5000";
    scope_buf at;
    buf_init(&at, 4 * TIME_RFC3339_SIZE);
    if (place->at && (buf_append_str(&at, "&at=", err) < 0 ||
                      percent_encode(place->at, strlen(place->at), false, &at, err) < 0))
        return -1;
    (void)snprintf(query, sizeof(query), "?limit=5000%s", buf_cstr(&at));
    for (;;) {
        json_t *answer = NULL;
        if (place_get(cli, "/v1/list", place, query, &answer, err) < 0)
            return -1;
        scope_json *held = answer;
        if (json_array_extend(all, json_object_get(held, "entries")) < 0)
            return err_nomem(err);
        const char *next = get_text(held, "next");
        if (next[0] == '\0')
            return 0;
        (void)snprintf(query, sizeof(query), "?limit=5000%s&cursor=%s", buf_cstr(&at), next);
    }
}

int
cmd_ls(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *words[1];
    const char *at = NULL;
    char when[TIME_RFC3339_SIZE];
    struct place place = { .at = NULL };
    struct table table;
    json_t *entry;
    size_t i;
    const struct cli_option options[] = { { "at", 0, CLI_TEXT, &at }, { NULL, 0, CLI_FLAG, NULL } };
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 0, 1, words }, err);
    if (count < 0)
        return -1;
    if (count == 0 && at)
        return err_set(err, ERR_USAGE, "--at is of a folder: name one");
    if (count == 0) {
        char list[] = "list";
        char json[] = "--json";
        char *args[] = { list, json };
        return cmd_volume(cli, cli->json ? 2 : 1, args, err);
    }
    scope_json *all = json_array();
    if (!all)
        return err_nomem(err);
    if (cli_place(words[0], place.volume, place.path, err) < 0 ||
        place_then(&place, at, when, err) < 0 || list_all(cli, &place, all, err) < 0)
        return -1;
    if (cli->json) {
        scope_json *out = json_pack("{s:s, s:s, s:O}", "volume", place.volume, "path", place.path,
                                    "entries", all);
        return out ? print_json(out, err) : err_nomem(err);
    }
    table_init(&table, 6);
    table_add(&table, "KIND"), table_add(&table, "MODE"), table_add(&table, "SIZE");
    table_add(&table, "MODIFIED"), table_add(&table, "STATE"), table_add(&table, "NAME");
    json_array_foreach (all, i, entry)
        add_entry(&table, entry);
    table_print(&table);
    return 0;
}

int
cmd_stat(struct cli *cli, int argc, char **argv, struct err *err)
{
    static const char *const fields[] = { "kind", "mode", "mtime", "version", "target" };
    const char *words[1];
    struct place place;
    json_t *answer = NULL;
    if (cli_parse(cli, argc, argv, NULL, &(struct cli_words){ 1, 1, words }, err) < 0 ||
        place_read(words[0], false, &place, err) < 0 ||
        place_get(cli, "/v1/stat", &place, "", &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json)
        return print_json(held, err);
    print_line("path     %s:/%s", place.volume, get_text(held, "path"));
    print_line("size     %lld", (long long)get_int(held, "size"));
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const char *value = get_text(held, fields[i]);
        if (value[0] != '\0')
            print_line("%-8s %s", fields[i], value);
    }
    print_line("owner    %lld:%lld", (long long)get_int(held, "uid"),
               (long long)get_int(held, "gid"));
    print_line("state    %s", state_of(held));
    return 0;
}

/* ---- reading ---- */
int
cmd_cat(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *version = NULL, *at = NULL;
    const char *words[CLI_LIST_MAX];
    char when[TIME_RFC3339_SIZE];
    struct place place;
    const struct cli_option options[] = { { "version", 0, CLI_TEXT, &version },
                                          { "at", 0, CLI_TEXT, &at },
                                          { NULL, 0, CLI_FLAG, NULL } };
    int count =
        cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, CLI_LIST_MAX, words }, err);
    if (version && at)
        return err_set(err, ERR_USAGE, "--version and --at exclude each other");
    if (version && count > 1)
        return err_set(err, ERR_USAGE, "--version is one file's: name one file");
    for (int i = 0; i < count; i++) {
        if (place_read(words[i], true, &place, err) < 0 || place_then(&place, at, when, err) < 0 ||
            place_fetch(cli, &place, version, STDOUT_FILENO, NULL, err) < 0)
            return -1;
    }
    return count < 0 ? -1 : 0;
}

/* An answer is cut where the file gets another version on its way (docs/http.md): then once more, from the start. */
static int
fetch_whole(struct cli *cli, const struct place *place, const char *version, int fd,
            struct err *err)
{
    for (int tries = 0;; tries++) {
        if (place_fetch(cli, place, version, fd, place_name(place->path), err) == 0)
            return 0;
        if (err->code != ERR_AGAIN || tries == 4)
            return -1;
        if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0)
            return err_sys(err, errno, "cannot begin the file anew");
        *err = (struct err)ERR_INIT;
    }
}

/* Beside the target, then renamed: nobody sees a half file, and a failed get leaves the old one. */
static int
fetch_to_file(struct cli *cli, const struct place *place, const char *version, const char *target,
              struct err *err)
{
    char path[PATH_MAX];
    char temp[PATH_MAX + 16];
    struct stat st;
    bool into = stat(target, &st) == 0 && S_ISDIR(st.st_mode);
    int len = snprintf(path, sizeof(path), "%s%s%s", target, into ? "/" : "",
                       into ? place_name(place->path) : "");
    if (len < 0 || (size_t)len >= sizeof(path))
        return err_set(err, ERR_NAME_TOO_LONG, "the path '%s' is too long", target);
    (void)snprintf(temp, sizeof(temp), "%s.XXXXXX", path);
    scope_fd int fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "cannot write beside '%s'", path);
    mode_t mask = umask(0);
    (void)umask(mask);
    int rc = fetch_whole(cli, place, version, fd, err);
    if (rc == 0 &&
        (fchmod(fd, 0666 & ~mask) < 0 || close(steal_fd(&fd)) < 0 || rename(temp, path) < 0))
        rc = err_sys(err, errno, "cannot write '%s'", path);
    if (rc < 0)
        (void)unlink(temp);
    return rc;
}

int
cmd_get(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *version = NULL, *at = NULL;
    const char *words[2];
    char when[TIME_RFC3339_SIZE];
    struct place place;
    const struct cli_option options[] = { { "version", 0, CLI_TEXT, &version },
                                          { "at", 0, CLI_TEXT, &at },
                                          { NULL, 0, CLI_FLAG, NULL } };
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 2, words }, err);
    if (version && at)
        return err_set(err, ERR_USAGE, "--version and --at exclude each other");
    if (count < 0 || place_read(words[0], true, &place, err) < 0 ||
        place_then(&place, at, when, err) < 0)
        return -1;
    const char *target = count == 2 ? words[1] : place_name(place.path);
    if (strcmp(target, "-") == 0)
        return place_fetch(cli, &place, version, STDOUT_FILENO, NULL, err);
    return fetch_to_file(cli, &place, version, target, err);
}

/* ---- writing ---- */
struct put_words {
    const char *base, *timeout;
    bool create, no_wait;
};

struct put {
    struct place place;
    char condition[LIMIT_ETAG + 2];
    char mode[8], mtime[40], wait[64];
    int fd;
    int64_t size;
};

/* What is there now is the base, unless the user named one. A folder takes the file in under its own name. */
static int
find_base(struct cli *cli, const struct put_words *w, const char *file, struct put *put,
          struct err *err)
{
    json_t *answer = NULL;
    struct err seen = ERR_INIT;
    put->condition[0] = '\0';
    if (w->create)
        return 0;
    if (w->base) {
        (void)snprintf(put->condition, sizeof(put->condition), "\"%.*s\"", LIMIT_ETAG - 1, w->base);
        return 0;
    }
    if (place_get(cli, "/v1/stat", &put->place, "", &answer, &seen) < 0) {
        if (seen.code == ERR_NOT_FOUND)
            return 0;
        *err = seen;
        return -1;
    }
    scope_json *held = answer;
    if (strcmp(get_text(held, "kind"), "dir") != 0) {
        (void)snprintf(put->condition, sizeof(put->condition), "\"%.*s\"", LIMIT_ETAG - 1,
                       get_text(held, "version"));
        return 0;
    }
    if (strcmp(file, "-") == 0)
        return err_set(err, ERR_IS_DIR, "'%s:/%s' is a folder: name the file", put->place.volume,
                       put->place.path);
    size_t len = strlen(put->place.path);
    (void)snprintf(put->place.path + len, sizeof(put->place.path) - len, "%s%s", len ? "/" : "",
                   place_name(file));
    return 1; /* look again, at the file in the folder */
}

static int
open_source(const char *file, struct put *put, struct err *err)
{
    struct stat st;
    put->fd = strcmp(file, "-") == 0 ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC);
    if (put->fd < 0 || fstat(put->fd, &st) < 0)
        return err_sys(err, errno, "cannot read '%s'", file);
    if (S_ISDIR(st.st_mode))
        return err_set(err, ERR_USAGE, "'%s' is a folder: put takes one file", file);
    put->size = -1;
    put->mode[0] = put->mtime[0] = '\0';
    if (put->fd == STDIN_FILENO || !S_ISREG(st.st_mode))
        return 0;
    put->size = st.st_size;
    (void)snprintf(put->mode, sizeof(put->mode), "%o", st.st_mode & 0777u);
    format_decimal_seconds(st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec, put->mtime,
                           sizeof(put->mtime));
    return 0;
}

static int
put_timeout(const struct put_words *w, struct put *put, int *seconds, struct err *err)
{
    uint64_t given = 30;
    if (w->timeout && (!parse_u64(w->timeout, &given) || given > 3600))
        return err_set(err, ERR_USAGE, "--timeout is 0 to 3600 seconds");
    if (w->no_wait)
        (void)snprintf(put->wait, sizeof(put->wait), "respond-async");
    else if (w->timeout)
        (void)snprintf(put->wait, sizeof(put->wait), "wait=%llu", (unsigned long long)given);
    *seconds = (int)given + 120 + (put->size > 0 ? (int)(put->size >> 22) : 0);
    return 0;
}

static int
send_put(struct cli *cli, const struct put *put, int timeout, const char *name, json_t **answer,
         struct err *err)
{
    scope_buf target;
    struct client_response response;
    buf_init(&target, LIMIT_HTTP_TARGET);
    if (client_target("/v1/files", put->place.volume, put->place.path, &target, err) < 0)
        return -1;
    struct client_request request = { .method = "PUT",
                                      .target = buf_cstr(&target),
                                      .body_fd = put->fd,
                                      .has_fd = true,
                                      .body_size = put->size,
                                      .timeout_s = timeout,
                                      .progress = name };
    bool absent = put->condition[0] == '\0';
    request.headers[request.header_count++] =
        (struct client_header){ absent ? "If-None-Match" : "If-Match",
                                absent ? "*" : put->condition };
    if (put->mode[0] != '\0')
        request.headers[request.header_count++] =
            (struct client_header){ "Holdfast-Mode", put->mode };
    if (put->mtime[0] != '\0')
        request.headers[request.header_count++] =
            (struct client_header){ "Holdfast-Mtime", put->mtime };
    if (put->wait[0] != '\0')
        request.headers[request.header_count++] = (struct client_header){ "Prefer", put->wait };
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
put_file(struct cli *cli, const struct put_words *w, const char *file, const char *to,
         struct err *err)
{
    struct put put = { .fd = -1 };
    int timeout = 0;
    json_t *answer = NULL;
    if (place_read(to, false, &put.place, err) < 0 || open_source(file, &put, err) < 0)
        return -1;
    int rc = put_timeout(w, &put, &timeout, err);
    if (rc == 0)
        rc = find_base(cli, w, file, &put, err);
    if (rc == 1)
        rc = find_base(cli, w, file, &put, err);
    if (rc == 1)
        rc = err_set(err, ERR_IS_DIR, "'%s:/%s' is a folder", put.place.volume, put.place.path);
    if (rc == 0)
        rc = send_put(cli, &put, timeout, place_name(put.place.path), &answer, err);
    if (put.fd > STDIN_FILENO)
        (void)close(put.fd);
    if (rc < 0)
        return -1;
    scope_json *held = answer;
    return cli->json ? print_json(held, err) : 0;
}

int
cmd_put(struct cli *cli, int argc, char **argv, struct err *err)
{
    struct put_words w = { 0 };
    const char *words[2];
    const struct cli_option options[] = { { "base", 0, CLI_TEXT, &w.base },
                                          { "create", 0, CLI_FLAG, &w.create },
                                          { "no-wait", 0, CLI_FLAG, &w.no_wait },
                                          { "timeout", 0, CLI_TEXT, &w.timeout },
                                          { NULL, 0, CLI_FLAG, NULL } };
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 2, 2, words }, err) < 0)
        return -1;
    if (w.base && w.create)
        return err_set(err, ERR_USAGE, "--base and --create exclude each other");
    return put_file(cli, &w, words[0], words[1], err);
}

/* ---- names ---- */
static int
remove_one(struct cli *cli, const char *word, bool recursive, struct err *err)
{
    struct place place;
    struct client_response response;
    scope_buf target;
    buf_init(&target, LIMIT_HTTP_TARGET);
    if (place_read(word, true, &place, err) < 0 ||
        client_target("/v1/files", place.volume, place.path, &target, err) < 0 ||
        (recursive && buf_append_str(&target, "?recursive=true", err) < 0))
        return -1;
    struct client_request request = { .method = "DELETE",
                                      .target = buf_cstr(&target),
                                      .headers = { { "If-Match", "*" } },
                                      .header_count = 1 };
    client_response_init(&response);
    int rc = cli_client_call(cli, &request, &response, err);
    client_response_release(&response);
    return rc;
}

int
cmd_rm(struct cli *cli, int argc, char **argv, struct err *err)
{
    bool recursive = false;
    const char *words[CLI_LIST_MAX];
    const struct cli_option options[] = { { "recursive", 'r', CLI_FLAG, &recursive },
                                          { NULL, 0, CLI_FLAG, NULL } };
    int count =
        cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, CLI_LIST_MAX, words }, err);
    for (int i = 0; i < count; i++) {
        if (remove_one(cli, words[i], recursive, err) < 0)
            return -1;
    }
    return count < 0 ? -1 : 0;
}

static int
do_op(struct cli *cli, json_t *body, struct err *err)
{
    json_t *answer = NULL;
    if (!body)
        return err_set(err, ERR_INVAL, "names given here must be UTF-8");
    if (client_json(cli, &(struct json_call){ "POST", "/v1/ops", body, 60 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    return cli->json ? print_json(held, err) : 0;
}

int
cmd_mkdir(struct cli *cli, int argc, char **argv, struct err *err)
{
    bool parents = false;
    const char *words[CLI_LIST_MAX];
    struct place place;
    const struct cli_option options[] = { { "parents", 'p', CLI_FLAG, &parents },
                                          { NULL, 0, CLI_FLAG, NULL } };
    int count =
        cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, CLI_LIST_MAX, words }, err);
    for (int i = 0; i < count; i++) {
        if (place_read(words[i], true, &place, err) < 0 ||
            do_op(cli,
                  json_pack("{s:s, s:s, s:s, s:b}", "op", "mkdir", "volume", place.volume, "path",
                            place.path, "parents", (int)parents),
                  err) < 0)
            return -1;
    }
    return count < 0 ? -1 : 0;
}

int
cmd_mv(struct cli *cli, int argc, char **argv, struct err *err)
{
    bool replace = false;
    const char *words[2];
    struct place from;
    struct place to;
    const struct cli_option options[] = { { "replace", 0, CLI_FLAG, &replace },
                                          { NULL, 0, CLI_FLAG, NULL } };
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 2, 2, words }, err) < 0 ||
        place_read(words[0], true, &from, err) < 0 || place_read(words[1], true, &to, err) < 0)
        return -1;
    if (strcmp(from.volume, to.volume) != 0)
        return err_set(err, ERR_CROSS_DEVICE,
                       "mv renames within one volume: put the file into '%s' instead", to.volume);
    return do_op(cli,
                 json_pack("{s:s, s:s, s:s, s:s, s:b}", "op", "move", "volume", from.volume, "from",
                           from.path, "to", to.path, "replace", (int)replace),
                 err);
}
