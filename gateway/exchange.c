#include "gateway/exchange.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/parse.h"

struct exchange *
exchange_new(const struct gateway *gateway, bool local, const char *method, const char *raw,
             struct err *err)
{
    struct exchange *x = calloc(1, sizeof(*x));
    char *copy = strdup(raw);
    if (!x || !copy || strlen(method) >= sizeof(x->method)) {
        free(x);
        free(copy);
        (void)err_nomem(err);
        return NULL;
    }
    x->gateway = gateway;
    x->local = local;
    x->raw = copy;
    x->content_length = -1;
    x->path = "";
    (void)snprintf(x->method, sizeof(x->method), "%s", method);
    buf_init(&x->body, LIMIT_JSON_DOC);
    buf_init(&x->reply.body, 64u << 20);
    buf_init(&x->reply.location, 16384);
    buf_init(&x->target.path, LIMIT_HTTP_TARGET);
    if (ulid_new(x->trace, err) < 0) {
        exchange_free(x);
        return NULL;
    }
    return x;
}

static void
free_stream(struct exchange_stream *stream)
{
    if (stream->read && stream->free)
        stream->free(stream->arg);
    stream->read = NULL;
}

void
exchange_free(struct exchange *x)
{
    if (!x)
        return;
    if (x->state && x->state_free)
        x->state_free(x->state);
    free_stream(&x->reply.stream);
    for (size_t i = 0; i < x->header_count; i++) {
        free((void *)(uintptr_t)x->headers[i].name);
        free((void *)(uintptr_t)x->headers[i].value);
    }
    gateway_request_target_release(&x->target);
    buf_release(&x->body);
    buf_release(&x->reply.body);
    buf_release(&x->reply.location);
    json_decref(x->extra);
    free(x->raw);
    free(x);
}

const char *
exchange_shown(const struct exchange *x)
{
    bool link = (x->route && strcmp(x->route->prefix, "l") == 0) || strncmp(x->raw, "/l/", 3) == 0;
    return link ? "/l/..." : x->raw;
}

const char *
exchange_header(const struct exchange *x, const char *name)
{
    return gateway_request_header(x->headers, x->header_count, name);
}

int
exchange_query_uint(struct exchange *x, const char *name, uint64_t *out, struct err *err)
{
    scope_buf text;
    buf_init(&text, 64);
    int found = gateway_request_query(&x->target, name, &text, err);
    if (found <= 0)
        return found;
    if (!parse_u64(buf_cstr(&text), out))
        return err_set(err, ERR_INVAL, "the parameter '%s' must be a number", name);
    return 0;
}

int
exchange_query_bool(struct exchange *x, const char *name, bool *out, struct err *err)
{
    scope_buf text;
    buf_init(&text, 64);
    int found = gateway_request_query(&x->target, name, &text, err);
    if (found <= 0)
        return found;
    if (!parse_bool(buf_cstr(&text), out))
        return err_set(err, ERR_INVAL, "the parameter '%s' must be true or false", name);
    return 0;
}

int
exchange_reply_header(struct exchange *x, const char *name, struct err *err, const char *fmt, ...)
{
    struct exchange_reply *reply = &x->reply;
    if (reply->header_count == GATEWAY_REPLY_HEADERS_MAX)
        return err_set(err, ERR_INTERNAL, "too many headers in an answer");
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(reply->headers[reply->header_count].value, GATEWAY_REPLY_VALUE_MAX, fmt, ap);
    va_end(ap);
    reply->headers[reply->header_count++].name = name;
    return 0;
}

int
exchange_reply_json(struct exchange *x, int status, json_t *value, struct err *err)
{
    scope_json *held = value;
    if (!held)
        return err_nomem(err);
    buf_clear(&x->reply.body);
    if (json_print(held, &x->reply.body, err) < 0 || buf_append(&x->reply.body, "\n", 1, err) < 0)
        return -1;
    x->reply.status = status;
    return exchange_reply_header(x, "Content-Type", err, "application/json");
}

int
exchange_reply_text(struct exchange *x, int status, const char *text, struct err *err)
{
    buf_clear(&x->reply.body);
    if (buf_append_str(&x->reply.body, text, err) < 0)
        return -1;
    x->reply.status = status;
    return exchange_reply_header(x, "Content-Type", err, "text/plain; charset=utf-8");
}

json_t *
exchange_json(struct exchange *x, struct err *err)
{
    json_t *value = json_parse(buf_cstr(&x->body), x->body.len, err);
    if (value && !json_is_object(value)) {
        json_decref(value);
        (void)err_set(err, ERR_INVAL, "the body must be a JSON object");
        return NULL;
    }
    return value;
}

int
exchange_known_fields(const json_t *body, const char *const *known, struct err *err)
{
    const char *field;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)body, field, value) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], field) != 0)
            i++;
        if (!known[i])
            return err_set(err, ERR_INVAL, "unknown field '%s'", field);
    }
    return 0;
}

int
exchange_list_add(struct exchange_list *list, json_t *item, struct err *err)
{
    scope_json *held = item;
    if (!held)
        return err_nomem(err);
    size_t size = json_dumpb(held, NULL, 0, JSON_COMPACT) + 1;
    if (json_array_size(list->items) >= list->limit || size > list->room)
        list->truncated = true;
    if (list->truncated)
        return 1;
    list->room -= size;
    return json_array_append(list->items, held) < 0 ? err_nomem(err) : 0;
}

bool
exchange_prefers(const struct exchange *x, const char *name, uint64_t *value)
{
    const char *at = exchange_header(x, "Prefer");
    size_t len = strlen(name);
    while (at && *at != '\0') {
        at += strspn(at, ", \t");
        size_t item = strcspn(at, ",");
        if (item >= len && strncasecmp(at, name, len) == 0) {
            if (item == len || at[len] == ' ' || at[len] == ';')
                return !value;
            if (at[len] == '=' && value)
                return parse_u64_n(at + len + 1, strspn(at + len + 1, "0123456789"), value);
        }
        at += item;
    }
    return false;
}

void
exchange_ctx(const struct exchange *x, unsigned seconds, struct volume_ctx *ctx)
{
    const char *run = exchange_header(x, "Holdfast-Run");
    uint64_t wait = seconds;
    if (exchange_prefers(x, "wait", &wait) && wait > 3600)
        wait = 3600;
    *ctx = (struct volume_ctx){
        .actor = x->access.actor,
        .run = x->access.run[0] != '\0' ? x->access.run
               : run && ulid_valid(run) ? run
                                        : "",
        .uid = x->gateway->uid,
        .gid = x->gateway->gid,
        .deadline_ns = clock_mono_ns() + (int64_t)wait * NS_PER_S,
    };
}
