#ifndef VOLUME_LISTING_IMPL_H
#define VOLUME_LISTING_IMPL_H

#include "volume/service_impl.h"

/* What the files that look at the bucket's folders share: listing.c, lister.c, heads.c, and tree.c which asks them. */

/* heads.c: many of them at once. */
/* The same as bucket_complete_node(), once for everybody who asks for the node now. */
int heads_complete(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                   struct err *err) MUST_CHECK;
/* Both wait for all; the first error comes back, the others are done all the same. */
int heads_complete_many(struct volume_service *service, const struct volume_ctx *ctx,
                        const int64_t *nodes, size_t count, struct err *err) MUST_CHECK;
int heads_observe(struct volume_service *service, int64_t volume, const char *const *keys,
                  size_t count, struct err *err) MUST_CHECK;
/* `node` was asked for and not complete: when that goes on in this folder, those behind it are asked in the background. */
void heads_ahead(struct volume_service *service, int64_t dir, int64_t node);
struct heads;
struct heads *heads_new(struct err *err) MUST_CHECK;
/* Waits for what runs; NULL is fine. */
void heads_free(struct heads *heads);
struct heads *lister_heads(struct volume_service *service);

/* listing.c: lists a folder's prefix and merges it batch by batch; blocks. For lister.c alone. */
int listing_run(struct volume_service *service, int64_t dir, struct err *err) MUST_CHECK;
/* A node's object has the same bytes and maybe other attributes: they are asked for again. Inside index functions. */
int listing_mark_changed(struct index_tx *tx, struct volume_service *service, int64_t id,
                         struct err *err) MUST_CHECK;

/* lister.c: one listing of a folder at a time, shared by all who wait for it; bucket_list_dir() waits as long as it moves. */
/* Waits until the listing (begun if there is none) has moved on from `*seen`, 0 at first; `*done`: it has ended well. */
int lister_step(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
                uint64_t *seen, bool *done, struct err *err) MUST_CHECK;
/* Waits for a listing, but not longer than that. */
void lister_await(struct volume_service *service, int64_t dir, int64_t patience_ns);
/* The folder is listed in the background by a listing that begins from now on; false: not now, too many wait. */
bool lister_renew(struct volume_service *service, int64_t dir);
/* A batch of the folder's listing was merged. */
void lister_progress(struct volume_service *service, int64_t dir);
/* What the last listing of this folder could not show. */
void lister_hidden(struct volume_service *service, int64_t dir,
                   const struct volume_unreachable *what);
/* The same of all folders listed since the start. */
void lister_unreachable(struct volume_service *service, struct volume_unreachable *out);

#endif
