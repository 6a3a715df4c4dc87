#ifndef S3_PROBE_H
#define S3_PROBE_H

#include "s3/provider.h"
#include "s3/store.h"

/*
 * Asking a store how it behaves, since a 200 proves nothing (docs/stores.md). The questions go out as single requests
 * without retries that would blur the answer; the conclusions are drawn by the pure probe_conclude().
 */

/* What was seen: HTTP statuses (0: no answer), and whether old bytes were still there afterwards. */
struct probe_seen {
    int create, create_again;
    bool kept_after_create_again;
    int wrong_match;
    bool kept_after_wrong_match;
    int match_quoted, match_bare;
    int parallel_won, parallel_lost; /* how many of the three creates got 2xx, and 412 or 409 */
    int delete_wrong_match;
    bool kept_after_delete;
    int copy,
        copy_wrong_source; /* copy_wrong_source: x-amz-copy-source-if-match that does not hold */
    int copy_to_existing;  /* with If-None-Match: * */
    bool kept_after_copy;
    bool listed; /* each of three listings right after a change showed it */
    bool name_folded,
        name_kept;    /* a decomposed name is there as its composed form; as itself only */
    bool bytes_asked; /* a name that is not UTF-8 was tried */
    bool bytes_kept;  /* it comes back as it is */
    bool long_meta;   /* 1,600 bytes of metadata in one value were taken */
    bool presign_works;
    bool slow_down; /* a write of a key was answered 429: too soon after the one before */
    /* Completions of uploads in parts (probe_multi.c): of a new key with If-None-Match: *, without a condition where
     * that failed, over an existing key, with a wrong and with the right If-Match. */
    int complete_absent, complete, complete_again, complete_wrong_match, complete_match;
    bool kept_parts; /* the object of the first one holds its part */
    bool kept_after_complete_again, kept_after_complete_match;
    bool upload_listed;
    bool part_copied, part_copied_twice; /* with the source's name encoded once, or twice */
    bool deleted_many;
};

/* Fills what the probe answers; the rest of `caps` stays. */
void probe_conclude(const struct probe_seen *seen, const struct provider *provider,
                    struct store_caps *caps);

#endif
