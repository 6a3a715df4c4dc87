#include "gateway/fsck.h"

#include "gateway/exchange.h"
#include "gateway/router.h"

#define FINDINGS_MAX 10000u /* in one document; the rest is counted */

struct collect {
    json_t *list;
    uint64_t more;
};

static int
add_finding(void *arg, const struct volume_finding *f, struct err *err)
{
    struct collect *collect = arg;
    if (json_array_size(collect->list) == FINDINGS_MAX) {
        collect->more++;
        return 0;
    }
    json_t *item = json_pack("{s:s, s:s, s:o, s:s, s:s, s:b, s:o}", "code", f->code, "volume",
                             f->volume, "where", json_bytes(f->where, strlen(f->where)), "what",
                             f->what, "repair", f->repair, "repaired", (int)f->repaired, "failed",
                             json_bytes(f->failed, strlen(f->failed)));
    return json_array_append_new(collect->list, item) < 0 ? err_nomem(err) : 0;
}

static json_t *
report_json(const struct volume_fsck_report *r, const struct collect *collect)
{
    return json_pack("{s:b, s:O, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:f}", "clean",
                     (int)(r->findings == 0), "findings", collect->list, "found",
                     (json_int_t)r->findings, "not_shown", (json_int_t)collect->more, "repaired",
                     (json_int_t)r->repaired, "objects", (json_int_t)r->objects, "unlisted",
                     (json_int_t)r->unlisted, "files", (json_int_t)r->files, "cached",
                     (json_int_t)r->contents, "bytes_read", (json_int_t)r->bytes_read, "unverified",
                     (json_int_t)r->unverified, "requests",
                     json_pack("{s:I, s:I, s:I}", "list", (json_int_t)r->lists, "head",
                               (json_int_t)r->heads, "get", (json_int_t)r->gets),
                     "seconds", (double)r->took_ns / 1e9);
}

int
gateway_fsck_run(struct volume_service *service, const struct gateway_fsck *call, json_t **out,
                 struct err *err)
{
    struct volume_info info = { .id = 0 };
    struct volume_fsck_report report;
    scope_json *list = json_array();
    struct collect collect = { .list = list };
    if (!list)
        return err_nomem(err);
    if (call->volume && volume_find(service, call->volume, &info, err) < 0)
        return -1;
    const struct volume_fsck_args args = { .volume = info.id,
                                           .full = call->full,
                                           .repair = call->repair,
                                           .fn = add_finding,
                                           .arg = &collect,
                                           .progress = call->progress,
                                           .progress_arg = call->progress_arg };
    if (volume_fsck(service, &args, &report, err) < 0)
        return -1;
    *out = report_json(&report, &collect);
    return *out ? 0 : err_nomem(err);
}

int
gateway_fsck_post(struct exchange *x, struct err *err)
{
    struct gateway_fsck call = { .volume = NULL };
    scope_json *body = NULL;
    json_t *out = NULL;
    if (x->body.len > 0) {
        body = exchange_json(x, err);
        if (!body || json_opt_str(body, "volume", &call.volume, err) < 0 ||
            json_opt_bool(body, "full", &call.full, err) < 0 ||
            json_opt_bool(body, "repair", &call.repair, err) < 0)
            return -1;
    }
    if (gateway_fsck_run(x->gateway->service, &call, &out, err) < 0)
        return -1;
    return exchange_reply_json(x, 200, out, err);
}
