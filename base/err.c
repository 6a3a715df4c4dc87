#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

struct row {
    int sys;
    int http;
    int exit;
    bool retryable;
    const char *slug;
};

static const struct row rows[ERR_CODE_COUNT] = {
#define X(code, sys, http, status, retry, slug) [code] = { sys, http, status, retry, slug },
    ERR_TABLE(X)
#undef X
};

/* Only errnos whose meaning for the caller does not depend on the call. EINVAL is not here: from
 * the kernel it means that we asked for something it cannot do, not that the user did. */
static const struct {
    int sys;
    enum err_code code;
} from_errno[] = {
    { ENOSPC, ERR_NO_SPACE },
    { EDQUOT, ERR_QUOTA },
    { ENOMEM, ERR_NOMEM },
    { EMFILE, ERR_FILES },
    { ENFILE, ERR_FILES },
    { EACCES, ERR_DENIED },
    { EPERM, ERR_PERM },
    { EROFS, ERR_READ_ONLY },
    { ENOENT, ERR_NOT_FOUND },
    { EEXIST, ERR_EXISTS },
    { ENOTDIR, ERR_NOT_DIR },
    { EISDIR, ERR_IS_DIR },
    { ENOTEMPTY, ERR_NOT_EMPTY },
    { ELOOP, ERR_LOOP },
    { EBUSY, ERR_BUSY },
    { EXDEV, ERR_CROSS_DEVICE },
    { ENAMETOOLONG, ERR_NAME_TOO_LONG },
    { EFBIG, ERR_TOO_LARGE },
    { EAGAIN, ERR_AGAIN },
    { EOPNOTSUPP, ERR_UNSUPPORTED },
    { ENOSYS, ERR_UNSUPPORTED },
};

static const struct row *
row_of(enum err_code code)
{
    return (unsigned)code < ERR_CODE_COUNT ? &rows[code] : &rows[ERR_INTERNAL];
}

static void
set_text(struct err *err, const char *text)
{
    text_escape(text, strlen(text), err->msg, sizeof(err->msg));
}

int
err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    char text[LIMIT_ERR_MSG]; /* not err->msg itself: it may be one of the arguments */
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
        text[0] = '\0';
    va_end(ap);
    err->code = code;
    err->sys = 0;
    set_text(err, text);
    return -1;
}

static enum err_code
code_from_errno(int sys)
{
    for (size_t i = 0; i < sizeof(from_errno) / sizeof(from_errno[0]); i++) {
        if (from_errno[i].sys == sys)
            return from_errno[i].code;
    }
    return ERR_IO;
}

int
err_sys(struct err *err, int sys, const char *fmt, ...)
{
    char text[LIMIT_ERR_MSG];
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
        text[0] = '\0';
    va_end(ap);
    const char *reason = strerrordesc_np(sys);
    if (reason)
        err_set(err, code_from_errno(sys), "%s: %s", text, reason);
    else
        err_set(err, code_from_errno(sys), "%s: error %d", text, sys);
    err->sys = sys;
    return -1;
}

int
err_wrap(struct err *err, const char *fmt, ...)
{
    char context[LIMIT_ERR_MSG];
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(context, sizeof(context), fmt, ap) < 0)
        context[0] = '\0';
    va_end(ap);
    char text[2 * LIMIT_ERR_MSG + 2];
    (void)snprintf(text, sizeof(text), "%s: %s", context, err->msg);
    set_text(err, text);
    return -1;
}

int
err_nomem(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory");
}

int
err_errno(enum err_code code)
{
    return row_of(code)->sys;
}

int
err_http(enum err_code code)
{
    return row_of(code)->http;
}

int
err_exit(enum err_code code)
{
    return row_of(code)->exit;
}

bool
err_retryable(enum err_code code)
{
    return row_of(code)->retryable;
}

const char *
err_slug(enum err_code code)
{
    return row_of(code)->slug;
}

enum err_code
err_from_slug(const char *slug)
{
    for (int i = 0; slug && i < ERR_CODE_COUNT; i++) {
        if (strcmp(rows[i].slug, slug) == 0)
            return (enum err_code)i;
    }
    return ERR_INTERNAL;
}
