#ifndef VOLUME_READS_IMPL_H
#define VOLUME_READS_IMPL_H

#include "volume/reads.h"
#include "volume/service_impl.h"

struct reads;

struct reads *reads_new(struct err *err) MUST_CHECK;
void reads_free(struct reads *reads);

/* ---- a file is opened to be read ---- */
/* The run is known from here on, also to a later gateway. Once a run this waits for the disk (ctx->nowait: ERR_AGAIN). */
int reads_meet(struct volume_service *service, const struct volume_ctx *ctx,
               struct err *err) MUST_CHECK;
/* Before its row is read: a change from now on is none that was read. Nothing for who is no run. */
void reads_begin(struct volume_service *service, const struct volume_ctx *ctx, int64_t node);
/* `read` false: the open failed, or the volume's guard is off; then it is as before. Of `node` the id counts in any case. */
void reads_end(struct volume_service *service, const struct volume_ctx *ctx,
               const struct index_node *node, bool read);

/* ---- a file has other bytes, or its name is gone ---- */
/* After the change; `run` NULL or "": nobody's. */
void reads_changed(struct volume_service *service, int64_t node, const char *run);

/* ---- a run writes ---- */
/* ERR_STALE_READ: the volume refuses it. */
int reads_may_write(struct volume_service *service, const struct volume_ctx *ctx,
                    const struct index_volume *volume, struct err *err) MUST_CHECK;
/* In the transaction that makes the version: its mark, where there is something to say. `*marked`: an input has changed. */
struct reads_written {
    int64_t volume;
    const char *run, *version;
};
int reads_mark(struct volume_service *service, struct index_tx *tx,
               const struct reads_written *written, bool *marked, struct err *err) MUST_CHECK;

#endif
