#ifndef VOLUME_FSCK_IMPL_H
#define VOLUME_FSCK_IMPL_H

#include "volume/fsck.h"
#include "volume/service_impl.h"

/* What the files of fsck share. One thread. */

struct fsck {
    struct volume_service *service;
    const struct volume_fsck_args *args;
    struct volume_fsck_report *out;
    struct index_volume *volume;
    size_t volume_count, volume_cap;
};

/* A fault as fsck.c tells it: found in `volume` (NULL: none) at `where`. `mend` NULL: there is no repair. */
typedef int fsck_mend_fn(struct fsck *fsck, void *arg, struct err *err);
struct fsck_fault {
    const char *code, *what, *repair;
    fsck_mend_fn *mend;
};
int fsck_tell(struct fsck *fsck, const struct fsck_fault *fault, const char *volume,
              const char *where, void *arg, struct err *err) MUST_CHECK;
void fsck_progress(const struct fsck *fsck, const char *what, uint64_t done);
/* The gateway is stopping. */
int fsck_go_on(const struct fsck *fsck, struct err *err) MUST_CHECK;
const struct index_volume *fsck_volume(const struct fsck *fsck, const char *name, size_t len);

/* fsck_objects.c: a volume's listing against the rows of its keys. */
int fsck_objects(struct fsck *fsck, const struct index_volume *volume, struct err *err) MUST_CHECK;
/* fsck_tree.c: its files against these rows. */
int fsck_tree(struct fsck *fsck, const struct index_volume *volume, struct err *err) MUST_CHECK;
/* fsck_cache.c: content files against their rows; full: and their bytes. */
int fsck_cache(struct fsck *fsck, struct err *err) MUST_CHECK;
/* fsck_own.c: what lies below `.holdfast/`. */
int fsck_own(struct fsck *fsck, struct err *err) MUST_CHECK;
/* fsck_history.c: copies of older versions. */
int fsck_history(struct fsck *fsck, struct err *err) MUST_CHECK;
/* fsck_snapshots.c: manifests. */
int fsck_snapshots(struct fsck *fsck, struct err *err) MUST_CHECK;
/* fsck_bytes.c: full: the bytes of a volume's objects. */
int fsck_bytes(struct fsck *fsck, const struct index_volume *volume, struct err *err) MUST_CHECK;

#endif
