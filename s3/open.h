#ifndef S3_OPEN_H
#define S3_OPEN_H

#include "s3/store.h"

/*
 * The keys and places an s3:// store needs. Strings are copied; secrets are wiped at free. Credentials are asked for
 * before each attempt, so that a provider may refresh them.
 */
struct s3_credentials {
    char access_key[256];
    char secret_key[512];
    char session_token[4096]; /* "" when there is none */
    int64_t expires_wall_ns;  /* 0: never */
};
typedef int s3_credentials_fn(void *arg, struct s3_credentials *out, struct err *err);

struct store_open_args {
    /* mem: | file:///dir | s3://bucket[/prefix]?endpoint=&region=&style=path|virtual&provider= */
    const char *url;
    /* NULL: from the environment (AWS_ACCESS_KEY_ID, ...) and the profile files */
    s3_credentials_fn *credentials;
    void *credentials_arg;
    unsigned max_connections; /* 0: 16 */
};

/* Parses the URL, opens the bottom store and puts the wrappers on it: one function shows the whole stack. No network
 * traffic. Unknown schemes and parameters are ERR_USAGE naming them. Tests set HOLDFAST_TEST_STORE_FAULT to a plan (see
 * fault_plan_parse()) and get the fault wrapper on top. */
struct store *store_open(const struct store_open_args *args, struct err *err) MUST_CHECK;

/* The parts, for tests and for store_open(). */
struct store *mem_store_open(struct err *err) MUST_CHECK;
/* Makes `dir`, but not its parents: an unmounted disk must not look like an empty store. A directory that cannot be
 * written opens for reading; writes are ERR_STORE_DENIED. */
struct store *file_store_open(const char *dir, struct err *err) MUST_CHECK;
struct store *s3_store_open(const struct store_open_args *args, struct err *err) MUST_CHECK;

#endif
