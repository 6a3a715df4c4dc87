#include <stdio.h>
#include <string.h>

#include "base/ulid.h"
#include "gateway/router.h"
#include "volume/audit.h"
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

/* What a run executes, or how that ended: told by who starts it. */
int
gateway_runs_note(struct exchange *x, struct err *err)
{
    static const char *const known[] = { "verb", "command", "status", NULL };
    const char *verb, *command = NULL;
    int64_t status = -1;
    char detail[32] = "";
    struct volume_ctx ctx;
    scope_json *body = exchange_json(x, err);
    if (!ulid_valid(x->name))
        return err_set(err, ERR_INVAL, "a run's id is a ULID");
    if (!body || exchange_known_fields(body, known, err) < 0 ||
        json_need_str(body, "verb", &verb, err) < 0 ||
        json_opt_str(body, "command", &command, err) < 0 ||
        json_opt_int(body, "status", &status, err) < 0)
        return -1;
    if (strcmp(verb, "exec") != 0 && strcmp(verb, "exit") != 0)
        return err_set(err, ERR_INVAL, "verb must be 'exec' or 'exit'");
    if (status >= 0)
        (void)snprintf(detail, sizeof(detail), "status %lld", (long long)status);
    exchange_ctx(x, 0, &ctx);
    ctx.run = x->name;
    volume_audit_act(
        x->gateway->service, &ctx,
        (struct audit_record){ .verb = verb, .command = command, .detail = detail, .bytes = -1 });
    x->reply.status = 204;
    return 0;
}
