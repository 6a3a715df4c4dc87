#include "s3/open.h"

struct store *
s3_store_open(const struct store_open_args *args, struct err *err)
{
    err_set(err, ERR_UNSUPPORTED, "cannot open '%s': s3:// stores are not built yet", args->url);
    return NULL;
}
