#ifndef TESTS_FAULT_SERVER_HARNESS_H
#define TESTS_FAULT_SERVER_HARNESS_H

#include "base/buf.h"
#include "base/clock.h"
#include "s3/open.h"

/*
 * For the tests that run a store against the fault server: its controls, a store per test, and calls whose deadline is
 * watched. Failures are cmocka's.
 */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SLACK (3 * NS_PER_S) /* a busy machine; what knows no deadline waits 30 s or more */
#define SHORT (1200 * NS_PER_MS)

extern unsigned server_port;
extern struct store *store; /* made anew by begin() */
extern struct err err;      /* of the last call */
extern struct store_put_result res;
extern const struct store_cond absent, any;

/* Group setup and teardown; setup and teardown of each test. */
int start_server(void **state);
int stop_server(void **state);
int begin(void **state);
int end(void **state);

/* A request without signature; the body of the answer into `out` (not for NUL bytes). Answers the status. */
int plain_request(const char *method, const char *target, char *out, size_t size);
/* A control request; `fault` adds to the plan. */
void control(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void fault(const char *kind, const char *op, unsigned count, unsigned arg);
/* Requests of this kind that the server has seen. */
unsigned seen(const char *op);
/* What lies at the key, asked without the code under test; NULL: nothing. */
void assert_raw(const char *key, const char *want);
struct store *open_store(const char *bucket, unsigned port, bool wrong_secret);

/* The deadline of the next call, and the check that it held. */
int64_t within(int64_t ns);
int on_time(int result);
/* A PUT with its MD5 and, unless NULL, a write id. */
int put_at(const char *key, const char *text, struct store_cond cond, const char *id, int64_t ns);
void put_ok(const char *key, const char *text);

#endif
