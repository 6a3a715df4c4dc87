#ifndef TESTS_FAULT_SERVER_OBJECTS_H
#define TESTS_FAULT_SERVER_OBJECTS_H

#include "tests/fault/server/server.h"

/* What the files of the S3 calls share. Everything here wants the one lock of objects_handle(). */

#define ETAG_SIZE 48

/* What a listing shows of a key. */
struct view {
    bool there;
    uint64_t size;
    char etag[ETAG_SIZE];
    int64_t modified_ns;
};
struct object {
    char *key;
    struct content *content; /* NULL: deleted, kept for ROLE_LYING_LIST */
    char *head;              /* Content-Type and x-amz-meta-* lines */
    struct view now, before;
    int64_t changed_ns; /* monotonic; when `before` ended to be true */
    unsigned changed_list;
};

extern struct mode objects_modes;

/* ---- table.c: the objects, sorted by key ---- */

struct object *table_find(const char *key); /* NULL when absent or deleted */
size_t table_count(void);
struct object *table_at(size_t i);
/* Takes `content`; copies the texts. */
struct object *table_store(const char *key, struct content *content, const char *etag,
                           const char *head);
void table_erase(const char *key);
void table_clear(void);
/* As a listing of now shows the key, which may be a lie. */
const struct view *table_view(const struct object *object);
/* A listing begins: old lies end. */
void table_listed(void);

/* ---- objects.c ---- */

/* Headers to be kept with an object. */
void objects_kept_head(const struct request *request, struct buf *out);
/* 0: go on; else the status of the refusal (404, 412, 501). */
int objects_judge(const struct request *request, const char *op, const struct object *object);
void objects_refuse(struct reply *reply, int status);
void objects_etag(struct reply *reply, const char *etag, struct hit hit);
/* The object of x-amz-copy-source, judged by its condition; NULL: the reply is filled. */
struct object *objects_copy_source(const struct request *request, const char *op,
                                   struct reply *reply);
bool objects_md5_fits(const struct request *request, struct reply *reply);
/* False: the reply is filled with 429. */
bool objects_may_write(const char *key, struct reply *reply);
void objects_result_date(struct reply *reply, const char *name, int64_t ns);

/* ---- list.c ---- */

void list_objects(const struct request *request, struct hit hit, struct reply *reply);

/* ---- batch.c ---- */

void batch_delete(const struct request *request, struct hit hit, struct reply *reply);
/* The text of the next <name> element at or after *at, unescaped into `out`; false when there is none. */
bool document_next(const char **at, const char *name, char *out, size_t size);

/* ---- multipart.c ---- */

/* CREATE, PART, PARTCOPY, COMPLETE, ABORT, UPLOADS, PARTS; false for other words. */
bool multipart_handle(const struct request *request, const char *op, struct hit hit,
                      struct reply *reply);
void multipart_clear(void);

#endif
