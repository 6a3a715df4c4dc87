#ifndef SUPPORT_CRASH_TREE_H
#define SUPPORT_CRASH_TREE_H

#include "support/crash/rig.h"

/* What a volume shows and what the bucket holds, as sorted lists that can be compared. */
struct tree_entry {
    char path[LIMIT_PATH + 1];
    enum index_kind kind;
    uint32_t mode; /* with type; folders without a marker: 0 */
    int64_t mtime_ns;
    uint64_t size;
    char sha256[SHA256_HEX]; /* of the bytes, or of a link's target */
};
struct tree {
    struct tree_entry *entry;
    size_t count, cap;
};
void tree_release(struct tree *tree);
/* For trees that are made by hand: add, then sort. */
struct tree_entry *tree_add(struct tree *tree);
void tree_sort(struct tree *tree);
const struct tree_entry *tree_find(const struct tree *tree, const char *path);
/* Reads everything of a volume through its front door. */
int tree_of_volume(struct volume_service *service, int64_t volume, struct tree *out,
                   struct err *err) MUST_CHECK;
/* Every object below a prefix, read whole; "x/" is the marker of folder x. */
int tree_of_bucket(struct store *store, const char *prefix, struct tree *out,
                   struct err *err) MUST_CHECK;
/* Says what differs with rig_break() (`when` NULL: only counts): each file and link has its object and no other object is there; each empty folder
 * has a marker. Answers the number of differences. */
unsigned tree_compare(const struct tree *volume, const struct tree *bucket, const char *when);
/* One file whole; caller frees *data. ERR_NOT_FOUND. */
int tree_read_file(struct volume_service *service, int64_t volume, const char *path, uint8_t **data,
                   size_t *len, struct err *err) MUST_CHECK;
int tree_read_object(struct store *store, const char *key, uint8_t **data, size_t *len,
                     struct err *err) MUST_CHECK;

#endif
