#include "gateway/fdpass.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(FDPASS_MAX * sizeof(int))];
};

int
gateway_fdpass_send(int sock, const void *data, size_t len, const int *fds, size_t count,
                    struct err *err)
{
    union control control = { 0 };
    struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (count > 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
        assert(head != NULL); /* gcc cannot see that there is room */
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(sock, &msg, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno == EMSGSIZE)
        return err_set(err, ERR_TOO_LARGE, "the command line is too long for the launcher");
    if (sent < 0)
        return err_sys(err, errno, "cannot send to the other process");
    return (size_t)sent == len ? 0 : err_set(err, ERR_IO, "a packet was cut");
}

static void
take_fds(struct msghdr *msg, int *fds, size_t max, size_t *count)
{
    *count = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head; head = CMSG_NXTHDR(msg, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
            if (*count < max)
                fds[(*count)++] = fd;
            else
                (void)close(fd);
        }
    }
}

ssize_t
gateway_fdpass_receive(int sock, void *data, size_t size, int *fds, size_t *count, struct err *err)
{
    union control control = { 0 };
    struct iovec iov = { .iov_base = data, .iov_len = size };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof(control.bytes) };
    ssize_t got;
    do
        got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_sys(err, errno, "cannot receive from the other process");
    take_fds(&msg, fds, *count, count);
    if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        return err_set(err, ERR_TOO_LARGE, "a packet was too large");
    return got;
}
