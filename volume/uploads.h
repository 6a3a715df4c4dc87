#ifndef VOLUME_UPLOADS_H
#define VOLUME_UPLOADS_H

#include "volume/service_impl.h"

/* Uploads in parts: recorded while they run, ended when they are left over. */

int uploads_open(struct volume_service *service, struct err *err) MUST_CHECK;
/* Starts the thread that sweeps now and once a day. */
int uploads_start(struct volume_service *service, struct err *err) MUST_CHECK;
void uploads_close(struct volume_service *service);
void uploads_release(struct volume_service *service);
/* An upload of this key was begun; durable when it comes back. */
int uploads_begin(struct volume_service *service, int64_t volume, const char *key, const char *id,
                  struct err *err) MUST_CHECK;
/* The same for a copy inside the bucket to a fresh key below `.holdfast/`; uploads_copied_tx() is told of its end. */
int uploads_begin_copy(struct volume_service *service, int64_t volume, const char *to,
                       struct err *err) MUST_CHECK;
int uploads_copied_tx(struct index_tx *tx, const char *to, struct err *err) MUST_CHECK;
/* Ends, in the store, what is recorded for this key. Not while a PUT of the key runs. What cannot be ended stays recorded. True:
 * something was ended. */
bool uploads_end_of_key(struct volume_service *service, const char *key);
/* All that are left over, and what the bucket lists. An error: some stay. */
int uploads_sweep(struct volume_service *service, struct err *err) MUST_CHECK;
/* Recorded ones, and those of others that the last sweep found below the volumes. */
int uploads_count(struct volume_service *service, struct index_tx *tx, uint64_t *open,
                  uint64_t *foreign, struct err *err) MUST_CHECK;

#endif
