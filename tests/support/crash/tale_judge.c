#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/parse.h"
#include "base/scope.h"
#include "support/crash/tale.h"
#include "support/crash/tree.h"
#include "volume/fsck.h"
#include "volume/snapshot.h"
#include "volume/uploads.h"

struct judge {
    const struct tale *tale;
    struct tale_life life;
    struct tale_model before, after; /* of the step that was under way */
    const char *when;
    char found[64][16]; /* contents in the bucket */
    unsigned found_count;
    bool parked, late; /* something was left for the sweep; and it has come */
};
#define PARK ".holdfast/park/"

__attribute__((format(printf, 2, 3))) static void
broken(const struct judge *judge, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    rig_break("'%s' in step %u, %s: %s", judge->tale->name, judge->life.ledger->begun, judge->when,
              text);
}

/* ---- the bucket ---- */

static bool
is_found(const struct judge *judge, const char *content)
{
    for (unsigned i = 0; i < judge->found_count; i++)
        if (strcmp(judge->found[i], content) == 0)
            return true;
    return false;
}

/* What a program was writing when it all ended is kept aside as torn: the beginning of what a step saves at `path` (NULL: anywhere). */
static bool
is_torn(const struct judge *judge, const char *path, const uint8_t *data, size_t len)
{
    for (unsigned i = 0; i < tale_acts(judge->tale); i++) {
        const struct tale_op *op = &judge->tale->act[i];
        if (op->what != TALE_SAVE || (path != NULL && strcmp(path, op->path) != 0))
            continue;
        size_t whole;
        scope_free uint8_t *bytes = tale_bytes(op->other, &whole);
        if (len <= whole && (len == 0 || memcmp(bytes, data, len) == 0))
            return true;
    }
    return false;
}

static int
see_object(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct judge *judge = arg;
    scope_free uint8_t *data = NULL;
    size_t len = strlen(entry->key);
    char *content = judge->found[judge->found_count];
    bool file = strncmp(entry->key, TALE_VOLUME "/", sizeof(TALE_VOLUME)) == 0;
    bool copy = strncmp(entry->key, ".holdfast/history/", 18) == 0;
    bool loser = strncmp(entry->key, ".holdfast/conflicts/", 20) == 0;
    bool parked = strncmp(entry->key, ".holdfast/park/", 15) == 0;
    if (entry->key[len - 1] == '/' || !(file || copy || loser || parked))
        return 0;
    struct store *store = rig_store(judge->life.rig);
    int rc = tree_read_object(store, entry->key, &data, &len, err);
    store_free(store);
    if (rc != 0)
        return -1;
    if (loser && !tale_content_of(data, len, content) && is_torn(judge, NULL, data, len))
        return 0;
    if (!tale_content_of(data, len, content))
        broken(judge, "object '%s' is none of our contents (%zu bytes)", entry->key, len);
    else if (judge->found_count + 1 < sizeof(judge->found) / sizeof(judge->found[0]))
        judge->found_count++;
    return 0;
}

/* Whatever was told to be in the bucket is there, whole, in every moment. */
static void
check_bucket(struct judge *judge, const struct tale_model *model, bool early)
{
    struct err err = ERR_INIT;
    struct store *store = rig_store(judge->life.rig);
    struct store_list list = { .prefix = "", .fn = see_object, .arg = judge };
    judge->found_count = 0;
    if (store_list(store, &list, &err) != 0)
        broken(judge, "the bucket cannot be read: %s", err.msg);
    store_free(store);
    for (unsigned i = 0; i < model->kept_count; i++)
        if (!is_found(judge, model->kept[i].content) && !(early && model->kept[i].staged))
            broken(judge, "content '%s' is not in the bucket", model->kept[i].content);
}

static int
see_left(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct judge *judge = arg;
    (void)err;
    if (judge->late || strncmp(entry->key, PARK, sizeof(PARK) - 1) != 0)
        broken(judge, "'%s' was left in the bucket", entry->key);
    judge->parked = true;
    return 0;
}

static void
check_left(struct judge *judge)
{
    static const char *const none[] = { PARK, ".holdfast/moves/", ".holdfast/probe/" };
    struct err err = ERR_INIT;
    struct store *store = volume_service_store(judge->life.service);
    for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        struct store_list list = { .prefix = none[i], .fn = see_left, .arg = judge };
        if (store_list(store, &list, &err) != 0)
            broken(judge, "cannot list '%s': %s", none[i], err.msg);
    }
}

/* The copy of a killed process may land late, so its key is recorded and swept when it cannot any more. */
static void
check_late(struct judge *judge)
{
    struct err err = ERR_INIT;
    rig_close(judge->life.service);
    tale_later();
    tale_open(&judge->life);
    judge->when = "much later";
    judge->late = true;
    if (uploads_sweep(judge->life.service, &err) != 0)
        broken(judge, "copies cannot be ended: %s", err.msg);
    check_left(judge);
    judge->life.ledger->swept++;
}

/* ---- names and bytes ---- */

static void
hash_of(const char *content, char out[SHA256_HEX])
{
    size_t len;
    uint8_t sum[SHA256_SIZE];
    struct err err = ERR_INIT;
    scope_free uint8_t *data = tale_bytes(content, &len);
    if (sha256(data, len, sum, &err) != 0)
        rig_die("%s", err.msg);
    hex_encode(sum, sizeof(sum), out);
}

static bool
is_content(const struct tree_entry *entry, const char *content)
{
    char hash[SHA256_HEX];
    if (content == NULL || entry == NULL)
        return content == NULL && entry == NULL;
    if (content[0] == '/')
        return entry->kind == INDEX_DIR;
    hash_of(content, hash);
    return entry->kind == INDEX_FILE && strcmp(entry->sha256, hash) == 0;
}

static bool
is_tree(const struct tree *tree, const struct tale_tree *wanted)
{
    if (tree->count != wanted->count)
        return false;
    for (unsigned i = 0; i < wanted->count; i++)
        if (!is_content(tree_find(tree, wanted->entry[i].path), wanted->entry[i].content))
            return false;
    return true;
}

/* Each path is as before or as after. */
static bool
is_between(const struct tree *tree, const struct tale_tree *a, const struct tale_tree *b)
{
    for (size_t i = 0; i < tree->count; i++) {
        const char *path = tree->entry[i].path;
        const char *one = tale_tree_find(a, path), *other = tale_tree_find(b, path);
        if ((one == NULL || !is_content(&tree->entry[i], one)) &&
            (other == NULL || !is_content(&tree->entry[i], other)))
            return false;
    }
    for (unsigned i = 0; i < a->count; i++)
        if (tale_tree_find(b, a->entry[i].path) != NULL &&
            tree_find(tree, a->entry[i].path) == NULL)
            return false;
    return true;
}

static void
print_tree(const struct tree *tree)
{
    for (size_t i = 0; i < tree->count; i++)
        printf("  '%s' kind %d, %llu bytes, %.12s\n", tree->entry[i].path, (int)tree->entry[i].kind,
               (unsigned long long)tree->entry[i].size, tree->entry[i].sha256);
}

static void
check_tree(struct judge *judge, bool compare)
{
    struct tree tree = { 0 }, bucket = { 0 };
    struct err err = ERR_INIT;
    const struct tale_op *op = &judge->tale->act[judge->life.ledger->done];
    const struct tale_tree *a = &judge->before.now, *b = &judge->after.now;
    if (tree_of_volume(judge->life.service, judge->life.volume, &tree, &err) != 0)
        broken(judge, "the volume cannot be read: %s", err.msg);
    else if (!is_tree(&tree, a) && !is_tree(&tree, b) &&
             !(tale_is_many(op) && is_between(&tree, a, b))) {
        broken(judge, "the names and bytes are neither those before nor those after");
        print_tree(&tree);
    } else if (compare && tree_of_bucket(volume_service_store(judge->life.service), TALE_VOLUME "/",
                                         &bucket, &err) != 0)
        broken(judge, "the bucket cannot be read: %s", err.msg);
    else if (compare)
        (void)tree_compare(&tree, &bucket, judge->when);
    tree_release(&tree);
    tree_release(&bucket);
}

/* ---- the past ---- */

struct rows {
    struct judge *judge;
    struct index_history row[64];
    unsigned count;
};

static int
see_row(void *arg, const struct index_history *row, struct err *err)
{
    struct rows *rows = arg;
    (void)err;
    if (rows->count == sizeof(rows->row) / sizeof(rows->row[0]))
        rig_die("a tale of too many versions");
    rows->row[rows->count++] = *row;
    return 0;
}

static int
rows_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_history_each(tx, "", 64, see_row, arg, err);
}

static void
check_row(struct judge *judge, const struct index_history *row, char content[16])
{
    struct volume_ctx ctx = rig_ctx(99);
    struct err err = ERR_INIT;
    scope_free uint8_t *data = malloc(row->size + 1);
    if (data == NULL)
        rig_die("out of memory");
    content[0] = '\0';
    if (row->state != INDEX_HISTORY_KEPT) {
        broken(judge, "version '%s' of '%s' is in state %d", row->id, row->path, row->state);
        return;
    }
    ssize_t got =
        volume_history_read(judge->life.service, &ctx, row->id, data, row->size + 1, 0, &err);
    if (got < 0)
        broken(judge, "version '%s' of '%s' cannot be read: %s", row->id, row->path, err.msg);
    else if (!tale_content_of(data, (size_t)got, content))
        broken(judge, "version '%s' of '%s' has mixed bytes", row->id, row->path);
}

/* Every content that has to be kept is a present one or in the history, and can be read there. */
static void
check_history(struct judge *judge, const struct tale_model *model)
{
    struct err err = ERR_INIT;
    scope_free struct rows *rows = calloc(1, sizeof(*rows));
    if (rows == NULL)
        rig_die("out of memory");
    rows->judge = judge;
    if (index_read(volume_service_index(judge->life.service), rows_tx, rows, &err) != 0)
        broken(judge, "the history cannot be read: %s", err.msg);
    char content[64][16];
    for (unsigned i = 0; i < rows->count; i++) {
        check_row(judge, &rows->row[i], content[i]);
        for (unsigned k = 0; k < i; k++)
            if (content[i][0] != '\0' && strcmp(content[i], content[k]) == 0)
                judge->life.ledger->twice++;
    }
    for (unsigned i = 0; i < model->kept_count; i++) {
        bool here = false;
        for (unsigned k = 0; k < rows->count; k++)
            here = here || strcmp(content[k], model->kept[i].content) == 0;
        for (unsigned k = 0; k < TALE_PATHS; k++)
            here = here ||
                   (k < judge->before.now.count &&
                    strcmp(judge->before.now.entry[k].content, model->kept[i].content) == 0) ||
                   (k < judge->after.now.count &&
                    strcmp(judge->after.now.entry[k].content, model->kept[i].content) == 0);
        if (!here)
            broken(judge, "the history does not have '%s'", model->kept[i].content);
    }
}

static void
check_entry(struct judge *judge, const char *name, const struct volume_past_entry *entry,
            const char *wanted)
{
    struct volume_ctx ctx = rig_ctx(99);
    struct err err = ERR_INIT;
    char content[16];
    if (wanted == NULL || wanted[0] == '/' || entry == NULL) {
        if ((wanted == NULL) != (entry == NULL))
            broken(judge, "snapshot '%s': '%s' is%s there", name,
                   entry == NULL ? wanted : entry->path, entry == NULL ? " not" : "");
        return;
    }
    scope_free uint8_t *data = malloc(entry->size + 1);
    if (data == NULL)
        rig_die("out of memory");
    ssize_t got =
        volume_past_read(judge->life.service, &ctx, entry, data, entry->size + 1, 0, &err);
    if (got < 0)
        broken(judge, "snapshot '%s': '%s' cannot be read: %s", name, entry->path, err.msg);
    else if (!tale_content_of(data, (size_t)got, content) || strcmp(content, wanted) != 0)
        broken(judge, "snapshot '%s': '%s' is not '%s'", name, entry->path, wanted);
}

static void
check_snapshot(struct judge *judge, const char *name, const struct tale_tree *wanted)
{
    struct volume_snapshot snapshot;
    struct volume_past *past;
    struct err err = ERR_INIT;
    if (volume_snapshot_find(judge->life.service, judge->life.volume, name, &snapshot, &err) != 0 ||
        volume_past_open(judge->life.service, judge->life.volume, snapshot.at_ns, &past, &err) !=
            0) {
        broken(judge, "snapshot '%s': %s", name, err.msg);
        return;
    }
    for (unsigned i = 0; i < wanted->count; i++)
        check_entry(judge, name, volume_past_find(past, wanted->entry[i].path),
                    wanted->entry[i].content);
    const struct volume_past_entry *entry;
    for (size_t i = 0; (entry = volume_past_next(past, &i)) != NULL;)
        if (entry->path[0] != '\0' && tale_tree_find(wanted, entry->path) == NULL)
            check_entry(judge, name, entry, NULL);
    volume_past_close(past);
}

static void
check_snapshots(struct judge *judge)
{
    for (unsigned i = 0; i < TALE_MOMENTS; i++) {
        const char *name = judge->before.snapshot[i];
        if (name != NULL && judge->after.snapshot[i] != NULL)
            check_snapshot(judge, name, &judge->before.moment[i]);
    }
}

/* ---- all of it ---- */

static int
see_finding(void *arg, const struct volume_finding *finding, struct err *err)
{
    (void)err;
    broken(arg, "fsck: %s %s: %s", finding->code, finding->where, finding->what);
    return 0;
}

static int
see_conflict(void *arg, const struct index_conflict *row, struct err *err)
{
    struct judge *judge = arg;
    (void)err;
    if (strcmp(row->reason, "torn") != 0 || !is_torn(judge, row->path, NULL, 0))
        broken(judge, "a conflict nobody made: '%s', %s", row->path, row->reason);
    else
        judge->life.ledger->torn++;
    return 0;
}

static void
check_fsck(struct judge *judge)
{
    struct err err = ERR_INIT;
    struct volume_fsck_report report;
    struct volume_fsck_args args = { .full = true, .fn = see_finding, .arg = judge };
    if (volume_conflict_each(judge->life.service, 0, see_conflict, judge, &err) != 0 ||
        volume_fsck(judge->life.service, &args, &report, &err) != 0)
        broken(judge, "fsck fails: %s", err.msg);
}

static bool
is_published(struct judge *judge)
{
    struct volume_snapshot snapshot;
    struct err err = ERR_INIT;
    for (unsigned i = 0; i < TALE_MOMENTS; i++)
        if (judge->before.snapshot[i] != NULL &&
            volume_snapshot_find(judge->life.service, judge->life.volume, judge->before.snapshot[i],
                                 &snapshot, &err) == 0 &&
            !snapshot.published)
            return false;
    return true;
}

static void
check_all(struct judge *judge, const struct tale_model *kept)
{
    check_tree(judge, true);
    check_bucket(judge, kept, false);
    check_left(judge);
    check_history(judge, kept);
    check_snapshots(judge);
    check_fsck(judge);
    judge->life.ledger->checks++;
}

/* What was pruned is gone; anything else that was saved may be there. */
static void
check_pruned(struct judge *judge)
{
    for (unsigned i = 0; i < tale_acts(judge->tale); i++)
        for (unsigned k = 0; k < judge->found_count; k++)
            if (judge->tale->act[i].what == TALE_PRUNE &&
                strstr(judge->tale->act[i].other, judge->found[k]) != NULL)
                broken(judge, "'%s' is still in the bucket", judge->found[k]);
}

void
tale_judge(const struct rig *rig, const struct tale *tale, struct tale_ledger *ledger)
{
    scope_free struct judge *judge = calloc(1, sizeof(*judge));
    if (judge == NULL)
        rig_die("out of memory");
    *judge = (struct judge){ .tale = tale,
                             .life = { .rig = rig, .tale = tale, .ledger = ledger },
                             .when = "before anything runs again" };
    unsigned acts = tale_acts(tale);
    tale_model_after(tale, ledger->done, &judge->before);
    tale_model_after(tale, ledger->done < acts ? ledger->done + 1 : acts, &judge->after);
    const struct tale_model *kept =
        judge->after.kept_count < judge->before.kept_count ? &judge->after : &judge->before;
    check_bucket(judge, kept, true);
    tale_open(&judge->life);
    judge->when = "after the start";
    check_tree(judge, false);
    tale_flush(&judge->life);
    judge->when = "after the barrier";
    check_all(judge, kept);

    judge->when = "at the end of the tale";
    tale_act(&judge->life, true);
    tale_model_after(tale, acts, &judge->after);
    judge->before = judge->after;
    /* Manifests are written one after the other: with the last one the work is there for one that went meanwhile. */
    for (unsigned i = 0; i < 60000 && !is_published(judge); i++)
        clock_sleep_ns(NS_PER_MS);
    tale_flush(&judge->life);
    check_all(judge, &judge->after);
    check_pruned(judge);
    if (judge->parked)
        check_late(judge);
    rig_close(judge->life.service);
}
