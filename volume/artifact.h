#ifndef VOLUME_ARTIFACT_H
#define VOLUME_ARTIFACT_H

#include "base/buf.h"
#include "volume/volume.h"

/*
 * Frozen copies of files, made inside the bucket for sharing (docs/design.md, "artifact"): `.holdfast/artifacts/RUN/ULID/NAME`, with
 * "shared" for RUN where there is none. They are written once. All calls but volume_artifact_presigns() may wait for the store.
 */
struct volume_artifact {
    char key[LIMIT_KEY + 1];
    char version[LIMIT_ETAG]; /* of the file, as it was copied */
    uint64_t size;
};
/* Copies the present version of a plain file once the bucket has it. `name`: the copy's. ERR_NOT_FOUND, ERR_IS_DIR, ERR_NOT_SYNCED. */
int volume_artifact_make(struct volume_service *service, const struct volume_ctx *ctx,
                         int64_t volume, const char *path, const char *name,
                         struct volume_artifact *out, struct err *err) MUST_CHECK;
/* Whether the store hands out URLs that clients may follow. */
bool volume_artifact_presigns(struct volume_service *service);
struct volume_artifact_url {
    const char *key;
    const char *type;        /* Content-Type that the store shall answer with */
    const char *disposition; /* and Content-Disposition */
    int64_t expires_s;
};
int volume_artifact_presign(struct volume_service *service, const struct volume_artifact_url *want,
                            struct buf *url, struct err *err) MUST_CHECK;
/* Bytes from `off`, at most `len`; how many came. */
ssize_t volume_artifact_read(struct volume_service *service, const char *key, void *out, size_t len,
                             uint64_t off, struct err *err) MUST_CHECK;
/* Gone already is fine. */
int volume_artifact_remove(struct volume_service *service, const char *key,
                           struct err *err) MUST_CHECK;

#endif
