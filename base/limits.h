#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

/* Every maximum of the project in one place. Sizes are bytes unless the name says otherwise. */

/* Names: Linux NAME_MAX; S3 key length (docs/design.md INV-12). */
#define LIMIT_NAME 255
#define LIMIT_KEY 1024
#define LIMIT_PATH 1024
#define LIMIT_VOLUME_NAME 63
#define LIMIT_PATH_DEPTH 256
#define LIMIT_LABEL 64 /* what people call a token or a link */

/* One error message, one log line. */
#define LIMIT_ERR_MSG 384
#define LIMIT_LOG_LINE 4096

/* S3 answers. AWS allows 2 KiB of user metadata; a listing page of 1,000 keys stays below 4 MiB. */
#define LIMIT_ETAG 256 /* parts at R2 have 171 */
#define LIMIT_META_ENTRIES 32
#define LIMIT_META_BYTES 8192
#define LIMIT_EXTRA 4096 /* what others wrote with an object, kept for its next PUT */
#define LIMIT_XATTRS \
    65536 /* extended attributes of a node, names and values; the kernel's own limit for one value */
#define LIMIT_HTTP_HEADERS 65536
#define LIMIT_XML_BODY (8u << 20)
#define LIMIT_LIST_PAGE 1000
#define LIMIT_PUT_BODY (5ull << 30)

/* Files. */
#define LIMIT_FILE_SIZE (5ull << 40)
#define LIMIT_SYMLINK 4096
#define LIMIT_LINKS 1000 /* names of one file */
#define CACHE_BLOCK_SIZE (1u << 20)
#define LIMIT_MERGE (4u << 20) /* of each text that is compared or merged */

/* JSON and configuration documents that we read whole. */
#define LIMIT_JSON_DOC (4u << 20)
#define LIMIT_CONFIG_FILE (256u << 10)

/* HTTP server. */
#define LIMIT_HTTP_TARGET 8192
#define LIMIT_HTTP_CONNECTIONS 512
#define LIMIT_HTTP_CONNECTIONS_PER_ADDRESS 256

/* Requests parked while a worker waits for the store or the disk (docs/mechanisms.md section 9). */
#define LIMIT_PARKED 4096

/* Ranges that programs hold locked, and programs that wait for one (ENOLCK): these are parked, too. */
#define LIMIT_LOCKS 16384
#define LIMIT_LOCK_WAITS 1024

#endif
