#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "base/scope.h"

static void
check_hex(const uint8_t *digest, size_t len, const char *want)
{
    char text[2 * SHA256_SIZE + 1];
    hex_encode(digest, len, text);
    assert_string_equal(text, want);
}

/* FIPS 180-4's examples (csrc.nist.gov, "Examples with Intermediate Values"). */
static void
test_sha256(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    };
    struct err err = ERR_INIT;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        uint8_t digest[SHA256_SIZE];
        assert_int_equal(sha256(pairs[i][0], strlen(pairs[i][0]), digest, &err), 0);
        check_hex(digest, SHA256_SIZE, pairs[i][1]);
    }
}

/* RFC 1321 A.5. */
static void
test_md5(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        { "", "d41d8cd98f00b204e9800998ecf8427e" },
        { "a", "0cc175b9c0f1b6a831c399e269772661" },
        { "message digest", "f96b697d7cb7938d525a2f31aaf161d0" },
        { "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
          "57edf4a22be3c955ac49da2e2107b67a" },
    };
    struct err err = ERR_INIT;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        uint8_t digest[MD5_SIZE];
        assert_int_equal(md5(pairs[i][0], strlen(pairs[i][0]), digest, &err), 0);
        check_hex(digest, MD5_SIZE, pairs[i][1]);
    }
}

static const char million_a[] = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

static void
test_streaming(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    uint8_t digest[SHA256_SIZE];
    char chunk[1000];
    memset(chunk, 'a', sizeof(chunk));
    struct hash *hash = hash_new(HASH_SHA256, &err);
    assert_non_null(hash);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(hash_update(hash, chunk, sizeof(chunk), &err), 0);
    assert_int_equal(hash_update(hash, NULL, 0, &err), 0);
    assert_int_equal(hash_final(hash, digest, &err), 0);
    check_hex(digest, SHA256_SIZE, million_a);

    hash = hash_new(HASH_MD5, &err);
    assert_non_null(hash);
    assert_int_equal(hash_update(hash, "message ", 8, &err), 0);
    assert_int_equal(hash_update(hash, "digest", 6, &err), 0);
    assert_int_equal(hash_final(hash, digest, &err), 0);
    check_hex(digest, MD5_SIZE, "f96b697d7cb7938d525a2f31aaf161d0");

    hash_free(hash_new(HASH_MD5, &err));
    hash_free(NULL);
}

/* RFC 4231, test cases 1, 2, 3, 6 and 7. */
static void
test_hmac(void **state)
{
    (void)state;
    char b0b[20], caa[131], ddd[50];
    memset(b0b, 0x0b, sizeof(b0b));
    memset(caa, 0xaa, sizeof(caa));
    memset(ddd, 0xdd, sizeof(ddd));
    static const char text6[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    static const char text7[] =
        "This is a test using a larger than block-size key and a larger than block-size data. "
        "The key needs to be hashed before being used by the HMAC algorithm.";
    const struct {
        const char *key;
        size_t key_len;
        const char *data;
        size_t len;
        const char *want;
    } cases[] = {
        { b0b, 20, "Hi There", 8,
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7" },
        { "Jefe", 4, "what do ya want for nothing?", 28,
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
        { caa, 20, ddd, 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe" },
        { caa, 131, text6, sizeof(text6) - 1,
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54" },
        { caa, 131, text7, sizeof(text7) - 1,
          "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2" },
    };
    struct err err = ERR_INIT;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t mac[SHA256_SIZE];
        assert_int_equal(
            hmac_sha256(cases[i].key, cases[i].key_len, cases[i].data, cases[i].len, mac, &err), 0);
        check_hex(mac, SHA256_SIZE, cases[i].want);
    }
}

/* RFC 3720 B.4; its CRCs are in the order of transmission, the least significant byte first. */
static void
test_crc32c(void **state)
{
    (void)state;
    uint8_t zeros[32] = { 0 }, ones[32], up[32], down[32];
    static const uint8_t read_pdu[48] = {
        0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02
    };
    memset(ones, 0xff, sizeof(ones));
    for (uint8_t i = 0; i < 32; i++) {
        up[i] = i;
        down[i] = (uint8_t)(31 - i);
    }
    const struct {
        const void *data;
        size_t len;
        uint32_t crc;
    } cases[] = {
        { zeros, 32, 0x8a9136aa },
        { ones, 32, 0x62a8ab43 },
        { up, 32, 0x46dd794e },
        { down, 32, 0x113fdb5c },
        { read_pdu, 48, 0xd9963a56 },
        { "123456789", 9, 0xe3069283 },
        { "", 0, 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(crc32c(0, cases[i].data, cases[i].len), cases[i].crc);
        assert_int_equal(crc32c_portable(0, cases[i].data, cases[i].len), cases[i].crc);
        for (size_t cut = 0; cut <= cases[i].len; cut++) {
            const char *data = cases[i].data;
            uint32_t half = crc32c(0, data, cut);
            assert_int_equal(crc32c(half, data + cut, cases[i].len - cut), cases[i].crc);
            half = crc32c_portable(0, data, cut);
            assert_int_equal(crc32c_portable(half, data + cut, cases[i].len - cut), cases[i].crc);
        }
    }
}

static int
temp_file(void)
{
    char path[] = "/tmp/holdfast-hash-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    return fd;
}

static void
test_fd(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    scope_fd int fd = temp_file();
    char chunk[1000];
    memset(chunk, 'a', sizeof(chunk));
    assert_int_equal(write(fd, "abc", 3), 3);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(write(fd, chunk, sizeof(chunk)), sizeof(chunk));
    assert_int_equal(hash_fd(fd, 0, 3, sha, md, &err), 0);
    check_hex(sha, SHA256_SIZE, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_hex(md, MD5_SIZE, "900150983cd24fb0d6963f7d28e17f72");
    assert_int_equal(hash_fd(fd, 3, 1000000, sha, NULL, &err), 0);
    check_hex(sha, SHA256_SIZE, million_a);
    assert_int_equal(hash_fd(fd, 0, 0, NULL, md, &err), 0);
    check_hex(md, MD5_SIZE, "d41d8cd98f00b204e9800998ecf8427e");
    assert_int_equal(hash_fd(fd, 4, 1000000, sha, md, &err), -1);
    assert_int_equal(err.code, ERR_IO);
    assert_int_equal(hash_fd(fd, UINT64_MAX, 2, sha, md, &err), -1);
    assert_int_equal(hash_fd(-1, 0, 1, sha, md, &err), -1);
}

static void
test_equal(void **state)
{
    (void)state;
    assert_int_equal(hash_equal("abcd", "abcd", 4), 1);
    assert_int_equal(hash_equal("abcd", "abce", 4), 0);
    assert_int_equal(hash_equal("abcd", "abce", 3), 1);
    assert_int_equal(hash_equal("", "", 0), 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),    cmocka_unit_test(test_md5),
        cmocka_unit_test(test_streaming), cmocka_unit_test(test_hmac),
        cmocka_unit_test(test_crc32c),    cmocka_unit_test(test_fd),
        cmocka_unit_test(test_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
