#include "gateway/sandbox.h"

#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "base/ulid.h"

static int
add(struct sandbox_args *out, const char *text, struct err *err)
{
    if (out->count + 1 >= SANDBOX_ARGS_MAX)
        return err_set(err, ERR_INVAL, "the command has too many arguments");
    out->argv[out->count++] = text;
    out->argv[out->count] = NULL;
    return 0;
}

static int
add_all(struct sandbox_args *out, const char *const *texts, struct err *err)
{
    for (size_t i = 0; texts[i]; i++) {
        if (add(out, texts[i], err) < 0)
            return -1;
    }
    return 0;
}

/* The system, read-only: programs and what they need to find their libraries, certificates and names. Nothing else of the host. */
static const char *const frame[] = {
    "--unshare-all",
    "--unshare-user",
    "--die-with-parent",
    "--new-session",
    "--disable-userns",
    "--cap-drop",
    "ALL",
    "--hostname",
    "sandbox",
    "--clearenv",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/sbin",
    "/sbin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--ro-bind-try",
    "/etc/ld.so.cache",
    "/etc/ld.so.cache",
    "--ro-bind-try",
    "/etc/alternatives",
    "/etc/alternatives",
    "--ro-bind-try",
    "/etc/ssl/certs",
    "/etc/ssl/certs",
    "--ro-bind-try",
    "/etc/ca-certificates",
    "/etc/ca-certificates",
    "--ro-bind-try",
    "/etc/localtime",
    "/etc/localtime",
    "--ro-bind-try",
    "/etc/mime.types",
    "/etc/mime.types",
    "--ro-bind-try",
    "/etc/python3",
    "/etc/python3",
    "--ro-bind-try",
    "/etc/python3.11",
    "/etc/python3.11",
    "--ro-bind-try",
    "/etc/python3.13",
    "/etc/python3.13",
    "--ro-bind-try",
    "/etc/magic",
    "/etc/magic",
    "--perms",
    "1777",
    "--tmpfs",
    "/tmp",
    "--perms",
    "0700",
    "--tmpfs",
    "/workspace",
    "--dir",
    "/mnt",
    "--dir",
    "/mnt/data",
    "--chdir",
    "/workspace",
    "--setenv",
    "PATH",
    "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "--setenv",
    "HOME",
    "/workspace",
    "--setenv",
    "LANG",
    "C.UTF-8",
    "--setenv",
    "TMPDIR",
    "/tmp",
    NULL,
};

static const char *const with_net[] = {
    "--share-net",        "--ro-bind-try",
    "/etc/resolv.conf",   "/etc/resolv.conf",
    "--ro-bind-try",      "/etc/hosts",
    "/etc/hosts",         "--ro-bind-try",
    "/etc/nsswitch.conf", "/etc/nsswitch.conf",
    "--ro-bind-try",      "/etc/services",
    "/etc/services",      NULL,
};

bool
gateway_sandbox_place_ok(const char *path)
{
    static const char *const parts[] = { "usr", "bin",  "sbin", "lib", "lib64",
                                         "etc", "proc", "dev",  "sys" };
    struct err ignored = ERR_INIT;
    if (path[0] != '/' || path[1] == '\0' || path_check(path + 1, strlen(path + 1), &ignored) < 0)
        return false;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (path_within(path + 1, parts[i]))
            return false;
    }
    /* Over /tmp or /workspace themselves a volume would not be scratch space any more; below them it may be. */
    return strcmp(path, "/tmp") != 0 && strcmp(path, "/workspace") != 0 &&
           strcmp(path, "/mnt") != 0 && strcmp(path, "/mnt/data") != 0;
}

static int
add_bind(const json_t *bind, const char *mounts, struct sandbox_args *out, struct err *err)
{
    const char *from;
    const char *to;
    bool read_only = false;
    size_t len = strlen(mounts);
    if (json_need_str(bind, "from", &from, err) < 0 || json_need_str(bind, "to", &to, err) < 0 ||
        json_opt_bool(bind, "read_only", &read_only, err) < 0)
        return -1;
    const char *name = from + len + 1;
    if (strncmp(from, mounts, len) != 0 || from[len] != '/' ||
        path_check_name(name, strlen(name), err) < 0)
        return err_set(err, ERR_INVAL,
                       "only mounts of this gateway can be shown in a sandbox, not '%s'", from);
    if (!gateway_sandbox_place_ok(to))
        return err_set(err, ERR_INVAL, "a volume cannot be shown at '%s' in a sandbox", to);
    if (add(out, read_only ? "--ro-bind" : "--bind", err) < 0 || add(out, from, err) < 0)
        return -1;
    return add(out, to, err);
}

static int
add_binds(const json_t *spec, const char *mounts, struct sandbox_args *out, struct err *err)
{
    const json_t *binds = json_object_get(spec, "binds");
    for (size_t i = 0; i < json_array_size(binds); i++) {
        if (add_bind(json_array_get(binds, i), mounts, out, err) < 0)
            return -1;
    }
    return 0;
}

/* Through sh, so that a command that cannot be found ends with 127 as everywhere. */
static int
add_command(const json_t *spec, struct sandbox_args *out, struct err *err)
{
    static const char *const shell[] = { "--", "/bin/sh", "-c", "exec \"$@\"", "sh", NULL };
    const json_t *argv = json_object_get(spec, "argv");
    if (json_array_size(argv) == 0)
        return err_set(err, ERR_INVAL, "there is no command to run");
    out->command = out->count;
    if (add_all(out, shell, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(argv); i++) {
        const char *text = json_string_value(json_array_get(argv, i));
        if (!text)
            return err_set(err, ERR_INVAL, "the arguments of the command must be strings");
        if (add(out, text, err) < 0)
            return -1;
    }
    return 0;
}

static int
add_environment(const json_t *spec, struct sandbox_args *out, struct err *err)
{
    const char *run = "";
    const char *term = NULL;
    if (json_need_str(spec, "run", &run, err) < 0 || json_opt_str(spec, "term", &term, err) < 0)
        return -1;
    if (!ulid_valid(run))
        return err_set(err, ERR_INVAL, "a run's id is a ULID");
    const char *const texts[] = { "--setenv", "HOLDFAST_RUN", run, term ? "--setenv" : NULL,
                                  "TERM",     term,           NULL };
    return add_all(out, texts, err);
}

static int
add_descriptors(const struct sandbox_fds *fds, struct sandbox_args *out, struct err *err)
{
    (void)snprintf(out->status_fd, sizeof(out->status_fd), "%d", fds->status);
    (void)snprintf(out->passwd_fd, sizeof(out->passwd_fd), "%d", fds->passwd);
    (void)snprintf(out->group_fd, sizeof(out->group_fd), "%d", fds->group);
    const char *const texts[] = {
        "--json-status-fd", out->status_fd, "--perms", "0444", "--ro-bind-data",
        out->passwd_fd,     "/etc/passwd",  "--perms", "0444", "--ro-bind-data",
        out->group_fd,      "/etc/group",   NULL
    };
    return add_all(out, texts, err);
}

int
gateway_sandbox_args(const json_t *spec, const char *mounts, const struct sandbox_fds *fds,
                     struct sandbox_args *out, struct err *err)
{
    const char *net = "none";
    out->count = 0;
    if (json_opt_str(spec, "net", &net, err) < 0 || add_all(out, frame, err) < 0 ||
        add_descriptors(fds, out, err) < 0)
        return -1;
    if (strcmp(net, "host") == 0) {
        if (add_all(out, with_net, err) < 0)
            return -1;
    } else if (strcmp(net, "none") != 0) {
        return err_set(err, ERR_INVAL, "the network of a sandbox is 'none' or 'host', not '%s'",
                       net);
    }
    if (add_environment(spec, out, err) < 0 || add_binds(spec, mounts, out, err) < 0)
        return -1;
    return add_command(spec, out, err);
}
