#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "tests/bench/load/load.h"

/* ---- names ---- */
int
names_add(struct names *names, const char *name, size_t len, struct err *err)
{
    if ((names->count & (names->count - 1)) == 0) { /* doubles at each power of two */
        char **list = reallocarray(names->list, names->count ? 2 * names->count : 1, sizeof(*list));
        if (!list)
            return err_nomem(err);
        names->list = list;
    }
    names->list[names->count] = strndup(name, len);
    if (!names->list[names->count])
        return err_nomem(err);
    names->count++;
    return 0;
}

int
names_of_dir(struct names *names, const char *dir, struct err *err)
{
    DIR *open = opendir(dir);
    int result = 0;
    if (!open)
        return err_sys(err, errno, "cannot open '%s'", dir);
    errno = 0;
    /* Each stream is read by one thread. */
    for (const struct dirent *e = readdir(open);
         e && result == 0;  /* NOLINT(concurrency-mt-unsafe) */
         e = readdir(open)) /* NOLINT(concurrency-mt-unsafe) */
        if (e->d_name[0] != '.')
            result = names_add(names, e->d_name, strlen(e->d_name), err);
    if (result == 0 && errno != 0)
        result = err_sys(err, errno, "cannot list '%s'", dir);
    (void)closedir(open);
    return result;
}

void
names_release(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
    *names = (struct names){ 0 };
}

/* ---- workers ---- */
int
worker_init(struct worker *worker, struct load *load, bool connect, struct err *err)
{
    *worker = (struct worker){ .load = load };
    buf_init(&worker->answer.body, 8 << 20);
    worker->block = malloc(BLOCK_SIZE);
    if (!worker->block)
        return err_nomem(err);
    if (connect && !(worker->conn = load->transport->open(&load->endpoint, err)))
        return -1;
    return 0;
}

void
worker_release(struct worker *worker)
{
    if (worker->load && worker->conn)
        worker->load->transport->close(worker->conn);
    buf_release(&worker->answer.body);
    free(worker->block);
}

int
worker_send(struct worker *worker, const struct request *request, struct err *err)
{
    struct load *load = worker->load;
    struct answer *answer = &worker->answer;
    atomic_fetch_add(&load->tally.requests, 1);
    if (load->transport->send(worker->conn, request, answer, err) < 0)
        return -1;
    if (answer->status / 100 != 2)
        return err_set(err, ERR_STORE_BAD_ANSWER, "%s '%s' was answered %d: %.200s",
                       request->method, request->key, answer->status, buf_cstr(&answer->body));
    return 0;
}

struct pool {
    struct load *load;
    bool connect;
    size_t count;
    item_fn *fn;
    void *arg;
    atomic_size_t next;
    pthread_mutex_t lock; /* guards err, failed */
    bool failed;
    struct err err;
};

static void
pool_fail(struct pool *pool, const struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&pool->lock);
    if (!pool->failed)
        pool->err = *err;
    pool->failed = true;
    atomic_store(&pool->next, pool->count); /* the others stop at their next item */
}

static void *
work(void *arg)
{
    struct pool *pool = arg;
    struct worker worker;
    struct err err = { 0 };
    int result = worker_init(&worker, pool->load, pool->connect, &err);
    while (result == 0) {
        size_t item = atomic_fetch_add(&pool->next, 1);
        if (item >= pool->count)
            break;
        result = pool->fn(pool->arg, &worker, item, &err);
        atomic_fetch_add(&pool->load->tally.items, 1);
    }
    if (result < 0)
        pool_fail(pool, &err);
    worker_release(&worker);
    return NULL;
}

int
workers_run(struct load *load, bool connect, size_t count, item_fn *fn, void *arg, struct err *err)
{
    struct pool pool = { .load = load, .connect = connect, .count = count, .fn = fn, .arg = arg };
    pthread_t threads[256];
    unsigned wanted = load->connections < 256 ? load->connections : 256;
    unsigned started = 0;
    if (pthread_mutex_init(&pool.lock, NULL) != 0)
        return err_nomem(err);
    while (started < wanted && pthread_create(&threads[started], NULL, work, &pool) == 0)
        started++;
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    (void)pthread_mutex_destroy(&pool.lock);
    if (started < wanted)
        return err_nomem(err);
    if (pool.failed) {
        *err = pool.err;
        return -1;
    }
    return 0;
}
