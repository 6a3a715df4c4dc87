#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "base/ulid.h"
#include "volume/audit_impl.h"

/* The queue, and the thread that writes it down. */

#define QUEUE_MOST 16384u
#define BATCH 1024u /* so many are written at once, whatever the time */
#define PAUSE (50 * NS_PER_MS)
#define PATIENCE (2 * NS_PER_S)
#define AGAIN (1 * NS_PER_S) /* after a write that failed */
#define NAMES_MOST 64u
#define TEXTS 11
#define FORMAT "1"

struct note {
    struct note *next;
    struct audit_record record; /* its texts lie behind it */
    int64_t time_ns;
};

struct audit {
    struct volume_service *service;
    int dir;
    char chain[ULID_SIZE];
    pthread_t thread;
    bool started;

    pthread_mutex_t lock; /* a leaf; guards the queue */
    pthread_cond_t wake, room, written;
    struct note *head, **tail;
    unsigned count;
    uint64_t lost;
    uint64_t noted, done; /* ever queued, and written of them */
    bool stopping, hurry;

    pthread_mutex_t file_lock; /* a leaf; guards what is written */
    int fd;
    uint64_t first; /* the segment's */
    uint64_t off;
    int64_t begun_ns; /* mono: its first record; 0: none yet */
    struct audit_link link;
    bool dirty; /* written since the last sync */
};

int
audit_dir(const struct audit *audit)
{
    return audit->dir;
}

const char *
audit_chain(const struct audit *audit)
{
    return audit->chain;
}

/* ---- noting ---- */

static size_t
texts_of(struct audit_record *record, const char **slot[TEXTS + 1])
{
    const char **all[TEXTS + 1] = { &record->verb,   &record->face,    &record->actor,
                                    &record->run,    &record->path,    &record->to,
                                    &record->before, &record->after,   &record->result,
                                    &record->detail, &record->command, &record->volume_name };
    size_t size = 0;
    memcpy(slot, all, sizeof(all));
    for (unsigned i = 0; i < TEXTS + 1; i++)
        size += *all[i] != NULL ? strlen(*all[i]) + 1 : 0;
    return size;
}

static struct note *
make_note(const struct audit_record *record)
{
    struct audit_record copy = *record;
    const char **slot[TEXTS + 1];
    size_t size = texts_of(&copy, slot);
    struct note *note = malloc(sizeof(*note) + size);
    if (note == NULL)
        return NULL;
    note->next = NULL;
    note->record = copy;
    note->time_ns = clock_wall_ns();
    char *at = (char *)(note + 1);
    (void)texts_of(&note->record, slot);
    for (unsigned i = 0; i < TEXTS + 1; i++) {
        if (*slot[i] == NULL)
            continue;
        size_t len = strlen(*slot[i]) + 1;
        memcpy(at, *slot[i], len);
        *slot[i] = at;
        at += len;
    }
    return note;
}

static void
wait_for_locked(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t ns)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ns / NS_PER_S;
    until.tv_nsec += ns % NS_PER_S;
    if (until.tv_nsec >= NS_PER_S) {
        until.tv_nsec -= NS_PER_S;
        until.tv_sec++;
    }
    (void)pthread_cond_timedwait(cond, lock, &until);
}

void
volume_audit_note(struct volume_service *service, const struct audit_record *record)
{
    struct audit *audit = service->audit;
    if (audit == NULL)
        return;
    struct note *note = make_note(record);
    pthread_mutex_lock(&audit->lock);
    int64_t end = audit->count < QUEUE_MOST ? 0 : clock_mono_ns() + PATIENCE;
    while (note != NULL && audit->count >= QUEUE_MOST && clock_mono_ns() < end)
        wait_for_locked(&audit->room, &audit->lock, PATIENCE / 20);
    if (note == NULL || audit->count >= QUEUE_MOST) {
        audit->lost++;
        free(note);
    } else {
        *audit->tail = note;
        audit->tail = &note->next;
        audit->count++;
        audit->noted++;
        if (audit->count == BATCH)
            pthread_cond_signal(&audit->wake);
    }
    pthread_mutex_unlock(&audit->lock);
}

void
volume_audit_act(struct volume_service *service, const struct volume_ctx *ctx,
                 struct audit_record record)
{
    bool cli = ctx->actor != NULL && strcmp(ctx->actor, "cli") == 0;
    record.face = ctx->connection != 0 ? "mount" : cli ? "cli" : "http";
    record.actor = ctx->actor;
    record.run = ctx->run;
    record.uid = ctx->connection != 0 ? (int64_t)ctx->uid : -1;
    volume_audit_note(service, &record);
}

void
volume_audit_flush(struct volume_service *service)
{
    struct audit *audit = service->audit;
    if (audit == NULL || !audit->started)
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&audit->lock);
    (void)held;
    uint64_t wanted = audit->noted;
    int64_t end = clock_mono_ns() + 5 * NS_PER_S;
    audit->hurry = true;
    pthread_cond_signal(&audit->wake);
    while (audit->done < wanted && !audit->stopping && clock_mono_ns() < end)
        wait_for_locked(&audit->written, &audit->lock, 100 * NS_PER_MS);
}

/* ---- writing ---- */

struct name_call {
    int64_t volume;
    char name[LIMIT_VOLUME_NAME + 1];
};

static int
name_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct name_call *call = arg;
    struct index_volume row;
    if (index_volume_get(tx, call->volume, &row, err) != 0)
        return -1;
    text_set(call->name, row.name);
    return 0;
}

/* The writer's own; volumes keep their names and numbers. */
struct names {
    struct name_call known[NAMES_MOST];
    unsigned count, next;
};

static const char *
name_of(struct audit *audit, struct names *names, int64_t volume)
{
    struct err gone = ERR_INIT;
    for (unsigned i = 0; i < names->count; i++)
        if (names->known[i].volume == volume)
            return names->known[i].name;
    struct name_call *call = &names->known[names->next];
    *call = (struct name_call){ .volume = volume };
    if (index_read(audit->service->index, name_tx, call, &gone) != 0)
        (void)snprintf(call->name, sizeof(call->name), "#%lld", (long long)volume);
    names->next = (names->next + 1) % NAMES_MOST;
    names->count += names->count < NAMES_MOST;
    return call->name;
}

static int
open_segment(struct audit *audit, uint64_t first, uint64_t size, struct err *err)
{
    struct audit_segment segment = { .first = first };
    char name[AUDIT_NAME_SIZE];
    audit_segment_name(&segment, name);
    int fd = sys->openat(audit->dir, name, O_WRONLY | O_CREAT, 0600);
    if (fd < 0)
        return err_sys(err, errno, "cannot open '%s' of the audit", name);
    if (sys->ftruncate(fd, (off_t)size) != 0 || sys->fsync(audit->dir) != 0) {
        int why = errno;
        (void)close(fd);
        return err_sys(err, why, "cannot begin '%s' of the audit", name);
    }
    audit->fd = fd;
    audit->first = first;
    audit->off = size;
    audit->begun_ns = size > 0 ? clock_mono_ns() : 0;
    return 0;
}

/* With file_lock held. */
static int
rotate_locked(struct audit *audit, struct err *err)
{
    bool old = audit->begun_ns != 0 && clock_mono_ns() - audit->begun_ns > AUDIT_SEGMENT_AGE;
    if (audit->fd >= 0 && audit->off < AUDIT_SEGMENT_MAX && !old)
        return 0;
    if (audit->fd >= 0) {
        if (sys->fdatasync(audit->fd) != 0)
            return err_sys(err, errno, "cannot keep a segment of the audit");
        (void)close(audit->fd);
        audit->fd = -1;
    }
    return open_segment(audit, audit->link.seq + 1, 0, err);
}

/* All of them or none. */
static int
write_notes(struct audit *audit, struct names *names, struct note *notes, struct err *err)
{
    scope_buf text;
    buf_init(&text, 256u << 20);
    scope_unlock pthread_mutex_t *held = scope_lock(&audit->file_lock);
    (void)held;
    if (rotate_locked(audit, err) != 0)
        return -1;
    struct audit_link link = audit->link;
    for (struct note *note = notes; note != NULL; note = note->next) {
        if (note->record.volume != 0 && note->record.volume_name == NULL)
            note->record.volume_name = name_of(audit, names, note->record.volume);
        if (audit_line_print(&note->record, note->time_ns, &link, &text, err) != 0)
            return -1;
    }
    if (sys_write_full(audit->fd, text.data, text.len, (off_t)audit->off, err) != 0)
        return -1;
    audit->off += text.len;
    audit->link = link;
    audit->dirty = true;
    if (audit->begun_ns == 0)
        audit->begun_ns = clock_mono_ns();
    return 0;
}

static struct note *
lost_note(uint64_t lost)
{
    char count[32];
    (void)snprintf(count, sizeof(count), "%llu records", (unsigned long long)lost);
    return make_note(&(struct audit_record){ .verb = "lost",
                                             .face = "gateway",
                                             .result = "no-space",
                                             .detail = count,
                                             .bytes = -1,
                                             .uid = -1 });
}

/* Takes what is queued; with the lock held. */
static struct note *
take_locked(struct audit *audit, unsigned *count)
{
    struct note *notes = audit->head;
    *count = audit->count;
    audit->head = NULL;
    audit->tail = &audit->head;
    if (audit->lost > 0) {
        struct note *lost = lost_note(audit->lost);
        if (lost != NULL) {
            lost->next = notes;
            notes = lost;
            audit->lost = 0;
        }
    }
    return notes;
}

static void
free_notes(struct note *notes)
{
    for (struct note *next; notes != NULL; notes = next) {
        next = notes->next;
        free(notes);
    }
}

/* Until it works, or the end: `count` still fills the queue meanwhile. */
static void
write_batch(struct audit *audit, struct names *names, struct note *notes)
{
    for (unsigned tries = 0;; tries++) {
        struct err err = ERR_INIT;
        if (write_notes(audit, names, notes, &err) == 0)
            return;
        if (tries == 0)
            log_error(volume, "the audit cannot be written: %s", err.msg);
        pthread_mutex_lock(&audit->lock);
        bool stopping = audit->stopping;
        if (!stopping)
            wait_for_locked(&audit->wake, &audit->lock, AGAIN);
        pthread_mutex_unlock(&audit->lock);
        if (stopping)
            return;
    }
}

static void *
writer_main(void *arg)
{
    struct audit *audit = arg;
    scope_free struct names *names = calloc(1, sizeof(*names));
    pthread_setname_np(pthread_self(), "hf-audit");
    pthread_mutex_lock(&audit->lock);
    while (names != NULL) {
        if (!audit->stopping && !audit->hurry && audit->count < BATCH)
            wait_for_locked(&audit->wake, &audit->lock, PAUSE);
        bool end = audit->stopping;
        unsigned count;
        struct note *notes = take_locked(audit, &count);
        audit->hurry = false;
        pthread_mutex_unlock(&audit->lock);
        if (notes != NULL)
            write_batch(audit, names, notes);
        free_notes(notes);
        pthread_mutex_lock(&audit->lock);
        audit->count -= count;
        audit->done += count;
        pthread_cond_broadcast(&audit->room);
        pthread_cond_broadcast(&audit->written);
        if (end && audit->count == 0)
            break;
    }
    pthread_mutex_unlock(&audit->lock);
    return NULL;
}

uint64_t
audit_current(struct audit *audit)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&audit->file_lock);
    (void)held;
    return audit->first;
}

void
audit_written(struct audit *audit, struct audit_link *head)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&audit->file_lock);
    (void)held;
    *head = audit->link;
}

int
audit_sync(struct audit *audit, struct audit_link *head, struct err *err)
{
    pthread_mutex_lock(&audit->file_lock);
    bool dirty = audit->dirty;
    int fd = dirty ? fcntl(audit->fd, F_DUPFD_CLOEXEC, 0) : -1;
    *head = audit->link;
    audit->dirty = false;
    pthread_mutex_unlock(&audit->file_lock);
    if (!dirty)
        return 0;
    scope_fd int held = fd;
    if (held < 0 || sys->fdatasync(held) != 0) {
        err_sys(err, errno, "cannot keep the audit");
        pthread_mutex_lock(&audit->file_lock);
        audit->dirty = true;
        pthread_mutex_unlock(&audit->file_lock);
        return -1;
    }
    return 1;
}

/* ---- open and close ---- */

static int
read_chain(struct audit *audit, struct err *err)
{
    char *text = NULL;
    size_t len = 0;
    struct err missing = ERR_INIT;
    if (sys_read_file(audit->dir, "chain", 64, &text, &len, &missing) == 0) {
        scope_free char *held = text;
        held[strcspn(held, "\n")] = '\0';
        if (strncmp(held, FORMAT " ", sizeof(FORMAT)) != 0 && strspn(held, "0123456789") > 0)
            return err_set(err, ERR_NEWER_FORMAT,
                           "the audit in the state directory has another format than " FORMAT
                           ": use the newer holdfast");
        if (strncmp(held, FORMAT " ", sizeof(FORMAT)) != 0 || !ulid_valid(held + sizeof(FORMAT)))
            return err_set(err, ERR_CORRUPT, "'audit/chain' in the state directory is damaged");
        text_set(audit->chain, held + sizeof(FORMAT));
        return 0;
    }
    if (missing.code != ERR_NOT_FOUND)
        return err_set(err, missing.code, "%s", missing.msg);
    char fresh[64];
    if (ulid_new(audit->chain, err) != 0)
        return -1;
    int size = snprintf(fresh, sizeof(fresh), FORMAT " %s\n", audit->chain);
    return sys_replace_file(audit->dir, "chain", fresh, (size_t)size, 0600, err);
}

/* The last record of a segment; a last line that is not whole is `walk->rest` bytes long. */
static int
walk_segment(struct audit *audit, const struct audit_segment *segment, struct audit_walk *walk,
             size_t *len, struct err *err)
{
    char *data = NULL;
    audit_walk_init(walk);
    walk->open = true;
    if (audit_segment_read(audit->dir, segment, &data, len, err) != 0)
        return -1;
    scope_free char *held = data;
    return audit_walk_lines(walk, held, *len, err);
}

/* Each process writes segments of its own: what the last one left is closed, without the line that it did not finish. */
static int
begin_after(struct audit *audit, const struct audit_segment *last, uint64_t size, struct err *err)
{
    if (!last->packed && open_segment(audit, last->first, size, err) != 0)
        return -1;
    if (audit->fd >= 0 && size == 0)
        return 0;
    if (audit->fd >= 0) {
        if (sys->fdatasync(audit->fd) != 0)
            return err_sys(err, errno, "cannot keep a segment of the audit");
        (void)close(audit->fd);
        audit->fd = -1;
    }
    return open_segment(audit, audit->link.seq + 1, 0, err);
}

/* Where the chain goes on: a cut last line goes. One that was begun and got no record yet goes on from the one before it. */
static int
find_end(struct audit *audit, size_t *cut, struct err *err)
{
    struct audit_segments list = { .item = NULL };
    struct audit_walk walk = { .records = 0 };
    struct audit_segment last = { .first = 1, .packed = true };
    size_t len = 0, size = 0;
    int rc = audit_segments_list(audit->dir, &list, err);
    for (size_t i = list.count; rc == 0 && walk.records == 0 && i > 0; i--) {
        rc = walk_segment(audit, &list.item[i - 1], &walk, &len, err);
        if (i < list.count)
            continue;
        last = list.item[i - 1];
        size = len - walk.rest;
        *cut = walk.rest;
    }
    audit_segments_release(&list);
    if (rc != 0)
        return -1;
    audit->link = walk.last;
    return begin_after(audit, &last, size, err);
}

static int
prepare(struct audit *audit, size_t *cut, struct err *err)
{
    struct volume_service *service = audit->service;
    if (sys->mkdirat(service->state_fd, "audit", 0700) != 0 && errno != EEXIST)
        return err_sys(err, errno, "cannot make 'audit' in the state directory");
    audit->dir = openat(service->state_fd, "audit", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (audit->dir < 0)
        return err_sys(err, errno, "cannot open 'audit' in the state directory");
    return read_chain(audit, err) == 0 ? find_end(audit, cut, err) : -1;
}

int
audit_open(struct volume_service *service, struct err *err)
{
    struct audit *audit = calloc(1, sizeof(*audit));
    pthread_condattr_t attr;
    size_t cut = 0;
    char detail[96];
    if (audit == NULL)
        return err_nomem(err);
    audit->service = service;
    audit->dir = audit->fd = -1;
    audit->tail = &audit->head;
    pthread_mutex_init(&audit->lock, NULL);
    pthread_mutex_init(&audit->file_lock, NULL);
    pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&audit->wake, &attr);
    pthread_cond_init(&audit->room, &attr);
    pthread_cond_init(&audit->written, &attr);
    pthread_condattr_destroy(&attr);
    service->audit = audit;
    if (prepare(audit, &cut, err) != 0)
        return -1;
    (void)snprintf(detail, sizeof(detail), "after record %llu%s",
                   (unsigned long long)audit->link.seq, cut > 0 ? "; a cut line was dropped" : "");
    volume_audit_note(
        service,
        &(struct audit_record){
            .verb = "start", .face = "gateway", .detail = detail, .bytes = -1, .uid = -1 });
    return 0;
}

static int
see_volume(void *arg, const struct index_volume *row, struct err *err)
{
    struct volume_service *service = arg;
    (void)err;
    if ((row->options & INDEX_VOLUME_AUDIT_READS) != 0)
        atomic_store(&service->audit_reads, true);
    return 0;
}

static int
see_volumes_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_volume_each(tx, see_volume, arg, err);
}

int
audit_start(struct volume_service *service, struct err *err)
{
    struct audit *audit = service->audit;
    if (index_read(service->index, see_volumes_tx, service, err) != 0)
        return -1;
    int rc = pthread_create(&audit->thread, NULL, writer_main, audit);
    if (rc != 0)
        return err_sys(err, rc, "cannot start the audit's thread");
    audit->started = true;
    service->auditor = ticker_start("hf-audit-send", NS_PER_S, audit_tick, service, err);
    return service->auditor != NULL ? 0 : -1;
}

void
audit_stop(struct volume_service *service)
{
    ticker_stop(service->auditor);
    service->auditor = NULL;
}

void
audit_close(struct volume_service *service)
{
    struct audit *audit = service->audit;
    if (audit == NULL)
        return;
    if (audit->started) {
        volume_audit_note(service, &(struct audit_record){
                                       .verb = "stop", .face = "gateway", .bytes = -1, .uid = -1 });
        pthread_mutex_lock(&audit->lock);
        audit->stopping = true;
        pthread_cond_broadcast(&audit->wake);
        pthread_mutex_unlock(&audit->lock);
        pthread_join(audit->thread, NULL);
        audit_end(service);
    }
    service->audit = NULL;
    free_notes(audit->head);
    if (audit->fd >= 0)
        (void)close(audit->fd);
    if (audit->dir >= 0)
        (void)close(audit->dir);
    pthread_cond_destroy(&audit->wake);
    pthread_cond_destroy(&audit->room);
    pthread_cond_destroy(&audit->written);
    pthread_mutex_destroy(&audit->lock);
    pthread_mutex_destroy(&audit->file_lock);
    free(audit);
}
