#include "versioning/content.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LIMIT 100u
#define WHOLE ((unsigned)CONTENT_COMPLETE)

struct open_case {
    const char *name;
    struct content_view view;
    bool truncate;
    enum content_open want;
};
static const struct open_case open_cases[] = {
    { "nothing local, O_TRUNC", { .size = 9 }, true, CONTENT_OPEN_NEW_EMPTY },
    { "nothing local, empty", { .size = 0 }, false, CONTENT_OPEN_NEW_EMPTY },
    { "nothing local", { .size = 9 }, false, CONTENT_OPEN_FETCH_FIRST },
    { "LIVE is joined",
      { .exists = true, .state = CONTENT_LIVE, .other_writers = true },
      false,
      CONTENT_OPEN_JOIN },
    { "LIVE is joined, and cut in place for its other writers",
      { .exists = true, .state = CONTENT_LIVE, .other_writers = true },
      true,
      CONTENT_OPEN_JOIN },
    { "LIVE that nobody writes: O_TRUNC begins anew, so that a kill leaves old or new",
      { .exists = true, .state = CONTENT_LIVE },
      true,
      CONTENT_OPEN_NEW_EMPTY },
    { "(a) CLEAN, O_TRUNC",
      { .exists = true, .state = CONTENT_CLEAN, .flags = WHOLE, .size = 9 },
      true,
      CONTENT_OPEN_NEW_EMPTY },
    { "(a) CLEAN, small",
      { .exists = true, .state = CONTENT_CLEAN, .flags = WHOLE, .size = LIMIT },
      false,
      CONTENT_OPEN_NEW_COPY },
    { "(b) CLEAN, large",
      { .exists = true, .state = CONTENT_CLEAN, .flags = WHOLE, .size = LIMIT + 1 },
      false,
      CONTENT_OPEN_IN_PLACE },
    { "(b) CLEAN, small, readers hold it",
      { .exists = true, .state = CONTENT_CLEAN, .flags = WHOLE, .size = 9, .backing_lent = true },
      false,
      CONTENT_OPEN_IN_PLACE },
    { "CLEAN, partly local",
      { .exists = true, .state = CONTENT_CLEAN, .size = 9 },
      false,
      CONTENT_OPEN_FETCH_FIRST },
    { "CLEAN, partly local, O_TRUNC needs no bytes",
      { .exists = true, .state = CONTENT_CLEAN, .size = 9 },
      true,
      CONTENT_OPEN_NEW_EMPTY },
    { "CLEAN, large, pinned",
      { .exists = true, .state = CONTENT_CLEAN, .flags = WHOLE | CONTENT_PINNED, .size = LIMIT + 1 },
      false,
      CONTENT_OPEN_NEW_COPY },
    { "CLEAN, large, being sent again",
      { .exists = true,
        .state = CONTENT_CLEAN,
        .flags = WHOLE,
        .size = LIMIT + 1,
        .attempt_sent = true },
      false,
      CONTENT_OPEN_NEW_COPY },
    { "CLEAN, pinned, lent",
      { .exists = true,
        .state = CONTENT_CLEAN,
        .flags = WHOLE | CONTENT_PINNED,
        .size = 9,
        .backing_lent = true },
      false,
      CONTENT_OPEN_ASIDE_IN_PLACE },
    { "(a) FROZEN, O_TRUNC",
      { .exists = true, .state = CONTENT_FROZEN, .flags = WHOLE },
      true,
      CONTENT_OPEN_NEW_EMPTY },
    { "(c) FROZEN, no attempt",
      { .exists = true, .state = CONTENT_FROZEN, .flags = WHOLE },
      false,
      CONTENT_OPEN_THAW },
    { "(c) FROZEN, no attempt, lent",
      { .exists = true, .state = CONTENT_FROZEN, .flags = WHOLE, .backing_lent = true },
      false,
      CONTENT_OPEN_THAW },
    { "(d) FROZEN, sent",
      { .exists = true, .state = CONTENT_FROZEN, .flags = WHOLE, .attempt_sent = true },
      false,
      CONTENT_OPEN_NEW_COPY },
    { "(d) FROZEN, pinned",
      { .exists = true, .state = CONTENT_FROZEN, .flags = WHOLE | CONTENT_PINNED },
      false,
      CONTENT_OPEN_NEW_COPY },
    { "(d) FROZEN, sent, lent",
      { .exists = true,
        .state = CONTENT_FROZEN,
        .flags = WHOLE,
        .attempt_sent = true,
        .backing_lent = true },
      false,
      CONTENT_OPEN_ASIDE_IN_PLACE },
};

static void
open_for_writing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(open_cases) / sizeof(open_cases[0]); i++) {
        const struct open_case *c = &open_cases[i];
        enum content_open got = content_open_for_writing(&c->view, c->truncate, LIMIT);
        if (got != c->want)
            fail_msg("%s: expected %d, got %d", c->name, (int)c->want, (int)got);
    }
}

/* INV-7, over every view that there is. */
static void
staged_bytes_are_never_evicted(void **state)
{
    (void)state;
    unsigned may = 0;
    for (unsigned bits = 0; bits < 1u << 9; bits++) {
        for (int s = CONTENT_CLEAN; s <= CONTENT_FROZEN; s++) {
            const struct content_view view = {
                .exists = true,
                .state = (enum content_state)s,
                .flags = bits & 31u,
                .attempt_sent = (bits & 32u) != 0,
                .backing_lent = (bits & 64u) != 0,
                .other_writers = (bits & 128u) != 0,
                .size = (bits & 256u) != 0 ? LIMIT : 0,
            };
            bool wanted = s == CONTENT_CLEAN && (bits & CONTENT_PINNED) == 0 && (bits & 32u) == 0;
            assert_int_equal(content_may_evict(&view), wanted);
            may += wanted ? 1 : 0;
        }
    }
    assert_true(may > 0);
    const struct content_view none = { .exists = false, .state = CONTENT_CLEAN };
    assert_false(content_may_evict(&none));
}

struct recover_case {
    enum content_state state;
    unsigned flags;
    enum content_recovery same_boot, other_boot;
};
static const struct recover_case recover_cases[] = {
    { CONTENT_CLEAN, 0, CONTENT_KEEP, CONTENT_DROP },
    { CONTENT_CLEAN, WHOLE, CONTENT_KEEP, CONTENT_VERIFY },
    { CONTENT_CLEAN, CONTENT_DURABLE, CONTENT_KEEP, CONTENT_KEEP },
    { CONTENT_CLEAN, CONTENT_DURABLE | WHOLE, CONTENT_KEEP, CONTENT_KEEP },
    { CONTENT_FROZEN, WHOLE, CONTENT_UPLOAD, CONTENT_TORN },
    { CONTENT_FROZEN, WHOLE | CONTENT_ACKED, CONTENT_UPLOAD, CONTENT_TORN },
    { CONTENT_FROZEN, WHOLE | CONTENT_ACKED | CONTENT_DURABLE, CONTENT_UPLOAD, CONTENT_UPLOAD },
    { CONTENT_LIVE, WHOLE, CONTENT_TORN, CONTENT_TORN },
    { CONTENT_LIVE, WHOLE | CONTENT_TRUNCATED, CONTENT_TORN, CONTENT_TORN },
    { CONTENT_LIVE, WHOLE | CONTENT_ACKED, CONTENT_FREEZE, CONTENT_TORN },
    { CONTENT_LIVE, WHOLE | CONTENT_TRUNCATED | CONTENT_ACKED, CONTENT_FREEZE, CONTENT_TORN },
    { CONTENT_LIVE, WHOLE | CONTENT_DURABLE, CONTENT_TORN, CONTENT_TORN },
    { CONTENT_LIVE, WHOLE | CONTENT_ACKED | CONTENT_DURABLE, CONTENT_FREEZE, CONTENT_FREEZE },
};

static void
recover(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(recover_cases) / sizeof(recover_cases[0]); i++) {
        const struct recover_case *c = &recover_cases[i];
        const struct content_view view = { .exists = true, .state = c->state, .flags = c->flags };
        enum content_recovery same = content_recover(&view, true);
        enum content_recovery other = content_recover(&view, false);
        if (same != c->same_boot || other != c->other_boot)
            fail_msg("row %zu: got %d and %d", i, (int)same, (int)other);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_for_writing),
        cmocka_unit_test(staged_bytes_are_never_evicted),
        cmocka_unit_test(recover),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
