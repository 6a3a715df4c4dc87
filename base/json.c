#include "base/json.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/parse.h"

/*
 * jansson 2.14 does not look at every failed allocation: its lexer then drops a character and goes on (load.c, lex_save), so
 * a document could silently change, and a string whose closing quote was dropped is read beyond its end. So each failure is
 * seen here, json_parse() discards what was made, and the lexer's buffer goes on in a reserve until jansson has given up.
 * That buffer doubles from 16 bytes; all else that is asked for meanwhile is refused, which ends the parsing.
 */
#define LEXER_LEAST 16u
static _Thread_local bool allocation_failed;
static pthread_mutex_t reserve_lock =
    PTHREAD_MUTEX_INITIALIZER; /* from the first failure to the end of json_parse() */
static _Alignas(
    max_align_t) char reserve[8u * LIMIT_JSON_DOC]; /* pages nobody touches cost nothing */
static size_t reserve_used;

static void *
from_reserve(size_t size)
{
    if (!allocation_failed)
        pthread_mutex_lock(&reserve_lock);
    allocation_failed = true;
    if (size < LEXER_LEAST || (size & (size - 1)) != 0 || size > sizeof(reserve) - reserve_used)
        return NULL;
    void *mem = reserve + reserve_used;
    reserve_used += size;
    return mem;
}

static void
reserve_release(void)
{
    reserve_used = 0;
    pthread_mutex_unlock(&reserve_lock);
}

static _Thread_local bool parsing;

static void *
watched_malloc(size_t size)
{
    void *mem = malloc(size);
    return mem || !parsing ? mem : from_reserve(size);
}

static void
watched_free(void *mem)
{
    uintptr_t at = (uintptr_t)mem;
    if (at < (uintptr_t)reserve || at >= (uintptr_t)reserve + sizeof(reserve))
        free(mem);
}

/* Before main(), because jansson reads the functions without a lock. */
__attribute__((constructor)) static void
watch_allocations(void)
{
    json_set_alloc_funcs(watched_malloc, watched_free);
}

void
json_release_ptr(json_t **value)
{
    json_decref(*value);
    *value = NULL;
}

json_t *
json_parse(const char *text, size_t len, struct err *err)
{
    if (len > LIMIT_JSON_DOC) {
        err_set(err, ERR_TOO_LARGE, "json document is longer than %u bytes", LIMIT_JSON_DOC);
        return NULL;
    }
    json_error_t why;
    allocation_failed = false;
    parsing = true;
    json_t *value = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    parsing = false;
    if (value && !allocation_failed)
        return value;
    json_decref(value);
    if (allocation_failed) {
        reserve_release();
        err_nomem(err);
    } else {
        err_set(err, ERR_INVAL, "json, line %d: %s", why.line, why.text);
    }
    return NULL;
}

struct print {
    struct buf *out;
    struct err *err;
    bool failed; /* err is set: the buffer could not grow */
};

static int
print_chunk(const char *text, size_t len, void *arg)
{
    struct print *print = arg;
    if (buf_append(print->out, text, len, print->err) == 0)
        return 0;
    print->failed = true;
    return -1;
}

int
json_print(const json_t *value, struct buf *out, struct err *err)
{
    struct print print = { .out = out, .err = err };
    size_t start = out->len;
    if (json_dump_callback(value, print_chunk, &print, JSON_COMPACT | JSON_ENCODE_ANY) == 0)
        return 0;
    buf_truncate(out, start);
    /* Besides our buffer only memory or a cyclic document can fail, and we build none. */
    return print.failed ? -1 : err_nomem(err);
}

/* The field, or NULL when it is absent or null. */
static int
find_field(const json_t *object, const char *field, json_t **out, struct err *err)
{
    if (!json_is_object(object))
        return err_set(err, ERR_INVAL, "json: an object with the field '%s' is needed", field);
    *out = json_object_get(object, field);
    if (json_is_null(*out))
        *out = NULL;
    return 0;
}

static int
missing(const char *field, struct err *err)
{
    return err_set(err, ERR_INVAL, "json: the field '%s' is missing", field);
}

static int
mistyped(const char *field, const char *type, struct err *err)
{
    return err_set(err, ERR_INVAL, "json: the field '%s' is not %s", field, type);
}

int
json_opt_str(const json_t *object, const char *field, const char **out, struct err *err)
{
    json_t *value = NULL;
    if (find_field(object, field, &value, err) < 0)
        return -1;
    if (!value)
        return 0;
    if (!json_is_string(value))
        return mistyped(field, "a string", err);
    *out = json_string_value(value);
    return 0;
}

int
json_opt_int(const json_t *object, const char *field, int64_t *out, struct err *err)
{
    json_t *value = NULL;
    if (find_field(object, field, &value, err) < 0)
        return -1;
    if (!value)
        return 0;
    if (!json_is_integer(value))
        return mistyped(field, "an integer", err);
    *out = json_integer_value(value);
    return 0;
}

int
json_opt_bool(const json_t *object, const char *field, bool *out, struct err *err)
{
    json_t *value = NULL;
    if (find_field(object, field, &value, err) < 0)
        return -1;
    if (!value)
        return 0;
    if (!json_is_boolean(value))
        return mistyped(field, "true or false", err);
    *out = json_is_true(value);
    return 0;
}

int
json_need_str(const json_t *object, const char *field, const char **out, struct err *err)
{
    const char *value = NULL;
    if (json_opt_str(object, field, &value, err) < 0)
        return -1;
    if (!value)
        return missing(field, err);
    *out = value;
    return 0;
}

int
json_need_int(const json_t *object, const char *field, int64_t *out, struct err *err)
{
    json_t *value = NULL;
    if (find_field(object, field, &value, err) < 0)
        return -1;
    return value ? json_opt_int(object, field, out, err) : missing(field, err);
}

json_t *
json_bytes(const void *data, size_t len)
{
    const char *in = data;
    struct err err =
        ERR_INIT; /* the caller learns of failure from NULL, which can only mean memory */
    scope_buf text;
    buf_init(&text, SIZE_MAX);
    while (len > 0) {
        size_t size = utf8_next(in, len);
        int rc = size > 0 ? buf_append(&text, in, size, &err)
                          : buf_append_str(&text, "\xef\xbf\xbd", &err);
        if (rc < 0)
            return NULL;
        size = size > 0 ? size : 1;
        in += size;
        len -= size;
    }
    return json_stringn(buf_cstr(&text), text.len);
}
