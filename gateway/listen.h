#ifndef GATEWAY_LISTEN_H
#define GATEWAY_LISTEN_H

#include "base/err.h"

/*
 * Listening sockets. TCP only on loopback addresses: without a password nobody else may come in (docs/http.md).
 */
/* `address` is ADDR:PORT or [ADDR]:PORT; port 0 lets the kernel choose. *port is the one in use. */
int gateway_listen_tcp(const char *address, unsigned *port, struct err *err) MUST_CHECK;
/* Only checks the text; for a clear error before anything else is done. */
int gateway_listen_check(const char *address, struct err *err) MUST_CHECK;
/* Replaces a left-over socket file: the caller holds the lock of the state directory. `type` as in socket(2). */
int gateway_listen_unix(const char *path, int type, struct err *err) MUST_CHECK;
/* Connects; ERR_GATEWAY_AWAY when nobody listens. */
int gateway_listen_connect(const char *path, int type, struct err *err) MUST_CHECK;

#endif
