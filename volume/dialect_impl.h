#ifndef VOLUME_DIALECT_IMPL_H
#define VOLUME_DIALECT_IMPL_H

#include "volume/service_impl.h"

/*
 * dialect.c: what single clients write about a file beside the convention of object.c, and like to find there. s3cmd keeps
 * everything in one value: x-amz-meta-s3cmd-attrs: mode:33188/mtime:1700000000/uid:0/gid:0/md5:... (s3cmd(1), --preserve).
 */

/* Fills what the convention's own names did not tell. */
void dialect_read(const struct meta *meta, struct object_attrs *attrs);
/* Adds s3cmd's value. */
int dialect_write(const struct index_node *node, const struct index_content *content,
                  struct meta *out, struct err *err) MUST_CHECK;
/* By the kind and the name: "application/x-directory" for a marker (as s3fs), "application/octet-stream" when unknown. */
const char *dialect_content_type(const struct index_node *node);

#endif
