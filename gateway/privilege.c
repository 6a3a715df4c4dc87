#include "gateway/privilege.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/scope.h"
#include "base/sys.h"

/* ---- user ---- */
static bool
look_up(const char *name, struct gateway_user *out)
{
    char text[4096];
    struct passwd entry;
    struct passwd *found = NULL;
    if (getpwnam_r(name, &entry, text, sizeof(text), &found) != 0 || !found)
        return false;
    out->uid = found->pw_uid;
    out->gid = found->pw_gid;
    (void)snprintf(out->name, sizeof(out->name), "%s", name);
    (void)snprintf(out->home, sizeof(out->home), "%s", found->pw_dir);
    return true;
}

int
gateway_privilege_user(const char *name, struct gateway_user *out, struct err *err)
{
    if (geteuid() != 0) {
        *out = (struct gateway_user){ .uid = geteuid(), .gid = getegid(), .name = "" };
        if (name && (!look_up(name, out) || out->uid != geteuid()))
            return err_set(err, ERR_PERM, "only root can become user '%s'", name);
        return 0;
    }
    if (name)
        return look_up(name, out) ? 0 : err_set(err, ERR_USAGE, "there is no user '%s'", name);
    if (look_up("holdfast", out) || look_up("nobody", out))
        return 0;
    return err_set(err, ERR_USAGE,
                   "there is neither a user 'holdfast' nor 'nobody': name one with --user");
}

static bool
is_empty(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;
    bool empty = true;
    if (!dir) {
        if (copy >= 0)
            (void)close(copy);
        return false;
    }
    while ((entry = readdir(dir))) /* NOLINT(concurrency-mt-unsafe): no thread exists yet */
        empty = empty && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
    (void)closedir(dir);
    return empty;
}

int
gateway_privilege_own(const char *dir, const struct gateway_user *user, struct err *err)
{
    struct stat st;
    if (sys_make_dirs(dir, 0700, err) < 0)
        return err_wrap(err, "cannot make the directory '%s'", dir);
    scope_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, errno, "cannot open the directory '%s'", dir);
    if (st.st_uid == user->uid || geteuid() != 0)
        return 0;
    if (st.st_uid != 0)
        return err_set(err, ERR_DENIED,
                       "'%s' belongs to user %u, not to '%s': change its owner, or give --user",
                       dir, (unsigned)st.st_uid, user->name);
    if (!is_empty(fd)) {
        /* Others may read and write there already; if not, the first access says so. */
        return 0;
    }
    if (fchown(fd, user->uid, user->gid) < 0)
        return err_sys(err, errno, "cannot give '%s' to user '%s'", dir, user->name);
    return 0;
}

int
gateway_privilege_drop(const struct gateway_user *user, struct err *err)
{
    if (geteuid() != 0 || user->uid == 0)
        return 0;
    for (int cap = 0; cap <= 63; cap++) {
        if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1)
            (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    }
    if (setgroups(0, NULL) < 0 || setresgid(user->gid, user->gid, user->gid) < 0 ||
        setresuid(user->uid, user->uid, user->uid) < 0)
        return err_sys(err, errno, "cannot become user '%s'", user->name);
    if (setuid(0) == 0 || geteuid() != user->uid)
        return err_set(err, ERR_INTERNAL, "the change to user '%s' did not hold", user->name);
    /* Root's ~/.aws is closed to this user: look into its own. */
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no thread exists yet */
    if (setenv("HOME", user->home, 1) < 0)
        return err_nomem(err);
    return 0;
}

/* ---- Landlock (docs.kernel.org/userspace-api/landlock.html) ---- */
#define RIGHT(n) (1ull << (n))
#define RIGHTS_ALL_ABI2 (RIGHT(14) - 1)
#define RIGHT_TRUNCATE RIGHT(14) /* ABI 3 */
#define RIGHTS_READ \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)

static void
allow_path(int ruleset, const char *path, __u64 rights)
{
    struct stat st;
    scope_fd int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return;
    if (!S_ISDIR(st.st_mode))
        rights &= LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |
                  LANDLOCK_ACCESS_FS_WRITE_FILE | RIGHT_TRUNCATE;
    struct landlock_path_beneath_attr rule = { .allowed_access = rights, .parent_fd = fd };
    (void)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

/* The file's directory, and that of what it may be a link to. */
static void
allow_file(int ruleset, const char *path)
{
    char real[PATH_MAX];
    char dir[PATH_MAX];
    if (path[0] != '/')
        return;
    for (int i = 0; i < 2; i++) {
        const char *at = i == 0 ? path : realpath(path, real);
        const char *slash = at ? strrchr(at, '/') : NULL;
        if (!slash)
            return;
        (void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash > at ? slash - at : 1), at);
        /* Not the whole tree for a file that lies at its top. */
        allow_path(ruleset, slash > at ? dir : at, RIGHTS_READ);
    }
}

static void
allow_profile(int ruleset)
{
    static const char *const names[] = { "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
                                         "AWS_CA_BUNDLE", "SSL_CERT_FILE",
                                         "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE" };
    char path[4096];
    const char *home = secure_getenv("HOME");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = secure_getenv(names[i]);
        if (value)
            allow_file(ruleset, value);
    }
    const char *authorities = secure_getenv("SSL_CERT_DIR");
    if (authorities && authorities[0] == '/')
        allow_path(ruleset, authorities, RIGHTS_READ);
    if (home && snprintf(path, sizeof(path), "%s/.aws", home) < (int)sizeof(path))
        allow_path(ruleset, path, RIGHTS_READ);
}

static bool
landlock(const char *const *writable, const char *const *read_only)
{
    static const char *const readable[] = { "/usr",  "/lib", "/lib64", "/bin", "/etc",
                                            "/proc", "/sys", "/dev",   "/run", "/opt" };
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 2) /* ABI 1 forbids every rename between directories */
        return false;
    __u64 all = RIGHTS_ALL_ABI2 | (abi >= 3 ? RIGHT_TRUNCATE : 0);
    struct landlock_ruleset_attr attr = { .handled_access_fs = all };
    scope_fd int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (ruleset < 0)
        return false;
    for (size_t i = 0; i < sizeof(readable) / sizeof(readable[0]); i++)
        allow_path(ruleset, readable[i], RIGHTS_READ);
    allow_path(ruleset, "/dev/null",
               (RIGHTS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | RIGHT_TRUNCATE) & all);
    allow_profile(ruleset);
    for (size_t i = 0; read_only[i]; i++)
        allow_file(ruleset, read_only[i]);
    for (size_t i = 0; writable[i]; i++)
        allow_path(ruleset, writable[i], all);
    return syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
}

/* ---- seccomp: a list of what a gateway never does, answered with EPERM so that a mistake shows up in a log ---- */
#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

static const unsigned denied[] = {
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_chroot,
    SYS_swapon,
    SYS_swapoff,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_bpf,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_unshare,
    SYS_setns,
    SYS_execve,
    SYS_execveat,
    SYS_reboot,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_acct,
    SYS_quotactl,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_personality,
    SYS_sethostname,
    SYS_setdomainname,
};
#define DENIED_COUNT (sizeof(denied) / sizeof(denied[0]))

static bool
seccomp(void)
{
#ifdef OUR_ARCH
    struct sock_filter filter[2 * DENIED_COUNT + 8];
    unsigned short n = 0;
    const struct sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    filter[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0);
    filter[n++] = refuse;
    filter[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    filter[n++] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1); /* x32 */
    filter[n++] = refuse;
    for (size_t i = 0; i < DENIED_COUNT; i++) {
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied[i], 0, 1);
        filter[n++] = refuse;
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { .len = n, .filter = filter };
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
#else
    return false;
#endif
}

void
gateway_privilege_harden(const char *const *writable, const char *const *readable, char *report,
                         size_t size)
{
    bool quiet = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
    bool files = quiet && landlock(writable, readable);
    bool calls = quiet && seccomp();
    (void)snprintf(report, size, "user %u, no_new_privs %s, Landlock %s, seccomp %s",
                   (unsigned)geteuid(), quiet ? "on" : "off", files ? "on" : "off (kernel too old)",
                   calls ? "on" : "off");
}
