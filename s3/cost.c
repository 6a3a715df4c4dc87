#include "s3/cost.h"

#include "s3/provider.h"

void
cost_estimate(const char *provider, const struct store_counters *counters, struct cost *out)
{
    const struct provider *profile = provider_find(provider);
    *out = (struct cost){
        .class_a = counters->puts + counters->copies + counters->lists + counters->upload_calls +
                   counters->other,
        .class_b = counters->gets + counters->heads,
        .free = counters->deletes,
    };
    if (!profile || !profile->priced)
        return;
    out->priced = true;
    /* Thousandths of a dollar for a million requests. */
    out->usd = ((double)out->class_a * profile->milli_usd_a +
                (double)out->class_b * profile->milli_usd_b) /
               1e9;
    out->usd_per_gb_month = profile->milli_usd_gb_month / 1e3;
}
