#ifndef GATEWAY_METRICS_H
#define GATEWAY_METRICS_H

#include <stdint.h>

/* What the process counts of its own HTTP answers, for GET /metrics. Thread safe, without locks. */
void gateway_metrics_answered(int status, int64_t took_ns);

#endif
