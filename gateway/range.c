#include "gateway/range.h"

#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/parse.h"

/* "-N": the last N bytes. */
static enum gateway_range_result
suffix_range(const char *text, uint64_t size, uint64_t *first, uint64_t *last)
{
    uint64_t count;
    if (!parse_u64(text, &count))
        return GATEWAY_RANGE_WHOLE;
    if (count == 0 || size == 0)
        return GATEWAY_RANGE_UNSATISFIABLE;
    *first = count >= size ? 0 : size - count;
    *last = size - 1;
    return GATEWAY_RANGE_PART;
}

enum gateway_range_result
gateway_range_parse(const char *value, uint64_t size, uint64_t *first, uint64_t *last)
{
    static const char unit[] = "bytes=";
    if (!value || strncasecmp(value, unit, sizeof(unit) - 1) != 0)
        return GATEWAY_RANGE_WHOLE;
    const char *text = value + sizeof(unit) - 1;
    if (strchr(text, ','))
        return GATEWAY_RANGE_WHOLE;
    if (text[0] == '-')
        return suffix_range(text + 1, size, first, last);
    const char *dash = strchr(text, '-');
    uint64_t from;
    uint64_t to = UINT64_MAX;
    if (!dash || !parse_u64_n(text, (size_t)(dash - text), &from))
        return GATEWAY_RANGE_WHOLE;
    if (dash[1] != '\0' && !parse_u64(dash + 1, &to))
        return GATEWAY_RANGE_WHOLE;
    if (to < from)
        return GATEWAY_RANGE_WHOLE;
    if (from >= size)
        return GATEWAY_RANGE_UNSATISFIABLE;
    *first = from;
    *last = to < size ? to : size - 1;
    return GATEWAY_RANGE_PART;
}

/* Dates in headers have whole seconds. */
static int64_t
whole_second(int64_t ns)
{
    return ns - (ns % NS_PER_S + NS_PER_S) % NS_PER_S;
}

/* A date that cannot be read is ignored (RFC 9110 sections 13.1.3 and 13.1.4). */
static bool
changed_after(const char *date, int64_t mtime_ns, bool *after)
{
    int64_t when;
    if (!date || time_parse_http(date, &when) < 0)
        return false;
    *after = whole_second(mtime_ns) > when;
    return true;
}

int
gateway_range_judge(const struct gateway_conditions *conditions, const char *tag, int64_t mtime_ns,
                    enum gateway_condition_result *out, struct err *err)
{
    struct precondition pre;
    bool after;
    *out = GATEWAY_CONDITION_GO;
    if (conditions->if_match) {
        if (precondition_parse(conditions->if_match, NULL, &pre, err) < 0)
            return -1;
        if (!precondition_holds(&pre, tag))
            *out = GATEWAY_CONDITION_FAILED;
    } else if (changed_after(conditions->if_unmodified_since, mtime_ns, &after) && after) {
        *out = GATEWAY_CONDITION_FAILED;
    }
    if (*out != GATEWAY_CONDITION_GO)
        return 0;
    if (conditions->if_none_match) {
        if (precondition_parse(NULL, conditions->if_none_match, &pre, err) < 0)
            return -1;
        if (!precondition_holds(&pre, tag))
            *out = GATEWAY_CONDITION_NOT_MODIFIED;
    } else if (changed_after(conditions->if_modified_since, mtime_ns, &after) && !after) {
        *out = GATEWAY_CONDITION_NOT_MODIFIED;
    }
    return 0;
}

bool
gateway_range_applies(const char *if_range, const char *tag, int64_t mtime_ns)
{
    int64_t when;
    if (!if_range)
        return true;
    if (if_range[0] == '"') {
        size_t len = strlen(tag);
        return strncmp(if_range + 1, tag, len) == 0 && strcmp(if_range + 1 + len, "\"") == 0;
    }
    if (time_parse_http(if_range, &when) < 0)
        return false;
    return whole_second(mtime_ns) == when;
}
