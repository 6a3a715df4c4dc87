#ifndef VOLUME_EXTRA_IMPL_H
#define VOLUME_EXTRA_IMPL_H

#include "volume/service_impl.h"

/*
 * extra.c: what others wrote with an object and Holdfast has no use for (user metadata of theirs, Content-Type, Cache-Control
 * and the like), kept so that chmod or an edit sends it again. One line each, "name<TAB>value"; "~name" is a header of the
 * object's own (s3/meta.h). What does not fit LIMIT_EXTRA is left out, with a line in the log. The lines of extended attributes (volume/xattr.h) travel the same way and are
 * kept apart.
 */

/* `text` holds LIMIT_EXTRA + 1; "" when there is nothing. `node`: whose object it is. */
void extra_collect(const struct store_object *object, const struct index_node *node, char *text);
/* Becomes what is known of the node; extended attributes go into their own table. */
int extra_save(struct index_tx *tx, int64_t node, const char *text, struct err *err) MUST_CHECK;
/* Adds it to the metadata of the node's next PUT; a name of ours that is set already stays. */
int extra_add(const struct volume_service *service, struct index_tx *tx, int64_t node,
              struct meta *meta, struct err *err) MUST_CHECK;
/* Takes the type out of the metadata, where somebody chose one; else `type`. */
const char *extra_content_type(const struct meta *meta, const char *type);
/* New bytes that are not compressed do not say that they are. `fd`: of the bytes that will be sent, -1: none. */
int extra_check_encoding(struct meta *meta, int fd, struct err *err) MUST_CHECK;

#endif
