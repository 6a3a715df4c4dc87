#include "volume/grep.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/path.h"
#include "volume/grep_impl.h"
#include "volume/link_impl.h"

/* Files are gathered in order from the index, some hundred at a time, searched by two threads, and told in order. */

#define BATCH 256u
#define CHUNK_NAMES 50000u
#define PATIENCE (10 * NS_PER_S)
#define HANDS 2

/* So many searches have a second thread now: one, while this machine is not busy with others. */
static atomic_int helpers;

struct run {
    struct grep_job job;
    struct walk walk;
    bool walking; /* false: one file was named */
    bool ended;   /* the walk is */
    struct grep_item *items;
    size_t gathered;
    uint64_t left; /* hits, or files, that may still be given */
    int64_t end_ns;
    struct volume_grep_result *out;
    struct grep_hand hands[HANDS];
    /* The batch that is being searched. A leaf (docs/LOCKS.md). */
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    size_t count, next, finished;
    bool begun; /* a file was searched: the page is not empty-handed when its time is up */
    bool stop, failed;
    struct err why;
    bool helped;
    pthread_t helper;
};

/* ---- gathered ---- */
static void
add_item(struct run *run, const char *path, const struct index_node *node, uint64_t after_line)
{
    struct grep_item *item = &run->items[run->gathered++];
    *item = (struct grep_item){
        .node = node->id, .content = node->content, .size = node->size, .after_line = after_line
    };
    text_copy(item->path, sizeof(item->path), path);
}

static int
gather(void *arg, struct index_tx *tx, int64_t id, struct err *err)
{
    struct run *run = arg;
    struct index_node node;
    if (index_node_get(tx, id, &node, err) != 0 || link_resolve(tx, &node, err) != 0)
        return -1;
    if (node.kind != INDEX_FILE || (node.flags & INDEX_NODE_NAME_HIDDEN) != 0)
        return 0;
    add_item(run, run->walk.path, &node, 0);
    return run->gathered == BATCH;
}

static int
gather_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct run *run = arg;
    int rc = walk_some(&run->walk, tx, CHUNK_NAMES, gather, run, err);
    run->ended = rc == 0;
    return rc < 0 ? -1 : 0;
}

struct one_call {
    struct run *run;
    int64_t node;
    const char *path;
};

static int
one_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct one_call *call = arg;
    struct index_node node;
    if (index_node_get(tx, call->node, &node, err) != 0 || link_resolve(tx, &node, err) != 0)
        return -1;
    add_item(call->run, call->path, &node, call->run->job.want->after_line);
    return 0;
}

static int
whole_path(const struct run *run, const char *below, char out[LIMIT_PATH + 1], struct err *err)
{
    const char *folder = run->job.want->folder;
    bool both = folder[0] != '\0' && below[0] != '\0';
    int len = snprintf(out, LIMIT_PATH + 1, "%s%s%s", folder, both ? "/" : "", below);
    if (len < 0 || len > LIMIT_PATH)
        return err_set(err, ERR_NAME_TOO_LONG, "a path is longer than %d bytes", LIMIT_PATH);
    return 0;
}

/* The file that the page before ended in, when it is still there. */
static int
take_up(struct run *run, struct err *err)
{
    const struct volume_grep *want = run->job.want;
    char path[LIMIT_PATH + 1];
    struct volume_attr attr;
    struct err gone = ERR_INIT;
    if (want->after_line == 0 || want->after[0] == '\0')
        return 0;
    if (whole_path(run, want->after, path, err) != 0)
        return -1;
    if (volume_resolve(run->job.service, run->job.ctx, want->volume, path, &attr, &gone) != 0 ||
        attr.kind != INDEX_FILE)
        return 0;
    struct one_call call = { run, attr.node, want->after };
    return index_read(run->job.service->index, one_tx, &call, err);
}

/* ---- searched ---- */
static bool
out_of_time(const struct run *run)
{
    return run->begun && clock_mono_ns() >= run->end_ns;
}

/* Files of the batch until none is left. */
static void
take_turns_locked(struct run *run, struct grep_hand *hand)
{
    while (run->next < run->count) {
        struct grep_item *item = &run->items[run->next++];
        struct err err = ERR_INIT;
        bool late = run->failed || out_of_time(run);
        uint64_t most = run->job.want->mode == VOLUME_GREP_COUNT ? UINT64_MAX : run->left + 1;
        pthread_mutex_unlock(&run->mutex);
        int rc = late ? 0 : grep_file(hand, item, most, &err);
        pthread_mutex_lock(&run->mutex);
        run->begun = true;
        if (rc != 0 && !run->failed) {
            run->failed = true;
            run->why = err;
        }
        if (++run->finished == run->count)
            pthread_cond_signal(&run->done);
    }
}

static void *
help(void *arg)
{
    struct run *run = arg;
    pthread_mutex_lock(&run->mutex);
    while (!run->stop) {
        take_turns_locked(run, &run->hands[1]);
        while (!run->stop && run->next >= run->count)
            pthread_cond_wait(&run->work, &run->mutex);
    }
    pthread_mutex_unlock(&run->mutex);
    return NULL;
}

static void
ask_helper(struct run *run)
{
    struct err none = ERR_INIT;
    if (run->helped || run->gathered < 16)
        return;
    if (atomic_fetch_add(&helpers, 1) == 0) {
        if (run->hands[1].matcher == NULL)
            run->hands[1].matcher = pattern_matcher_new(run->job.pattern, &none);
        run->helped =
            run->hands[1].matcher != NULL && pthread_create(&run->helper, NULL, help, run) == 0;
    }
    if (!run->helped)
        atomic_fetch_sub(&helpers, 1);
}

static void
end_helper(struct run *run)
{
    if (!run->helped)
        return;
    pthread_mutex_lock(&run->mutex);
    run->stop = true;
    pthread_cond_broadcast(&run->work);
    pthread_mutex_unlock(&run->mutex);
    (void)pthread_join(run->helper, NULL);
    atomic_fetch_sub(&helpers, 1);
}

static int
search_batch(struct run *run, size_t count, struct err *err)
{
    pthread_mutex_lock(&run->mutex);
    run->count = count;
    run->next = run->finished = 0;
    pthread_cond_broadcast(&run->work);
    take_turns_locked(run, &run->hands[0]);
    while (run->finished < run->count)
        pthread_cond_wait(&run->done, &run->mutex);
    bool failed = run->failed;
    pthread_mutex_unlock(&run->mutex);
    if (!failed)
        return 0;
    *err = run->why;
    return -1;
}

/* ---- told ---- */
static int
count_fate(struct run *run, const struct grep_item *item, struct err *err)
{
    struct volume_grep_result *out = run->out;
    struct volume_grep_count *counts[] = {
        [GREP_HARD] = &out->hard,     [GREP_BINARY] = &out->binary, [GREP_LARGE] = &out->large,
        [GREP_ABSENT] = &out->absent, [GREP_FAILED] = &out->failed,
    };
    out->searched += item->fate == GREP_SEARCHED || item->fate == GREP_HARD;
    out->files += item->hits > 0;
    struct volume_grep_count *count = item->fate == GREP_SEARCHED ? NULL : counts[item->fate];
    if (count == NULL)
        return 0;
    count->bytes += item->size;
    return count->files++ > 0 ? 0 : whole_path(run, item->path, count->path, err);
}

/* 1: the page is full: what comes is for the next one. */
static int
give(struct run *run, const struct grep_item *item, const struct volume_grep_line *line,
     struct err *err)
{
    if (!line->context && run->left == 0)
        return 1;
    int rc = run->job.want->fn(run->job.want->arg, line, err);
    if (rc != 0 || line->context)
        return rc;
    run->left--;
    run->out->hits++;
    text_copy(run->out->last, sizeof(run->out->last), item->path);
    run->out->last_line = line->line;
    return 0;
}

static int
give_lines(struct run *run, const struct grep_item *item, const char *path, struct err *err)
{
    struct grep_line line;
    for (size_t at = 0; at < item->lines.len; at += line.len) {
        memcpy(&line, item->lines.data + at, sizeof(line));
        at += sizeof(line);
        struct volume_grep_line told = { .path = path,
                                         .line = line.line,
                                         .text = item->lines.data + at,
                                         .len = line.len,
                                         .column = line.column,
                                         .clipped = line.clipped,
                                         .context = line.context };
        int rc = give(run, item, &told, err);
        if (rc != 0)
            return rc;
    }
    return item->cut;
}

/* 1: the page ends here. */
static int
tell_item(struct run *run, const struct grep_item *item, struct err *err)
{
    char path[LIMIT_PATH + 1];
    int rc = item->fate == GREP_NOT_YET;
    if (rc != 0 || whole_path(run, item->path, path, err) != 0)
        return rc != 0 ? 1 : -1;
    if (run->job.want->mode == VOLUME_GREP_LINES)
        rc = give_lines(run, item, path, err);
    else if (item->hits > 0)
        rc = give(run, item, &(struct volume_grep_line){ .path = path, .count = item->hits }, err);
    if (rc < 0 || count_fate(run, item, err) != 0)
        return -1;
    if (rc > 0)
        return 1;
    text_copy(run->out->last, sizeof(run->out->last), item->path);
    run->out->last_line = 0;
    return 0;
}

static int
tell_batch(struct run *run, size_t count, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < count; i++) {
        if (rc == 0)
            rc = tell_item(run, &run->items[i], err);
        buf_release(&run->items[i].lines);
    }
    return rc;
}

/* ---- the whole ---- */
/* 1: the page ends here. */
static int
one_batch(struct run *run, struct err *err)
{
    size_t count = run->gathered;
    ask_helper(run);
    if (search_batch(run, count, err) == 0)
        return tell_batch(run, count, err);
    for (size_t i = 0; i < count; i++)
        buf_release(&run->items[i].lines);
    return -1;
}

/* 1: the page ends here. */
static int
next_batch(struct run *run, struct err *err)
{
    run->gathered = 0;
    if (index_read(run->job.service->index, gather_tx, run, err) != 0)
        return -1;
    int rc = run->gathered > 0 ? one_batch(run, err) : 0;
    if (rc != 0)
        return rc;
    if (run->walk.names > 0) { /* so far everything was looked at */
        text_copy(run->out->last, sizeof(run->out->last), run->walk.path);
        run->out->last_line = 0;
    }
    run->begun |= run->walk.names > CHUNK_NAMES;
    return !run->ended && out_of_time(run);
}

static int
run_all(struct run *run, struct err *err)
{
    int rc = run->gathered > 0 ? one_batch(run, err) : 0;
    while (rc == 0 && run->walking && !run->ended)
        rc = next_batch(run, err);
    end_helper(run);
    run->out->more = rc > 0;
    run->out->unlisted = run->walking ? run->walk.unlisted : 0;
    if (rc < 0)
        return -1;
    return run->out->unlisted > 0
               ? whole_path(run, run->walk.unlisted_path, run->out->unlisted_path, err)
               : 0;
}

/* The folder's files from the index, or the one file that was named. */
static int
begin(struct run *run, const struct glob *glob, struct err *err)
{
    const struct volume_grep *want = run->job.want;
    struct volume_attr attr;
    if (path_check(want->after, strlen(want->after), err) != 0 ||
        volume_resolve(run->job.service, run->job.ctx, want->volume, want->folder, &attr, err) != 0)
        return -1;
    text_copy(run->out->last, sizeof(run->out->last), want->after);
    run->out->last_line = want->after_line;
    if (attr.kind != INDEX_DIR) {
        struct one_call call = { run, attr.node, "" };
        if (attr.kind != INDEX_FILE)
            return err_set(err, ERR_UNSUPPORTED, "'%s' is no regular file", want->folder);
        return index_read(run->job.service->index, one_tx, &call, err);
    }
    run->walk = (struct walk){ .service = run->job.service, .glob = glob, .files = true };
    if (take_up(run, err) != 0 || walk_open(&run->walk, attr.node, want->after, err) != 0)
        return -1;
    run->walking = true;
    return 0;
}

static void
run_release(struct run *run)
{
    for (int i = 0; i < HANDS; i++) {
        pattern_matcher_free(run->hands[i].matcher);
        free(run->hands[i].bytes);
    }
    if (run->walking)
        walk_close(&run->walk);
    pattern_free(run->job.pattern);
    free(run->items);
    (void)pthread_cond_destroy(&run->work);
    (void)pthread_cond_destroy(&run->done);
    (void)pthread_mutex_destroy(&run->mutex);
    free(run);
}

static struct run *
run_new(struct volume_service *service, const struct volume_ctx *ctx,
        const struct volume_grep *want, struct err *err)
{
    const struct pattern_options options = { want->fixed, want->ignore_case };
    struct run *run = calloc(1, sizeof(*run));
    if (run == NULL) {
        (void)err_nomem(err);
        return NULL;
    }
    run->job = (struct grep_job){ .service = service, .ctx = ctx, .want = want };
    atomic_init(&run->job.fetch_left, want->fetch < INT64_MAX ? (int64_t)want->fetch : INT64_MAX);
    run->left = want->limit;
    run->end_ns = clock_mono_ns() + (want->patience_ns > 0 ? want->patience_ns : PATIENCE);
    (void)pthread_mutex_init(&run->mutex, NULL);
    (void)pthread_cond_init(&run->work, NULL);
    (void)pthread_cond_init(&run->done, NULL);
    for (int i = 0; i < HANDS; i++)
        run->hands[i].job = &run->job;
    run->items = calloc(BATCH + 1, sizeof(*run->items));
    if (run->items == NULL)
        (void)err_nomem(err);
    else if (pattern_compile(want->pattern, strlen(want->pattern), &options, &run->job.pattern,
                             err) == 0 &&
             (run->hands[0].matcher = pattern_matcher_new(run->job.pattern, err)) != NULL)
        return run;
    run_release(run);
    return NULL;
}

int
volume_grep(struct volume_service *service, const struct volume_ctx *ctx,
            const struct volume_grep *want, struct volume_grep_result *out, struct err *err)
{
    scope_glob *glob = NULL;
    const char *include = want->include != NULL ? want->include : "**";
    memset(out, 0, sizeof(*out));
    if (glob_compile(include, strlen(include), &glob, err) < 0)
        return -1;
    struct run *run = run_new(service, ctx, want, err);
    if (run == NULL)
        return -1;
    run->out = out;
    int rc = begin(run, glob, err);
    if (rc == 0)
        rc = run_all(run, err);
    run_release(run);
    return rc;
}
