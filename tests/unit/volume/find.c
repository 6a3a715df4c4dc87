#include "volume/find.h"
#include "tests/unit/volume/volume_fixture.h"

/* Paths by a glob: each once, in order, page by page, whatever changes between the pages. */

struct collected {
    char text[8192];
    size_t count;
    unsigned stop_after; /* 0: never */
};

static int
collect(void *arg, const char *path, const struct volume_attr *attr, struct err *err)
{
    struct collected *all = arg;
    (void)err;
    if (all->stop_after != 0 && all->count == all->stop_after)
        return 1;
    size_t len = strlen(all->text);
    (void)snprintf(all->text + len, sizeof(all->text) - len, "%s%s ", path,
                   attr->kind == INDEX_DIR ? "/" : "");
    all->count++;
    return 0;
}

static struct volume_find_result
ask(const struct volume_find *want, struct collected *all)
{
    struct volume_find_result result = { .more = false };
    struct volume_find full = *want;
    full.volume = rig.volume;
    full.fn = collect;
    full.arg = all;
    full.folder = want->folder != NULL ? want->folder : "";
    full.after = want->after != NULL ? want->after : "";
    full.limit = want->limit != 0 ? want->limit : 1000;
    RUN_OK(rig.err, volume_find_paths(rig.service, &rig.ctx, &full, &result, &rig.err));
    return result;
}

static void
assert_found(const struct volume_find *want, const char *text)
{
    struct collected all = { .count = 0 };
    struct volume_find_result result = ask(want, &all);
    assert_string_equal(all.text, text);
    assert_false(result.more);
    assert_int_equal(result.unlisted, 0);
}

static void
plant(void)
{
    make_dir("a");
    make_dir("a/b");
    make_dir("a/empty");
    make_dir("a.d");
    save("a/b/x.csv", "12345");
    save("a/b/y.txt", "1");
    save("a/x.csv", "123");
    save("a.d/x.csv", "1");
    save("z.csv", "");
}

static void
finds_in_order_of_paths(void **state)
{
    (void)state;
    plant();
    assert_found(&(struct volume_find){ .glob = "**" },
                 "a/ a/b/ a/b/x.csv a/b/y.txt a/empty/ a/x.csv a.d/ a.d/x.csv z.csv ");
    assert_found(&(struct volume_find){ .glob = "*.csv" }, "a/b/x.csv a/x.csv a.d/x.csv z.csv ");
    assert_found(&(struct volume_find){ .glob = "*.csv", .folder = "a" }, "a/b/x.csv a/x.csv ");
    assert_found(&(struct volume_find){ .glob = "/*.csv", .folder = "a" }, "a/x.csv ");
    assert_found(&(struct volume_find){ .glob = "**", .kinds = VOLUME_FIND_DIRS },
                 "a/ a/b/ a/empty/ a.d/ ");
    assert_found(&(struct volume_find){ .glob = "a/*", .kinds = VOLUME_FIND_FILES }, "a/x.csv ");
    assert_found(&(struct volume_find){ .glob = "**", .by_size = true, .larger = 1 },
                 "a/b/x.csv a/x.csv ");
    assert_found(&(struct volume_find){ .glob = "no*" }, "");
    int64_t later = clock_wall_ns();
    clock_sleep_ns(20 * NS_PER_MS);
    save("a/b/new", "1");
    assert_found(
        &(struct volume_find){ .glob = "**", .kinds = VOLUME_FIND_FILES, .newer_ns = later },
        "a/b/new ");
}

/* Pages of every size give what one page gives, also where a page ends in a folder. */
static void
goes_on_where_it_stopped(void **state)
{
    (void)state;
    struct collected whole = { .count = 0 };
    plant();
    (void)ask(&(struct volume_find){ .glob = "**" }, &whole);
    for (unsigned limit = 1; limit <= whole.count + 1; limit++) {
        struct collected all = { .count = 0 };
        char after[LIMIT_PATH + 1] = "";
        bool more = true;
        for (unsigned pages = 0; more; pages++) {
            assert_true(pages <= whole.count);
            struct volume_find_result result =
                ask(&(struct volume_find){ .glob = "**", .after = after, .limit = limit }, &all);
            more = result.more;
            text_copy(after, sizeof(after), result.last);
        }
        assert_string_equal(all.text, whole.text);
    }
}

/* What the taker does not take comes with the next page. */
static void
loses_nothing_when_the_taker_stops(void **state)
{
    (void)state;
    struct collected whole = { .count = 0 }, all = { .stop_after = 3 };
    plant();
    (void)ask(&(struct volume_find){ .glob = "**" }, &whole);
    struct volume_find_result result = ask(&(struct volume_find){ .glob = "**" }, &all);
    assert_true(result.more && all.count == 3);
    all.stop_after = 0;
    result = ask(&(struct volume_find){ .glob = "**", .after = result.last }, &all);
    assert_false(result.more);
    assert_string_equal(all.text, whole.text);
}

static void
changes_between_pages_shift_nothing(void **state)
{
    (void)state;
    struct collected all = { .count = 0 };
    plant();
    struct volume_find_result result =
        ask(&(struct volume_find){ .glob = "*.csv", .limit = 2 }, &all);
    assert_true(result.more);
    assert_string_equal(result.last, "a/x.csv");
    save("a/a-new.csv", "before where it stands");
    save("a/y-new.csv", "behind it");
    unlink_at("a/x.csv");
    result = ask(&(struct volume_find){ .glob = "*.csv", .after = result.last }, &all);
    assert_string_equal(all.text, "a/b/x.csv a/x.csv a/y-new.csv a.d/x.csv z.csv ");
    assert_false(result.more);
}

/* Objects of others: no request is made for them, and that something may be missing is said. */
static void
says_what_nobody_has_looked_into(void **state)
{
    (void)state;
    struct collected all = { .count = 0 };
    int lists;
    foreign_put("foreign/deep/f.csv", "x");
    foreign_put("foreign/g.csv", "x");
    relist("");
    lists = atomic_load(&rig.hook->count[HOOK_LIST]);
    struct volume_find_result result =
        ask(&(struct volume_find){ .glob = "*.csv", .folder = "foreign" }, &all);
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_LIST]), lists);
    assert_int_equal(result.unlisted, 1);
    assert_string_equal(result.unlisted_path, "foreign");
    assert_string_equal(all.text, "");
    result = ask(&(struct volume_find){ .glob = "*.csv", .folder = "foreign", .list = true }, &all);
    assert_string_equal(all.text, "foreign/deep/f.csv foreign/g.csv ");
    assert_int_equal(result.unlisted, 0);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(finds_in_order_of_paths),
        T(goes_on_where_it_stopped),
        T(loses_nothing_when_the_taker_stops),
        T(changes_between_pages_shift_nothing),
        T(says_what_nobody_has_looked_into),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
