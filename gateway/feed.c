#include "gateway/feed.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/sys.h"
#include "base/text.h"

#define FILE_NOW "events.jsonl"
#define FILE_BEFORE "events.before.jsonl"
#define FILE_MAX (8u << 20) /* then it becomes the one before */
#define QUEUE_MAX 65536u
#define NAMES 64u

struct raw {
    struct raw *next;
    int64_t time_ns, volume, parent;
    enum volume_event_kind kind;
    char name[LIMIT_NAME + 1];
};

/* Text behind the struct: volume, path, line, each with its NUL. */
struct item {
    unsigned refs; /* the ring's and those of readers under way */
    uint64_t seq;
    const char *type;
    const char *volume, *path, *line;
};

struct feed {
    struct volume_service *volumes;
    pthread_mutex_t lock; /* a leaf */
    pthread_cond_t raw_came, told;
    struct raw *head, *tail;
    unsigned queued;
    bool lost, stopping, awake;
    struct item *ring[FEED_ITEMS];
    uint64_t begin, end; /* places in the ring, ever rising */
    uint64_t next;       /* number of the next item */
    /* the feed's thread */
    int64_t wanted; /* of note_name() */
    pthread_t thread;
    bool started;
    int dir, fd;
    uint64_t file_size;
    struct {
        int64_t volume; /* 0: none yet */
        char name[LIMIT_VOLUME_NAME + 1];
    } names[NAMES]; /* by volume; neither number nor name is ever given to another */
};

/* ---- items ---- */
static void
unref_locked(struct item *item)
{
    if (--item->refs == 0)
        free(item);
}

static struct item *
item_new(uint64_t seq, const char *type, const char *volume, const char *path, const char *line)
{
    size_t a = strlen(volume) + 1, b = strlen(path) + 1, c = strlen(line) + 1;
    struct item *item = malloc(sizeof(*item) + a + b + c);
    if (!item)
        return NULL;
    char *text = (char *)(item + 1);
    memcpy(text, volume, a);
    memcpy(text + a, path, b);
    memcpy(text + a + b, line, c);
    *item = (struct item){ 1, seq, type, text, text + a, text + a + b };
    return item;
}

static void
push_locked(struct feed *feed, struct item *item)
{
    if (feed->end - feed->begin == FEED_ITEMS)
        unref_locked(feed->ring[feed->begin++ % FEED_ITEMS]);
    feed->ring[feed->end++ % FEED_ITEMS] = item;
    feed->next = item->seq + 1;
}

static int
set_path(json_t *line, const char *path, bool whole)
{
    size_t len = strlen(path);
    struct err err = ERR_INIT;
    scope_buf coded;
    if (utf8_valid(path, len))
        return json_object_set_new(line, whole ? "path" : "name", json_stringn(path, len));
    buf_init(&coded, 2 * (size_t)LIMIT_PATH + 16);
    if (base64_encode(path, len, &coded, &err) < 0)
        return -1;
    return json_object_set_new(line, whole ? "path_b64" : "name_b64",
                               json_string(buf_cstr(&coded)));
}

static struct item *
make_item(uint64_t seq, const struct raw *raw, const char *volume, const char *path, bool whole)
{
    char when[TIME_RFC3339_SIZE];
    struct err err = ERR_INIT;
    scope_buf text;
    const char *type = volume_event_type(raw->kind);
    const char *op = volume_event_op(raw->kind);
    time_rfc3339(raw->time_ns, when, sizeof(when));
    scope_json *line =
        json_pack("{s:I, s:s, s:s}", "seq", (json_int_t)seq, "time", when, "type", type);
    buf_init(&text, 64u << 10);
    if (!line || (op && json_object_set_new(line, "op", json_string(op)) < 0) ||
        (volume[0] && (json_object_set_new(line, "volume", json_string(volume)) < 0 ||
                       set_path(line, path, whole) < 0)) ||
        json_print(line, &text, &err) < 0)
        return NULL;
    return item_new(seq, type, volume, whole ? path : "", buf_cstr(&text));
}

/* ---- the file ---- */
static const char *
known_type(const char *text)
{
    for (int kind = VOLUME_EVENT_CREATED; kind <= VOLUME_EVENT_LOST; kind++)
        if (strcmp(text, volume_event_type((enum volume_event_kind)kind)) == 0)
            return volume_event_type((enum volume_event_kind)kind);
    return NULL;
}

/* A line that is none is passed over: it was cut by the end of the machine. */
static void
take_line(struct feed *feed, const char *text, size_t len, bool *ended)
{
    struct err err = ERR_INIT;
    const char *type = "", *volume = "", *path = "", *coded = NULL;
    int64_t seq = 0;
    scope_buf bytes, line;
    scope_json *json = json_parse(text, len, &err);
    buf_init(&bytes, LIMIT_PATH + 1);
    buf_init(&line, 64u << 10);
    *ended = false;
    if (!json || json_need_int(json, "seq", &seq, &err) < 0 || seq < (int64_t)feed->next)
        return;
    if (json_object_get(json, "end")) {
        *ended = true;
        feed->next = (uint64_t)seq;
        return;
    }
    if (json_need_str(json, "type", &type, &err) < 0 || !(type = known_type(type)) ||
        json_opt_str(json, "volume", &volume, &err) < 0 ||
        json_opt_str(json, "path", &path, &err) < 0 ||
        json_opt_str(json, "path_b64", &coded, &err) < 0 ||
        (coded && base64_decode(coded, strlen(coded), &bytes, &err) < 0) ||
        buf_append(&line, text, len, &err) < 0)
        return;
    struct item *item =
        item_new((uint64_t)seq, type, volume, coded ? buf_cstr(&bytes) : path, buf_cstr(&line));
    if (item)
        push_locked(feed, item);
}

/* `ended`: its last line says that all was told. */
static void
load_file(struct feed *feed, const char *name, bool *ended)
{
    scope_free char *text = NULL;
    size_t len = 0;
    struct err err = ERR_INIT;
    *ended = false;
    if (sys_read_file(feed->dir, name, 4u * FILE_MAX, &text, &len, &err) < 0) {
        if (err.code != ERR_NOT_FOUND)
            log_warn(http, "the events in '%s' cannot be read: %s", name, err.msg);
        return;
    }
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        if (!end)
            break;
        take_line(feed, text + at, (size_t)(end - text) - at, ended);
        at = (size_t)(end - text) + 1;
    }
}

static int
open_file(struct feed *feed, struct err *err)
{
    struct stat st;
    feed->fd = openat(feed->dir, FILE_NOW, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (feed->fd < 0 || fstat(feed->fd, &st) < 0)
        return err_sys(err, errno, "cannot open '%s' of the state directory", FILE_NOW);
    feed->file_size = (uint64_t)st.st_size;
    return 0;
}

/* A feed that cannot be written goes on in memory: what changes is not to wait for it. */
static void
append(struct feed *feed, const char *text, size_t len)
{
    struct err err = ERR_INIT;
    if (feed->fd < 0 || sys_write_full(feed->fd, text, len, (off_t)feed->file_size, &err) < 0) {
        if (feed->fd >= 0)
            log_warn(http, "the events cannot be written: %s", err.msg);
        return;
    }
    feed->file_size += len;
    if (feed->file_size < FILE_MAX)
        return;
    (void)close(feed->fd);
    if (renameat(feed->dir, FILE_NOW, feed->dir, FILE_BEFORE) < 0 || open_file(feed, &err) < 0) {
        log_warn(http, "the events cannot begin a new file: %s",
                 err.code ? err.msg : strerrordesc_np(errno));
        feed->fd = -1;
    }
}

static void
append_item(struct buf *batch, const struct item *item)
{
    struct err err = ERR_INIT;
    size_t before = batch->len;
    if (buf_append_str(batch, item->line, &err) < 0 || buf_append(batch, "\n", 1, &err) < 0)
        buf_truncate(batch, before);
}

/* ---- from the volumes ---- */
static void
queue_locked(struct feed *feed, struct raw *raw)
{
    if (feed->tail)
        feed->tail->next = raw;
    else
        feed->head = raw;
    feed->tail = raw;
    feed->queued++;
    pthread_cond_signal(&feed->raw_came);
}

/* The notifier's thread must not wait for the index or the disk. */
static void
on_event(void *arg, const struct volume_event *event)
{
    struct feed *feed = arg;
    if (event->kind == VOLUME_EVENT_OPENED)
        return; /* for kernels; its close is told */
    struct raw *raw = calloc(1, sizeof(*raw));
    scope_unlock pthread_mutex_t *held = scope_lock(&feed->lock);
    (void)held;
    if (!raw || feed->queued >= QUEUE_MAX || feed->stopping) {
        feed->lost = true;
        free(raw);
        return;
    }
    raw->time_ns = clock_wall_ns();
    raw->kind = event->kind;
    raw->volume = event->volume;
    raw->parent = event->parent;
    text_set(raw->name, event->name ? event->name : "");
    queue_locked(feed, raw);
}

static int
note_name(void *arg, const struct volume_info *info, struct err *err)
{
    struct feed *feed = arg;
    (void)err;
    unsigned at = (unsigned)(info->id % NAMES);
    feed->names[at].volume = info->id;
    text_set(feed->names[at].name, info->name);
    return info->id == feed->wanted ? 1 : 0;
}

/* "" when it is not, or no longer, known. */
static const char *
volume_name(struct feed *feed, int64_t volume)
{
    struct err err = ERR_INIT;
    unsigned at = (unsigned)(volume % NAMES);
    if (volume == 0)
        return "";
    feed->wanted = volume;
    if (feed->names[at].volume != volume && volume_each(feed->volumes, note_name, feed, &err) < 0)
        return "";
    return feed->names[at].volume == volume ? feed->names[at].name : "";
}

/* False: the folder is gone, only the name is left. */
static bool
path_of(struct feed *feed, const struct raw *raw, char *out, size_t size)
{
    char parent[LIMIT_PATH + 1] = "";
    struct err gone = ERR_INIT;
    bool known = volume_path(feed->volumes, raw->parent, parent, sizeof(parent), &gone) == 0;
    if (!known)
        parent[0] = '\0';
    (void)snprintf(out, size, "%s%s%s", parent, parent[0] && raw->name[0] ? "/" : "", raw->name);
    return known;
}

static void
tell(struct feed *feed, const struct raw *raw, struct buf *batch)
{
    char path[LIMIT_PATH + LIMIT_NAME + 2] = "";
    const char *volume = volume_name(feed, raw->volume);
    bool whole = true;
    if (raw->volume != 0 && volume[0] == '\0')
        return; /* of a volume that was removed */
    if (raw->volume != 0)
        whole = path_of(feed, raw, path, sizeof(path));
    struct item *item = make_item(feed->next, raw, volume, path, whole);
    scope_unlock pthread_mutex_t *held = scope_lock(&feed->lock);
    (void)held;
    if (!item) {
        feed->lost = true;
        return;
    }
    push_locked(feed, item);
    append_item(batch, item);
}

static void
tell_all(struct feed *feed, struct raw *raw, bool lost)
{
    scope_buf batch;
    struct raw none = { .kind = VOLUME_EVENT_LOST, .time_ns = clock_wall_ns() };
    buf_init(&batch, 64u << 20);
    for (struct raw *next; raw; raw = next) {
        next = raw->next;
        tell(feed, raw, &batch);
        free(raw);
    }
    if (lost)
        tell(feed, &none, &batch);
    append(feed, buf_cstr(&batch), batch.len);
    pthread_mutex_lock(&feed->lock);
    pthread_cond_broadcast(&feed->told);
    pthread_mutex_unlock(&feed->lock);
}

static void *
feed_main(void *arg)
{
    struct feed *feed = arg;
    pthread_setname_np(pthread_self(), "hf-feed");
    pthread_mutex_lock(&feed->lock);
    for (;;) {
        while (!feed->head && !feed->lost && !feed->stopping)
            pthread_cond_wait(&feed->raw_came, &feed->lock);
        if (!feed->head && !feed->lost)
            break;
        struct raw *batch = feed->head;
        bool lost = feed->lost;
        feed->head = feed->tail = NULL;
        feed->queued = 0;
        feed->lost = false;
        pthread_mutex_unlock(&feed->lock);
        tell_all(feed, batch, lost);
        pthread_mutex_lock(&feed->lock);
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}

/* ---- life ---- */
/* The numbers begin with the clock's milliseconds where it is not known which were given. */
static void
load(struct feed *feed)
{
    bool ended;
    load_file(feed, FILE_BEFORE, &ended);
    load_file(feed, FILE_NOW, &ended);
    uint64_t now = (uint64_t)(clock_wall_ns() / NS_PER_MS);
    bool fresh = feed->next == 0;
    if (!ended && now > feed->next)
        feed->next = now;
    feed->lost = !ended && !fresh;
}

static int
start(struct feed *feed, struct err *err)
{
    if (volume_watch(feed->volumes, on_event, feed, err) < 0)
        return -1;
    int rc = pthread_create(&feed->thread, NULL, feed_main, feed);
    feed->started = rc == 0;
    return rc == 0 ? 0 : err_sys(err, rc, "cannot start the thread of the events");
}

static struct feed *
feed_new(struct volume_service *volumes, struct err *err)
{
    pthread_condattr_t attr;
    struct feed *feed = calloc(1, sizeof(*feed));
    if (!feed) {
        (void)err_nomem(err);
        return NULL;
    }
    feed->volumes = volumes;
    feed->dir = feed->fd = -1;
    pthread_mutex_init(&feed->lock, NULL);
    pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&feed->raw_came, &attr);
    pthread_cond_init(&feed->told, &attr);
    pthread_condattr_destroy(&attr);
    return feed;
}

struct feed *
feed_open(struct volume_service *volumes, const char *state_dir, struct err *err)
{
    struct feed *feed = feed_new(volumes, err);
    if (!feed)
        return NULL;
    feed->dir = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (feed->dir < 0) {
        (void)err_sys(err, errno, "cannot open '%s'", state_dir);
        feed_close(feed);
        return NULL;
    }
    load(feed);
    if (open_file(feed, err) < 0 || start(feed, err) < 0) {
        feed_close(feed);
        return NULL;
    }
    return feed;
}

void
feed_wake(struct feed *feed)
{
    if (!feed)
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&feed->lock);
    (void)held;
    feed->awake = true;
    pthread_cond_broadcast(&feed->told);
}

bool
feed_ends(struct feed *feed)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&feed->lock);
    (void)held;
    return feed->awake;
}

/* So that the next one knows that nothing is missing. */
static void
end_file(struct feed *feed)
{
    scope_buf line;
    struct err err = ERR_INIT;
    buf_init(&line, 256);
    if (buf_appendf(&line, &err, "{\"seq\":%llu,\"end\":true}\n", (unsigned long long)feed->next) ==
        0)
        append(feed, buf_cstr(&line), line.len);
}

void
feed_close(struct feed *feed)
{
    if (!feed)
        return;
    pthread_mutex_lock(&feed->lock);
    feed->stopping = true;
    pthread_cond_signal(&feed->raw_came);
    pthread_mutex_unlock(&feed->lock);
    if (feed->started) {
        pthread_join(feed->thread, NULL);
        end_file(feed);
    }
    while (feed->begin < feed->end)
        unref_locked(feed->ring[feed->begin++ % FEED_ITEMS]);
    if (feed->fd >= 0)
        (void)close(feed->fd);
    if (feed->dir >= 0)
        (void)close(feed->dir);
    pthread_cond_destroy(&feed->raw_came);
    pthread_cond_destroy(&feed->told);
    pthread_mutex_destroy(&feed->lock);
    free(feed);
}

/* ---- reading ---- */
static bool
matches(const struct item *item, const struct feed_query *query)
{
    size_t len = strlen(query->folder);
    if (item->volume[0] == '\0' || query->volume[0] == '\0')
        return true;
    if (strcmp(item->volume, query->volume) != 0)
        return false;
    return strncmp(item->path, query->folder, len) == 0 &&
           (len == 0 || item->path[len] == '/' || item->path[len] == '\0');
}

/* The place of the first item after `since`. */
static uint64_t
place_after_locked(const struct feed *feed, uint64_t since)
{
    uint64_t low = feed->begin, high = feed->end;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (feed->ring[mid % FEED_ITEMS]->seq <= since)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void
judge_since_locked(const struct feed *feed, struct feed_query *query)
{
    query->first = feed->begin < feed->end ? feed->ring[feed->begin % FEED_ITEMS]->seq : feed->next;
    query->gap = false;
    if (query->since == FEED_NOW) {
        query->since = feed->next - 1;
        return;
    }
    if (query->since >= query->first - 1 && query->since < feed->next)
        return;
    query->gap = true;
    query->since = query->since < query->first ? query->first - 1 : feed->next - 1;
}

/* Takes what fits; `since` passes over what does not match. */
static size_t
take_locked(const struct feed *feed, struct feed_query *query, struct item **out)
{
    size_t count = 0;
    for (uint64_t at = place_after_locked(feed, query->since);
         at < feed->end && count < query->limit; at++) {
        struct item *item = feed->ring[at % FEED_ITEMS];
        query->since = item->seq;
        if (!matches(item, query))
            continue;
        item->refs++;
        out[count++] = item;
    }
    return count;
}

static bool
wait_locked(struct feed *feed, int64_t deadline_ns)
{
    struct timespec until = { .tv_sec = (time_t)(deadline_ns / NS_PER_S),
                              .tv_nsec = (long)(deadline_ns % NS_PER_S) };
    return !feed->awake && clock_mono_ns() < deadline_ns &&
           pthread_cond_timedwait(&feed->told, &feed->lock, &until) == 0 && !feed->awake;
}

static int
pass_on(struct feed *feed, struct item **items, size_t count, feed_fn *fn, void *arg,
        struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = fn(arg, &(struct feed_item){ items[i]->seq, items[i]->type, items[i]->line }, err);
    pthread_mutex_lock(&feed->lock);
    for (size_t i = 0; i < count; i++)
        unref_locked(items[i]);
    pthread_mutex_unlock(&feed->lock);
    return rc;
}

int
feed_read(struct feed *feed, struct feed_query *query, int64_t deadline_ns, feed_fn *fn, void *arg,
          struct err *err)
{
    scope_free struct item **items = calloc(query->limit + 1, sizeof(struct item *));
    if (!items)
        return err_nomem(err);
    pthread_mutex_lock(&feed->lock);
    judge_since_locked(feed, query);
    size_t count = take_locked(feed, query, items);
    while (count == 0 && !query->gap && wait_locked(feed, deadline_ns))
        count = take_locked(feed, query, items);
    pthread_mutex_unlock(&feed->lock);
    return pass_on(feed, items, count, fn, arg, err);
}
