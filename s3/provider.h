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
    /* Host of its endpoints, "%r" for the region and "%a" for the account; NULL: the URL has to name one. */
    const char *endpoint;
    const char *region; /* when neither the URL nor the host names one */
    bool region_needed; /* an endpoint can only be made of a region that the URL names */
    bool virtual_style; /* the bucket goes into the host when the URL does not say */
    bool etag_bare; /* conditions with the ETag as it is, without quotes, until the probe knows */
    bool no_put_if_absent, no_put_if_match, no_delete_if_match, no_copy_conditions,
        no_server_side_copy;
    bool no_complete_if_absent, no_complete_if_match;
    bool no_multipart, no_copy_parts, no_delete_many, no_list_uploads;
    bool folds_names;
    bool equal_parts; /* all parts of an upload but the last have the same size */
    int64_t min_write_interval_ns;
    uint64_t max_put_bytes, max_part_bytes, max_copy_bytes; /* 0: S3's 5 GiB */
    /* US dollars, times a thousand: per million requests that change or list (A) or read (B), per GB and month. 0 with
     * `priced` is free, without it not known. */
    bool priced;
    uint32_t milli_usd_a, milli_usd_b, milli_usd_gb_month;
};

/* By name; NULL when unknown. */
const struct provider *provider_find(const char *name);
/* By the endpoint's host (may carry ":port") and path; the generic profile when nothing fits. Never NULL. */
const struct provider *provider_guess(const char *host, const char *path);
/* "aws, b2, ..." for messages. */
int provider_names(struct buf *out, struct err *err) MUST_CHECK;
/* Makes the host of its endpoint; ERR_USAGE naming what the URL lacks. `region` and `account` may be NULL. */
int provider_endpoint(const struct provider *provider, const char *region, const char *account,
                      struct buf *out, struct err *err) MUST_CHECK;
/* The region that the endpoint's host names, by the pattern of `endpoint`; false when it names none. */
bool provider_host_region(const struct provider *provider, const char *host, char *out,
                          size_t size);
/* The capabilities before any probe: STORE_NO where the profile knows, else STORE_NOT_PROBED. */
void provider_caps(const struct provider *provider, struct store_caps *out);
/* Takes away from what the probe found what the profile knows to be false. */
void provider_limit_caps(const struct provider *provider, struct store_caps *caps);

#endif
