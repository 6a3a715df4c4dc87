#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "gateway/exchange.h"

/* RFC 9110 section 15 and the RFCs that added a status. */
static const char *
status_title(int status)
{
    static const struct {
        int status;
        const char *title;
    } titles[] = {
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 408, "Request Timeout" },
        { 409, "Conflict" },
        { 412, "Precondition Failed" },
        { 413, "Content Too Large" },
        { 416, "Range Not Satisfiable" },
        { 421, "Misdirected Request" },
        { 422, "Unprocessable Content" },
        { 423, "Locked" },
        { 428, "Precondition Required" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },
        { 502, "Bad Gateway" },
        { 503, "Service Unavailable" },
        { 507, "Insufficient Storage" },
    };
    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++) {
        if (titles[i].status == status)
            return titles[i].title;
    }
    return "Error";
}

static json_t *
problem_document(const struct exchange *x, const struct err *why, int status)
{
    json_t *document = json_pack(
        "{s:s, s:s, s:i, s:o, s:s, s:b, s:s}", "type", "about:blank", "title", status_title(status),
        "status", status, "detail", json_bytes(why->msg, strlen(why->msg)), "code",
        err_slug(why->code), "retryable", (int)err_retryable(why->code), "trace", x->trace);
    if (document && x->extra)
        (void)json_object_update(document, x->extra);
    return document;
}

/* Headers that a status asks for. */
static int
status_headers(struct exchange *x, int status, struct err *err)
{
    if (status == 401)
        return exchange_reply_header(x, "WWW-Authenticate", err, "Bearer realm=\"holdfast\"");
    if (status == 405)
        return exchange_reply_header(x, "Allow", err, "%s", x->allow);
    if (status == 416)
        return exchange_reply_header(x, "Content-Range", err, "bytes */%llu",
                                     (unsigned long long)x->whole_size);
    if (status == 503 || status == 429)
        return exchange_reply_header(x, "Retry-After", err, "5");
    return 0;
}

void
exchange_reply_problem(struct exchange *x, const struct err *why)
{
    struct err err = ERR_INIT;
    int status = err_http(why->code);
    x->reply.status = status;
    x->reply.header_count = 0;
    buf_clear(&x->reply.body);
    buf_clear(&x->reply.location);
    if (x->reply.stream.read && x->reply.stream.free)
        x->reply.stream.free(x->reply.stream.arg);
    x->reply.stream.read = NULL;
    scope_json *document = problem_document(x, why, status);
    if (!document || json_print(document, &x->reply.body, &err) < 0 ||
        buf_append(&x->reply.body, "\n", 1, &err) < 0)
        buf_clear(&x->reply.body);
    if (exchange_reply_header(x, "Content-Type", &err, "application/problem+json") < 0 ||
        status_headers(x, status, &err) < 0)
        log_error(http, "an error answer is incomplete: %s", err.msg);
    if (status >= 500)
        log_warn(http, "%s %.200s -> %d %s trace=%s", x->method, exchange_shown(x), status,
                 why->msg, x->trace);
}
