#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/scope.h"
#include "base/sys.h"
#include "volume/locks.h"

/*
 * STATE/locks: a header and places of 64 bytes, mapped shared. A store to it survives the process; locks end with the machine, so
 * nothing is synced. A change adds before it removes: killed in between, a range may be there twice, never not at all, and the
 * request that made the change comes again (docs/platform.md section 1).
 */

#define MAGIC "HFLOCKS1"

struct header {
    char magic[8];
    char boot_id[SYS_BOOT_ID_SIZE];
    char rest[64 - 8 - SYS_BOOT_ID_SIZE];
};

struct place {
    _Atomic uint32_t used; /* set last, cleared first */
    uint32_t pid;
    int64_t node, connection;
    uint64_t owner, start, end, fh;
    uint32_t flags; /* enum lock_type | FLOCK */
    uint32_t rest;
};
#define FLOCK 16u

static_assert(sizeof(struct header) == 64 && sizeof(struct place) == 64, "the file's format");

struct lock_journal {
    struct header *header;
    struct place *place;
    size_t size;
    uint32_t max;
    uint32_t *free; /* a stack */
    uint32_t free_count;
};

static bool
is_valid(const struct header *header, const char *boot_id)
{
    return memcmp(header->magic, MAGIC, sizeof(header->magic)) == 0 &&
           strncmp(header->boot_id, boot_id, sizeof(header->boot_id)) == 0;
}

bool
lock_journal_of_boot(int state_dir, const char *boot_id)
{
    struct header header;
    struct err ignored = ERR_INIT;
    scope_fd int fd = openat(state_dir, "locks", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 &&
           sys_read_full(fd, &header, sizeof(header), 0, &ignored) == (ssize_t)sizeof(header) &&
           is_valid(&header, boot_id);
}

static void
begin_anew(struct lock_journal *journal, const char *boot_id)
{
    memset(journal->header, 0, journal->size);
    memcpy(journal->header->boot_id, boot_id, strnlen(boot_id, SYS_BOOT_ID_SIZE - 1));
    atomic_thread_fence(memory_order_release);
    memcpy(journal->header->magic, MAGIC, sizeof(journal->header->magic));
}

static int
map_file(struct lock_journal *journal, int state_dir, struct err *err)
{
    scope_fd int fd = openat(state_dir, "locks", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(err, errno, "cannot open the file of locks");
    if (ftruncate(fd, (off_t)journal->size) != 0)
        return err_sys(err, errno, "cannot size the file of locks");
    /* A store to a hole on a full disk would be a signal. */
    int error = posix_fallocate(fd, 0, (off_t)journal->size);
    if (error != 0)
        return err_sys(err, error, "no room for the file of locks");
    void *map = mmap(NULL, journal->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_sys(err, errno, "cannot map the file of locks");
    journal->header = map;
    journal->place = (struct place *)(void *)((char *)map + sizeof(struct header));
    return 0;
}

struct lock_journal *
lock_journal_open(int state_dir, const char *boot_id, unsigned max, struct err *err)
{
    struct lock_journal *journal = calloc(1, sizeof(*journal));
    if (journal == NULL) {
        err_nomem(err);
        return NULL;
    }
    journal->max = max;
    journal->size = sizeof(struct header) + (size_t)max * sizeof(struct place);
    journal->free = calloc(max, sizeof(*journal->free));
    if (journal->free == NULL)
        err_nomem(err);
    if (journal->free == NULL || map_file(journal, state_dir, err) != 0) {
        lock_journal_close(journal);
        return NULL;
    }
    if (!is_valid(journal->header, boot_id))
        begin_anew(journal, boot_id);
    for (uint32_t i = max; i-- > 0;)
        if (!atomic_load_explicit(&journal->place[i].used, memory_order_acquire))
            journal->free[journal->free_count++] = i;
    return journal;
}

void
lock_journal_close(struct lock_journal *journal)
{
    if (journal == NULL)
        return;
    if (journal->header != NULL)
        (void)munmap(journal->header, journal->size);
    free(journal->free);
    free(journal);
}

uint32_t
lock_journal_add(struct lock_journal *journal, const struct lock *lock)
{
    assert(journal->free_count > 0);
    uint32_t at = journal->free[--journal->free_count];
    struct place *place = &journal->place[at];
    place->pid = lock->pid;
    place->node = lock->node;
    place->connection = lock->owner.connection;
    place->owner = lock->owner.id;
    place->start = lock->start;
    place->end = lock->end;
    place->fh = lock->fh;
    place->flags = (uint32_t)lock->type | (lock->owner.flock ? FLOCK : 0);
    atomic_store_explicit(&place->used, 1, memory_order_release);
    return at;
}

void
lock_journal_remove(struct lock_journal *journal, uint32_t place)
{
    assert(place < journal->max && journal->free_count < journal->max);
    atomic_store_explicit(&journal->place[place].used, 0, memory_order_release);
    journal->free[journal->free_count++] = place;
}

bool
lock_journal_next(struct lock_journal *journal, uint32_t *place, struct lock *out)
{
    for (; *place < journal->max; (*place)++) {
        const struct place *at = &journal->place[*place];
        if (!atomic_load_explicit(&at->used, memory_order_acquire))
            continue;
        *out = (struct lock){ .node = at->node,
                              .owner = { at->connection, at->owner, (at->flags & FLOCK) != 0 },
                              .type = at->flags & LOCKED_WRITE ? LOCKED_WRITE : LOCKED_READ,
                              .start = at->start,
                              .end = at->end,
                              .fh = at->fh,
                              .pid = at->pid };
        return true;
    }
    return false;
}
