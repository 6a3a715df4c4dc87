#ifndef MOUNT_SESSION_OLD_IMPL_H
#define MOUNT_SESSION_OLD_IMPL_H

#include "mount/old.h"
#include "mount/past_cache.h"
#include "mount/session_impl.h"

/* What the files of `.holdfast/at/` and `.holdfast/versions/` share. Functions that may find that something has to be made first
 * answer OLD_LATER: the call is run again when it is there, and nobody answers before. */
#define OLD_LATER 1

/* How long names and attributes are believed: what lay where at a time is so forever, only which time "2h" is moves. */
#define OLD_TEXT_TIMEOUT 5.0
#define OLD_PATH_TIMEOUT 1.0

struct old_entry {
    struct old_place place;
    struct stat st; /* but for the inode number */
    double entry_timeout, attr_timeout;
};

/* session_past.c */
int session_past_lookup(struct call *call, const struct volume_ctx *ctx,
                        const struct old_place *parent, struct old_entry *out,
                        struct err *err) MUST_CHECK;
int session_past_stat(struct call *call, const struct volume_ctx *ctx,
                      const struct old_place *place, struct stat *st, struct err *err) MUST_CHECK;
/* `out` has room for call->size bytes; `*got` is what there was from call->off on. */
int session_past_read(struct call *call, const struct volume_ctx *ctx,
                      const struct old_place *place, char *out, size_t *got,
                      struct err *err) MUST_CHECK;
/* One entry; `next`: where the listing goes on behind it. Not 0: stop. */
struct old_child {
    const char *name;
    struct old_place place;
    bool has_st; /* else only the type is known, or nothing: 0 */
    struct stat st;
};
typedef int old_child_fn(void *arg, const struct old_child *child, size_t next);
struct old_list_args {
    size_t at; /* where it goes on, 0 to begin */
    old_child_fn *fn;
    void *arg;
};
int session_past_list(struct call *call, const struct volume_ctx *ctx, const struct old_place *dir,
                      const struct old_list_args *args, struct err *err) MUST_CHECK;
/* Everything below has its number, as if a kernel had looked it up. */
int session_past_number_all(struct call *call, const struct volume_ctx *ctx,
                            const struct old_place *root, struct err *err) MUST_CHECK;
/* Of `.holdfast/at` itself: the snapshots. */
int session_past_texts(struct call *call, const struct old_list_args *args,
                       struct err *err) MUST_CHECK;
void session_past_fill(const struct volume_past_entry *entry, struct stat *st);

/* session_versions.c: `parent` is a path, "" of kind OLD_PATH the volume. */
int session_versions_lookup(struct call *call, const struct volume_ctx *ctx,
                            const struct old_place *parent, struct old_entry *out,
                            struct err *err) MUST_CHECK;
int session_versions_stat(struct call *call, const struct volume_ctx *ctx,
                          const struct old_place *place, struct stat *st,
                          struct err *err) MUST_CHECK;
int session_versions_read(struct call *call, const struct volume_ctx *ctx,
                          const struct old_place *place, char *out, size_t *got,
                          struct err *err) MUST_CHECK;
int session_versions_list(struct call *call, const struct volume_ctx *ctx,
                          const struct old_place *dir, const struct old_list_args *args,
                          struct err *err) MUST_CHECK;
void session_versions_release(struct session *session);
void session_versions_closedir(struct session *session, uint64_t fh);
/* The mounted folder in its volume. */
int session_old_folder(struct session *session, char *out, size_t size, struct err *err) MUST_CHECK;

#endif
