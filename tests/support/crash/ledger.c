#include "support/crash/ledger.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/crash/rig.h"

struct ledger *
ledger_map(int fd)
{
    struct ledger *ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ledger == MAP_FAILED)
        rig_die("cannot map the ledger");
    return ledger;
}

struct ledger *
ledger_make(int *fd)
{
    /* NOLINTNEXTLINE(android-cloexec-memfd-create): children go on with it */
    *fd = memfd_create("ledger", 0);
    if (*fd < 0 || ftruncate(*fd, (off_t)sizeof(struct ledger)) != 0)
        rig_die("cannot make the ledger");
    struct ledger *ledger = ledger_map(*fd);
    ledger_init(ledger);
    return ledger;
}

void
ledger_init(struct ledger *ledger)
{
    ledger->set_up = ledger->ready = false;
    for (unsigned i = 0; i < LEDGER_THREADS; i++) {
        for (unsigned k = 0; k < LEDGER_SLOTS; k++)
            ledger->thread[i].slot[k].count = 1;
        ledger->thread[i].file[0].sectors = 512;
        ledger->thread[i].file[1].sectors = LEDGER_SECTORS;
    }
}

static void
settle_slot(struct ledger_slot *slot)
{
    slot->state[0] = ledger_now(slot);
    slot->bytes_durable[0] = true;
    slot->count = 1;
    slot->acked = slot->durable = slot->synced = 0;
}

void
ledger_settle(struct ledger *ledger)
{
    for (unsigned i = 0; i < LEDGER_THREADS; i++) {
        struct ledger_thread *thread = &ledger->thread[i];
        for (unsigned k = 0; k < LEDGER_SLOTS; k++)
            settle_slot(&thread->slot[k]);
        for (unsigned k = 0; k < LEDGER_FILES; k++) {
            struct ledger_file *file = &thread->file[k];
            file->writes = file->acked = file->durable = file->synced = 0;
        }
        thread->move.active = false;
    }
    ledger->ready = false;
}

/* ---- contents ---- */

size_t
ledger_content_size(uint32_t id)
{
    struct rig_random random = { .state = id * 7919u };
    switch (rig_below(&random, 12)) {
    case 0:
        return 0;
    case 1:
        return 1 + rig_below(&random, 16);
    case 2:
        return 4096 * (1 + rig_below(&random, 8));
    case 3:
    case 4:
        return rig_below(&random, 300000);
    case 5:
        return (1u << 20) + rig_below(&random, 1u << 20);
    default:
        return rig_below(&random, 20000);
    }
}

uint8_t *
ledger_content(uint32_t id, size_t *size)
{
    struct rig_random random = { .state = id };
    *size = id < LEDGER_FIRST ? 0 : ledger_content_size(id);
    uint8_t *bytes = malloc(*size + 8);
    if (bytes == NULL)
        rig_die("out of memory");
    for (size_t i = 0; i < *size; i += 8) {
        uint64_t word = rig_random(&random);
        memcpy(bytes + i, &word, sizeof(word));
    }
    return bytes;
}

uint32_t
ledger_new_content(struct ledger_thread *thread, unsigned number)
{
    return LEDGER_FIRST + thread->next++ * LEDGER_THREADS + number;
}

#define SECTOR_MAGIC 0x5ec70c00u

void
ledger_fill_sector(unsigned thread, unsigned file, uint32_t sector, uint32_t seq, uint8_t *out)
{
    uint32_t word[LEDGER_SECTOR / 4];
    for (size_t i = 0; i < LEDGER_SECTOR / 4; i += 4) {
        word[i] = SECTOR_MAGIC + thread * LEDGER_FILES + file;
        word[i + 1] = sector;
        word[i + 2] = seq;
        word[i + 3] = (uint32_t)i;
    }
    memcpy(out, word, sizeof(word));
}

uint32_t
ledger_read_sector(unsigned thread, unsigned file, uint32_t sector, const uint8_t *bytes)
{
    static const uint8_t zero[LEDGER_SECTOR];
    uint8_t want[LEDGER_SECTOR];
    uint32_t seq;
    if (memcmp(bytes, zero, sizeof(zero)) == 0)
        return 0;
    memcpy(&seq, bytes + 8, sizeof(seq));
    ledger_fill_sector(thread, file, sector, seq, want);
    return memcmp(bytes, want, sizeof(want)) == 0 ? seq : UINT32_MAX;
}

/* ---- paths ---- */

void
ledger_slot_path(unsigned thread, unsigned slot, char out[LEDGER_PATH])
{
    if (slot >= LEDGER_SLOT_X)
        (void)snprintf(out, LEDGER_PATH, "t%u/%s/s%u", thread, slot >= LEDGER_SLOT_Y ? "y" : "x",
                       (slot - LEDGER_SLOT_X) % 2);
    else
        (void)snprintf(out, LEDGER_PATH, "t%u/d%u/s%u", thread, slot % 2, slot);
}

void
ledger_file_path(unsigned thread, unsigned file, char out[LEDGER_PATH])
{
    (void)snprintf(out, LEDGER_PATH, "t%u/b%u", thread, file);
}

/* ---- writing down ---- */

void
ledger_begin(struct ledger_slot *slot, uint32_t state)
{
    if (slot->count == LEDGER_HISTORY)
        rig_die("the ledger's history is full");
    slot->state[slot->count] = state;
    slot->bytes_durable[slot->count] = state < LEDGER_FIRST;
    atomic_thread_fence(memory_order_seq_cst);
    slot->count++;
    atomic_thread_fence(memory_order_seq_cst);
}

void
ledger_ack(struct ledger_slot *slot, enum ledger_level level)
{
    uint32_t last = slot->count - 1;
    atomic_thread_fence(memory_order_seq_cst);
    if (level >= LEDGER_L) {
        slot->bytes_durable[last] = true;
        slot->durable = last;
    }
    if (level == LEDGER_B)
        slot->synced = last;
    slot->acked = last;
    atomic_thread_fence(memory_order_seq_cst);
}

uint32_t
ledger_now(const struct ledger_slot *slot)
{
    return slot->state[slot->count - 1];
}

void
ledger_names_durable(struct ledger_thread *thread)
{
    for (unsigned i = 0; i < LEDGER_SLOTS; i++) {
        struct ledger_slot *slot = &thread->slot[i];
        if (slot->bytes_durable[slot->count - 1])
            slot->durable = slot->count - 1;
    }
}

void
ledger_barrier(struct ledger_thread *thread)
{
    for (unsigned i = 0; i < LEDGER_SLOTS; i++)
        ledger_ack(&thread->slot[i], LEDGER_B);
    for (unsigned i = 0; i < LEDGER_FILES; i++) {
        struct ledger_file *file = &thread->file[i];
        file->acked = file->durable = file->synced = file->writes;
    }
}

uint32_t
ledger_begin_write(struct ledger_file *file, uint32_t first, uint32_t count)
{
    if (file->writes == LEDGER_WRITES)
        rig_die("the ledger's list of writes is full");
    file->write[file->writes] =
        (struct ledger_write){ .seq = ++file->seq, .first = first, .count = count };
    atomic_thread_fence(memory_order_seq_cst);
    file->writes++;
    atomic_thread_fence(memory_order_seq_cst);
    return file->seq;
}
