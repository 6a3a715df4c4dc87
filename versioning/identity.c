#include "versioning/identity.h"

#include <string.h>
#include <strings.h>

#include "versioning/rules.h"

bool
identity_etag_is_md5(const char *etag)
{
    return strlen(etag) == MD5_HEX - 1 && strspn(etag, "0123456789abcdefABCDEF") == MD5_HEX - 1;
}

/* An MD5-shaped ETag must be the MD5. S3 gives such ETags that are none under SSE-KMS: then the id is not believed
 * without the recorded ETag, which costs a conflict copy and never bytes. */
static bool
etag_agrees(const char *etag, const char *md5)
{
    return !identity_etag_is_md5(etag) || strcasecmp(etag, md5) == 0;
}

bool
identity_believed(const struct observed *seen, const char *recorded_etag)
{
    if (!seen->present || seen->version[0] == '\0')
        return false;
    if (!sync_rule_on(RULE_BELIEVED))
        return true;
    if (recorded_etag != NULL && recorded_etag[0] != '\0' && strcmp(seen->etag, recorded_etag) == 0)
        return true;
    return seen->has_version_size && seen->version_size == seen->size &&
           etag_agrees(seen->etag, seen->md5);
}

bool
identity_landed(const struct observed *seen, const char *version, uint64_t size, const char *md5)
{
    if (!seen->present || version[0] == '\0' || strcmp(seen->version, version) != 0)
        return false;
    if (!sync_rule_on(RULE_LANDED))
        return true;
    if (seen->size != size)
        return false;
    if (md5[0] == '\0')
        return true;
    if (identity_etag_is_md5(seen->etag))
        return strcasecmp(seen->etag, md5) == 0;
    return seen->md5[0] == '\0' || strcasecmp(seen->md5, md5) == 0;
}
