/* Staging a write of the file: store: bytes and metadata on disk, under a name that nobody looks at. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "base/sys.h"
#include "base/ulid.h"
#include "s3/body.h"
#include "s3/file_impl.h"

#define CHUNK (256u << 10)

void
file_stage_release(struct file_stage *stage)
{
    if (stage->name[0]) {
        struct stat st;
        if (stage->fd >= 0 && fstat(stage->fd, &st) == 0)
            file_meta_forget(stage->fs, &st);
        (void)sys->unlinkat(stage->fs->tmp, stage->name, 0);
    }
    scope_close_fd(&stage->fd);
}
static int
open_file(struct file_stage *stage, struct err *err)
{
    struct file_store *fs = stage->fs;
    char name[ULID_SIZE];

    if (fs->tmp < 0)
        return err_set(err, ERR_STORE_DENIED, "the store's directory '%s' cannot be written",
                       fs->dir);
    if (ulid_new(name, err) < 0)
        return -1;
    stage->fd = sys->openat(fs->tmp, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
    if (stage->fd < 0)
        return file_fail(err, errno, "cannot make a file in '%s'", fs->dir);
    memcpy(stage->name, name, sizeof(name));
    return 0;
}

struct digests {
    struct hash *md5;
    struct hash *sha256; /* NULL when nobody asks */
};

static void
digests_release(struct digests *digests)
{
    hash_free(digests->md5);
    hash_free(digests->sha256);
}
#define scope_digests scope(digests_release) struct digests

static int
digests_begin(struct digests *digests, const struct store_body *body, struct err *err)
{
    digests->md5 = hash_new(HASH_MD5, err);
    if (digests->md5 && body->sha256)
        digests->sha256 = hash_new(HASH_SHA256, err);
    return !digests->md5 || (body->sha256 && !digests->sha256) ? -1 : 0;
}

static int
digests_add(struct digests *digests, const void *data, size_t len, struct err *err)
{
    if (hash_update(digests->md5, data, len, err) < 0)
        return -1;
    return digests->sha256 ? hash_update(digests->sha256, data, len, err) : 0;
}

static int
digests_end(struct digests *digests, const struct store_put *req, char *etag, struct err *err)
{
    uint8_t md5_sum[MD5_SIZE];
    uint8_t sha256_sum[SHA256_SIZE];

    if (hash_final(steal(&digests->md5), md5_sum, err) < 0)
        return -1;
    if (digests->sha256 && hash_final(steal(&digests->sha256), sha256_sum, err) < 0)
        return -1;
    hex_encode(md5_sum, sizeof(md5_sum), etag);
    return body_verify(&req->body, req->key, md5_sum, sha256_sum, err);
}

/* Writes the body into the staged file and makes its ETag, the MD5. */
static int
write_body(struct file_stage *stage, const struct store_put *req, struct err *err)
{
    scope_digests digests = { 0 };
    scope_free char *chunk = malloc(CHUNK);

    if (!chunk)
        return err_nomem(err);
    if (digests_begin(&digests, &req->body, err) < 0)
        return -1;
    for (uint64_t done = 0; done < req->body.size;) {
        uint64_t left = req->body.size - done;
        size_t len = left < CHUNK ? (size_t)left : CHUNK;
        if (file_check_time(stage->fs, req->deadline_ns, err) < 0 ||
            body_read(&req->body, done, chunk, len, err) < 0 ||
            digests_add(&digests, chunk, len, err) < 0)
            return -1;
        if (sys_write_full(stage->fd, chunk, len, (off_t)done, err) < 0)
            return file_fail_again(err, "cannot write an object");
        done += len;
    }
    return digests_end(&digests, req, stage->etag, err);
}

int
file_stage_put(struct file_stage *stage, const struct store_put *req, struct err *err)
{
    const char *type = req->content_type ? req->content_type : "application/octet-stream";
    struct store_object object;
    int rc = 0;

    if (open_file(stage, err) < 0 || write_body(stage, req, err) < 0)
        return -1;
    store_object_init(&object);
    memcpy(object.etag, stage->etag, sizeof(object.etag));
    (void)snprintf(object.content_type, sizeof(object.content_type), "%s", type);
    if (req->meta)
        rc = meta_copy(&object.meta, req->meta, err);
    if (rc == 0)
        rc = file_meta_write(stage->fs, stage->fd, &object, err);
    store_object_release(&object);
    /* fsync and not fdatasync: the attribute and the mtime belong to the object. */
    if (rc == 0 && sys->fsync(stage->fd) < 0)
        rc = file_fail(err, errno, "cannot keep '%.200s' in '%s'", req->key, stage->fs->dir);
    return rc;
}
