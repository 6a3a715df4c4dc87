#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fault/server/server.h"

/*
 * A content is a list of pieces, each a range of a counted chunk, so that parts become objects and copies without a byte
 * moved. A chunk lies in memory or in the spool: one unlinked sparse file whose space is only handed out once, and
 * punched out again.
 */

#define MEMORY_MAX (4u << 20)
#define BLOCK 4096

struct chunk {
    atomic_int refs;
    char *memory; /* NULL: in the spool */
    uint64_t off; /* in the spool */
    uint64_t size;
};
struct piece {
    struct chunk *chunk;
    uint64_t off, len;
};
struct content {
    atomic_int refs;
    struct piece *piece;
    size_t count;
    uint64_t len;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the two below */
static int spool = -1;
static uint64_t spool_end;

static int
open_spool(void)
{
    char path[4096];
    const char *dir = getenv("TMPDIR");
    (void)snprintf(path, sizeof(path), "%s/fault-server.XXXXXX", dir && *dir ? dir : "/tmp");
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

static bool
take_space(uint64_t size, uint64_t *off)
{
    pthread_mutex_lock(&lock);
    if (spool < 0)
        spool = open_spool();
    *off = spool_end;
    spool_end += (size + BLOCK - 1) / BLOCK * BLOCK;
    pthread_mutex_unlock(&lock);
    return spool >= 0;
}

static void
drop_chunk(struct chunk *chunk)
{
    if (atomic_fetch_sub(&chunk->refs, 1) != 1)
        return;
    if (!chunk->memory)
        (void)fallocate(spool, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)chunk->off,
                        (off_t)((chunk->size + BLOCK - 1) / BLOCK * BLOCK));
    free(chunk->memory);
    free(chunk);
}

static struct chunk *
new_chunk(uint64_t size)
{
    struct chunk *chunk = calloc(1, sizeof(*chunk));
    if (!chunk)
        return NULL;
    atomic_init(&chunk->refs, 1);
    chunk->size = size;
    if (size <= MEMORY_MAX)
        chunk->memory = malloc((size_t)size + 1);
    if (size <= MEMORY_MAX ? chunk->memory != NULL : take_space(size, &chunk->off))
        return chunk;
    free(chunk);
    return NULL;
}

static struct piece *
add_piece(struct content *content, struct chunk *chunk, uint64_t off, uint64_t len)
{
    struct piece *piece = reallocarray(content->piece, content->count + 1, sizeof(*piece));
    if (!piece)
        return NULL;
    content->piece = piece;
    piece[content->count] = (struct piece){ chunk, off, len };
    return &piece[content->count++];
}

struct content *
content_new(uint64_t size)
{
    struct content *content = calloc(1, sizeof(*content));
    struct chunk *chunk = NULL;
    if (!content)
        return NULL;
    atomic_init(&content->refs, 1);
    if (size == 0)
        return content;
    chunk = new_chunk(size);
    if (chunk && add_piece(content, chunk, 0, 0))
        return content;
    if (chunk)
        drop_chunk(chunk);
    free(content);
    return NULL;
}

static bool
all_zero(const char *data, size_t len)
{
    return len == 0 || (data[0] == '\0' && memcmp(data, data + 1, len - 1) == 0);
}

/* Blocks of zeros stay holes. */
static bool
write_spool(uint64_t at, const char *data, size_t len)
{
    while (len > 0) {
        size_t now = BLOCK - (size_t)(at % BLOCK);
        if (now > len)
            now = len;
        if (!all_zero(data, now) && pwrite(spool, data, now, (off_t)at) != (ssize_t)now)
            return false;
        at += now;
        data += now;
        len -= now;
    }
    return true;
}

bool
content_add(struct content *content, const void *data, size_t len)
{
    struct piece *piece = content->piece; /* the one of content_new() */
    if (len == 0)
        return true;
    if (len > piece->chunk->size - piece->len)
        return false;
    if (piece->chunk->memory)
        memcpy(piece->chunk->memory + piece->len, data, len);
    else if (!write_spool(piece->chunk->off + piece->len, data, len))
        return false;
    piece->len += len;
    content->len += len;
    return true;
}

struct content *
content_hold(struct content *content)
{
    atomic_fetch_add(&content->refs, 1);
    return content;
}

void
content_drop(struct content *content)
{
    if (!content || atomic_fetch_sub(&content->refs, 1) != 1)
        return;
    for (size_t i = 0; i < content->count; i++)
        drop_chunk(content->piece[i].chunk);
    free(content->piece);
    free(content);
}

uint64_t
content_len(const struct content *content)
{
    return content->len;
}

bool
content_share(struct content *content, const struct content *from, uint64_t off, uint64_t len)
{
    for (size_t i = 0; i < from->count && len > 0; i++) {
        const struct piece *piece = &from->piece[i];
        if (off >= piece->len) {
            off -= piece->len;
            continue;
        }
        uint64_t now = piece->len - off < len ? piece->len - off : len;
        if (!add_piece(content, piece->chunk, piece->off + off, now))
            return false;
        atomic_fetch_add(&piece->chunk->refs, 1);
        content->len += now;
        len -= now;
        off = 0;
    }
    return len == 0;
}

static bool
read_chunk(const struct chunk *chunk, uint64_t off, char *out, size_t len)
{
    if (chunk->memory) {
        memcpy(out, chunk->memory + off, len);
        return true;
    }
    /* The spool may end before a chunk whose last blocks are holes. */
    ssize_t got = pread(spool, out, len, (off_t)(chunk->off + off));
    if (got >= 0)
        memset(out + got, 0, len - (size_t)got);
    return got >= 0;
}

size_t
content_read(const struct content *content, uint64_t off, void *out, size_t size)
{
    size_t done = 0;
    for (size_t i = 0; i < content->count && done < size; i++) {
        const struct piece *piece = &content->piece[i];
        if (off >= piece->len) {
            off -= piece->len;
            continue;
        }
        size_t now = size - done;
        if (now > piece->len - off)
            now = (size_t)(piece->len - off);
        if (!read_chunk(piece->chunk, piece->off + off, (char *)out + done, now))
            break;
        done += now;
        off = 0;
    }
    return done;
}

char *
content_text(const struct content *content, size_t max)
{
    if (content->len > max)
        return NULL;
    char *text = malloc((size_t)content->len + 1);
    if (text)
        text[content_read(content, 0, text, (size_t)content->len)] = '\0';
    return text;
}
