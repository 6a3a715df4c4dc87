#include "s3/credentials.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "s3/credentials_local.h"
#include "s3/credentials_remote.h"

#define AHEAD_MAX (300 * NS_PER_S)
#define LOOK_EVERY NS_PER_S
/* A request signed now must arrive while its keys are valid. */
#define LAST_USE NS_PER_S
#define PAUSE_MIN NS_PER_S
#define PAUSE_MAX (30 * NS_PER_S)
/* Refusals that come again and again (a right that is missing looks like keys that ended) make fewer and fewer fetches. */
#define RENEW_PAUSE (5 * NS_PER_S)
#define RENEW_PAUSE_MAX (60 * NS_PER_S)
#define RENEW_FORGET (600 * NS_PER_S)

/* What the fetching thread is to do, and what the callers wait for. */
enum work { WORK_NONE, WORK_WANTED, WORK_RUNNING };

struct credentials {
    s3_process_fn *process;
    void *process_arg;
    struct http *http;

    pthread_mutex_t
        lock; /* protects all below; never held while something is fetched from elsewhere */
    pthread_cond_t changed; /* CLOCK_MONOTONIC: work was wanted, or is done */
    struct s3_credentials keys;
    bool have;
    uint64_t generation;
    int64_t refresh_wall_ns; /* fetch anew from here on; 0: never */
    int64_t wall_offset_ns;  /* the callers' clock minus ours */

    enum credentials_origin origin; /* of the last look at this machine */
    struct credentials_stamps stamps;
    int64_t look_at_ns; /* mono: not again before */
    bool looked;

    enum work work;
    int64_t pause_until_ns; /* mono: no fetch before, after one that failed */
    unsigned failures;
    int64_t renew_after_ns; /* mono: a refusal makes no fetch before */
    int64_t renew_pause_ns; /* the pause that led to it */
    struct err why;         /* of the last failure */
    bool started;
    pthread_t thread;
    atomic_bool stop;
};

int64_t
credentials_refresh_ahead(int64_t life_ns)
{
    return life_ns / 3 < AHEAD_MAX ? life_ns / 3 : AHEAD_MAX;
}

/* ---- the keys that we have ---- */

static int64_t
now_wall(const struct credentials *c)
{
    return clock_wall_ns() + c->wall_offset_ns;
}

static bool
is_valid(const struct credentials *c)
{
    return c->have &&
           (c->keys.expires_wall_ns == 0 || now_wall(c) + LAST_USE < c->keys.expires_wall_ns);
}

static bool
is_due(const struct credentials *c)
{
    return !is_valid(c) || (c->refresh_wall_ns != 0 && now_wall(c) >= c->refresh_wall_ns);
}

static bool
same_keys(const struct s3_credentials *a, const struct s3_credentials *b)
{
    return strcmp(a->access_key, b->access_key) == 0 && strcmp(a->secret_key, b->secret_key) == 0 &&
           strcmp(a->session_token, b->session_token) == 0;
}

static void
adopt_locked(struct credentials *c, const struct s3_credentials *keys)
{
    int64_t now = now_wall(c);
    if (!c->have || !same_keys(&c->keys, keys))
        c->generation++;
    c->keys = *keys;
    c->have = true;
    c->refresh_wall_ns = 0;
    if (keys->expires_wall_ns != 0)
        c->refresh_wall_ns =
            keys->expires_wall_ns - credentials_refresh_ahead(keys->expires_wall_ns - now);
}

/* ---- this machine's environment and files ---- */

static void
forget_locked(struct credentials *c)
{
    c->have = false;
    credentials_wipe(&c->keys);
}

/* Looks again when it is time and a file changed. Only a first look that fails is an error: later ones leave the keys. */
static int
look_locked(struct credentials *c, bool now, struct err *err)
{
    struct credentials_stamps stamps;
    struct s3_credentials keys;
    enum credentials_origin origin;
    struct err own = ERR_INIT;
    if (c->looked && !now && clock_mono_ns() < c->look_at_ns)
        return 0;
    c->look_at_ns = clock_mono_ns() + LOOK_EVERY;
    credentials_local_stamp(&stamps);
    bool same = c->looked && credentials_local_same(&stamps, &c->stamps);
    if (same && !now)
        return 0;
    if (credentials_local_find(&keys, &origin, &own) < 0) {
        if (c->have) {
            log_warn(s3, "the new keys of the store cannot be read, the old ones stay: %s",
                     own.msg);
            return 0;
        }
        *err = own;
        return -1;
    }
    if (c->looked && !same && origin != CREDENTIALS_ENVIRONMENT)
        log_info(s3, "the profile files of the store's keys changed and were read again");
    /* Keys of another origin end with it, and a changed command may give others. */
    if (c->looked && !same && (origin != c->origin || origin == CREDENTIALS_PROCESS)) {
        c->pause_until_ns = 0;
        if (origin != CREDENTIALS_FILE && c->origin == CREDENTIALS_FILE)
            forget_locked(c);
        else if (c->have)
            c->refresh_wall_ns = 1;
    }
    c->looked = true;
    c->stamps = stamps;
    c->origin = origin;
    if (origin == CREDENTIALS_ENVIRONMENT || origin == CREDENTIALS_FILE)
        adopt_locked(c, &keys);
    credentials_wipe(&keys);
    return 0;
}

static bool
is_remote(const struct credentials *c)
{
    return c->origin == CREDENTIALS_PROCESS || c->origin == CREDENTIALS_NOWHERE;
}

/* ---- fetching ---- */

static int
nowhere(struct err *err)
{
    struct err own = ERR_INIT;
    scope_buf places;
    buf_init(&places, 1024);
    if (credentials_local_places(&places, &own) < 0)
        buf_clear(&places);
    return err_set(err, ERR_STORE_DENIED,
                   "no keys for the store: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not "
                   "set, %s has none, there is no container endpoint, and the instance endpoint "
                   "%s",
                   buf_cstr(&places),
                   credentials_instance_wanted() ? "does not answer" : "is switched off");
}

static int
fetch_process(struct credentials *c, struct s3_credentials *out, struct err *err)
{
    scope_buf text;
    buf_init(&text, CREDENTIALS_OUTPUT_MAX);
    if (!c->process)
        return err_set(err, ERR_STORE_DENIED,
                       "the profile has a credential_process, and nobody here may run it");
    int result = c->process(c->process_arg, &c->stop, &text, err);
    if (result == 0)
        result = credentials_from_json(buf_cstr(&text), text.len, CREDENTIALS_OF_PROCESS, out, err);
    secret_wipe(text.data, text.len);
    if (result == 0)
        return 0;
    if (err->code != ERR_NOMEM)
        err->code = ERR_STORE_DENIED;
    return err_wrap(err, "credential_process");
}

static int
fetch(struct credentials *c, enum credentials_origin origin, struct s3_credentials *out,
      struct err *err)
{
    struct err own = ERR_INIT;
    if (origin == CREDENTIALS_PROCESS)
        return fetch_process(c, out, err);
    if (credentials_container_wanted())
        return credentials_container_fetch(c->http, out, err);
    if (!credentials_instance_wanted())
        return nowhere(err);
    if (credentials_instance_fetch(c->http, out, &own) == 0)
        return 0;
    log_debug(s3, "no keys from the instance endpoint why=%s", own.msg);
    /* Silence means that this is no such machine; an answer that is no use is told. */
    if (strstr(own.msg, "does not answer"))
        return nowhere(err);
    *err = own;
    return -1;
}

static void
failed_locked(struct credentials *c, const struct err *why)
{
    int64_t pause = PAUSE_MIN << (c->failures < 5 ? c->failures : 5);
    c->failures++;
    c->why = *why;
    c->pause_until_ns = clock_mono_ns() + (pause < PAUSE_MAX ? pause : PAUSE_MAX);
    log_warn(s3, "the keys of the store cannot be fetched anew%s: %s",
             is_valid(c) ? ", the old ones are still valid" : "", why->msg);
}

static void
fetched_locked(struct credentials *c, const struct s3_credentials *keys)
{
    struct err why = ERR_INIT;
    if (keys->expires_wall_ns != 0 && keys->expires_wall_ns <= now_wall(c) + LAST_USE) {
        err_set(&why, ERR_STORE_DENIED, "the keys that came for the store have expired already");
        failed_locked(c, &why);
        return;
    }
    uint64_t before = c->generation;
    adopt_locked(c, keys);
    c->failures = 0;
    c->pause_until_ns = clock_mono_ns() + NS_PER_S;
    if (c->generation != before)
        log_info(s3, "fresh keys for the store, valid_s=%" PRId64,
                 keys->expires_wall_ns ? (keys->expires_wall_ns - now_wall(c)) / (int64_t)NS_PER_S
                                       : -1);
}

static void *
thread_main(void *arg)
{
    struct credentials *c = arg;
    pthread_setname_np(pthread_self(), "hf-keys");
    pthread_mutex_lock(&c->lock);
    while (!atomic_load(&c->stop)) {
        if (c->work != WORK_WANTED) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        struct s3_credentials keys;
        struct err err = ERR_INIT;
        enum credentials_origin origin = c->origin;
        c->work = WORK_RUNNING;
        pthread_mutex_unlock(&c->lock);
        int result = fetch(c, origin, &keys, &err);
        pthread_mutex_lock(&c->lock);
        if (result == 0)
            fetched_locked(c, &keys);
        else
            failed_locked(c, &err);
        credentials_wipe(&keys);
        c->work = WORK_NONE;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static int
want_locked(struct credentials *c, struct err *err)
{
    if (!c->started) {
        int rc = pthread_create(&c->thread, NULL, thread_main, c);
        if (rc != 0)
            return err_sys(err, rc, "cannot start the thread that fetches the store's keys");
        c->started = true;
    }
    if (c->work == WORK_NONE)
        c->work = WORK_WANTED;
    pthread_cond_broadcast(&c->changed);
    return 0;
}

/* False at the deadline. */
static bool
wait_locked(struct credentials *c, int64_t deadline_ns)
{
    struct timespec until = { .tv_sec = (time_t)(deadline_ns / NS_PER_S),
                              .tv_nsec = (long)(deadline_ns % NS_PER_S) };
    return pthread_cond_timedwait(&c->changed, &c->lock, &until) != ETIMEDOUT;
}

/* Keys from elsewhere: asks for them in time, and waits only when there are no valid ones. */
static int
need_remote_locked(struct credentials *c, int64_t deadline_ns, struct err *err)
{
    for (;;) {
        bool may = c->work == WORK_NONE && clock_mono_ns() >= c->pause_until_ns;
        if (is_due(c) && may && want_locked(c, err) < 0)
            return -1;
        if (is_valid(c))
            return 0;
        if (c->work == WORK_NONE) {
            *err = c->why;
            return -1;
        }
        if (!wait_locked(c, deadline_ns))
            return err_set(err, ERR_STORE_TIMEOUT, "the keys of the store are still being fetched");
    }
}

/* ---- the callers ---- */

int
credentials_get(struct credentials *c, int64_t wall_ns, int64_t deadline_ns,
                struct s3_credentials *out, uint64_t *generation, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&c->lock);
    (void)held;
    c->wall_offset_ns = wall_ns - clock_wall_ns();
    if (look_locked(c, false, err) < 0 ||
        (is_remote(c) && need_remote_locked(c, deadline_ns, err) < 0))
        return -1;
    *out = c->keys;
    *generation = c->generation;
    return 0;
}

bool
credentials_renew(struct credentials *c, uint64_t generation, int64_t deadline_ns)
{
    struct err ignored = ERR_INIT;
    scope_unlock pthread_mutex_t *held = scope_lock(&c->lock);
    (void)held;
    if (c->generation != generation)
        return true;
    int64_t now = clock_mono_ns();
    if (now < c->renew_after_ns || look_locked(c, true, &ignored) < 0)
        return false;
    bool anew = c->renew_pause_ns == 0 || now > c->renew_after_ns + RENEW_FORGET;
    c->renew_pause_ns = anew                                      ? RENEW_PAUSE
                        : 2 * c->renew_pause_ns < RENEW_PAUSE_MAX ? 2 * c->renew_pause_ns
                                                                  : RENEW_PAUSE_MAX;
    c->renew_after_ns = now + c->renew_pause_ns;
    if (!is_remote(c) || want_locked(c, &ignored) < 0)
        return c->generation != generation;
    while (c->work != WORK_NONE && wait_locked(c, deadline_ns)) {
    }
    return c->generation != generation;
}

struct credentials *
credentials_open(s3_process_fn *process, void *process_arg, struct err *err)
{
    pthread_condattr_t attributes;
    struct credentials *c = calloc(1, sizeof(*c));
    if (!c) {
        err_nomem(err);
        return NULL;
    }
    c->process = process;
    c->process_arg = process_arg;
    c->http = http_new(1, err);
    if (!c->http) {
        free(c);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return c;
}

void
credentials_close(struct credentials *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    atomic_store(&c->stop, true);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (c->started)
        pthread_join(c->thread, NULL);
    http_free(c->http);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    secret_wipe(c, sizeof(*c));
    free(c);
}

int
credentials_default(void *arg, struct s3_credentials *out, struct err *err)
{
    enum credentials_origin origin;
    (void)arg;
    if (credentials_local_find(out, &origin, err) < 0)
        return -1;
    if (origin == CREDENTIALS_ENVIRONMENT || origin == CREDENTIALS_FILE)
        return 0;
    return err_set(err, ERR_STORE_DENIED,
                   "no keys for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                   "write a profile in ~/.aws/credentials");
}
