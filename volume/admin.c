#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/admin_impl.h"
#include "volume/fork_impl.h"
#include "volume/found_impl.h"
#include "volume/timed_impl.h"

/* Volumes: made, listed, changed, forgotten. Their settings also lie in the bucket, so that a rebuild finds them. */

#define SETTINGS_FORMAT 1
#define DEFAULT_HISTORY (30ll * 24 * 3600 * NS_PER_S)

static int check_prefix(const char *prefix, struct err *err);
static int set_placement(struct index_volume *row, const struct volume_settings *settings,
                         struct err *err);

/* ---- choices that the row keeps as bits ---- */

#define SETTLED_BITS                                                                   \
    (INDEX_VOLUME_CONFLICT_COPY | INDEX_VOLUME_STALE_REFUSE | INDEX_VOLUME_STALE_OFF | \
     INDEX_VOLUME_AUDIT_READS)

static const char *const stale_words[] = {
    [VOLUME_STALE_MARK] = "mark", [VOLUME_STALE_REFUSE] = "refuse", [VOLUME_STALE_OFF] = "off"
};

const char *
volume_stale_word(enum volume_stale_reads how)
{
    return stale_words[how];
}

int
volume_stale_read_word(const char *word, enum volume_stale_reads *out, struct err *err)
{
    for (unsigned i = 0; i < sizeof(stale_words) / sizeof(stale_words[0]); i++) {
        if (strcmp(word, stale_words[i]) == 0) {
            *out = (enum volume_stale_reads)i;
            return 0;
        }
    }
    return err_set(err, ERR_INVAL, "stale_reads must be 'mark', 'refuse' or 'off'");
}

static int64_t
options_of(bool conflict_copy, bool audit_reads, enum volume_stale_reads stale)
{
    int64_t options = (conflict_copy ? INDEX_VOLUME_CONFLICT_COPY : 0) |
                      (audit_reads ? INDEX_VOLUME_AUDIT_READS : 0);
    if (stale == VOLUME_STALE_MARK)
        return options;
    return options |
           (stale == VOLUME_STALE_REFUSE ? INDEX_VOLUME_STALE_REFUSE : INDEX_VOLUME_STALE_OFF);
}

static enum volume_stale_reads
stale_of(const struct index_volume *row)
{
    if ((row->options & INDEX_VOLUME_STALE_OFF) != 0)
        return VOLUME_STALE_OFF;
    return (row->options & INDEX_VOLUME_STALE_REFUSE) != 0 ? VOLUME_STALE_REFUSE
                                                           : VOLUME_STALE_MARK;
}

/* ---- the document in the bucket ---- */

static void
print_rule(const struct index_volume *volume, char out[SCHEDULE_TEXT_SIZE])
{
    struct schedule_rule rule = schedule_unpack(volume->options >> INDEX_VOLUME_SCHEDULE_SHIFT);
    schedule_print(&rule, out);
}

static void
set_rule(struct index_volume *volume, const struct schedule_rule *rule)
{
    volume->options &= (1 << INDEX_VOLUME_SCHEDULE_SHIFT) - 1;
    volume->options |= schedule_pack(rule) << INDEX_VOLUME_SCHEDULE_SHIFT;
}

/* There is nothing that a snapshot could keep. */
static int
check_rule(const struct index_volume *volume, struct err *err)
{
    if (volume->history_ns != 0 || volume->options >> INDEX_VOLUME_SCHEDULE_SHIFT == 0)
        return 0;
    return err_set(err, ERR_INVAL, "volume '%s' would keep no history, which its snapshots need",
                   volume->name);
}

static int
settings_print(const struct index_volume *volume, struct buf *out, struct err *err)
{
    bool copy = (volume->options & INDEX_VOLUME_CONFLICT_COPY) != 0;
    char rule[SCHEDULE_TEXT_SIZE];
    print_rule(volume, rule);
    scope_json *doc = json_pack(
        "{s:i, s:s, s:s, s:b, s:b, s:b, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:b}", "format",
        SETTINGS_FORMAT, "name", volume->name, "prefix", volume->prefix, "read_only",
        (int)volume->read_only, "sync_close", (int)volume->sync_close, "conflict_copy", (int)copy,
        "quota", (json_int_t)volume->quota, "history_seconds",
        (json_int_t)(volume->history_ns / NS_PER_S), "history_count",
        (json_int_t)volume->history_count, "storage_class", volume->storage_class, "encryption",
        volume->encryption, "snapshots", rule, "stale_reads", stale_words[stale_of(volume)],
        "audit_reads", (int)((volume->options & INDEX_VOLUME_AUDIT_READS) != 0));
    if (doc == NULL)
        return err_nomem(err);
    return json_print(doc, out, err);
}

int
admin_settings_put(struct volume_service *service, const struct index_volume *volume,
                   struct err *err)
{
    char key[LIMIT_KEY];
    scope_buf text;
    struct store_put_result result;
    struct store_object object;
    struct store_cond cond = { .kind = STORE_COND_ABSENT };
    buf_init(&text, 65536);
    (void)snprintf(key, sizeof(key), ".holdfast/volumes/%s.json", volume->name);
    if (settings_print(volume, &text, err) != 0)
        return -1;
    store_object_init(&object);
    struct err local = ERR_INIT;
    if (store_head(service->store, key, 0, &object, &local) == 0) {
        cond.kind = STORE_COND_MATCH;
        cond.etag = object.etag;
    } else if (local.code != ERR_NOT_FOUND) {
        store_object_release(&object);
        *err = local;
        return -1;
    }
    if (service->store->caps.put_if_match != STORE_YES ||
        service->store->caps.put_if_absent != STORE_YES)
        cond.kind = STORE_COND_NONE;
    int rc = store_put_small(service->store, key, text.data, text.len, cond, &result, err);
    store_object_release(&object);
    return rc;
}

/* What was written later than a member was invented does not have it. */
static int
read_options(const json_t *doc, struct index_volume *out, struct err *err)
{
    int64_t quota = 0, seconds = DEFAULT_HISTORY / NS_PER_S, count = 0;
    const char *class = "", *encryption = "", *snapshots = "off";
    const char *word = stale_words[VOLUME_STALE_MARK];
    enum volume_stale_reads stale;
    struct schedule_rule rule;
    bool copy = false, reads = false;
    if (json_opt_bool(doc, "conflict_copy", &copy, err) != 0 ||
        json_opt_bool(doc, "audit_reads", &reads, err) != 0 ||
        json_opt_bool(doc, "read_only", &out->read_only, err) != 0 ||
        json_opt_bool(doc, "sync_close", &out->sync_close, err) != 0 ||
        json_opt_int(doc, "quota", &quota, err) != 0 ||
        json_opt_int(doc, "history_seconds", &seconds, err) != 0 ||
        json_opt_int(doc, "history_count", &count, err) != 0 ||
        json_opt_str(doc, "storage_class", &class, err) != 0 ||
        json_opt_str(doc, "encryption", &encryption, err) != 0 ||
        json_opt_str(doc, "snapshots", &snapshots, err) != 0 ||
        schedule_parse(snapshots, &rule, err) != 0 ||
        json_opt_str(doc, "stale_reads", &word, err) != 0 ||
        volume_stale_read_word(word, &stale, err) != 0)
        return -1;
    if (quota < 0 || count < 0 || seconds < 0 || seconds > INT64_MAX / NS_PER_S)
        return err_set(err, ERR_INVAL, "a number in it makes no sense");
    out->quota = (uint64_t)quota;
    out->history_ns = seconds * NS_PER_S;
    out->history_count = count;
    out->options = options_of(copy, reads, stale);
    set_rule(out, &rule);
    struct volume_settings placement = { .storage_class = class, .encryption = encryption };
    return set_placement(out, &placement, err);
}

int
admin_settings_read(const char *data, size_t len, struct index_volume *out, struct err *err)
{
    const char *name, *prefix;
    int64_t format;
    scope_json *doc = json_parse(data, len, err);
    memset(out, 0, sizeof(*out));
    if (doc == NULL || json_need_int(doc, "format", &format, err) != 0 ||
        json_need_str(doc, "name", &name, err) != 0 ||
        json_need_str(doc, "prefix", &prefix, err) != 0)
        return -1;
    if (format > SETTINGS_FORMAT)
        return err_set(err, ERR_NEWER_FORMAT, "they have format %lld: use the newer holdfast",
                       (long long)format);
    if (path_check_volume(name, err) != 0 || check_prefix(prefix, err) != 0)
        return -1;
    text_set(out->name, name);
    text_set(out->prefix, prefix);
    return read_options(doc, out, err);
}

/* ---- create ---- */

struct create_call {
    struct volume_service *service;
    struct index_volume row;
    bool found; /* in the bucket, when this index was new */
};

struct overlap_call {
    const struct index_volume *mine;
    struct err *err;
};

static bool
overlaps(const char *a, const char *b)
{
    size_t shorter = strlen(a) < strlen(b) ? strlen(a) : strlen(b);
    return memcmp(a, b, shorter) == 0;
}

static int
check_overlap(void *arg, const struct index_volume *other, struct err *err)
{
    const struct index_volume *mine = arg;
    if (strcmp(other->name, mine->name) == 0)
        return err_set(err, ERR_EXISTS, "volume '%s' exists", mine->name);
    if (overlaps(other->prefix, mine->prefix))
        return err_set(
            err, ERR_INVAL,
            "prefix '%s' overlaps with '%s' of volume '%s': choose another with --prefix",
            mine->prefix, other->prefix, other->name);
    return 0;
}

int
admin_insert(struct index_tx *tx, struct index_volume *row, struct err *err)
{
    struct index_node root = { .kind = INDEX_DIR, .mode = S_IFDIR | 0755 };
    if (index_volume_each(tx, check_overlap, row, err) != 0 ||
        index_volume_insert(tx, row, err) != 0)
        return -1;
    root.volume = row->id;
    root.mtime_ns = root.ctime_ns = row->created_ns;
    root.uid = (uint32_t)getuid();
    root.gid = (uint32_t)getgid();
    root.mode = S_IFDIR | 0777;
    if (ulid_new(root.ulid, err) != 0 || index_node_insert(tx, &root, err) != 0)
        return -1;
    row->root = root.id;
    return index_volume_update(tx, row, err);
}

static int
create_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct create_call *call = arg;
    struct index_volume *row = &call->row, found;
    if (!found_is(call->service, row->name))
        return admin_insert(tx, row, err);
    if (index_volume_find(tx, row->name, &found, err) != 0)
        return -1;
    if (strcmp(found.prefix, row->prefix) != 0)
        return err_set(err, ERR_EXISTS, "volume '%s' exists, with prefix '%s'", row->name,
                       found.prefix);
    /* Whoever makes it on this machine too means the same volume. */
    row->id = found.id;
    row->root = found.root;
    row->created_ns = found.created_ns;
    call->found = true;
    found_made(call->service, row->name);
    return index_volume_update(tx, row, err);
}

static int
uncreate_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct create_call *call = arg;
    return index_volume_delete(tx, call->row.id, err);
}

static int
check_prefix(const char *prefix, struct err *err)
{
    size_t len = strlen(prefix);
    if (len == 0)
        return 0;
    if (len > LIMIT_KEY / 2)
        return err_set(err, ERR_NAME_TOO_LONG, "the prefix is longer than %d bytes", LIMIT_KEY / 2);
    if (prefix[len - 1] != '/')
        return err_set(err, ERR_INVAL, "prefix '%s' has to end in '/'", prefix);
    if (strncmp(prefix, ".holdfast/", 10) == 0)
        return err_set(err, ERR_INVAL, "the prefix '.holdfast/' is taken by Holdfast itself");
    if (path_check(prefix, len - 1, err) != 0)
        return err_wrap(err, "prefix '%s'", prefix);
    return 0;
}

/* What goes into headers of each upload is checked once, here. */
static int
check_word(const char *what, const char *text, size_t max, struct err *err)
{
    if (strlen(text) >= max)
        return err_set(err, ERR_INVAL, "the %s is longer than %zu bytes", what, max - 1);
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c > 0x7e)
            return err_set(err, ERR_INVAL, "the %s holds a blank or a character that is not ASCII",
                           what);
    return 0;
}

static int
set_placement(struct index_volume *row, const struct volume_settings *settings, struct err *err)
{
    const char *class = settings->storage_class;
    const char *encryption = settings->encryption;
    if (class != NULL) {
        if (check_word("storage class", class, sizeof(row->storage_class), err) != 0)
            return -1;
        text_set(row->storage_class, class);
    }
    if (encryption == NULL)
        return 0;
    if (check_word("encryption", encryption, sizeof(row->encryption), err) != 0)
        return -1;
    bool kms = strncmp(encryption, "aws:kms", 7) == 0 &&
               (encryption[7] == '\0' || (encryption[7] == ':' && encryption[8] != '\0'));
    if (encryption[0] != '\0' && strcmp(encryption, "AES256") != 0 && !kms)
        return err_set(err, ERR_INVAL, "encryption is AES256, aws:kms or aws:kms:KEY, not '%.60s'",
                       encryption);
    text_set(row->encryption, encryption);
    return 0;
}

static int info_fill(struct index_tx *tx, const struct index_volume *row, struct volume_info *out,
                     struct err *err);

struct info_call {
    const char *name;
    struct volume_info *out;
};

static int
find_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct info_call *call = arg;
    struct index_volume row;
    if (index_volume_find(tx, call->name, &row, err) != 0)
        return err->code == ERR_NOT_FOUND
                   ? err_set(err, ERR_NOT_FOUND,
                             "no volume '%s': make it with holdfast volume create %s", call->name,
                             call->name)
                   : -1;
    return info_fill(tx, &row, call->out, err);
}

int
volume_find_any(struct volume_service *service, const char *name, struct volume_info *out,
                struct err *err)
{
    struct info_call call = { .name = name, .out = out };
    return index_read(service->index, find_tx, &call, err);
}

int
volume_find(struct volume_service *service, const char *name, struct volume_info *out,
            struct err *err)
{
    if (volume_find_any(service, name, out, err) != 0)
        return -1;
    return out->forking
               ? err_set(err, ERR_AGAIN,
                         "the files of volume '%s' are still being copied: holdfast volume show %s",
                         name, name)
               : 0;
}

static int64_t
history_of(const struct volume_settings *settings, int64_t otherwise)
{
    if (settings->history_ns == 0)
        return otherwise;
    return settings->history_ns > 0 ? settings->history_ns : 0;
}

int
volume_create(struct volume_service *service, const struct volume_settings *settings,
              struct volume_info *out, struct err *err)
{
    struct create_call call = { .service = service };
    struct index_volume *row = &call.row;
    if (path_check_volume(settings->name, err) != 0)
        return -1;
    text_set(row->name, settings->name);
    if (settings->prefix == NULL)
        (void)snprintf(row->prefix, sizeof(row->prefix), "%s/", settings->name);
    else if (strlen(settings->prefix) < sizeof(row->prefix))
        text_set(row->prefix, settings->prefix);
    if (check_prefix(settings->prefix == NULL ? row->prefix : settings->prefix, err) != 0)
        return -1;
    row->read_only = settings->read_only;
    row->sync_close = settings->sync_close;
    row->options =
        options_of(settings->conflict_copy, settings->audit_reads, settings->stale_reads);
    row->quota = settings->quota;
    row->history_ns = history_of(settings, DEFAULT_HISTORY);
    row->history_count = settings->history_count;
    row->created_ns = clock_wall_ns();
    if (settings->audit_reads)
        atomic_store(&service->audit_reads, true);
    if (settings->snapshots != NULL)
        set_rule(row, settings->snapshots);
    if (set_placement(row, settings, err) != 0 || check_rule(row, err) != 0)
        return -1;
    if (index_write(service->index, INDEX_FULL, create_tx, &call, err) != 0)
        return -1;
    if (admin_settings_put(service, row, err) != 0) {
        /* Nothing half-made stays: a volume that a rebuild could not find is no volume. */
        struct err ignored = ERR_INIT;
        if (!call.found &&
            index_write(service->index, INDEX_FULL, uncreate_tx, &call, &ignored) != 0)
            log_error(volume, "cannot take back volume '%s': %s", row->name, ignored.msg);
        return err_wrap(err, "cannot write the settings of volume '%s' to the bucket", row->name);
    }
    timed_kick(service);
    return volume_find(service, row->name, out, err);
}

/* ---- list, show ---- */

struct count_call {
    uint64_t count;
};

static int
count_conflict(void *arg, const struct index_conflict *row, struct err *err)
{
    struct count_call *call = arg;
    (void)row;
    (void)err;
    call->count++;
    return 0;
}

static int
info_fill(struct index_tx *tx, const struct index_volume *row, struct volume_info *out,
          struct err *err)
{
    struct count_call conflicts = { 0 };
    memset(out, 0, sizeof(*out));
    out->id = row->id;
    text_set(out->name, row->name);
    text_set(out->prefix, row->prefix);
    out->read_only = row->read_only;
    out->sync_close = row->sync_close;
    out->conflict_copy = (row->options & INDEX_VOLUME_CONFLICT_COPY) != 0;
    out->stale_reads = stale_of(row);
    out->frozen = (row->options & INDEX_VOLUME_HELD) != 0;
    out->forking = (row->options & INDEX_VOLUME_FORKING) != 0;
    out->audit_reads = (row->options & INDEX_VOLUME_AUDIT_READS) != 0;
    out->quota = row->quota;
    out->history_ns = row->history_ns;
    out->history_count = row->history_count;
    out->snapshots = schedule_unpack(row->options >> INDEX_VOLUME_SCHEDULE_SHIFT);
    out->created_ns = row->created_ns;
    out->root = row->root;
    text_set(out->storage_class, row->storage_class);
    text_set(out->encryption, row->encryption);
    if (index_node_usage(tx, row->id, &out->files, &out->bytes, err) != 0 ||
        index_content_unsynced(tx, row->id, &out->unsynced_files, &out->unsynced_bytes, err) != 0 ||
        index_intent_count(tx, row->id, &out->pending_keys, err) != 0 ||
        index_conflict_each(tx, row->id, count_conflict, &conflicts, err) != 0)
        return -1;
    out->conflicts = conflicts.count;
    return 0;
}

struct each_call {
    struct index_tx *tx;
    struct volume_info *info;
    size_t count, cap;
};

static int
collect_volume(void *arg, const struct index_volume *row, struct err *err)
{
    struct each_call *call = arg;
    if (call->count == call->cap) {
        size_t cap = call->cap == 0 ? 16 : call->cap * 2;
        struct volume_info *grown = reallocarray(call->info, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        call->info = grown;
        call->cap = cap;
    }
    return info_fill(call->tx, row, &call->info[call->count++], err);
}

static int
each_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct each_call *call = arg;
    call->tx = tx;
    return index_volume_each(tx, collect_volume, call, err);
}

int
volume_each(struct volume_service *service, volume_info_fn *fn, void *arg, struct err *err)
{
    struct each_call call = { 0 };
    int rc = index_read(service->index, each_tx, &call, err);
    for (size_t i = 0; rc == 0 && i < call.count; i++)
        rc = fn(arg, &call.info[i], err);
    free(call.info);
    return rc;
}

/* ---- set, delete ---- */

struct set_call {
    const struct volume_settings *settings;
    const char *name;
    struct index_volume row, before;
    bool force;
    struct drop_list drop;
};

static int
set_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct set_call *call = arg;
    if (index_volume_find(tx, call->name, &call->row, err) != 0)
        return -1;
    call->before = call->row;
    call->row.read_only = call->settings->read_only;
    call->row.sync_close = call->settings->sync_close;
    call->row.options &= ~(int64_t)SETTLED_BITS;
    call->row.options |= options_of(call->settings->conflict_copy, call->settings->audit_reads,
                                    call->settings->stale_reads);
    call->row.quota = call->settings->quota;
    call->row.history_ns = history_of(call->settings, call->row.history_ns);
    call->row.history_count = call->settings->history_count;
    if (call->settings->snapshots != NULL)
        set_rule(&call->row, call->settings->snapshots);
    if (set_placement(&call->row, call->settings, err) != 0 || check_rule(&call->row, err) != 0)
        return -1;
    return index_volume_update(tx, &call->row, err);
}

static int
unset_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct set_call *call = arg;
    return index_volume_update(tx, &call->before, err);
}

int
volume_set(struct volume_service *service, const char *name, const struct volume_settings *settings,
           struct err *err)
{
    struct set_call call = { .settings = settings, .name = name };
    if (settings->audit_reads)
        atomic_store(&service->audit_reads, true);
    if (index_write(service->index, INDEX_FULL, set_tx, &call, err) != 0)
        return -1;
    if (admin_settings_put(service, &call.row, err) == 0) {
        timed_kick(service);
        return 0;
    }
    struct err ignored = ERR_INIT;
    if (index_write(service->index, INDEX_FULL, unset_tx, &call, &ignored) != 0)
        log_error(volume, "cannot take back the settings of volume '%s': %s", name, ignored.msg);
    return err_wrap(err, "cannot write the settings of volume '%s' to the bucket", name);
}

struct volume_contents {
    int64_t volume;
    struct drop_list *drop;
};

static int
collect_contents(void *arg, const struct index_content *row, struct err *err)
{
    struct volume_contents *call = arg;
    return row->volume == call->volume ? drop_add(call->drop, row->id, err) : 0;
}

static int
delete_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct set_call *call = arg;
    uint64_t count = 0, bytes = 0, keys = 0;
    if (index_volume_find(tx, call->name, &call->row, err) != 0 ||
        fork_check_volume(tx, &call->row, err) != 0 || fork_forget(tx, &call->row, err) != 0 ||
        index_content_unsynced(tx, call->row.id, &count, &bytes, err) != 0 ||
        index_intent_count(tx, call->row.id, &keys, err) != 0)
        return -1;
    if (!call->force && (count > 0 || keys > 0))
        return err_set(err, ERR_BUSY,
                       "volume '%s' has %llu changes that are not in the bucket: flush it first",
                       call->name, (unsigned long long)(keys > count ? keys : count));
    struct volume_contents contents = { .volume = call->row.id, .drop = &call->drop };
    if (index_content_each(tx, collect_contents, &contents, err) != 0)
        return -1;
    return index_volume_delete(tx, call->row.id, err);
}

struct open_count {
    struct volume_service *service;
    int64_t volume;
    unsigned count;
};

static void
count_open(void *arg, struct inode *inode)
{
    struct open_count *call = arg;
    pthread_mutex_lock(&inode->lock);
    bool ours = inode->volume == call->volume;
    pthread_mutex_unlock(&inode->lock);
    if (ours)
        call->count += inode_open_count(&call->service->inodes, inode->node);
}

static int
check_unused(struct volume_service *service, const char *name, struct err *err)
{
    struct volume_info info;
    if (volume_find_any(service, name, &info, err) != 0)
        return -1;
    struct open_count open = { .service = service, .volume = info.id };
    inode_each(&service->inodes, count_open, &open);
    return open.count == 0
               ? 0
               : err_set(err, ERR_BUSY, "%u files of volume '%s' are open", open.count, name);
}

int
volume_delete(struct volume_service *service, const char *name, bool force, struct err *err)
{
    struct set_call call = { .name = name, .force = force };
    char key[LIMIT_KEY];
    enum store_outcome outcome;
    if (check_unused(service, name, err) != 0)
        return -1;
    int rc = index_write(service->index, INDEX_FULL, delete_tx, &call, err);
    if (rc == 0)
        drop_run(service, &call.drop);
    free(call.drop.number);
    if (rc != 0)
        return -1;
    (void)snprintf(key, sizeof(key), ".holdfast/volumes/%s.json", name);
    struct store_delete req = { .key = key };
    struct err local = ERR_INIT;
    if (store_delete(service->store, &req, &outcome, &local) != 0 && local.code != ERR_NOT_FOUND)
        log_warn(volume, "the settings of volume '%s' stay in the bucket: %s", name, local.msg);
    return 0;
}
