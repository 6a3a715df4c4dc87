#include "base/hash.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/scope.h"
#include "base/sys.h"

#define READ_SIZE (256u << 10)
#define SHA256_BLOCK 64

struct hash {
    EVP_MD_CTX *ctx;
};

static int
hash_failed(struct err *err)
{
    return err_set(err, ERR_INTERNAL, "the hash library refused");
}

/* Fetched once: EVP_sha256() and its like are looked up anew at each use (EVP_MD_fetch(3), "Performance"). */
static const EVP_MD *fetched[2];
static pthread_once_t fetched_once = PTHREAD_ONCE_INIT;

static void
fetch_all(void)
{
    fetched[HASH_SHA256] = EVP_MD_fetch(NULL, "SHA256", NULL);
    fetched[HASH_MD5] = EVP_MD_fetch(NULL, "MD5", NULL);
}

static const EVP_MD *
kind_md(enum hash_kind kind)
{
    (void)pthread_once(&fetched_once, fetch_all);
    if (fetched[kind])
        return fetched[kind];
    return kind == HASH_SHA256 ? EVP_sha256() : EVP_md5();
}

struct hash *
hash_new(enum hash_kind kind, struct err *err)
{
    struct hash *hash = calloc(1, sizeof(*hash));
    if (!hash) {
        err_nomem(err);
        return NULL;
    }
    hash->ctx = EVP_MD_CTX_new();
    if (!hash->ctx) {
        err_nomem(err);
        goto fail;
    }
    if (EVP_DigestInit_ex(hash->ctx, kind_md(kind), NULL) != 1) {
        hash_failed(err);
        goto fail;
    }
    return hash;
fail:
    hash_free(hash);
    return NULL;
}

int
hash_update(struct hash *hash, const void *data, size_t len, struct err *err)
{
    if (len > 0 && EVP_DigestUpdate(hash->ctx, data, len) != 1)
        return hash_failed(err);
    return 0;
}

int
hash_final(struct hash *hash, uint8_t *out, struct err *err)
{
    int rc = EVP_DigestFinal_ex(hash->ctx, out, NULL) == 1 ? 0 : hash_failed(err);
    hash_free(hash);
    return rc;
}

int
hash_peek(const struct hash *hash, uint8_t *out, struct err *err)
{
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    if (!copy)
        return err_nomem(err);
    bool good =
        EVP_MD_CTX_copy_ex(copy, hash->ctx) == 1 && EVP_DigestFinal_ex(copy, out, NULL) == 1;
    EVP_MD_CTX_free(copy);
    return good ? 0 : hash_failed(err);
}

void
hash_free(struct hash *hash)
{
    if (!hash)
        return;
    EVP_MD_CTX_free(hash->ctx);
    free(hash);
}

static int
digest(enum hash_kind kind, const void *data, size_t len, uint8_t *out, struct err *err)
{
    return EVP_Digest(data, len, out, NULL, kind_md(kind), NULL) == 1 ? 0 : hash_failed(err);
}

int
sha256(const void *data, size_t len, uint8_t out[SHA256_SIZE], struct err *err)
{
    return digest(HASH_SHA256, data, len, out, err);
}

int
md5(const void *data, size_t len, uint8_t out[MD5_SIZE], struct err *err)
{
    return digest(HASH_MD5, data, len, out, err);
}

/* H(pad || text): each half of RFC 2104's construction. */
static int
padded_sha256(EVP_MD_CTX *ctx, const uint8_t *pad, const void *text, size_t len,
              uint8_t out[SHA256_SIZE])
{
    return EVP_DigestInit_ex(ctx, kind_md(HASH_SHA256), NULL) == 1 &&
                   EVP_DigestUpdate(ctx, pad, SHA256_BLOCK) == 1 &&
                   (len == 0 || EVP_DigestUpdate(ctx, text, len) == 1) &&
                   EVP_DigestFinal_ex(ctx, out, NULL) == 1
               ? 0
               : -1;
}

/* RFC 2104. By hand, since HMAC() fetches its algorithms anew at each use, which is most of its time for short texts. */
int
hmac_sha256(const void *key, size_t key_len, const void *data, size_t len, uint8_t out[SHA256_SIZE],
            struct err *err)
{
    uint8_t inner[SHA256_BLOCK] = { 0 };
    uint8_t outer[SHA256_BLOCK];
    uint8_t between[SHA256_SIZE];
    if (key_len > SHA256_BLOCK) {
        if (sha256(key, key_len, inner, err) < 0)
            return -1;
    } else if (key_len > 0) {
        memcpy(inner, key, key_len);
    }
    for (size_t i = 0; i < SHA256_BLOCK; i++) {
        outer[i] = inner[i] ^ 0x5c;
        inner[i] ^= 0x36;
    }
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool good = ctx && padded_sha256(ctx, inner, data, len, between) == 0 &&
                padded_sha256(ctx, outer, between, sizeof(between), out) == 0;
    EVP_MD_CTX_free(ctx);
    secret_wipe(inner, sizeof(inner));
    secret_wipe(outer, sizeof(outer));
    secret_wipe(between, sizeof(between));
    return good ? 0 : hash_failed(err);
}

static int
update_both(struct hash *a, struct hash *b, const void *data, size_t len, struct err *err)
{
    if (a && hash_update(a, data, len, err) < 0)
        return -1;
    return b ? hash_update(b, data, len, err) : 0;
}

static int
feed_fd(int fd, uint64_t off, uint64_t size, struct hash *a, struct hash *b, struct err *err)
{
    scope_free uint8_t *chunk = malloc(READ_SIZE);
    if (!chunk)
        return err_nomem(err);
    if (off > INT64_MAX || size > INT64_MAX - off)
        return err_set(err, ERR_RANGE, "range is too large");
    while (size > 0) {
        size_t want = size < READ_SIZE ? (size_t)size : READ_SIZE;
        ssize_t got = sys_read_full(fd, chunk, want, (off_t)off, err);
        if (got < 0)
            return -1;
        if ((size_t)got < want)
            return err_set(err, ERR_IO, "file ends %llu bytes early",
                           (unsigned long long)size - (size_t)got);
        if (update_both(a, b, chunk, want, err) < 0)
            return -1;
        off += want;
        size -= want;
    }
    return 0;
}

static int
finish(struct hash **hash, uint8_t *out, struct err *err)
{
    return *hash ? hash_final(steal(hash), out, err) : 0;
}

int
hash_fd(int fd, uint64_t off, uint64_t size, uint8_t *sha256_out, uint8_t *md5_out, struct err *err)
{
    struct hash *sha = NULL;
    struct hash *md = NULL;
    int rc = -1;
    if (sha256_out && !(sha = hash_new(HASH_SHA256, err)))
        goto done;
    if (md5_out && !(md = hash_new(HASH_MD5, err)))
        goto done;
    if (feed_fd(fd, off, size, sha, md, err) < 0)
        goto done;
    if (finish(&sha, sha256_out, err) == 0 && finish(&md, md5_out, err) == 0)
        rc = 0;
done:
    hash_free(sha);
    hash_free(md);
    return rc;
}

/* RFC 3720 B.4: polynomial 0x1edc6f41, here reflected. slice[k][b] is byte b followed by k zero
 * bytes. */
#define CRC32C_POLY 0x82f63b78u
static uint32_t slice[8][256];
static pthread_once_t slice_once = PTHREAD_ONCE_INIT;

static void
make_slices(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLY : 0);
        slice[0][b] = crc;
    }
    for (int k = 1; k < 8; k++) {
        for (uint32_t b = 0; b < 256; b++)
            slice[k][b] = slice[k - 1][b] >> 8 ^ slice[0][slice[k - 1][b] & 0xff];
    }
}

static uint32_t
slice_word(uint32_t crc, const uint8_t *in)
{
    uint32_t low = crc ^ ((uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 |
                          (uint32_t)in[3] << 24);
    return slice[7][low & 0xff] ^ slice[6][low >> 8 & 0xff] ^ slice[5][low >> 16 & 0xff] ^
           slice[4][low >> 24] ^ slice[3][in[4]] ^ slice[2][in[5]] ^ slice[1][in[6]] ^
           slice[0][in[7]];
}

uint32_t
crc32c_portable(uint32_t seed, const void *data, size_t len)
{
    const uint8_t *in = data;
    uint32_t crc = ~seed;
    pthread_once(&slice_once, make_slices);
    for (; len >= 8; len -= 8, in += 8)
        crc = slice_word(crc, in);
    for (; len > 0; len--, in++)
        crc = crc >> 8 ^ slice[0][(crc ^ *in) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t
crc32c_cpu(uint32_t seed, const void *data, size_t len)
{
    const uint8_t *in = data;
    uint64_t crc = ~seed;
    for (; len >= 8; len -= 8, in += 8) {
        uint64_t word;
        memcpy(&word, in, sizeof(word));
        crc = _mm_crc32_u64(crc, word);
    }
    for (; len > 0; len--, in++)
        crc = _mm_crc32_u8((uint32_t)crc, *in);
    return ~(uint32_t)crc;
}

uint32_t
crc32c(uint32_t seed, const void *data, size_t len)
{
    return __builtin_cpu_supports("sse4.2") ? crc32c_cpu(seed, data, len)
                                            : crc32c_portable(seed, data, len);
}
#else
uint32_t
crc32c(uint32_t seed, const void *data, size_t len)
{
    return crc32c_portable(seed, data, len);
}
#endif

int
hash_equal(const void *a, const void *b, size_t len)
{
    return CRYPTO_memcmp(a, b, len) == 0;
}
