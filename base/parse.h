#ifndef BASE_PARSE_H
#define BASE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Strict parsers and encoders: the whole text must match, no white space, no sign where none
 * belongs, overflow is an error. All pure. They answer false/-1 and leave the output untouched on
 * bad input.
 */
bool parse_u64(const char *text, uint64_t *out);
bool parse_u64_n(const char *text, size_t len, uint64_t *out);
bool parse_i64(const char *text, int64_t *out);
bool parse_hex_u64(const char *text, uint64_t *out);
bool parse_octal_u32(const char *text, uint32_t *out);
/* true/false, yes/no, on/off, 1/0 */
bool parse_bool(const char *text, bool *out);
/* "10", "4K", "4KiB", "1.5G", "2TB" (powers of 1024) → bytes */
bool parse_size(const char *text, uint64_t *bytes);
/* "90" and "90s" are seconds; also ms, m, h, d → nanoseconds */
bool parse_duration(const char *text, int64_t *ns);
/* Decimal seconds with an optional fraction of up to 9 digits kept (more are cut), may be
 * negative → nanoseconds. This is the form in which s3fs and rclone keep times in
 * x-amz-meta-mtime. */
bool parse_decimal_seconds(const char *text, int64_t *ns);
/* Into `out` (at least 32 bytes): "1700000000.123456789", without a fraction when it is 0. */
void format_decimal_seconds(int64_t ns, char *out, size_t size);

/* Adds, multiplies; false on overflow. */
bool checked_add(uint64_t a, uint64_t b, uint64_t *out);
bool checked_mul(uint64_t a, uint64_t b, uint64_t *out);

/* Lower-case hexadecimal; `out` holds 2*len+1. hex_decode wants exactly 2*len digits. */
void hex_encode(const void *data, size_t len, char *out);
bool hex_decode(const char *text, size_t text_len, void *out, size_t len);

/* Standard base64 with padding. */
int base64_encode(const void *data, size_t len, struct buf *out, struct err *err) MUST_CHECK;
int base64_decode(const char *text, size_t text_len, struct buf *out, struct err *err) MUST_CHECK;

/* RFC 3986 percent-encoding of every byte outside A-Z a-z 0-9 - . _ ~ ; '/' stays when
 * keep_slash. Upper-case digits. */
int percent_encode(const void *data, size_t len, bool keep_slash, struct buf *out,
                   struct err *err) MUST_CHECK;
/* Decodes %XX (any case); a broken escape or %00 is ERR_INVAL. '+' stays '+'. */
int percent_decode(const char *text, size_t len, struct buf *out, struct err *err) MUST_CHECK;

/* Valid UTF-8 without surrogates or overlong forms. */
bool utf8_valid(const void *data, size_t len);
/* Length (1 to 4) of the valid UTF-8 sequence that `data` starts with, 0 when there is none. */
size_t utf8_next(const void *data, size_t len);
/* Copies text into `out` with control characters (C0, DEL, C1) and invalid UTF-8 as \xNN;
 * backslashes stay, so escaping twice changes nothing. Cuts at a whole character when `out` is
 * full; always ends in NUL. Answers the length. */
size_t text_escape(const void *data, size_t len, char *out, size_t size);
/* A form safe to print on a terminal or in a log: control characters, invalid UTF-8 and
 * backslash as \xNN. */
int printable_append(const void *data, size_t len, struct buf *out, struct err *err) MUST_CHECK;

#endif
