#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "s3/file_impl.h"
#include "s3/open.h"
#include "tests/fuzz/fuzz.h"

/*
 * The record that the file: store keeps with an object, which anybody may write who may write the file: after a right head (the
 * input begins with anything but '#'), or as it is. Whatever it says, what comes out keeps the store's contract.
 */

static char dir[128];
static struct store *store;
static int object_fd = -1;

static int
remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void
clean_up(void)
{
    close(object_fd);
    store_free(store);
    (void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void
begin(void)
{
    struct err err = ERR_INIT;
    char path[160];
    const char *base = secure_getenv("TMPDIR");
    (void)snprintf(dir, sizeof(dir), "%s/hf-fuzz-XXXXXX", base ? base : "/tmp");
    HOLDS(mkdtemp(dir));
    (void)atexit(clean_up);
    store = file_store_open(dir, &err);
    HOLDS(store);
    (void)snprintf(path, sizeof(path), "%s/f", dir);
    object_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    HOLDS(object_fd >= 0 && write(object_fd, "bytes", 5) == 5);
}

/* False: this file system keeps no such attribute. */
static bool
put_record(const struct stat *st, const char *text)
{
    char record[4096];
    int64_t mtime = (int64_t)st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec;
    int len = text[0] == '#'
                  ? snprintf(record, sizeof(record), "%s", text + 1)
                  : snprintf(record, sizeof(record),
                             "holdfast-object 1\nsize 5\nmtime %" PRId64 "\n%s", mtime, text);
    size_t size = (size_t)len < sizeof(record) ? (size_t)len : sizeof(record) - 1;
    return fsetxattr(object_fd, "user.holdfast", record, size, 0) == 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct store_object object;
    struct stat st;
    if (!store)
        begin();
    char *text = fuzz_text(data, size);
    store_object_init(&object);
    HOLDS(fstat(object_fd, &st) == 0);
    if (put_record(&st, text)) {
        struct file_store *fs = (struct file_store *)store;
        HOLDS(fstat(object_fd, &st) == 0);
        HOLDS(file_meta_read(fs, object_fd, false, &st, &object, &err) == 0);
        HOLDS(object.size == 5 && object.etag[0] && memchr(object.etag, 0, LIMIT_ETAG));
        for (const char *at = object.etag; *at; at++)
            HOLDS((unsigned char)*at > 0x20 && *at != '"' && *at != 0x7f);
        HOLDS(memchr(object.content_type, 0, sizeof(object.content_type)));
        for (const char *at = object.content_type; *at; at++)
            HOLDS((unsigned char)*at >= 0x20 && *at != 0x7f);
        HOLDS(object.meta.count <= LIMIT_META_ENTRIES);
    }
    store_object_release(&object);
    free(text);
    return 0;
}
