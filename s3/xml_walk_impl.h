#ifndef S3_XML_WALK_IMPL_H
#define S3_XML_WALK_IMPL_H

#include <expat.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* What the parsers of S3's documents share (xml.c, xml_multi.c). Pure. */

#define XML_DEPTH_MAX 16
#define XML_NAME_MAX 64

/*
 * A document is walked once; `text` gathers the characters of the innermost element, and at its end the document's own
 * handler sees the path of element names and the text.
 */
struct xml_walk {
    XML_Parser parser;
    char name[XML_DEPTH_MAX][XML_NAME_MAX];
    unsigned depth;
    struct buf text;
    struct err *err;
    bool failed; /* err is set */
    int (*begin)(struct xml_walk *walk, const char *name);
    int (*end)(struct xml_walk *walk, const char *name, const char *text);
    void *out;
};
/* Blanks before the document, which keep a connection alive, are passed over. */
int xml_walk_run(struct xml_walk *walk, const void *data, size_t len) MUST_CHECK;
/* Is the innermost element directly below the root `root`? */
bool xml_walk_below_root(const struct xml_walk *walk, const char *root);
/*
 * Stores echo the prefix asked for, and RGW does so without encoding it, with characters that XML cannot hold. Those
 * become '?' in `out`: the keys themselves come url-encoded, which the caller insists on when `changed` says so.
 */
int xml_walk_clean(const char *data, size_t len, struct buf *out, bool *changed,
                   struct err *err) MUST_CHECK;
/* Keys are form-encoded by some stores (blank as +); a plus itself is %2B in all of them. Replaces *text. */
int xml_walk_decode_key(char **text, struct err *err) MUST_CHECK;

#endif
