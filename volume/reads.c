#include "volume/reads_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/scope.h"
#include "volume/history_impl.h"

/* Which files each run has read, and which of them others changed since. */

#define BUCKETS 8192u
#define TOLD_MOST 16u /* inputs that a mark names */

struct input {
    struct input *next;           /* in its bucket */
    struct input *before, *after; /* of its run */
    struct run_reads *run;
    int64_t node, parent, volume;
    bool changed;       /* by others, since it was read */
    bool changed_again; /* since reads_begin() */
    bool read;          /* reads_end() came */
    char name[];
};

struct run_reads {
    struct run_reads *next;
    struct input *first;
    char id[64];
    bool incomplete;
    bool met; /* it has a row in the index */
    uint64_t inputs, changed, marked, refused;
};

struct reads {
    pthread_mutex_t lock; /* a leaf */
    struct input *bucket[BUCKETS];
    struct run_reads *runs; /* the one that was used last comes first */
    unsigned run_count;
    size_t total;
    atomic_bool any; /* some run has inputs */
};

struct reads *
reads_new(struct err *err)
{
    struct reads *reads = calloc(1, sizeof(*reads));
    if (reads == NULL) {
        err_nomem(err);
        return NULL;
    }
    pthread_mutex_init(&reads->lock, NULL);
    return reads;
}

static bool
is_run(const char *run)
{
    return run != NULL && run[0] != '\0';
}

static struct input **
bucket_of(struct reads *reads, int64_t node)
{
    return &reads->bucket[((uint64_t)node * 0x9e3779b97f4a7c15ull >> 32) % BUCKETS];
}

/* ---- entries ---- */

static void
drop_input_locked(struct reads *reads, struct input *input)
{
    struct run_reads *run = input->run;
    struct input **at = bucket_of(reads, input->node);
    while (*at != input)
        at = &(*at)->next;
    *at = input->next;
    if (input->before != NULL)
        input->before->after = input->after;
    else
        run->first = input->after;
    if (input->after != NULL)
        input->after->before = input->before;
    run->changed -= input->changed;
    run->inputs--;
    reads->total--;
    free(input);
}

static void
drop_inputs_locked(struct reads *reads, struct run_reads *run)
{
    while (run->first != NULL)
        drop_input_locked(reads, run->first);
}

void
reads_free(struct reads *reads)
{
    if (reads == NULL)
        return;
    for (struct run_reads *run = reads->runs, *next; run != NULL; run = next) {
        next = run->next;
        drop_inputs_locked(reads, run);
        free(run);
    }
    pthread_mutex_destroy(&reads->lock);
    free(reads);
}

static struct run_reads *
find_run_locked(struct reads *reads, const char *id)
{
    for (struct run_reads **at = &reads->runs; *at != NULL; at = &(*at)->next) {
        struct run_reads *run = *at;
        if (strcmp(run->id, id) != 0)
            continue;
        *at = run->next;
        run->next = reads->runs;
        reads->runs = run;
        return run;
    }
    return NULL;
}

/* What it had read is forgotten: should it come back, its row in the index says so. */
static void
drop_oldest_locked(struct reads *reads)
{
    struct run_reads **oldest = &reads->runs;
    while ((*oldest)->next != NULL)
        oldest = &(*oldest)->next;
    struct run_reads *run = *oldest;
    *oldest = run->next;
    drop_inputs_locked(reads, run);
    free(run);
    reads->run_count--;
}

static struct run_reads *
add_run_locked(struct reads *reads, const char *id, bool met, bool incomplete)
{
    struct run_reads *run = find_run_locked(reads, id);
    if (run == NULL) {
        if (reads->run_count >= VOLUME_READS_RUNS)
            drop_oldest_locked(reads);
        run = calloc(1, sizeof(*run));
        if (run == NULL)
            return NULL;
        text_copy(run->id, sizeof(run->id), id);
        run->incomplete = incomplete;
        run->next = reads->runs;
        reads->runs = run;
        reads->run_count++;
    }
    run->met |= met;
    return run;
}

static struct input *
find_input_locked(struct reads *reads, const struct run_reads *run, int64_t node)
{
    struct input *input = *bucket_of(reads, node);
    while (input != NULL && (input->node != node || input->run != run))
        input = input->next;
    return input;
}

/* The run that was quiet longest gives its room. */
static bool
make_room_locked(struct reads *reads, const struct run_reads *run)
{
    if (run->inputs >= VOLUME_READS_OF_RUN)
        return false;
    while (reads->total >= VOLUME_READS_IN_ALL && reads->runs->next != NULL)
        drop_oldest_locked(reads); /* never `run`: it was used last */
    return reads->total < VOLUME_READS_IN_ALL;
}

static void
link_input_locked(struct reads *reads, struct run_reads *run, struct input *input)
{
    struct input **bucket = bucket_of(reads, input->node);
    input->next = *bucket;
    *bucket = input;
    input->before = NULL;
    input->after = run->first;
    if (run->first != NULL)
        run->first->before = input;
    run->first = input;
    input->run = run;
    run->inputs++;
    run->changed += input->changed;
    reads->total++;
    atomic_store(&reads->any, true);
}

/* ---- reading ---- */

struct meet_call {
    const char *run;
    bool met;
};

static int
meet_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct meet_call *call = arg;
    return index_run_meet(tx, call->run, clock_wall_ns(), &call->met, err);
}

int
reads_meet(struct volume_service *service, const struct volume_ctx *ctx, struct err *err)
{
    struct reads *reads = service->reads;
    struct meet_call call = { .run = ctx->run };
    if (!is_run(ctx->run))
        return 0;
    pthread_mutex_lock(&reads->lock);
    const struct run_reads *run = find_run_locked(reads, ctx->run);
    bool met = run != NULL && run->met;
    pthread_mutex_unlock(&reads->lock);
    if (met)
        return 0;
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "the first read of a run waits for the index");
    /* FULL: after a power cut too it is known that there was something to remember. */
    if (index_write(service->index, INDEX_FULL, meet_tx, &call, err) != 0)
        return -1;
    pthread_mutex_lock(&reads->lock);
    bool ok = add_run_locked(reads, ctx->run, true, call.met) != NULL;
    pthread_mutex_unlock(&reads->lock);
    return ok ? 0 : err_nomem(err);
}

void
reads_begin(struct volume_service *service, const struct volume_ctx *ctx, int64_t node)
{
    struct reads *reads = service->reads;
    if (!is_run(ctx->run))
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&reads->lock);
    (void)held;
    struct run_reads *run = find_run_locked(reads, ctx->run);
    if (run == NULL)
        return; /* given up meanwhile: reads_end() makes it anew */
    struct input *input = find_input_locked(reads, run, node);
    if (input == NULL && make_room_locked(reads, run)) {
        input = calloc(1, sizeof(*input) + 1);
        if (input != NULL) {
            input->node = node;
            link_input_locked(reads, run, input);
        }
    }
    if (input == NULL)
        run->incomplete = true;
    else
        input->changed_again = false;
}

/* The same entry with a name. */
static struct input *
name_input_locked(struct reads *reads, struct input *input, const struct index_node *node)
{
    struct run_reads *run = input->run;
    if (input->read && strcmp(input->name, node->name) == 0) {
        input->parent = node->parent;
        return input;
    }
    struct input *named = calloc(1, sizeof(*named) + strlen(node->name) + 1);
    if (named == NULL) {
        run->incomplete = true;
        return input;
    }
    named->node = input->node;
    named->parent = node->parent;
    named->volume = node->volume;
    named->changed = input->changed;
    named->changed_again = input->changed_again;
    memcpy(named->name, node->name, strlen(node->name) + 1);
    drop_input_locked(reads, input);
    link_input_locked(reads, run, named);
    return named;
}

/* The run has read what has the name now: what had it before is no input any more. */
static void
drop_former_locked(struct reads *reads, const struct input *now)
{
    struct input *input = now->run->changed > 0 ? now->run->first : NULL;
    while (input != NULL) {
        struct input *next = input->after;
        if (input != now && input->changed && input->parent == now->parent &&
            strcmp(input->name, now->name) == 0)
            drop_input_locked(reads, input);
        input = next;
    }
}

void
reads_end(struct volume_service *service, const struct volume_ctx *ctx,
          const struct index_node *node, bool read)
{
    struct reads *reads = service->reads;
    if (!is_run(ctx->run))
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&reads->lock);
    (void)held;
    struct run_reads *run = find_run_locked(reads, ctx->run);
    if (run == NULL) {
        if (read) /* it lost its room while it read */
            (void)add_run_locked(reads, ctx->run, true, true);
        return;
    }
    struct input *input = find_input_locked(reads, run, node->id);
    if (input == NULL)
        return;
    if (!read && !input->read) {
        drop_input_locked(reads, input);
        return;
    }
    if (!read)
        return;
    input = name_input_locked(reads, input, node);
    input->read = true;
    run->changed -= input->changed;
    input->changed = input->changed_again;
    run->changed += input->changed;
    drop_former_locked(reads, input);
}

/* ---- changes ---- */

void
reads_changed(struct volume_service *service, int64_t node, const char *run)
{
    struct reads *reads = service->reads;
    if (reads == NULL || !atomic_load(&reads->any))
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&reads->lock);
    (void)held;
    for (struct input *input = *bucket_of(reads, node); input != NULL; input = input->next) {
        if (input->node != node || (is_run(run) && strcmp(run, input->run->id) == 0))
            continue;
        input->run->changed += !input->changed;
        input->changed = input->changed_again = true;
    }
}

/* ---- writing ---- */

static const struct input *
first_changed_locked(const struct run_reads *run)
{
    const struct input *input = run->first;
    while (input != NULL && (!input->changed || input->name[0] == '\0'))
        input = input->after;
    return input;
}

int
reads_may_write(struct volume_service *service, const struct volume_ctx *ctx,
                const struct index_volume *volume, struct err *err)
{
    struct reads *reads = service->reads;
    if ((volume->options & INDEX_VOLUME_STALE_REFUSE) == 0 || !is_run(ctx->run))
        return 0;
    scope_unlock pthread_mutex_t *held = scope_lock(&reads->lock);
    (void)held;
    struct run_reads *run = find_run_locked(reads, ctx->run);
    if (run == NULL || run->changed == 0)
        return 0;
    const struct input *input = first_changed_locked(run);
    run->refused++;
    return err_set(err, ERR_STALE_READ,
                   "this run has read '%s', which was changed since by others: read it again, "
                   "then write",
                   input != NULL ? input->name : "a file");
}

/* Inputs that changed, copied out of the table: their paths take the index. */
struct told_inputs {
    struct told_input {
        int64_t node, parent, volume;
        char name[LIMIT_NAME + 1];
    } input[TOLD_MOST];
    unsigned count;
};

static void
copy_changed_locked(const struct run_reads *run, struct told_inputs *out)
{
    for (const struct input *input = run->first; input != NULL && out->count < TOLD_MOST;
         input = input->after) {
        if (!input->changed)
            continue;
        struct told_input *told = &out->input[out->count++];
        told->node = input->node;
        told->parent = input->parent;
        told->volume = input->volume;
        text_set(told->name, input->name);
    }
}

/* Where it is, or where it was when it was read. */
static int
path_of(struct index_tx *tx, const struct told_input *told, char *out, size_t size, struct err *err)
{
    struct err missing = ERR_INIT;
    if (index_node_path(tx, told->node, out, size, &missing) == 0)
        return 0;
    out[0] = '\0';
    if (told->parent != 0 && index_node_path(tx, told->parent, out, size, &missing) != 0 &&
        missing.code != ERR_NOT_FOUND)
        return err_set(err, missing.code, "%s", missing.msg);
    size_t len = strlen(out);
    (void)snprintf(out + len, size - len, "%s%s", len > 0 ? "/" : "", told->name);
    return 0;
}

static int
print_inputs(struct index_tx *tx, const struct told_inputs *all, struct index_stale *row,
             struct err *err)
{
    scope_buf text;
    buf_init(&text, 4 * LIMIT_PATH);
    for (unsigned i = 0; i < all->count; i++) {
        struct index_volume volume;
        char path[LIMIT_PATH + LIMIT_NAME + 2];
        struct err gone = ERR_INIT;
        size_t len = strlen(row->inputs);
        buf_clear(&text);
        if (index_volume_get(tx, all->input[i].volume, &volume, &gone) != 0)
            continue;
        if (path_of(tx, &all->input[i], path, sizeof(path), err) != 0 ||
            buf_appendf(&text, err, "%s%s:", len > 0 ? " " : "", volume.name) != 0 ||
            percent_encode(path, strlen(path), true, &text, err) != 0)
            return -1;
        if (len + text.len >= sizeof(row->inputs))
            return 0;
        memcpy(row->inputs + len, buf_cstr(&text), text.len + 1);
    }
    return 0;
}

/* What is known of a run that only writes: whether it read something under an earlier gateway. */
static int
meet_writer(struct volume_service *service, struct index_tx *tx, const char *run, struct err *err)
{
    struct reads *reads = service->reads;
    bool known;
    pthread_mutex_lock(&reads->lock);
    bool here = find_run_locked(reads, run) != NULL;
    pthread_mutex_unlock(&reads->lock);
    if (here)
        return 0;
    if (index_run_known(tx, run, &known, err) != 0)
        return -1;
    pthread_mutex_lock(&reads->lock);
    bool ok = add_run_locked(reads, run, known, known) != NULL;
    pthread_mutex_unlock(&reads->lock);
    return ok ? 0 : err_nomem(err);
}

int
reads_mark(struct volume_service *service, struct index_tx *tx, const struct reads_written *written,
           bool *marked, struct err *err)
{
    struct reads *reads = service->reads;
    struct index_volume volume;
    struct index_stale row = { .volume = written->volume };
    *marked = false;
    if (!is_run(written->run))
        return 0;
    if (index_volume_get(tx, written->volume, &volume, err) != 0)
        return -1;
    if ((volume.options & INDEX_VOLUME_STALE_OFF) != 0)
        return 0;
    if (meet_writer(service, tx, written->run, err) != 0)
        return -1;
    scope_free struct told_inputs *all = NULL;
    pthread_mutex_lock(&reads->lock);
    struct run_reads *run = find_run_locked(reads, written->run);
    row.incomplete = run == NULL || run->incomplete;
    row.changed = run == NULL ? 0 : (int64_t)run->changed;
    if (row.changed > 0 && (all = calloc(1, sizeof(*all))) != NULL)
        copy_changed_locked(run, all);
    if (row.changed > 0)
        run->marked++;
    pthread_mutex_unlock(&reads->lock);
    if (row.changed == 0 && !row.incomplete)
        return 0;
    if (all != NULL && print_inputs(tx, all, &row, err) != 0)
        return -1;
    text_copy(row.version, sizeof(row.version), written->version);
    text_copy(row.run, sizeof(row.run), written->run);
    row.time_ns = clock_wall_ns();
    *marked = row.changed > 0;
    return index_stale_put(tx, &row, err);
}

/* ---- told ---- */

void
volume_reads_of(struct volume_service *service, const char *run_id, struct volume_run_reads *out)
{
    struct reads *reads = service->reads;
    *out = (struct volume_run_reads){ .complete = true };
    if (!is_run(run_id))
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&reads->lock);
    (void)held;
    const struct run_reads *run = find_run_locked(reads, run_id);
    if (run == NULL)
        return;
    *out = (struct volume_run_reads){ .known = true,
                                      .complete = !run->incomplete,
                                      .inputs = run->inputs,
                                      .changed = run->changed,
                                      .marked = run->marked,
                                      .refused = run->refused };
}

struct mark_call {
    const char *version;
    struct index_stale *out;
};

/* A file that moved, or got other attributes, has the bytes and the mark of what it was. */
static int
mark_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct mark_call *call = arg;
    char origin[LIMIT_ETAG];
    if (history_origin(tx, call->version, origin, err) != 0)
        return -1;
    return index_stale_get(tx, origin, call->out, err);
}

int
volume_reads_mark(struct volume_service *service, const char *version, struct index_stale *out,
                  struct err *err)
{
    struct mark_call call = { version, out };
    return index_read(service->index, mark_tx, &call, err);
}
