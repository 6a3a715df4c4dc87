#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/path.h"
#include "volume/changelog_impl.h"
#include "volume/listing_impl.h"

/*
 * Hints become looks. Only what this gateway knows is looked at: a folder that nobody listed here is listed when somebody comes. What
 * the bucket says then goes the way of every other look (bucket.c), so a hint that is wrong costs a request and changes nothing.
 */

#define LOOKS_OF_FOLDER 16u /* more in one folder: it is listed instead */
#define SWEEP_FOLDERS 4096u /* listed anew at once; the others when somebody looks */

int
changelog_hint_add(struct changelog_hints *hints, const struct changelog_volume *volume,
                   const struct changelog_line *line, struct err *err)
{
    if (hints->hint == NULL) {
        hints->hint = calloc(CHANGELOG_HINTS, sizeof(*hints->hint));
        if (hints->hint == NULL)
            return err_nomem(err);
    }
    size_t prefix = strlen(volume->prefix), len = strlen(line->path);
    if (prefix + len > LIMIT_KEY)
        return 0;
    if (volume->prefix[0] == '\0' && path_within(line->path, ".holdfast"))
        return 0;
    if (hints->count == CHANGELOG_HINTS) {
        hints->full = true;
        return 0;
    }
    struct changelog_hint *hint = &hints->hint[hints->count++];
    memcpy(hint->key, volume->prefix, prefix);
    memcpy(hint->key + prefix, line->path, len + 1);
    text_set(hint->etag, line->etag);
    text_set(hint->version, line->version);
    hint->gone = line->gone;
    hint->dir = 0;
    hint->look = hint->list = false;
    return 0;
}

/* ---- what is known here ---- */

struct placing {
    struct volume_service *service;
    struct changelog_volume *volume;
    struct changelog_hints *hints;
    int64_t root;
};

/* The folder in which the hint's name would be, or the last one on the way that is known here. */
struct place {
    int64_t dir;
    bool there;  /* all folders on the way are known */
    bool listed; /* what `dir` does not show is not there */
};

static int
find_folder(struct index_tx *tx, const struct placing *call, const char *path, struct place *out,
            struct err *err)
{
    const char *rest = path, *name;
    size_t rest_len = strlen(path), len;
    struct index_node node;
    struct err missing = ERR_INIT;
    if (rest_len > 0 && path[rest_len - 1] == '/')
        rest_len--;
    *out = (struct place){ .dir = call->root, .there = true };
    if (index_node_get(tx, call->root, &node, err) != 0)
        return -1;
    while (memchr(rest, '/', rest_len) != NULL && path_next(&rest, &rest_len, &name, &len)) {
        struct index_node child;
        if (index_node_child(tx, out->dir, name, len, &child, &missing) != 0) {
            out->there = false;
            break;
        }
        if (child.kind != INDEX_DIR) /* a file where others have a folder: the look tells */
            break;
        node = child;
        out->dir = child.id;
    }
    out->listed = service_listed(call->service, &node);
    return missing.code == ERR_NOT_FOUND || out->there
               ? 0
               : err_set(err, missing.code, "%s", missing.msg);
}

static int
place_hint(struct index_tx *tx, const struct placing *call, struct changelog_hint *hint,
           struct err *err)
{
    struct index_key row;
    struct place place;
    struct err missing = ERR_INIT;
    if (find_folder(tx, call, hint->key + strlen(call->volume->prefix), &place, err) != 0)
        return -1;
    hint->dir = place.dir;
    if (index_key_get(tx, hint->key, &row, &missing) == 0) {
        hint->look = hint->gone || strcmp(row.etag, hint->etag) != 0 ||
                     (hint->version[0] != '\0' && strcmp(row.version, hint->version) != 0);
        return 0;
    }
    if (missing.code != ERR_NOT_FOUND)
        return err_set(err, missing.code, "%s", missing.msg);
    hint->look = !hint->gone && place.listed;
    /* The new folder is shown by its parent's listing, and listed itself when somebody comes: no folder is known by halves. */
    hint->list = hint->look && !place.there;
    return 0;
}

static int
place_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct placing *call = arg;
    struct index_volume row;
    if (index_volume_get(tx, call->volume->id, &row, err) != 0)
        return -1;
    call->root = row.root;
    for (size_t i = 0; i < call->hints->count; i++)
        if (place_hint(tx, call, &call->hints->hint[i], err) != 0)
            return -1;
    return 0;
}

/* ---- looking ---- */

static int
by_folder(const void *a, const void *b)
{
    const struct changelog_hint *x = a, *y = b;
    if (x->look != y->look)
        return x->look ? -1 : 1;
    if (x->dir != y->dir)
        return x->dir < y->dir ? -1 : 1;
    if (x->gone != y->gone)
        return x->gone ? -1 : 1;
    return strcmp(x->key, y->key);
}

/* Some stores give back other names than they were given. */
static bool
may_be_folded(const struct volume_service *service, const char *key)
{
    if (service->store->caps.folds_names != STORE_YES)
        return false;
    while (*key != '\0' && (unsigned char)*key < 0x80)
        key++;
    return *key != '\0';
}

struct looks {
    const char *key[CHANGELOG_HINTS];
    size_t count;
};

/* Of those in one folder that ended, or that were put; answers how many they are. A listing asks for each that it does not show: it
 * saves nothing for those that ended. */
static size_t
look_in_folder(struct changelog *log, struct changelog_volume *volume,
               const struct changelog_hint *hint, size_t left, struct looks *looks)
{
    size_t count = 0;
    bool list = false;
    for (; count < left && hint[count].look && hint[count].dir == hint->dir &&
           hint[count].gone == hint->gone;
         count++)
        list |= hint[count].list || may_be_folded(log->service, hint[count].key);
    if (list || (count > LOOKS_OF_FOLDER && !hint->gone)) {
        /* No room for it now: with all the others then. */
        if (!lister_renew(log->service, hint->dir))
            volume->sweep = true;
        return count;
    }
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(hint[i].key, hint[i - 1].key) != 0)
            looks->key[looks->count++] = hint[i].key;
    return count;
}

struct marking {
    struct volume_service *service;
    const struct changelog_hints *hints;
};

/* The bytes that are known here, put once more: their attributes may be others. */
static int
mark_tx(struct index_tx *tx, void *arg, struct err *err)
{
    const struct marking *call = arg;
    for (size_t i = 0; i < call->hints->count && call->hints->hint[i].look; i++) {
        const struct changelog_hint *hint = &call->hints->hint[i];
        struct index_key row;
        struct err missing = ERR_INIT;
        if (hint->gone || index_key_get(tx, hint->key, &row, &missing) != 0 ||
            strcmp(row.etag, hint->etag) != 0)
            continue;
        if (listing_mark_changed(tx, call->service, row.owner, err) != 0)
            return -1;
    }
    return 0;
}

int
changelog_hint_follow(struct changelog *log, struct changelog_volume *volume,
                      struct changelog_hints *hints, struct err *err)
{
    struct volume_service *service = log->service;
    struct placing placing = { .service = service, .volume = volume, .hints = hints };
    struct marking marking = { service, hints };
    scope_free struct looks *looks = calloc(1, sizeof(*looks));
    int rc = looks == NULL ? err_nomem(err) : 0;
    volume->sweep |= hints->full;
    if (rc == 0 && hints->count > 0)
        rc = index_read(service->index, place_tx, &placing, err);
    if (rc == 0 && hints->count > 0) {
        qsort(hints->hint, hints->count, sizeof(*hints->hint), by_folder);
        for (size_t i = 0; i < hints->count && hints->hint[i].look;)
            i += look_in_folder(log, volume, &hints->hint[i], hints->count - i, looks);
        if (hints->hint[0].look)
            rc = index_write(service->index, INDEX_NORMAL, mark_tx, &marking, err);
        if (rc == 0 && looks->count > 0)
            rc = heads_observe(service, volume->id, looks->key, looks->count, err);
    }
    /* What they named is asked for again, among all. */
    volume->sweep |= rc != 0;
    hints->count = 0;
    hints->full = false;
    return rc;
}

/* ---- all that is known ---- */

struct surveying {
    struct volume_service *service;
    int64_t volume;
    int64_t dir, after;
    unsigned seen;
    int64_t id[SWEEP_FOLDERS];
    size_t count;
    bool more;
};

static int
see_folder(void *arg, const struct index_node *row, struct err *err)
{
    struct surveying *call = arg;
    (void)err;
    call->after = row->id;
    call->seen++;
    if (!service_listed(call->service, row))
        return 0;
    if (call->count == SWEEP_FOLDERS) {
        call->more = true;
        return 1;
    }
    call->id[call->count++] = row->id;
    return 0;
}

static int
root_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct surveying *call = arg;
    struct index_volume volume;
    struct index_node node;
    if (index_volume_get(tx, call->volume, &volume, err) != 0 ||
        index_node_get(tx, volume.root, &node, err) != 0)
        return -1;
    return see_folder(call, &node, err) < 0 ? -1 : 0;
}

static int
folders_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct surveying *call = arg;
    call->seen = 0;
    return index_node_folders(tx, call->dir, call->after, 256, see_folder, call, err);
}

/* Folders that were listed, from the root down; below one that was not nobody was either, or long ago. */
static int
survey(struct surveying *call, struct err *err)
{
    struct index *index = call->service->index;
    if (index_read(index, root_tx, call, err) != 0)
        return -1;
    for (size_t i = 0; i < call->count && !call->more; i++) {
        call->dir = call->id[i];
        call->after = 0;
        do {
            if (index_read(index, folders_tx, call, err) != 0)
                return -1;
        } while (call->seen > 0 && !call->more);
    }
    return 0;
}

static int
begin_sweep(struct changelog *log, struct changelog_volume *volume, struct err *err)
{
    scope_free struct surveying *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return err_nomem(err);
    call->service = log->service;
    call->volume = volume->id;
    volume->sweep = false;
    volume->swept_ns = clock_mono_ns();
    /* From here on none of these listings counts as late. */
    atomic_store(&log->swept_ns[(uint64_t)volume->id % CHANGELOG_SLOTS], clock_wall_ns());
    if (survey(call, err) != 0)
        return -1;
    volume->todo = calloc(call->count + 1, sizeof(*volume->todo));
    if (volume->todo == NULL)
        return err_nomem(err);
    for (size_t i = 0; i < call->count; i++) /* the root is taken first */
        volume->todo[call->count - 1 - i] = call->id[i];
    volume->todo_count = call->count;
    if (call->more) /* kernels forget what they believe of the others */
        event_emit(log->service, VOLUME_EVENT_LOST, NULL, 0);
    log_info(volume,
             "changes of others may have been missed: folders are listed anew volume=%s "
             "folders=%zu",
             volume->name, call->count);
    return 0;
}

bool
changelog_hint_sweep(struct changelog *log, struct changelog_volume *volume)
{
    struct err err = ERR_INIT;
    if (volume->todo == NULL) {
        bool soon = volume->swept_ns != 0 &&
                    clock_mono_ns() - volume->swept_ns < CHANGELOG_SWEEPS * log->poll_ns;
        if (!volume->sweep || soon)
            return !volume->sweep;
        if (begin_sweep(log, volume, &err) != 0) {
            log_debug(volume, "cannot sweep volume=%s why=%s", volume->name, err.msg);
            volume->sweep = true;
            return false;
        }
    }
    while (volume->todo_count > 0 &&
           lister_renew(log->service, volume->todo[volume->todo_count - 1]))
        volume->todo_count--;
    if (volume->todo_count > 0)
        return false;
    free(volume->todo);
    volume->todo = NULL;
    return !volume->sweep;
}
