#ifndef GATEWAY_EDIT_H
#define GATEWAY_EDIT_H

#include "base/json.h"
#include "gateway/exchange.h"
#include "volume/edit.h"

/* A JSON list of edits: objects with `new`, and `old` (`all` besides) or `at` (start, end). The texts stay the document's; *out is
 * the caller's to free. */
int gateway_edit_parse(const json_t *list, struct edit **out, size_t *count,
                       struct err *err) MUST_CHECK;

/* Operations of POST /v1/ops. */
int gateway_edit_op(struct exchange *x, const json_t *body, const struct volume_info *info,
                    struct err *err) MUST_CHECK;
int gateway_edit_copy(struct exchange *x, const json_t *body, const struct volume_info *info,
                      struct err *err) MUST_CHECK;

#endif
