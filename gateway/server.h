#ifndef GATEWAY_SERVER_H
#define GATEWAY_SERVER_H

#include "gateway/exchange.h"

/*
 * The HTTP server: one per listening socket, a thread per connection. The only includer of libmicrohttpd. It reads heads strictly,
 * keeps deadlines for heads and a least rate for bodies, and gives complete requests to the router.
 */
struct gateway_server;

struct gateway_server_args {
    const struct gateway *gateway;
    int listen_fd;  /* taken */
    bool local;     /* a unix socket: peers are checked by uid */
    uid_t peer_uid; /* besides root: who may use it */
};
struct gateway_server *gateway_server_start(const struct gateway_server_args *args,
                                            struct err *err) MUST_CHECK;
/* No new connections from now on; running requests go on. */
void gateway_server_quiesce(struct gateway_server *server);
/* Ends all connections and frees. NULL is fine. */
void gateway_server_stop(struct gateway_server *server);

#endif
