#include "base/parse.h"
#include "base/scope.h"
#include "volume/fsck_impl.h"

/* The bytes of a volume's objects, read once through and held to the checksums that were noted when they were written. */

#define PAGE 256u

struct bytes {
    struct fsck *fsck;
    const struct index_volume *volume;
    struct index_key *row; /* PAGE */
    size_t count;
    char after[LIMIT_KEY + 1];
    /* of the object at hand */
    const struct index_key *key;
    struct hash *sha256, *md5;
    struct observed seen;
    int64_t content; /* a whole copy in the cache, 0: none */
};

/* ---- repair: a copy in the cache that is whole is sent again ---- */

static int
again_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct bytes *bytes = arg;
    struct index_node node;
    struct index_content row;
    bytes->content = 0;
    if (bytes->key->owner <= 0)
        return 0;
    if (index_node_get(tx, bytes->key->owner, &node, err) != 0)
        return -1;
    if (node.content == 0 || node.kind != INDEX_FILE || strcmp(node.etag, bytes->key->etag) != 0)
        return 0;
    if (index_content_get(tx, node.content, &row, err) != 0)
        return -1;
    if (row.state != CONTENT_CLEAN || (row.flags & CONTENT_COMPLETE) == 0 ||
        strcmp(row.sha256, bytes->seen.sha256) != 0)
        return 0;
    row.state = CONTENT_FROZEN;
    row.flags |= CONTENT_ACKED;
    text_set(row.base_version, node.version);
    text_set(row.base_etag, node.etag);
    (void)snprintf(row.actor, sizeof(row.actor), "fsck");
    cache_pin(bytes->fsck->service->cache, row.id);
    if (ulid_new(row.version, err) != 0 || index_content_update(tx, &row, err) != 0)
        return -1;
    bytes->content = row.id;
    return key_want_sync(tx, bytes->volume->id, bytes->key->key, 0, err);
}

struct copy_call {
    int64_t node;
    struct index_content row;
    bool found;
};

static int
copy_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct copy_call *call = arg;
    struct index_node node;
    struct err ignored = ERR_INIT;
    (void)err;
    call->found = index_node_get(tx, call->node, &node, &ignored) == 0 && node.content != 0 &&
                  index_content_get(tx, node.content, &call->row, &ignored) == 0;
    return 0;
}

/* Only what proves to be the version that was written. */
static bool
copy_is_whole(const struct bytes *bytes)
{
    struct copy_call call = { .node = bytes->key->owner };
    struct err err = ERR_INIT;
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    char hex[SHA256_HEX];
    if (index_read(bytes->fsck->service->index, copy_tx, &call, &err) != 0 || !call.found)
        return false;
    struct cache_file *file = cache_get(bytes->fsck->service->cache, call.row.id, &err);
    bool whole = file != NULL && cache_complete(file) &&
                 cache_file_hash(file, call.row.size, sha, md, &err) == 0;
    cache_put(file);
    if (!whole)
        return false;
    hex_encode(sha, sizeof(sha), hex);
    return strcmp(hex, bytes->seen.sha256) == 0;
}

static int
mend_wrong(struct fsck *fsck, void *arg, struct err *err)
{
    struct bytes *bytes = arg;
    if (!copy_is_whole(bytes))
        return err_set(err, ERR_NOT_FOUND, "the cache has no copy of it that is whole");
    if (index_write(fsck->service->index, INDEX_FULL, again_tx, bytes, err) != 0)
        return -1;
    return bytes->content != 0 ? 0 : err_set(err, ERR_BUSY, "the file is being changed");
}

static const struct fsck_fault wrong = {
    "object-wrong",
    "the object in the bucket does not hold the bytes that were written: the store, or "
    "what lies before it, has damaged them",
    "a copy in the cache that is whole is sent again; without one there is none but an older "
    "version",
    mend_wrong
};
static const struct fsck_fault unreadable = { "object-unreadable",
                                              "the object is listed, but its bytes cannot be read",
                                              "none: ask whoever runs the store", NULL };

/* ---- reading ---- */

static int
take(void *arg, const void *data, size_t len, struct err *err)
{
    struct bytes *bytes = arg;
    bytes->fsck->out->bytes_read += len;
    if (hash_update(bytes->sha256, data, len, err) != 0 ||
        hash_update(bytes->md5, data, len, err) != 0)
        return -1;
    return fsck_go_on(bytes->fsck, err);
}

static int
fetch(struct bytes *bytes, struct err *err)
{
    struct store_object object;
    struct object_attrs attrs;
    struct store_get get = {
        .key = bytes->key->key, .if_match = bytes->key->etag, .sink = take, .sink_arg = bytes
    };
    bytes->sha256 = hash_new(HASH_SHA256, err);
    bytes->md5 = hash_new(HASH_MD5, err);
    if (bytes->sha256 == NULL || bytes->md5 == NULL)
        return -1;
    store_object_init(&object);
    int rc = store_get(bytes->fsck->service->store, &get, &object, err);
    if (rc == 0)
        object_read(&object, &bytes->seen, &attrs);
    store_object_release(&object);
    return rc;
}

static int
compare(struct bytes *bytes, struct err *err)
{
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    char sha_hex[SHA256_HEX], md_hex[MD5_HEX];
    const struct observed *seen = &bytes->seen;
    if (hash_peek(bytes->sha256, sha, err) != 0 || hash_peek(bytes->md5, md, err) != 0)
        return -1;
    hex_encode(sha, sizeof(sha), sha_hex);
    hex_encode(md, sizeof(md), md_hex);
    /* Another client's bytes under metadata that it carried along are no fault: then size or MD5 of the ETag differ too. */
    bool ours = seen->sha256[0] != '\0' && identity_believed(seen, NULL);
    bool by_etag = identity_etag_is_md5(seen->etag);
    bool same = (!ours || strcmp(seen->sha256, sha_hex) == 0) &&
                (!by_etag || strcasecmp(seen->etag, md_hex) == 0);
    bytes->fsck->out->unverified += !ours && !by_etag;
    return same ? 0
                : fsck_tell(bytes->fsck, &wrong, bytes->volume->name, bytes->key->key, bytes, err);
}

static int
check_object(struct bytes *bytes, struct err *err)
{
    struct err why = ERR_INIT;
    int rc = fetch(bytes, &why);
    if (rc == 0)
        rc = compare(bytes, err);
    /* Changed or removed since it was listed: the next run sees it. */
    else if (why.code == ERR_CONFLICT || why.code == ERR_NOT_FOUND || why.code == ERR_RANGE)
        rc = 0;
    else if (why.code == ERR_IO || why.code == ERR_CORRUPT)
        rc = fsck_tell(bytes->fsck, &unreadable, bytes->volume->name, bytes->key->key, bytes, err);
    else
        *err = why;
    hash_free(bytes->sha256);
    hash_free(bytes->md5);
    bytes->sha256 = bytes->md5 = NULL;
    return rc;
}

static int
add_row(void *arg, const struct index_key *row, struct err *err)
{
    struct bytes *bytes = arg;
    (void)err;
    text_set(bytes->after, row->key);
    if (row->owner > 0 && strncmp(row->key, ".holdfast/", 10) != 0)
        bytes->row[bytes->count++] = *row;
    return 0;
}

static int
page_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct bytes *bytes = arg;
    bytes->count = 0;
    return index_key_range(tx, bytes->volume->prefix, bytes->after, PAGE, add_row, bytes, err);
}

int
fsck_bytes(struct fsck *fsck, const struct index_volume *volume, struct err *err)
{
    struct bytes bytes = { .fsck = fsck, .volume = volume };
    char before[LIMIT_KEY + 1];
    uint64_t done = 0;
    scope_free struct index_key *row = calloc(PAGE, sizeof(*row));
    if (row == NULL)
        return err_nomem(err);
    bytes.row = row;
    do {
        text_set(before, bytes.after);
        if (index_read(fsck->service->index, page_tx, &bytes, err) != 0)
            return -1;
        for (size_t i = 0; i < bytes.count; i++) {
            bytes.key = &row[i];
            if (check_object(&bytes, err) != 0)
                return -1;
            fsck_progress(fsck, "objects read", ++done);
        }
    } while (strcmp(before, bytes.after) != 0);
    return 0;
}
