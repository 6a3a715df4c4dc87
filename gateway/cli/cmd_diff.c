#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/parse.h"
#include "base/scope.h"
#include "gateway/cli/cli.h"

/* What differs between two versions of a file: text by diff(1), the rest by size and sha256. */

#define LOOKED_AT 8000 /* for a NUL, which makes a file binary: as git does */

struct side {
    char version[LIMIT_ETAG];
    char label[LIMIT_VOLUME_NAME + LIMIT_PATH + LIMIT_ETAG + 16];
    char sha256[SHA256_HEX];
    int fd;
    uint64_t size;
    bool binary;
};

static void
side_release(struct side *side)
{
    if (side->fd >= 0)
        (void)close(side->fd);
}

/* A file without a name. */
static int
temp_file(struct err *err)
{
    char path[PATH_MAX];
    const char *dir = secure_getenv("TMPDIR");
    int len = snprintf(path, sizeof(path), "%s/holdfast-diff.XXXXXX", dir ? dir : "/tmp");
    if (len < 0 || (size_t)len >= sizeof(path))
        return err_set(err, ERR_NAME_TOO_LONG, "the path in TMPDIR is too long");
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "cannot make a file at '%s'", path);
    (void)unlink(path);
    return fd;
}

static int
side_fetch(struct cli *cli, const struct place *place, struct side *side, struct err *err)
{
    uint8_t sum[SHA256_SIZE];
    char head[LOOKED_AT];
    struct stat st;
    (void)snprintf(side->label, sizeof(side->label), "%s:/%s (version %s)", place->volume,
                   place->path, side->version);
    side->fd = temp_file(err);
    if (side->fd < 0 ||
        place_fetch(cli, place, side->version, side->fd, place_name(place->path), err) < 0)
        return -1;
    if (fstat(side->fd, &st) < 0)
        return err_sys(err, errno, "cannot look at a file");
    side->size = (uint64_t)st.st_size;
    if (hash_fd(side->fd, 0, side->size, sum, NULL, err) < 0)
        return -1;
    hex_encode(sum, sizeof(sum), side->sha256);
    ssize_t got = pread(side->fd, head, sizeof(head), 0);
    if (got < 0)
        return err_sys(err, errno, "cannot read a file");
    side->binary = memchr(head, '\0', (size_t)got) != NULL;
    return 0;
}

/* ---- which two ---- */
static int
take_version(const json_t *versions, size_t at, struct side *side, struct err *err)
{
    const json_t *v = json_array_get(versions, at);
    const char *version = get_text(v, "version");
    if (version[0] == '\0')
        version = get_text(v, "id");
    if (version[0] == '\0')
        return err_set(err, ERR_NOT_FOUND,
                       at == 0 ? "there is no version of the file"
                               : "there is only one version of the file");
    (void)snprintf(side->version, sizeof(side->version), "%s", version);
    return 0;
}

/* Two that were named, one against the present, or the one before it. */
static int
choose(struct cli *cli, const struct place *place, const struct cli_list *named,
       struct side sides[2], struct err *err)
{
    json_t *answer = NULL;
    if (named->count > 2)
        return err_set(err, ERR_USAGE, "--version is given twice at most");
    for (size_t i = 0; i < named->count; i++)
        (void)snprintf(sides[i].version, sizeof(sides[i].version), "%s", named->item[i]);
    if (named->count == 2)
        return 0;
    if (place_get(cli, "/v1/history", place, "?limit=2", &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    const json_t *versions = json_object_get(held, "versions");
    if (named->count == 0 && take_version(versions, 1, &sides[0], err) < 0)
        return -1;
    return take_version(versions, 0, &sides[1], err);
}

/* ---- diff(1) ---- */
_Noreturn static void
child(const struct side sides[2], int out)
{
    char path[2][32];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path[i], sizeof(path[i]), "/dev/fd/%d", sides[i].fd);
        if (fcntl(sides[i].fd, F_SETFD, 0) < 0)
            _exit(127);
    }
    if (out != STDOUT_FILENO && dup2(out, STDOUT_FILENO) < 0)
        _exit(127);
    (void)execlp("diff", "diff", "-u", "--label", sides[0].label, "--label", sides[1].label, "--",
                 path[0], path[1], (char *)NULL);
    _exit(127);
}

static int
run_diff(const struct side sides[2], int out, struct err *err)
{
    int status;
    if (fflush(stdout) != 0)
        return err_set(err, ERR_IO, "cannot write to standard output");
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, errno, "cannot start diff");
    if (pid == 0)
        child(sides, out);
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return err_sys(err, errno, "cannot wait for diff");
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return err_set(err, ERR_UNSUPPORTED, "diff(1) is needed: install diffutils");
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
        return err_set(err, ERR_IO, "diff failed");
    return 0;
}

/* ---- the answer ---- */
static json_t *
side_json(const struct side *side)
{
    return json_pack("{s:s, s:I, s:s}", "version", side->version, "size", (json_int_t)side->size,
                     "sha256", side->sha256);
}

static int
read_all(int fd, struct buf *out, struct err *err)
{
    char data[65536];
    off_t at = 0;
    ssize_t got;
    while ((got = pread(fd, data, sizeof(data), at)) > 0) {
        if (buf_append(out, data, (size_t)got, err) < 0)
            return -1;
        at += got;
    }
    return got < 0 ? err_sys(err, errno, "cannot read what diff said") : 0;
}

static int
print_document(const struct place *place, const struct side sides[2], bool same, bool binary,
               struct err *err)
{
    scope_buf text;
    buf_init(&text, 32u << 20);
    if (!same && !binary) {
        scope_fd int fd = temp_file(err);
        if (fd < 0 || run_diff(sides, fd, err) < 0 || read_all(fd, &text, err) < 0)
            return -1;
    }
    scope_json *out =
        json_pack("{s:s, s:o, s:o, s:o, s:b, s:b, s:o}", "volume", place->volume, "path",
                  json_bytes(place->path, strlen(place->path)), "a", side_json(&sides[0]), "b",
                  side_json(&sides[1]), "same", (int)same, "binary", (int)binary, "diff",
                  binary ? json_null() : json_bytes(buf_cstr(&text), text.len));
    return out ? print_json(out, err) : err_nomem(err);
}

static int
compare(struct cli *cli, const struct place *place, const struct side sides[2], struct err *err)
{
    bool same = strcmp(sides[0].sha256, sides[1].sha256) == 0;
    bool binary = sides[0].binary || sides[1].binary;
    if (cli->json)
        return print_document(place, sides, same, binary, err);
    if (same)
        return 0;
    if (!binary)
        return run_diff(sides, STDOUT_FILENO, err);
    print_line("binary files differ:");
    for (int i = 0; i < 2; i++)
        print_line("%c %s  %llu bytes, sha256 %s", "-+"[i], sides[i].label,
                   (unsigned long long)sides[i].size, sides[i].sha256);
    return 0;
}

int
cmd_diff(struct cli *cli, int argc, char **argv, struct err *err)
{
    struct cli_list named = { .count = 0 };
    struct side sides[2] = { { .fd = -1 }, { .fd = -1 } };
    struct place place;
    const char *words[1];
    const struct cli_option options[] = { { "version", 0, CLI_MANY, &named },
                                          { NULL, 0, CLI_FLAG, NULL } };
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 1, 1, words }, err) < 0 ||
        place_read(words[0], true, &place, err) < 0 || choose(cli, &place, &named, sides, err) < 0)
        return -1;
    int rc = side_fetch(cli, &place, &sides[0], err);
    if (rc == 0)
        rc = side_fetch(cli, &place, &sides[1], err);
    if (rc == 0)
        rc = compare(cli, &place, sides, err);
    side_release(&sides[0]);
    side_release(&sides[1]);
    return rc;
}
