#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/parse.h"
#include "base/scope.h"
#include "base/sys.h"
#include "gateway/cli/cli.h"
#include "gateway/daemon.h"
#include "gateway/keys.h"
#include "gateway/settings.h"
#include "s3/open.h"

enum verdict { OK, WARN, FAIL };

struct doctor {
    struct cli *cli;
    json_t *checks;
    char state[PATH_MAX];
    int worst;
};

static void __attribute__((format(printf, 4, 5)))
say(struct doctor *d, enum verdict verdict, const char *what, const char *fmt, ...)
{
    static const char *const names[] = { "ok", "warn", "fail" };
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if ((int)verdict > d->worst)
        d->worst = (int)verdict;
    (void)json_array_append_new(d->checks, json_pack("{s:s, s:s, s:o}", "check", what, "result",
                                                     names[verdict], "detail",
                                                     json_bytes(text, strlen(text))));
    if (!d->cli->json)
        print_line("%-4s  %-12s %s", names[verdict], what, text);
}

static void
check_kernel(struct doctor *d)
{
    struct utsname name;
    char *end = NULL;
    unsigned long major = uname(&name) == 0 ? strtoul(name.release, &end, 10) : 0;
    unsigned long minor = end && *end == '.' ? strtoul(end + 1, NULL, 10) : 0;
    if (major == 0)
        say(d, WARN, "kernel", "its version cannot be read");
    else if (major > 6 || (major == 6 && minor >= 9))
        say(d, OK, "kernel", "%s", name.release);
    else
        say(d, WARN, "kernel",
            "%s: mounts work; before 6.9 programs see ENOTCONN when the gateway dies, and reads "
            "are slower",
            name.release);
}

static void
check_clock(struct doctor *d)
{
    struct timex state = { 0 };
    int rc = adjtimex(&state);
    if (rc == TIME_ERROR || (state.status & STA_UNSYNC))
        say(d, WARN, "clock",
            "not synchronised: a clock that is minutes off makes S3 refuse requests; run chrony or "
            "systemd-timesyncd");
    else
        say(d, OK, "clock", "synchronised, off by at most %ld ms", state.maxerror / 1000);
}

static void
check_fuse(struct doctor *d)
{
    struct stat st;
    if (stat("/dev/fuse", &st) < 0)
        say(d, FAIL, "fuse", "there is no /dev/fuse: load the module with 'modprobe fuse'");
    else if (geteuid() == 0)
        say(d, OK, "fuse", "/dev/fuse is there, mounts are made by holdfast-mounter");
    else if (access("/usr/bin/fusermount3", X_OK) == 0 || access("/bin/fusermount3", X_OK) == 0)
        say(d, OK, "fuse",
            "/dev/fuse is there, mounts are made by fusermount3 and seen only by this user");
    else
        say(d, WARN, "fuse",
            "fusermount3 is missing: install 'fuse3', or start the gateway as root");
}

static bool
read_number(const char *path, uint64_t *out)
{
    struct err ignored = ERR_INIT;
    scope_free char *text = NULL;
    size_t len;
    if (sys_read_file(AT_FDCWD, path, 64, &text, &len, &ignored) < 0)
        return false;
    text[strcspn(text, " \n")] = '\0';
    return parse_u64(text, out);
}

static void
check_sysctls(struct doctor *d)
{
    uint64_t seconds;
    uint64_t count;
    if (read_number("/proc/sys/fs/fuse/max_request_timeout", &seconds) && seconds > 0 &&
        seconds < 120)
        say(d, WARN, "sysctl",
            "fs.fuse.max_request_timeout is %llu s: a slow store may abort mounts; set 0 or 120",
            (unsigned long long)seconds);
    else
        say(d, OK, "sysctl", "fs.fuse allows slow answers");
    if (read_number("/proc/sys/user/max_user_namespaces", &count) && count == 0)
        say(d, FAIL, "namespaces",
            "user.max_user_namespaces is 0: 'holdfast run' cannot make sandboxes");
}

/* Whether an ordinary user gets a sandbox here: tried for real. */
static int
try_bwrap(void)
{
    static const char *const argv[] = { "bwrap",
                                        "--unshare-all",
                                        "--die-with-parent",
                                        "--ro-bind",
                                        "/",
                                        "/",
                                        "--proc",
                                        "/proc",
                                        "--",
                                        "/bin/true",
                                        NULL };
    pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null < 0 || dup2(null, 2) < 0)
            _exit(126);
        if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
            _exit(126);
        (void)execvp("bwrap", (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

static void
check_bwrap(struct doctor *d)
{
    int status = try_bwrap();
    uint64_t value;
    if (status == 0)
        say(d, OK, "sandbox", "bubblewrap works for an ordinary user");
    else if (status == 127)
        say(d, FAIL, "sandbox", "bubblewrap is missing: install the package 'bubblewrap'");
    else if (read_number("/proc/sys/kernel/unprivileged_userns_clone", &value) && value == 0)
        say(d, FAIL, "sandbox", "kernel.unprivileged_userns_clone is 0: set it to 1");
    else if (read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", &value) &&
             value == 1)
        say(d, FAIL, "sandbox",
            "AppArmor forbids user namespaces: give bwrap a profile, or set "
            "kernel.apparmor_restrict_unprivileged_userns to 0");
    else
        say(d, FAIL, "sandbox",
            "bubblewrap cannot make a sandbox here: try 'bwrap --unshare-all --ro-bind / / true'");
}

static void
check_space(struct doctor *d)
{
    struct statvfs fs;
    char size[16];
    if (statvfs(d->state, &fs) < 0) {
        say(d, WARN, "state", "'%s' does not exist yet: 'holdfast serve' makes it", d->state);
        return;
    }
    uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;
    format_size(left, size);
    if (fs.f_flag & ST_RDONLY)
        say(d, FAIL, "state", "'%s' is on a read-only file system", d->state);
    else if (left < (1ull << 30))
        say(d, WARN, "state", "'%s' has only %s free: make room, or move it", d->state, size);
    else
        say(d, OK, "state", "'%s', %s free", d->state, size);
}

/* What store_caps_explain() says: habits of the store that ask for nothing begin with this. */
#define NOTE "note: "

static void
say_words(struct doctor *d, const char *words)
{
    const size_t note = strlen(NOTE);
    while (*words != '\0') {
        size_t len = strcspn(words, "\n");
        if (len > note && strncmp(words, NOTE, note) == 0)
            say(d, OK, "store", "%.*s", (int)(len - note), words + note);
        else if (len > 0)
            say(d, WARN, "store", "%.*s", (int)len, words);
        words += len + (words[len] == '\n');
    }
}

static void
check_store_alone(struct doctor *d)
{
    struct err err = ERR_INIT;
    char url[PATH_MAX];
    struct config *config = gateway_settings_load(d->cli->config, NULL, &err);
    if (!config || gateway_daemon_store_url(config, d->state, url, sizeof(url), &err) < 0) {
        say(d, FAIL, "settings", "%s", err.msg);
        config_free(config);
        return;
    }
    if (strncmp(url, "file://", 7) == 0) {
        config_free(config);
        say(d, OK, "store", "%s (a directory; not probed without a gateway)", url);
        return;
    }
    const struct store_open_args args = { .url = url,
                                          .process = gateway_keys_run_here,
                                          .provider = config_str(config, "store.provider"),
                                          .ca_file = config_str(config, "store.ca") };
    struct store *store = store_open(&args, &err);
    config_free(config);
    scope_buf words;
    buf_init(&words, 16384);
    if (!store || store_probe(store, &err) < 0)
        say(d, FAIL, "store", "%s", err.msg);
    else
        say(d, OK, "store", "%s answers", url);
    if (store && store_caps_explain(&store->caps, &words, &err) == 0)
        say_words(d, buf_cstr(&words));
    if (store)
        store_free(store);
}

static void
check_gateway(struct doctor *d)
{
    struct err err = ERR_INIT;
    json_t *answer = NULL;
    if (client_json(d->cli, &(struct json_call){ "GET", "/v1/doctor", NULL, 30 }, &answer, &err) <
        0) {
        say(d, err.code == ERR_GATEWAY_AWAY ? WARN : FAIL, "gateway", "%s", err.msg);
        check_store_alone(d);
        return;
    }
    scope_json *held = answer;
    const json_t *store = json_object_get(held, "store");
    say(d, OK, "gateway", "runs; %s", get_text(held, "hardening"));
    if (get_bool(store, "ok"))
        say(d, OK, "store", "%s answers", get_text(store, "url"));
    else if (strcmp(get_text(store, "error_code"), err_slug(ERR_STORE_DENIED)) == 0)
        say(d, FAIL, "store", "%s refuses the keys: %s", get_text(store, "url"),
            get_text(store, "error"));
    else
        say(d, FAIL, "store", "%s is away: %s", get_text(store, "url"), get_text(store, "error"));
    say_words(d, get_text(held, "capabilities"));
    const json_t *hidden = json_object_get(held, "unreachable");
    if (get_int(hidden, "count") > 0)
        say(d, WARN, "keys",
            "%lld keys in the bucket cannot be shown as files, such as '%s' (%s): rename these "
            "objects with the tool that made them",
            (long long)get_int(hidden, "count"), get_text(hidden, "key"), get_text(hidden, "why"));
    const json_t *takeover = json_object_get(held, "takeover");
    if (get_bool(takeover, "possible"))
        say(d, OK, "takeover", "programs in mounts outlive the gateway (%s)",
            get_text(takeover, "mode"));
    else
        say(d, WARN, "takeover", "mounts end with the gateway: %s", get_text(takeover, "why"));
    if (!get_bool(held, "can_mount"))
        say(d, WARN, "mounts",
            "this gateway cannot mount: is holdfast-mounter installed beside it?");
    else if (get_int(held, "mounts_plain") > 0)
        say(d, WARN, "passthrough", "off for %lld mounts, which are slower: %s",
            (long long)get_int(held, "mounts_plain"), get_text(held, "mounts_plain_why"));
    else if (get_int(held, "mounts") > 0)
        say(d, OK, "passthrough", "on: the kernel reads and writes local files itself");
}

int
cmd_doctor(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *words[1];
    struct doctor d = { .cli = cli };
    if (cli_parse(cli, argc, argv, NULL, &(struct cli_words){ 0, 0, words }, err) < 0)
        return -1;
    scope_json *checks = json_array();
    if (!checks)
        return err_nomem(err);
    d.checks = checks;
    if (client_state(cli, d.state, sizeof(d.state), err) < 0)
        return -1;
    check_kernel(&d);
    check_clock(&d);
    check_fuse(&d);
    check_sysctls(&d);
    check_bwrap(&d);
    check_space(&d);
    check_gateway(&d);
    scope_json *out = json_pack("{s:b, s:O}", "ok", (int)(d.worst < FAIL), "checks", checks);
    if (cli->json && (!out || print_json(out, err) < 0))
        return -1;
    return d.worst == FAIL ? 1 : 0;
}
