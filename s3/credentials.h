#ifndef S3_CREDENTIALS_H
#define S3_CREDENTIALS_H

#include "s3/credentials_parse.h"

/*
 * Where the keys of an s3:// store come from when nobody gives a provider, in the order of AWS's own tools: the
 * environment; the profile's keys; its credential_process (run by somebody who may: see s3_process_fn); the container
 * endpoint; the instance endpoint. They are kept, and fetched anew before they end: at a third of their life left, at
 * most five minutes. One thread fetches, all others go on with the old ones while those are valid. Profile files are
 * looked at once a second and read again when they changed. Thread safe.
 */
struct credentials;

struct credentials *credentials_open(s3_process_fn *process, void *process_arg,
                                     struct err *err) MUST_CHECK;
void credentials_close(struct credentials *credentials);

/* `wall_ns`: now, by the clock that the keys' end is told in. Waits for the first keys until `deadline_ns` (mono).
 * `generation` rises whenever the keys become others. ERR_STORE_DENIED saying where it looked when there are none. */
int credentials_get(struct credentials *credentials, int64_t wall_ns, int64_t deadline_ns,
                    struct s3_credentials *out, uint64_t *generation, struct err *err) MUST_CHECK;

/* The store refused the keys of this generation: has them fetched anew, not more often than every few seconds. True when
 * there are others now. */
bool credentials_renew(struct credentials *credentials, uint64_t generation, int64_t deadline_ns);

/* The share of a life of `life_ns` that is left when the keys are fetched anew. Pure. */
int64_t credentials_refresh_ahead(int64_t life_ns);

/* An s3_credentials_fn for one look without a process or an endpoint; `arg` is not used. */
int credentials_default(void *arg, struct s3_credentials *out, struct err *err) MUST_CHECK;

#endif
