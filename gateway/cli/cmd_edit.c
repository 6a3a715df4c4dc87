#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/scope.h"
#include "gateway/cli/cli.h"

/* Parts of a file replaced; a file copied. Both under the version that is there when they start, or the one named. */

struct edit_words {
    const char *old, *text, *file, *base;
    bool all, dry_run;
};

static int
read_all(const char *path, struct buf *out, struct err *err)
{
    bool standard = strcmp(path, "-") == 0;
    scope_fd int own = standard ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    int fd = standard ? STDIN_FILENO : own;
    if (fd < 0)
        return err_sys(err, errno, "cannot open '%s'", path);
    for (;;) {
        char *to = buf_reserve(out, 65536, err);
        if (!to)
            return -1;
        ssize_t got = read(fd, to, 65536);
        if (got == 0)
            return 0;
        if (got < 0 && errno != EINTR)
            return err_sys(err, errno, "cannot read '%s'", path);
        buf_commit(out, got > 0 ? (size_t)got : 0);
    }
}

/* A list, or an object that has it as `edits`. */
static json_t *
edits_of(const struct edit_words *w, struct err *err)
{
    scope_buf text;
    buf_init(&text, LIMIT_JSON_DOC);
    if (!w->file) {
        json_t *one =
            json_pack("[{s:s, s:s, s:b}]", "old", w->old, "new", w->text, "all", (int)w->all);
        if (!one)
            (void)err_set(err, ERR_USAGE, "--old and --new must be UTF-8");
        return one;
    }
    if (read_all(w->file, &text, err) < 0)
        return NULL;
    scope_json *document = json_parse(buf_cstr(&text), text.len, err);
    if (!document) {
        (void)err_wrap(err, "%s", strcmp(w->file, "-") == 0 ? "standard input" : w->file);
        return NULL;
    }
    json_t *list = json_is_array(document) ? document : json_object_get(document, "edits");
    if (!list)
        (void)err_set(err, ERR_USAGE, "'%s' has no list of edits", w->file);
    return json_incref(list);
}

static int
version_of(struct cli *cli, const struct place *place, char out[LIMIT_ETAG], struct err *err)
{
    json_t *answer = NULL;
    if (place_get(cli, "/v1/stat", place, "", &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (strcmp(get_text(held, "kind"), "dir") == 0)
        return err_set(err, ERR_IS_DIR, "'%s:/%s' is a folder", place->volume, place->path);
    (void)snprintf(out, LIMIT_ETAG, "%s", get_text(held, "version"));
    return 0;
}

static void
print_edited(const json_t *answer)
{
    char path[LIMIT_PATH + 1];
    const char *diff = get_text(answer, "diff");
    if (get_bool(answer, "unchanged"))
        (void)fprintf(stderr, "holdfast: nothing changed: '%s' has this text already\n",
                      get_bytes(answer, "path", path, sizeof(path)));
    else if (get_bool(answer, "truncated"))
        (void)fprintf(stderr, "holdfast: the diff is too long to be shown\n");
    for (const char *line = diff; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        print_text("", line, len);
        line += len + (line[len] == '\n');
    }
}

static int
send_edit(struct cli *cli, const struct place *place, const struct edit_words *w, const char *base,
          struct err *err)
{
    json_t *answer = NULL;
    json_t *edits = edits_of(w, err);
    if (!edits)
        return -1;
    json_t *body =
        json_pack("{s:s, s:s, s:s, s:s, s:b, s:o}", "op", "edit", "volume", place->volume, "path",
                  place->path, "base", base, "dry_run", (int)w->dry_run, "edits", edits);
    if (!body)
        return err_set(err, ERR_INVAL, "names given here must be UTF-8");
    if (client_json(cli, &(struct json_call){ "POST", "/v1/ops", body, 120 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json) {
        if (print_json(held, err) < 0)
            return -1;
    } else {
        print_edited(held);
    }
    if (!w->dry_run && !get_bool(held, "unchanged") && !get_bool(held, "synced"))
        return err_set(err, ERR_NOT_SYNCED,
                       "staged and safe on this machine, but not in the bucket yet");
    return 0;
}

int
cmd_edit(struct cli *cli, int argc, char **argv, struct err *err)
{
    struct edit_words w = { .old = NULL };
    struct place place;
    char base[LIMIT_ETAG];
    const char *words[1];
    const struct cli_option options[] = {
        { "old", 0, CLI_TEXT, &w.old },    { "new", 0, CLI_TEXT, &w.text },
        { "edits", 0, CLI_TEXT, &w.file }, { "base", 0, CLI_TEXT, &w.base },
        { "all", 0, CLI_FLAG, &w.all },    { "dry-run", 0, CLI_FLAG, &w.dry_run },
        { NULL, 0, CLI_FLAG, NULL }
    };
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 1, words }, err) < 0 ||
        place_read(words[0], true, &place, err) < 0)
        return -1;
    if (w.file ? w.old || w.text || w.all : !w.old || !w.text)
        return err_set(err, ERR_USAGE, "give --old and --new, or --edits");
    if (!w.base && version_of(cli, &place, base, err) < 0)
        return -1;
    return send_edit(cli, &place, &w, w.base ? w.base : base, err);
}

/* ---- cp ---- */
int
cmd_cp(struct cli *cli, int argc, char **argv, struct err *err)
{
    bool replace = false;
    const char *words[2];
    struct place from;
    struct place to;
    char base[LIMIT_ETAG] = "";
    json_t *answer = NULL;
    const struct cli_option options[] = { { "replace", 0, CLI_FLAG, &replace },
                                          { NULL, 0, CLI_FLAG, NULL } };
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 2, 2, words }, err) < 0 ||
        place_read(words[0], true, &from, err) < 0 || place_read(words[1], true, &to, err) < 0)
        return -1;
    if (strcmp(from.volume, to.volume) != 0)
        return err_set(err, ERR_CROSS_DEVICE,
                       "cp copies within one volume: 'holdfast cat ... | holdfast put - ...'");
    struct err missing = ERR_INIT;
    if (replace && version_of(cli, &to, base, &missing) < 0 && missing.code != ERR_NOT_FOUND)
        return err_set(err, missing.code, "%s", missing.msg);
    json_t *body = json_pack("{s:s, s:s, s:s, s:s, s:s?}", "op", "copy", "volume", from.volume,
                             "from", from.path, "to", to.path, "to_base", base[0] ? base : NULL);
    if (!body)
        return err_set(err, ERR_INVAL, "names given here must be UTF-8");
    if (client_json(cli, &(struct json_call){ "POST", "/v1/ops", body, 120 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json && print_json(held, err) < 0)
        return -1;
    return get_bool(held, "synced") ? 0
                                    : err_set(err, ERR_NOT_SYNCED,
                                              "staged and safe on this machine, but not in the "
                                              "bucket yet");
}
