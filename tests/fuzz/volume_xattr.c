#include "base/limits.h"
#include "tests/fuzz/fuzz.h"
#include "volume/xattr.h"

/* Extended attributes that another client wrote into metadata; the first byte says in which form. Then as bytes of the index. */

static unsigned
count(const struct buf *set)
{
    struct xattr_entry entry;
    size_t at = 0;
    unsigned found = 0;
    while (xattr_next(set, &at, &entry)) {
        HOLDS(strlen(entry.name) >= 1 && entry.value + entry.len <= set->data + set->len);
        found++;
    }
    return found;
}

static void
check_there_and_back(const struct buf *set)
{
    struct err err = ERR_INIT;
    struct xattr_meta meta;
    struct buf back;
    buf_init(&back, XATTR_SET_MAX);
    xattr_meta_init(&meta);
    HOLDS(xattr_encode(set, LIMIT_META_BYTES, LIMIT_META_BYTES, &meta, &err) == 0);
    HOLDS(meta.s3fs.len + meta.own.len <= LIMIT_META_BYTES);
    HOLDS(meta.s3fs.len == 0 || xattr_decode_s3fs(meta.s3fs.data, &back, &err) == 0);
    HOLDS(meta.own.len == 0 || xattr_decode_own(meta.own.data, &back, &err) == 0);
    HOLDS(count(&back) + meta.left == count(set));
    xattr_meta_release(&meta);
    buf_release(&back);
}

static void
check_bytes(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct buf set;
    buf_init(&set, XATTR_SET_MAX);
    if (size <= XATTR_SET_MAX && buf_append(&set, data, size, &err) == 0)
        (void)count(&set);
    buf_release(&set);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct buf set;
    if (size < 1)
        return 0;
    char *text = fuzz_text(data + 1, size - 1);
    buf_init(&set, XATTR_SET_MAX);
    int rc =
        data[0] % 2 == 0 ? xattr_decode_s3fs(text, &set, &err) : xattr_decode_own(text, &set, &err);
    if (rc == 0)
        check_there_and_back(&set);
    check_bytes(data + 1, size - 1);
    buf_release(&set);
    free(text);
    return 0;
}
