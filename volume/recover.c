#include <errno.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "volume/link_impl.h"

/*
 * What a crash left, put right before anything is served (docs/mechanisms.md section 3). Restartable at any point: each
 * content row is judged alone, in its own transaction, and a second run finds what the first has not done.
 */

struct rows {
    struct index_content *row;
    size_t count, cap;
};

struct recovery {
    struct volume_service *service;
    struct rows rows;
    unsigned frozen, torn, dropped, lost, orphans;
    /* of the row at hand */
    struct index_content *content;
    enum content_recovery what;
    struct stat st;
    bool has_file;
    struct drop_list drop;
    int64_t orphan[64]; /* that nobody has open any more */
    size_t orphan_count;
};

static int
collect_row(void *arg, const struct index_content *row, struct err *err)
{
    struct rows *rows = arg;
    if (rows->count == rows->cap) {
        size_t cap = rows->cap == 0 ? 256 : rows->cap * 2;
        struct index_content *grown = reallocarray(rows->row, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        rows->row = grown;
        rows->cap = cap;
    }
    rows->row[rows->count++] = *row;
    return 0;
}

static int
collect_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_each(tx, collect_row, arg, err);
}

static int
collect_staged_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_each_staged(tx, collect_row, arg, err);
}

/* ---- one content row ---- */

static int
drop_row(struct index_tx *tx, struct recovery *call, struct index_node *node, struct err *err)
{
    if (index_content_delete(tx, call->content->id, err) != 0 ||
        drop_add(&call->drop, call->content->id, err) != 0)
        return -1;
    call->dropped++;
    if (node == NULL || node->content != call->content->id)
        return 0;
    node->content = 0;
    return index_node_update(tx, node, err);
}

static int
want_node_key(struct index_tx *tx, const struct index_node *node, struct err *err)
{
    char key[LIMIT_KEY + 1];
    if (key_of_node(tx, node, key, err) != 0)
        return -1;
    return key_want_sync(tx, node->volume, key, 0, err);
}

/* The copy of a file for one of its further names: its bytes are the file's, and are copied again. */
static int
drop_copy(struct index_tx *tx, struct recovery *call, struct index_node *name, struct err *err)
{
    struct index_link link;
    if (index_link_get(tx, name->id, &link, err) != 0)
        return -1;
    link.version[0] = '\0';
    if (index_link_put(tx, &link, err) != 0 || drop_row(tx, call, name, err) != 0)
        return -1;
    return want_node_key(tx, name, err);
}

static int
freeze_row(struct index_tx *tx, struct recovery *call, struct index_node *node, struct err *err)
{
    struct index_content *row = call->content;
    row->state = CONTENT_FROZEN;
    row->flags |= CONTENT_COMPLETE | CONTENT_ACKED;
    row->size = (uint64_t)call->st.st_size;
    row->mtime_ns = call->st.st_mtim.tv_sec * NS_PER_S + call->st.st_mtim.tv_nsec;
    row->sha256[0] = row->md5[0] = '\0';
    text_set(row->boot_id, call->service->boot_id);
    if (ulid_new(row->version, err) != 0)
        return -1;
    call->frozen++;
    if (index_content_update(tx, row, err) != 0)
        return -1;
    if (node->content != row->id) /* an older save, in case that the newer one is torn */
        return 0;
    node->size = row->size;
    node->mtime_ns = row->mtime_ns;
    if (index_node_update(tx, node, err) != 0)
        return -1;
    return want_node_key(tx, node, err);
}

struct older_call {
    int64_t torn;
    struct index_content best;
    bool found;
};

/* What is staged is newer than what is synced, and of two staged ones the version tells (live.c). */
static bool
is_newer(const struct index_content *a, const struct index_content *b)
{
    if (a->state != b->state)
        return a->state == CONTENT_FROZEN;
    return a->state == CONTENT_FROZEN ? strcmp(a->version, b->version) > 0 : a->id > b->id;
}

static int
find_older(void *arg, const struct index_content *row, struct err *err)
{
    struct older_call *call = arg;
    (void)err;
    bool usable = row->state == CONTENT_FROZEN || row->state == CONTENT_CLEAN;
    /* Rows are judged in the order of their numbers: what is left of the older ones is whole. */
    if (row->id != call->torn && usable && (!call->found || is_newer(row, &call->best))) {
        call->best = *row;
        call->found = true;
    }
    return 0;
}

/* The name goes back to what it held before the torn save: an older version here, the synced one, or nothing. */
static int
revert_node(struct index_tx *tx, struct recovery *call, struct index_node *node, struct err *err)
{
    struct older_call older = { .torn = call->content->id };
    struct index_key key;
    struct err missing = ERR_INIT;
    if (index_content_of_node(tx, node->id, find_older, &older, err) != 0)
        return -1;
    if (older.found) {
        node->content = older.best.id;
        node->size = older.best.size;
        node->mtime_ns = older.best.mtime_ns;
        if (index_node_update(tx, node, err) != 0)
            return -1;
        return want_node_key(tx, node, err);
    }
    node->content = 0;
    if (node->key[0] != '\0') {
        if (index_key_get(tx, node->key, &key, &missing) == 0)
            node->size = key.size;
        node->flags |= INDEX_NODE_META_UNKNOWN; /* its mtime comes from the object again */
        if (index_node_update(tx, node, err) != 0)
            return -1;
        /* Moved while it was open: nobody makes its work item any more but we. */
        return want_node_key(tx, node, err);
    }
    if (index_node_update(tx, node, err) != 0)
        return -1;
    return node_unname(call->service, tx, node, false, &call->drop, err);
}

static int
torn_row(struct index_tx *tx, struct recovery *call, struct index_node *node, struct err *err)
{
    struct view_loser loser = { .reason = "torn" };
    struct index_content row = *call->content;
    loser.content = &row;
    row.size = (uint64_t)call->st.st_size;
    row.sha256[0] = row.md5[0] = '\0';
    row.version[0] = '\0';
    row.flags |= CONTENT_COMPLETE;
    call->torn++;
    bool current = node->content == row.id;
    if (row.size == 0) {
        if (current && revert_node(tx, call, node, err) != 0)
            return -1;
        if (index_content_delete(tx, row.id, err) != 0)
            return err->code == ERR_NOT_FOUND ? 0 : -1;
        return drop_add(&call->drop, row.id, err);
    }
    if (view_keep_loser(call->service, tx, node, &loser, err) != 0)
        return -1;
    return current ? revert_node(tx, call, node, err) : 0;
}

struct staged_call {
    int64_t content;
    char id[ULID_SIZE];
};

static int
find_staged(void *arg, const struct index_history *row, struct err *err)
{
    struct staged_call *call = arg;
    (void)err;
    if (row->content != call->content)
        return 0;
    memcpy(call->id, row->id, ULID_SIZE);
    return 1;
}

/* A version on its way to the history whose bytes a power cut took, as far as can be told: a close had promised them, no fsync. A
 * conflict's were on the disk before their row was. */
static int
forget_staged(struct index_tx *tx, struct recovery *call, struct err *err)
{
    struct staged_call staged = { .content = call->content->id };
    if (index_history_of_version(tx, call->content->version, find_staged, &staged, err) != 0)
        return -1;
    if (staged.id[0] == '\0')
        return 0;
    if (index_history_delete(tx, staged.id, err) != 0)
        return -1;
    return drop_row(tx, call, NULL, err);
}

static int
judge_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct recovery *call = arg;
    struct index_node node;
    struct err missing = ERR_INIT;
    if (call->content->node == 0) /* a conflict's, or the history's: pinned and queued already */
        return call->what == CONTENT_TORN ? forget_staged(tx, call, err) : 0;
    /* Reverting another row of the node may have ended this one. */
    if (index_content_get(tx, call->content->id, call->content, &missing) != 0) {
        if (missing.code == ERR_NOT_FOUND)
            return 0;
        *err = missing;
        return -1;
    }
    if (index_node_get(tx, call->content->node, &node, &missing) != 0) {
        if (missing.code == ERR_NOT_FOUND)
            return drop_row(tx, call, NULL, err);
        *err = missing;
        return -1;
    }
    if ((node.flags & INDEX_NODE_ORPHAN) != 0)
        return 0;
    if ((node.flags & INDEX_NODE_LINK) != 0 && node.kind == INDEX_FILE)
        return drop_copy(tx, call, &node, err);
    switch (call->what) {
    case CONTENT_KEEP:
    case CONTENT_VERIFY:
        return 0;
    case CONTENT_DROP:
        return drop_row(tx, call, &node, err);
    case CONTENT_FREEZE:
        return freeze_row(tx, call, &node, err);
    case CONTENT_UPLOAD:
        return want_node_key(tx, &node, err);
    case CONTENT_TORN:
        return torn_row(tx, call, &node, err);
    }
    return 0;
}

/* Whether the file still holds what its row says. */
static bool
verifies(struct recovery *call, struct cache_file *file)
{
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    char hex[SHA256_HEX];
    struct err err = ERR_INIT;
    if (call->content->sha256[0] == '\0' || !cache_complete(file))
        return false;
    if (cache_file_hash(file, call->content->size, sha, md, &err) != 0)
        return false;
    hex_encode(sha, sizeof(sha), hex);
    return strcmp(hex, call->content->sha256) == 0;
}

struct kind_call {
    int64_t node;
    enum index_kind kind;
};

static int
kind_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct kind_call *call = arg;
    struct index_node node;
    if (index_node_get(tx, call->node, &node, err) != 0)
        return -1;
    call->kind = node.kind;
    return 0;
}

static bool
has_no_file(struct recovery *call)
{
    struct kind_call kind = { .node = call->content->node };
    struct err err = ERR_INIT;
    return kind.node != 0 && index_read(call->service->index, kind_tx, &kind, &err) == 0 &&
           kind.kind != INDEX_FILE;
}

static void
judge_frozen(struct recovery *call, struct cache_file *file)
{
    /* Promised as durable, or of this boot: the bytes are there. Else they have to prove it. */
    bool trusted = strcmp(call->content->boot_id, call->service->boot_id) == 0 ||
                   call->service->same_boot || (call->content->flags & CONTENT_DURABLE) != 0;
    if (call->what == CONTENT_UPLOAD && !trusted && !verifies(call, file))
        call->what = CONTENT_TORN;
}

static int
judge_row(struct recovery *call, struct err *err)
{
    struct volume_service *service = call->service;
    struct index_content *row = call->content;
    struct err local = ERR_INIT;
    if (has_no_file(call)) {
        call->what = CONTENT_UPLOAD;
        return index_write(service->index, INDEX_NORMAL, judge_tx, call, err);
    }
    /* Its writer has only waited for us. */
    if (row->state == CONTENT_LIVE && carried_is_open(service, row->node, true)) {
        cache_pin(service->cache, row->id);
        return 0;
    }
    struct cache_file *file = cache_get(service->cache, row->id, &local);
    bool same_boot = service->same_boot || strcmp(row->boot_id, service->boot_id) == 0;
    struct content_view view = {
        .exists = true, .state = row->state, .flags = row->flags, .size = row->size
    };
    call->what = content_recover(&view, same_boot);
    memset(&call->st, 0, sizeof(call->st));
    if (file == NULL || fstat(cache_file_fd(file), &call->st) != 0) {
        /* For LIVE files the row comes first: only an acknowledged one has to have its file. */
        if (row->state == CONTENT_FROZEN || (row->flags & CONTENT_ACKED) != 0)
            log_error(volume, "staged content %lld of node %lld has no file: %s",
                      (long long)row->id, (long long)row->node, local.msg);
        call->what = row->state == CONTENT_CLEAN ? CONTENT_DROP : CONTENT_TORN;
    } else if ((row->state == CONTENT_CLEAN && (uint64_t)call->st.st_size != row->size) ||
               (call->what == CONTENT_VERIFY && !verifies(call, file))) {
        call->what = CONTENT_DROP; /* by its size: killed before its map was made */
    } else if (call->what == CONTENT_FREEZE && (row->flags & CONTENT_DURABLE) != 0) {
        /* What was written after the last fsync becomes part of what the row promises. */
        if (cache_file_sync(file, err) != 0) {
            cache_put(file);
            return -1;
        }
    } else {
        judge_frozen(call, file);
    }
    cache_put(file);
    if (row->state != CONTENT_CLEAN && call->what != CONTENT_DROP)
        cache_pin(service->cache, row->id);
    if (call->what == CONTENT_KEEP || (call->what == CONTENT_VERIFY))
        return 0;
    int rc = index_write(service->index, INDEX_NORMAL, judge_tx, call, err);
    if (rc == 0)
        drop_run(service, &call->drop);
    free(call->drop.number);
    call->drop = (struct drop_list){ 0 };
    return rc;
}

/* ---- orphans, handles, stray files ---- */

static int
collect_orphan(void *arg, const struct index_node *row, struct err *err)
{
    struct recovery *call = arg;
    (void)err;
    if (call->orphan_count < 64 && !carried_is_open(call->service, row->id, false))
        call->orphan[call->orphan_count++] = row->id;
    return 0;
}

/* An orphan whose writer lost its name, and that the crash kept from closing: what it wrote is kept as its close would. */
static int
keep_lost_orphan(struct index_tx *tx, struct recovery *call, int64_t id, struct err *err)
{
    struct index_node node;
    struct index_content row;
    if (index_node_get(tx, id, &node, err) != 0)
        return -1;
    if ((node.flags & INDEX_NODE_LOSER) == 0 || node.content == 0)
        return 0;
    if (index_content_get(tx, node.content, &row, err) != 0)
        return -1;
    struct err local = ERR_INIT;
    struct cache_file *file = cache_get(call->service->cache, row.id, &local);
    bool there = file != NULL && cache_file_size(file, &row.size, &local) == 0;
    cache_put(file);
    if (!there || row.state == CONTENT_CLEAN)
        return 0;
    struct view_loser loser = { .content = &row, .reason = "conflict", .path = node.target };
    row.sha256[0] = row.md5[0] = row.version[0] = '\0';
    row.flags |= CONTENT_COMPLETE;
    node.content = 0;
    if (view_keep_loser(call->service, tx, &node, &loser, err) != 0)
        return -1;
    return index_node_update(tx, &node, err);
}

static int
orphans_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct recovery *call = arg;
    /* Those of connections that live are needed; mount/ drops the others'. */
    if (call->service->carried == NULL && index_answer_drop_connection(tx, 0, err) != 0)
        return -1;
    do {
        call->orphan_count = 0;
        if (index_node_orphans(tx, collect_orphan, call, err) != 0)
            return -1;
        for (size_t i = 0; i < call->orphan_count; i++) {
            if (keep_lost_orphan(tx, call, call->orphan[i], err) != 0 ||
                node_drop_contents(tx, call->orphan[i], 0, &call->drop, err) != 0 ||
                index_node_delete(tx, call->orphan[i], err) != 0)
                return -1;
            call->orphans++;
        }
    } while (call->orphan_count == 64);
    return 0;
}

static bool
has_row(const struct rows *rows, int64_t number)
{
    /* index_content_each() goes by number. */
    size_t low = 0, high = rows->count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (rows->row[mid].id == number)
            return true;
        if (rows->row[mid].id < number)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

struct stray {
    struct recovery *call;
    struct drop_list lose, remove;
};

static int
collect_stray(void *arg, int64_t number, uint64_t disk_bytes, bool has_meta, bool has_map,
              struct err *err)
{
    struct stray *stray = arg;
    (void)disk_bytes;
    (void)has_map;
    if (has_row(&stray->call->rows, number))
        return 0;
    return drop_add(has_meta ? &stray->lose : &stray->remove, number, err);
}

static int
sweep_strays(struct recovery *call, struct err *err)
{
    struct stray stray = { .call = call };
    int rc = cache_scan(call->service->cache, collect_stray, &stray, err);
    for (size_t i = 0; rc == 0 && i < stray.lose.count; i++) {
        rc = cache_lose(call->service->cache, stray.lose.number[i], err);
        call->lost++;
    }
    if (rc == 0)
        drop_run(call->service, &stray.remove);
    free(stray.lose.number);
    free(stray.remove.number);
    return rc;
}

/* Programs wait: only what they were writing when the gateway died. The kernel kept all bytes; FROZEN ones have their work items.
 * A CLEAN file that was cut short is noticed when it is opened (content.c), a stray one at the next ordinary start. */
static int
judge_carried(struct recovery *call, struct err *err)
{
    int rc = index_read(call->service->index, collect_staged_tx, &call->rows, err);
    for (size_t i = 0; rc == 0 && i < call->rows.count; i++) {
        call->content = &call->rows.row[i];
        if (call->content->state == CONTENT_LIVE)
            rc = judge_row(call, err);
        else
            cache_pin(call->service->cache, call->content->id);
    }
    return rc;
}

static int
judge_all(struct recovery *call, struct err *err)
{
    int rc = index_read(call->service->index, collect_tx, &call->rows, err);
    for (size_t i = 0; rc == 0 && i < call->rows.count; i++) {
        call->content = &call->rows.row[i];
        rc = judge_row(call, err);
    }
    return rc == 0 ? sweep_strays(call, err) : -1;
}

int
recover_state(struct volume_service *service, struct err *err)
{
    struct recovery call = { .service = service };
    int rc = index_write(service->index, INDEX_NORMAL, orphans_tx, &call, err);
    if (rc == 0)
        drop_run(service, &call.drop);
    call.drop = (struct drop_list){ 0 };
    if (rc == 0)
        rc = service->carried != NULL && service->same_boot ? judge_carried(&call, err)
                                                            : judge_all(&call, err);
    free(call.rows.row);
    if (rc == 0 && call.frozen + call.torn + call.dropped + call.lost + call.orphans > 0) {
        (void)snprintf(
            service->recovered, sizeof(service->recovered),
            "%u open files kept, %u torn saves set aside, %u cache files dropped, %u stray "
            "files moved to lost/, "
            "%u unlinked files ended",
            call.frozen, call.torn, call.dropped, call.lost, call.orphans);
        log_info(volume, "recovered: %s", service->recovered);
    }
    return rc;
}
