#ifndef TESTS_FAULT_SERVER_HTTP_H
#define TESTS_FAULT_SERVER_HTTP_H

#include "tests/fault/server/server.h"

#define MAX_HEAD 65536

/* Bytes read beyond the end of one request belong to the next. */
struct connection {
    int fd;
    char data[MAX_HEAD];
    size_t len;
};

/* Both false when the connection is to end. */
bool http_read_head(struct connection *connection, struct request *request);
bool http_read_body(struct connection *connection, struct request *request);
void http_free_request(struct request *request);

/* RST instead of FIN at the next close. */
void http_reset(int fd);
/* Until the client gives up. */
void http_wait_for_close(int fd);
/* Both false: the connection ends. */
bool http_send_reply(int fd, const struct reply *reply, struct hit hit);
bool http_send_spaces(int fd, const struct reply *reply, struct hit hit);

#endif
