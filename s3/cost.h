#ifndef S3_COST_H
#define S3_COST_H

#include "s3/store.h"

/*
 * The cost meter: what the requests since the start come to at the provider's list prices (docs/stores.md). An estimate:
 * free allowances, discounts, other storage classes and traffic are not in it. Pure.
 */
struct cost {
    uint64_t class_a; /* change or list */
    uint64_t class_b; /* read */
    uint64_t free;    /* deletes */
    bool priced;      /* the prices below are known */
    double usd;       /* of these requests */
    double usd_per_gb_month;
};
/* `provider`: its name, "" for none. */
void cost_estimate(const char *provider, const struct store_counters *counters, struct cost *out);

#endif
