#ifndef VOLUME_CONFLICTS_IMPL_H
#define VOLUME_CONFLICTS_IMPL_H

#include "volume/conflicts.h"
#include "volume/service_impl.h"

/* What conflicts.c, sides.c and resolve.c share. */

/* Where a loser's bytes lie. */
struct conflict_place {
    struct index_conflict row;
    struct index_volume volume;
    struct index_content content; /* when row.content is not 0 */
    char key[LIMIT_KEY + 1];
    bool known; /* the object there, */
    struct index_key object;
    bool has_base; /* the bytes of the base are in the cache, */
    struct index_content base;
    char base_copy[ULID_SIZE]; /* or in the history, "": not */
    uint64_t base_size;
};
int conflict_place(struct volume_service *service, const char *id, struct conflict_place *out,
                   struct err *err) MUST_CHECK;
/* The number of bytes, or some of them (volume_conflict_read()). */
ssize_t conflict_read_at(struct volume_service *service, const struct volume_ctx *ctx,
                         const struct conflict_place *place, void *out, size_t len, uint64_t off,
                         struct err *err) MUST_CHECK;

/* beside.c: "dir/name (conflict abcd).ext" with four characters of the conflict's id, from the `nth` place of those that are random,
 * 0 to 3. Pure. */
int beside_name(const char *path, const char *id, unsigned nth, char out[LIMIT_PATH + 1],
                struct err *err) MUST_CHECK;

#endif
