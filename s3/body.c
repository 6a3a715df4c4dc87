#include "s3/body.h"

#include <string.h>

#include "base/sys.h"

int
body_read(const struct store_body *body, uint64_t off, void *out, size_t len, struct err *err)
{
    ssize_t got;

    if (len == 0)
        return 0;
    if (body->mem) {
        memcpy(out, (const char *)body->mem + off, len);
        return 0;
    }
    got = sys_read_full(body->fd, out, len, (off_t)(body->off + off), err);
    if (got < 0)
        return -1;
    if ((size_t)got < len)
        return err_set(err, ERR_IO, "the file to send ends %zu bytes too early", len - (size_t)got);
    return 0;
}

int
body_verify(const struct store_body *body, const char *key, const uint8_t *md5,
            const uint8_t *sha256, struct err *err)
{
    if (body->md5 && memcmp(body->md5, md5, MD5_SIZE) != 0)
        return err_set(err, ERR_CORRUPT, "bytes for '%.200s' do not have the stated MD5", key);
    if (body->sha256 && memcmp(body->sha256, sha256, SHA256_SIZE) != 0)
        return err_set(err, ERR_CORRUPT, "bytes for '%.200s' do not have the stated SHA-256", key);
    return 0;
}
