#include "gateway/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/parse.h"
#include "base/scope.h"

#define BACKLOG 128

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool
parse_address(const char *text, union address *out, socklen_t *len)
{
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':');
    uint64_t port;
    if (!colon || (size_t)(colon - text) >= sizeof(host) || !parse_u64(colon + 1, &port) ||
        port > 65535)
        return false;
    size_t host_len = (size_t)(colon - text);
    memset(out, 0, sizeof(*out));
    if (host_len > 2 && text[0] == '[' && colon[-1] == ']') {
        (void)snprintf(host, sizeof(host), "%.*s", (int)host_len - 2, text + 1);
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons((uint16_t)port);
        *len = sizeof(out->v6);
        return inet_pton(AF_INET6, host, &out->v6.sin6_addr) == 1;
    }
    (void)snprintf(host, sizeof(host), "%.*s", (int)host_len, text);
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons((uint16_t)port);
    *len = sizeof(out->v4);
    return inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host,
                     &out->v4.sin_addr) == 1;
}

static bool
is_loopback(const union address *address)
{
    if (address->any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
    return (ntohl(address->v4.sin_addr.s_addr) >> 24) == 127;
}

static int
check(const char *text, union address *out, socklen_t *len, struct err *err)
{
    if (!parse_address(text, out, len))
        return err_set(err, ERR_USAGE, "'%s' is no address to listen on: give ADDR:PORT", text);
    if (!is_loopback(out))
        return err_set(
            err, ERR_USAGE,
            "refusing to listen on '%s': without a password only loopback addresses are allowed",
            text);
    return 0;
}

int
gateway_listen_check(const char *address, struct err *err)
{
    union address parsed;
    socklen_t len;
    return check(address, &parsed, &len, err);
}

int
gateway_listen_tcp(const char *address, unsigned *port, struct err *err)
{
    union address parsed;
    socklen_t len;
    int on = 1;
    if (check(address, &parsed, &len, err) < 0)
        return -1;
    scope_fd int fd = socket(parsed.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, errno, "cannot make a socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, &parsed.any, len) < 0)
        return err_sys(err, errno, "cannot listen on '%s'", address);
    if (listen(fd, BACKLOG) < 0 || getsockname(fd, &parsed.any, &len) < 0)
        return err_sys(err, errno, "cannot listen on '%s'", address);
    *port = ntohs(parsed.any.sa_family == AF_INET6 ? parsed.v6.sin6_port : parsed.v4.sin_port);
    return steal_fd(&fd);
}

static int
unix_address(const char *path, struct sockaddr_un *out, struct err *err)
{
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof(out->sun_path))
        return err_set(err, ERR_USAGE,
                       "the path '%s' is too long for a socket: use a shorter state directory",
                       path);
    memcpy(out->sun_path, path, strlen(path));
    return 0;
}

int
gateway_listen_unix(const char *path, int type, struct err *err)
{
    struct sockaddr_un address;
    if (unix_address(path, &address, err) < 0)
        return -1;
    scope_fd int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, errno, "cannot make a socket");
    if (unlink(path) < 0 && errno != ENOENT)
        return err_sys(err, errno, "cannot replace '%s'", path);
    /* The socket's mode, less the umask, becomes the name's, which is widened then. Not by umask(): that is the whole process's, and a
     * folder that another thread makes meanwhile could never be entered. */
    if (fchmod(fd, 0600) < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
        chmod(path, 0660) < 0)
        return err_sys(err, errno, "cannot listen on '%s'", path);
    if (listen(fd, BACKLOG) < 0)
        return err_sys(err, errno, "cannot listen on '%s'", path);
    return steal_fd(&fd);
}

int
gateway_listen_connect(const char *path, int type, struct err *err)
{
    struct sockaddr_un address;
    if (unix_address(path, &address, err) < 0)
        return -1;
    scope_fd int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, errno, "cannot make a socket");
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        if (errno == ENOENT || errno == ECONNREFUSED)
            return err_set(err, ERR_GATEWAY_AWAY,
                           "no gateway runs on '%s': start it with 'holdfast serve'", path);
        return err_sys(err, errno, "cannot reach the gateway at '%s'", path);
    }
    return steal_fd(&fd);
}
