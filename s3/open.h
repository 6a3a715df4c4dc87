#ifndef S3_OPEN_H
#define S3_OPEN_H

#include <stdatomic.h>

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

/*
 * Runs the credential_process of the profile and answers what it printed, or ERR_STORE_DENIED with its own words. Called
 * from one thread at a time, with no lock held; ends soon after `cancel` becomes true, and by itself within a minute.
 */
typedef int s3_process_fn(void *arg, const atomic_bool *cancel, struct buf *out, struct err *err);

/* 0: no limit. */
struct store_limits {
    uint64_t requests_per_s;
    uint64_t bytes_up_per_s, bytes_down_per_s;
};

struct store_open_args {
    /* mem: | file:///dir | s3://bucket[/prefix]?endpoint=&region=&style=path|virtual&provider=&account=
     * &public-endpoint=&ca=FILE&pin=sha256//BASE64&requester-pays=yes */
    const char *url;
    /* NULL: from the environment, the profile files, their process, the container or the instance (s3/credentials.h) */
    s3_credentials_fn *credentials;
    void *credentials_arg;
    /* NULL: profiles with a credential_process are ERR_STORE_DENIED */
    s3_process_fn *process;
    void *process_arg;
    unsigned max_connections; /* 0: 16 */
    const char *provider;     /* NULL or "": provider= of the URL, else by the endpoint */
    const char *ca_file; /* NULL or "": ca= of the URL, else AWS_CA_BUNDLE, else the system's */
    struct store_limits limits;
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
