#include "versioning/schedule.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/parse.h"

#define HOUR (3600 * NS_PER_S)
#define DAY (24 * HOUR)
#define MONDAY (4 * DAY) /* 1970-01-05 was one */
#define KEEP_BITS 12

static const char *const class_names[SCHEDULE_CLASSES] = { "hourly", "daily", "weekly", "monthly" };

/* ---- rules ---- */

bool
schedule_is_on(const struct schedule_rule *rule)
{
    return schedule_pack(rule) != 0;
}

static int
parse_part(const char *part, size_t len, struct schedule_rule *out, struct err *err)
{
    char number[16];
    uint64_t keep;
    for (unsigned class = 0; class < SCHEDULE_CLASSES; class ++) {
        size_t name = strlen(class_names[class]);
        if (len <= name || memcmp(part, class_names[class], name) != 0 || part[name] != '=')
            continue;
        if (out->keep[class] != 0)
            return err_set(err, ERR_INVAL, "'%s' is given twice", class_names[class]);
        (void)snprintf(number, sizeof(number), "%.*s", (int)(len - name - 1), part + name + 1);
        if (len - name > sizeof(number) || !parse_u64(number, &keep) || keep < 1 ||
            keep > SCHEDULE_KEEP_MAX)
            return err_set(err, ERR_INVAL, "%s=%.20s: how many are kept is 1 to %d",
                           class_names[class], number, SCHEDULE_KEEP_MAX);
        out->keep[class] = (uint16_t)keep;
        return 0;
    }
    return err_set(
        err, ERR_INVAL,
        "snapshots are hourly=N,daily=N,weekly=N,monthly=N (any of these) or off, not '%.*s'",
        (int)(len < 60 ? len : 60), part);
}

int
schedule_parse(const char *text, struct schedule_rule *out, struct err *err)
{
    memset(out, 0, sizeof(*out));
    if (strcmp(text, "off") == 0)
        return 0;
    for (;;) {
        size_t len = strcspn(text, ",");
        if (parse_part(text, len, out, err) != 0)
            return -1;
        if (text[len] == '\0')
            return 0;
        text += len + 1;
    }
}

void
schedule_print(const struct schedule_rule *rule, char out[SCHEDULE_TEXT_SIZE])
{
    size_t len = 0;
    (void)snprintf(out, SCHEDULE_TEXT_SIZE, "off");
    for (unsigned class = 0; class < SCHEDULE_CLASSES; class ++) {
        if (rule->keep[class] == 0)
            continue;
        (void)snprintf(out + len, SCHEDULE_TEXT_SIZE - len, "%s%s=%u", len > 0 ? "," : "",
                       class_names[class], rule->keep[class]);
        len = strlen(out);
    }
}

int64_t
schedule_pack(const struct schedule_rule *rule)
{
    uint64_t packed = 0;
    for (unsigned class = 0; class < SCHEDULE_CLASSES; class ++)
        packed |= (uint64_t)rule->keep[class] << (class * KEEP_BITS);
    return (int64_t)packed;
}

struct schedule_rule
schedule_unpack(int64_t packed)
{
    struct schedule_rule rule = { { 0 } };
    for (unsigned class = 0; class < SCHEDULE_CLASSES; class ++)
        rule.keep[class] =
            (uint16_t)((uint64_t)packed >> (class * KEEP_BITS) & ((1u << KEEP_BITS) - 1));
    return rule;
}

/* ---- names ---- */

void
schedule_name(int64_t at_ns, char out[LIMIT_VOLUME_NAME + 1])
{
    struct tm tm = { 0 };
    time_t seconds = (time_t)(at_ns / NS_PER_S);
    (void)gmtime_r(&seconds, &tm);
    (void)strftime(out, LIMIT_VOLUME_NAME + 1, SCHEDULE_NAME_PREFIX "%Y-%m-%d-%H%M%S", &tm);
}

bool
schedule_name_time(const char *name, int64_t *at_ns)
{
    static const char form[] = SCHEDULE_NAME_PREFIX "0000-00-00-000000";
    char text[sizeof("2026-01-31T14:00:00Z")];
    const char *digits = name + sizeof(SCHEDULE_NAME_PREFIX) - 1;
    if (strlen(name) != sizeof(form) - 1)
        return false;
    for (size_t i = 0; form[i] != '\0'; i++)
        if (form[i] == '0' ? name[i] < '0' || name[i] > '9' : name[i] != form[i])
            return false;
    (void)snprintf(text, sizeof(text), "%.10sT%.2s:%.2s:%.2sZ", digits, digits + 11, digits + 13,
                   digits + 15);
    return time_parse_rfc3339(text, at_ns) == 0;
}

/* ---- the plan ---- */

static int64_t
floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static int64_t
month_of(int64_t at_ns)
{
    struct tm tm = { 0 };
    time_t seconds = (time_t)floor_div(at_ns, NS_PER_S);
    (void)gmtime_r(&seconds, &tm);
    return (int64_t)tm.tm_year * 12 + tm.tm_mon;
}

/* The hour, day, week or month of a time, as a number that grows by one. */
static int64_t
slot_of(enum schedule_class class, int64_t at_ns)
{
    switch (class) {
    case SCHEDULE_HOURLY:
        return floor_div(at_ns, HOUR);
    case SCHEDULE_DAILY:
        return floor_div(at_ns, DAY);
    case SCHEDULE_WEEKLY:
        return floor_div(at_ns - MONDAY, 7 * DAY);
    default:
        return month_of(at_ns);
    }
}

static int64_t
slot_end(enum schedule_class class, int64_t at_ns)
{
    int64_t next = slot_of(class, at_ns) + 1;
    switch (class) {
    case SCHEDULE_HOURLY:
        return next * HOUR;
    case SCHEDULE_DAILY:
        return next * DAY;
    case SCHEDULE_WEEKLY:
        return next * 7 * DAY + MONDAY;
    default: {
        struct tm tm = { .tm_year = (int)floor_div(next, 12),
                         .tm_mon = (int)(next - 12 * floor_div(next, 12)),
                         .tm_mday = 1 };
        return (int64_t)timegm(&tm) * NS_PER_S;
    }
    }
}

bool
schedule_serves(const struct schedule_rule *rule, int64_t at_ns, int64_t now_ns)
{
    for (unsigned class = 0; class < SCHEDULE_CLASSES; class ++)
        if (rule->keep[class] > 0 && slot_of(class, at_ns) != slot_of(class, now_ns))
            return false;
    return true;
}

static void
keep_class(enum schedule_class class, unsigned keep, struct schedule_taken *taken, size_t count)
{
    for (size_t i = count; i-- > 0 && keep > 0;) {
        if (i > 0 && slot_of(class, taken[i - 1].at_ns) == slot_of(class, taken[i].at_ns))
            continue;
        taken[i].drop = false;
        keep--;
    }
}

void
schedule_plan(const struct schedule_rule *rule, int64_t now_ns, struct schedule_taken *taken,
              size_t count, struct schedule_plan *out)
{
    struct schedule_taken *last = NULL;
    bool on = schedule_is_on(rule);
    memset(out, 0, sizeof(*out));
    out->next_ns = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        taken[i].drop = on;
        if (last == NULL || taken[i].id > last->id)
            last = &taken[i];
    }
    if (!on)
        return;
    /* The last one, not the one of the latest time: where a clock was put back, the hours that come again have theirs too. */
    out->take = last == NULL || !schedule_serves(rule, last->at_ns, now_ns);
    for (unsigned class = 0; class < SCHEDULE_CLASSES; class ++) {
        if (rule->keep[class] == 0)
            continue;
        keep_class(class, rule->keep[class], taken, count);
        int64_t end = slot_end(class, now_ns);
        out->next_ns = end < out->next_ns ? end : out->next_ns;
    }
    if (out->take)
        out->next_ns = now_ns;
    if (last != NULL)
        last->drop = false;
    for (size_t i = 0; i < count; i++)
        out->drops += taken[i].drop;
}
