#ifndef SUPPORT_CRASH_LEDGER_H
#define SUPPORT_CRASH_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What a gateway has promised, kept outside of it: in memory that the workload's process and the judge share, so that it
 * survives the workload's SIGKILL. Each thread of the workload has slots (files that are replaced as a whole) and block
 * files (changed in place); it writes down what it begins before the call and what was promised after the answer.
 */
#define LEDGER_THREADS 4u
#define LEDGER_SLOTS 8u
#define LEDGER_HISTORY 4096u
#define LEDGER_FILES 2u
#define LEDGER_SECTOR 512u
#define LEDGER_SECTORS 4096u
#define LEDGER_WRITES 4096u

/* States of a slot: a content's number, or these. */
#define LEDGER_ABSENT 0u
#define LEDGER_EMPTY 1u
#define LEDGER_FIRST 16u

struct ledger_slot {
    uint32_t count; /* states begun, in order; the last may not be answered yet */
    uint32_t state[LEDGER_HISTORY];
    bool bytes_durable[LEDGER_HISTORY];
    /* The newest state that is promised: after kill -9 (C-ack), after a power cut (L-ack), in the bucket (B-ack). */
    uint32_t acked, durable, synced;
};

struct ledger_write {
    uint32_t seq, first, count;
};

/* A file whose sectors each hold the number of the write that put them there. */
struct ledger_file {
    uint32_t base[LEDGER_SECTORS];
    uint32_t sectors;
    uint32_t seq; /* the last one given */
    uint32_t writes;
    struct ledger_write write[LEDGER_WRITES];
    uint32_t acked, durable, synced; /* so many writes are promised */
};

/* Names that change together: after a crash all of them have, or none. */
struct ledger_move {
    bool active;
    uint32_t count;
    uint32_t from[2], to[2];
    uint32_t state[2];
};

struct ledger_thread {
    struct ledger_slot slot[LEDGER_SLOTS];
    struct ledger_file file[LEDGER_FILES];
    struct ledger_move move;
    uint32_t next; /* contents given so far */
};

struct ledger {
    struct ledger_thread thread[LEDGER_THREADS];
    uint32_t threads;
    uint64_t operations, barriers, conflicts_torn, conflicts_behind, recoveries, parked, held;
    bool ready; /* the workload began */
    bool set_up;
    char trouble[256]; /* what the workload could not do */
};

/* Shared memory behind a descriptor that children inherit. */
struct ledger *ledger_make(int *fd);
struct ledger *ledger_map(int fd);
/* Nothing is there yet; `thread` is all zero. */
void ledger_init(struct ledger *ledger);
/* Forgets what was promised: everything is where it is. */
void ledger_settle(struct ledger *ledger);

/* ---- contents ---- */
/* Size and bytes of content `id`; the caller frees. Same id, same bytes, everywhere. */
size_t ledger_content_size(uint32_t id);
uint8_t *ledger_content(uint32_t id, size_t *size);
uint32_t ledger_new_content(struct ledger_thread *thread, unsigned number);
void ledger_fill_sector(unsigned thread, unsigned file, uint32_t sector, uint32_t seq,
                        uint8_t *out);
/* The seq that such a sector says, UINT32_MAX when it is not one of ours; all zero is 0. */
uint32_t ledger_read_sector(unsigned thread, unsigned file, uint32_t sector, const uint8_t *bytes);

/* ---- paths ---- */
#define LEDGER_PATH 64
void ledger_slot_path(unsigned thread, unsigned slot, char out[LEDGER_PATH]);
void ledger_file_path(unsigned thread, unsigned file, char out[LEDGER_PATH]);
/* Slots from here on lie in folder x, those from LEDGER_SLOT_Y on in y; one folder is renamed to the other. */
#define LEDGER_SLOT_X 4u
#define LEDGER_SLOT_Y 6u

/* ---- writing down ---- */
enum ledger_level { LEDGER_C, LEDGER_L, LEDGER_B };
void ledger_begin(struct ledger_slot *slot, uint32_t state);
/* The last state begun is promised. */
void ledger_ack(struct ledger_slot *slot, enum ledger_level level);
uint32_t ledger_now(const struct ledger_slot *slot);
/* All names of the thread are durable; so are the states whose bytes are. */
void ledger_names_durable(struct ledger_thread *thread);
void ledger_barrier(struct ledger_thread *thread);
uint32_t ledger_begin_write(struct ledger_file *file, uint32_t first, uint32_t count);

#endif
