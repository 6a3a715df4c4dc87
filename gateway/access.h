#ifndef GATEWAY_ACCESS_H
#define GATEWAY_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/ulid.h"

/*
 * Who asks, and what they may. The owner (the local socket, STATE/token, a session) may do everything; a token what its verbs say, in
 * its volume and below its folder only. What a route needs stands in the router's table; the default is nobody. Pure but for
 * gateway_access_begin() and gateway_access_body().
 */
enum gateway_verb {
    GATEWAY_READ = 1,
    GATEWAY_WRITE = 2,
    GATEWAY_DELETE = 4,
    GATEWAY_SHARE = 8,
    GATEWAY_MOUNT = 16,
    GATEWAY_EXEC = 32,
    GATEWAY_ADMIN = 64,
    GATEWAY_EVERYTHING = 127,
};
/* The verb of a word; 0: there is none. */
unsigned gateway_verb_parse(const char *word, size_t len);
/* ["read", "write"]; NULL without memory. */
json_t *gateway_verbs_json(unsigned verbs);

enum gateway_who {
    GATEWAY_NOBODY,
    GATEWAY_LOCAL,   /* over STATE/holdfast.sock */
    GATEWAY_OWNER,   /* with the content of STATE/token */
    GATEWAY_SESSION, /* a browser of the owner */
    GATEWAY_TOKEN,
};
struct gateway_access {
    enum gateway_who who;
    unsigned verbs;
    int64_t volume; /* 0: all; the rest is "" then */
    char volume_name[LIMIT_VOLUME_NAME + 1];
    char folder[LIMIT_PATH + 1]; /* "": the whole volume */
    char id[ULID_SIZE];          /* of a token */
    char label[LIMIT_LABEL + 1];
    char run[64];                /* of a token that is bound to one */
    char actor[LIMIT_LABEL + 8]; /* what history and audit say */
    int64_t expires_ns;          /* wall, 0: never */
};
/* All that the owner may. */
void gateway_access_all(enum gateway_who who, struct gateway_access *out);
bool gateway_access_is_owner(const struct gateway_access *access);
/* ERR_DENIED, naming the first verb that is missing. */
int gateway_access_may(const struct gateway_access *access, unsigned verbs,
                       struct err *err) MUST_CHECK;
/* ERR_DENIED unless the path (normal form, "" is the volume) lies where the token reaches. Whether it exists is not asked. */
int gateway_access_reaches(const struct gateway_access *access, const char *volume,
                           const char *path, struct err *err) MUST_CHECK;
/* The same for lists, which leave out what is not to be seen. */
bool gateway_access_sees(const struct gateway_access *access, int64_t volume, const char *path);
/* What the token reaches in its volume, for calls that take a folder; NULL: everything. */
const char *gateway_access_within(const struct gateway_access *access);

/* ---- what a route needs ---- */
enum gateway_scope {
    GATEWAY_SCOPE_NOBODY, /* a route that does not say has this */
    GATEWAY_SCOPE_OPEN,   /* without a login */
    GATEWAY_SCOPE_SELF,   /* with any login: it tells about that login only */
    GATEWAY_SCOPE_PATH,   /* volume and path of the address */
    GATEWAY_SCOPE_VOLUME, /* all of the address's volume: not for a token of a folder */
    GATEWAY_SCOPE_PREFIX, /* the address's volume below `?prefix=` */
    GATEWAY_SCOPE_BODY,   /* the body's "volume", and each path in the fields that `fields` names */
    GATEWAY_SCOPE_OPS,    /* the same, and the body's "op" says which verbs */
    GATEWAY_SCOPE_LIST,   /* `?volume=`; the handler shows what gateway_access_sees() */
    GATEWAY_SCOPE_CONFLICT, /* where the conflict of the address lies; another one is ERR_NOT_FOUND */
    GATEWAY_SCOPE_MOUNT,    /* where the mount of the address shows; another one is ERR_NOT_FOUND */
    GATEWAY_SCOPE_LINK,     /* the handler says ERR_NOT_FOUND of what gateway_access_sees() not */
    GATEWAY_SCOPE_GATEWAY, /* all volumes: not for a token of one */
    GATEWAY_SCOPE_OWNER,   /* no token may */
};
struct gateway_need {
    enum gateway_scope scope;
    unsigned verbs;
    const char *fields; /* of the body, with commas; "_hex" at the end: in hexadecimal */
};
struct exchange;
/* What can be told by the address, before the body is read. */
int gateway_access_begin(struct exchange *x, struct err *err) MUST_CHECK;
/* What only the body tells; before the handler sees it. */
int gateway_access_body(struct exchange *x, struct err *err) MUST_CHECK;
/* The volume and each of the `fields` of a body are in reach. For a folder's token at least one path has to be named. */
int gateway_access_fields(const struct gateway_access *access, const json_t *body,
                          const char *fields, struct err *err) MUST_CHECK;
/* What an operation of POST /v1/ops needs; everything for one that is not known. */
unsigned gateway_access_op(const char *op);

#endif
