#include "versioning/identity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* md5("abc") and md5(""), RFC 1321 appendix A.5. */
#define MD5_ABC "900150983cd24fb0d6963f7d28e17f72"
#define MD5_ABC_UPPER "900150983CD24FB0D6963F7D28E17F72"
#define MD5_NONE "d41d8cd98f00b204e9800998ecf8427e"
#define ID_1 "01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define ID_2 "01ARZ3NDEKTSV4RRFFQ69G5FAW"
#define OPAQUE "686897696a7c876b7e-2" /* the form of a multipart ETag */

static void
etag_shapes(void **state)
{
    (void)state;
    assert_true(identity_etag_is_md5(MD5_ABC));
    assert_true(identity_etag_is_md5(MD5_ABC_UPPER));
    assert_false(identity_etag_is_md5(OPAQUE));
    assert_false(identity_etag_is_md5(""));
    assert_false(identity_etag_is_md5(MD5_ABC "0"));
    assert_false(identity_etag_is_md5("900150983cd24fb0d6963f7d28e17f7"));
    assert_false(identity_etag_is_md5("g00150983cd24fb0d6963f7d28e17f72"));
}

struct believed_case {
    const char *name;
    struct observed seen;
    const char *recorded;
    bool want;
};
static const struct believed_case believed_cases[] = {
    { "nothing there", { .present = false, .version = ID_1 }, NULL, false },
    { "no id", { .present = true, .etag = MD5_ABC, .size = 3 }, NULL, false },
    { "size and md5 agree",
      { .present = true,
        .etag = MD5_ABC,
        .size = 3,
        .version = ID_1,
        .has_version_size = true,
        .version_size = 3,
        .md5 = MD5_ABC },
      NULL,
      true },
    { "letters of either case",
      { .present = true,
        .etag = MD5_ABC_UPPER,
        .size = 3,
        .version = ID_1,
        .has_version_size = true,
        .version_size = 3,
        .md5 = MD5_ABC },
      "",
      true },
    { "rewritten by a client that keeps metadata, other bytes of the same size",
      { .present = true,
        .etag = MD5_NONE,
        .size = 3,
        .version = ID_1,
        .has_version_size = true,
        .version_size = 3,
        .md5 = MD5_ABC },
      NULL,
      false },
    { "rewritten with another size",
      { .present = true,
        .etag = OPAQUE,
        .size = 4,
        .version = ID_1,
        .has_version_size = true,
        .version_size = 3 },
      NULL,
      false },
    { "opaque ETag, size agrees",
      { .present = true,
        .etag = OPAQUE,
        .size = 3,
        .version = ID_1,
        .has_version_size = true,
        .version_size = 3 },
      NULL,
      true },
    { "no size in the metadata",
      { .present = true, .etag = OPAQUE, .size = 0, .version = ID_1 },
      NULL,
      false },
    { "an MD5-shaped ETag without md5 in the metadata",
      { .present = true,
        .etag = MD5_ABC,
        .size = 3,
        .version = ID_1,
        .has_version_size = true,
        .version_size = 3 },
      NULL,
      false },
    { "the recorded ETag decides (SSE-KMS: MD5-shaped and no MD5)",
      { .present = true,
        .etag = MD5_NONE,
        .size = 3,
        .version = ID_1,
        .has_version_size = true,
        .version_size = 3,
        .md5 = MD5_ABC },
      MD5_NONE,
      true },
    { "another recorded ETag says nothing",
      { .present = true,
        .etag = MD5_NONE,
        .size = 3,
        .version = ID_1,
        .has_version_size = true,
        .version_size = 3,
        .md5 = MD5_ABC },
      MD5_ABC,
      false },
};

static void
believed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(believed_cases) / sizeof(believed_cases[0]); i++) {
        const struct believed_case *c = &believed_cases[i];
        if (identity_believed(&c->seen, c->recorded) != c->want)
            fail_msg("%s: expected %d", c->name, c->want);
    }
}

struct landed_case {
    const char *name;
    struct observed seen;
    const char *md5;
    bool want;
};
/* The question is always: did version ID_1 of 3 bytes land? */
static const struct landed_case landed_cases[] = {
    { "absent", { .present = false }, MD5_ABC, false },
    { "landed", { .present = true, .etag = MD5_ABC, .size = 3, .version = ID_1 }, MD5_ABC, true },
    { "another version",
      { .present = true, .etag = MD5_ABC, .size = 3, .version = ID_2 },
      MD5_ABC,
      false },
    { "half of it",
      { .present = true, .etag = OPAQUE, .size = 2, .version = ID_1 },
      MD5_ABC,
      false },
    { "our id on other bytes of the same size",
      { .present = true, .etag = MD5_NONE, .size = 3, .version = ID_1 },
      MD5_ABC,
      false },
    { "opaque ETag, md5 in the metadata agrees",
      { .present = true, .etag = OPAQUE, .size = 3, .version = ID_1, .md5 = MD5_ABC },
      MD5_ABC,
      true },
    { "opaque ETag, md5 in the metadata differs",
      { .present = true, .etag = OPAQUE, .size = 3, .version = ID_1, .md5 = MD5_NONE },
      MD5_ABC,
      false },
    { "md5 not known: id and size decide",
      { .present = true, .etag = MD5_NONE, .size = 3, .version = ID_1 },
      "",
      true },
};

static void
landed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(landed_cases) / sizeof(landed_cases[0]); i++) {
        const struct landed_case *c = &landed_cases[i];
        if (identity_landed(&c->seen, ID_1, 3, c->md5) != c->want)
            fail_msg("%s: expected %d", c->name, c->want);
    }
    const struct observed no_id = { .present = true, .etag = OPAQUE, .size = 3 };
    assert_false(identity_landed(&no_id, "", 3, ""));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(etag_shapes),
        cmocka_unit_test(believed),
        cmocka_unit_test(landed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
