#include "s3/url.h"

#include "s3/rfc2047.h"
#include "tests/fuzz/fuzz.h"

static void
check_words(const char *text)
{
    struct err err = ERR_INIT;
    struct buf coded, back;
    buf_init(&coded, 1 << 16);
    buf_init(&back, 1 << 16);
    if (rfc2047_encode(text, &coded, &err) == 0) {
        for (size_t i = 0; i < coded.len; i++)
            HOLDS((unsigned char)coded.data[i] >= 0x20 && (unsigned char)coded.data[i] < 0x7f);
        if (rfc2047_decode(buf_cstr(&coded), &back, &err) == 0)
            HOLDS(strcmp(buf_cstr(&back), text) == 0);
    }
    buf_clear(&back);
    (void)!rfc2047_decode(text, &back, &err);
    buf_release(&coded);
    buf_release(&back);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct url url;
    char *text = fuzz_text(data, size);
    if (url_parse(text, &url, &err) == 0) {
        HOLDS(url.scheme && url.host && url.path && url.params <= URL_PARAMS);
        url_release(&url);
    }
    check_words(text);
    free(text);
    return 0;
}
