#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/*
 * All time comes through this table so that tests can move it. Nanoseconds in int64_t.
 *   wall  CLOCK_REALTIME: for people, metadata and signatures only; may jump
 *   mono  CLOCK_MONOTONIC: deadlines
 *   boot  CLOCK_BOOTTIME: leases (goes on while the machine is suspended)
 */
struct clock_table {
    int64_t (*wall)(void);
    int64_t (*mono)(void);
    int64_t (*boot)(void);
    void (*sleep)(int64_t ns);
};

#define NS_PER_S 1000000000ll
#define NS_PER_MS 1000000ll

int64_t clock_wall_ns(void);
int64_t clock_mono_ns(void);
int64_t clock_boot_ns(void);
void clock_sleep_ns(int64_t ns);
/* Replaces the table (NULL: the real one again). Tests only; not while threads run. */
void clock_replace(const struct clock_table *table);

/* Formats; `out` must hold the named size: 2026-07-01T10:00:00.123456789Z (the fraction only when
 * it is not 0), Wed, 01 Jul 2026 10:00:00 GMT (RFC 9110 5.6.7), 20260701T100000Z (SigV4). */
#define TIME_RFC3339_SIZE 40
#define TIME_HTTP_SIZE 32
#define TIME_ISO_BASIC_SIZE 20
void time_rfc3339(int64_t wall_ns, char *out, size_t size);
void time_http(int64_t wall_ns, char *out, size_t size);
void time_iso_basic(int64_t wall_ns, char *out, size_t size);
/* Parse RFC 3339, RFC 9110 (all three forms) and S3's 2026-07-01T10:00:00.000Z; 0 or -1. */
int time_parse_rfc3339(const char *text, int64_t *wall_ns);
int time_parse_http(const char *text, int64_t *wall_ns);

#endif
