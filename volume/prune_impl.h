#ifndef VOLUME_PRUNE_IMPL_H
#define VOLUME_PRUNE_IMPL_H

#include "volume/service_impl.h"

/* prune.c: the history's old versions go, every hour. */
int prune_start(struct volume_service *service, struct err *err) MUST_CHECK;
void prune_stop(struct volume_service *service);
/* Now; *dropped: how many rows went, whose copies the engine deletes. */
int prune_all(struct volume_service *service, size_t *dropped, struct err *err) MUST_CHECK;

#endif
