#ifndef VOLUME_STEP_IMPL_H
#define VOLUME_STEP_IMPL_H

#include "volume/service_impl.h"

/* What step.c, step_request.c and step_bytes.c share: the work on one key, with one worker at a time. */

struct step {
    struct volume_service *service;
    int64_t volume;
    const char *key;
    struct key_view kv;
    struct sync_decision decision;
    struct sync_attempt late[SYNC_LATE_PER_KEY];
    size_t late_count;
    /* inputs of the next transaction */
    struct sync_answer answer;
    struct object_attrs attrs;
    bool has_attrs;
    struct sync_effect effect;
    struct drop_list drop;
    struct meta meta;  /* of the PUT that begins */
    bool decided;      /* the last transaction found out the next step already */
    bool begun;        /* and put its attempt into the index */
    bool done;         /* nothing left for now */
    bool settled;      /* the work item is gone */
    bool more;         /* other keys may have work now */
    int64_t lost_node; /* whose bytes cannot be fetched any more */
    /* the content row that the last transaction made CLEAN, 0: none */
    int64_t cleaned, cleaned_node;
    char error[160];
    char upload_id[INDEX_UPLOAD_ID]; /* of the PUT that was sent last, "": not in parts */
    char sha256[SHA256_HEX], md5[MD5_HEX];
    char park_key[LIMIT_KEY + 1];
    char park_etag[LIMIT_ETAG];
};

/* step.c: index functions and their commit; the argument is a struct step. */
int step_decide_tx(struct index_tx *tx, void *arg, struct err *err) MUST_CHECK;
/* Ends a transaction about the key: decides anew; a work item with nothing to do goes, a request that needs nothing else first
 * gets its attempt row. */
int step_advance(struct step *step, struct index_tx *tx, struct err *err) MUST_CHECK;
int step_commit(struct step *step, index_fn *fn, struct err *err) MUST_CHECK;
/* The same for a function with an argument of its own. */
int step_commit_arg(struct step *step, index_fn *fn, void *arg, struct err *err) MUST_CHECK;
/* The same when a version may lose its name here: its bytes may be the only ones, so they are on the disk before the name shows
 * anything else. */
int step_commit_loser(struct step *step, index_fn *fn, struct err *err) MUST_CHECK;
/* The attempt of what was decided goes into the index, unless the store wants no write of the key yet: step->begun. */
int step_begin(struct step *step, struct index_tx *tx, struct err *err) MUST_CHECK;
/* Judges step->answer, changes the rows and decides anew. */
int step_judge_tx(struct index_tx *tx, void *arg, struct err *err) MUST_CHECK;
/* The store or the disk does not do it now: the key backs off, with the reason in its row. */
int step_give_up(struct step *step, const struct err *why, struct err *err) MUST_CHECK;

/* step_request.c: each does one action of sync_decide(). */
int step_request_look(struct step *step, struct err *err) MUST_CHECK;
int step_request_put(struct step *step, struct err *err) MUST_CHECK;
int step_request_delete(struct step *step, struct err *err) MUST_CHECK;

/* sync.c: a write of the key ended now. And until when (wall) the store wants no other one; 0: it may be sent. */
void sync_wrote(struct volume_service *service, const char *key);
int64_t sync_paced_until(struct volume_service *service, const char *key);

/* step_bytes.c: each does one action of sync_decide(). */
int step_bytes_hash(struct step *step, struct err *err) MUST_CHECK;
int step_bytes_fetch(struct step *step, int64_t node, struct err *err) MUST_CHECK;
int step_bytes_prepare(struct step *step, struct err *err) MUST_CHECK;
int step_bytes_park(struct step *step, struct err *err) MUST_CHECK;
/* All bytes of a node into the cache; does not give up by itself. */
int step_bytes_bring(struct step *step, int64_t node, struct err *why) MUST_CHECK;
/* Open programs hold the same content file: their idea of its state follows. */
void step_bytes_settled(struct volume_service *service, int64_t node, int64_t content,
                        enum content_state state);

#endif
