#ifndef VOLUME_FOUND_IMPL_H
#define VOLUME_FOUND_IMPL_H

#include "volume/service_impl.h"

/* found.c: volumes that a new index finds in the bucket, when it is bound to its store. */

/* ERR_CORRUPT: an index was lost here, and staged files wait for a rebuild. */
int found_check(struct volume_service *service, struct err *err) MUST_CHECK;
int found_take(struct volume_service *service, struct err *err) MUST_CHECK;
/* Whether a volume was found so at this start, and nobody has made it since. Inside index functions that change something. */
bool found_is(const struct volume_service *service, const char *name);
/* Now somebody has. */
void found_made(struct volume_service *service, const char *name);

#endif
