#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/sys.h"
#include "s3/file_impl.h"

#define XATTR "user.holdfast"
#define RECORD_MAX (LIMIT_META_BYTES + 4096)
#define RECORD_HEAD "holdfast-object 1"
#define META_DIR FILE_RESERVED "meta"
/* Two changes within one tick of the kernel's coarse clock (at most 10 ms) can have the same mtime and ctime. */
#define SETTLE_NS (20 * NS_PER_MS)
#define SETTLE_TRIES 8

static int64_t
ns_of(const struct timespec *time)
{
    return (int64_t)time->tv_sec * NS_PER_S + time->tv_nsec;
}

void
file_meta_foreign_etag(const struct stat *st, char *out)
{
    /* Not the shape of an MD5, so that nobody compares it with one. */
    (void)snprintf(out, LIMIT_ETAG, "f-%" PRIx64 "-%" PRIx64 "-%" PRIx64 "-%" PRIx64,
                   (uint64_t)st->st_size, (uint64_t)st->st_ino, (uint64_t)ns_of(&st->st_mtim),
                   (uint64_t)ns_of(&st->st_ctim));
}

static void
sidecar_name(const struct stat *st, char *out, size_t size)
{
    (void)snprintf(out, size, "%" PRIx64 "-%" PRIx64, (uint64_t)st->st_ino,
                   (uint64_t)ns_of(&st->st_mtim));
}

/* The directory of the sidecars, -1 when there is none. */
static int
sidecar_dir(struct file_store *fs, bool make)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&fs->mutex);

    (void)held;
    if (fs->meta < 0 && make && sys->mkdirat(fs->root, META_DIR, 0755) == 0 &&
        sys->fsync(fs->root) < 0)
        return -1;
    if (fs->meta < 0)
        fs->meta = openat(fs->root, META_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fs->meta;
}

void
file_meta_forget(struct file_store *fs, const struct stat *st)
{
    char name[64];
    int dir = sidecar_dir(fs, false);

    if (dir < 0)
        return;
    sidecar_name(st, name, sizeof(name));
    (void)sys->unlinkat(dir, name, 0); /* a leftover is harmless: it names a file that is gone */
}

static int
print_record(const struct store_object *object, const struct stat *st, struct buf *out,
             struct err *err)
{
    if (buf_appendf(out, err, RECORD_HEAD "\netag %s\nsize %" PRIu64 "\nmtime %" PRId64 "\n",
                    object->etag, (uint64_t)st->st_size, ns_of(&st->st_mtim)) < 0 ||
        buf_appendf(out, err, "type %s\n", object->content_type) < 0)
        return -1;
    for (size_t i = 0; i < object->meta.count; i++) {
        const struct meta_entry *entry = &object->meta.entry[i];
        if (buf_appendf(out, err, "meta %s %s\n", entry->name, entry->value) < 0)
            return -1;
    }
    return 0;
}

static int
write_sidecar(struct file_store *fs, const struct stat *st, const struct buf *record,
              struct err *err)
{
    char name[64];
    int dir = sidecar_dir(fs, true);

    if (dir < 0)
        return file_fail(err, errno, "cannot keep metadata in '%s'", fs->dir);
    sidecar_name(st, name, sizeof(name));
    if (sys_replace_file(dir, name, record->data, record->len, 0644, err) < 0)
        return file_fail_again(err, "cannot keep metadata");
    return 0;
}

int
file_meta_write(struct file_store *fs, int fd, const struct store_object *object, struct err *err)
{
    scope_buf record;
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
    struct stat st;

    buf_init(&record, RECORD_MAX);
    /* The exact time instead of the kernel's coarse one: a foreign write in the same tick then has another mtime. */
    clock_gettime(CLOCK_REALTIME, &times[1]);
    if (futimens(fd, times) < 0 || fstat(fd, &st) < 0)
        return file_fail(err, errno, "cannot set the time of a new object in '%s'", fs->dir);
    if (print_record(object, &st, &record, err) < 0)
        return -1;
    if (!fs->sidecar_only && fsetxattr(fd, XATTR, record.data, record.len, 0) == 0)
        return 0;
    return write_sidecar(fs, &st, &record, err);
}

/* Takes the next line out of *text; NULL at the end. */
static char *
next_line(char **text)
{
    char *line = *text;
    char *end;

    if (!*line)
        return NULL;
    end = strchr(line, '\n');
    if (end) {
        *end = '\0';
        *text = end + 1;
    } else {
        *text = line + strlen(line);
    }
    return line;
}

static const char *
field(const char *line, const char *name)
{
    size_t len = strlen(name);

    return strncmp(line, name, len) == 0 && line[len] == ' ' ? line + len + 1 : NULL;
}

/* What a record says about the file it was made for. */
struct record {
    uint64_t size;
    int64_t mtime;
    struct store_object object;
};

static int
take_meta(char *value, struct meta *meta, struct err *err)
{
    char *space = strchr(value, ' ');

    if (!space)
        return err_set(err, ERR_CORRUPT, "broken metadata record");
    *space = '\0';
    return meta_set(meta, value, space + 1, err);
}

static int
take_line(char *line, struct record *out, struct err *err)
{
    const char *value;

    if ((value = field(line, "etag")) != NULL)
        (void)snprintf(out->object.etag, sizeof(out->object.etag), "%s", value);
    else if ((value = field(line, "type")) != NULL)
        (void)snprintf(out->object.content_type, sizeof(out->object.content_type), "%s", value);
    else if ((value = field(line, "size")) != NULL)
        return parse_u64(value, &out->size) ? 0 : err_set(err, ERR_CORRUPT, "bad size in record");
    else if ((value = field(line, "mtime")) != NULL)
        return parse_i64(value, &out->mtime) ? 0 : err_set(err, ERR_CORRUPT, "bad time in record");
    else if (field(line, "meta"))
        return take_meta(line + 5, &out->object.meta, err);
    return 0;
}

/* Whoever may write the file may write its record too: what no store gives out makes it no record of ours. */
static bool
is_sane(const struct store_object *object)
{
    const char *at;

    for (at = object->etag; *at; at++) {
        if ((unsigned char)*at <= 0x20 || *at == 0x7f || *at == '"')
            return false;
    }
    for (at = object->content_type; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return false;
    }
    return object->etag[0] != '\0';
}

/* 0 when the record is whole and belongs to the file, 1 when not (somebody wrote into the file since, or made the
 * attribute himself), -1 without memory. */
static int
parse_record(char *text, const struct stat *st, struct record *out, struct err *err)
{
    char *line = next_line(&text);
    struct err bad = ERR_INIT;

    if (!line || strcmp(line, RECORD_HEAD) != 0)
        return 1;
    while ((line = next_line(&text)) != NULL) {
        if (take_line(line, out, &bad) < 0) {
            if (bad.code != ERR_NOMEM)
                return 1;
            *err = bad;
            return -1;
        }
    }
    if (!is_sane(&out->object) || out->size != (uint64_t)st->st_size ||
        out->mtime != ns_of(&st->st_mtim))
        return 1;
    return 0;
}

static int
load_sidecar(struct file_store *fs, const struct stat *st, char **text, struct err *err)
{
    struct err why = ERR_INIT;
    char name[64];
    size_t len;
    int dir = sidecar_dir(fs, false);

    if (dir < 0)
        return 0;
    sidecar_name(st, name, sizeof(name));
    if (sys_read_file(dir, name, RECORD_MAX, text, &len, &why) == 0 || why.code == ERR_NOT_FOUND ||
        why.code == ERR_TOO_LARGE)
        return 0;
    *err = why;
    return file_fail_again(err, "cannot read an object's metadata");
}

/* The record's text from the attribute or the sidecar; *text stays NULL when there is none. */
static int
load_record(struct file_store *fs, int fd, const struct stat *st, char **text, struct err *err)
{
    scope_free char *value = malloc(RECORD_MAX + 1);
    ssize_t len;

    if (!value)
        return err_nomem(err);
    len = fgetxattr(fd, XATTR, value, RECORD_MAX);
    if (len >= 0) {
        value[len] = '\0';
        *text = steal(&value);
        return 0;
    }
    if (errno != ENODATA && errno != ENOTSUP && errno != ERANGE)
        return file_fail(err, errno, "cannot read an object's metadata");
    return load_sidecar(fs, st, text, err);
}

static void
pause_ns(int64_t ns)
{
    struct timespec wait = { .tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S };

    nanosleep(&wait, NULL);
}

/* Waits until the last change is so old that the next one has another ctime. These are the file system's times, so the
 * replaceable clock does not serve. */
static int
settle_file(int fd, struct stat *st, struct err *err)
{
    for (int i = 0; i < SETTLE_TRIES; i++) {
        struct timespec now;
        int64_t age;

        clock_gettime(CLOCK_REALTIME, &now);
        age = ns_of(&now) - ns_of(&st->st_ctim);
        if (age >= SETTLE_NS || age < -NS_PER_S)
            return 0;
        pause_ns(SETTLE_NS - (age > 0 ? age : 0));
        if (fstat(fd, st) < 0)
            return file_fail(err, errno, "cannot look at an object's file");
    }
    return err_set(err, ERR_STORE_RACE, "the object's file is being written by another program");
}

static int
read_foreign(int fd, bool settle, struct stat *st, struct store_object *out, struct err *err)
{
    if (settle && settle_file(fd, st, err) < 0)
        return -1;
    meta_release(&out->meta);
    file_meta_foreign_etag(st, out->etag);
    (void)snprintf(out->content_type, sizeof(out->content_type), "application/octet-stream");
    return 0;
}

int
file_meta_read(struct file_store *fs, int fd, bool settle, struct stat *st,
               struct store_object *out, struct err *err)
{
    struct record record = { 0 };
    scope_free char *text = NULL;
    int rc;

    store_object_init(&record.object);
    if (load_record(fs, fd, st, &text, err) < 0)
        return -1;
    rc = text ? parse_record(text, st, &record, err) : 1;
    if (rc == 0) {
        store_object_release(out);
        *out = record.object;
    } else {
        store_object_release(&record.object);
        if (rc < 0 || read_foreign(fd, settle, st, out, err) < 0)
            return -1;
    }
    out->size = (uint64_t)st->st_size;
    out->last_modified_ns = ns_of(&st->st_mtim);
    return 0;
}
