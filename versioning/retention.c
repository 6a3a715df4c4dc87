#include "versioning/retention.h"

size_t
retention_plan(const struct retention_policy *policy, struct retention_version *version,
               size_t count)
{
    size_t dropped = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t age = policy->now_ns - version[i].gone_ns;
        bool old = policy->keep_ns > 0 && age > policy->keep_ns;
        bool many = policy->keep_count > 0 && i >= (size_t)policy->keep_count;
        version[i].drop = (old || many) && age > RETENTION_ALWAYS_NS && !version[i].pinned;
        dropped += version[i].drop;
    }
    return dropped;
}
