#include "mount/carry.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/scope.h"

static const char magic[8] = { 'h', 'f', 'c', 'a', 'r', 'r', 'y', '1' };
#define SIZE (sizeof(struct carry) + CARRY_OPENS * sizeof(struct carry_open))

static struct carry *
map(int fd, struct err *err)
{
    void *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        err_sys(err, errno, "map the memory of a mount");
        return NULL;
    }
    return at;
}

struct carry *
carry_new(int *fd_out, struct err *err)
{
    scope_fd int fd = memfd_create("holdfast-mount", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)SIZE) < 0) {
        err_sys(err, errno, "make the memory of a mount");
        return NULL;
    }
    struct carry *carry = map(fd, err);
    if (!carry)
        return NULL;
    memcpy(carry->magic, magic, sizeof(magic));
    *fd_out = steal_fd(&fd);
    return carry;
}

struct carry *
carry_map(int fd, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        err_sys(err, errno, "look at the memory of a mount");
        return NULL;
    }
    struct carry *carry = st.st_size == (off_t)SIZE ? map(fd, err) : NULL;
    if (carry && memcmp(carry->magic, magic, sizeof(magic)) == 0 &&
        carry->opens_used <= CARRY_OPENS)
        return carry;
    carry_unmap(carry);
    err_set(err, ERR_NEWER_FORMAT, "the mount was made by another version of holdfast");
    return NULL;
}

void
carry_unmap(struct carry *carry)
{
    if (carry)
        (void)munmap(carry, SIZE);
}

void
carry_count(struct carry *carry, uint32_t opcode, bool replayed)
{
    if (!carry)
        return;
    uint32_t at = opcode < CARRY_OPCODES ? opcode : 0;
    atomic_fetch_add_explicit(replayed ? &carry->replayed[at] : &carry->resent[at], 1,
                              memory_order_relaxed);
}
