#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "s3/cost.h"

/* R2's list prices are $4.50 and $0.36 per million, S3's $5 and $0.40 (docs/stores.md); deletes are free at both. */
static void
list_prices(void **state)
{
    (void)state;
    struct cost cost;
    struct store_counters counters = { .puts = 500000,
                                       .copies = 100000,
                                       .lists = 300000,
                                       .upload_calls = 60000,
                                       .other = 40000,
                                       .gets = 1500000,
                                       .heads = 500000,
                                       .deletes = 7000000 };
    cost_estimate("r2", &counters, &cost);
    assert_true(cost.priced);
    assert_true(cost.class_a == 1000000 && cost.class_b == 2000000 && cost.free == 7000000);
    assert_true(cost.usd > 4.50 + 0.72 - 0.0001 && cost.usd < 4.50 + 0.72 + 0.0001);
    cost_estimate("aws", &counters, &cost);
    assert_true(cost.usd > 5.80 - 0.0001 && cost.usd < 5.80 + 0.0001);
    assert_true(cost.usd_per_gb_month > 0.0229 && cost.usd_per_gb_month < 0.0231);
    counters = (struct store_counters){ .deletes = 1000000 };
    cost_estimate("r2", &counters, &cost);
    assert_true(cost.usd == 0.0);
}

static void
no_prices(void **state)
{
    (void)state;
    struct cost cost;
    const struct store_counters counters = { .puts = 3, .gets = 4 };
    static const char *const names[] = { "", "generic", "ceph", "nobody" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        cost_estimate(names[i], &counters, &cost);
        assert_false(cost.priced);
        assert_true(cost.class_a == 3 && cost.class_b == 4 && cost.usd == 0.0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_prices),
        cmocka_unit_test(no_prices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
