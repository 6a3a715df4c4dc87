#include "base/parse.h"
#include "base/scope.h"
#include "base/unicode.h"
#include "volume/form_impl.h"

/* "u" with a dots-above mark and "ü" are one key there: of two such names the store would keep one object. */
int
form_check(struct volume_service *service, struct index_tx *tx, const struct volume_name *at,
           struct err *err)
{
    struct index_node taken;
    struct err ignored = ERR_INIT;
    scope_free char *composed = NULL;
    if (service->store->caps.any_bytes == STORE_NO && !utf8_valid(at->name, at->len))
        return err_set(err, ERR_BAD_NAME,
                       "this store keeps only names in UTF-8: give the file such a name");
    if (service->store->caps.folds_names != STORE_YES)
        return 0;
    if (unicode_compose(at->name, at->len, &composed, err) != 0)
        return -1;
    if (composed == NULL)
        return 0;
    if (index_node_child(tx, at->parent, composed, strlen(composed), &taken, &ignored) == 0)
        return err_set(
            err, ERR_EXISTS,
            "'%s' exists, and this store takes '%.*s' for the same name (it composes Unicode)",
            composed, (int)at->len, at->name);
    return err_set(
        err, ERR_BAD_NAME,
        "this store composes names (Unicode NFC): '%.*s' would come back as another one; "
        "use the composed form",
        (int)at->len, at->name);
}
