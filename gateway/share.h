#ifndef GATEWAY_SHARE_H
#define GATEWAY_SHARE_H

#include "base/buf.h"
#include "base/limits.h"

/* Pure: what a shared file is sent as. */

/* The media type by the name's extension: of a short list, none of which a browser runs; "application/octet-stream" for the rest. */
const char *gateway_share_type(const char *name);
/* RFC 6266 with RFC 8187: "attachment; filename=...; filename*=UTF-8''...", or "inline; ...". */
int gateway_share_disposition(const char *name, bool show, struct buf *out,
                              struct err *err) MUST_CHECK;

/* The thread that removes ended links and their copies. NULL on failure. */
struct gateway;
struct ticker *gateway_share_sweeper(struct gateway *gateway, struct err *err);

#endif
