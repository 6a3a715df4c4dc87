#include "mount/session_record.h"

#include <string.h>

static const char magic[8] = { 'h', 'f', 'm', 'o', 'u', 'n', 't', '1' };

void
session_record_begin(struct session_record *record)
{
    memset(record, 0, sizeof(*record));
    memcpy(record->magic, magic, sizeof(magic));
}

int
session_record_read(const void *data, size_t len, struct session_record *out, struct err *err)
{
    if (len != sizeof(*out) || memcmp(data, magic, sizeof(magic)) != 0)
        return err_set(err, ERR_NEWER_FORMAT, "the mount was made by another version of holdfast");
    memcpy(out, data, sizeof(*out));
    if (out->init_len == 0 || out->init_len > sizeof(out->init) ||
        memchr(out->index_uuid, '\0', sizeof(out->index_uuid)) == NULL)
        return err_set(err, ERR_CORRUPT, "the record of a mount is damaged");
    return 0;
}
