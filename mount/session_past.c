/* `.holdfast/at/`: the mounted folder as it was at a time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/scope.h"
#include "mount/session_old_impl.h"
#include "volume/snapshot.h"

#define SETTLED NS_PER_S /* what was done before is in the index by then */

/* "2h" stays one moment for whoever goes on working there: so long after its last use, and so long at most. */
#define STICKS_UNUSED (20 * NS_PER_S)
#define STICKS (600 * NS_PER_S)

/* ---- a past ---- */

struct waiting {
    struct past_waiter waiter; /* first */
    struct call *call;
};

static void
wake(struct past_waiter *waiter)
{
    struct waiting *waiting = (struct waiting *)waiter;
    struct call *call = waiting->call;
    free(waiting);
    park_again(&call->park);
}

/* Changes that ended before it may be on their way into the index. */
static void
let_settle(int64_t at_ns)
{
    int64_t left = at_ns + SETTLED - clock_wall_ns();
    struct timespec span = { .tv_nsec = left };
    if (left >= NS_PER_S)
        span = (struct timespec){ .tv_sec = 1 };
    if (left > 0)
        (void)nanosleep(&span, NULL);
}

/* On a thread that may take its time. */
static int
make_past(struct call *call, int64_t at_ns, struct past_kept **out, struct err *err)
{
    const struct session_args *args = &call->session->args;
    struct waiting *waiting = malloc(sizeof(*waiting));
    bool waits;
    if (!waiting)
        return err_nomem(err);
    *waiting = (struct waiting){ .waiter.wake = wake, .call = call };
    park_hold(&call->park);
    let_settle(at_ns);
    *out = past_cache_make(args->pasts, args->volume, at_ns, &waiting->waiter, &waits, err);
    if (waits)
        return OLD_LATER;
    park_release(&call->park);
    free(waiting);
    return *out ? 0 : -1;
}

static int
find_past(struct call *call, const struct volume_ctx *ctx, int64_t at_ns, struct past_kept **out,
          struct err *err)
{
    const struct session_args *args = &call->session->args;
    *out = past_cache_find(args->pasts, args->volume, at_ns);
    if (*out)
        return 0;
    if (ctx->nowait || !call->parked)
        return err_set(err, ERR_AGAIN, "it has to be made first");
    return make_past(call, at_ns, out, err);
}

static void
put_past(struct call *call, struct past_kept *kept)
{
    past_cache_put(call->session->args.pasts, kept);
}

static int
absent(struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "there was no such file");
}

/* The entry of a place, and the past that it lives in. */
static int
find_entry(struct call *call, const struct volume_ctx *ctx, const struct old_place *place,
           struct past_kept **kept, const struct volume_past_entry **out, struct err *err)
{
    int rc = find_past(call, ctx, place->at_ns, kept, err);
    if (rc != 0)
        return rc;
    *out = volume_past_find(past_kept(*kept), place->path);
    if (*out)
        return 0;
    put_past(call, *kept);
    return absent(err);
}

/* ---- attributes ---- */

/* Nothing here can be written, and no program runs as somebody else. */
void
session_past_fill(const struct volume_past_entry *entry, struct stat *st)
{
    uint32_t type = entry->kind == INDEX_DIR ? S_IFDIR : entry->mode & S_IFMT;
    memset(st, 0, sizeof(*st));
    st->st_mode = type | (S_ISLNK(type) ? 0777 : entry->mode & 01555);
    st->st_nlink = 1;
    st->st_uid = entry->uid;
    st->st_gid = entry->gid;
    st->st_size = entry->kind == INDEX_DIR ? 0 : (off_t)entry->size;
    st->st_blksize = 4096;
    st->st_blocks = (blkcnt_t)((st->st_size + 511) / 512);
    st->st_mtim.tv_sec = entry->mtime_ns / NS_PER_S;
    st->st_mtim.tv_nsec = entry->mtime_ns % NS_PER_S;
    if (st->st_mtim.tv_nsec < 0) {
        st->st_mtim.tv_sec--;
        st->st_mtim.tv_nsec += NS_PER_S;
    }
    st->st_atim = st->st_ctim = st->st_mtim;
}

static int
look(struct call *call, const struct volume_ctx *ctx, const struct volume_past_entry *entry,
     struct stat *st, struct err *err)
{
    struct volume_past_entry seen;
    if (volume_past_look(call->session->args.volumes, ctx, entry, &seen, err) < 0)
        return -1;
    session_past_fill(&seen, st);
    return 0;
}

int
session_past_stat(struct call *call, const struct volume_ctx *ctx, const struct old_place *place,
                  struct stat *st, struct err *err)
{
    struct past_kept *kept;
    const struct volume_past_entry *entry;
    int rc = find_entry(call, ctx, place, &kept, &entry, err);
    if (rc != 0)
        return rc;
    rc = look(call, ctx, entry, st, err);
    put_past(call, kept);
    return rc;
}

/* ---- times ---- */

static int
resolve(struct session *session, const char *text, int64_t *out, struct err *err)
{
    if (volume_snapshot_time(session->args.volumes, session->args.volume, text, out, err) < 0)
        return -1;
    return *out <= clock_wall_ns() ? 0 : err_set(err, ERR_NOT_FOUND, "'%s' has not come yet", text);
}

static struct old_time *
find_time_locked(struct session_at *state, const char *text, int64_t now)
{
    struct old_time *oldest = &state->time[0];
    for (unsigned i = 0; i < OLD_TIMES; i++) {
        struct old_time *time = &state->time[i];
        if (strcmp(time->text, text) == 0 && now - time->used_ns < STICKS_UNUSED &&
            now - time->begun_ns < STICKS)
            return time;
        if (time->used_ns < oldest->used_ns || strcmp(time->text, text) == 0)
            oldest = time;
    }
    oldest->text[0] = '\0';
    return oldest;
}

static int
find_time(struct session *session, const char *text, int64_t *out, struct err *err)
{
    struct session_at *state = &session->at;
    int64_t ago, now = clock_mono_ns();
    if (!parse_duration(text, &ago))
        return resolve(session, text, out, err);
    scope_unlock pthread_mutex_t *held = scope_lock(&state->mutex);
    (void)held;
    struct old_time *time = find_time_locked(state, text, now);
    if (time->text[0] == '\0') {
        *time = (struct old_time){ .begun_ns = now, .at_ns = clock_wall_ns() - ago };
        (void)snprintf(time->text, sizeof(time->text), "%s", text);
    }
    time->used_ns = now;
    *out = time->at_ns;
    return 0;
}

/* ---- the mounted folder ---- */

static const struct volume_past_entry *
find_node(const struct volume_past *past, int64_t node)
{
    const struct volume_past_entry *entry;
    size_t at = 0;
    while ((entry = volume_past_next(past, &at)) != NULL)
        if (entry->kind == INDEX_DIR && entry->node == node)
            return entry;
    return NULL;
}

/* Whether a folder that lay there then is another one now: what is in it is not for who has this one. */
static bool
lives_elsewhere(struct session *session, const struct volume_ctx *ctx, int64_t node)
{
    struct volume_attr attr;
    struct err gone = ERR_INIT;
    return node != 0 && (volume_getattr(session->args.volumes, ctx, node, &attr, &gone) == 0 ||
                         gone.code != ERR_NOT_FOUND);
}

/* Where the mounted folder was then: by itself, or, where it was made anew since, by its path. */
static const struct volume_past_entry *
find_base(struct session *session, const struct volume_ctx *ctx, const struct volume_past *past)
{
    char path[LIMIT_PATH + 1];
    struct err gone = ERR_INIT;
    if (session->args.root == session->args.volume_root)
        return volume_past_find(past, "");
    const struct volume_past_entry *entry = find_node(past, session->args.root);
    if (entry || session_old_folder(session, path, sizeof(path), &gone) < 0)
        return entry;
    entry = volume_past_find(past, path);
    return entry && entry->kind == INDEX_DIR && !lives_elsewhere(session, ctx, entry->node) ? entry
                                                                                            : NULL;
}

/* ---- names ---- */

static int
lookup_text(struct call *call, const struct volume_ctx *ctx, struct old_entry *out, struct err *err)
{
    struct past_kept *kept;
    struct old_place *place = &out->place;
    if (find_time(call->session, call->name, &place->at_ns, err) < 0)
        return -1;
    int rc = find_past(call, ctx, place->at_ns, &kept, err);
    if (rc != 0)
        return rc;
    const struct volume_past_entry *base = find_base(call->session, ctx, past_kept(kept));
    if (base) {
        (void)snprintf(place->text, sizeof(place->text), "%s", call->name);
        (void)snprintf(place->path, sizeof(place->path), "%s", base->path);
        out->entry_timeout = OLD_TEXT_TIMEOUT;
        rc = look(call, ctx, base, &out->st, err);
    } else {
        rc = absent(err);
    }
    put_past(call, kept);
    return rc;
}

int
session_past_lookup(struct call *call, const struct volume_ctx *ctx, const struct old_place *parent,
                    struct old_entry *out, struct err *err)
{
    out->place.kind = OLD_PAST;
    out->entry_timeout = out->attr_timeout = TIMEOUT_MAX;
    if (!call->session->args.pasts)
        return absent(err);
    if (!parent)
        return lookup_text(call, ctx, out, err);
    out->place = *parent;
    int len = snprintf(out->place.path, sizeof(out->place.path), "%s%s%s", parent->path,
                       parent->path[0] != '\0' ? "/" : "", call->name);
    if (len < 0 || (size_t)len >= sizeof(out->place.path))
        return absent(err);
    return session_past_stat(call, ctx, &out->place, &out->st, err);
}

/* ---- lists ---- */

static void
set_child(struct old_child *child, const struct old_place *dir,
          const struct volume_past_entry *entry)
{
    size_t skip = dir->path[0] != '\0' ? strlen(dir->path) + 1 : 0;
    (void)snprintf(child->place.path, sizeof(child->place.path), "%s", entry->path);
    child->name = entry->path + skip;
    child->has_st = volume_past_looked(entry);
    session_past_fill(entry, &child->st);
}

int
session_past_list(struct call *call, const struct volume_ctx *ctx, const struct old_place *dir,
                  const struct old_list_args *args, struct err *err)
{
    size_t at = args->at;
    struct past_kept *kept;
    const struct volume_past_entry *entry;
    int rc = find_entry(call, ctx, dir, &kept, &entry, err);
    if (rc != 0)
        return rc;
    scope_free struct old_child *child = calloc(1, sizeof(*child));
    if (!child)
        rc = err_nomem(err);
    else if (entry->kind != INDEX_DIR)
        rc = err_set(err, ERR_NOT_DIR, "it was no folder");
    else
        child->place = *dir;
    /* Offsets come from outside. */
    while (rc == 0 && at <= past_kept_count(kept) &&
           (entry = volume_past_child(past_kept(kept), dir->path, &at)) != NULL) {
        set_child(child, dir, entry);
        if (args->fn(args->arg, child, at) != 0)
            break;
    }
    put_past(call, kept);
    return rc;
}

int
session_past_number_all(struct call *call, const struct volume_ctx *ctx,
                        const struct old_place *root, struct err *err)
{
    char name[OLD_NAME_MAX];
    struct past_kept *kept;
    const struct volume_past_entry *entry;
    uint64_t number;
    uint32_t check;
    size_t at = 0;
    scope_free struct old_place *place = malloc(sizeof(*place));
    if (!place)
        return err_nomem(err);
    int rc = find_past(call, ctx, root->at_ns, &kept, err);
    if (rc != 0)
        return rc;
    *place = *root;
    while (rc == 0 && (entry = volume_past_next(past_kept(kept), &at)) != NULL) {
        if (!path_within(entry->path, root->path))
            continue;
        (void)snprintf(place->path, sizeof(place->path), "%s", entry->path);
        rc = number_give(&call->session->at.numbers, name, old_name(place, name), &number, &check,
                         err);
    }
    put_past(call, kept);
    return rc;
}

struct texts {
    const struct old_list_args *args;
    size_t at;
    struct old_child child;
};

static int
one_text(void *arg, const struct volume_snapshot *snapshot, struct err *err)
{
    struct texts *texts = arg;
    (void)err;
    if (texts->at++ < texts->args->at)
        return 0;
    struct old_place *place = &texts->child.place;
    texts->child.name = snapshot->name;
    place->at_ns = snapshot->at_ns;
    (void)snprintf(place->text, sizeof(place->text), "%s", snapshot->name);
    return texts->args->fn(texts->args->arg, &texts->child, texts->at);
}

/* No attributes with them: that would make each past. */
int
session_past_texts(struct call *call, const struct old_list_args *args, struct err *err)
{
    const struct session_args *session = &call->session->args;
    scope_free struct texts *texts = calloc(1, sizeof(*texts));
    if (!texts)
        return err_nomem(err);
    texts->args = args;
    texts->child.place.kind = OLD_PAST;
    texts->child.st.st_mode = S_IFDIR;
    return volume_snapshot_each(session->volumes, session->volume, one_text, texts, err);
}

/* ---- bytes ---- */

int
session_past_read(struct call *call, const struct volume_ctx *ctx, const struct old_place *place,
                  char *out, size_t *got, struct err *err)
{
    struct past_kept *kept;
    const struct volume_past_entry *entry;
    int rc = find_entry(call, ctx, place, &kept, &entry, err);
    if (rc != 0)
        return rc;
    *got = 0;
    ssize_t len = 0;
    if (call->off < entry->size) {
        uint64_t left = entry->size - call->off;
        size_t wanted = left < call->size ? (size_t)left : call->size;
        len =
            volume_past_read(call->session->args.volumes, ctx, entry, out, wanted, call->off, err);
    }
    put_past(call, kept);
    *got = len > 0 ? (size_t)len : 0;
    return len < 0 ? -1 : 0;
}
