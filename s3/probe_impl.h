#ifndef S3_PROBE_IMPL_H
#define S3_PROBE_IMPL_H

#include "s3/http_store_impl.h"
#include "s3/probe.h"

/* The questions about uploads in parts and about DeleteObjects, on the scratch key `key`, which is gone afterwards unless
 * the store does not delete. `source` is an object that is there, whose name another decoding would change. */
void probe_multi(struct http_store *self, const char *key, const char *source,
                 struct probe_seen *seen);

/* The questions about listings and names, on scratch keys that begin with `key`. */
void probe_names(struct http_store *self, const char *key, struct probe_seen *seen);

#endif
