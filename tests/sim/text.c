#include <string.h>

#include "sim.h"

/* Sizes are often equal though the bytes differ. */
uint32_t
size_of(uint32_t value)
{
    return value == EMPTY ? 0 : value % 3 + 1;
}

static void
hex8(uint32_t number, char *out)
{
    for (int i = 7; i >= 0; i--, number >>= 4)
        out[i] = "0123456789abcdef"[number & 15];
}

/* `size` - 9 zeros, eight digits: unique per number, and "" for 0. */
static void
text(uint32_t number, char *out, size_t size, char fill)
{
    memset(out, 0, size);
    if (number == 0)
        return;
    memset(out, fill, size - 9);
    hex8(number, out + size - 9);
}

void
text_version(uint32_t version, char out[ULID_SIZE])
{
    text(version, out, ULID_SIZE, '0');
}

void
text_md5(uint32_t value, char out[MD5_HEX])
{
    text(value, out, MD5_HEX, 'd');
}

void
text_sha256(uint32_t value, char out[SHA256_HEX])
{
    text(value, out, SHA256_HEX, 'a');
}

void
text_etag(const struct world *world, uint32_t etag, char out[LIMIT_ETAG])
{
    memset(out, 0, LIMIT_ETAG);
    if (world->md5_etags)
        text(etag, out, MD5_HEX, 'd');
    else
        text(etag, out, 12, 'o'); /* not MD5-shaped */
}

uint32_t
number_of(const char *text)
{
    uint32_t number = 0;
    size_t len = strlen(text);

    for (size_t i = len < 8 ? len : len - 8; i < len; i++) {
        char c = text[i];
        uint32_t digit = c <= '9' ? (uint32_t)(c - '0') : (uint32_t)(c - 'a' + 10);
        number = number << 4 | digit;
    }
    return number;
}
