#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/scope.h"
#include "base/ulid.h"
#include "gateway/cli/cli.h"
#include "gateway/fdpass.h"
#include "gateway/launcher.h"
#include "gateway/listen.h"
#include "gateway/sandbox.h"

#define SANDBOX_FAILED 125
#define BUSY_TRIES 50 /* of 100 ms: the last processes of a sandbox may take a moment to go */

struct volume_word {
    char volume[LIMIT_VOLUME_NAME + 1];
    char snapshot[LIMIT_VOLUME_NAME + 1]; /* "": the volume of now */
    char folder[LIMIT_PATH + 1];
    char place[LIMIT_PATH + 1]; /* in the sandbox */
    bool read_only;
    char mount_id[24];
    char mount_path[PATH_MAX];
};

struct run {
    struct cli *cli;
    char id[ULID_SIZE];
    struct volume_word volumes[CLI_LIST_MAX];
    size_t count, mounted;
    const char *net;
    int64_t timeout_s, sync_s;
    char **argv;
    int argc;
    int signals;  /* signalfd */
    int ended_by; /* signal that we got, 0 */
};

/* ---- words ---- */
/* Folders with ':' or '@' are percent-encoded (docs/mechanisms.md section 12). */
static int
decode_folder(const char *text, size_t len, char *out, struct err *err)
{
    scope_buf decoded;
    buf_init(&decoded, LIMIT_PATH * 3);
    if (percent_decode(text, len, &decoded, err) < 0)
        return -1;
    return path_normalize(buf_cstr(&decoded), decoded.len, out, LIMIT_PATH + 1, err) < 0 ? -1 : 0;
}

/* From one of VOLUME's '@' on: a snapshot, unless it is the place, which begins with a slash. */
static int
read_snapshot(const char *at, struct volume_word *out, size_t *len, struct err *err)
{
    *len = strcspn(at + 1, "/:@");
    if (*len >= sizeof(out->snapshot))
        return err_set(err, ERR_BAD_NAME, "the snapshot's name in '%s' is too long", at);
    (void)snprintf(out->snapshot, sizeof(out->snapshot), "%.*s", (int)*len, at + 1);
    *len += 1;
    out->read_only = true;
    return path_check_volume(out->snapshot, err) < 0
               ? err_wrap(err, "'%s' is neither a snapshot nor a place", at)
               : 0;
}

/* VOLUME[@SNAPSHOT][/FOLDER][:ro][@PATH] */
static int
read_volume(const char *word, size_t number, struct volume_word *out, struct err *err)
{
    size_t name = strcspn(word, "/:@"), snapshot = 0;
    if (name > LIMIT_VOLUME_NAME)
        return err_set(err, ERR_BAD_NAME, "the volume's name in '%s' is too long", word);
    (void)snprintf(out->volume, sizeof(out->volume), "%.*s", (int)name, word);
    if (path_check_volume(out->volume, err) < 0 ||
        (word[name] == '@' && word[name + 1] != '/' &&
         read_snapshot(word + name, out, &snapshot, err) < 0))
        return -1;
    const char *rest = word + name + snapshot;
    size_t folder = strcspn(rest, ":@");
    const char *tail = rest + folder;
    if (folder > 0 && decode_folder(rest + 1, folder - 1, out->folder, err) < 0)
        return err_wrap(err, "'%s'", word);
    if (tail[0] == ':') {
        if (strncmp(tail, ":ro", 3) != 0 || (tail[3] != '\0' && tail[3] != '@'))
            return err_set(err, ERR_USAGE, "'%s': only ':ro' may stand behind the folder", word);
        out->read_only = true;
        tail += 3;
    }
    if (tail[0] == '@')
        (void)snprintf(out->place, sizeof(out->place), "%s", tail + 1);
    else
        (void)snprintf(out->place, sizeof(out->place), "/mnt/data/%zu", number);
    if (!gateway_sandbox_place_ok(out->place))
        return err_set(err, ERR_USAGE, "a volume cannot be shown at '%s' in a sandbox", out->place);
    return 0;
}

/* Options of run end at the first word that is none, or at "--". */
static int
own_words(int argc, char **argv)
{
    static const char *const with_value[] = { "-v",    "--volume",       "--timeout", "--net",
                                              "--run", "--sync-timeout", "--state" };
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0 || argv[i][0] != '-')
            return i;
        for (size_t j = 0; j < sizeof(with_value) / sizeof(with_value[0]); j++) {
            if (strcmp(argv[i], with_value[j]) == 0) {
                i++;
                break;
            }
        }
    }
    return argc;
}

static int
read_seconds(const char *text, const char *option, int64_t *out, struct err *err)
{
    uint64_t value;
    if (!text)
        return 0;
    if (!parse_u64(text, &value) || value > 86400)
        return err_set(err, ERR_USAGE, "--%s is 0 to 86400 seconds", option);
    *out = (int64_t)value;
    return 0;
}

static int
read_words(struct run *run, int argc, char **argv, struct err *err)
{
    struct cli_list volumes = { .count = 0 };
    const char *timeout = NULL;
    const char *sync = NULL;
    const char *id = NULL;
    const char *none[1];
    int own = own_words(argc, argv);
    const struct cli_option options[] = {
        { "volume", 'v', CLI_MANY, &volumes },  { "timeout", 0, CLI_TEXT, &timeout },
        { "net", 0, CLI_TEXT, &run->net },      { "run", 0, CLI_TEXT, &id },
        { "sync-timeout", 0, CLI_TEXT, &sync }, { NULL, 0, CLI_FLAG, NULL }
    };
    if (cli_parse(run->cli, own, argv, options, &(struct cli_words){ 0, 0, none }, err) < 0)
        return -1;
    if (own < argc && strcmp(argv[own], "--") == 0)
        own++;
    run->argv = argv + own;
    run->argc = argc - own;
    if (run->argc == 0)
        return err_set(err, ERR_USAGE, "there is no command to run: holdfast run ... -- COMMAND");
    if (strcmp(run->net, "none") != 0 && strcmp(run->net, "host") != 0)
        return err_set(err, ERR_USAGE, "--net is 'none' or 'host'");
    if (read_seconds(timeout, "timeout", &run->timeout_s, err) < 0 ||
        read_seconds(sync, "sync-timeout", &run->sync_s, err) < 0)
        return -1;
    if (id && !ulid_valid(id))
        return err_set(err, ERR_USAGE, "a run's id is a ULID: 26 characters of 0-9 and A-Z");
    if (id)
        (void)snprintf(run->id, sizeof(run->id), "%s", id);
    else if (ulid_new(run->id, err) < 0)
        return -1;
    for (size_t i = 0; i < volumes.count; i++) {
        if (read_volume(volumes.item[i], i + 1, &run->volumes[i], err) < 0)
            return -1;
    }
    run->count = volumes.count;
    return 0;
}

/* ---- mounts ---- */
static int
mount_one(struct run *run, struct volume_word *v, struct err *err)
{
    json_t *answer = NULL;
    json_t *body = json_pack("{s:s, s:s, s:b, s:b, s:s, s:s*}", "volume", v->volume, "folder",
                             v->folder, "read_only", (int)v->read_only, "private", 1, "run",
                             run->id, "snapshot", v->snapshot[0] != '\0' ? v->snapshot : NULL);
    if (!body)
        return err_set(err, ERR_INVAL, "the folder's name must be UTF-8");
    if (client_json(run->cli, &(struct json_call){ "POST", "/v1/mounts", body, 60 }, &answer, err) <
        0)
        return err_wrap(err, "volume '%s'", v->volume);
    scope_json *held = answer;
    (void)snprintf(v->mount_id, sizeof(v->mount_id), "%s", get_text(held, "id"));
    (void)snprintf(v->mount_path, sizeof(v->mount_path), "%s", get_text(held, "path"));
    v->read_only = v->read_only || get_bool(held, "read_only");
    return 0;
}

static int
unmount_one(struct run *run, const struct volume_word *v, struct err *err)
{
    char target[96];
    (void)snprintf(target, sizeof(target), "/v1/mounts/%s?no_flush=true", v->mount_id);
    for (int tries = 0;; tries++) {
        int rc =
            client_json(run->cli, &(struct json_call){ "DELETE", target, NULL, 60 }, NULL, err);
        if (rc == 0)
            return 0;
        if (err->code == ERR_NOT_FOUND)
            return err_set(err, ERR_NOT_SYNCED,
                           "the mount of volume '%s' was gone before the command ended, so writes "
                           "may have failed: was the gateway restarted?",
                           v->volume);
        if (err->code != ERR_BUSY || tries >= BUSY_TRIES)
            return -1;
        clock_sleep_ns(100 * NS_PER_MS);
    }
}

/* ---- the sandbox ---- */
static json_t *
specification(const struct run *run)
{
    json_t *argv = json_array();
    json_t *binds = json_array();
    bool ok = argv && binds;
    for (int i = 0; ok && i < run->argc; i++)
        ok = json_array_append_new(argv, json_string(run->argv[i])) == 0;
    for (size_t i = 0; ok && i < run->count; i++) {
        const struct volume_word *v = &run->volumes[i];
        ok = json_array_append_new(binds, json_pack("{s:s, s:s, s:b}", "from", v->mount_path, "to",
                                                    v->place, "read_only", (int)v->read_only)) == 0;
    }
    if (!ok) {
        json_decref(argv);
        json_decref(binds);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:s, s:I, s:s?, s:o}", "run", run->id, "argv", argv, "net",
                     run->net, "timeout_s", (json_int_t)run->timeout_s, "term",
                     secure_getenv("TERM"), "binds", binds);
}

static int
launch(struct run *run, int *conn, struct err *err)
{
    static const int stdio[] = { 0, 1, 2 };
    char state[PATH_MAX];
    char path[PATH_MAX + 16];
    int size = (int)LAUNCHER_SPEC_MAX * 2;
    scope_buf text;
    buf_init(&text, LAUNCHER_SPEC_MAX);
    if (client_state(run->cli, state, sizeof(state), err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/launcher.sock", state);
    scope_json *spec = specification(run);
    if (!spec)
        return err_set(err, ERR_INVAL, "the command's arguments must be UTF-8");
    if (json_print(spec, &text, err) < 0)
        return -1;
    scope_fd int fd = gateway_listen_connect(path, SOCK_SEQPACKET, err);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    if (gateway_fdpass_send(fd, buf_cstr(&text), text.len, stdio, 3, err) < 0)
        return -1;
    *conn = steal_fd(&fd);
    return 0;
}

/* Waits for the launcher's answer; a signal to us ends the sandbox by closing our side. */
static int
wait_answer(struct run *run, int conn, char *text, size_t size, struct err *err)
{
    struct pollfd fds[2] = { { .fd = conn, .events = POLLIN },
                             { .fd = run->signals, .events = POLLIN } };
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return err_sys(err, errno, "cannot wait for the sandbox");
        if (fds[1].revents & POLLIN) {
            struct signalfd_siginfo info;
            if (read(run->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
                run->ended_by = (int)info.ssi_signo;
            (void)shutdown(conn, SHUT_WR);
            fds[1].fd = -1;
        }
        if (fds[0].revents) {
            size_t none = 0;
            ssize_t got = gateway_fdpass_receive(conn, text, size - 1, NULL, &none, err);
            if (got <= 0)
                return err_set(err, ERR_GATEWAY_AWAY, "the launcher went away");
            text[got] = '\0';
            return 0;
        }
    }
}

static int
run_sandbox(struct run *run, struct err *err)
{
    char text[8192];
    scope_fd int conn = -1;
    if (launch(run, &conn, err) < 0 || wait_answer(run, conn, text, sizeof(text), err) < 0)
        return -1;
    scope_json *answer = json_parse(text, strlen(text), err);
    if (!answer)
        return -1;
    if (run->ended_by)
        return 128 + run->ended_by;
    if (strcmp(get_text(answer, "outcome"), "failed") == 0)
        return err_set(err, ERR_INTERNAL, "%s", get_text(answer, "message"));
    if (strcmp(get_text(answer, "outcome"), "timeout") == 0)
        (void)fprintf(stderr, "holdfast: the command was ended after %lld s\n",
                      (long long)run->timeout_s);
    return (int)get_int(answer, "status");
}

/* ---- the audit ---- */
/* A word with anything that a shell would take apart stands in quotes. */
static int
add_word(struct buf *out, const char *word, struct err *err)
{
    bool plain = word[0] != '\0' && strpbrk(word, " \t\n'\"\\$`|&;<>()*?[]{}~#!") == NULL;
    if (out->len > 0 && buf_append(out, " ", 1, err) < 0)
        return -1;
    if (plain)
        return buf_append_str(out, word, err);
    if (buf_append(out, "'", 1, err) < 0)
        return -1;
    for (const char *at = word; *at != '\0'; at++)
        if (buf_append(out, *at == '\'' ? "'\\''" : at, *at == '\'' ? 4 : 1, err) < 0)
            return -1;
    return buf_append(out, "'", 1, err);
}

static int
tell_gateway(struct run *run, json_t *body, struct err *err)
{
    char target[96];
    (void)snprintf(target, sizeof(target), "/v1/runs/%s", run->id);
    if (!body)
        return err_set(err, ERR_INVAL, "the command's arguments must be UTF-8");
    return client_json(run->cli, &(struct json_call){ "POST", target, body, 60 }, NULL, err);
}

/* Nothing runs that the audit does not know of. */
static int
note_command(struct run *run, struct err *err)
{
    scope_buf text;
    buf_init(&text, LAUNCHER_SPEC_MAX);
    for (int i = 0; i < run->argc; i++)
        if (add_word(&text, run->argv[i], err) < 0)
            return -1;
    return tell_gateway(run, json_pack("{s:s, s:s}", "verb", "exec", "command", buf_cstr(&text)),
                        err);
}

static void
note_status(struct run *run, int status)
{
    struct err err = ERR_INIT;
    if (tell_gateway(run, json_pack("{s:s, s:I}", "verb", "exit", "status", (json_int_t)status),
                     &err) < 0)
        (void)fprintf(stderr, "holdfast: the audit does not know how it ended: %s\n", err.msg);
}

/* ---- the end ---- */
static int64_t
count_conflicts(struct run *run)
{
    struct err ignored = ERR_INIT;
    char target[96];
    json_t *answer = NULL;
    (void)snprintf(target, sizeof(target), "/v1/conflicts?run=%s", run->id);
    if (client_json(run->cli, &(struct json_call){ "GET", target, NULL, 60 }, &answer, &ignored) <
        0)
        return 0;
    scope_json *held = answer;
    return (int64_t)json_array_size(json_object_get(held, "conflicts"));
}

/* What the guard against stale reads has to say: true when it refused something. */
static bool
tell_stale(struct run *run)
{
    struct err ignored = ERR_INIT;
    char target[96];
    json_t *answer = NULL;
    (void)snprintf(target, sizeof(target), "/v1/runs/%s", run->id);
    if (client_json(run->cli, &(struct json_call){ "GET", target, NULL, 60 }, &answer, &ignored) <
        0)
        return false;
    scope_json *held = answer;
    int64_t marked = get_int(held, "marked");
    bool refused = get_int(held, "refused") > 0;
    if (marked > 0)
        (void)fprintf(
            stderr,
            "holdfast: %lld files were written after others had changed what this run had "
            "read: see 'stale_reads' in 'holdfast history FILE --json'\n",
            (long long)marked);
    if (refused)
        (void)fprintf(stderr, "holdfast: changes of this run were refused (ESTALE), because others "
                              "had changed what it had read\n");
    return refused;
}

static void
warn(const char *what, const struct err *err)
{
    (void)fprintf(stderr, "holdfast: %s: %s\n", what, err->msg);
}

/* Barrier, unmount, conflicts: what the run's end has to say when the command itself ended well. */
static int
finish(struct run *run)
{
    int status = 0;
    for (size_t i = 0; i < run->mounted; i++) {
        struct err err = ERR_INIT;
        struct cli_synced synced;
        const struct volume_word *v = &run->volumes[i];
        if (!v->read_only && cli_wait_synced(run->cli, v->volume, run->sync_s, &synced, &err) < 0) {
            warn("not everything is in the bucket", &err);
            status = err_exit(ERR_NOT_SYNCED);
        }
    }
    for (size_t i = 0; i < run->mounted; i++) {
        struct err err = ERR_INIT;
        if (unmount_one(run, &run->volumes[i], &err) == 0)
            continue;
        warn(err.code == ERR_NOT_SYNCED ? "not everything is certain" : "a mount is left", &err);
        if (err.code == ERR_NOT_SYNCED)
            status = err_exit(ERR_NOT_SYNCED);
    }
    if (run->mounted > 0 && tell_stale(run))
        status = err_exit(ERR_STALE_READ);
    if (run->mounted > 0 && count_conflicts(run) > 0) {
        (void)fprintf(stderr,
                      "holdfast: writes of this run met a conflict, their bytes are kept: "
                      "see 'holdfast conflicts list --run %s'\n",
                      run->id);
        status = err_exit(ERR_CONFLICT);
    }
    return status;
}

static int
execute(struct run *run, struct err *err)
{
    int status = 0;
    for (; run->mounted < run->count; run->mounted++) {
        if (mount_one(run, &run->volumes[run->mounted], err) < 0) {
            status = -1;
            break;
        }
    }
    if (status == 0 && note_command(run, err) < 0)
        status = -1;
    if (status == 0) {
        status = run_sandbox(run, err);
        note_status(run, status >= 0 ? status : SANDBOX_FAILED);
    }
    int end = finish(run);
    if (status < 0) {
        warn("the sandbox could not be made", err);
        return SANDBOX_FAILED;
    }
    return status == 0 ? end : status;
}

int
cmd_run(struct cli *cli, int argc, char **argv, struct err *err)
{
    sigset_t set;
    struct run *run = calloc(1, sizeof(*run));
    if (!run)
        return err_nomem(err);
    *run = (struct run){ .cli = cli, .net = "none", .timeout_s = 60, .sync_s = 60 };
    int status = -1;
    if (cli->url) {
        (void)err_set(err, ERR_USAGE,
                      "run works on the gateway's own machine only: use --state, not --url");
    } else if (read_words(run, argc, argv, err) == 0) {
        sigemptyset(&set);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGHUP);
        (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
        run->signals = signalfd(-1, &set, SFD_CLOEXEC);
        status = execute(run, err);
    }
    free(run);
    return status;
}
