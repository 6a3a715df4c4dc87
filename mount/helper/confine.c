#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mount/helper/helper_impl.h"

/* SYS_ADMIN mounts; SYS_CHROOT and SYS_PTRACE enter sandboxes' mount namespaces and see who uses a mount;
 * DAC_READ_SEARCH reaches mountpoints below directories that only their owner may search: umount2() wants a path. */
static const unsigned kept[] = { CAP_SYS_ADMIN, CAP_SYS_CHROOT, CAP_SYS_PTRACE,
                                 CAP_DAC_READ_SEARCH };
#define KEPT (sizeof(kept) / sizeof(kept[0]))

static bool
is_kept(unsigned cap)
{
    for (size_t i = 0; i < KEPT; i++) {
        if (kept[i] == cap)
            return true;
    }
    return false;
}

static int
reduce_bounding_set(void)
{
    for (unsigned cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++) {
        if (!is_kept(cap) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return errno;
    }
    return 0;
}

static int
reduce_capabilities(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = { { 0 }, { 0 } };
    for (size_t i = 0; i < KEPT; i++) {
        data[kept[i] / 32].permitted |= 1u << (kept[i] % 32);
        data[kept[i] / 32].effective |= 1u << (kept[i] % 32);
    }
    return syscall(SYS_capset, &header, data) < 0 ? errno : 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#if defined(__x86_64__)
#define AUDIT_ARCH_HERE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define AUDIT_ARCH_HERE AUDIT_ARCH_AARCH64
#endif

#if defined(AUDIT_ARCH_HERE) && !defined(SANITIZED)
#define ALLOW(nr) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Everything else answers EPERM: a call that was forgotten is an error in a log, no death. */
static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_HERE, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(SYS_recvmsg),
    ALLOW(SYS_sendmsg),
    ALLOW(SYS_read),
    ALLOW(SYS_write),
    ALLOW(SYS_close),
    ALLOW(SYS_ppoll),
    ALLOW(SYS_accept4),
    ALLOW(SYS_getsockopt),
    ALLOW(SYS_pidfd_open),
    ALLOW(SYS_clock_gettime),
#ifdef SYS_poll
    ALLOW(SYS_poll),
    ALLOW(SYS_readlink),
#endif
    ALLOW(SYS_openat),
    ALLOW(SYS_statx),
    ALLOW(SYS_newfstatat),
    ALLOW(SYS_fstat),
    ALLOW(SYS_getdents64),
    ALLOW(SYS_readlinkat),
    ALLOW(SYS_lseek),
    ALLOW(SYS_fcntl),
    ALLOW(SYS_fchdir),
    ALLOW(SYS_chdir),
    ALLOW(SYS_mkdirat),
    ALLOW(SYS_unlinkat),
    ALLOW(SYS_fsopen),
    ALLOW(SYS_fsconfig),
    ALLOW(SYS_fsmount),
    ALLOW(SYS_move_mount),
    ALLOW(SYS_open_tree),
    ALLOW(SYS_mount_setattr),
    ALLOW(SYS_umount2),
    ALLOW(SYS_brk),
    ALLOW(SYS_mmap),
    ALLOW(SYS_munmap),
    ALLOW(SYS_mremap),
    ALLOW(SYS_mprotect),
    ALLOW(SYS_madvise),
    ALLOW(SYS_futex),
    ALLOW(SYS_getrandom),
    ALLOW(SYS_rt_sigreturn),
    ALLOW(SYS_rt_sigprocmask),
    ALLOW(SYS_restart_syscall),
    ALLOW(SYS_exit),
    ALLOW(SYS_exit_group),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, HELPER_IOCTL_BACKING_OPEN, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, HELPER_IOCTL_BACKING_CLOSE, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA)),
};

static int
install_filter(void)
{
    struct sock_fprog program = {
        .len = (unsigned short)(sizeof(filter) / sizeof(filter[0])),
        .filter = filter,
    };
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? errno : 0;
}
#else
static int
install_filter(void)
{
    return 0;
}
#endif

int
helper_confine(const char **what)
{
    *what = "reduce the bounding set";
    int error = reduce_bounding_set();
    if (error != 0)
        return error;
    *what = "lock the secure bits";
    unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                         SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                         SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
    if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return errno;
    *what = "drop capabilities";
    error = reduce_capabilities();
    if (error != 0)
        return error;
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    *what = "install the system call filter";
    return install_filter();
}
