#ifndef SUPPORT_CRASH_TALE_H
#define SUPPORT_CRASH_TALE_H

#include "base/clock.h"
#include "support/crash/rig.h"
#include "volume/history.h"

/*
 * Tales: rows of changes to a volume and its past, with what has to be there behind each. What was done is written into memory
 * that the judge shares, so that a tale can be killed anywhere. Contents have names; a name means the same bytes everywhere, and
 * each name is written once.
 */
enum tale_do {
    TALE_END,
    TALE_SAVE,   /* path gets content `other`, through a mount's calls */
    TALE_PUT,    /* the same, as HTTP does: promised when it is answered */
    TALE_REMOVE, /* a file */
    TALE_MKDIR,
    TALE_MOVE,    /* path to other */
    TALE_FLUSH,   /* all of it is in the bucket */
    TALE_RUN,     /* what follows is done by run `other` */
    TALE_MOMENT,  /* its time and tree are remembered under `moment` */
    TALE_BACK,    /* file `path` back to content `other` */
    TALE_BACK_TO, /* file or folder `path` back to `moment` */
    TALE_UNDO, /* run `path`; what lies below folder `other` was changed since, the rest is as at `moment` */
    TALE_PRUNE,    /* 40 days later: contents of which `other` names one are gone */
    TALE_SNAPSHOT, /* `other`; `moment` as TALE_MOMENT */
    TALE_UNSNAPSHOT,
};
struct tale_op {
    enum tale_do what;
    const char *path, *other;
    unsigned moment;
};
#define TALE_OPS 20u
struct tale {
    const char *name;
    bool weak;                      /* the store ignores the conditions of COPY and DELETE */
    struct tale_op begin[TALE_OPS]; /* not killed; all of it is in the bucket then */
    struct tale_op act[TALE_OPS];
};
extern const struct tale tales[];
extern const unsigned tale_count;

/* ---- what has to be there ---- */
#define TALE_PATHS 16u
#define TALE_MOMENTS 4u
struct tale_tree {
    struct {
        char path[48];
        const char *content; /* "/" for a folder */
    } entry[TALE_PATHS];
    unsigned count;
};
struct tale_model {
    struct tale_tree now, moment[TALE_MOMENTS];
    const char *snapshot[TALE_MOMENTS]; /* by moment, NULL: none */
    struct {
        const char *content;
        bool staged; /* the bucket has it behind the next barrier only */
    } kept[32];      /* present or not */
    unsigned kept_count;
};
/* After the beginning and `acts` steps. */
void tale_model_after(const struct tale *tale, unsigned acts, struct tale_model *out);
const char *tale_tree_find(const struct tale_tree *tree, const char *path); /* NULL: absent */
/* Whether a kill may leave some of a step's changes. */
bool tale_is_many(const struct tale_op *op);
unsigned tale_acts(const struct tale *tale);

/* The bytes of a content; caller frees. */
uint8_t *tale_bytes(const char *content, size_t *len);
/* The content that these are, whole; false: they are none. */
bool tale_content_of(const uint8_t *data, size_t len, char out[16]);

/* ---- doing it ---- */
struct tale_ledger {
    unsigned begun, done; /* acts */
    int64_t at_ns[TALE_MOMENTS];
    /* What happened, for the printed counts. */
    unsigned long checks, twice, held, swept, torn;
};
struct tale_life {
    const struct rig *rig;
    const struct tale *tale;
    struct tale_ledger *ledger;
    struct volume_service *service;
    int64_t volume;
};
#define TALE_VOLUME "tale"
void tale_open(struct tale_life *life);
void tale_begin(struct tale_life *life);
/* From the step that ledger->done says. `again`: that one may have been done already, in part. */
void tale_act(struct tale_life *life, bool again);
/* Starts the service anew when a barrier is held up by what a dead one asked for. */
void tale_flush(struct tale_life *life);
/* From now on it is 40 days later, as TALE_PRUNE wants; before tale_open(). */
void tale_later(void);

/* ---- the verdict, in a process of its own ---- */
/* The bucket before anything runs again; then the service is started, drained and compared; then the tale is brought to its end,
 * its last step once more, and compared again. What is broken is told by rig_break(). */
void tale_judge(const struct rig *rig, const struct tale *tale, struct tale_ledger *ledger);

#endif
