#ifndef GATEWAY_CONNECTION_H
#define GATEWAY_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The connections of one server, and the thread that ends those that hold a place without using it. libmicrohttpd's own time-out
 * starts anew with every byte (docs/http.md). Thread safe.
 */
struct gateway_connection_table;
struct gateway_connection;

enum gateway_connection_phase {
    GATEWAY_PHASE_HEAD,  /* a head has to be complete in time, or a kept connection to ask again */
    GATEWAY_PHASE_BODY,  /* a body has to bring so many bytes in each window */
    GATEWAY_PHASE_BUSY,  /* we work: no clock runs */
    GATEWAY_PHASE_REPLY, /* the client has to take each part of the answer in time */
};

struct gateway_connection_limits {
    int64_t head_ns;
    int64_t body_window_ns;
    uint64_t body_window_bytes;
    int64_t reply_ns;
};

struct gateway_connection_table *gateway_connection_table_new(
    const struct gateway_connection_limits *limits, struct err *err) MUST_CHECK;
/* Every connection must have been removed. NULL is fine. */
void gateway_connection_table_free(struct gateway_connection_table *table);

/* `fd` stays the caller's, and open until gateway_connection_remove(). NULL without memory. */
struct gateway_connection *gateway_connection_add(struct gateway_connection_table *table, int fd,
                                                  bool allowed) MUST_CHECK;
void gateway_connection_remove(struct gateway_connection_table *table,
                               struct gateway_connection *connection);
bool gateway_connection_allowed(const struct gateway_connection *connection);
/* `bytes` of the body have come. NULL is fine. */
void gateway_connection_enter(struct gateway_connection_table *table,
                              struct gateway_connection *connection,
                              enum gateway_connection_phase phase, uint64_t bytes);

#endif
