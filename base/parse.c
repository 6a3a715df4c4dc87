#include "base/parse.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static int
hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool
checked_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

bool
checked_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

/* The one loop behind all unsigned numbers: `len` digits of `base`, at least one. */
static bool
parse_digits(const char *text, size_t len, unsigned base, uint64_t *out)
{
    uint64_t value = 0;
    if (len == 0)
        return false;
    for (size_t i = 0; i < len; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0 || (unsigned)digit >= base)
            return false;
        if (!checked_mul(value, base, &value) || !checked_add(value, (uint64_t)digit, &value))
            return false;
    }
    *out = value;
    return true;
}

bool
parse_u64_n(const char *text, size_t len, uint64_t *out)
{
    return parse_digits(text, len, 10, out);
}

bool
parse_u64(const char *text, uint64_t *out)
{
    return parse_digits(text, strlen(text), 10, out);
}

bool
parse_hex_u64(const char *text, uint64_t *out)
{
    return parse_digits(text, strlen(text), 16, out);
}

bool
parse_octal_u32(const char *text, uint32_t *out)
{
    uint64_t value;
    if (!parse_digits(text, strlen(text), 8, &value) || value > UINT32_MAX)
        return false;
    *out = (uint32_t)value;
    return true;
}

/* Gives a magnitude its sign; INT64_MIN has no positive counterpart. */
static bool
apply_sign(bool negative, uint64_t magnitude, int64_t *out)
{
    uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    if (magnitude > limit)
        return false;
    *out = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

bool
parse_i64(const char *text, int64_t *out)
{
    uint64_t magnitude;
    bool negative = text[0] == '-';
    return parse_u64(text + negative, &magnitude) && apply_sign(negative, magnitude, out);
}

bool
parse_bool(const char *text, bool *out)
{
    static const char *const words[][2] = {
        { "false", "true" }, { "no", "yes" }, { "off", "on" }, { "0", "1" }
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        for (int value = 0; value < 2; value++) {
            if (strcmp(text, words[i][value]) == 0) {
                *out = value;
                return true;
            }
        }
    }
    return false;
}

/* "", "B", "K", "KB", "KiB", ... → the power of 1024. */
static bool
size_unit(const char *unit, unsigned *shift)
{
    static const char letters[] = "KMGTPE";
    *shift = 0;
    if (strcmp(unit, "") == 0 || strcmp(unit, "B") == 0)
        return true;
    char letter = unit[0] == 'k' ? 'K' : unit[0];
    const char *at = strchr(letters, letter);
    if (!at || *at == '\0')
        return false;
    *shift = 10 * (unsigned)(at - letters + 1);
    return unit[1] == '\0' || strcmp(unit + 1, "B") == 0 || strcmp(unit + 1, "iB") == 0;
}

/* The digits after a dot, scaled to `places`; more digits are cut. */
static uint64_t
scale_fraction(const char *digits, size_t len, unsigned places)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < places; i++)
        value = value * 10 + (i < len ? (uint64_t)(digits[i] - '0') : 0);
    return value;
}

bool
parse_size(const char *text, uint64_t *bytes)
{
    size_t whole_len = strspn(text, "0123456789");
    const char *rest = text + whole_len;
    const char *fraction = rest;
    size_t fraction_len = 0;
    if (*rest == '.') {
        fraction = rest + 1;
        fraction_len = strspn(fraction, "0123456789");
        if (fraction_len == 0)
            return false;
        rest = fraction + fraction_len;
    }
    uint64_t whole;
    unsigned shift;
    if (!parse_u64_n(text, whole_len, &whole) || !size_unit(rest, &shift))
        return false;
    if (fraction_len > 0 && shift == 0)
        return false; /* there is no half byte */
    unsigned __int128 part = (unsigned __int128)scale_fraction(fraction, fraction_len, 9) << shift;
    return checked_mul(whole, 1ull << shift, &whole) &&
           checked_add(whole, (uint64_t)(part / 1000000000u), bytes);
}

bool
parse_duration(const char *text, int64_t *ns)
{
    static const struct {
        const char *unit;
        int64_t ns;
    } units[] = {
        { "", NS_PER_S },       { "s", NS_PER_S },           { "ms", NS_PER_MS },
        { "m", 60 * NS_PER_S }, { "h", 60 * 60 * NS_PER_S }, { "d", 24 * 60 * 60 * NS_PER_S }
    };
    size_t digits = strspn(text, "0123456789");
    uint64_t value;
    if (!parse_u64_n(text, digits, &value))
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(text + digits, units[i].unit) == 0)
            return checked_mul(value, (uint64_t)units[i].ns, &value) &&
                   apply_sign(false, value, ns);
    }
    return false;
}

bool
parse_decimal_seconds(const char *text, int64_t *ns)
{
    bool negative = text[0] == '-';
    const char *whole = text + negative;
    size_t whole_len = strspn(whole, "0123456789");
    const char *rest = whole + whole_len;
    uint64_t nanos = 0;
    if (*rest == '.') {
        size_t len = strspn(rest + 1, "0123456789");
        if (len == 0)
            return false;
        nanos = scale_fraction(rest + 1, len, 9);
        rest += 1 + len;
    }
    uint64_t value;
    return *rest == '\0' && parse_u64_n(whole, whole_len, &value) &&
           checked_mul(value, (uint64_t)NS_PER_S, &value) && checked_add(value, nanos, &value) &&
           apply_sign(negative, value, ns);
}

void
format_decimal_seconds(int64_t ns, char *out, size_t size)
{
    uint64_t magnitude = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    unsigned long long whole = magnitude / (uint64_t)NS_PER_S;
    unsigned long long nanos = magnitude % (uint64_t)NS_PER_S;
    const char *sign = ns < 0 ? "-" : "";
    if (nanos == 0)
        (void)snprintf(out, size, "%s%llu", sign, whole);
    else
        (void)snprintf(out, size, "%s%llu.%09llu", sign, whole, nanos);
}

void
hex_encode(const void *data, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *bytes = data;
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * len] = '\0';
}

bool
hex_decode(const char *text, size_t text_len, void *out, size_t len)
{
    uint8_t *bytes = out;
    if (text_len / 2 != len || text_len % 2 != 0)
        return false;
    for (size_t i = 0; i < text_len; i++) {
        if (hex_digit(text[i]) < 0)
            return false;
    }
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(hex_digit(text[2 * i]) * 16 + hex_digit(text[2 * i + 1]));
    return true;
}

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int
base64_encode(const void *data, size_t len, struct buf *out, struct err *err)
{
    const uint8_t *in = data;
    if (len > SIZE_MAX / 4)
        return err_set(err, ERR_TOO_LARGE, "too long for base64");
    size_t out_len = (len + 2) / 3 * 4;
    char *to = buf_reserve(out, out_len, err);
    if (!to)
        return -1;
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        uint32_t group = (uint32_t)in[i] << 16;
        if (left > 1)
            group |= (uint32_t)in[i + 1] << 8;
        if (left > 2)
            group |= in[i + 2];
        *to++ = base64_digits[group >> 18];
        *to++ = base64_digits[group >> 12 & 63];
        *to++ = left > 1 ? base64_digits[group >> 6 & 63] : '=';
        *to++ = left > 2 ? base64_digits[group & 63] : '=';
    }
    buf_commit(out, out_len);
    return 0;
}

static int
base64_value(char c)
{
    const char *at = c ? strchr(base64_digits, c) : NULL;
    return at ? (int)(at - base64_digits) : -1;
}

/* Four characters, of which the last `pad` are '=', to 3 - pad bytes. Bits that would be lost
 * must be zero. */
static bool
base64_group(const char *text, unsigned pad, uint8_t *out)
{
    uint32_t group = 0;
    for (unsigned i = 0; i < 4; i++) {
        int value = i < 4 - pad ? base64_value(text[i]) : 0;
        if (value < 0)
            return false;
        group = group << 6 | (uint32_t)value;
    }
    for (unsigned i = 0; i < 3; i++) {
        uint8_t byte = (uint8_t)(group >> (16 - 8 * i));
        if (i < 3 - pad)
            out[i] = byte;
        else if (byte != 0)
            return false;
    }
    return true;
}

int
base64_decode(const char *text, size_t text_len, struct buf *out, struct err *err)
{
    if (text_len % 4 != 0)
        return err_set(err, ERR_INVAL, "base64 of a length that is not a multiple of 4");
    unsigned pad = 0;
    while (pad < 2 && pad < text_len && text[text_len - 1 - pad] == '=')
        pad++;
    size_t out_len = text_len / 4 * 3 - pad;
    char *to = buf_reserve(out, out_len, err);
    if (!to)
        return -1;
    for (size_t i = 0; i < text_len; i += 4, to += 3) {
        if (!base64_group(text + i, i + 4 == text_len ? pad : 0, (uint8_t *)to)) {
            buf_truncate(out, out->len);
            return err_set(err, ERR_INVAL, "not base64");
        }
    }
    buf_commit(out, out_len);
    return 0;
}

static bool
is_unreserved(char c)
{
    return is_digit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr("-._~", c));
}

int
percent_encode(const void *data, size_t len, bool keep_slash, struct buf *out, struct err *err)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *in = data;
    size_t need = 0;
    for (size_t i = 0; i < len; i++) {
        bool plain = is_unreserved(in[i]) || (keep_slash && in[i] == '/');
        need += plain ? 1 : 3;
    }
    char *to = buf_reserve(out, need, err);
    if (!to)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (is_unreserved(in[i]) || (keep_slash && in[i] == '/')) {
            *to++ = in[i];
            continue;
        }
        *to++ = '%';
        *to++ = digits[(uint8_t)in[i] >> 4];
        *to++ = digits[(uint8_t)in[i] & 15];
    }
    buf_commit(out, need);
    return 0;
}

int
percent_decode(const char *text, size_t len, struct buf *out, struct err *err)
{
    size_t start = out->len;
    for (size_t i = 0; i < len; i++) {
        char byte = text[i];
        if (byte == '%') {
            uint8_t value;
            if (len - i < 3 || !hex_decode(text + i + 1, 2, &value, 1) || value == 0) {
                buf_truncate(out, start);
                return err_set(err, ERR_INVAL, "broken percent-escape");
            }
            byte = (char)value;
            i += 2;
        }
        if (buf_append(out, &byte, 1, err) < 0) {
            buf_truncate(out, start);
            return -1;
        }
    }
    return buf_append(out, "", 0, err);
}

size_t
utf8_next(const void *data, size_t len)
{
    /* Unicode 15.0, table 3-7: the second byte has a narrower range after some first bytes. */
    static const struct {
        uint8_t first_min, first_max, second_min, second_max, size;
    } forms[] = {
        { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
        { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 },
        { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };
    const uint8_t *in = data;
    if (len == 0)
        return 0;
    if (in[0] < 0x80)
        return 1;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (in[0] < forms[i].first_min || in[0] > forms[i].first_max)
            continue;
        if (len < forms[i].size || in[1] < forms[i].second_min || in[1] > forms[i].second_max)
            return 0;
        for (size_t k = 2; k < forms[i].size; k++) {
            if ((in[k] & 0xc0) != 0x80)
                return 0;
        }
        return forms[i].size;
    }
    return 0;
}

bool
utf8_valid(const void *data, size_t len)
{
    const uint8_t *in = data;
    while (len > 0) {
        size_t size = utf8_next(in, len);
        if (size == 0)
            return false;
        in += size;
        len -= size;
    }
    return true;
}

/* Length of the printable character that `in` starts with, 0 when its first byte needs an
 * escape. C1 controls are two bytes in UTF-8 and some terminals obey them. */
static size_t
printable_next(const uint8_t *in, size_t len)
{
    size_t size = utf8_next(in, len);
    if (size == 1 && (in[0] < 0x20 || in[0] == 0x7f))
        return 0;
    if (size == 2 && in[0] == 0xc2 && in[1] < 0xa0)
        return 0;
    return size;
}

size_t
text_escape(const void *data, size_t len, char *out, size_t size)
{
    const uint8_t *in = data;
    size_t used = 0;
    while (len > 0) {
        char escape[5];
        size_t taken = printable_next(in, len);
        const void *from = in;
        size_t add = taken;
        if (taken == 0) {
            (void)snprintf(escape, sizeof(escape), "\\x%02x", in[0]);
            from = escape;
            add = 4;
            taken = 1;
        }
        if (add >= size - used)
            break;
        memcpy(out + used, from, add);
        used += add;
        in += taken;
        len -= taken;
    }
    out[used] = '\0';
    return used;
}

int
printable_append(const void *data, size_t len, struct buf *out, struct err *err)
{
    const uint8_t *in = data;
    size_t start = out->len;
    while (len > 0) {
        size_t size = in[0] == '\\' ? 0 : printable_next(in, len);
        int rc =
            size > 0 ? buf_append(out, in, size, err) : buf_appendf(out, err, "\\x%02x", in[0]);
        if (rc < 0) {
            buf_truncate(out, start);
            return -1;
        }
        size = size > 0 ? size : 1;
        in += size;
        len -= size;
    }
    return buf_append(out, "", 0, err);
}
