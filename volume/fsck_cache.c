#include <sys/stat.h>

#include "base/parse.h"
#include "base/scope.h"
#include "volume/fsck_impl.h"

/*
 * Content files of the cache against their rows. A gateway makes the file before the row or the row before the file, so whatever
 * does not fit is looked at once more after a moment, and told only when it still is so. Full: the bytes against their checksums.
 */

#define MOMENT (500 * NS_PER_MS)

struct numbers {
    int64_t *number;
    size_t count, cap;
};

struct check {
    struct fsck *fsck;
    struct numbers rows, files, doubtful;
    struct index_content row;
    struct index_node node;
    bool has_row, has_node;
    char where[64];
    bool has_meta;
};

static int
add(struct numbers *numbers, int64_t number, struct err *err)
{
    if (numbers->count == numbers->cap) {
        size_t cap = numbers->cap == 0 ? 256 : numbers->cap * 2;
        int64_t *grown = reallocarray(numbers->number, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        numbers->number = grown;
        numbers->cap = cap;
    }
    numbers->number[numbers->count++] = number;
    return 0;
}

/* Both lists come in order. */
static bool
contains(const struct numbers *numbers, int64_t number)
{
    size_t low = 0, high = numbers->count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (numbers->number[mid] < number)
            low = mid + 1;
        else
            high = mid;
    }
    return low < numbers->count && numbers->number[low] == number;
}

static int
row_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct check *check = arg;
    struct err local = ERR_INIT;
    int64_t number = check->row.id;
    check->has_row = index_content_get(tx, number, &check->row, &local) == 0;
    check->row.id = number;
    check->has_node = check->has_row && check->row.node != 0 &&
                      index_node_get(tx, check->row.node, &check->node, &local) == 0;
    if (local.code == ERR_INTERNAL || local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

/* ---- repairs ---- */

/* A copy of what the bucket has goes, and comes again when it is wanted. */
static int
mend_copy(struct fsck *fsck, void *arg, struct err *err)
{
    const struct check *check = arg;
    if (!evict_content(fsck->service, check->row.id))
        return err_set(err, ERR_BUSY, "it is in use: close the file and try again");
    if (drop_make_durable(fsck->service, err) != 0)
        return -1;
    cache_remove(fsck->service->cache, check->row.id);
    return 0;
}

static int
mend_stray(struct fsck *fsck, void *arg, struct err *err)
{
    const struct check *check = arg;
    return cache_lose(fsck->service->cache, check->row.id, err);
}

static const struct fsck_fault copy_gone = {
    "cache-missing", "a copy of an object is not in the cache, although the index says so",
    "the index forgets the copy; the bytes are fetched when somebody reads them", mend_copy
};
static const struct fsck_fault copy_size = {
    "cache-size", "a copy of an object in the cache has another length than the object",
    "the copy is dropped; the bytes are fetched when somebody reads them", mend_copy
};
static const struct fsck_fault copy_bytes = {
    "cache-wrong", "a copy of an object in the cache does not hold the object's bytes",
    "the copy is dropped; the bytes are fetched when somebody reads them", mend_copy
};
static const struct fsck_fault staged_gone = {
    "staged-missing",
    "bytes that are not in the bucket yet are not in the cache any more: they are lost",
    "none: the version before them is in the bucket", NULL
};
static const struct fsck_fault staged_size = {
    "staged-size",
    "a file in the cache that is not in the bucket yet has another length than it was "
    "saved with",
    "none: it is kept, and not sent as it is", NULL
};
static const struct fsck_fault staged_bytes = {
    "staged-wrong",
    "a file in the cache that is not in the bucket yet does not hold the bytes that "
    "were saved",
    "none: it is kept, and not sent as it is", NULL
};
static const struct fsck_fault stray = { "cache-unknown",
                                         "a file in the cache that the index does not know",
                                         "it is moved to 'lost' in the state directory, for 7 days",
                                         mend_stray };

/* ---- judging ---- */

static bool
matches(const struct check *check, const uint8_t sha[SHA256_SIZE], const uint8_t md[MD5_SIZE],
        bool *known)
{
    const struct index_content *row = &check->row;
    char sha_hex[SHA256_HEX], md_hex[MD5_HEX];
    hex_encode(sha, SHA256_SIZE, sha_hex);
    hex_encode(md, MD5_SIZE, md_hex);
    *known = true;
    if (row->sha256[0] != '\0')
        return strcmp(row->sha256, sha_hex) == 0;
    if (row->md5[0] != '\0')
        return strcmp(row->md5, md_hex) == 0;
    *known = identity_etag_is_md5(row->etag);
    return !*known || strcasecmp(row->etag, md_hex) == 0;
}

static int
judge_bytes(struct check *check, struct cache_file *file, const struct fsck_fault **out,
            struct err *err)
{
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    bool known;
    struct volume_fsck_report *report = check->fsck->out;
    if (!cache_complete(file))
        return 0;
    if (cache_file_hash(file, check->row.size, sha, md, err) != 0)
        return -1;
    report->bytes_read += check->row.size;
    bool same = matches(check, sha, md, &known);
    report->unverified += !known;
    if (!same)
        *out = check->row.state == CONTENT_CLEAN ? &copy_bytes : &staged_bytes;
    return 0;
}

/* A row that says LIVE tells nothing of its bytes; one of a folder's marker or a symbolic link has no file. */
static int
judge_row(struct check *check, bool full, const struct fsck_fault **out, struct err *err)
{
    struct err gone = ERR_INIT;
    struct stat st;
    bool clean = check->row.state == CONTENT_CLEAN;
    *out = NULL;
    if (!check->has_row || (check->has_node && check->node.kind != INDEX_FILE))
        return 0;
    struct cache_file *file = cache_get(check->fsck->service->cache, check->row.id, &gone);
    if (file == NULL || fstat(cache_file_fd(file), &st) != 0) {
        cache_put(file);
        *out = clean ? &copy_gone : &staged_gone;
        return 0;
    }
    int rc = 0;
    if (check->row.state == CONTENT_LIVE)
        rc = 0;
    else if ((uint64_t)st.st_size != check->row.size)
        *out = clean ? &copy_size : &staged_size;
    else if (full)
        rc = judge_bytes(check, file, out, err);
    cache_put(file);
    return rc;
}

static int
judge(struct check *check, int64_t number, bool full, const struct fsck_fault **out,
      struct err *err)
{
    check->row.id = number;
    if (index_read(check->fsck->service->index, row_tx, check, err) != 0)
        return -1;
    if (check->has_row)
        return judge_row(check, full, out, err);
    struct err gone = ERR_INIT;
    struct cache_file *file = cache_get(check->fsck->service->cache, number, &gone);
    *out = file != NULL ? &stray : NULL;
    cache_put(file);
    return 0;
}

/* ---- all ---- */

static int
add_row(void *arg, const struct index_content *row, struct err *err)
{
    struct check *check = arg;
    return add(&check->rows, row->id, err);
}

static int
rows_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_each(tx, add_row, arg, err);
}

static int
add_file(void *arg, int64_t number, uint64_t disk_bytes, bool has_meta, bool has_map,
         struct err *err)
{
    struct check *check = arg;
    (void)disk_bytes;
    (void)has_meta;
    (void)has_map;
    return add(&check->files, number, err);
}

static int
first_look(struct check *check, struct err *err)
{
    struct fsck *fsck = check->fsck;
    const struct fsck_fault *fault;
    for (size_t i = 0; i < check->rows.count; i++) {
        if (judge(check, check->rows.number[i], fsck->args->full, &fault, err) != 0 ||
            (fault != NULL && add(&check->doubtful, check->rows.number[i], err) != 0))
            return -1;
        if (++fsck->out->contents % 256 == 0) {
            fsck_progress(fsck, "files of the cache", fsck->out->contents);
            if (fsck_go_on(fsck, err) != 0)
                return -1;
        }
    }
    for (size_t i = 0; i < check->files.count; i++)
        if (!contains(&check->rows, check->files.number[i]) &&
            add(&check->doubtful, check->files.number[i], err) != 0)
            return -1;
    return 0;
}

static int
second_look(struct check *check, struct err *err)
{
    const struct fsck_fault *fault;
    if (check->doubtful.count == 0)
        return 0;
    clock_sleep_ns(MOMENT);
    drop_flush(check->fsck->service); /* files whose rows are gone go now */
    for (size_t i = 0; i < check->doubtful.count; i++) {
        int64_t number = check->doubtful.number[i];
        if (judge(check, number, check->fsck->args->full, &fault, err) != 0)
            return -1;
        (void)snprintf(check->where, sizeof(check->where), "cache/%02x/%lld",
                       (unsigned)(number & 0xff), (long long)number);
        if (fault != NULL && fsck_tell(check->fsck, fault, NULL, check->where, check, err) != 0)
            return -1;
    }
    return 0;
}

int
fsck_cache(struct fsck *fsck, struct err *err)
{
    struct check check = { .fsck = fsck };
    drop_flush(fsck->service);
    /* The files first: one that is made while the rows are read has its row by the second look. */
    int rc = cache_scan(fsck->service->cache, add_file, &check, err);
    if (rc == 0)
        rc = index_read(fsck->service->index, rows_tx, &check, err);
    if (rc == 0)
        rc = first_look(&check, err);
    if (rc == 0)
        rc = second_look(&check, err);
    free(check.rows.number);
    free(check.files.number);
    free(check.doubtful.number);
    return rc;
}
