#ifndef VERSIONING_SCHEDULE_H
#define VERSIONING_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"

/*
 * Snapshots by a rule: which to take, which to remove. Pure. Hours, days, weeks (from Monday on) and months are those of UTC. One
 * snapshot serves for every class whose time it is; of each class the first one in each of the newest `keep` hours (days, weeks,
 * months) that have any is kept. They are told by their names, which no person can give: those of persons are never touched.
 */
enum schedule_class {
    SCHEDULE_HOURLY,
    SCHEDULE_DAILY,
    SCHEDULE_WEEKLY,
    SCHEDULE_MONTHLY,
    SCHEDULE_CLASSES
};
#define SCHEDULE_KEEP_MAX 1000
#define SCHEDULE_TEXT_SIZE 80
struct schedule_rule {
    uint16_t keep[SCHEDULE_CLASSES]; /* 0: none of this class */
};
bool schedule_is_on(const struct schedule_rule *rule);
/* "hourly=24,daily=7,weekly=4,monthly=12", any of these, or "off". ERR_INVAL says what is wrong. */
int schedule_parse(const char *text, struct schedule_rule *out, struct err *err) MUST_CHECK;
void schedule_print(const struct schedule_rule *rule, char out[SCHEDULE_TEXT_SIZE]);
/* As a number of 56 bits, and back; 0 is "off". */
int64_t schedule_pack(const struct schedule_rule *rule);
struct schedule_rule schedule_unpack(int64_t packed);

/* "auto-2026-01-31-140000". */
#define SCHEDULE_NAME_PREFIX "auto-"
void schedule_name(int64_t at_ns, char out[LIMIT_VOLUME_NAME + 1]);
/* The moment in such a name; false: it is none. */
bool schedule_name_time(const char *name, int64_t *at_ns);

struct schedule_taken {
    int64_t id; /* grows with each that is taken, whatever the clock did */
    int64_t at_ns;
    bool drop; /* answered */
};
struct schedule_plan {
    bool take; /* unless nothing has changed since the last one */
    size_t drops;
    int64_t next_ns; /* when the next one is due; now, where `take` */
};
/* `taken`: those of the rule, by their time. The last one that was taken always stays. */
void schedule_plan(const struct schedule_rule *rule, int64_t now_ns, struct schedule_taken *taken,
                   size_t count, struct schedule_plan *out);
/* Whether one of `at_ns` serves now for each class of the rule. */
bool schedule_serves(const struct schedule_rule *rule, int64_t at_ns, int64_t now_ns);

#endif
