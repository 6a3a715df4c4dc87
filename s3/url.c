#include "s3/url.h"

#include <ctype.h>
#include <string.h>

#include "base/buf.h"
#include "base/parse.h"
#include "base/scope.h"

#define URL_MAX 8192

void
url_release(struct url *url)
{
    free(url->scheme);
    free(url->host);
    free(url->path);
    for (size_t i = 0; i < url->params; i++) {
        free(url->param[i].name);
        free(url->param[i].value);
    }
    *url = (struct url){ 0 };
}

/* NULL with an error that names `what` for a broken escape. */
static char *
decode(const char *text, size_t len, const char *what, struct err *err)
{
    scope_buf buf;
    char *out;

    buf_init(&buf, URL_MAX);
    if (percent_decode(text, len, &buf, err) < 0) {
        err_set(err, ERR_USAGE, "bad %%-escape in the %s of the store's URL", what);
        return NULL;
    }
    out = buf_steal(&buf);
    if (!out)
        err_nomem(err);
    return out;
}

/* Everything before the first ':' (RFC 3986 section 3.1). */
static int
take_scheme(const char **text, struct url *out, struct err *err)
{
    size_t len = strspn(*text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");

    if (len == 0 || (*text)[len] != ':' || !isalpha((unsigned char)**text))
        return err_set(err, ERR_USAGE,
                       "the store's URL has no scheme: use s3://bucket, file:///dir or mem:");
    out->scheme = strndup(*text, len);
    if (!out->scheme)
        return err_nomem(err);
    for (char *c = out->scheme; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    *text += len + 1;
    return 0;
}

static int
take_host(const char **text, struct url *out, struct err *err)
{
    const char *start = *text;
    size_t len = 0;

    if (strncmp(start, "//", 2) == 0) {
        start += 2;
        len = strcspn(start, "/?");
    }
    if (memchr(start, '@', len))
        return err_set(err, ERR_USAGE,
                       "the store's URL must not hold keys: use the environment or the "
                       "configuration file");
    out->host = decode(start, len, "host", err);
    *text = start + len;
    return out->host ? 0 : -1;
}

static int
take_path(const char **text, struct url *out, struct err *err)
{
    size_t len = strcspn(*text, "?");

    out->path = decode(*text, len, "path", err);
    *text += len;
    return out->path ? 0 : -1;
}

static int
take_param(const char *text, size_t len, struct url *out, struct err *err)
{
    const char *equals = memchr(text, '=', len);
    size_t name_len = equals ? (size_t)(equals - text) : len;
    struct url_param *param = &out->param[out->params];

    if (!equals || name_len == 0)
        return err_set(err, ERR_USAGE,
                       "the parameters of the store's URL must have the form name=value");
    if (out->params == URL_PARAMS)
        return err_set(err, ERR_USAGE, "more than %d parameters in the store's URL", URL_PARAMS);
    param->name = decode(text, name_len, "parameters", err);
    param->value = decode(equals + 1, len - name_len - 1, "parameters", err);
    if (!param->name || !param->value || url_param(out, param->name)) {
        if (param->name && param->value)
            err_set(err, ERR_USAGE, "parameter '%s' comes twice in the store's URL", param->name);
        free(param->name);
        free(param->value);
        *param = (struct url_param){ 0 };
        return -1;
    }
    out->params++;
    return 0;
}

static int
take_params(const char *text, struct url *out, struct err *err)
{
    if (*text != '?')
        return 0;
    for (text++; *text;) {
        size_t len = strcspn(text, "&");
        if (len > 0 && take_param(text, len, out, err) < 0)
            return -1;
        text += len;
        if (*text == '&')
            text++;
    }
    return 0;
}

int
url_parse(const char *text, struct url *out, struct err *err)
{
    *out = (struct url){ 0 };
    if (strlen(text) > URL_MAX)
        return err_set(err, ERR_USAGE, "the store's URL is longer than %d bytes", URL_MAX);
    if (strchr(text, '#'))
        return err_set(err, ERR_USAGE, "write '#' as %%23 in the store's URL");
    if (take_scheme(&text, out, err) < 0 || take_host(&text, out, err) < 0 ||
        take_path(&text, out, err) < 0 || take_params(text, out, err) < 0) {
        url_release(out);
        return -1;
    }
    return 0;
}

const char *
url_param(const struct url *url, const char *name)
{
    for (size_t i = 0; i < url->params; i++) {
        if (strcmp(url->param[i].name, name) == 0)
            return url->param[i].value;
    }
    return NULL;
}

static bool
is_known(const char *name, const char *const *known)
{
    for (; *known; known++) {
        if (strcmp(*known, name) == 0)
            return true;
    }
    return false;
}

int
url_check_params(const struct url *url, const char *const *known, struct err *err)
{
    scope_buf names;

    buf_init(&names, LIMIT_ERR_MSG);
    for (size_t i = 0; i < url->params; i++) {
        if (is_known(url->param[i].name, known))
            continue;
        for (const char *const *name = known; *name; name++) {
            if (buf_appendf(&names, err, "%s%s", name == known ? "" : ", ", *name) < 0)
                return -1;
        }
        return err_set(err, ERR_USAGE, "unknown parameter '%.60s' in the URL of a %s: store%s%s",
                       url->param[i].name, url->scheme, names.len ? "; known: " : "",
                       buf_cstr(&names));
    }
    return 0;
}
