/* `.holdfast/versions/`: a folder for each file of now and of the trash, with what is kept of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/scope.h"
#include "mount/session_old_impl.h"

#define MAX_LISTS 16u
#define MAX_LIST (16u << 20)
#define MAX_VERSIONS 10000u
#define PAGE 512u
#define TYPE_PATH 'p'
#define TYPE_VERSION 'v'

static int
absent(struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "nothing of that is there or kept");
}

static bool
is_join(char *out, size_t size, const char *dir, const char *name)
{
    int len = snprintf(out, size, "%s%s%s", dir, dir[0] != '\0' ? "/" : "", name);
    return len >= 0 && (size_t)len < size;
}

/* ---- what there is ---- */

/* 1: nothing is there now. */
static int
find_now(struct call *call, const struct volume_ctx *ctx, const char *path, struct volume_attr *out,
         struct err *err)
{
    struct err why = ERR_INIT;
    const struct session_args *args = &call->session->args;
    if (volume_resolve(args->volumes, ctx, args->volume, path, out, &why) == 0)
        return 0;
    if (why.code == ERR_NOT_FOUND || why.code == ERR_NOT_DIR)
        return 1;
    *err = why;
    return -1;
}

/* Every version of a path that has bytes in the bucket. */
struct versions {
    volume_version_fn *fn;
    void *arg;
};

static int
one_version(void *arg, const struct volume_version *version, struct err *err)
{
    struct versions *versions = arg;
    if (version->version[0] == '\0' || (version->present && !version->synced))
        return 0;
    return versions->fn(versions->arg, version, err);
}

static int
each_version(struct call *call, const struct volume_ctx *ctx, const char *path,
             volume_version_fn *fn, void *arg, struct err *err)
{
    struct versions versions = { .fn = fn, .arg = arg };
    struct err why = ERR_INIT;
    struct volume_history_want want = { .volume = call->session->args.volume,
                                        .path = path,
                                        .limit = MAX_VERSIONS };
    if (path[0] == '\0' || volume_history_each(call->session->args.volumes, ctx, &want, one_version,
                                               &versions, &why) == 0)
        return 0;
    if (why.code == ERR_NOT_FOUND || why.code == ERR_IS_DIR)
        return 0;
    *err = why;
    return -1;
}

static int
note(void *arg, const struct volume_version *version, struct err *err)
{
    bool *seen = arg;
    (void)version;
    (void)err;
    *seen = true;
    return 1;
}

static int
is_known(struct call *call, const struct volume_ctx *ctx, const char *path, bool *known,
         struct err *err)
{
    struct volume_attr attr;
    struct volume_history_want want = { .volume = call->session->args.volume,
                                        .path = path,
                                        .limit = 1 };
    int rc = find_now(call, ctx, path, &attr, err);
    *known = rc == 0;
    if (rc != 1)
        return rc;
    if (each_version(call, ctx, path, note, known, err) < 0)
        return -1;
    return *known ? 0
                  : volume_trash_each(call->session->args.volumes, ctx, &want, note, known, err);
}

/* ---- attributes ---- */

/* Who may read a file may see its versions: of what is gone, who may look into the folder that is left. */
static int
stat_path(struct call *call, const struct volume_ctx *ctx, const char *path, struct stat *st,
          struct err *err)
{
    struct volume_attr attr;
    char at[LIMIT_PATH + 1];
    int rc;
    (void)snprintf(at, sizeof(at), "%s", path);
    while ((rc = find_now(call, ctx, at, &attr, err)) > 0) {
        char *slash = strrchr(at, '/');
        if (at[0] == '\0')
            return absent(err);
        *(slash ? slash : at) = '\0';
    }
    if (rc < 0)
        return -1;
    memset(st, 0, sizeof(*st));
    uint32_t bits = attr.mode & 0555;
    if (attr.kind != INDEX_DIR)
        bits = (bits & 0444) | (bits & 0444) >> 2;
    st->st_mode = S_IFDIR | bits;
    st->st_nlink = 1;
    st->st_uid = attr.uid;
    st->st_gid = attr.gid;
    st->st_blksize = 4096;
    st->st_mtim.tv_sec = attr.mtime_ns / NS_PER_S;
    st->st_atim = st->st_ctim = st->st_mtim;
    return 0;
}

static void
fill_entry(const struct session *session, const struct old_place *place,
           struct volume_past_entry *out)
{
    *out = (struct volume_past_entry){ .volume = session->args.volume,
                                       .path = place->path,
                                       .kind = INDEX_FILE,
                                       .size = place->size,
                                       .made_ns = place->made_ns,
                                       .version = place->version,
                                       .sha256 = "",
                                       .copy = place->copy,
                                       .key = "",
                                       .etag = "",
                                       .node = place->node,
                                       .mtime_ns = place->made_ns };
}

static int
stat_version(struct call *call, const struct volume_ctx *ctx, const struct old_place *place,
             struct stat *st, struct err *err)
{
    struct volume_past_entry entry, seen;
    struct volume_attr attr;
    struct err gone = ERR_INIT;
    fill_entry(call->session, place, &entry);
    if (place->copy[0] == '\0') {
        /* Whatever happened to the file since: its bits are the best that is known. */
        entry.mode = S_IFREG | 0400;
        if (volume_getattr(call->session->args.volumes, ctx, place->node, &attr, &gone) == 0) {
            entry.kind = attr.kind;
            entry.mode = attr.mode;
            entry.uid = attr.uid;
            entry.gid = attr.gid;
        }
    }
    if (volume_past_look(call->session->args.volumes, ctx, &entry, &seen, err) < 0)
        return -1;
    seen.mtime_ns = place->made_ns != 0 ? place->made_ns : seen.mtime_ns;
    session_past_fill(&seen, st);
    return 0;
}

int
session_versions_stat(struct call *call, const struct volume_ctx *ctx,
                      const struct old_place *place, struct stat *st, struct err *err)
{
    return place->kind == OLD_VERSION ? stat_version(call, ctx, place, st, err)
                                      : stat_path(call, ctx, place->path, st, err);
}

int
session_versions_read(struct call *call, const struct volume_ctx *ctx,
                      const struct old_place *place, char *out, size_t *got, struct err *err)
{
    struct volume_past_entry entry;
    ssize_t len = 0;
    fill_entry(call->session, place, &entry);
    if (call->off < place->size) {
        uint64_t left = place->size - call->off;
        size_t wanted = left < call->size ? (size_t)left : call->size;
        len =
            volume_past_read(call->session->args.volumes, ctx, &entry, out, wanted, call->off, err);
    }
    *got = len > 0 ? (size_t)len : 0;
    return len < 0 ? -1 : 0;
}

/* ---- names ---- */

static void
set_version(struct old_place *place, const char *path, const struct volume_version *version,
            int64_t node)
{
    place->kind = OLD_VERSION;
    memcpy(place->copy, version->id, ULID_SIZE);
    place->node = node;
    place->size = version->size;
    place->made_ns = version->made_ns;
    (void)snprintf(place->version, sizeof(place->version), "%s", version->version);
    (void)snprintf(place->path, sizeof(place->path), "%s", path);
}

struct match {
    const char *name, *path;
    int64_t node;
    bool found;
    struct old_place *out;
};

static int
match_version(void *arg, const struct volume_version *version, struct err *err)
{
    struct match *match = arg;
    char name[OLD_VERSION_NAME];
    (void)err;
    old_version_name(version, name);
    if (strcmp(name, match->name) != 0)
        return 0;
    match->found = true;
    set_version(match->out, match->path, version, match->node);
    return 1;
}

/* 1: there is none of that name. */
static int
lookup_version(struct call *call, const struct volume_ctx *ctx, const struct old_place *parent,
               struct old_entry *out, struct err *err)
{
    struct volume_attr attr;
    struct match match = { .name = call->name, .path = parent->path, .out = &out->place };
    int rc = find_now(call, ctx, parent->path, &attr, err);
    if (rc < 0)
        return -1;
    match.node = rc == 0 ? attr.node : 0;
    if (each_version(call, ctx, parent->path, match_version, &match, err) < 0)
        return -1;
    return match.found ? 0 : 1;
}

int
session_versions_lookup(struct call *call, const struct volume_ctx *ctx,
                        const struct old_place *parent, struct old_entry *out, struct err *err)
{
    char path[LIMIT_PATH + 1];
    bool known = false;
    if (parent->kind != OLD_PATH)
        return err_set(err, ERR_NOT_DIR, "not a folder");
    out->entry_timeout = out->attr_timeout = OLD_PATH_TIMEOUT;
    if (is_join(path, sizeof(path), parent->path, call->name) &&
        is_known(call, ctx, path, &known, err) < 0)
        return -1;
    if (known) {
        out->place.kind = OLD_PATH;
        (void)snprintf(out->place.path, sizeof(out->place.path), "%s", path);
    } else {
        int rc = lookup_version(call, ctx, parent, out, err);
        if (rc != 0)
            return rc < 0 ? -1 : absent(err);
        out->attr_timeout = TIMEOUT_MAX;
    }
    return session_versions_stat(call, ctx, &out->place, &out->st, err);
}

/* ---- lists: made when a stream begins, and kept until it is closed ---- */

struct old_list {
    struct old_list *next;
    uint64_t fh;
    struct buf names; /* type and name, with its NUL */
    const char **name;
    size_t count;
};

static void
free_list(struct old_list *list)
{
    if (!list)
        return;
    buf_release(&list->names);
    free(list->name);
    free(list);
}

static int
add(struct old_list *list, char type, const char *name, size_t len, struct err *err)
{
    if (buf_append(&list->names, &type, 1, err) < 0 ||
        buf_append(&list->names, name, len, err) < 0 || buf_append(&list->names, "", 1, err) < 0)
        return -1;
    list->count++;
    return 0;
}

struct making {
    struct call *call;
    const struct volume_ctx *ctx;
    struct old_list *list;
    const char *path;
    char last[LIMIT_NAME + 1];
    int64_t after;
    unsigned seen;
};

static int
add_now(void *arg, const struct volume_entry *entry, struct err *err)
{
    struct making *making = arg;
    making->after = entry->cookie;
    making->seen++;
    return add(making->list, TYPE_PATH, entry->name, entry->name_len, err);
}

static int
add_present(struct making *making, struct err *err)
{
    struct call *call = making->call;
    struct volume_attr attr;
    int rc = find_now(call, making->ctx, making->path, &attr, err);
    if (rc != 0 || attr.kind != INDEX_DIR)
        return rc < 0 ? -1 : 0;
    struct volume_page page = { .dir = attr.node, .limit = PAGE, .names = true };
    do {
        making->seen = 0;
        page.after = making->after;
        if (volume_list(call->session->args.volumes, making->ctx, &page, add_now, making, err) < 0)
            return -1;
    } while (making->seen == PAGE);
    return 0;
}

/* The next component of what is gone below. */
static int
add_gone(void *arg, const struct volume_version *version, struct err *err)
{
    struct making *making = arg;
    const char *below = virtual_below(making->path, version->path);
    size_t len = below ? strcspn(below, "/") : 0;
    if (len == 0 || len > LIMIT_NAME ||
        (strncmp(making->last, below, len) == 0 && making->last[len] == '\0'))
        return 0;
    memcpy(making->last, below, len);
    making->last[len] = '\0';
    return add(making->list, TYPE_PATH, below, len, err);
}

static int
add_version(void *arg, const struct volume_version *version, struct err *err)
{
    struct making *making = arg;
    char name[OLD_VERSION_NAME];
    old_version_name(version, name);
    return add(making->list, TYPE_VERSION, name, strlen(name), err);
}

static int
name_order(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    if (*x != *y)
        return *x < *y ? -1 : 1;
    int order = strcmp(x + 1, y + 1);
    return *x == TYPE_VERSION ? -order : order; /* the newest first */
}

static int
put_in_order(struct old_list *list, struct err *err)
{
    list->name = calloc(list->count + 1, sizeof(*list->name));
    if (!list->name)
        return err_nomem(err);
    const char *at = list->names.data;
    for (size_t i = 0; i < list->count; i++, at += strlen(at) + 1)
        list->name[i] = at;
    if (list->count > 1)
        qsort(list->name, list->count, sizeof(*list->name), name_order);
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (kept == 0 || strcmp(list->name[i], list->name[kept - 1]) != 0)
            list->name[kept++] = list->name[i];
    list->count = kept;
    return 0;
}

static int
fill_list(struct call *call, const struct volume_ctx *ctx, const char *path, struct old_list *list,
          struct err *err)
{
    struct making making = { .call = call, .ctx = ctx, .list = list, .path = path };
    struct volume_history_want want = { .volume = call->session->args.volume, .path = path };
    if (add_present(&making, err) < 0 ||
        volume_trash_each(call->session->args.volumes, ctx, &want, add_gone, &making, err) < 0 ||
        each_version(call, ctx, path, add_version, &making, err) < 0)
        return -1;
    return put_in_order(list, err);
}

static struct old_list *
make_list(struct call *call, const struct volume_ctx *ctx, const char *path, struct err *err)
{
    struct old_list *list = calloc(1, sizeof(*list));
    if (!list) {
        err_nomem(err);
        return NULL;
    }
    list->fh = call->fh;
    buf_init(&list->names, MAX_LIST);
    if (fill_list(call, ctx, path, list, err) == 0)
        return list;
    free_list(list);
    return NULL;
}

/* Out of the session: the caller has it alone meanwhile. NULL: another reader of the stream has, or it is not kept any more. */
static struct old_list *
take_list(struct session *session, uint64_t fh)
{
    struct session_at *state = &session->at;
    scope_unlock pthread_mutex_t *held = scope_lock(&state->mutex);
    (void)held;
    for (struct old_list **at = &state->lists; *at; at = &(*at)->next) {
        struct old_list *list = *at;
        if (list->fh != fh)
            continue;
        *at = list->next;
        return list;
    }
    return NULL;
}

static void
keep_list(struct session *session, struct old_list *list)
{
    struct session_at *state = &session->at;
    struct old_list *oldest = NULL;
    unsigned count = 0;
    pthread_mutex_lock(&state->mutex);
    list->next = state->lists;
    state->lists = list;
    for (struct old_list **at = &state->lists; *at && !oldest; at = &(*at)->next) {
        if (++count <= MAX_LISTS)
            continue;
        oldest = *at;
        *at = NULL;
    }
    pthread_mutex_unlock(&state->mutex);
    free_list(oldest);
}

void
session_versions_release(struct session *session)
{
    for (struct old_list *at = session->at.lists, *next; at; at = next) {
        next = at->next;
        free_list(at);
    }
    session->at.lists = NULL;
}

void
session_versions_closedir(struct session *session, uint64_t fh)
{
    free_list(take_list(session, fh));
}

static void
set_child(struct old_child *child, const struct old_place *dir, const char *entry)
{
    child->name = entry + 1;
    child->place.kind = *entry == TYPE_PATH ? OLD_PATH : OLD_NONE;
    child->st.st_mode = *entry == TYPE_PATH ? S_IFDIR : 0;
    if (!is_join(child->place.path, sizeof(child->place.path), dir->path, child->name))
        child->place.kind = OLD_NONE;
}

int
session_versions_list(struct call *call, const struct volume_ctx *ctx, const struct old_place *dir,
                      const struct old_list_args *args, struct err *err)
{
    size_t at = args->at;
    struct old_list *list = take_list(call->session, call->fh);
    scope_free struct old_child *child = calloc(1, sizeof(*child));
    if (!child) {
        free_list(list);
        return err_nomem(err);
    }
    if (at == 0 || !list) {
        free_list(list);
        list = make_list(call, ctx, dir->path, err);
    }
    if (!list)
        return -1;
    for (; at < list->count; at++) {
        set_child(child, dir, list->name[at]);
        if (args->fn(args->arg, child, at + 1) != 0)
            break;
    }
    keep_list(call->session, list);
    return 0;
}
