#ifndef S3_PROVIDER_H
#define S3_PROVIDER_H

#include "s3/store.h"

/*
 * What is known of each maker of stores before the probe asks (docs/stores.md): defaults for the URL, and answers that
 * no probe can give. A profile never makes a capability true: it only makes it false or leaves it to the probe. Pure.
 */
struct provider {
    const char *name;     /* as in provider= */
    const char *hosts[4]; /* endings of host names that are this provider's; NULL after the last */
    const char *region;   /* when the URL names none */
    bool virtual_style;   /* the bucket goes into the host when the URL does not say */
    bool etag_bare; /* conditions with the ETag as it is, without quotes, until the probe knows */
    bool no_put_if_absent, no_put_if_match, no_delete_if_match, no_copy_conditions,
        no_server_side_copy;
    bool folds_names;
    int64_t min_write_interval_ns;
    uint64_t max_put_bytes;
};

/* By name; NULL when unknown. */
const struct provider *provider_find(const char *name);
/* By the endpoint's host (may carry ":port") and path; the generic profile when nothing fits. Never NULL. */
const struct provider *provider_guess(const char *host, const char *path);
/* "aws, b2, ..." for messages. */
int provider_names(struct buf *out, struct err *err) MUST_CHECK;
/* The capabilities before any probe: STORE_NO where the profile knows, else STORE_NOT_PROBED. */
void provider_caps(const struct provider *provider, struct store_caps *out);
/* Takes away from what the probe found what the profile knows to be false. */
void provider_limit_caps(const struct provider *provider, struct store_caps *caps);

#endif
