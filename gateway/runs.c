#include "base/ulid.h"
#include "gateway/router.h"
#include "volume/reads.h"

/* What the gateway remembers of a run. */

int
gateway_runs_show(struct exchange *x, struct err *err)
{
    struct volume_run_reads reads;
    if (!ulid_valid(x->name))
        return err_set(err, ERR_INVAL, "a run's id is a ULID");
    volume_reads_of(x->gateway->service, x->name, &reads);
    return exchange_reply_json(
        x, 200,
        json_pack("{s:s, s:b, s:b, s:I, s:I, s:I, s:I}", "id", x->name, "known", (int)reads.known,
                  "complete", (int)reads.complete, "inputs", (json_int_t)reads.inputs, "changed",
                  (json_int_t)reads.changed, "marked", (json_int_t)reads.marked, "refused",
                  (json_int_t)reads.refused),
        err);
}
