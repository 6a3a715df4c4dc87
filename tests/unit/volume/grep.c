#include "volume/grep.h"
#include "tests/unit/volume/volume_fixture.h"

/* Many files by two threads: each line once and in order, in pages of any size; what is not here is counted, then fetched. */

#define FILES 60

static struct buf seen;

static int
take(void *arg, const struct volume_grep_line *line, struct err *err)
{
    (void)arg;
    return buf_appendf(&seen, err, "%s:%llu%c%.*s\n", line->path, (unsigned long long)line->line,
                       line->context ? '-' : ':', (int)line->len, line->text);
}

static struct volume_grep_result
grep(struct volume_grep want)
{
    struct volume_grep_result result;
    want.volume = rig.volume;
    want.folder = want.folder != NULL ? want.folder : "";
    want.after = want.after != NULL ? want.after : "";
    want.limit = want.limit != 0 ? want.limit : 10000;
    want.fn = take;
    RUN_OK(rig.err, volume_grep(rig.service, &rig.ctx, &want, &result, &rig.err));
    return result;
}

/* Files f00 to f59 with two lines each that have "hit"; what grep has to say of them. */
static void
plant(struct buf *wanted)
{
    buf_init(&seen, 1u << 20);
    buf_init(wanted, 1u << 20);
    for (unsigned i = 0; i < FILES; i++) {
        char name[16], text[128];
        (void)snprintf(name, sizeof(name), "f%02u", i);
        (void)snprintf(text, sizeof(text), "none\nhit %u\nnone\nanother hit\n", i);
        save(name, text);
        RUN_OK(rig.err,
               buf_appendf(wanted, &rig.err, "%s:2:hit %u\n%s:4:another hit\n", name, i, name));
    }
}

static void
finds_each_line_once(void **state)
{
    (void)state;
    scope_buf wanted;
    plant(&wanted);
    struct volume_grep_result result = grep((struct volume_grep){ .pattern = "hit" });
    assert_string_equal(buf_cstr(&seen), buf_cstr(&wanted));
    assert_int_equal(result.hits, 2 * FILES);
    assert_int_equal(result.searched, FILES);
    assert_false(result.more);
    for (unsigned limit = 1; limit <= 3 * FILES; limit = 2 * limit + 1) {
        char after[LIMIT_PATH + 1] = "";
        uint64_t line = 0;
        bool more = true;
        buf_clear(&seen);
        for (unsigned pages = 0; more; pages++) {
            assert_true(pages <= 2 * FILES);
            result = grep((struct volume_grep){
                .pattern = "hit", .limit = limit, .after = after, .after_line = line });
            text_copy(after, sizeof(after), result.last);
            line = result.last_line;
            more = result.more;
        }
        assert_string_equal(buf_cstr(&seen), buf_cstr(&wanted));
    }
    buf_release(&seen);
}

static void
fetches_what_it_may(void **state)
{
    (void)state;
    buf_init(&seen, 1u << 20);
    foreign_put("theirs.txt", "a hit\n");
    relist("");
    struct volume_grep_result result = grep((struct volume_grep){ .pattern = "hit" });
    assert_int_equal(result.hits, 0);
    assert_int_equal(result.absent.files, 1);
    assert_string_equal(result.absent.path, "theirs.txt");
    result = grep((struct volume_grep){ .pattern = "hit", .fetch = 100 });
    assert_int_equal(result.absent.files, 0);
    assert_string_equal(buf_cstr(&seen), "theirs.txt:1:a hit\n");
    /* From now on it is here; a change is seen at once, and the lines around it are told. */
    save("theirs.txt", "one\ntwo hit\nthree\nfour\n");
    buf_clear(&seen);
    result = grep((struct volume_grep){ .pattern = "hit", .context = 1, .folder = "theirs.txt" });
    assert_int_equal(result.hits, 1);
    assert_string_equal(buf_cstr(&seen),
                        "theirs.txt:1-one\ntheirs.txt:2:two hit\ntheirs.txt:3-three\n");
    buf_release(&seen);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = { T(finds_each_line_once), T(fetches_what_it_may) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
