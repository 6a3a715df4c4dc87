#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/parse.h"
#include "cache/cache_impl.h"

/*
 * `cache/metas`: one file for all contents, because a file for each costs as much as the content file itself. Pairs of two
 * slots of 8 KiB, each with one line "holdfast-meta FORMAT NUMBER TURN LENGTH CRC32C" and LENGTH bytes of lines "name=value"
 * (percent-encoded). A pair belongs to the content NUMBER of its valid slot with the higher turn; turns grow over the whole file,
 * so that of two pairs of one content the later counts. A slot that was synced is not written again until the other one is: a
 * power cut in the middle of a change finds the older text whole. What is in a pair that was given back says nothing.
 */
#define METAS_NAME "metas"
#define META_NAME "holdfast-meta "
#define META_FORMAT 2
#define SLOT_SIZE 8192
#define SLOTS 2
#define PAIR_SIZE (SLOTS * SLOT_SIZE)

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
    int64_t number;
    char *body; /* into the buffer that was read */
    bool newer; /* of a later format */
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

enum head_word { FORMAT, NUMBER, TURN, LENGTH, CRC, HEAD_WORDS };

static bool
read_head(char **at, uint64_t words[HEAD_WORDS])
{
    for (unsigned i = 0; i < HEAD_WORDS; i++) {
        const char *word = next_word(at, i < CRC ? ' ' : '\n');
        if (word == NULL ||
            !(i < CRC ? parse_u64(word, &words[i]) : parse_hex_u64(word, &words[i])))
            return false;
    }
    return words[NUMBER] > 0 && words[NUMBER] <= INT64_MAX;
}

static uint32_t
checksum(uint64_t number, uint64_t turn, const void *body, size_t len)
{
    uint64_t head[2] = { number, turn };
    return crc32c(crc32c(0, head, sizeof(head)), body, len);
}

static void
read_slot(char *text, struct slot *out)
{
    uint64_t words[HEAD_WORDS];
    char *at = text + strlen(META_NAME);
    *out = (struct slot){ .turn = 0 };
    if (strncmp(text, META_NAME, strlen(META_NAME)) != 0 || !read_head(&at, words))
        return;
    size_t head = (size_t)(at - text);
    if (head >= SLOT_SIZE || words[LENGTH] >= SLOT_SIZE - head ||
        checksum(words[NUMBER], words[TURN], at, words[LENGTH]) != words[CRC])
        return;
    at[words[LENGTH]] = '\0';
    *out = (struct slot){ .turn = words[TURN],
                          .number = (int64_t)words[NUMBER],
                          .body = at,
                          .newer = words[FORMAT] > META_FORMAT };
}

static off_t
pair_at(uint32_t pair)
{
    return (off_t)(pair - 1) * PAIR_SIZE;
}

/* Reads a pair into `text` (PAIR_SIZE + SLOTS bytes); the newest of its slots that belong to `number` (0: whatever its number), or
 * -1: none does. */
static int
read_pair(const struct cache *cache, uint32_t pair, int64_t number, char *text,
          struct slot slots[SLOTS], struct err *err)
{
    int best = -1;
    for (int i = 0; i < SLOTS; i++) {
        char *at = text + (size_t)i * (SLOT_SIZE + 1);
        ssize_t len = sys_read_full(cache->metas_fd, at, SLOT_SIZE,
                                    pair_at(pair) + (off_t)i * SLOT_SIZE, err);
        if (len < 0)
            return -1;
        at[len] = '\0';
        read_slot(at, &slots[i]);
        if (slots[i].turn > 0 && (number == 0 || slots[i].number == number) &&
            (best < 0 || slots[i].turn > slots[best].turn))
            best = i;
    }
    if (best < 0)
        err_set(err, ERR_CORRUPT, "damaged");
    return best;
}

static int
write_slot(struct cache *cache, uint32_t pair, unsigned slot, int64_t number,
           const struct cache_meta *meta, struct err *err)
{
    scope_buf body, text;
    buf_init(&body, SLOT_SIZE);
    buf_init(&text, SLOT_SIZE);
    if (print_fields(meta, &body, err) != 0)
        return -1;
    uint64_t turn = atomic_fetch_add(&cache->metas_turn, 1) + 1;
    uint32_t crc = checksum((uint64_t)number, turn, buf_cstr(&body), body.len);
    if (buf_appendf(&text, err, META_NAME "%d %" PRId64 " %" PRIu64 " %zu %08x\n", META_FORMAT,
                    number, turn, body.len, crc) != 0 ||
        buf_append(&text, buf_cstr(&body), body.len, err) != 0 ||
        sys_write_full(cache->metas_fd, text.data, text.len,
                       pair_at(pair) + (off_t)slot * SLOT_SIZE, err) != 0)
        return err_wrap(err, "cannot write the meta of content %" PRId64, number);
    return 0;
}

/* ---- pairs ---- */
static uint32_t
take_pair(struct cache *cache, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&cache->lock);
    (void)held;
    if (cache->free_pairs.count > 0)
        return cache->free_pairs.pair[--cache->free_pairs.count];
    if (cache->pairs == UINT32_MAX) {
        err_set(err, ERR_NO_SPACE, "'cache/" METAS_NAME "' is full");
        return 0;
    }
    return ++cache->pairs;
}

/* Without memory it stays unused until the next start. */
static void
give_back(struct cache *cache, uint32_t pair)
{
    struct free_pairs *list = &cache->free_pairs;
    if (list->count == list->room) {
        size_t room = list->room > 0 ? list->room * 2 : 256;
        uint32_t *more = reallocarray(list->pair, room, sizeof(*more));
        if (more == NULL)
            return;
        list->pair = more;
        list->room = room;
    }
    list->pair[list->count++] = pair;
}

void
cache_meta_unpair(struct cache *cache, struct entry *entry)
{
    struct cache_file *file = entry->file;
    if (entry->pair == 0 || (file != NULL && pthread_mutex_trylock(&file->meta_lock) != 0))
        return; /* it is being written: then it is wanted */
    give_back(cache, entry->pair);
    entry->pair = 0;
    if (file != NULL) {
        file->meta_known = false;
        pthread_mutex_unlock(&file->meta_lock);
    }
}

void
cache_meta_void(struct cache *cache, uint32_t pair)
{
    struct err ignored = ERR_INIT;
    for (int slot = 0; slot < SLOTS; slot++) {
        off_t at = pair_at(pair) + (off_t)slot * SLOT_SIZE;
        char first = '\0';
        if (sys_read_full(cache->metas_fd, &first, 1, at, &ignored) == 1 && first != '\0' &&
            sys_write_full(cache->metas_fd, "", 1, at, &ignored) != 0)
            return;
    }
}

uint32_t
cache_meta_create(struct cache *cache, int64_t number, const struct cache_meta *meta,
                  struct err *err)
{
    uint32_t pair = take_pair(cache, err);
    if (pair == 0 || write_slot(cache, pair, 0, number, meta, err) == 0)
        return pair;
    cache_meta_abandon(cache, pair);
    return 0;
}

void
cache_meta_abandon(struct cache *cache, uint32_t pair)
{
    pthread_mutex_lock(&cache->lock);
    if (pair != 0)
        give_back(cache, pair);
    pthread_mutex_unlock(&cache->lock);
}

/* ---- opening ---- */
static void
claim(struct cache *cache, uint32_t pair, const struct slot *slot, uint64_t *turns)
{
    struct entry *entry = cache_table_find(cache, slot->number);
    turns[pair - 1] = slot->turn;
    if (entry == NULL || (entry->pair != 0 && turns[entry->pair - 1] > slot->turn)) {
        give_back(cache, pair);
        return;
    }
    if (entry->pair != 0)
        give_back(cache, entry->pair);
    entry->pair = pair;
}

static int
load_pairs(struct cache *cache, struct err *err)
{
    struct slot slots[SLOTS];
    scope_free char *text = malloc(PAIR_SIZE + SLOTS);
    scope_free uint64_t *turns = calloc((size_t)cache->pairs + 1, sizeof(*turns));
    if (text == NULL || turns == NULL)
        return err_nomem(err);
    uint64_t turn = 0;
    for (uint32_t pair = 1; pair <= cache->pairs; pair++) {
        struct err damage = ERR_INIT;
        int best = read_pair(cache, pair, 0, text, slots, &damage);
        if (best < 0 && damage.code != ERR_CORRUPT) {
            *err = damage;
            return -1;
        }
        if (best < 0) {
            give_back(cache, pair);
            continue;
        }
        claim(cache, pair, &slots[best], turns);
        if (slots[best].turn > turn)
            turn = slots[best].turn;
    }
    atomic_store(&cache->metas_turn, turn);
    return 0;
}

int
cache_meta_load(struct cache *cache, struct err *err)
{
    struct stat st;
    cache->metas_fd = sys->openat(cache->dir_fd, METAS_NAME, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (cache->metas_fd < 0 || fstat(cache->metas_fd, &st) != 0)
        return err_sys(err, errno, "cannot open 'cache/" METAS_NAME "'");
    if (st.st_size == 0 && sys->fsync(cache->dir_fd) != 0)
        return err_sys(err, errno, "cannot keep the directory 'cache'");
    uint64_t pairs = ((uint64_t)st.st_size + PAIR_SIZE - 1) / PAIR_SIZE;
    if (pairs > UINT32_MAX)
        return err_set(err, ERR_CORRUPT, "'cache/" METAS_NAME "' is too long");
    cache->pairs = (uint32_t)pairs;
    pthread_mutex_lock(&cache->lock); /* nobody else is here yet */
    int rc = load_pairs(cache, err);
    pthread_mutex_unlock(&cache->lock);
    return rc == 0 ? 0 : err_wrap(err, "cannot read 'cache/" METAS_NAME "'");
}

void
cache_meta_unload(struct cache *cache)
{
    scope_close_fd(&cache->metas_fd);
    free(cache->free_pairs.pair);
}

/* ---- one content's ---- */
static uint32_t
pair_of(struct cache *cache, const struct entry *entry)
{
    pthread_mutex_lock(&cache->lock);
    uint32_t pair = entry->pair;
    pthread_mutex_unlock(&cache->lock);
    return pair;
}

static int
sync_metas(const struct cache *cache, int64_t number, struct err *err)
{
    if (sys->fdatasync(cache->metas_fd) == 0)
        return 0;
    return err_sys(err, errno, "cannot keep the meta of content %" PRId64, number);
}

/* After a restart nobody knows whether the newest slot reached the disk: now it does. */
static int
find_slot(struct cache_file *file, uint32_t pair, struct err *err)
{
    struct slot slots[SLOTS];
    int64_t number = file->entry->number;
    scope_free char *text = malloc(PAIR_SIZE + SLOTS);
    if (text == NULL)
        return err_nomem(err);
    int best = read_pair(file->cache, pair, number, text, slots, err);
    if (best < 0 && err->code != ERR_CORRUPT)
        return err_wrap(err, "cannot read the meta of content %" PRId64, number);
    if (sync_metas(file->cache, number, err) != 0)
        return -1;
    file->meta_slot = best >= 0 ? (unsigned)best : SLOTS - 1;
    file->meta_slot_synced = true;
    file->meta_known = true;
    return 0;
}

int
cache_meta_write(struct cache_file *file, const struct cache_meta *meta, struct err *err)
{
    struct cache *cache = file->cache;
    int64_t number = file->entry->number;
    scope_unlock pthread_mutex_t *held = scope_lock(&file->meta_lock);
    (void)held;
    uint32_t pair = pair_of(cache, file->entry);
    if (pair == 0) {
        pair = cache_meta_create(cache, number, meta, err);
        if (pair == 0)
            return -1;
        file->meta_slot = 0;
        file->meta_slot_synced = false;
        file->meta_known = true;
        pthread_mutex_lock(&cache->lock);
        file->entry->pair = pair;
        pthread_mutex_unlock(&cache->lock);
        return 0;
    }
    if (!file->meta_known && find_slot(file, pair, err) != 0)
        return -1;
    unsigned slot = file->meta_slot_synced ? SLOTS - 1 - file->meta_slot : file->meta_slot;
    if (write_slot(cache, pair, slot, number, meta, err) != 0)
        return -1;
    file->meta_slot = slot;
    file->meta_slot_synced = false;
    return 0;
}

int
cache_meta_sync(struct cache_file *file, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&file->meta_lock);
    (void)held;
    if ((file->meta_known && file->meta_slot_synced) || pair_of(file->cache, file->entry) == 0)
        return 0;
    if (sync_metas(file->cache, file->entry->number, err) != 0)
        return -1;
    file->meta_slot_synced = true;
    return 0;
}

/* The newest text of a content. */
static char *
read_text(struct cache *cache, int64_t number, char *text, struct err *err)
{
    struct slot slots[SLOTS];
    pthread_mutex_lock(&cache->lock);
    const struct entry *entry = cache_table_find(cache, number);
    uint32_t pair = entry != NULL ? entry->pair : 0;
    pthread_mutex_unlock(&cache->lock);
    if (pair == 0) {
        err_set(err, ERR_NOT_FOUND, "content %" PRId64 " has no meta", number);
        return NULL;
    }
    int best = read_pair(cache, pair, number, text, slots, err);
    if (best < 0) {
        err_wrap(err, "the meta of content %" PRId64, number);
        return NULL;
    }
    if (slots[best].newer) {
        err_set(err, ERR_NEWER_FORMAT,
                "the meta of content %" PRId64 " has a newer format: use the newer holdfast",
                number);
        return NULL;
    }
    return slots[best].body;
}

int
cache_meta_read(struct cache *cache, int64_t number, struct cache_meta *out, struct err *err)
{
    scope_free char *text = malloc(PAIR_SIZE + SLOTS);
    if (text == NULL)
        return err_nomem(err);
    char *body = read_text(cache, number, text, err);
    if (body == NULL)
        return -1;
    struct cache_meta meta;
    memset(&meta, 0, sizeof(meta));
    if (!parse_fields(body, &meta))
        return err_set(err, ERR_CORRUPT, "the meta of content %" PRId64 " is damaged", number);
    *out = meta;
    return 0;
}

int
cache_meta_export(struct cache *cache, int64_t number, int dir, const char *name, struct err *err)
{
    struct err none = ERR_INIT;
    scope_free char *text = malloc(PAIR_SIZE + SLOTS);
    if (text == NULL)
        return err_nomem(err);
    const char *body = read_text(cache, number, text, &none);
    if (body == NULL)
        return none.code == ERR_NOT_FOUND || none.code == ERR_CORRUPT
                   ? 0
                   : err_set(err, none.code, "%s", none.msg);
    return sys_replace_file(dir, name, body, strlen(body), 0600, err);
}
