#ifndef S3_URL_H
#define S3_URL_H

#include <stddef.h>

#include "base/err.h"

/*
 * The URL of a store, taken apart (RFC 3986). Pure. Error texts never hold the URL itself, which may carry a secret
 * that somebody put there by mistake: a user part ("s3://key:secret@bucket") is refused.
 */
#define URL_PARAMS 16

struct url_param {
    char *name;
    char *value; /* percent-decoded; '+' stays '+' */
};

struct url {
    char *scheme; /* lower case */
    char *host; /* between "//" and the next slash, percent-decoded, with its ":port"; "" when there is none */
    char *path; /* percent-decoded, with its leading slash; "" when there is none */
    struct url_param param[URL_PARAMS];
    size_t params;
};

/* ERR_USAGE for what is no URL, for a user part, a fragment, a bad escape, a parameter that comes twice. `out` is
 * released by the caller after success. */
int url_parse(const char *text, struct url *out, struct err *err) MUST_CHECK;
void url_release(struct url *url);
/* NULL when absent. */
const char *url_param(const struct url *url, const char *name);
/* ERR_USAGE naming the first parameter that is not in `known` (ends in NULL), and the known ones. */
int url_check_params(const struct url *url, const char *const *known, struct err *err) MUST_CHECK;

#endif
