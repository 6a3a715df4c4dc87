#ifndef MOUNT_BACKING_H
#define MOUNT_BACKING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "mount/helper_proto.h"

/*
 * How the files of one connection are open, and which of them the kernel reads and writes by itself (FUSE passthrough). The
 * kernel knows one mode per inode, which the first open decides; an open that does not fit fails with EIO after we have said
 * "ok" (docs/platform.md section 2). So every open is decided here, before its answer, and counted until its RELEASE, which
 * comes after the last mapping is gone. Thread safe; the mutex is a leaf.
 */
enum io_mode {
    IO_NONE,   /* nobody has it open: free to choose */
    IO_PASS,   /* passthrough, all with one id */
    IO_CACHED, /* the kernel keeps pages, the gateway serves */
    IO_DIRECT, /* the kernel keeps none, the gateway serves */
};
enum io_answer {
    IO_ANSWER_PASS,
    IO_ANSWER_CACHED,
    IO_ANSWER_DIRECT,
    IO_ANSWER_DIRECT_PASS, /* read and write come to the gateway, mappings go to the file of the id */
};
struct io_view {
    enum io_mode mode;
    bool lent;  /* the volume lends its bytes for this open, and an id is there */
    bool same;  /* IO_PASS: it is the file that the id stands for */
    bool pages; /* nobody writes the file past us, so pages stay true */
};
/* Pure. Never an answer that the kernel refuses. */
enum io_answer io_decide(const struct io_view *view);
/* Pure: the mode after this answer. */
enum io_mode io_mode_after(enum io_mode now, enum io_answer answer);

#define BACKING_KEPT 4096u /* ids of one connection, used or not */
#define BACKING_BUCKETS 1024u

/* A node that is open, or whose id is kept for the next time. */
struct backing {
    int64_t node;
    int64_t content; /* what `id` stands for */
    int32_t id;      /* 0: none */
    unsigned opens;
    enum io_mode mode;
    bool busy; /* an open is being decided */
    bool gone; /* the content file was removed: the id pins its space */
    struct backing *next_node, *next_content;
    struct backing *older, *newer; /* idle ones with an id */
};

struct backing_table {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct backing *by_node[BACKING_BUCKETS];
    struct backing *by_content[BACKING_BUCKETS];
    struct backing *oldest, *newest;
    size_t ids;    /* with the kernel, `dead` ones too */
    int32_t *dead; /* to be closed; BACKING_KEPT long */
    size_t dead_count;
};

int backing_table_init(struct backing_table *table, struct err *err) MUST_CHECK;
void backing_table_release(struct backing_table *table);
/* The right to decide about a node; waits while somebody else does. NULL: no memory. */
struct backing *backing_take(struct backing_table *table, int64_t node, struct err *err);
/* Ends that; with `answer` one more open is counted. */
void backing_put(struct backing_table *table, struct backing *backing);
void backing_put_open(struct backing_table *table, struct backing *backing, enum io_answer answer);
/* A new id for what one has taken, `*room` false: too many are in use. Make room first, then register it, then set it. */
bool backing_make_room(struct backing_table *table);
void backing_set_id(struct backing_table *table, struct backing *backing, int64_t content,
                    int32_t id);
/* RELEASE, or an open that did not come about. */
void backing_release(struct backing_table *table, int64_t node);
/* The content file was removed. */
void backing_gone(struct backing_table *table, int64_t content);
/* Gives up the ids that nobody uses. */
void backing_forget_idle(struct backing_table *table);
/* Takes up to `max` ids that are to be closed; backing_closed() when they are. */
size_t backing_take_dead(struct backing_table *table, int32_t *out, size_t max);
void backing_closed(struct backing_table *table, size_t count);
size_t backing_count(struct backing_table *table);

#endif
