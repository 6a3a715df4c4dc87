#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "s3/probe.h"

/* Rows of docs/stores.md as they were seen on the real servers. */

static const struct probe_seen good_store = {
    .create = 200,
    .create_again = 412,
    .kept_after_create_again = true,
    .wrong_match = 412,
    .kept_after_wrong_match = true,
    .match_quoted = 200,
    .parallel_won = 1,
    .parallel_lost = 2,
    .delete_wrong_match = 412,
    .kept_after_delete = true,
    .copy = 200,
    .copy_wrong_source = 412,
    .copy_to_existing = 412,
    .kept_after_copy = true,
    .listed = true,
    .name_kept = true,
    .bytes_asked = true,
    .bytes_kept = true,
    .long_meta = true,
    .presign_works = true,
};

static struct store_caps
conclude(struct probe_seen seen, const char *provider)
{
    struct store_caps caps;
    provider_caps(provider_find(provider), &caps);
    probe_conclude(&seen, provider_find(provider), &caps);
    return caps;
}

static void
everything_works(void **state)
{
    (void)state;
    struct store_caps caps = conclude(good_store, "generic");
    assert_int_equal(caps.put_if_absent, STORE_YES);
    assert_int_equal(caps.put_if_match, STORE_YES);
    assert_int_equal(caps.put_atomic, STORE_YES);
    assert_int_equal(caps.delete_if_match, STORE_YES);
    assert_int_equal(caps.copy_source_if_match, STORE_YES);
    assert_int_equal(caps.copy_dest_conditions, STORE_YES);
    assert_int_equal(caps.etag_quoted, STORE_YES);
    assert_int_equal(caps.list_consistent, STORE_YES);
    assert_int_equal(caps.presign, STORE_YES);
}

/* 429 to a second write of one key within a second, at a store of no known name. */
static void
one_write_per_second(void **state)
{
    (void)state;
    struct probe_seen seen = good_store;
    assert_int_equal(conclude(seen, "generic").min_write_interval_ns, 0);
    seen.slow_down = true;
    assert_int_equal(conclude(seen, "generic").min_write_interval_ns, 1000000000);
}

/* Names and listings: R2 composes names; its local server stores what is not UTF-8 under another name. */
static void
names_and_listings(void **state)
{
    (void)state;
    struct store_caps caps = conclude(good_store, "generic");
    assert_int_equal(caps.folds_names, STORE_NO);
    assert_int_equal(caps.any_bytes, STORE_YES);
    assert_int_equal(caps.long_meta, STORE_YES);
    struct probe_seen seen = good_store;
    seen.long_meta = false; /* Swift answers 500 for good */
    assert_int_equal(conclude(seen, "generic").long_meta, STORE_NO);
    seen.name_kept = seen.bytes_kept = seen.listed = false;
    caps = conclude(seen, "generic"); /* the writes failed: nothing is known of accents */
    assert_int_equal(caps.folds_names, STORE_NOT_PROBED);
    assert_int_equal(caps.any_bytes, STORE_NO);
    assert_int_equal(caps.list_consistent, STORE_NO);
    seen.bytes_asked = false;
    assert_int_equal(conclude(seen, "generic").any_bytes, STORE_NOT_PROBED);
    seen.name_folded = true;
    caps = conclude(seen, "generic");
    assert_int_equal(caps.folds_names, STORE_YES);
    caps = conclude(good_store, "r2"); /* the profile knows better than one look */
    assert_int_equal(caps.folds_names, STORE_YES);
}

/* Ceph RGW 16.2: only the bare ETag, deletes and copies without conditions. */
static void
ceph(void **state)
{
    (void)state;
    struct probe_seen seen = good_store;
    seen.match_quoted = 412;
    seen.match_bare = 200;
    seen.delete_wrong_match = 204;
    seen.kept_after_delete = false;
    seen.copy_wrong_source = 200;
    seen.copy_to_existing = 200;
    seen.kept_after_copy = false;
    struct store_caps caps = conclude(seen, "generic");
    assert_int_equal(caps.put_if_match, STORE_YES);
    assert_int_equal(caps.etag_quoted, STORE_NO);
    assert_int_equal(caps.delete_if_match, STORE_NO);
    assert_int_equal(caps.copy_source_if_match, STORE_NO);
    assert_int_equal(caps.copy_dest_conditions, STORE_NO);
    assert_int_equal(caps.server_side_copy, STORE_YES);
}

/* B102, B209: INV-3: 200 and overwritten, in spite of the condition. */
static void
ignores_conditions(void **state)
{
    (void)state;
    struct probe_seen seen = good_store;
    seen.create_again = 200;
    seen.kept_after_create_again = false;
    seen.wrong_match = 200;
    seen.kept_after_wrong_match = false;
    seen.parallel_won = 3;
    seen.parallel_lost = 0;
    struct store_caps caps = conclude(seen, "generic");
    assert_int_equal(caps.put_if_absent, STORE_NO);
    assert_int_equal(caps.put_if_match, STORE_NO);
    assert_int_equal(caps.put_atomic, STORE_NO);
}

/* B101: a 412 that overwrites all the same, a refusal of every condition, and two winners. */
static void
half_truths(void **state)
{
    (void)state;
    struct probe_seen seen = good_store;
    seen.kept_after_create_again = false;
    assert_int_equal(conclude(seen, "generic").put_if_absent, STORE_NO);
    seen = good_store;
    seen.match_quoted = 412;
    seen.match_bare = 412; /* RGW with versioning */
    assert_int_equal(conclude(seen, "generic").put_if_match, STORE_NO);
    assert_int_equal(conclude(seen, "generic").etag_quoted, STORE_NOT_PROBED);
    seen = good_store;
    seen.parallel_won = 2;
    seen.parallel_lost = 1;
    assert_int_equal(conclude(seen, "generic").put_atomic, STORE_NO);
    seen = good_store;
    seen.create = 501; /* Swift, Backblaze */
    seen.create_again = 501;
    seen.wrong_match = 501;
    seen.parallel_won = 0;
    seen.parallel_lost = 3;
    assert_int_equal(conclude(seen, "generic").put_if_absent, STORE_NO);
    assert_int_equal(conclude(seen, "generic").put_atomic, STORE_NO);
}

static struct probe_seen
good_parts(void)
{
    struct probe_seen seen = good_store;
    seen.complete_absent = 200;
    seen.kept_parts = true;
    seen.complete_again = seen.complete_wrong_match = 412;
    seen.kept_after_complete_again = seen.kept_after_complete_match = true;
    seen.complete_match = 200;
    seen.upload_listed = seen.part_copied = seen.deleted_many = true;
    return seen;
}

/* B201, B208, B209: what the completion judges is asked apart from what PUT judges. */
static void
parts(void **state)
{
    (void)state;
    struct store_caps caps = conclude(good_parts(), "generic");
    assert_int_equal(caps.multipart, STORE_YES);
    assert_int_equal(caps.complete_if_absent, STORE_YES);
    assert_int_equal(caps.complete_if_match, STORE_YES);
    assert_int_equal(caps.copy_parts, STORE_YES);
    assert_int_equal(caps.copy_parts_decodes_twice, STORE_NO);
    assert_int_equal(caps.list_uploads, STORE_YES);
    assert_int_equal(caps.delete_many, STORE_YES);
    struct probe_seen seen = good_parts();
    seen.complete_again = 200; /* overwrites, as RGW does */
    seen.complete_wrong_match = 200;
    seen.kept_after_complete_again = seen.kept_after_complete_match = false;
    seen.part_copied = false;
    seen.part_copied_twice = true;
    caps = conclude(seen, "generic");
    assert_int_equal(caps.multipart, STORE_YES);
    assert_int_equal(caps.complete_if_absent, STORE_NO);
    assert_int_equal(caps.complete_if_match, STORE_NO);
    assert_int_equal(caps.copy_parts, STORE_YES);
    assert_int_equal(caps.copy_parts_decodes_twice, STORE_YES);
    seen = good_parts();
    seen.kept_after_complete_again = false; /* 412, and overwrites all the same */
    seen.complete_match = 412;              /* refuses every condition, as Swift does */
    caps = conclude(seen, "generic");
    assert_int_equal(caps.complete_if_absent, STORE_NO);
    assert_int_equal(caps.complete_if_match, STORE_NO);
    seen = good_parts();
    seen.complete_absent = 412;
    seen.complete = 200;
    caps = conclude(seen, "generic");
    assert_int_equal(caps.multipart, STORE_YES);
    assert_int_equal(caps.complete_if_absent, STORE_NO);
    seen.kept_parts = false; /* a 200, and the object is not there */
    caps = conclude(seen, "generic");
    assert_int_equal(caps.multipart, STORE_NO);
    assert_int_equal(caps.copy_parts, STORE_NO);
}

static void
profile_leads(void **state)
{
    (void)state;
    struct store_caps caps = conclude(good_store, "wasabi");
    assert_int_equal(caps.put_if_absent, STORE_NO);
    assert_int_equal(caps.put_if_match, STORE_NO);
    caps = conclude(good_store, "r2");
    assert_int_equal(caps.put_if_absent, STORE_YES);
    assert_int_equal(caps.delete_if_match, STORE_NO);
    assert_int_equal(caps.folds_names, STORE_YES);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_works),
        cmocka_unit_test(names_and_listings),
        cmocka_unit_test(one_write_per_second),
        cmocka_unit_test(ceph),
        cmocka_unit_test(ignores_conditions),
        cmocka_unit_test(half_truths),
        cmocka_unit_test(parts),
        cmocka_unit_test(profile_leads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
