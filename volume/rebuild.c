#include "volume/rebuild.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/scope.h"
#include "volume/rebuild_impl.h"

/* The order of a rebuild, and how the new index takes the old one's place. */

#define BESIDE "rebuild" /* where the new index is built, in the state directory */

static const char *const parts[] = { "index.db", "index.db-wal", "index.db-shm" };
#define PARTS (sizeof(parts) / sizeof(parts[0]))

void
rebuild_progress(const struct rebuild *rebuild, const char *what, const char *volume, uint64_t done)
{
    const struct volume_rebuild_args *args = rebuild->args;
    if (args->progress != NULL)
        args->progress(args->progress_arg, what, volume, done);
}

const struct index_volume *
rebuild_volume(const struct rebuild *rebuild, const char *name, size_t len)
{
    for (size_t i = 0; i < rebuild->volume_count; i++) {
        const struct index_volume *volume = &rebuild->volume[i];
        if (strlen(volume->name) == len && memcmp(volume->name, name, len) == 0)
            return volume;
    }
    return NULL;
}

/* ---- the old index ---- */

struct old_index {
    char store_id[64];
    char uuid[64];
};

static int
old_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct old_index *old = arg;
    struct err missing = ERR_INIT;
    (void)err;
    if (index_meta_get(tx, "store-id", old->store_id, sizeof(old->store_id), &missing) != 0)
        old->store_id[0] = '\0';
    return 0;
}

/* A state directory of another store has staged bytes that do not belong here. What is damaged says nothing. */
static int
check_old(const struct volume_rebuild_args *args, const char *id, struct err *err)
{
    struct index_options options = { .create = false };
    struct old_index old = { .store_id = "" };
    struct err damage = ERR_INIT;
    struct index *index = index_open(args->state_dir, &options, &damage);
    if (index == NULL) {
        if (damage.code != ERR_NEWER_FORMAT && damage.code != ERR_NOMEM)
            return 0;
        *err = damage;
        return -1;
    }
    int rc = index_read(index, old_tx, &old, &damage);
    index_close(index);
    if (rc != 0 || old.store_id[0] == '\0' || strcmp(old.store_id, id) == 0)
        return 0;
    return err_set(err, ERR_WRONG_STORE,
                   "%s holds store %s, but the state directory belongs to store %s: check --store, "
                   "or give another --state",
                   args->store->url, id, old.store_id);
}

/* Renames what there is of the old index. The WAL belongs to its database: they keep one name. When this is cut off in the middle, what
 * is left is set aside by the next attempt, and SQLite takes no WAL for a database that is new. */
static int
set_aside(const struct rebuild *rebuild, struct err *err)
{
    char stamp[TIME_RFC3339_SIZE], to[128];
    time_rfc3339(clock_wall_ns(), stamp, sizeof(stamp));
    for (size_t i = 0; i < PARTS; i++) {
        (void)snprintf(to, sizeof(to), "index.db.before-%s%s", stamp, parts[i] + 8);
        if (renameat(rebuild->state_fd, parts[i], rebuild->state_fd, to) == 0) {
            if (i == 0)
                text_set(rebuild->out->old_index, to);
        } else if (errno != ENOENT) {
            return err_sys(err, errno, "cannot set '%s' aside", parts[i]);
        }
    }
    return fsync(rebuild->state_fd) == 0
               ? 0
               : err_sys(err, errno, "cannot keep the state directory '%s'",
                         rebuild->args->state_dir);
}

/* ---- the new one ---- */

static int
clear_beside(int dir, struct err *err)
{
    for (size_t i = 0; i < PARTS; i++)
        if (unlinkat(dir, parts[i], 0) != 0 && errno != ENOENT)
            return err_sys(err, errno, "cannot remove what an earlier rebuild left");
    return 0;
}

static int
open_beside(struct rebuild *rebuild, struct err *err)
{
    scope_free char *path = NULL;
    struct index_options options = { .create = true };
    if (mkdirat(rebuild->state_fd, BESIDE, 0700) != 0 && errno != EEXIST)
        return err_sys(err, errno, "cannot make a directory in '%s'", rebuild->args->state_dir);
    scope_fd int dir =
        openat(rebuild->state_fd, BESIDE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, errno, "cannot open '%s/" BESIDE "'", rebuild->args->state_dir);
    if (clear_beside(dir, err) != 0)
        return -1;
    if (asprintf(&path, "%s/" BESIDE, rebuild->args->state_dir) < 0) {
        path = NULL;
        return err_nomem(err);
    }
    rebuild->index = index_open(path, &options, err);
    return rebuild->index != NULL ? 0 : -1;
}

struct bind_call {
    const struct rebuild *rebuild;
    const char *store_id;
};

/* Bound to its store; whatever the cache holds was judged here, so that the next start believes its rows. */
static int
bind_tx(struct index_tx *tx, void *arg, struct err *err)
{
    const struct bind_call *call = arg;
    const struct rebuild *rebuild = call->rebuild;
    const char *url = rebuild->store->url;
    if (index_meta_set(tx, "store-id", call->store_id, err) != 0 ||
        index_meta_set(tx, "boot-id", rebuild->boot_id, err) != 0 ||
        index_meta_set(tx, "clean", "1", err) != 0)
        return -1;
    return url[0] == '\0' ? 0 : index_meta_set(tx, "store-url", url, err);
}

static int
sync_beside(int dir, struct err *err)
{
    scope_fd int fd = openat(dir, parts[0], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fdatasync(fd) != 0 || fsync(dir) != 0)
        return err_sys(err, errno, "cannot keep the new index");
    return 0;
}

static int
take_place(struct rebuild *rebuild, struct err *err)
{
    scope_fd int dir = openat(rebuild->state_fd, BESIDE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, errno, "cannot open the new index");
    if (sync_beside(dir, err) != 0 || set_aside(rebuild, err) != 0)
        return -1;
    if (renameat(dir, parts[0], rebuild->state_fd, parts[0]) != 0)
        return err_sys(err, errno, "cannot put the new index into its place");
    (void)clear_beside(dir, err); /* an empty WAL at most */
    (void)unlinkat(rebuild->state_fd, BESIDE, AT_REMOVEDIR);
    return fsync(rebuild->state_fd) == 0 ? 0 : err_sys(err, errno, "cannot keep the new index");
}

/* ---- the whole ---- */

static int
add_volume(void *arg, const struct index_volume *row, struct err *err)
{
    struct rebuild *rebuild = arg;
    if (rebuild->volume_count == rebuild->volume_cap) {
        size_t cap = rebuild->volume_cap == 0 ? 16 : rebuild->volume_cap * 2;
        struct index_volume *grown = reallocarray(rebuild->volume, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        rebuild->volume = grown;
        rebuild->volume_cap = cap;
    }
    rebuild->volume[rebuild->volume_count++] = *row;
    rebuild->out->volumes++;
    return 0;
}

static int
fill(struct rebuild *rebuild, const char *store_id, struct err *err)
{
    struct bind_call bind = { rebuild, store_id };
    struct rebuild_find find = { .store = rebuild->store,
                                 .index = rebuild->index,
                                 .fn = add_volume,
                                 .arg = rebuild,
                                 .left_out = rebuild->out->left_out };
    if (rebuild_volumes(&find, err) != 0)
        return -1;
    for (size_t i = 0; i < rebuild->volume_count; i++)
        if (rebuild_tree(rebuild, &rebuild->volume[i], err) != 0)
            return -1;
    if (rebuild_conflicts(rebuild, err) != 0 || rebuild_parked(rebuild, err) != 0 ||
        rebuild_history(rebuild, NULL, NULL, err) != 0 || rebuild_snapshots(rebuild, err) != 0 ||
        rebuild_staged(rebuild, err) != 0)
        return -1;
    return index_write(rebuild->index, INDEX_FULL, bind_tx, &bind, err);
}

static int
build(struct rebuild *rebuild, const char *store_id, struct err *err)
{
    if (open_beside(rebuild, err) != 0)
        return -1;
    int rc = fill(rebuild, store_id, err);
    index_close(rebuild->index); /* empties the WAL */
    rebuild->index = NULL;
    return rc == 0 ? take_place(rebuild, err) : -1;
}

static int
read_id(const struct volume_rebuild_args *args, char id[ULID_SIZE], struct err *err)
{
    if (binding_read_id(args->store, id, err) == 0)
        return 0;
    if (err->code != ERR_NOT_FOUND)
        return -1;
    return err_set(err, ERR_NOT_FOUND,
                   "%s holds nothing of Holdfast's ('.holdfast/store.json' is not there): check "
                   "--store; a volume over objects of others is made with 'holdfast volume create'",
                   args->store->url);
}

int
volume_rebuild(const struct volume_rebuild_args *args, struct volume_rebuild_report *out,
               struct err *err)
{
    struct rebuild rebuild = { .args = args, .out = out, .store = args->store };
    struct store_counters before, after;
    char id[ULID_SIZE];
    int64_t began = clock_mono_ns();
    memset(out, 0, sizeof(*out));
    scope_fd int dir = open(args->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, errno, "cannot open the state directory '%s'", args->state_dir);
    rebuild.state_fd = dir;
    store_counters(args->store, &before);
    if (sys_boot_id(rebuild.boot_id, err) != 0 || read_id(args, id, err) != 0 ||
        check_old(args, id, err) != 0)
        return -1;
    rebuild.same_boot = lock_journal_of_boot(dir, rebuild.boot_id);
    int rc = build(&rebuild, id, err);
    free(rebuild.volume);
    store_counters(args->store, &after);
    out->lists = after.lists - before.lists;
    out->heads = after.heads - before.heads;
    out->gets = after.gets - before.gets;
    out->took_ns = clock_mono_ns() - began;
    return rc;
}
