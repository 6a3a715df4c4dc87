#ifndef VOLUME_AUDIT_IMPL_H
#define VOLUME_AUDIT_IMPL_H

#include "base/ticker.h"
#include "volume/audit_line.h"
#include "volume/service_impl.h"

/* What audit.c, audit_segments.c, audit_send.c and audit_read.c share. */

#define AUDIT_SEGMENT_MAX (4u << 20)       /* a segment is closed beyond it */
#define AUDIT_SEGMENT_ROOM (64u << 20)     /* more is none of ours */
#define AUDIT_SEGMENT_AGE (600 * NS_PER_S) /* or when it is so old */
#define AUDIT_NAME_SIZE 40                 /* 16 digits, ".jsonl.zst" */

/* ---- audit_segments.c: files of STATE/audit. Pure but for the files ---- */
struct audit_segment {
    uint64_t first; /* the number of its first record */
    bool packed;    /* .jsonl.zst */
};
struct audit_segments {
    struct audit_segment *item; /* in order */
    size_t count, cap;
};
void audit_segment_name(const struct audit_segment *segment, char out[AUDIT_NAME_SIZE]);
/* False: no segment's name. */
bool audit_segment_parse(const char *name, struct audit_segment *out);
int audit_segments_add(struct audit_segments *list, const struct audit_segment *segment,
                       struct err *err) MUST_CHECK;
void audit_segments_sort(struct audit_segments *list); /* also: a packed one hides its plain twin */
void audit_segments_release(struct audit_segments *list);
int audit_segments_list(int dir, struct audit_segments *out, struct err *err) MUST_CHECK;
/* Its lines; the caller frees *data. */
int audit_segment_read(int dir, const struct audit_segment *segment, char **data, size_t *len,
                       struct err *err) MUST_CHECK;
/* A closed plain one becomes a packed one. */
int audit_segment_pack(int dir, const struct audit_segment *segment, struct err *err) MUST_CHECK;
/* zstd, of at most AUDIT_SEGMENT_ROOM bytes; the caller frees *data. */
int audit_unpack(const void *packed, size_t packed_len, char **data, size_t *len,
                 struct err *err) MUST_CHECK;

/* ---- audit.c ---- */
struct audit;
int audit_open(struct volume_service *service, struct err *err) MUST_CHECK;
int audit_start(struct volume_service *service, struct err *err) MUST_CHECK;
void audit_stop(struct volume_service *service);
void audit_close(struct volume_service *service);
int audit_dir(const struct audit *audit);
const char *audit_chain(const struct audit *audit); /* its folder in the bucket */
/* The number of the first record of the segment that is being written. */
uint64_t audit_current(struct audit *audit);
/* What is on the disk for sure, so far: 0 when nothing new is. */
int audit_sync(struct audit *audit, struct audit_link *head, struct err *err) MUST_CHECK;
void audit_written(struct audit *audit, struct audit_link *head);

/* ---- audit_send.c: packs and sends what is closed; remembers the head ---- */
void audit_end(struct volume_service *service); /* once all is written */
/* The first record of the last segment that the bucket has, 0: none. */
int audit_sent_get(struct volume_service *service, uint64_t *out, struct err *err) MUST_CHECK;
int64_t audit_tick(void *arg); /* a ticker's function; `arg` is the service */
int audit_head_get(struct volume_service *service, struct audit_link *out,
                   struct err *err) MUST_CHECK; /* seq 0: none is remembered */
void audit_key(const struct audit *audit, const struct audit_segment *segment,
               char out[LIMIT_KEY + 1]);

#endif
