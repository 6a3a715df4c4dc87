#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/parse.h"
#include "base/scope.h"
#include "base/sys.h"
#include "volume/audit_impl.h"

/* The files that the audit is made of. */

#define DIGITS 16u

void
audit_segment_name(const struct audit_segment *segment, char out[AUDIT_NAME_SIZE])
{
    (void)snprintf(out, AUDIT_NAME_SIZE, "%016llu.jsonl%s", (unsigned long long)segment->first,
                   segment->packed ? ".zst" : "");
}

bool
audit_segment_parse(const char *name, struct audit_segment *out)
{
    if (strspn(name, "0123456789") != DIGITS || !parse_u64_n(name, DIGITS, &out->first))
        return false;
    out->packed = strcmp(name + DIGITS, ".jsonl.zst") == 0;
    return out->packed || strcmp(name + DIGITS, ".jsonl") == 0;
}

int
audit_segments_add(struct audit_segments *list, const struct audit_segment *segment,
                   struct err *err)
{
    if (list->count == list->cap) {
        size_t cap = list->cap == 0 ? 64 : list->cap * 2;
        struct audit_segment *grown = reallocarray(list->item, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        list->item = grown;
        list->cap = cap;
    }
    list->item[list->count++] = *segment;
    return 0;
}

static int
by_first(const void *a, const void *b)
{
    const struct audit_segment *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (int)y->packed - (int)x->packed;
}

void
audit_segments_sort(struct audit_segments *list)
{
    size_t kept = 0;
    if (list->count > 1)
        qsort(list->item, list->count, sizeof(list->item[0]), by_first);
    for (size_t i = 0; i < list->count; i++)
        if (kept == 0 || list->item[kept - 1].first != list->item[i].first)
            list->item[kept++] = list->item[i];
    list->count = kept;
}

void
audit_segments_release(struct audit_segments *list)
{
    free(list->item);
    *list = (struct audit_segments){ .item = NULL };
}

int
audit_segments_list(int dir, struct audit_segments *out, struct err *err)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    if (names == NULL) {
        int why = errno;
        if (fd >= 0)
            (void)close(fd);
        return err_sys(err, why, "cannot read the folder of the audit");
    }
    int rc = 0;
    const struct dirent *entry;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own */
    while (rc == 0 && (entry = readdir(names)) != NULL) {
        struct audit_segment segment;
        if (audit_segment_parse(entry->d_name, &segment))
            rc = audit_segments_add(out, &segment, err);
    }
    (void)closedir(names);
    audit_segments_sort(out);
    return rc;
}

int
audit_unpack(const void *packed, size_t packed_len, char **data, size_t *len, struct err *err)
{
    unsigned long long size = ZSTD_getFrameContentSize(packed, packed_len);
    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN ||
        size > AUDIT_SEGMENT_ROOM)
        return err_set(err, ERR_CORRUPT, "no packed segment");
    char *out = malloc((size_t)size + 1);
    if (out == NULL)
        return err_nomem(err);
    size_t got = ZSTD_decompress(out, (size_t)size, packed, packed_len);
    if (ZSTD_isError(got) || got != size) {
        free(out);
        return err_set(err, ERR_CORRUPT, "a packed segment is damaged");
    }
    out[got] = '\0';
    *data = out;
    *len = got;
    return 0;
}

int
audit_segment_read(int dir, const struct audit_segment *segment, char **data, size_t *len,
                   struct err *err)
{
    char name[AUDIT_NAME_SIZE];
    char *raw = NULL;
    size_t raw_len = 0;
    audit_segment_name(segment, name);
    if (sys_read_file(dir, name, AUDIT_SEGMENT_ROOM, &raw, &raw_len, err) != 0) {
        /* It was packed since it was listed. */
        struct audit_segment twin = { .first = segment->first, .packed = true };
        if (segment->packed || err->code != ERR_NOT_FOUND)
            return -1;
        audit_segment_name(&twin, name);
        if (sys_read_file(dir, name, AUDIT_SEGMENT_ROOM, &raw, &raw_len, err) != 0)
            return -1;
        int rc = audit_unpack(raw, raw_len, data, len, err);
        free(raw);
        return rc;
    }
    if (!segment->packed) {
        *data = raw;
        *len = raw_len;
        return 0;
    }
    int rc = audit_unpack(raw, raw_len, data, len, err);
    free(raw);
    return rc;
}

int
audit_segment_pack(int dir, const struct audit_segment *segment, struct err *err)
{
    struct audit_segment packed = { .first = segment->first, .packed = true };
    char name[AUDIT_NAME_SIZE], plain[AUDIT_NAME_SIZE];
    char *data = NULL;
    size_t len = 0;
    audit_segment_name(segment, plain);
    audit_segment_name(&packed, name);
    if (sys_read_file(dir, plain, AUDIT_SEGMENT_ROOM, &data, &len, err) != 0)
        return -1;
    scope_free char *owned = data;
    size_t room = ZSTD_compressBound(len);
    scope_free char *out = malloc(room);
    if (out == NULL)
        return err_nomem(err);
    size_t size = ZSTD_compress(out, room, owned, len, 3);
    if (ZSTD_isError(size))
        return err_set(err, ERR_INTERNAL, "cannot compress: %s", ZSTD_getErrorName(size));
    if (sys_replace_file(dir, name, out, size, 0600, err) != 0)
        return -1;
    if (sys->unlinkat(dir, plain, 0) != 0)
        return err_sys(err, errno, "cannot remove '%s'", plain);
    return 0;
}
