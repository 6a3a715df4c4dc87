#include "s3/store.h"

#include <string.h>

#include "base/buf.h"
#include "base/scope.h"

void
store_object_init(struct store_object *object)
{
    object->size = 0;
    object->etag[0] = '\0';
    object->last_modified_ns = 0;
    object->content_type[0] = '\0';
    meta_init(&object->meta);
}

void
store_object_release(struct store_object *object)
{
    meta_release(&object->meta);
    store_object_init(object);
}

void
store_end(struct store *store, int64_t deadline_ns)
{
    for (; store; store = store->next) {
        if (store->ops->end)
            store->ops->end(store, deadline_ns);
    }
}

void
store_free(struct store *store)
{
    while (store) {
        struct store *next = store->next;
        store->ops->free(store);
        store = next;
    }
}

void
store_free_ptr(struct store **store)
{
    store_free(*store);
}

static int
append_sink(void *arg, const void *data, size_t len, struct err *err)
{
    return buf_append(arg, data, len, err);
}

int /* NOLINTNEXTLINE(readability-function-size): store_get()'s parts, flat on purpose */
store_get_small(struct store *store, const char *key, size_t max, char **data, size_t *len,
                struct store_object *out, struct err *err)
{
    scope_buf buf;
    struct store_get req = { .key = key, .sink = append_sink, .sink_arg = &buf };
    char *text;
    size_t text_len;

    buf_init(&buf, max);
    if (store_get(store, &req, out, err) < 0)
        return -1;
    text_len = buf.len;
    text = buf_steal(&buf);
    if (!text)
        return err_nomem(err);
    *data = text;
    *len = text_len;
    return 0;
}

int /* NOLINTNEXTLINE(readability-function-size): store_put()'s parts, flat on purpose */
store_put_small(struct store *store, const char *key, const void *data, size_t len,
                struct store_cond cond, struct store_put_result *res, struct err *err)
{
    struct store_put req = {
        .key = key,
        .body = { .mem = data, .fd = -1, .size = len },
        .cond = cond,
    };

    return store_put(store, &req, res, err);
}
