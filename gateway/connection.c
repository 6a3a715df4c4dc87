#include "gateway/connection.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"

struct gateway_connection {
    struct gateway_connection *next, *prev;
    int fd;
    bool allowed;
    bool in_body;
    enum gateway_connection_phase phase;
    int64_t since_ns; /* when this head, this window of the body, or this part of the answer began */
    int64_t busy_ns;
    uint64_t window_bytes;
};

struct gateway_connection_table {
    struct gateway_connection_limits limits;
    pthread_mutex_t mutex; /* list, stopping, and what the connections hold */
    pthread_cond_t wake;
    struct gateway_connection *list;
    bool stopping;
    pthread_t reaper;
};

struct gateway_connection *
gateway_connection_add(struct gateway_connection_table *table, int fd, bool allowed)
{
    struct gateway_connection *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->fd = fd;
    c->allowed = allowed;
    c->since_ns = clock_mono_ns();
    pthread_mutex_lock(&table->mutex);
    c->next = table->list;
    if (c->next)
        c->next->prev = c;
    table->list = c;
    pthread_mutex_unlock(&table->mutex);
    return c;
}

void
gateway_connection_remove(struct gateway_connection_table *table, struct gateway_connection *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&table->mutex);
    if (c->next)
        c->next->prev = c->prev;
    if (c->prev)
        c->prev->next = c->next;
    else
        table->list = c->next;
    pthread_mutex_unlock(&table->mutex);
    free(c);
}

bool
gateway_connection_allowed(const struct gateway_connection *c)
{
    return c && c->allowed;
}

/* The clock of a body stands still while we are the ones who work on it. */
void
gateway_connection_enter(struct gateway_connection_table *table, struct gateway_connection *c,
                         enum gateway_connection_phase phase, uint64_t bytes)
{
    int64_t now = clock_mono_ns();
    if (!c)
        return;
    pthread_mutex_lock(&table->mutex);
    if (phase == GATEWAY_PHASE_BUSY) {
        c->busy_ns = now;
    } else if (phase == GATEWAY_PHASE_BODY && c->in_body) {
        c->since_ns += now - c->busy_ns;
        c->window_bytes += bytes;
    } else {
        c->in_body = phase == GATEWAY_PHASE_BODY;
        c->since_ns = now;
        c->window_bytes = bytes;
    }
    c->phase = phase;
    pthread_mutex_unlock(&table->mutex);
}

static bool
overdue_locked(const struct gateway_connection_limits *limits, struct gateway_connection *c,
               int64_t now)
{
    int64_t age = now - c->since_ns;
    if (c->phase == GATEWAY_PHASE_HEAD)
        return age > limits->head_ns;
    if (c->phase == GATEWAY_PHASE_REPLY)
        return age > limits->reply_ns;
    if (c->phase != GATEWAY_PHASE_BODY || age < limits->body_window_ns)
        return false;
    bool slow = c->window_bytes < limits->body_window_bytes;
    c->since_ns = now;
    c->window_bytes = 0;
    return slow;
}

static void
reap_locked(struct gateway_connection_table *table, int64_t now)
{
    static const char answer[] =
        "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    for (struct gateway_connection *c = table->list; c; c = c->next) {
        if (!overdue_locked(&table->limits, c, now))
            continue;
        if (c->phase != GATEWAY_PHASE_REPLY)
            (void)send(c->fd, answer, sizeof(answer) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)shutdown(c->fd, SHUT_RDWR); /* whoever reads it sees the end and closes */
        c->since_ns = now;
    }
}

static void *
reaper_main(void *arg)
{
    struct gateway_connection_table *table = arg;
    pthread_mutex_lock(&table->mutex);
    while (!table->stopping) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += 1;
        (void)pthread_cond_timedwait(&table->wake, &table->mutex, &until);
        if (!table->stopping)
            reap_locked(table, clock_mono_ns());
    }
    pthread_mutex_unlock(&table->mutex);
    return NULL;
}

static int
init_sync(struct gateway_connection_table *table)
{
    pthread_condattr_t attr;
    if (pthread_mutex_init(&table->mutex, NULL) != 0)
        return -1;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(&table->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (rc == 0 && pthread_create(&table->reaper, NULL, reaper_main, table) == 0)
        return 0;
    (void)pthread_mutex_destroy(&table->mutex);
    return -1;
}

struct gateway_connection_table *
gateway_connection_table_new(const struct gateway_connection_limits *limits, struct err *err)
{
    struct gateway_connection_table *table = calloc(1, sizeof(*table));
    if (table)
        table->limits = *limits;
    if (!table || init_sync(table) < 0) {
        free(table);
        (void)err_nomem(err);
        return NULL;
    }
    return table;
}

void
gateway_connection_table_free(struct gateway_connection_table *table)
{
    if (!table)
        return;
    pthread_mutex_lock(&table->mutex);
    table->stopping = true;
    (void)pthread_cond_signal(&table->wake);
    pthread_mutex_unlock(&table->mutex);
    (void)pthread_join(table->reaper, NULL);
    (void)pthread_cond_destroy(&table->wake);
    (void)pthread_mutex_destroy(&table->mutex);
    free(table);
}
