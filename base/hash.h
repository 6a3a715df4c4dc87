#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Hashes on OpenSSL's EVP; crc32c (Castagnoli, RFC 3720 appendix B.4) is ours. Sizes in bytes. */
#define SHA256_SIZE 32
#define SHA256_HEX 65 /* digits and NUL */
#define MD5_SIZE 16
#define MD5_HEX 33

enum hash_kind { HASH_SHA256, HASH_MD5 };

/* Streaming; hash_final() frees, hash_free() is for giving up. */
struct hash;
struct hash *hash_new(enum hash_kind kind, struct err *err) MUST_CHECK;
int hash_update(struct hash *hash, const void *data, size_t len, struct err *err) MUST_CHECK;
int hash_final(struct hash *hash, uint8_t *out, struct err *err) MUST_CHECK;
/* The digest of what was given so far; the stream goes on. */
int hash_peek(const struct hash *hash, uint8_t *out, struct err *err) MUST_CHECK;
void hash_free(struct hash *hash);

int sha256(const void *data, size_t len, uint8_t out[SHA256_SIZE], struct err *err) MUST_CHECK;
int md5(const void *data, size_t len, uint8_t out[MD5_SIZE], struct err *err) MUST_CHECK;
int hmac_sha256(const void *key, size_t key_len, const void *data, size_t len,
                uint8_t out[SHA256_SIZE], struct err *err) MUST_CHECK;
/* Both digests of `size` bytes of `fd` from `off`, read with pread; fewer bytes there is ERR_IO.
 * Either may be NULL. */
int hash_fd(int fd, uint64_t off, uint64_t size, uint8_t *sha256_out, uint8_t *md5_out,
            struct err *err) MUST_CHECK;
/* Starts from seed 0; the answer is the seed for what follows. Uses the CPU's instruction where
 * there is one. */
uint32_t crc32c(uint32_t seed, const void *data, size_t len);
/* The same by table: for machines without the instruction, and for tests. */
uint32_t crc32c_portable(uint32_t seed, const void *data, size_t len);
/* 1 when equal, else 0, in constant time; for secrets. */
int hash_equal(const void *a, const void *b, size_t len);

#endif
