#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/parse.h"
#include "cache/cache_impl.h"

/*
 * `<number>.meta`: two slots of 8 KiB, each with one line "holdfast-meta FORMAT TURN LENGTH CRC32C" and LENGTH bytes of lines
 * "name=value" (percent-encoded). The valid slot with the higher turn counts. A slot that was synced is not written again
 * until the other one is: a power cut in the middle of a change finds the older text whole.
 */
#define META_NAME "holdfast-meta "
#define META_FORMAT 1
#define SLOT_SIZE 8192
#define SLOTS 2

enum kind { TEXT, BOOL, I64, U64, U32 };
static const struct field {
    const char *name;
    enum kind kind;
    size_t offset, size;
} fields[] = {
#define FIELD(kind, name)                                                                      \
    {                                                                                          \
#name, kind, offsetof(struct cache_meta, name), sizeof(((struct cache_meta *)0)->name) \
    }
    FIELD(TEXT, volume),       FIELD(TEXT, path),      FIELD(TEXT, node),   FIELD(TEXT, version),
    FIELD(TEXT, base_version), FIELD(TEXT, base_etag), FIELD(TEXT, sha256), FIELD(TEXT, run),
    FIELD(TEXT, actor),        FIELD(U32, mode),       FIELD(U32, uid),     FIELD(U32, gid),
    FIELD(I64, mtime_ns),      FIELD(U64, size),       FIELD(BOOL, live),
#undef FIELD
};
#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

/* ---- text ---- */
static int
print_number(const struct field *field, const void *at, struct buf *out, struct err *err)
{
    int64_t i64 = 0;
    uint64_t u64 = 0;
    uint32_t u32 = 0;
    bool flag = false;
    switch (field->kind) {
    case I64:
        memcpy(&i64, at, sizeof(i64));
        return buf_appendf(out, err, "%" PRId64, i64);
    case U64:
        memcpy(&u64, at, sizeof(u64));
        return buf_appendf(out, err, "%" PRIu64, u64);
    case U32:
        memcpy(&u32, at, sizeof(u32));
        return buf_appendf(out, err, "%" PRIu32, u32);
    case BOOL:
        memcpy(&flag, at, sizeof(flag));
        return buf_append_str(out, flag ? "1" : "0", err);
    case TEXT:
        break;
    }
    return err_set(err, ERR_INTERNAL, "unknown kind of field");
}

static int
print_fields(const struct cache_meta *meta, struct buf *out, struct err *err)
{
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const char *at = (const char *)meta + fields[i].offset;
        if (buf_appendf(out, err, "%s=", fields[i].name) != 0)
            return -1;
        int rc = fields[i].kind == TEXT
                     ? percent_encode(at, strnlen(at, fields[i].size), true, out, err)
                     : print_number(&fields[i], at, out, err);
        if (rc != 0 || buf_append_str(out, "\n", err) != 0)
            return -1;
    }
    return 0;
}

static bool
parse_number(const struct field *field, const char *text, void *at)
{
    int64_t i64 = 0;
    uint64_t u64 = 0;
    if (field->kind == I64) {
        if (!parse_i64(text, &i64))
            return false;
        memcpy(at, &i64, sizeof(i64));
        return true;
    }
    if (!parse_u64(text, &u64))
        return false;
    uint32_t u32 = (uint32_t)u64;
    bool flag = u64 == 1;
    switch (field->kind) {
    case U64:
        memcpy(at, &u64, sizeof(u64));
        return true;
    case U32:
        memcpy(at, &u32, sizeof(u32));
        return u64 <= UINT32_MAX;
    default:
        memcpy(at, &flag, sizeof(flag));
        return u64 <= 1;
    }
}

static bool
parse_value(const struct field *field, const char *text, struct cache_meta *meta)
{
    char *at = (char *)meta + field->offset;
    if (field->kind != TEXT)
        return parse_number(field, text, at);
    struct err err = ERR_INIT;
    scope_buf value;
    buf_init(&value, SLOT_SIZE);
    if (percent_decode(text, strlen(text), &value, &err) != 0 || value.len >= field->size)
        return false;
    memcpy(at, buf_cstr(&value), value.len + 1);
    return true;
}

/* Each field once, in any order; names of a later minor form are skipped. `text` is changed. */
static bool
parse_fields(char *text, struct cache_meta *meta)
{
    uint32_t seen = 0;
    while (*text != '\0') {
        char *end = strchr(text, '\n');
        char *value = strchr(text, '=');
        if (end == NULL || value == NULL || value > end)
            return false;
        *end = '\0';
        *value++ = '\0';
        for (size_t i = 0; i < FIELD_COUNT; i++) {
            if (strcmp(fields[i].name, text) != 0)
                continue;
            if ((seen & (1u << i)) != 0 || !parse_value(&fields[i], value, meta))
                return false;
            seen |= 1u << i;
        }
        text = end + 1;
    }
    return seen == (1u << FIELD_COUNT) - 1;
}

/* ---- slots ---- */
struct slot {
    uint64_t turn; /* 0: not valid */
    char *body;    /* into the buffer that was read */
    bool newer;    /* of a later format */
};

/* The next word of the head: up to a space, or a newline for the last. Moves *at behind it; NULL when there is none. */
static char *
next_word(char **at, char end)
{
    char *word = *at;
    size_t len = strcspn(word, " \n");
    if (len == 0 || word[len] != end)
        return NULL;
    word[len] = '\0';
    *at = word + len + 1;
    return word;
}

/* FORMAT TURN LENGTH CRC32C */
static bool
read_head(char **at, uint64_t words[4])
{
    for (unsigned i = 0; i < 4; i++) {
        const char *word = next_word(at, i < 3 ? ' ' : '\n');
        if (word == NULL || !(i < 3 ? parse_u64(word, &words[i]) : parse_hex_u64(word, &words[i])))
            return false;
    }
    return true;
}

static void
read_slot(char *text, struct slot *out)
{
    uint64_t words[4];
    char *at = text + strlen(META_NAME);
    *out = (struct slot){ .turn = 0 };
    if (strncmp(text, META_NAME, strlen(META_NAME)) != 0 || !read_head(&at, words))
        return;
    uint64_t turn = words[1], len = words[2];
    size_t head = (size_t)(at - text);
    if (head >= SLOT_SIZE || len >= SLOT_SIZE - head ||
        crc32c(crc32c(0, &turn, sizeof(turn)), at, (size_t)len) != words[3])
        return;
    at[len] = '\0';
    *out = (struct slot){ .turn = turn, .body = at, .newer = words[0] > META_FORMAT };
}

/* Reads both slots; the number of the newer one, or -1 when there is none. */
static int
newest_slot(int fd, char *text, struct slot slots[SLOTS], struct err *err)
{
    ssize_t len = sys_read_full(fd, text, SLOTS * SLOT_SIZE, 0, err);
    if (len < 0)
        return -1;
    text[len] = '\0';
    for (unsigned i = 0; i < SLOTS; i++) {
        slots[i] = (struct slot){ .turn = 0 };
        if ((size_t)len > i * SLOT_SIZE)
            read_slot(text + i * SLOT_SIZE, &slots[i]);
    }
    int best = slots[1].turn > slots[0].turn ? 1 : 0;
    if (slots[best].turn == 0)
        return err_set(err, ERR_CORRUPT, "damaged");
    return best;
}

static int
write_slot(int fd, unsigned slot, uint64_t turn, const struct cache_meta *meta, struct err *err)
{
    scope_buf body, text;
    buf_init(&body, SLOT_SIZE);
    buf_init(&text, SLOT_SIZE);
    if (print_fields(meta, &body, err) != 0)
        return -1;
    uint32_t crc = crc32c(crc32c(0, &turn, sizeof(turn)), buf_cstr(&body), body.len);
    if (buf_appendf(&text, err, META_NAME "%d %" PRIu64 " %zu %08x\n", META_FORMAT, turn, body.len,
                    crc) != 0 ||
        buf_append(&text, buf_cstr(&body), body.len, err) != 0)
        return -1;
    return sys_write_full(fd, text.data, text.len, (off_t)slot * SLOT_SIZE, err);
}

/* ---- files ---- */
static int
open_meta(struct cache *cache, int64_t number, int flags, struct err *err)
{
    char name[CACHE_NAME_SIZE];
    cache_name(number, CACHE_META, name);
    int fd = sys->openat(cache->dir_fd, name, flags | O_NOFOLLOW, 0600);
    return fd >= 0 ? fd : err_sys(err, errno, "cannot open 'cache/%s'", name);
}

int
cache_meta_create(struct cache *cache, int64_t number, const struct cache_meta *meta,
                  struct err *err)
{
    scope_fd int fd = open_meta(cache, number, O_WRONLY | O_CREAT | O_TRUNC, err);
    if (fd < 0)
        return -1;
    return write_slot(fd, 0, 1, meta, err);
}

/* After a restart nobody knows whether the newest slot reached the disk: now it does. */
static int
find_slot(struct cache_file *file, int fd, struct err *err)
{
    struct stat st;
    struct slot slots[SLOTS];
    if (file->meta_known)
        return 0;
    if (fstat(fd, &st) != 0)
        return err_sys(err, errno, "stat");
    file->meta_slot = SLOTS - 1;
    file->meta_turn = 0;
    file->meta_slot_synced = true;
    if (st.st_size > 0) {
        scope_free char *text = malloc(SLOTS * SLOT_SIZE + 1);
        if (text == NULL)
            return err_nomem(err);
        int best = newest_slot(fd, text, slots, err);
        if (best < 0 && err->code != ERR_CORRUPT)
            return -1;
        if (sys->fdatasync(fd) != 0)
            return err_sys(err, errno, "fdatasync");
        if (best >= 0) {
            file->meta_slot = (unsigned)best;
            file->meta_turn = slots[best].turn;
        }
    }
    file->meta_known = true;
    return 0;
}

int
cache_meta_write(struct cache_file *file, const struct cache_meta *meta, struct err *err)
{
    scope_fd int fd = open_meta(file->cache, file->entry->number, O_RDWR | O_CREAT, err);
    if (fd < 0)
        return -1;
    scope_unlock pthread_mutex_t *held = scope_lock(&file->meta_lock);
    (void)held;
    if (find_slot(file, fd, err) != 0)
        return err_wrap(err, "cannot read the meta of content %" PRId64, file->entry->number);
    unsigned slot = file->meta_slot_synced ? SLOTS - 1 - file->meta_slot : file->meta_slot;
    if (write_slot(fd, slot, file->meta_turn + 1, meta, err) != 0)
        return err_wrap(err, "cannot write the meta of content %" PRId64, file->entry->number);
    file->meta_slot = slot;
    file->meta_turn++;
    file->meta_slot_synced = false;
    pthread_mutex_lock(&file->cache->lock);
    if (!file->entry->has_meta)
        atomic_store(&file->entry->dirs_synced, false); /* a new name */
    file->entry->has_meta = true;
    pthread_mutex_unlock(&file->cache->lock);
    return 0;
}

int
cache_meta_sync(struct cache_file *file, struct err *err)
{
    struct err missing = ERR_INIT;
    scope_unlock pthread_mutex_t *held = scope_lock(&file->meta_lock);
    (void)held;
    if (file->meta_known && file->meta_slot_synced)
        return 0;
    scope_fd int fd = open_meta(file->cache, file->entry->number, O_RDWR, &missing);
    if (fd < 0 && missing.code == ERR_NOT_FOUND)
        return 0; /* a file without one, or removed while open */
    if (fd < 0)
        return err_set(err, missing.code, "%s", missing.msg);
    if (sys->fdatasync(fd) != 0)
        return err_sys(err, errno, "cannot keep the meta of content %" PRId64, file->entry->number);
    file->meta_slot_synced = true;
    return 0;
}

int
cache_meta_read(struct cache *cache, int64_t number, struct cache_meta *out, struct err *err)
{
    struct slot slots[SLOTS];
    scope_fd int fd = open_meta(cache, number, O_RDONLY, err);
    if (fd < 0)
        return -1;
    scope_free char *text = malloc(SLOTS * SLOT_SIZE + 1);
    if (text == NULL)
        return err_nomem(err);
    int best = newest_slot(fd, text, slots, err);
    if (best < 0)
        return err_wrap(err, "the meta of content %" PRId64, number);
    if (slots[best].newer)
        return err_set(err, ERR_NEWER_FORMAT,
                       "the meta of content %" PRId64 " has a newer format: use the newer holdfast",
                       number);
    struct cache_meta meta;
    memset(&meta, 0, sizeof(meta));
    if (!parse_fields(slots[best].body, &meta))
        return err_set(err, ERR_CORRUPT, "the meta of content %" PRId64 " is damaged", number);
    *out = meta;
    return 0;
}
