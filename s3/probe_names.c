#include <string.h>

#include "base/log.h"
#include "s3/probe_impl.h"

/* Asking a store whether its listings tell the truth at once, and whether it keeps names byte by byte. */

/* U+00E4 as one character and as a letter with a mark: one name to a store that composes names to NFC. */
#define COMPOSED "\xc3\xa4"
#define DECOMPOSED "a\xcc\x88"
#define NOT_UTF8 "\xff\xfe"
#define NAME_SIZE 96
#define LONG_META 1600 /* bytes; AWS takes 2 KiB in all, Swift 256 a value */

struct asking {
    struct http_store *self;
    const char *key; /* scratch names begin with it */
};

static int
put(struct asking *asking, const char *rest, const char *text)
{
    char key[NAME_SIZE];
    struct err err = ERR_INIT;
    struct store_put_result res;
    (void)snprintf(key, sizeof(key), "%.70s%s", asking->key, rest);
    const struct store_put req = { .key = key,
                                   .body = { .mem = text, .fd = -1, .size = strlen(text) } };
    int result = http_store_put(&asking->self->store, &req, &res, &err);
    if (result < 0)
        log_debug(s3, "probe: no write why=%s", err.msg);
    return result;
}

static int
del(struct asking *asking, const char *rest)
{
    char key[NAME_SIZE];
    struct err err = ERR_INIT;
    enum store_outcome outcome;
    (void)snprintf(key, sizeof(key), "%.70s%s", asking->key, rest);
    return http_store_delete(&asking->self->store, &(struct store_delete){ .key = key }, &outcome,
                             &err);
}

/* What a listing has to show: each name with its size, in order. */
struct wanted {
    struct asking *asking;
    const char *const *rest; /* NULL after the last */
    const uint64_t *size;
    size_t seen;
    bool wrong;
};

static int
compare(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct wanted *wanted = arg;
    const char *rest = wanted->rest[wanted->seen];
    size_t len = strlen(wanted->asking->key);
    (void)err;
    if (!rest || strncmp(entry->key, wanted->asking->key, len) != 0 ||
        strcmp(entry->key + len, rest) != 0 || entry->size != wanted->size[wanted->seen])
        wanted->wrong = true;
    else
        wanted->seen++;
    return 0;
}

/* Exactly these lie below `prefix`? */
static bool
shows(struct asking *asking, const char *prefix, const char *const rest[], const uint64_t size[])
{
    char start[NAME_SIZE];
    struct err err = ERR_INIT;
    struct wanted wanted = { .asking = asking, .rest = rest, .size = size };
    (void)snprintf(start, sizeof(start), "%.70s%s", asking->key, prefix);
    const struct store_list req = { .prefix = start, .limit = 10, .fn = compare, .arg = &wanted };
    if (http_store_list(&asking->self->store, &req, &err) < 0) {
        log_debug(s3, "probe: listing failed why=%s", err.msg);
        return false;
    }
    return !wanted.wrong && !rest[wanted.seen];
}

/* After a creation, a second one with a replacement, and a deletion. */
static void
ask_list(struct asking *asking, struct probe_seen *seen)
{
    seen->listed =
        put(asking, "-list-a", "1") == 0 &&
        shows(asking, "-list-", (const char *const[]){ "-list-a", NULL },
              (const uint64_t[]){ 1 }) &&
        put(asking, "-list-b", "1") == 0 && put(asking, "-list-a", "22") == 0 &&
        shows(asking, "-list-", (const char *const[]){ "-list-a", "-list-b", NULL },
              (const uint64_t[]){ 2, 1 }) &&
        del(asking, "-list-a") == 0 &&
        shows(asking, "-list-", (const char *const[]){ "-list-b", NULL }, (const uint64_t[]){ 1 });
    (void)del(asking, "-list-a");
    (void)del(asking, "-list-b");
}

static bool
is_there(struct asking *asking, const char *rest)
{
    char key[NAME_SIZE];
    struct err err = ERR_INIT;
    struct store_object object;
    (void)snprintf(key, sizeof(key), "%.70s%s", asking->key, rest);
    store_object_init(&object);
    int result = http_store_head(&asking->self->store, key, 0, &object, &err);
    store_object_release(&object);
    return result == 0;
}

static void
ask_folding(struct asking *asking, struct probe_seen *seen)
{
    if (put(asking, "-name-" DECOMPOSED, "1") < 0)
        return;
    seen->name_folded = is_there(asking, "-name-" COMPOSED);
    seen->name_kept = !seen->name_folded && is_there(asking, "-name-" DECOMPOSED);
    (void)del(asking, "-name-" DECOMPOSED);
}

static void
ask_bytes(struct asking *asking, struct probe_seen *seen)
{
    static const char *const names[] = { "-byte-" NOT_UTF8, NULL };
    static const uint64_t sizes[] = { 1 };
    seen->bytes_asked = true;
    if (put(asking, names[0], "1") < 0)
        return;
    /* Only a listing tells a name from another one that reads and writes the same object. */
    seen->bytes_asked = seen->listed;
    seen->bytes_kept = shows(asking, "-byte-", names, sizes);
    (void)del(asking, names[0]);
}

/* One attempt, since some stores answer 500 for good. */
static void
ask_long_meta(struct asking *asking, struct probe_seen *seen)
{
    static const struct store_body empty = { .mem = "", .fd = -1, .size = 0 };
    char key[NAME_SIZE];
    char value[LONG_META + 1];
    struct err err = ERR_INIT;
    struct client_answer answer;
    (void)snprintf(key, sizeof(key), "%.70s-meta", asking->key);
    memset(value, 'm', LONG_META);
    value[LONG_META] = '\0';
    struct client_request request = {
        .method = "PUT", .key = key, .body = &empty, .deadline_ns = http_store_deadline(0, 0)
    };
    client_field(&request, "x-amz-meta-probe", value);
    client_answer_init(&answer);
    seen->long_meta = client_attempt(&asking->self->client, &request, &answer, &err) == 0;
    client_answer_release(&answer);
    if (seen->long_meta)
        (void)del(asking, "-meta");
    else
        log_debug(s3, "probe: no long metadata why=%s", err.msg);
}

void
probe_names(struct http_store *self, const char *key, struct probe_seen *seen)
{
    struct asking asking = { .self = self, .key = key };
    ask_list(&asking, seen);
    ask_folding(&asking, seen);
    ask_bytes(&asking, seen);
    ask_long_meta(&asking, seen);
}
