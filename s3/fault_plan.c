#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "s3/fault.h"

static const struct {
    const char *name;
    enum fault_kind kind;
} rates[] = {
    { "error", FAULT_ERROR },      { "lost", FAULT_LOST_ANSWER }, { "late", FAULT_LATE },
    { "short", FAULT_SHORT_BODY }, { "delay", FAULT_DELAY },      { "denied", FAULT_DENIED },
};

static bool
set_rate(struct fault_plan *plan, const char *name, uint64_t value)
{
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        if (strcmp(rates[i].name, name) == 0 && value <= 1000) {
            plan->per_mille[rates[i].kind] = (unsigned)value;
            return true;
        }
    }
    return false;
}

static bool
set_number(struct fault_plan *plan, const char *name, uint64_t value)
{
    if (strcmp(name, "seed") == 0)
        plan->seed = value;
    else if (strcmp(name, "delay-ms") == 0 && value <= 3600000)
        plan->delay_ns = (int64_t)value * NS_PER_MS;
    else if (strcmp(name, "deliver-every") == 0 && value <= UINT32_MAX)
        plan->deliver_every = (unsigned)value;
    else
        return set_rate(plan, name, value);
    return true;
}

static bool
is_word(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && memcmp(text, word, len) == 0;
}

static bool
set_ignored(struct fault_plan *plan, const char *text)
{
    for (;;) {
        size_t len = strcspn(text, "+");
        if (is_word(text, len, "put"))
            plan->ignore_put_conditions = true;
        else if (is_word(text, len, "delete"))
            plan->ignore_delete_conditions = true;
        else if (is_word(text, len, "copy"))
            plan->ignore_copy_conditions = true;
        else
            return false;
        if (text[len] == '\0')
            return true;
        text += len + 1;
    }
}

/* "name=value", a part of the whole. */
static bool
set_part(struct fault_plan *plan, const char *text, size_t len)
{
    char part[64];
    char *value;
    uint64_t number;

    if (len >= sizeof(part))
        return false;
    memcpy(part, text, len);
    part[len] = '\0';
    value = strchr(part, '=');
    if (!value)
        return false;
    *value++ = '\0';
    if (strcmp(part, "ignore") == 0)
        return set_ignored(plan, value);
    return parse_u64(value, &number) && set_number(plan, part, number);
}

int
fault_plan_parse(const char *text, struct fault_plan *out, struct err *err)
{
    struct fault_plan plan = { .seed = 1 };

    while (*text) {
        size_t len = strcspn(text, ",");
        if (!set_part(&plan, text, len))
            return err_set(err, ERR_USAGE, "bad fault plan at '%.40s'", text);
        text += len;
        if (*text == ',')
            text++;
    }
    *out = plan;
    return 0;
}
