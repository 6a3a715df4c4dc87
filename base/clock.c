#include "base/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/parse.h"

static int64_t
read_clock(clockid_t id)
{
    struct timespec ts = { 0 };
    (void)clock_gettime(id, &ts); /* cannot fail for these ids */
    return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static int64_t
real_wall(void)
{
    return read_clock(CLOCK_REALTIME);
}

static int64_t
real_mono(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static int64_t
real_boot(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

static void
real_sleep(int64_t ns)
{
    if (ns <= 0)
        return;
    struct timespec left = { .tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S };
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        continue;
}

static const struct clock_table real_clock = { real_wall, real_mono, real_boot, real_sleep };
static const struct clock_table *current = &real_clock;

int64_t
clock_wall_ns(void)
{
    return current->wall();
}

int64_t
clock_mono_ns(void)
{
    return current->mono();
}

int64_t
clock_boot_ns(void)
{
    return current->boot();
}

void
clock_sleep_ns(int64_t ns)
{
    current->sleep(ns);
}

void
clock_replace(const struct clock_table *table)
{
    current = table ? table : &real_clock;
}

static const char *const months[] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
static const char *const days[] = { "Sunday",   "Monday", "Tuesday", "Wednesday",
                                    "Thursday", "Friday", "Saturday" };

/* The calendar of a moment, and the nanoseconds into its second; rounds down before 1970. */
static struct tm
split(int64_t wall_ns, int64_t *nanos)
{
    int64_t seconds = wall_ns / NS_PER_S;
    *nanos = wall_ns % NS_PER_S;
    if (*nanos < 0) {
        *nanos += NS_PER_S;
        seconds--;
    }
    time_t t = seconds;
    struct tm tm = { 0 };
    (void)gmtime_r(&t, &tm); /* int64 nanoseconds end in 2262 */
    return tm;
}

void
time_rfc3339(int64_t wall_ns, char *out, size_t size)
{
    int64_t nanos;
    struct tm tm = split(wall_ns, &nanos);
    char fraction[24] = "";
    if (nanos != 0)
        (void)snprintf(fraction, sizeof(fraction), ".%09lld", (long long)nanos);
    (void)snprintf(out, size, "%04d-%02d-%02dT%02d:%02d:%02d%sZ", tm.tm_year + 1900, tm.tm_mon + 1,
                   tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, fraction);
}

void
time_http(int64_t wall_ns, char *out, size_t size)
{
    int64_t nanos;
    struct tm tm = split(wall_ns, &nanos);
    (void)snprintf(out, size, "%.3s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday], tm.tm_mday,
                   months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

void
time_iso_basic(int64_t wall_ns, char *out, size_t size)
{
    int64_t nanos;
    struct tm tm = split(wall_ns, &nanos);
    (void)snprintf(out, size, "%04d%02d%02dT%02d%02d%02dZ", tm.tm_year + 1900, tm.tm_mon + 1,
                   tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

/* The parsers walk over the text with these; each moves *at on success only. */
static bool
take_digits(const char **at, size_t count, int *out)
{
    uint64_t value;
    if (strnlen(*at, count) < count || !parse_u64_n(*at, count, &value))
        return false;
    *out = (int)value;
    *at += count;
    return true;
}

static bool
take_text(const char **at, const char *text)
{
    size_t len = strlen(text);
    if (strncmp(*at, text, len) != 0)
        return false;
    *at += len;
    return true;
}

static bool
take_month(const char **at, struct tm *tm)
{
    for (int i = 0; i < 12; i++) {
        if (take_text(at, months[i])) {
            tm->tm_mon = i;
            return true;
        }
    }
    return false;
}

/* The weekday is not checked against the date: RFC 9110 gives recipients no reason to care. */
static bool
take_weekday(const char **at, bool full)
{
    for (int i = 0; i < 7; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), full ? "%s" : "%.3s", days[i]);
        if (take_text(at, name))
            return true;
    }
    return false;
}

static bool
take_time(const char **at, struct tm *tm)
{
    return take_digits(at, 2, &tm->tm_hour) && take_text(at, ":") &&
           take_digits(at, 2, &tm->tm_min) && take_text(at, ":") && take_digits(at, 2, &tm->tm_sec);
}

static int
month_days(int year, int month)
{
    static const int lengths[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 1 && leap ? 29 : lengths[month];
}

/* tm holds the full year, not years since 1900. A leap second (60) counts as the second after. */
static int
join(struct tm tm, int64_t offset_s, int64_t nanos, int64_t *wall_ns)
{
    if (tm.tm_mon < 0 || tm.tm_mon > 11 || tm.tm_mday < 1 ||
        tm.tm_mday > month_days(tm.tm_year, tm.tm_mon) || tm.tm_hour > 23 || tm.tm_min > 59 ||
        tm.tm_sec > 60)
        return -1;
    tm.tm_year -= 1900;
    /* Wider than int64: the first second that int64 nanoseconds reach is not whole. */
    __int128 ns = ((__int128)timegm(&tm) - offset_s) * NS_PER_S + nanos;
    if (ns < INT64_MIN || ns > INT64_MAX)
        return -1;
    *wall_ns = (int64_t)ns;
    return 0;
}

/* ".123" → nanoseconds; digits after the ninth are cut. No dot is 0. */
static bool
take_fraction(const char **at, int64_t *nanos)
{
    *nanos = 0;
    if (!take_text(at, "."))
        return true;
    size_t len = strspn(*at, "0123456789");
    for (size_t i = 0; i < 9; i++)
        *nanos = *nanos * 10 + (i < len ? (*at)[i] - '0' : 0);
    *at += len;
    return len > 0;
}

/* "Z" or "+02:00" → seconds east of Greenwich. */
static bool
take_offset(const char **at, int64_t *seconds)
{
    *seconds = 0;
    if (take_text(at, "Z") || take_text(at, "z"))
        return true;
    int hours;
    int minutes;
    int sign = take_text(at, "+") ? 1 : take_text(at, "-") ? -1 : 0;
    if (sign == 0 || !take_digits(at, 2, &hours) || !take_text(at, ":") ||
        !take_digits(at, 2, &minutes) || hours > 23 || minutes > 59)
        return false;
    *seconds = sign * (hours * 3600 + minutes * 60);
    return true;
}

int
time_parse_rfc3339(const char *text, int64_t *wall_ns)
{
    struct tm tm = { 0 };
    const char *at = text;
    int64_t nanos;
    int64_t offset;
    if (!take_digits(&at, 4, &tm.tm_year) || !take_text(&at, "-") ||
        !take_digits(&at, 2, &tm.tm_mon) || !take_text(&at, "-") ||
        !take_digits(&at, 2, &tm.tm_mday) || (!take_text(&at, "T") && !take_text(&at, "t")) ||
        !take_time(&at, &tm) || !take_fraction(&at, &nanos) || !take_offset(&at, &offset) ||
        *at != '\0')
        return -1;
    tm.tm_mon--;
    return join(tm, offset, nanos, wall_ns);
}

/* Sun, 06 Nov 1994 08:49:37 GMT */
static bool
imf_fixdate(const char *at, struct tm *tm)
{
    return take_weekday(&at, false) && take_text(&at, ", ") && take_digits(&at, 2, &tm->tm_mday) &&
           take_text(&at, " ") && take_month(&at, tm) && take_text(&at, " ") &&
           take_digits(&at, 4, &tm->tm_year) && take_text(&at, " ") && take_time(&at, tm) &&
           take_text(&at, " GMT") && *at == '\0';
}

/* RFC 9110 5.6.7: a two-digit year more than 50 years ahead is the most recent past year with
 * these digits. */
static int
full_year(int two_digits)
{
    int64_t nanos;
    int now = split(clock_wall_ns(), &nanos).tm_year + 1900;
    int year = now - now % 100 + two_digits;
    return year > now + 50 ? year - 100 : year;
}

/* Sunday, 06-Nov-94 08:49:37 GMT */
static bool
rfc850_date(const char *at, struct tm *tm)
{
    if (!take_weekday(&at, true) || !take_text(&at, ", ") || !take_digits(&at, 2, &tm->tm_mday) ||
        !take_text(&at, "-") || !take_month(&at, tm) || !take_text(&at, "-") ||
        !take_digits(&at, 2, &tm->tm_year) || !take_text(&at, " ") || !take_time(&at, tm) ||
        !take_text(&at, " GMT") || *at != '\0')
        return false;
    tm->tm_year = full_year(tm->tm_year);
    return true;
}

/* Sun Nov  6 08:49:37 1994 */
static bool
asctime_date(const char *at, struct tm *tm)
{
    return take_weekday(&at, false) && take_text(&at, " ") && take_month(&at, tm) &&
           take_text(&at, " ") &&
           (take_text(&at, " ") ? take_digits(&at, 1, &tm->tm_mday)
                                : take_digits(&at, 2, &tm->tm_mday)) &&
           take_text(&at, " ") && take_time(&at, tm) && take_text(&at, " ") &&
           take_digits(&at, 4, &tm->tm_year) && *at == '\0';
}

int
time_parse_http(const char *text, int64_t *wall_ns)
{
    static bool (*const forms[])(const char *, struct tm *) = { imf_fixdate, rfc850_date,
                                                                asctime_date };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct tm tm = { 0 };
        if (forms[i](text, &tm))
            return join(tm, 0, 0, wall_ns);
    }
    return -1;
}
