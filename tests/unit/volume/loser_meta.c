/* What a loser's object says of its conflict comes back as it went in, within what the strictest stores take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/text.h"
#include "volume/loser_meta.h"

static void
round_trip(const struct index_conflict *row, struct index_conflict *out, size_t *longest,
           size_t *all)
{
    struct err err = ERR_INIT;
    struct meta meta;
    meta_init(&meta);
    assert_int_equal(meta_set(&meta, "holdfast-version", row->mine_version, &err), 0);
    assert_int_equal(meta_set(&meta, "holdfast-base", row->base_version, &err), 0);
    assert_int_equal(meta_set(&meta, "holdfast-run", row->run, &err), 0);
    assert_int_equal(loser_meta_add(row, &meta, &err), 0);
    *longest = *all = 0;
    for (size_t i = 0; i < meta.count; i++) {
        size_t len = strlen(meta.entry[i].value);
        *all += len + strlen(meta.entry[i].name);
        if (len > *longest)
            *longest = len;
        for (size_t at = 0; at < len; at++)
            assert_in_range((unsigned char)meta.entry[i].value[at], 0x20, 0x7e);
    }
    memset(out, 0, sizeof(*out));
    assert_int_equal(loser_meta_read(&meta, out, &err), 0);
    meta_release(&meta);
}

static void
fill(struct index_conflict *row)
{
    memset(row, 0, sizeof(*row));
    text_set(row->reason, "deleted");
    text_set(row->mine_version, "01ARZ3NDEKTSV4RRFFQ69G5FAV");
    text_set(row->base_version, "01ARZ3NDEKTSV4RRFFQ69G5FAW");
    text_set(row->theirs_etag, "d41d8cd98f00b204e9800998ecf8427e");
    text_set(row->actor, "mount of \xc3\xa4lice");
    text_set(row->run, "run 100%");
}

static void
test_all_members(void **state)
{
    (void)state;
    struct index_conflict row, out;
    size_t longest, all;
    fill(&row);
    text_set(row.path, "a folder/100% \xff\x01\n\xc3\xa4");
    round_trip(&row, &out, &longest, &all);
    assert_memory_equal(&row, &out, sizeof(row));
    memset(row.theirs_etag, 0, sizeof(row.theirs_etag));
    text_set(row.theirs_version, "01ARZ3NDEKTSV4RRFFQ69G5FAX");
    round_trip(&row, &out, &longest, &all);
    assert_memory_equal(&row, &out, sizeof(row));
}

/* Every length and every byte of a path: no value over 240 bytes; a shortened path is the beginning of the whole one. */
static void
test_paths_of_any_length(void **state)
{
    (void)state;
    struct index_conflict row, out;
    size_t longest, all;
    fill(&row);
    for (size_t len = 1; len <= LIMIT_PATH; len += len < 64 ? 1 : 37) {
        for (size_t i = 0; i < len; i++)
            row.path[i] = (char)(1 + (i * 7 + len) % 255);
        row.path[len] = '\0';
        round_trip(&row, &out, &longest, &all);
        assert_in_range(longest, 1, 256);
        assert_in_range(all, 1, 2048);
        size_t got = strlen(out.path);
        assert_memory_equal(out.path, row.path, got);
        if (len <= 900)
            assert_int_equal(got, len);
        else
            assert_in_range(got, 900, len);
    }
}

/* What a stranger wrote there is not believed further than it goes. */
static void
test_nonsense(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct meta meta;
    struct index_conflict out;
    char text[1200];
    meta_init(&meta);
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(meta_set(&meta, "holdfast-reason", text, &err), 0);
    assert_int_equal(meta_set(&meta, "holdfast-path", "%zz", &err), 0);
    assert_int_equal(meta_set(&meta, "holdfast-path64-1", "!!!!", &err), 0);
    assert_int_equal(meta_set(&meta, "holdfast-theirs", "%00", &err), 0);
    memset(&out, 0, sizeof(out));
    assert_int_equal(loser_meta_read(&meta, &out, &err), 0);
    assert_string_equal(out.reason, "");
    assert_string_equal(out.path, "");
    assert_string_equal(out.theirs_etag, "");
    meta_release(&meta);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_members),
        cmocka_unit_test(test_paths_of_any_length),
        cmocka_unit_test(test_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
