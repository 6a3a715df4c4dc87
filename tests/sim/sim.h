#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "versioning/content.h"
#include "versioning/lease.h"
#include "versioning/sync.h"

/*
 * A small world in one thread: one bucket, two gateways with a durable index each, users of their mounts, foreign clients,
 * and a network that loses and delays requests and answers. Everything comes from one seed. The gateways run the pure code
 * of versioning/ and a driver that mirrors volume/; the ledger judges from outside, from what users were told and from what
 * really lies in the bucket, never from what the code under test believes.
 *
 * Bytes are numbers ("values"); a few values come back again and again, so that equal contents and, where ETags are MD5s,
 * equal ETags happen. Versions are numbers, rendered as ULIDs for the code under test. Every value written anywhere is a
 * record of the ledger; `rec` fields carry the record beside the data and are never shown to the code under test.
 */
enum {
    PATHS = 8, /* a b c d d1/x d1/y d2/x d2/y */
    DIR_1 = 4,
    DIR_2 = 6,
    DIR_FILES = 2,
    GATEWAYS = 2,
    FOREIGN = GATEWAYS, /* the writer of records that no gateway made */
    NODES = 48,
    CONTENTS = 128,
    CONFLICTS = 64,
    PARKS = 64,
    LATE = 6,
    REQUESTS = 160,
    GONE = 64,
    MAYBE = 32,
    SINCE = 24,
    RECORDS = 60000,
    NONE = -1,
};

/* Milliseconds of the world's own time. */
enum {
    OP_DEADLINE = 15000,
    LATE_MAX = 300000, /* "20 minutes": a signed request is refused when it is older */
    LEASE_TTL = 60000,
};

#define EMPTY 1u
#define GARBAGE 0x80000000u

/* ---- the bucket ---- */
struct object {
    bool present;
    uint32_t value, etag, rec;
    uint32_t meta_version, meta_value; /* what the metadata claims, 0: none of ours */
    int writer; /* who put it here: a version may travel from gateway to gateway */
};

struct bucket {
    struct object keys[PATHS];
    struct object parks[PARKS];
    uint32_t deleted_rec[PATHS]; /* what the last deletion of the key removed, and by whom */
    int deleted_by[PATHS];
    int64_t deleted_at[PATHS];
    struct lease_record lease;
    uint32_t lease_serial;
};

/* ---- the index of a gateway: what a kill keeps, and what a power cut keeps ---- */
enum place_kind { PLACE_NONE, PLACE_KEY, PLACE_PARK };
struct place {
    enum place_kind kind;
    int at;
    uint32_t etag;
};

enum orphan { ORPHAN_NOT, ORPHAN_REMOVED, ORPHAN_LOST };
struct node {
    int64_t id; /* 0: free row */
    int path;   /* NONE: orphan */
    enum orphan orphan;
    int live, frozen; /* content rows: being written; newest frozen or clean */
    struct place place;
    uint32_t base_version;
    uint32_t rec; /* ledger: what lies at `place` */
};

struct content {
    bool used;
    int64_t node;
    enum content_state state;
    unsigned flags;
    uint32_t version, value; /* `value`: as hashed when it was frozen, 0: not hashed */
    uint32_t rec;
};

struct keyrow {
    bool present;
    uint32_t etag, version, size, value; /* `value`: by its sha256, 0: unknown */
    int64_t owner;
    bool discard, kept;
    uint32_t seq;
    uint32_t rec;
};

struct attempt {
    enum sync_op op;
    bool unknown;
    int64_t node;
    int content;
    uint32_t version, value;
    bool cond_absent;
    uint32_t cond_etag;
    int64_t sent_at;
};

struct intent {
    bool active;
    int64_t not_before, look_at;
    struct attempt attempt;
    struct attempt late[LATE];
    int late_count;
};

struct conflict {
    bool used, uploaded, torn;
    uint32_t rec, version, value;
    int content;
    int64_t node;       /* its other object stays until the loser is uploaded */
    struct place place; /* of that object */
};

struct index {
    struct node nodes[NODES];
    struct content contents[CONTENTS];
    struct keyrow keys[PATHS];
    struct intent intents[PATHS];
    struct conflict conflicts[CONFLICTS];
    uint32_t seq;
};

/* ---- requests ---- */
enum request_kind {
    REQ_PUT,
    REQ_DELETE,
    REQ_HEAD,
    REQ_GET,  /* from a key or a park object */
    REQ_COPY, /* to a fresh park key */
    REQ_KEEP, /* to a fresh history key */
    REQ_MOVE, /* planted fault: copy onto a file key */
    REQ_LEASE_GET,
    REQ_LEASE_PUT,
};
enum request_state { REQ_FREE, REQ_SENT, REQ_LANDED };
struct request {
    enum request_state state;
    enum request_kind kind;
    int gateway, life; /* life 0: nobody waits for the answer any more */
    int key;
    struct place from;
    int to;
    bool cond_absent, free_of_conditions;
    bool at_home; /* ledger: the file's synced version lay at this key, not one that a rename left elsewhere */
    uint32_t cond_etag;
    int content;
    uint32_t value, version;
    int64_t node;
    int64_t sent_at, clock_sent, landed_at;
    bool refused;
    uint32_t etag;
    struct object seen; /* HEAD, GET */
    struct lease_record lease;
};

/* ---- a gateway ---- */
enum stage { STAGE_IDLE, STAGE_BEGUN, STAGE_SENT };
struct worker { /* lost in a crash */
    enum stage stage;
    enum sync_action action;
    bool checked, observing;
    int64_t node;
};

struct disk_file {
    uint32_t value, durable;
    bool has_durable;
};

enum open_how { OPEN_NOT, OPEN_EMPTY, OPEN_COPY, OPEN_IN_PLACE, OPEN_THAW };
struct handle { /* of the one writer of a node */
    int64_t node;
    enum open_how how;
    bool modified;
};

struct listing {
    bool open;
    uint32_t seq;
    struct object keys[PATHS];
};

struct gateway {
    struct index cur, dur;
    struct disk_file disk[CONTENTS];
    struct worker workers[PATHS];
    struct handle handles[NODES];
    struct listing listing;
    struct lease lease;
    bool lease_busy;
    int64_t clock_offset, clock_ppm;
    int life, boot;
    int64_t stalled_until; /* the machine is paused: its clock goes on, its answers wait */
    bool fetching[NODES];  /* by node row: a GET outside key work is under way */
};

/* ---- the ledger ---- */
struct record {
    uint32_t value, parent;
    int writer, boot;
    int64_t made_at, destroyed_at;
    uint8_t destroyed_by[PATHS]; /* bits of writers that replaced or deleted the object at that key */
    uint8_t sent_by[PATHS];      /* bits of gateways that sent a PUT of it there */
    uint8_t told[PATHS];         /* bits of gateways that were told that it lies there */
    bool landed, kept;
    bool in_history; /* a copy of it lies there, which nothing changes any more */
};

struct lfile { /* what the user of a gateway knows of a name */
    bool exists;
    uint32_t acked;  /* C-ack: survives kill -9 */
    uint32_t lacked; /* L-ack: survives a power cut; 0: none */
    uint32_t
        since[SINCE]; /* versions that the name had since: after a power cut any of them will do */
    int since_count;
    uint32_t maybe[MAYBE]; /* values written in place since the last ack */
    int maybe_count;
};

struct ledger {
    struct record records[RECORDS];
    uint32_t count;
    struct lfile files[GATEWAYS][PATHS];
    uint32_t gone[GATEWAYS][PATHS][GONE]; /* removed here by the user, who knew it */
    unsigned gone_count[GATEWAYS][PATHS];
};

/* ---- the world ---- */
enum sim_event_count {
    COUNT_PUTS,
    COUNT_DELETES,
    COUNT_REFUSED,
    COUNT_LOST_ANSWERS,
    COUNT_LATE_LANDED,
    COUNT_KILLS,
    COUNT_POWER_CUTS,
    COUNT_CONFLICTS,
    COUNT_PARKED,
    COUNT_FETCHED,
    COUNT_TORN,
    COUNT_FOREIGN,
    COUNT_RENAMES,
    COUNT_SAVES,
    COUNT_LATE_OURS,
    COUNT_LEASES,
    COUNT_PRESERVED,
    COUNT_KINDS
};

struct world {
    uint64_t random;
    uint64_t seed;
    int64_t now;
    uint32_t serial;
    int64_t next_node;
    bool md5_etags;
    bool put_if_absent, put_if_match, delete_if_match;
    bool history; /* what is replaced or deleted is copied first */
    bool faults;  /* false: nothing is lost or refused any more */
    bool calm;    /* no user, no foreign client */
    unsigned foreign_weight, crash_weight, user_weight, small_weight, stall_weight; /* per mille */
    unsigned paths; /* how many names the users use: in a narrow world they meet often */
    struct bucket bucket;
    struct gateway gateways[GATEWAYS];
    struct request requests[REQUESTS];
    struct ledger ledger;
    uint64_t counts[COUNT_KINDS];
    bool violated;
    char violation[400];
};

/* world.c */
void world_start(struct world *world, uint64_t seed);
uint64_t world_random(struct world *world);
unsigned world_pick(struct world *world, unsigned below);
bool world_chance(struct world *world, unsigned per_mille);
uint32_t world_value(struct world *world);
int world_path(struct world *world);
bool world_weak(const struct world *world);
int64_t gateway_clock(const struct world *world, const struct gateway *gateway);
void violate(struct world *world, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void trace(struct world *world, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void trace_dump(void);
void world_dump(const struct world *world);
enum trace_mode { TRACE_OFF, TRACE_KEEP, TRACE_PRINT };
void trace_set(enum trace_mode mode);
extern const char *const path_names[PATHS];

/* text.c: numbers as the strings that the code under test sees */
uint32_t size_of(uint32_t value);
void text_version(uint32_t version, char out[ULID_SIZE]);
void text_md5(uint32_t value, char out[MD5_HEX]);
void text_sha256(uint32_t value, char out[SHA256_HEX]);
void text_etag(const struct world *world, uint32_t etag, char out[LIMIT_ETAG]);
uint32_t number_of(const char *text);

/* net.c: the bucket and the requests on their way to it */
struct request *net_send(struct world *world, int gateway, enum request_kind kind, int key);
bool net_step(struct world *world); /* one request lands, is answered, fails or is lost */
void net_foreign(struct world *world);
void net_crash(struct world *world, int gateway);

/* index.c: rows */
struct node *node_get(struct index *index, int64_t id);
struct node *node_at(struct index *index, int path);
int node_row(const struct index *index, const struct node *node);
struct node *node_new(struct world *world, struct gateway *gateway, int path);
int content_new(struct world *world, struct gateway *gateway, struct node *node);
void commit(struct world *world, struct gateway *gateway, bool full);
void sync_content(struct gateway *gateway, int content);
void touch(struct world *world, struct gateway *gateway, int path);
int conflict_add(struct world *world, struct gateway *gateway, struct node *node, int content,
                 bool torn);

/* driver.c, effect.c: the mirror of volume/ */
void driver_work(struct world *world, int gateway, int path);
void driver_send(struct world *world, int gateway, int path);
void driver_answer(struct world *world, struct request *request, enum sync_result result);
void driver_upload_conflict(struct world *world, int gateway);
void driver_evict(struct world *world, int gateway);
void driver_list(struct world *world, int gateway);
void driver_fetch(struct world *world, int gateway, struct node *node);
void content_view_of(struct gateway *gateway, const struct node *node, int at,
                     struct content_view *view);
void lease_work(struct world *world, int gateway);
void lease_reply(struct world *world, struct request *request, enum sync_result result);
void driver_view(struct world *world, struct gateway *gateway, int path, struct sync_view *view,
                 struct sync_attempt late[LATE]);
void driver_apply(struct world *world, struct gateway *gateway, int path,
                  const struct sync_effect *effect, uint32_t seen_rec);
void place_lost(struct world *world, struct gateway *gateway, int64_t owner, int path);
void discard_place(struct world *world, struct gateway *gateway, const struct place *place,
                   int64_t owner);
void observed_from(const struct world *world, const struct object *object, struct observed *out);

/* user.c */
void user_step(struct world *world, int gateway);
void user_close_all(struct world *world, int gateway);
void user_freeze(struct world *world, struct gateway *gateway, struct node *node);

/* recover.c */
void gateway_start(struct world *world, struct gateway *gateway);
void gateway_kill(struct world *world, int gateway);
void gateway_power_cut(struct world *world, int gateway);

/* ledger.c */
uint32_t ledger_record(struct world *world, int writer, uint32_t value, uint32_t parent);
void ledger_landed(struct world *world, const struct request *request, const struct object *old);
void ledger_sent(struct world *world, const struct request *request);
void ledger_sent_blind(struct world *world, const struct request *request);
void ledger_replaced(struct world *world, int writer, int key, const struct object *old);
void ledger_gone(struct world *world, int gateway, const struct node *node);
void ledger_since(struct lfile *file, uint32_t rec);
void ledger_conflict(struct world *world, int gateway, int path, uint32_t mine);
void ledger_kept(struct world *world, uint32_t rec);
void ledger_check(struct world *world);
void ledger_check_rest(struct world *world);
void ledger_power_cut(struct world *world, int gateway);
void ledger_adopted(struct world *world, int key, uint32_t rec, uint32_t equal);
void ledger_known(struct world *world, int gateway, int key, uint32_t rec);
void ledger_told(struct world *world, int gateway, int key, uint32_t rec);
bool ledger_ancestor(const struct world *world, uint32_t old, uint32_t rec);

#endif
