#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "s3/limit.h"

#define FOREVER INT64_MAX

static void
no_limit(void **state)
{
    (void)state;
    struct limit limit;
    limit_init(&limit, 0);
    for (int i = 0; i < 100; i++)
        assert_true(limit_take(&limit, UINT64_MAX, NS_PER_S, 0) == 0);
    limit_release(&limit);
}

/* 10 per second: after the tenth of a second of burst each one waits a tenth longer than the one before. */
static void
in_turn(void **state)
{
    (void)state;
    struct limit limit;
    int64_t now = 1000 * NS_PER_S;
    limit_init(&limit, 10);
    assert_true(limit_take(&limit, 1, now, FOREVER) == 0);
    for (int64_t i = 0; i < 20; i++)
        assert_true(limit_take(&limit, 1, now, FOREVER) == i * NS_PER_S / 10);
    /* A time later the debt is paid, and no more than the burst was saved. */
    now += 100 * NS_PER_S;
    assert_true(limit_take(&limit, 1, now, FOREVER) == 0);
    assert_true(limit_take(&limit, 1, now, FOREVER) == 0);
    assert_true(limit_take(&limit, 1, now, FOREVER) == NS_PER_S / 10);
    limit_release(&limit);
}

/* Who cannot wait takes nothing, so that those who can do not wait for it. */
static void
impatient(void **state)
{
    (void)state;
    struct limit limit;
    int64_t now = 1000 * NS_PER_S;
    limit_init(&limit, 1);
    assert_true(limit_take(&limit, 5, now, FOREVER) == 0);
    for (int i = 0; i < 10; i++)
        assert_true(limit_take(&limit, 1, now, NS_PER_S) == -1);
    int64_t wait = limit_take(&limit, 1, now, 10 * NS_PER_S);
    assert_true(wait > 4 * NS_PER_S && wait <= 5 * NS_PER_S);
    limit_release(&limit);
}

/* However it is cut, a second's worth takes a second. */
static void
bytes(void **state)
{
    (void)state;
    struct limit limit;
    int64_t begun = 1000 * NS_PER_S;
    int64_t now = begun;
    limit_init(&limit, 1 << 20);
    uint64_t piece = limit_piece(&limit);
    assert_true(piece > 0 && piece <= (1 << 20) / 8);
    for (uint64_t sent = 0; sent < 10 << 20; sent += piece)
        now += limit_take(&limit, piece, now, FOREVER);
    assert_true(now - begun > 96 * NS_PER_S / 10 && now - begun <= 10 * NS_PER_S);
    limit_release(&limit);
    limit_init(&limit, 10); /* slower than a piece may be small */
    assert_true(limit_piece(&limit) == 1024);
    limit_release(&limit);
    limit_init(&limit, 0);
    assert_true(limit_piece(&limit) == 256 << 10);
    limit_release(&limit);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_limit),
        cmocka_unit_test(in_turn),
        cmocka_unit_test(impatient),
        cmocka_unit_test(bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
