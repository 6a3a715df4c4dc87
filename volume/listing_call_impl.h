#ifndef VOLUME_LISTING_CALL_IMPL_H
#define VOLUME_LISTING_CALL_IMPL_H

#include "volume/service_impl.h"

/* What listing.c and listing_absent.c share: one listing of a folder under way, on one thread. */

struct listing_entry {
    char *key;
    uint64_t size;
    int64_t mtime_ns;
    bool is_prefix;
    char etag[LIMIT_ETAG];
};

struct listing_key_list {
    char **key;
    size_t count, cap;
};

struct listing_id_list {
    int64_t *id;
    size_t count, cap;
};

struct listing_call {
    struct volume_service *service;
    int64_t dir;
    struct index_node node;
    struct index_volume volume;
    char prefix[LIMIT_KEY + 2];
    uint64_t sequence;
    uint64_t gone; /* gone_keys_now() when the listing began */
    struct listing_entry *batch;
    size_t count;
    char from[LIMIT_KEY + 1]; /* all keys up to here were judged */
    bool complete;            /* the listing has ended: every key behind `from` can be judged */
    struct listing_key_list missing;  /* keys that were there and were not listed, or need a HEAD */
    struct listing_id_list folders;   /* sub-folders that the listing showed, sorted at its end */
    struct volume_unreachable hidden; /* keys that cannot be shown */
    char after[LIMIT_KEY + 1];
    unsigned seen;
    struct drop_list drop;
};

/* listing.c */
int listing_keys_add(struct listing_key_list *list, const char *key, struct err *err) MUST_CHECK;
void listing_keys_clear(struct listing_key_list *list);

/* listing_absent.c */
/* Keys that the index knows between the batch before and the end of this one become `missing` unless the batch has them. */
int listing_absent_find(struct listing_call *call, struct err *err) MUST_CHECK;
/* "Absent" is confirmed by a HEAD, each. */
int listing_absent_ask(struct listing_call *call, struct err *err) MUST_CHECK;
/* At the end: folders that were not listed, and that nothing keeps, go. */
int listing_absent_folders(struct listing_call *call, struct err *err) MUST_CHECK;

#endif
