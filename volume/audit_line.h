#ifndef VOLUME_AUDIT_LINE_H
#define VOLUME_AUDIT_LINE_H

#include "base/hash.h"
#include "volume/audit.h"

/*
 * One record as a line: `{"seq":1,"time":"...",...,"prev":"HEX","hash":"HEX"}`. `hash` is the SHA-256 of the line's bytes before
 * `,"hash":"`, `prev` the hash of the record before (64 zeros in the first one). Pure.
 */
struct audit_link {
    uint64_t seq;
    char prev[SHA256_HEX], hash[SHA256_HEX];
    char time[40];
};
/* Appends the line and its newline; `link` has the last record's seq and hash, and gets this one's. */
int audit_line_print(const struct audit_record *record, int64_t time_ns, struct audit_link *link,
                     struct buf *out, struct err *err) MUST_CHECK;
/* Reads what links a line (without its newline), and whether its hash is that of its bytes. ERR_CORRUPT with what is wrong. */
int audit_line_check(const char *line, size_t len, struct audit_link *out,
                     struct err *err) MUST_CHECK;

/* Goes through the lines of a segment. */
struct audit_walk {
    struct audit_link last; /* of the record before; seq 0 and a hash of zeros: none */
    bool open;              /* the last line may be cut: it is left out, `rest` bytes long */
    size_t rest;
    uint64_t records;
    /* `fault` NULL: the line is right. */
    int (*fn)(void *arg, const struct audit_link *link, const char *line, size_t len,
              const char *fault, struct err *err);
    void *arg;
};
void audit_walk_init(struct audit_walk *walk);
int audit_walk_lines(struct audit_walk *walk, const char *data, size_t len,
                     struct err *err) MUST_CHECK;

#endif
