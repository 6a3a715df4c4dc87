#ifndef S3_XML_H
#define S3_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The three documents that S3 answers with, parsed with expat. Names are compared without their namespace, since stores
 * differ in it; documents with a DOCTYPE are refused. Pure.
 */

/* <Error>: every field is "" when absent; too long values are cut. */
struct xml_error {
    char code[64];
    char message[256];
    char region[64];
};
/* Answers whether `data` is an error document (false also for no XML at all), and fills `out` then. */
bool xml_error_parse(const void *data, size_t len, struct xml_error *out);

/* One page of ListObjectsV2. Texts are XML-unescaped and, when the page says encoding-type url, percent-decoded. */
struct xml_list_entry {
    char *key;
    char *etag; /* NULL for a common prefix; without quotes */
    bool is_prefix;
    uint64_t size;
    int64_t last_modified_ns;
};
struct xml_list {
    struct xml_list_entry
        *entry; /* contents and common prefixes merged in bytewise order of the keys */
    size_t count;
    bool truncated;
    char *next_token; /* NULL when absent */
};
void xml_list_init(struct xml_list *list);
void xml_list_release(struct xml_list *list);
/* ERR_STORE_BAD_ANSWER for anything but a whole ListBucketResult: missing fields, bad numbers, unsorted keys. */
int xml_list_parse(const void *data, size_t len, struct xml_list *out, struct err *err) MUST_CHECK;

/* <CopyObjectResult>; the ETag without quotes. An <Error> or anything else is ERR_STORE_BAD_ANSWER. */
int xml_copy_parse(const void *data, size_t len, char etag[LIMIT_ETAG], struct err *err) MUST_CHECK;

/* The opaque value of an ETag header or element: blanks, "W/" and quotes taken off. -1 when empty or too long. */
int etag_strip(const char *text, char out[LIMIT_ETAG]);

#endif
