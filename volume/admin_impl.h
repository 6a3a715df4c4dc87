#ifndef VOLUME_ADMIN_IMPL_H
#define VOLUME_ADMIN_IMPL_H

#include "volume/service_impl.h"

/* admin.c for those that find volumes in the bucket. */

#define VOLUMES_PREFIX ".holdfast/volumes/"

/* A volume's settings as they lie in the bucket, checked like those of a new volume. `out->id`, `root` and `created_ns` are left 0. */
int admin_settings_read(const char *data, size_t len, struct index_volume *out,
                        struct err *err) MUST_CHECK;
int admin_settings_put(struct volume_service *service, const struct index_volume *volume,
                       struct err *err) MUST_CHECK;
/* Its row and its root; sets id and root. ERR_EXISTS; ERR_INVAL when its prefix overlaps with another volume's. */
int admin_insert(struct index_tx *tx, struct index_volume *row, struct err *err) MUST_CHECK;

#endif
