/* What stands in the files of `.holdfast/`: asked of the volume, put into words by virtual.c. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/scope.h"
#include "mount/session_virtual_impl.h"

#define MAX_LINES 1000u
#define FLUSH_NS (25 * NS_PER_S)
#define EVENTS_MAX (512u << 10) /* the text begins anew beyond */

static int
find_folder(struct session *session, char *out, size_t size, struct err *err)
{
    out[0] = '\0';
    if (session->args.root == session->args.volume_root)
        return 0;
    return volume_path(session->args.volumes, session->args.root, out, size, err);
}

/* ---- status ---- */

static int
make_status(struct session *session, struct buf *out, struct err *err)
{
    struct volume_info info;
    scope_free struct volume_status *all = malloc(sizeof(*all));
    char folder[LIMIT_PATH + 1];
    if (!all)
        return err_nomem(err);
    if (find_folder(session, folder, sizeof(folder), err) < 0 ||
        volume_find(session->args.volumes, session->volume_name, &info, err) < 0 ||
        volume_status(session->args.volumes, all, err) < 0)
        return -1;
    struct virtual_status status = {
        .volume = session->volume_name,
        .folder = folder,
        .run = session->run,
        .read_only = session->args.read_only || info.read_only,
        .sync_close = info.sync_close,
        .frozen = info.frozen,
        .store_ok = all->store_ok,
        .degraded = all->degraded,
        .denied = all->store_error_code == ERR_STORE_DENIED,
        .disk_low = all->disk_low,
        .store_since_ns = all->store_error_since_ns,
        .lease_end_ns = atomic_load(&session->virtual.lease_end_ns),
        .now_ns = clock_wall_ns(),
        .unsynced_files = info.unsynced_files,
        .unsynced_bytes = info.unsynced_bytes,
        .pending = info.pending_keys,
        .conflicts = info.conflicts,
        .files = info.files,
        .bytes = info.bytes,
        .quota = info.quota,
        .history_ns = info.history_ns,
    };
    volume_reads_of(session->args.volumes, session->run, &status.reads);
    return virtual_status(&status, out, err);
}

/* ---- unsynced ---- */

struct line {
    int64_t since_ns;
    size_t at, len;
};
struct lines {
    const struct session *session;
    const char *folder;
    struct buf text;
    struct line line[MAX_LINES];
    size_t count, seen;
};

/* What has no name any more, and what is no file, goes by its key. */
static const char *
path_of(const struct lines *lines, const struct volume_unsynced *row)
{
    const char *prefix = lines->session->prefix;
    /* A folder above was moved, and what is mounted here with it. */
    if (row->below && row->path[0] != '\0' && lines->folder[0] != '\0' &&
        (strcmp(row->path, lines->folder) == 0 || virtual_below(row->path, lines->folder) != NULL))
        return ".";
    if (row->path[0] != '\0')
        return virtual_below(lines->folder, row->path);
    if (strncmp(row->key, prefix, strlen(prefix)) == 0)
        return virtual_below(lines->folder, row->key + strlen(prefix));
    return lines->folder[0] == '\0' ? row->key : NULL;
}

static int
add_line(void *arg, const struct volume_unsynced *row, struct err *err)
{
    struct lines *lines = arg;
    const char *path = path_of(lines, row);
    lines->seen++;
    if (!path || lines->count == MAX_LINES)
        return 0;
    struct line *line = &lines->line[lines->count];
    line->since_ns = row->since_ns;
    line->at = lines->text.len;
    if (virtual_unsynced(row, path, &lines->text, err) < 0)
        return -1;
    line->len = lines->text.len - line->at;
    lines->count++;
    return 0;
}

static int
older(const void *a, const void *b)
{
    const struct line *one = a, *two = b;
    if (one->since_ns != two->since_ns)
        return one->since_ns < two->since_ns ? -1 : 1;
    return one->at < two->at ? -1 : 1;
}

static int
put_lines(struct lines *lines, struct buf *out, struct err *err)
{
    struct volume_info info;
    struct session_args const *args = &lines->session->args;
    qsort(lines->line, lines->count, sizeof(lines->line[0]), older);
    for (size_t i = 0; i < lines->count; i++)
        if (buf_append(out, lines->text.data + lines->line[i].at, lines->line[i].len, err) < 0)
            return -1;
    if (lines->seen <= MAX_LINES)
        return 0;
    if (volume_find(args->volumes, lines->session->volume_name, &info, err) < 0)
        return -1;
    return virtual_more(info.pending_keys > MAX_LINES ? info.pending_keys - MAX_LINES : 1, out,
                        err);
}

static int
make_unsynced(struct session *session, struct buf *out, struct err *err)
{
    char folder[LIMIT_PATH + 1];
    scope_free struct lines *lines = calloc(1, sizeof(*lines));
    if (!lines)
        return err_nomem(err);
    if (find_folder(session, folder, sizeof(folder), err) < 0)
        return -1;
    lines->session = session;
    lines->folder = folder;
    buf_init(&lines->text, out->max);
    int rc = volume_unsynced_each(session->args.volumes, session->args.volume, MAX_LINES + 1,
                                  add_line, lines, err);
    if (rc == 0)
        rc = put_lines(lines, out, err);
    buf_release(&lines->text);
    return rc;
}

/* ---- conflicts ---- */

struct losers {
    char folder[LIMIT_PATH + 1];
    virtual_loser_fn *fn;
    void *arg;
};

static int
one_loser(void *arg, const struct index_conflict *row, struct err *err)
{
    const struct losers *call = arg;
    const char *path = virtual_below(call->folder, row->path);
    return path ? call->fn(call->arg, row, path, err) : 0;
}

int
session_virtual_losers(struct session *session, virtual_loser_fn *fn, void *arg, struct err *err)
{
    struct losers call = { .fn = fn, .arg = arg };
    if (find_folder(session, call.folder, sizeof(call.folder), err) < 0)
        return -1;
    return volume_conflict_each(session->args.volumes, session->args.volume, one_loser, &call, err);
}

struct find_loser {
    uint64_t id;
    bool found;
    struct virtual_loser *out;
};

static int
match_loser(void *arg, const struct index_conflict *row, const char *path, struct err *err)
{
    struct find_loser *find = arg;
    (void)err;
    if (find->found || virtual_id(row->id) != find->id)
        return 0;
    find->found = true;
    find->out->row = *row;
    (void)snprintf(find->out->path, sizeof(find->out->path), "%s", path);
    return 0;
}

int
session_virtual_loser(struct session *session, uint64_t id, struct virtual_loser *out,
                      struct err *err)
{
    struct find_loser find = { .id = id, .out = out };
    if (session_virtual_losers(session, match_loser, &find, err) < 0)
        return -1;
    return find.found ? 0 : err_set(err, ERR_NOT_FOUND, "no such conflict");
}

struct list_losers {
    struct buf *out;
    uint64_t seen;
};

static int
list_loser(void *arg, const struct index_conflict *row, const char *path, struct err *err)
{
    struct list_losers *list = arg;
    return list->seen++ < MAX_LINES ? virtual_conflict(row, path, list->out, err) : 0;
}

static int
make_conflicts(struct session *session, struct buf *out, struct err *err)
{
    struct list_losers list = { .out = out };
    if (session_virtual_losers(session, list_loser, &list, err) < 0)
        return -1;
    return list.seen <= MAX_LINES ? 0 : virtual_more(list.seen - MAX_LINES, out, err);
}

static int
make_info(struct session *session, uint64_t id, struct buf *out, struct err *err)
{
    scope_free struct virtual_loser *loser = malloc(sizeof(*loser));
    if (!loser)
        return err_nomem(err);
    if (session_virtual_loser(session, id, loser, err) < 0)
        return -1;
    return virtual_conflict(&loser->row, loser->path, out, err);
}

/* Where it cannot be had there is no such file. */
static int
make_side(struct call *call, const struct volume_ctx *ctx, uint64_t id, enum volume_side side,
          struct buf *out, struct err *err)
{
    struct err why = ERR_INIT;
    scope_free struct virtual_loser *loser = malloc(sizeof(*loser));
    if (!loser)
        return err_nomem(err);
    if (session_virtual_loser(call->session, id, loser, err) < 0)
        return -1;
    if (volume_conflict_side(call->session->args.volumes, ctx, loser->row.id, side, out, &why) == 0)
        return 0;
    if (why.code == ERR_NO_MERGE)
        return err_set(err, ERR_NOT_FOUND, "%s", why.msg);
    *err = why;
    return -1;
}

int
session_virtual_has_base(struct session *session, uint64_t id, bool *out, struct err *err)
{
    scope_free struct virtual_loser *loser = malloc(sizeof(*loser));
    if (!loser)
        return err_nomem(err);
    if (session_virtual_loser(session, id, loser, err) < 0)
        return -1;
    return volume_conflict_has_base(session->args.volumes, loser->row.id, out, err);
}

/* ---- flush ---- */

static int
make_flush(struct call *call, struct buf *out, struct err *err)
{
    struct session *session = call->session;
    struct volume_barrier barrier;
    struct volume_info info;
    struct err why = ERR_INIT;
    int64_t until = clock_mono_ns() + FLUSH_NS;
    if (until > call->deadline_ns - 2 * NS_PER_S)
        until = call->deadline_ns - 2 * NS_PER_S;
    int rc =
        volume_flush_quietly(session->args.volumes, session->args.volume, until, &barrier, &why);
    if (rc < 0 && why.code != ERR_NOT_SYNCED) {
        *err = why;
        return -1;
    }
    if (volume_find(session->args.volumes, session->volume_name, &info, err) < 0)
        return -1;
    struct virtual_flushed flushed = {
        .synced = rc == 0,
        .pending = rc == 0               ? 0
                   : barrier.pending > 0 ? barrier.pending
                                         : 1,
        .conflicts = info.conflicts,
    };
    return virtual_flush(&flushed, out, err);
}

int
session_virtual_make(struct call *call, const struct volume_ctx *ctx,
                     const struct virtual_place *place, struct buf *out, struct err *err)
{
    struct session *session = call->session;
    switch (place->kind) {
    case VIRTUAL_README:
        return virtual_readme(session->volume_name, session->args.read_only, out, err);
    case VIRTUAL_STATUS:
        return make_status(session, out, err);
    case VIRTUAL_UNSYNCED:
        return make_unsynced(session, out, err);
    case VIRTUAL_CONFLICTS:
        return make_conflicts(session, out, err);
    case VIRTUAL_INFO:
        return make_info(session, place->id, out, err);
    case VIRTUAL_FLUSH:
        return make_flush(call, out, err);
    case VIRTUAL_BASE:
        return make_side(call, ctx, place->id, VOLUME_BASE, out, err);
    case VIRTUAL_MERGED:
        return make_side(call, ctx, place->id, VOLUME_MERGED, out, err);
    default:
        return err_set(err, ERR_INTERNAL, "a file of .holdfast without a text");
    }
}

/* ---- events ---- */

/* The path as the mount sees it; false: not to be shown here. A folder that is gone leaves only the name. */
static bool
event_path(struct session *session, const char *folder, const struct event_item *item, char *out,
           size_t size)
{
    char path[LIMIT_PATH + 1];
    char parent[LIMIT_PATH + 1] = "";
    struct err gone = ERR_INIT;
    out[0] = '\0';
    if (virtual_event_nameless(item->kind))
        return true;
    bool known =
        volume_path(session->args.volumes, item->parent, parent, sizeof(parent), &gone) == 0;
    if (!known && folder[0] != '\0')
        return false;
    int len = snprintf(path, sizeof(path), "%s%s%s", parent, parent[0] ? "/" : "", item->name);
    if (len < 0 || (size_t)len >= sizeof(path))
        return false;
    const char *below = virtual_below(folder, path);
    if (!below)
        return false;
    (void)snprintf(out, size, "%s", below);
    return true;
}

static int
append_events(struct session *session, const struct event_item *items, size_t count,
              struct err *err)
{
    struct session_virtual *state = &session->virtual;
    char folder[LIMIT_PATH + 1];
    char path[LIMIT_PATH + 1];
    if (find_folder(session, folder, sizeof(folder), err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (event_path(session, folder, &items[i], path, sizeof(path)) &&
            virtual_event(&items[i], path, &state->events, err) < 0)
            return -1;
        state->seen = items[i].seq;
        state->changed_ns = items[i].time_ns;
    }
    return 0;
}

/* Takes over what happened since; the mutex is held, so that two readers see one text. */
static int
refresh_locked(struct session *session, struct err *err)
{
    struct session_virtual *state = &session->virtual;
    uint64_t first;
    scope_free struct event_item *items = malloc(EVENT_LOG_ITEMS * sizeof(*items));
    if (!items)
        return err_nomem(err);
    if (state->events.len > EVENTS_MAX) {
        buf_clear(&state->events); /* as a log that is rotated; `tail -F` sees it */
        state->seen = 0;
    }
    size_t count = event_log_read(state->log, session->args.volume, state->seen, items, &first);
    bool begins = state->events.len == 0;
    uint64_t lost = !begins && first > state->seen + 1 ? first - state->seen - 1 : 0;
    if (begins)
        state->changed_ns = clock_wall_ns();
    if ((begins || lost > 0) && virtual_event_gap(first, lost, &state->events, err) < 0)
        return -1;
    if (begins && count == 0)
        state->seen = first - 1;
    return append_events(session, items, count, err);
}

int
session_events_size(struct session *session, uint64_t *size, int64_t *changed_ns, struct err *err)
{
    struct session_virtual *state = &session->virtual;
    scope_unlock pthread_mutex_t *held = scope_lock(&state->mutex);
    (void)held;
    if (refresh_locked(session, err) < 0)
        return -1;
    *size = state->events.len;
    *changed_ns = state->changed_ns;
    return 0;
}

int
session_events_read(struct session *session, uint64_t off, size_t len, struct buf *out,
                    struct err *err)
{
    struct session_virtual *state = &session->virtual;
    scope_unlock pthread_mutex_t *held = scope_lock(&state->mutex);
    (void)held;
    if (refresh_locked(session, err) < 0)
        return -1;
    if (off >= state->events.len)
        return 0;
    size_t left = state->events.len - (size_t)off;
    return buf_append(out, state->events.data + off, left < len ? left : len, err);
}

/* ---- attributes ---- */

uint32_t
session_virtual_mode(enum virtual_kind kind)
{
    if (virtual_is_dir(kind))
        return S_IFDIR | 0555;
    if (kind == VIRTUAL_THEIRS)
        return S_IFLNK | 0777;
    return S_IFREG | (kind == VIRTUAL_FLUSH ? 0666 : 0444);
}

/* From .holdfast/conflict/ID/ to the path that lost. */
int
session_virtual_target(struct session *session, uint64_t id, struct buf *out, struct err *err)
{
    scope_free struct virtual_loser *loser = malloc(sizeof(*loser));
    if (!loser)
        return err_nomem(err);
    if (session_virtual_loser(session, id, loser, err) < 0)
        return -1;
    return buf_appendf(out, err, "../../../%s", loser->path);
}

static int
size_of_mine(struct call *call, const struct volume_ctx *ctx, uint64_t id, uint64_t *size,
             struct err *err)
{
    scope_free struct virtual_loser *loser = malloc(sizeof(*loser));
    if (!loser)
        return err_nomem(err);
    if (session_virtual_loser(call->session, id, loser, err) < 0)
        return -1;
    ssize_t len =
        volume_conflict_read(call->session->args.volumes, ctx, loser->row.id, NULL, 0, 0, err);
    *size = len < 0 ? 0 : (uint64_t)len;
    return len < 0 ? -1 : 0;
}

/* Right sizes: `[ -s unsynced ]` and `tail -f events` depend on them. Only flush has none: it would have to wait for it. */
static int
find_size(struct call *call, const struct volume_ctx *ctx, const struct virtual_place *place,
          struct stat *st, struct err *err)
{
    uint64_t size = 0;
    int64_t changed_ns;
    scope_buf text;
    buf_init(&text, MAX_TEXT);
    if (virtual_is_dir(place->kind) || place->kind == VIRTUAL_FLUSH)
        return 0;
    if (place->kind == VIRTUAL_EVENTS) {
        if (session_events_size(call->session, &size, &changed_ns, err) < 0)
            return -1;
        st->st_mtim.tv_sec = changed_ns / NS_PER_S;
        st->st_mtim.tv_nsec = changed_ns % NS_PER_S;
    } else if (place->kind == VIRTUAL_MINE) {
        if (size_of_mine(call, ctx, place->id, &size, err) < 0)
            return -1;
    } else if (place->kind == VIRTUAL_THEIRS) {
        if (session_virtual_target(call->session, place->id, &text, err) < 0)
            return -1;
    } else if (session_virtual_make(call, ctx, place, &text, err) < 0) {
        return -1;
    }
    st->st_size = (off_t)(size + text.len);
    return 0;
}

int
session_virtual_stat(struct call *call, const struct volume_ctx *ctx,
                     const struct virtual_place *place, struct stat *st, struct err *err)
{
    int64_t now = clock_wall_ns();
    memset(st, 0, sizeof(*st));
    st->st_ino = virtual_ino(place);
    st->st_mode = session_virtual_mode(place->kind);
    st->st_nlink = 1;
    st->st_uid = geteuid() == 0 || call->session->path == NULL ? 0 : geteuid();
    st->st_blksize = 4096;
    st->st_mtim.tv_sec = now / NS_PER_S;
    st->st_mtim.tv_nsec = now % NS_PER_S;
    if (session_virtual_check(call->session, place, err) < 0 ||
        find_size(call, ctx, place, st, err) < 0)
        return -1;
    st->st_atim = st->st_ctim = st->st_mtim;
    return 0;
}
