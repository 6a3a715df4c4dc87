/* Connections that outlived the gateway that served them (docs/platform.md section 1, docs/adr/0007). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "mount/handle.h"
#include "mount/service_impl.h"

struct living {
    int64_t id;
    int fuse; /* -1: taken */
    uint32_t dev_minor;
    struct carry *carry; /* NULL: taken */
    struct session_record record;
    struct session *session; /* while it is not served yet */
    struct mounter_backing *lent;
    size_t lent_count;
};

struct mount_carried {
    struct living *living;
    size_t count;
    struct volume_carried_open *opens;
    size_t open_count, open_max;
    struct volume_carried view;
    bool any; /* somebody mounted something: what cannot be taken over is ended by mount_service_restore() */
};

/* ---- what is there ---- */

static int
add_open(struct mount_carried *carried, int64_t node, bool writer, struct err *err)
{
    if (carried->open_count == carried->open_max) {
        size_t max = carried->open_max == 0 ? 64 : 2 * carried->open_max;
        struct volume_carried_open *more = realloc(carried->opens, max * sizeof(*more));
        if (!more)
            return err_nomem(err);
        carried->opens = more;
        carried->open_max = max;
    }
    carried->opens[carried->open_count++] = (struct volume_carried_open){ node, writer };
    return 0;
}

static int
collect_opens(struct mount_carried *carried, const struct carry *carry, struct err *err)
{
    for (uint32_t i = 0; i < carry->opens_used; i++) {
        const struct carry_open *at = &carry->opens[i];
        bool writer = (at->flags & (HANDLE_WRITER | HANDLE_MAKER)) != 0;
        if (atomic_load(&at->fh) != 0 && add_open(carried, at->node, writer, err) < 0)
            return -1;
    }
    return 0;
}

static int
by_node(const void *a, const void *b)
{
    const struct volume_carried_open *x = a;
    const struct volume_carried_open *y = b;
    return (x->node > y->node) - (x->node < y->node);
}

static int
load_lent(struct mounter *mounter, struct living *one, struct err *err)
{
    struct mounter_backing at = { .id = 0 };
    struct err end = ERR_INIT;
    size_t max = 0;
    while (mounter_backing_next(mounter, one->id, &at, &end) == 0) {
        if (one->lent_count == max) {
            max = max == 0 ? 64 : 2 * max;
            struct mounter_backing *more = realloc(one->lent, max * sizeof(*more));
            if (!more)
                return err_nomem(err);
            one->lent = more;
        }
        one->lent[one->lent_count++] = at;
    }
    if (end.code == ERR_NOT_FOUND)
        return 0;
    *err = end;
    return -1;
}

static bool
is_used(const struct carry *carry, int32_t id)
{
    for (uint32_t i = 0; i < carry->opens_used; i++) {
        if (atomic_load(&carry->opens[i].fh) != 0 && carry->opens[i].backing == id)
            return true;
    }
    return false;
}

/* Ids that were only kept for the next open: they cost the disk space of files that are gone. */
static void
close_unused(struct mount_service *service, const struct living *one)
{
    struct err err = ERR_INIT;
    int32_t ids[HELPER_CLOSE_MANY];
    size_t count = 0;
    for (size_t i = 0; i < one->lent_count; i++) {
        if (!is_used(one->carry, one->lent[i].id))
            ids[count++] = one->lent[i].id;
        bool full = count == HELPER_CLOSE_MANY || i + 1 == one->lent_count;
        if (full && count > 0 &&
            mounter_backing_close(service->mounter, one->id, ids, count, &err) < 0)
            log_warn(mount, "cannot close backing ids mount=%lld error=\"%s\"", (long long)one->id,
                     err.msg);
        count = full ? 0 : count;
    }
}

/* One that cannot be taken over is passed over: it is ended once its row is known. */
static int
load_one(struct mount_carried *carried, struct mounter *mounter, int64_t id, struct err *err)
{
    struct err why = ERR_INIT;
    struct living one = { .id = id };
    scope_free struct mounter_adopted *adopted = malloc(sizeof(*adopted));
    if (!adopted)
        return err_nomem(err);
    if (mounter_adopt(mounter, id, adopted, &why) < 0) {
        log_warn(mount, "a mount cannot be taken over mount=%lld error=\"%s\"", (long long)id,
                 why.msg);
        return 0;
    }
    one.fuse = adopted->fuse;
    one.dev_minor = adopted->dev_minor;
    if (session_record_read(adopted->record, adopted->record_len, &one.record, &why) == 0)
        one.carry = carry_map(adopted->kept, &why);
    (void)close(adopted->kept);
    struct living *more = NULL;
    if (one.carry && collect_opens(carried, one.carry, err) == 0 &&
        load_lent(mounter, &one, err) == 0)
        more = realloc(carried->living, (carried->count + 1) * sizeof(*more));
    if (more) {
        carried->living = more;
        carried->living[carried->count++] = one;
        return 0;
    }
    (void)close(one.fuse);
    free(one.lent);
    if (one.carry) {
        carry_unmap(one.carry);
        return err_nomem(err);
    }
    log_warn(mount, "a mount cannot be taken over mount=%lld error=\"%s\"", (long long)id, why.msg);
    return 0;
}

struct mount_carried *
mount_carried_load(int socket, struct err *err)
{
    int64_t id = 0;
    bool gone;
    struct err end = ERR_INIT;
    int own = fcntl(socket, F_DUPFD_CLOEXEC, 0);
    struct mount_carried *carried = own < 0 ? NULL : calloc(1, sizeof(*carried));
    if (!carried) {
        if (own >= 0)
            (void)close(own);
        err_nomem(err);
        return NULL;
    }
    struct mounter *mounter = mounter_new(own, 0, err);
    int rc = mounter ? 0 : -1;
    while (rc == 0 && mounter_next(mounter, &id, &gone, &end) == 0) {
        carried->any = true;
        if (!gone)
            rc = load_one(carried, mounter, id, err);
    }
    mounter_free(mounter);
    if (rc == 0 && end.code != ERR_NOT_FOUND) {
        *err = end;
        rc = -1;
    }
    if (rc < 0) {
        mount_carried_free(carried);
        return NULL;
    }
    if (carried->open_count > 0)
        qsort(carried->opens, carried->open_count, sizeof(*carried->opens), by_node);
    carried->view = (struct volume_carried){ carried->opens, carried->open_count };
    return carried;
}

const struct volume_carried *
mount_carried_opens(const struct mount_carried *carried)
{
    return carried && carried->count > 0 ? &carried->view : NULL;
}

static void
release_one(struct living *one)
{
    if (one->fuse >= 0)
        (void)close(one->fuse);
    carry_unmap(one->carry);
    session_unref(one->session);
    free(one->lent);
    *one = (struct living){ .fuse = -1 };
}

void
mount_carried_free(struct mount_carried *carried)
{
    if (!carried)
        return;
    for (size_t i = 0; i < carried->count; i++)
        release_one(&carried->living[i]);
    free(carried->living);
    free(carried->opens);
    free(carried);
}

/* ---- taking over ---- */

static int
read_uuid(struct index_tx *tx, void *arg, struct err *err)
{
    return index_meta_get(tx, "uuid", arg, SESSION_UUID_SIZE, err);
}

int
adopt_index_uuid(struct mount_service *service, char out[SESSION_UUID_SIZE], struct err *err)
{
    return index_read(volume_service_index(service->args.volumes), read_uuid, out, err);
}

static int
prepare(struct mount_service *service, struct living *one, const struct index_mount *row,
        struct err *err)
{
    struct volume_info volume;
    char uuid[SESSION_UUID_SIZE];
    if (adopt_index_uuid(service, uuid, err) < 0 ||
        record_find_volume(service->args.volumes, row->volume, &volume, err) < 0)
        return -1;
    /* Node ids of another index mean other files (docs/mechanisms.md section 3). */
    if (strcmp(uuid, one->record.index_uuid) != 0)
        return err_set(err, ERR_CORRUPT, "the index was rebuilt since");
    struct entry *entry = restore_entry(service, row);
    if (!entry)
        return err_nomem(err);
    (void)snprintf(entry->info.volume_name, sizeof(entry->info.volume_name), "%s", volume.name);
    entry->info.dev_minor = one->dev_minor;
    entry->own_path = attach_is_own_path(service, row->path);
    one->carry->incarnation++;
    close_unused(service, one);
    struct carry *carry = one->carry;
    one->carry = NULL;
    one->session = attach_session(entry, &volume, one->record.root, carry, err);
    if (!one->session) {
        free(entry);
        return -1;
    }
    session_reopen_files(one->session, one->lent, one->lent_count);
    pthread_mutex_lock(&service->mutex);
    mount_insert_locked(service, entry);
    pthread_mutex_unlock(&service->mutex);
    return 0;
}

static struct living *
find_living(struct mount_service *service, int64_t id)
{
    struct mount_carried *carried = service->args.carried;
    for (size_t i = 0; carried && i < carried->count; i++) {
        if (carried->living[i].id == id)
            return &carried->living[i];
    }
    return NULL;
}

void
mount_service_adopt(struct mount_service *service)
{
    struct err err = ERR_INIT;
    struct record_list list;
    if (!service->args.carried)
        return;
    if (record_load(service, &list, &err) < 0) {
        log_error(mount, "no mount is taken over error=\"%s\"", err.msg);
        return;
    }
    for (size_t i = 0; i < list.count; i++) {
        struct err why = ERR_INIT;
        struct living *one = find_living(service, list.rows[i].id);
        if (!one || prepare(service, one, &list.rows[i], &why) == 0)
            continue;
        log_error(mount, "a mount cannot be taken over mount=%lld error=\"%s\"", (long long)one->id,
                  why.msg);
        release_one(one);
    }
    free(list.rows);
}

/* From here on its requests are answered. */
static int
serve(struct mount_service *service, struct entry *entry, struct living *one, struct err *err)
{
    struct session *session = one->session;
    int fuse = one->fuse;
    one->fuse = -1;
    one->session = NULL;
    entry->settled_ns = clock_mono_ns() + 2 * service->args.request_deadline_ns;
    pthread_mutex_lock(&service->mutex);
    entry->session = session;
    pthread_mutex_unlock(&service->mutex);
    volume_kernels(service->args.volumes, 1);
    if (session_adopt(session, fuse, &one->record, err) < 0)
        return -1;
    /* What changed elsewhere a moment before the death may not have been told. */
    (void)session_forget_all(session);
    mount_set_state(entry, MOUNT_ACTIVE, false);
    log_info(mount, "taken over id=%lld path=%s", (long long)entry->info.id, entry->info.path);
    return 0;
}

/* Nobody serves it: its programs get an error now, not a hang. */
static void
end_connection(struct mount_service *service, int64_t id)
{
    struct err ignored = ERR_INIT;
    (void)!mounter_umount(service->mounter, id, HELPER_DETACH | HELPER_KEEP_GUARD, &ignored);
    (void)!mounter_abort(service->mounter, id, &ignored);
    (void)!mounter_forget(service->mounter, id, &ignored);
}

void
adopt_serve_all(struct mount_service *service)
{
    struct mount_carried *carried = service->args.carried;
    int64_t id = 0;
    bool gone;
    struct err end = ERR_INIT;
    for (size_t i = 0; carried && i < carried->count; i++) {
        struct err err = ERR_INIT;
        struct living *one = &carried->living[i];
        struct entry *entry = one->session ? mount_find_entry(service, one->id) : NULL;
        if (!entry || serve(service, entry, one, &err) == 0)
            continue;
        log_error(mount, "a mount cannot be taken over mount=%lld error=\"%s\"",
                  (long long)entry->info.id, err.msg);
        end_connection(service, entry->info.id);
        attach_finish(entry, clock_mono_ns());
        mount_drop(entry);
    }
    while (carried && carried->any && mounter_next(service->mounter, &id, &gone, &end) == 0) {
        if (!mount_find_entry(service, id))
            end_connection(service, id);
    }
    mount_carried_free(carried);
    service->args.carried = NULL;
}

/* ---- what it would be worth ---- */

static bool
kernel_sends_again(void)
{
    struct utsname name;
    unsigned major = 0;
    unsigned minor = 0;
    if (uname(&name) < 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2) /* NOLINT */
        return false;
    return major > 6 || (major == 6 && minor >= 9);
}

const char *
mount_opcode_name(unsigned opcode)
{
    static const char *const names[MOUNT_OPCODES] = {
        [1] = "LOOKUP",        [2] = "FORGET",
        [3] = "GETATTR",       [4] = "SETATTR",
        [5] = "READLINK",      [6] = "SYMLINK",
        [8] = "MKNOD",         [9] = "MKDIR",
        [10] = "UNLINK",       [11] = "RMDIR",
        [12] = "RENAME",       [13] = "LINK",
        [14] = "OPEN",         [15] = "READ",
        [16] = "WRITE",        [17] = "STATFS",
        [18] = "RELEASE",      [20] = "FSYNC",
        [21] = "SETXATTR",     [22] = "GETXATTR",
        [23] = "LISTXATTR",    [24] = "REMOVEXATTR",
        [25] = "FLUSH",        [26] = "INIT",
        [27] = "OPENDIR",      [28] = "READDIR",
        [29] = "RELEASEDIR",   [30] = "FSYNCDIR",
        [31] = "GETLK",        [32] = "SETLK",
        [33] = "SETLKW",       [34] = "ACCESS",
        [35] = "CREATE",       [36] = "INTERRUPT",
        [37] = "BMAP",         [38] = "DESTROY",
        [39] = "IOCTL",        [40] = "POLL",
        [42] = "BATCH_FORGET", [43] = "FALLOCATE",
        [44] = "READDIRPLUS",  [45] = "RENAME2",
        [46] = "LSEEK",        [47] = "COPY_FILE_RANGE",
        [48] = "SETUPMAPPING", [50] = "SYNCFS",
        [51] = "TMPFILE",      [52] = "STATX",
    };
    return opcode < MOUNT_OPCODES && names[opcode] ? names[opcode] : "OTHER";
}

const char *
mount_takeover_obstacle(void)
{
    if (!session_can_adopt())
        return "built with a libfuse older than 3.17";
    return kernel_sends_again() ? "" : "the kernel is older than 6.9";
}

void
mount_service_takeovers(struct mount_service *service, struct mount_takeovers *out,
                        const char **why)
{
    memset(out, 0, sizeof(*out));
    *why = mount_takeover_obstacle();
    if (!service->mounter)
        *why = "started without root";
    else if (!mounter_lives(service->mounter))
        *why = "the mounter has ended: restart the gateway";
    scope_unlock pthread_mutex_t *held = scope_lock(&service->mutex);
    (void)held;
    for (struct entry *at = service->entries; at; at = at->next) {
        if (at->session)
            session_count_takeovers(at->session, out);
    }
}
