#include "base/parse.h"

#include "base/buf.h"
#include "base/clock.h"
#include "tests/fuzz/fuzz.h"

/* What was encoded decodes to the same bytes, and what decodes was clean. */
static void
check_percent(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct buf coded, back;
    buf_init(&coded, 3 * size + 1);
    buf_init(&back, 3 * size + 1);
    HOLDS(percent_encode(data, size, true, &coded, &err) == 0);
    bool has_nul = memchr(data, 0, size) != NULL;
    int rc = percent_decode(buf_cstr(&coded), coded.len, &back, &err);
    HOLDS((rc < 0) == has_nul);
    HOLDS(rc < 0 || (back.len == size && memcmp(buf_cstr(&back), data, size) == 0));
    buf_clear(&back);
    if (percent_decode((const char *)data, size, &back, &err) == 0)
        HOLDS(back.len <= size && (back.len == 0 || !memchr(back.data, 0, back.len) || has_nul));
    buf_release(&coded);
    buf_release(&back);
}

static void
check_base64(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct buf coded, back;
    buf_init(&coded, 2 * size + 8);
    buf_init(&back, 2 * size + 8);
    HOLDS(base64_encode(data, size, &coded, &err) == 0);
    HOLDS(base64_decode(buf_cstr(&coded), coded.len, &back, &err) == 0);
    HOLDS(back.len == size && memcmp(buf_cstr(&back), data, size) == 0);
    buf_clear(&back);
    (void)!base64_decode((const char *)data, size, &back, &err);
    buf_release(&coded);
    buf_release(&back);
}

static void
check_text(const uint8_t *data, size_t size)
{
    char once[256], twice[256];
    size_t len = text_escape(data, size, once, sizeof(once));
    HOLDS(len < sizeof(once) && strlen(once) == len && utf8_valid(once, len));
    HOLDS(text_escape(once, len, twice, sizeof(twice)) == len && strcmp(once, twice) == 0);
    for (size_t at = 0; at < size;) {
        size_t step = utf8_next(data + at, size - at);
        HOLDS(step <= 4 && step <= size - at);
        at += step == 0 ? 1 : step;
    }
}

static void
check_numbers(const char *text)
{
    uint64_t u;
    int64_t i;
    uint32_t octal;
    bool flag;
    char form[32];
    (void)parse_hex_u64(text, &u);
    (void)parse_octal_u32(text, &octal);
    (void)parse_bool(text, &flag);
    (void)parse_size(text, &u);
    (void)parse_duration(text, &i);
    (void)parse_i64(text, &i);
    if (parse_u64(text, &u))
        HOLDS(strspn(text, "0123456789") == strlen(text));
    if (parse_decimal_seconds(text, &i)) {
        int64_t again;
        format_decimal_seconds(i, form, sizeof(form));
        HOLDS(parse_decimal_seconds(form, &again) && again == i);
    }
}

/* Times that stores and clients send: what is understood is printed and understood again. */
static void
check_times(const char *text)
{
    int64_t wall, again;
    char form[TIME_RFC3339_SIZE];
    (void)time_parse_http(text, &wall);
    if (time_parse_rfc3339(text, &wall) == 0 && wall >= 0) {
        time_rfc3339(wall, form, sizeof(form));
        HOLDS(time_parse_rfc3339(form, &again) == 0 && again <= wall && wall - again < NS_PER_S);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    check_percent((const uint8_t *)text, size);
    check_base64((const uint8_t *)text, size);
    check_text((const uint8_t *)text, size);
    check_numbers(text);
    check_times(text);
    free(text);
    return 0;
}
