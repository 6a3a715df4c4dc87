#include "base/buf.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define FIRST_CAP 64

void
buf_init(struct buf *buf, size_t max)
{
    *buf = (struct buf){ .max = max < SIZE_MAX ? max : SIZE_MAX - 1 };
}

void
buf_release(struct buf *buf)
{
    free(buf->data);
    buf_init(buf, buf->max);
}

/* Twice the old size, at least what is needed, at most the maximum and its NUL. */
static size_t
next_cap(const struct buf *buf, size_t need)
{
    size_t limit = buf->max + 1;
    size_t cap = buf->cap > limit / 2 ? limit : buf->cap * 2;
    if (cap < FIRST_CAP)
        cap = FIRST_CAP < limit ? FIRST_CAP : limit;
    return cap < need ? need : cap;
}

char *
buf_reserve(struct buf *buf, size_t len, struct err *err)
{
    if (len > buf->max - buf->len) {
        err_set(err, ERR_TOO_LARGE, "more than %zu bytes", buf->max);
        return NULL;
    }
    size_t need = buf->len + len + 1;
    if (need > buf->cap) {
        size_t cap = next_cap(buf, need);
        char *data = realloc(buf->data, cap);
        if (!data) {
            err_nomem(err);
            return NULL;
        }
        data[buf->len] = '\0';
        buf->data = data;
        buf->cap = cap;
    }
    return buf->data + buf->len;
}

void
buf_commit(struct buf *buf, size_t len)
{
    assert(len < buf->cap - buf->len);
    buf->len += len;
    buf->data[buf->len] = '\0';
}

int
buf_append(struct buf *buf, const void *data, size_t len, struct err *err)
{
    char *to = buf_reserve(buf, len, err);
    if (!to)
        return -1;
    if (len > 0)
        memcpy(to, data, len);
    buf_commit(buf, len);
    return 0;
}

int
buf_append_str(struct buf *buf, const char *text, struct err *err)
{
    return buf_append(buf, text, strlen(text), err);
}

int
buf_appendf(struct buf *buf, struct err *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = buf_vappendf(buf, err, fmt, ap);
    va_end(ap);
    return rc;
}

int
buf_vappendf(struct buf *buf, struct err *err, const char *fmt, va_list ap)
{
    va_list measure;
    va_copy(measure, ap);
    int len = vsnprintf(NULL, 0, fmt, measure);
    va_end(measure);
    if (len < 0)
        return err_set(err, ERR_INVAL, "text cannot be formatted");
    char *to = buf_reserve(buf, (size_t)len, err);
    if (!to)
        return -1;
    (void)vsnprintf(to, (size_t)len + 1, fmt, ap);
    buf_commit(buf, (size_t)len);
    return 0;
}

void
buf_clear(struct buf *buf)
{
    buf_truncate(buf, 0);
}

void
buf_truncate(struct buf *buf, size_t len)
{
    assert(len <= buf->len);
    buf->len = len;
    if (buf->data)
        buf->data[len] = '\0';
}

const char *
buf_cstr(const struct buf *buf)
{
    return buf->data ? buf->data : "";
}

char *
buf_steal(struct buf *buf)
{
    char *data = buf->data ? buf->data : calloc(1, 1);
    buf->data = NULL;
    buf_release(buf);
    return data;
}
