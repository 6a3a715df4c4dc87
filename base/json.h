#ifndef BASE_JSON_H
#define BASE_JSON_H

/* The only place that includes jansson; documents are jansson's json_t, read and built through
 * these helpers where a strict answer or an error text is wanted. json_decref via scope_json. */
#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

#define scope_json scope(json_release_ptr) json_t
void json_release_ptr(json_t **value);

/* Parses one document of at most LIMIT_JSON_DOC bytes; duplicates keys are refused. NULL on
 * error. */
json_t *json_parse(const char *text, size_t len, struct err *err) MUST_CHECK;
/* Compact, keys in insertion order. */
int json_print(const json_t *value, struct buf *out, struct err *err) MUST_CHECK;

/* Fields of an object, strictly typed: a missing or mistyped required field is ERR_INVAL naming
 * the field. */
int json_need_str(const json_t *object, const char *field, const char **out,
                  struct err *err) MUST_CHECK;
int json_need_int(const json_t *object, const char *field, int64_t *out,
                  struct err *err) MUST_CHECK;
/* Optional: answers 0 and leaves *out when the field is absent or null. */
int json_opt_str(const json_t *object, const char *field, const char **out,
                 struct err *err) MUST_CHECK;
int json_opt_int(const json_t *object, const char *field, int64_t *out, struct err *err) MUST_CHECK;
int json_opt_bool(const json_t *object, const char *field, bool *out, struct err *err) MUST_CHECK;
/* A string from bytes that may not be UTF-8: invalid bytes become U+FFFD, and the caller adds a
 * `name_hex` field. */
json_t *json_bytes(const void *data, size_t len);

#endif
