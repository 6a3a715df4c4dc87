#include "support/crash/powercut.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/crash/io.h"
#include "support/crash/rig.h"

#define NOWHERE SIZE_MAX
#define SECTOR 512u

/* Either `len` bytes at `off`, or (data NULL) the new size `len`. */
struct change {
    const uint8_t *data;
    uint64_t off, len;
};

struct object {
    uint64_t ino; /* 0: another object has this number now */
    bool dir;
    char *base; /* its bytes before the journal, NULL: none */
    struct change *change;
    size_t count, cap, durable;
};

struct link {
    size_t dir, object;
    char *name;
};
struct links {
    struct link *link;
    size_t count, cap;
};

struct name_change {
    uint8_t op;
    bool exchange, durable;
    size_t dir1, dir2, object, other;
    char *name1, *name2;
};

struct powercut {
    char live[PATH_MAX], base[PATH_MAX];
    struct object *object;
    size_t objects, object_cap;
    struct links now, disk; /* names as the program saw them, and as the disk will have them */
    struct name_change *name;
    size_t names, name_cap;
    uint64_t records, loose;
    struct rig_random random;
};

static void *
grow(void *array, size_t count, size_t *cap, size_t size)
{
    if (count < *cap)
        return array;
    *cap = *cap == 0 ? 64 : *cap * 2;
    array = reallocarray(array, *cap, size);
    if (array == NULL)
        rig_die("out of memory");
    return array;
}

static char *
copy_text(const char *text, size_t len)
{
    char *copy = strndup(text, len);
    if (copy == NULL)
        rig_die("out of memory");
    return copy;
}

/* ---- names ---- */

static struct link *
find_link(struct links *links, size_t dir, const char *name)
{
    for (size_t i = 0; i < links->count; i++)
        if (links->link[i].dir == dir && strcmp(links->link[i].name, name) == 0)
            return &links->link[i];
    return NULL;
}

static void
set_link(struct links *links, size_t dir, const char *name, size_t object)
{
    struct link *link = find_link(links, dir, name);
    if (link == NULL) {
        links->link = grow(links->link, links->count, &links->cap, sizeof(*links->link));
        link = &links->link[links->count++];
        *link = (struct link){ .dir = dir, .name = copy_text(name, strlen(name)) };
    }
    link->object = object;
}

static void
drop_link(struct links *links, size_t dir, const char *name, size_t object)
{
    struct link *link = find_link(links, dir, name);
    if (link == NULL || link->object != object)
        return;
    free(link->name);
    *link = links->link[--links->count];
}

static void
links_release(struct links *links)
{
    for (size_t i = 0; i < links->count; i++)
        free(links->link[i].name);
    free(links->link);
    *links = (struct links){ 0 };
}

static size_t
add_object(struct powercut *cut, uint64_t ino, bool dir)
{
    for (size_t i = 0; i < cut->objects; i++)
        if (cut->object[i].ino == ino)
            cut->object[i].ino = 0; /* removed, and its number given again */
    cut->object = grow(cut->object, cut->objects, &cut->object_cap, sizeof(*cut->object));
    cut->object[cut->objects] = (struct object){ .ino = ino, .dir = dir };
    return cut->objects++;
}

static size_t
by_ino(const struct powercut *cut, uint64_t ino)
{
    for (size_t i = cut->objects; i > 0; i--)
        if (cut->object[i - 1].ino == ino)
            return i - 1;
    return NOWHERE;
}

/* The folder of a relative path and its last component (into `path`). */
static size_t
walk(struct powercut *cut, char *path, char **last)
{
    size_t dir = 0;
    char *slash;
    while ((slash = strchr(path, '/')) != NULL) {
        *slash = '\0';
        struct link *link = find_link(&cut->now, dir, path);
        if (link == NULL)
            rig_die("the journal names a folder that nobody made: %s", path);
        dir = link->object;
        path = slash + 1;
    }
    *last = path;
    return dir;
}

/* ---- base ---- */

static struct powercut *scanned; /* nftw() has no argument */

static int
scan_one(const char *path, const struct stat *st, int what, struct FTW *where)
{
    char relative[PATH_MAX], *last;
    (void)where;
    const char *rest = path + strlen(scanned->live);
    size_t object = add_object(scanned, st->st_ino, what == FTW_D);
    if (*rest == '\0')
        return 0;
    (void)snprintf(relative, sizeof(relative), "%s", rest + 1);
    char base[PATH_MAX * 2];
    (void)snprintf(base, sizeof(base), "%s/%s", scanned->base, relative);
    scanned->object[object].base = copy_text(base, strlen(base));
    size_t dir = walk(scanned, relative, &last);
    set_link(&scanned->now, dir, last, object);
    set_link(&scanned->disk, dir, last, object);
    return 0;
}

struct powercut *
powercut_begin(const char *live, const char *base)
{
    struct powercut *cut = calloc(1, sizeof(*cut));
    if (cut == NULL)
        rig_die("out of memory");
    (void)snprintf(cut->live, sizeof(cut->live), "%s", live);
    (void)snprintf(cut->base, sizeof(cut->base), "%s", base);
    rig_delete(base);
    rig_copy(live, base);
    scanned = cut;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread */
    if (nftw(live, scan_one, 32, FTW_PHYS) != 0)
        rig_die("cannot scan %s", live);
    return cut;
}

void
powercut_end(struct powercut *cut)
{
    for (size_t i = 0; i < cut->objects; i++) {
        free(cut->object[i].base);
        free(cut->object[i].change);
    }
    for (size_t i = 0; i < cut->names; i++) {
        free(cut->name[i].name1);
        free(cut->name[i].name2);
    }
    links_release(&cut->now);
    links_release(&cut->disk);
    free(cut->object);
    free(cut->name);
    free(cut);
}

uint64_t
powercut_records(const struct powercut *cut)
{
    return cut->records;
}

uint64_t
powercut_loose(const struct powercut *cut)
{
    return cut->loose;
}

/* ---- the journal ---- */

static void
apply_name(struct links *links, const struct name_change *change)
{
    switch (change->op) {
    case CRASH_IO_CREATE:
    case CRASH_IO_LINK:
        set_link(links, change->dir1, change->name1, change->object);
        break;
    case CRASH_IO_RENAME:
        drop_link(links, change->dir1, change->name1, change->object);
        set_link(links, change->dir2, change->name2, change->object);
        if (change->exchange)
            set_link(links, change->dir1, change->name1, change->other);
        break;
    default:
        drop_link(links, change->dir1, change->name1, change->object);
    }
}

static void
add_name(struct powercut *cut, const struct name_change *change)
{
    cut->name = grow(cut->name, cut->names, &cut->name_cap, sizeof(*cut->name));
    cut->name[cut->names++] = *change;
    apply_name(&cut->now, change);
}

static void
take_name(struct powercut *cut, const struct crash_io_record *record, char *path1, char *path2)
{
    struct name_change change = { .op = record->op, .dir2 = NOWHERE, .other = NOWHERE };
    char *last;
    change.dir1 = walk(cut, record->op == CRASH_IO_LINK ? path2 : path1, &last);
    change.name1 = copy_text(last, strlen(last));
    struct link *link = find_link(&cut->now, change.dir1, last);
    if (record->op == CRASH_IO_CREATE)
        change.object = add_object(cut, record->ino, record->dir != 0);
    else if (record->op == CRASH_IO_LINK)
        change.object = by_ino(cut, record->ino);
    else if (link == NULL)
        rig_die("the journal changes a name that nobody made: %s", last);
    else
        change.object = link->object;
    if (record->op == CRASH_IO_RENAME) {
        change.dir2 = walk(cut, path2, &last);
        change.name2 = copy_text(last, strlen(last));
        change.exchange = (record->off & RENAME_EXCHANGE) != 0;
        link = find_link(&cut->now, change.dir2, last);
        change.other = link == NULL ? NOWHERE : link->object;
    }
    add_name(cut, &change);
}

static void
take_change(struct powercut *cut, const struct crash_io_record *record, const uint8_t *data)
{
    size_t at = by_ino(cut, record->ino);
    if (at == NOWHERE)
        rig_die("the journal writes to a file that nobody made");
    struct object *object = &cut->object[at];
    object->change = grow(object->change, object->count, &object->cap, sizeof(*object->change));
    object->change[object->count++] = (struct change){
        .data = record->op == CRASH_IO_WRITE ? data : NULL, .off = record->off, .len = record->len
    };
}

static void
take_sync(struct powercut *cut, uint64_t ino)
{
    size_t at = by_ino(cut, ino);
    if (at == NOWHERE)
        return;
    struct object *object = &cut->object[at];
    object->durable = object->count;
    for (size_t i = 0; object->dir && i < cut->names; i++)
        if (cut->name[i].dir1 == at || cut->name[i].dir2 == at)
            cut->name[i].durable = true;
}

static void
take_sync_all(struct powercut *cut)
{
    for (size_t i = 0; i < cut->objects; i++)
        cut->object[i].durable = cut->object[i].count;
    for (size_t i = 0; i < cut->names; i++)
        cut->name[i].durable = true;
}

static void
take_record(struct powercut *cut, const struct crash_io_record *record, const char *paths,
            const uint8_t *data)
{
    char path1[PATH_MAX], path2[PATH_MAX];
    (void)snprintf(path1, sizeof(path1), "%.*s", (int)record->len1, paths);
    (void)snprintf(path2, sizeof(path2), "%.*s", (int)record->len2, paths + record->len1);
    cut->records++;
    switch (record->op) {
    case CRASH_IO_CREATE:
    case CRASH_IO_RENAME:
    case CRASH_IO_LINK:
    case CRASH_IO_UNLINK:
        take_name(cut, record, path1, path2);
        break;
    case CRASH_IO_WRITE:
    case CRASH_IO_SIZE:
        take_change(cut, record, data);
        break;
    case CRASH_IO_SYNC:
        take_sync(cut, record->ino);
        break;
    default:
        take_sync_all(cut);
    }
}

static void
read_journal(struct powercut *cut, const uint8_t *bytes, size_t size)
{
    struct crash_io_record record;
    size_t at = 0;
    while (size - at >= sizeof(record)) {
        memcpy(&record, bytes + at, sizeof(record));
        size_t paths = at + sizeof(record), data = paths + record.len1 + record.len2;
        size_t len = record.op == CRASH_IO_WRITE ? record.len : 0;
        if (record.magic != CRASH_IO_MAGIC)
            rig_die("the journal is damaged at %zu", at);
        if (data > size || len > size - data)
            break; /* killed while the last one was written */
        char names[2 * PATH_MAX];
        (void)snprintf(names, sizeof(names), "%.*s", (int)(data - paths),
                       (const char *)bytes + paths);
        take_record(cut, &record, names, bytes + data);
        at = data + len;
    }
}

/* ---- the disk ---- */

static void
choose_names(struct powercut *cut)
{
    uint64_t how = rig_below(&cut->random, 4), first = 0;
    for (size_t i = 0; i < cut->names; i++)
        if (cut->name[i].durable)
            first = i + 1;
    uint64_t upto = first + rig_below(&cut->random, cut->names - first + 1);
    for (size_t i = 0; i < cut->names; i++) {
        const struct name_change *change = &cut->name[i];
        cut->loose += !change->durable;
        bool there = change->durable || how == 1 || (how == 2 && i < upto) ||
                     (how == 3 && rig_once_in(&cut->random, 2));
        if (there)
            apply_name(&cut->disk, change);
    }
}

struct image {
    uint8_t *bytes;
    uint64_t size, cap;
};

static void
image_size(struct image *image, uint64_t size)
{
    if (size > image->cap) {
        uint64_t cap = size * 2;
        image->bytes = realloc(image->bytes, cap);
        if (image->bytes == NULL)
            rig_die("out of memory");
        image->cap = cap;
    }
    if (image->bytes != NULL && size > image->size)
        memset(image->bytes + image->size, 0, size - image->size);
    image->size = size;
}

static void
image_put(struct image *image, uint64_t off, const uint8_t *data, uint64_t len)
{
    if (off + len > image->size)
        image_size(image, off + len);
    if (len > 0 && image->bytes != NULL)
        memcpy(image->bytes + off, data, len);
}

static void
image_apply(struct image *image, const struct change *change)
{
    if (change->data == NULL)
        image_size(image, change->len);
    else
        image_put(image, change->off, change->data, change->len);
}

static void
image_load(struct image *image, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        rig_die("cannot open %s", path);
    image_size(image, (uint64_t)st.st_size);
    for (uint64_t at = 0; at < image->size;) {
        ssize_t got = pread(fd, image->bytes + at, image->size - at, (off_t)at);
        if (got <= 0)
            rig_die("cannot read %s", path);
        at += (uint64_t)got;
    }
    (void)close(fd);
}

static void
put_sectors(struct powercut *cut, struct image *image, const struct change *change)
{
    for (uint64_t at = 0; at < change->len;) {
        uint64_t end = ((change->off + at) / SECTOR + 1) * SECTOR - change->off;
        uint64_t len = (end < change->len ? end : change->len) - at;
        if (rig_once_in(&cut->random, 2))
            image_put(image, change->off + at, change->data + at, len);
        at += len;
    }
}

/* Changes after a shrinking that did not reach the disk did not either. */
static size_t
last_reached(struct powercut *cut, const struct object *object)
{
    for (size_t i = object->durable; i < object->count; i++)
        if (object->change[i].data == NULL && rig_once_in(&cut->random, 2))
            return i;
    return object->count;
}

static void
apply_loose(struct powercut *cut, struct image *image, const struct object *object)
{
    uint64_t how = rig_below(&cut->random, 5);
    size_t end = how == 1 ? object->count : last_reached(cut, object);
    cut->loose += object->count - object->durable;
    if (how == 0)
        return;
    if (how == 2)
        end = object->durable + rig_below(&cut->random, end - object->durable + 1);
    for (size_t i = object->durable; i < end; i++) {
        const struct change *change = &object->change[i];
        bool last = i + 1 == end && how == 2;
        if (change->data == NULL || (how <= 2 && !last))
            image_apply(image, change);
        else if (last)
            image_put(image, change->off, change->data,
                      rig_below(&cut->random, change->len / SECTOR + 1) * SECTOR);
        else if (how == 3)
            put_sectors(cut, image, change);
        else if (change->off + change->len > image->size)
            image_size(image, change->off + change->len);
    }
}

static void
write_file(struct powercut *cut, const struct object *object, const char *path)
{
    struct image image = { 0 };
    if (object->base != NULL)
        image_load(&image, object->base);
    for (size_t i = 0; i < object->durable; i++)
        image_apply(&image, &object->change[i]);
    if (object->durable < object->count)
        apply_loose(cut, &image, object);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        rig_die("cannot make %s: %m", path);
    for (uint64_t at = 0; at < image.size;) {
        ssize_t put = write(fd, image.bytes + at, image.size - at);
        if (put <= 0)
            rig_die("cannot write %s", path);
        at += (uint64_t)put;
    }
    (void)close(fd);
    free(image.bytes);
}

static bool
left_out(const char *name)
{
    size_t len = strlen(name);
    return len > 4 && strcmp(name + len - 4, "-shm") == 0;
}

/* Folders first in, first out; queue entries are object and path. */
struct todo {
    size_t object;
    char path[PATH_MAX];
};

static void
write_tree(struct powercut *cut, const char *to)
{
    struct todo *queue = NULL;
    size_t count = 0, cap = 0;
    queue = grow(queue, count, &cap, sizeof(*queue));
    queue[count].object = 0;
    (void)snprintf(queue[count++].path, PATH_MAX, "%s", to);
    for (size_t i = 0; i < count; i++) {
        if (mkdir(queue[i].path, 0700) != 0)
            rig_die("mkdir %s: %m", queue[i].path);
        for (size_t k = 0; k < cut->disk.count; k++) {
            const struct link *link = &cut->disk.link[k];
            char path[PATH_MAX + 256];
            if (link->dir != queue[i].object || left_out(link->name))
                continue;
            (void)snprintf(path, sizeof(path), "%s/%.255s", queue[i].path, link->name);
            if (!cut->object[link->object].dir) {
                write_file(cut, &cut->object[link->object], path);
                continue;
            }
            queue = grow(queue, count, &cap, sizeof(*queue));
            queue[count].object = link->object;
            (void)snprintf(queue[count++].path, PATH_MAX, "%.*s", PATH_MAX - 1, path);
        }
    }
    free(queue);
}

void
powercut_build(struct powercut *cut, const char *journal, const char *to, uint64_t seed)
{
    struct stat st;
    cut->random.state = seed;
    int fd = open(journal, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        rig_die("no journal %s", journal);
    size_t size = (size_t)st.st_size;
    void *bytes = size == 0 ? NULL : mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        rig_die("cannot map %s", journal);
    if (size > 0)
        read_journal(cut, bytes, size);
    choose_names(cut);
    write_tree(cut, to);
    if (size > 0)
        (void)munmap(bytes, size);
    (void)close(fd);
}
