#include "s3/canonical.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/scope.h"

static int
append_encoded(const char *text, bool keep_slash, struct buf *out, struct err *err)
{
    return percent_encode(text, strlen(text), keep_slash, out, err);
}

int
canonical_path(const char *endpoint_path, const char *bucket, const char *key, struct buf *out,
               struct err *err)
{
    size_t len = strlen(endpoint_path);
    while (len > 0 && endpoint_path[len - 1] == '/')
        len--;
    if (percent_encode(endpoint_path, len, true, out, err) < 0)
        return -1;
    if (bucket &&
        (buf_append_str(out, "/", err) < 0 || append_encoded(bucket, false, out, err) < 0))
        return -1;
    /* A bucket in the path without a key has no slash behind it; in the host the path is "/". */
    if (!key)
        return bucket ? 0 : buf_append_str(out, "/", err);
    if (buf_append_str(out, "/", err) < 0)
        return -1;
    return append_encoded(key, true, out, err);
}

void
canonical_query_add(struct canonical_query *query, const char *name, const char *value)
{
    assert(query->count < CANONICAL_QUERY_MAX);
    query->param[query->count++] = (struct canonical_param){ .name = name, .value = value };
}

struct pair {
    char *name;
    char *value;
};

static int
compare_pairs(const void *a, const void *b)
{
    const struct pair *x = a;
    const struct pair *y = b;
    int by_name = strcmp(x->name, y->name);
    return by_name ? by_name : strcmp(x->value, y->value);
}

static char *
encoded(const char *text, struct err *err)
{
    scope_buf buf;
    buf_init(&buf, LIMIT_HTTP_HEADERS);
    if (append_encoded(text, false, &buf, err) < 0)
        return NULL;
    char *out = buf_steal(&buf);
    if (!out)
        err_nomem(err);
    return out;
}

static int
write_pairs(const struct pair *pair, size_t count, struct buf *out, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (buf_appendf(out, err, "%s%s=%s", i ? "&" : "", pair[i].name, pair[i].value) < 0)
            return -1;
    }
    return 0;
}

int
canonical_query_write(const struct canonical_query *query, struct buf *out, struct err *err)
{
    struct pair pair[CANONICAL_QUERY_MAX] = { { NULL, NULL } };
    int result = 0;
    for (size_t i = 0; i < query->count && result == 0; i++) {
        pair[i].name = encoded(query->param[i].name, err);
        pair[i].value = pair[i].name ? encoded(query->param[i].value, err) : NULL;
        result = pair[i].value ? 0 : -1;
    }
    if (result == 0) {
        qsort(pair, query->count, sizeof(pair[0]), compare_pairs);
        result = write_pairs(pair, query->count, out, err);
    }
    for (size_t i = 0; i < query->count; i++) {
        free(pair[i].name);
        free(pair[i].value);
    }
    return result;
}
