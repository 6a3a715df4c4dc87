#include "s3/open.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "s3/fault.h"
#include "s3/url.h"

static struct store *
open_mem(const struct store_open_args *args, const struct url *url, struct err *err)
{
    (void)args;
    if (*url->host || *url->path) {
        err_set(err, ERR_USAGE, "a store in memory has neither host nor path: use mem:");
        return NULL;
    }
    return mem_store_open(err);
}

static struct store *
open_file(const struct store_open_args *args, const struct url *url, struct err *err)
{
    (void)args;
    if ((*url->host && strcmp(url->host, "localhost") != 0) || url->path[0] != '/') {
        err_set(err, ERR_USAGE, "a file: store needs an absolute directory: use file:///directory");
        return NULL;
    }
    return file_store_open(url->path, err);
}

/* s3_store_open() takes the URL apart by itself: it knows what its parameters mean. */
static struct store *
open_s3(const struct store_open_args *args, const struct url *url, struct err *err)
{
    (void)url;
    return s3_store_open(args, err);
}

static const char *const no_params[] = { NULL };
static const struct scheme {
    const char *name;
    bool params;
    struct store *(*open)(const struct store_open_args *args, const struct url *url,
                          struct err *err);
} schemes[] = {
    { "mem", false, open_mem },
    { "file", false, open_file },
    { "s3", true, open_s3 },
};

static struct store *
open_parsed(const struct store_open_args *args, const struct url *url, struct err *err)
{
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        const struct scheme *scheme = &schemes[i];
        if (strcmp(scheme->name, url->scheme) != 0)
            continue;
        if (!scheme->params && url_check_params(url, no_params, err) < 0)
            return NULL;
        return scheme->open(args, url, err);
    }
    err_set(err, ERR_USAGE,
            "unknown kind of store '%.40s:': use s3://bucket, file:///dir or mem:", url->scheme);
    return NULL;
}

/* For the tests of whole programs; never in a default stack. Takes the store over. */
static struct store *
wrap_for_tests(struct store *store, struct err *err)
{
    const char *text = getenv("HOLDFAST_TEST_STORE_FAULT"); /* NOLINT(concurrency-mt-unsafe) */
    struct fault_plan plan;
    struct store *wrapped;

    if (!store || !text || !*text)
        return store;
    wrapped = fault_plan_parse(text, &plan, err) == 0 ? fault_store_wrap(store, &plan, err) : NULL;
    if (!wrapped) {
        store_free(store);
        return NULL;
    }
    log_warn(s3, "test faults are injected plan=%s", text);
    return wrapped;
}

/* The whole stack: the store of the scheme, and faults when a test asks for them. Retries and the trace are inside s3:,
 * the gate is in every call. */
struct store *
store_open(const struct store_open_args *args, struct err *err)
{
    struct url url;
    struct store *store;

    if (url_parse(args->url, &url, err) < 0)
        return NULL;
    store = open_parsed(args, &url, err);
    url_release(&url);
    return wrap_for_tests(store, err);
}
