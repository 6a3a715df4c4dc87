#ifndef VERSIONING_IDENTITY_H
#define VERSIONING_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/ulid.h"

/*
 * Identity of a version (docs/mechanisms.md section 4): the pair (version id, ETag), never the id alone, because other
 * clients carry our metadata along when they rewrite or copy an object. Pure.
 */

/* What a HEAD, GET or LIST told about the object at a key. Fields of ours are "" when the object has none. */
struct observed {
    bool present;
    char etag[LIMIT_ETAG];
    uint64_t size;
    char version[ULID_SIZE]; /* holdfast-version */
    bool has_version_size;
    uint64_t version_size;   /* holdfast-size */
    char md5[MD5_HEX];       /* holdfast-md5 */
    char sha256[SHA256_HEX]; /* holdfast-sha256 */
    char node[ULID_SIZE];    /* holdfast-node */
    char base[ULID_SIZE];    /* holdfast-base */
    uint64_t epoch;          /* holdfast-epoch, 0 when absent */
};

/* Whether the id in the metadata may be believed: the size agrees and, for an MD5-shaped ETag, md5 agrees; or the ETag
 * is `recorded_etag` ("" or NULL: none recorded). */
bool identity_believed(const struct observed *seen, const char *recorded_etag);

/* INV-10: did the PUT of (version, size, md5) land here? `md5` is hex; "" when unknown (then size and id decide). */
bool identity_landed(const struct observed *seen, const char *version, uint64_t size,
                     const char *md5);

/* 32 hexadecimal digits: may be an MD5 of the bytes. */
bool identity_etag_is_md5(const char *etag);

#endif
