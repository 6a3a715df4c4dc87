#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/scope.h"

/*
 * A growing byte buffer that is born with a maximum. It always ends in a NUL that is not counted,
 * so that `data` is a C string as long as no NUL was appended. Not thread safe. A buffer whose
 * append failed is unchanged.
 */
struct buf {
    char *data; /* NULL until the first append; use buf_cstr() for a string that is never NULL */
    size_t len;
    size_t cap;
    size_t max; /* append beyond it fails with ERR_TOO_LARGE */
};

void buf_init(struct buf *buf, size_t max);
void buf_release(struct buf *buf);
#define scope_buf scope(buf_release) struct buf

int buf_append(struct buf *buf, const void *data, size_t len, struct err *err) MUST_CHECK;
int buf_append_str(struct buf *buf, const char *text, struct err *err) MUST_CHECK;
int buf_appendf(struct buf *buf, struct err *err, const char *fmt, ...) MUST_CHECK
    __attribute__((format(printf, 3, 4)));
int buf_vappendf(struct buf *buf, struct err *err, const char *fmt, va_list ap) MUST_CHECK
    __attribute__((format(printf, 3, 0)));
/* Makes room for `len` more bytes and answers where they go (NULL on error); buf_commit() then
 * counts what was written. */
char *buf_reserve(struct buf *buf, size_t len, struct err *err) MUST_CHECK;
void buf_commit(struct buf *buf, size_t len);
void buf_clear(struct buf *buf);
/* Cuts back to `len` bytes, which must not be more than there are. */
void buf_truncate(struct buf *buf, size_t len);
const char *buf_cstr(const struct buf *buf);
/* Takes the memory out (caller frees; never NULL: an empty buffer gives an empty string, NULL
 * only without memory). */
char *buf_steal(struct buf *buf);

#endif
