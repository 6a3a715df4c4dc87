#ifndef VERSIONING_SYNC_H
#define VERSIONING_SYNC_H

#include <stddef.h>

#include "versioning/identity.h"
#include "versioning/rules.h"

/*
 * The reconciliation of one key: the index says what the tree wants there (want), what we believe lies there (have) and
 * whether a request is under way whose end we do not know (attempt). sync_decide() names the next step, the caller does
 * it without any lock, and sync_judge() turns the answer into the changes of one index transaction. Level-triggered: the
 * caller decides anew after each step, so bursts of changes merge by themselves (docs/mechanisms.md section 1).
 *
 * Pure: no I/O, no clock, no globals. volume/ drives it against the real store, tests/sim/ against a hostile one.
 *
 * A work item (intent row) exists for every key where want and have may differ. Order of steps for SYNC_PUT and
 * SYNC_DELETE: the attempt is committed to the index, then the request is sent, then the effect is committed.
 */

/* What the tree wants at the key. */
struct sync_want {
    bool present; /* a node's path is this key */
    int64_t node; /* that node */
    char version
        [ULID_SIZE]; /* the newest frozen version of its bytes; "" with base_etag "": only a LIVE content so
                                 far; "" with a base_etag: a foreign version, which SYNC_HASH gives an id when it moves */
    uint64_t size;
    char md5[MD5_HEX];       /* hex; "" until hashed */
    char sha256[SHA256_HEX]; /* hex; "" until hashed */
    bool bytes_local;        /* all its bytes are in the cache */
    bool at_this_key; /* the node's last synced bytes lie at this key (else it was moved here or is new) */
    bool dirty;                 /* version is not synced anywhere yet */
    char base_etag[LIMIT_ETAG]; /* the synced version that `version` was made from; "" for a new file */
    char base_version[ULID_SIZE]; /* its id; "" when foreign or none */
    bool writing; /* a LIVE content is open: the frozen version, if any, may still be sent */
};

/* What we believe lies at the key: the row of table keys. */
struct sync_have {
    bool present;
    char etag[LIMIT_ETAG];
    char version[ULID_SIZE]; /* "" when foreign */
    uint64_t size;
    char sha256[SHA256_HEX]; /* "" when unknown */
    int64_t owner; /* node whose newest synced bytes these are; 0: nobody's any more, or never ours */
    bool discard; /* nobody needs these bytes and the tree knew this very version: it is our base, to be replaced
                                or deleted. Goes with owner 0: a moved node's old key keeps its owner, without discard,
                                until the node is synced (or parked) elsewhere. With an owner, the owner wins */
    bool kept; /* these very bytes lie elsewhere too: in the history, or where their file was moved to */
    bool owner_home_free; /* owner is another node: nothing lies at, and no attempt runs on, the owner's home key, and the
                                owner can be synced there now (not kept LIVE by a writer) */
};

enum sync_op { SYNC_OP_NONE, SYNC_OP_PUT, SYNC_OP_DELETE };

/* The request whose outcome is not recorded yet: columns of the intent row. */
struct sync_attempt {
    enum sync_op op;
    bool unknown; /* it failed in a way that leaves it open; false after a crash: treat the same */
    int64_t node;
    int64_t content;
    char version[ULID_SIZE];
    uint64_t size;
    char md5[MD5_HEX];
    char sha256[SHA256_HEX];
    bool cond_absent;           /* sent with If-None-Match: * */
    char cond_etag[LIMIT_ETAG]; /* sent with If-Match, "" else */
};

/* What the store can do, and whether we may write: always where it honours all three, else only under the lease. */
struct sync_rules {
    bool put_if_absent;
    bool put_if_match;
    bool delete_if_match;
    bool lease_held; /* the volume's writer lease is ours and not near its end */
    bool history;    /* what is replaced or deleted here is kept first */
    uint64_t epoch;  /* of that lease */
};

/*
 * `late`: earlier attempts at this key that a LOOK did not find landed and that may land yet: SYNC_LOOK_AGAIN puts the
 * attempt there, 20 minutes after it was sent it may go. With none given (NULL, 0) no bytes are lost on a store that honours
 * conditions, but a late request of ours may show as a foreign one, and a write that restores an ETag is not held back.
 */
struct sync_view {
    struct sync_want want;
    struct sync_have have;
    struct sync_attempt attempt;
    struct sync_rules rules;
    const struct sync_attempt *late;
    size_t late_count;
};

enum sync_action {
    SYNC_IDLE, /* want and have agree, no attempt: the work item can go */
    SYNC_WAIT, /* nothing to do here until something else moved (the owner's own move, a freeze, the lease) */
    SYNC_LOOK, /* HEAD the key; judge with the answer */
    SYNC_HASH, /* compute md5 and sha256 of the local bytes, record them and an id where there is none, decide again */
    SYNC_FETCH,    /* bring the node's bytes from where they lie (If-Match), decide again */
    SYNC_EVACUATE, /* the owner's home key must be synced first: queue it, come back */
    SYNC_PARK, /* the owner's home key is not free (a cycle): put its bytes under .holdfast/park/, record, decide again */
    SYNC_PRESERVE, /* copy what lies here (cond_etag) to the history, record that it is kept, decide again */
    SYNC_PUT, /* conditional PUT (cond_absent / cond_etag) of want.version */
    SYNC_DELETE, /* DELETE of cond_etag: with If-Match, or, where `checked`, HEAD must still show cond_etag first */
    SYNC_CONFLICT, /* the bucket holds what is not our base, as `have` already says: keep the loser (effect given) */
    SYNC_ADOPT, /* a clean file's object was replaced by equal content (sha256): effect given. Where the file is dirty or
                      moved, equal content is PUT with If-Match instead: to adopt on what `have` says lost a version in the
                      simulator, for the equal object had been deleted before ours was made */
};

/* Bits of the changes to commit. */
enum sync_effect_bits {
    SYNC_SET_HAVE = 1, /* keys row := effect.have; a have that is not present deletes the row */
    SYNC_CLEAR_ATTEMPT = 2,
    SYNC_MARK_UNKNOWN = 4, /* attempt stays, unknown := true */
    SYNC_SYNCED =
        8, /* effect.version of effect.node is in the bucket under have.etag: content FROZEN → CLEAN,
                        node's base := it, node's place := this key; its former key's row gets owner 0,
                        discard. A PUT that landed where its file no longer is gives no SYNCED but a
                        have with discard: the file's bytes are still here, or a newer version's are */
    SYNC_KEEP_LOSER =
        16, /* conflict: mine = want (or attempt) version; theirs = effect.have (may be absent) */
    SYNC_TAKE_THEIRS = 32, /* the name now shows what lies there: a foreign object, or nothing */
    SYNC_BACK_OFF = 64,    /* come back later, tries + 1 */
    SYNC_LOOK_AGAIN =
        128, /* an unanswered attempt may still land: keep it in `late`, keep its bytes and those of the
                                 next version, HEAD this key again (sync_observe) within 20 minutes */
};

struct sync_effect {
    unsigned bits;
    struct sync_have have;
    int64_t node; /* for SYNC_SYNCED, SYNC_KEEP_LOSER, SYNC_TAKE_THEIRS */
    char version[ULID_SIZE];
};

struct sync_decision {
    enum sync_action action;
    bool cond_absent;
    bool checked; /* the store ignores the condition: HEAD right before, and the lease must be held */
    char cond_etag[LIMIT_ETAG];
    /* SYNC_WAIT, up to 20 minutes: what is wanted would bring back an ETag that a late request names as its condition (ABA). */
    bool waits_for_late;
    int64_t node;              /* whose bytes to fetch, evacuate, park or put */
    struct sync_effect effect; /* for SYNC_CONFLICT and SYNC_ADOPT */
};

/* What the store answered to a step. */
enum sync_result {
    SYNC_RESULT_DONE,     /* 2xx, complete; `etag` for PUT */
    SYNC_RESULT_REFUSED,  /* 412, or 404 on If-Match */
    SYNC_RESULT_UNKNOWN,  /* may have been or may yet be carried out */
    SYNC_RESULT_NOT_DONE, /* certainly not carried out */
    SYNC_RESULT_SEEN,     /* a HEAD's answer, present or absent: `seen` */
};
struct sync_answer {
    enum sync_result result;
    char etag[LIMIT_ETAG];
    struct observed seen; /* for SYNC_RESULT_SEEN */
};

/* SYNC_WAIT has these causes: no version frozen yet; the owner's own move; no lease where the store ignores conditions; a
 * late attempt whose condition this write would restore (then until that attempt is too old to land). */
/* Whether every write wants the lease: the store ignores one of the three conditions. */
bool sync_needs_lease(const struct sync_rules *rules);
void sync_decide(const struct sync_view *view, struct sync_decision *out);
/* The attempt row to commit before SYNC_PUT or SYNC_DELETE is sent. `content`: the content row that is sent. */
void sync_begin(const struct sync_view *view, const struct sync_decision *decision, int64_t content,
                struct sync_attempt *out);
/* `view` as it is now with the attempt in it; the effect is relative to it. */
void sync_judge(const struct sync_view *view, const struct sync_answer *answer,
                struct sync_effect *out);

/* A listing or HEAD outside an attempt saw this object at the key (section 8): may change `have`, may hand the name to
 * a foreign version when the tree is not dirty there, never while an attempt is open. Where the tree is dirty it only
 * records what lies there, and sync_decide() names the conflict. `seen` must be newer than the row of the key. */
void sync_observe(const struct sync_view *view, const struct observed *seen,
                  struct sync_effect *out);

#endif
