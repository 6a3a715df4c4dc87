#ifndef VOLUME_FORM_IMPL_H
#define VOLUME_FORM_IMPL_H

#include "volume/service_impl.h"

/* Where the store composes keys (caps.folds_names), a new name must be in composed form: ERR_EXISTS when the composed one is
 * there, ERR_BAD_NAME else. Before anything is accepted. */
int form_check(struct volume_service *service, struct index_tx *tx, const struct volume_name *at,
               struct err *err) MUST_CHECK;

#endif
