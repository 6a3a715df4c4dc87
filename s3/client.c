#include "s3/client.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "base/ulid.h"
#include "s3/answer.h"
#include "s3/sigv4.h"

#define IDLE_MAX (15 * NS_PER_S)
#define IDLE_MIN (NS_PER_S / 2)
/* An endpoint that has never answered is probably not there: no long patience with it. */
#define IDLE_UNKNOWN (8 * NS_PER_S)
#define PATIENCE_UNKNOWN (3 * NS_PER_S)
#define REST_MAX (100 * NS_PER_MS)       /* so soon an end is seen by who waits for his next try */
#define SKEW_SUSPECT (5 * 60 * NS_PER_S) /* stores refuse from 15 minutes on */

void
client_field(struct client_request *request, const char *name, const char *value)
{
    assert(request->field_count < CLIENT_FIELDS);
    request->field[request->field_count++] = (struct http_field){ name, value };
}

void
client_answer_init(struct client_answer *answer)
{
    memset(answer, 0, sizeof(*answer));
    http_response_init(&answer->response);
}

void
client_answer_release(struct client_answer *answer)
{
    http_response_release(&answer->response);
}

void
client_answer_reset(struct client_answer *answer)
{
    client_answer_release(answer);
    client_answer_init(answer);
}

int
client_full_key(const struct client *client, const char *key, struct buf *out, struct err *err)
{
    if (strlen(client->prefix) + strlen(key) > LIMIT_KEY) {
        return err_set(err, ERR_NAME_TOO_LONG, "'%.100s...' is too long for a key with its prefix",
                       key);
    }
    return buf_appendf(out, err, "%s%s", client->prefix, key);
}

int64_t
client_wall_ns(struct client *client)
{
    return clock_wall_ns() + atomic_load(&client->skew_ns);
}

int
client_host(const struct client *client, const struct client_endpoint *endpoint, struct buf *out,
            struct err *err)
{
    if (client->path_style)
        return buf_append_str(out, endpoint->host, err);
    return buf_appendf(out, err, "%s.%s", client->bucket, endpoint->host);
}

int
client_url(const struct client *client, const struct client_endpoint *endpoint,
           const char *canonical, struct buf *out, struct err *err)
{
    if (buf_append_str(out, endpoint->tls ? "https://" : "http://", err) < 0 ||
        client_host(client, endpoint, out, err) < 0)
        return -1;
    return buf_append_str(out, canonical, err);
}

/* ---- a signed request ---- */

struct draft {
    struct buf path, query, url, host, authorization;
    char date[TIME_ISO_BASIC_SIZE];
    int64_t wall_ns;
    struct s3_credentials keys;
    uint64_t generation;
    struct sigv4_header header[SIGV4_HEADERS_MAX];
    size_t header_count;
    struct http_field field[SIGV4_HEADERS_MAX];
};

static void
draft_init(struct draft *draft)
{
    draft->header_count = 0;
    buf_init(&draft->path, 4 * LIMIT_KEY);
    buf_init(&draft->query, LIMIT_HTTP_HEADERS);
    buf_init(&draft->url, LIMIT_HTTP_HEADERS);
    buf_init(&draft->host, 1024);
    buf_init(&draft->authorization, LIMIT_HTTP_HEADERS);
}

static void
draft_release(struct draft *draft)
{
    buf_release(&draft->path);
    buf_release(&draft->query);
    buf_release(&draft->url);
    buf_release(&draft->host);
    buf_release(&draft->authorization);
    secret_wipe(&draft->keys, sizeof(draft->keys));
}

static void
draft_header(struct draft *draft, const char *name, const char *value)
{
    draft->header[draft->header_count++] = (struct sigv4_header){ name, value };
}

static int
draft_names(struct client *client, const struct client_request *request, struct draft *draft,
            struct err *err)
{
    scope_buf key;
    buf_init(&key, LIMIT_KEY + 1);
    if (request->key && client_full_key(client, request->key, &key, err) < 0)
        return -1;
    if (canonical_path(client->endpoint.path, client->path_style ? client->bucket : NULL,
                       request->key ? buf_cstr(&key) : NULL, &draft->path, err) < 0 ||
        canonical_query_write(&request->query, &draft->query, err) < 0 ||
        client_host(client, &client->endpoint, &draft->host, err) < 0 ||
        client_url(client, &client->endpoint, buf_cstr(&draft->path), &draft->url, err) < 0)
        return -1;
    return draft->query.len ? buf_appendf(&draft->url, err, "?%s", draft->query.data) : 0;
}

static void
draft_headers(const struct client *client, const struct client_request *request,
              struct draft *draft)
{
    draft_header(draft, "host", buf_cstr(&draft->host));
    draft_header(draft, "x-amz-content-sha256",
                 request->payload_hash ? request->payload_hash : SIGV4_EMPTY_SHA256);
    draft_header(draft, "x-amz-date", draft->date);
    if (draft->keys.session_token[0])
        draft_header(draft, "x-amz-security-token", draft->keys.session_token);
    if (client->requester_pays)
        draft_header(draft, "x-amz-request-payer", "requester");
    for (size_t i = 0; i < request->field_count; i++)
        draft_header(draft, request->field[i].name, request->field[i].value);
}

int
client_keys(struct client *client, int64_t deadline_ns, struct s3_credentials *out,
            uint64_t *generation, struct err *err)
{
    *generation = 0;
    if (client->credentials)
        return client->credentials(client->credentials_arg, out, err);
    return credentials_get(client->keys, client_wall_ns(client), deadline_ns, out, generation, err);
}

static int
draft_sign(struct client *client, const struct client_request *request, struct draft *draft,
           struct err *err)
{
    if (client_keys(client, request->deadline_ns, &draft->keys, &draft->generation, err) < 0)
        return -1;
    /* Only now: the keys may have been waited for. */
    draft->wall_ns = client_wall_ns(client);
    time_iso_basic(draft->wall_ns, draft->date, sizeof(draft->date));
    draft_headers(client, request, draft);
    const struct sigv4_scope scope = { .access_key = draft->keys.access_key,
                                       .secret_key = draft->keys.secret_key,
                                       .region = client->region,
                                       .service = "s3" };
    const struct sigv4_request to_sign = {
        .method = request->method,
        .path = buf_cstr(&draft->path),
        .query = buf_cstr(&draft->query),
        .headers = draft->header,
        .header_count = draft->header_count,
        .payload_hash = request->payload_hash ? request->payload_hash : SIGV4_EMPTY_SHA256,
        .wall_ns = draft->wall_ns,
    };
    if (sigv4_authorization(&to_sign, &scope, &draft->authorization, err) < 0)
        return -1;
    for (size_t i = 0; i < draft->header_count; i++)
        draft->field[i] = (struct http_field){ draft->header[i].name, draft->header[i].value };
    draft->field[draft->header_count] =
        (struct http_field){ "authorization", buf_cstr(&draft->authorization) };
    return 0;
}

static int
draft_send(struct client *client, const struct client_request *request, const struct draft *draft,
           struct client_answer *answer, struct err *err)
{
    int64_t idle = (request->deadline_ns - clock_mono_ns()) / 2;
    int64_t idle_max = request->idle_max_ns ? request->idle_max_ns : IDLE_MAX;
    if (!atomic_load(&client->answered) && idle_max > IDLE_UNKNOWN)
        idle_max = IDLE_UNKNOWN;
    if (idle > idle_max)
        idle = idle_max;
    if (idle < IDLE_MIN)
        idle = IDLE_MIN;
    const struct http_request wire = {
        .method = request->method,
        .url = buf_cstr(&draft->url),
        .fields = draft->field,
        .field_count = draft->header_count + 1,
        .body = request->body,
        .deadline_ns = request->deadline_ns,
        .idle_ns = idle,
        .deadline_bonus_ns_per_mib = request->deadline_bonus_ns_per_mib,
        .loopback = client->loopback,
        .head = request->head,
        .sink = request->sink,
        .arg = request->arg,
    };
    return http_perform(client->http, &wire, &answer->response, err);
}

/* ---- the places of the limiter ---- */

static int
enter(struct client *client, int64_t deadline_ns, struct err *err)
{
    struct timespec until = { .tv_sec = (time_t)(deadline_ns / NS_PER_S),
                              .tv_nsec = (long)(deadline_ns % NS_PER_S) };
    scope_unlock pthread_mutex_t *held = scope_lock(&client->lock);
    if (retry_limit_enter(&client->limit))
        return 0;
    int64_t begun = clock_mono_ns();
    bool in_time = true;
    while (in_time && !retry_limit_enter(&client->limit))
        in_time = pthread_cond_timedwait(&client->freed, held, &until) != ETIMEDOUT;
    atomic_fetch_add(&client->limited_ns, (uint64_t)(clock_mono_ns() - begun));
    if (in_time)
        return 0;
    pthread_cond_signal(&client->freed); /* a signal that came with the time-out goes on */
    return err_set(err, ERR_STORE_TIMEOUT, "too many requests to the store are waiting");
}

static void
leave(struct client *client, enum retry_result result)
{
    pthread_mutex_lock(&client->lock);
    retry_limit_leave(&client->limit, result);
    /* One of those who wait for each free place: a success frees its own and may open another. */
    unsigned taken = client->limit.in_flight;
    for (unsigned i = taken; i < client->limit.window && i < taken + 2; i++)
        pthread_cond_signal(&client->freed);
    pthread_mutex_unlock(&client->lock);
}

int64_t
client_slack_ns(const struct client *client, uint64_t size)
{
    uint64_t per_s = client->up_limit.per_s;
    if (per_s == 0)
        return 0;
    /* Each of the others under way may have as much to send. */
    double seconds = (double)size / (double)per_s * client->limit.max;
    return (int64_t)(seconds < 86400 ? seconds : 86400) * NS_PER_S;
}

/* The user's own limit of requests per second. */
static int
wait_turn(struct client *client, int64_t deadline_ns, struct err *err)
{
    int64_t now = clock_mono_ns();
    int64_t wait = limit_take(&client->requests_limit, 1, now, deadline_ns - now);
    if (wait < 0)
        return err_set(err, ERR_STORE_TIMEOUT,
                       "the limit of requests to the store is used up for longer than may be "
                       "waited");
    if (wait > 0) {
        clock_sleep_ns(wait);
        atomic_fetch_add(&client->limited_ns, (uint64_t)wait);
    }
    return 0;
}

/* ---- judging the answer ---- */

static void
count_request(struct client *client, const struct client_request *request)
{
    atomic_fetch_add(&client->requests, 1);
    _Atomic uint64_t *kind = &client->gets;
    if (request->count != CLIENT_BY_METHOD)
        kind = request->count == CLIENT_UPLOAD ? &client->upload_calls : &client->other;
    else if (strcmp(request->method, "HEAD") == 0)
        kind = &client->heads;
    else if (strcmp(request->method, "DELETE") == 0)
        kind = &client->deletes;
    else if (strcmp(request->method, "PUT") == 0)
        kind = request->body && request->body->size == 0 && request->field_count &&
                       strcmp(request->field[0].name, "x-amz-copy-source") == 0
                   ? &client->copies
                   : &client->puts;
    else if (!request->key)
        kind = &client->lists;
    atomic_fetch_add(kind, 1);
}

/* The store's time from its Date header, when it says or suggests that our clock is off. */
static bool
learn_clock(struct client *client, const struct client_answer *answer, int64_t used_wall_ns)
{
    const char *date = http_response_field(&answer->response, "date");
    int64_t theirs;
    if (!date || time_parse_http(date, &theirs) < 0)
        return false;
    int64_t off = theirs - used_wall_ns;
    if (off < SKEW_SUSPECT && off > -SKEW_SUSPECT)
        return false;
    int64_t skew = theirs - clock_wall_ns();
    atomic_store(&client->skew_ns, skew);
    log_warn(s3, "this machine's clock differs from the store's offset_s=%" PRId64,
             skew / (int64_t)NS_PER_S);
    return true;
}

static void
describe(const struct client_request *request, char *out, size_t size)
{
    if (request->key)
        (void)snprintf(out, size, "'%.160s'", request->key);
    else
        (void)snprintf(out, size, "the bucket");
}

/* A whole answer: success, or the error that it means. */
static int
judge(struct client *client, const struct client_request *request, struct client_answer *answer,
      int64_t used_wall_ns, struct err *err)
{
    struct http_response *response = &answer->response;
    int status = response->status;
    bool success = status >= 200 && status < 300;
    bool is_error = response->body.len > 0 &&
                    xml_error_parse(response->body.data, response->body.len, &answer->error);
    if (success && !is_error) {
        atomic_store(&client->bucket_seen_ns, clock_mono_ns());
        answer->verdict = RETRY_NO;
        return 0;
    }
    bool is_head = strcmp(request->method, "HEAD") == 0;
    char what[200];
    describe(request, what, sizeof(what));
    answer->verdict = retry_classify(status, answer->error.code);
    answer->maybe_done =
        response->maybe_resent || (response->whole_request_sent && (success || status >= 500));
    if (status == 403 && (answer->verdict == RETRY_CLOCK || !is_error))
        answer->verdict = learn_clock(client, answer, used_wall_ns) ? RETRY_CLOCK : RETRY_NO;
    return answer_error(status, &answer->error, what, is_head, err);
}

/* docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html; ExpiredToken comes with 400 from AWS. Temporary keys may
 * also be told to have ended by a plain AccessDenied (RGW). */
static bool
keys_refused(const struct client_answer *answer, const struct draft *draft)
{
    static const char *const codes[] = { "ExpiredToken", "InvalidAccessKeyId", "InvalidToken",
                                         "TokenRefreshRequired", "InvalidSecurity" };
    const char *code = answer->error.code;
    if (answer->response.status != 400 && answer->response.status != 401 &&
        answer->response.status != 403)
        return false;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (strcmp(codes[i], code) == 0)
            return true;
    }
    return draft->keys.session_token[0] && strcmp(code, "AccessDenied") == 0;
}

static int
judge_transport(const struct client_request *request, struct client_answer *answer, struct err *err)
{
    char what[200];
    enum http_end end = answer->response.end;
    answer->verdict = end == HTTP_REFUSED || end == HTTP_LOCAL ? RETRY_NO : RETRY_AGAIN;
    answer->maybe_done = answer->response.whole_request_sent || answer->response.maybe_resent;
    describe(request, what, sizeof(what));
    return end == HTTP_REFUSED ? -1 : err_wrap(err, "%s", what);
}

static void
trace(const struct client_request *request, const struct draft *draft,
      const struct client_answer *answer, int64_t took_ns)
{
    log_trace(s3, "%s %s status=%d code=%s end=%d up=%" PRIu64 " down=%" PRIu64 " ms=%" PRId64,
              request->method, buf_cstr(&draft->url), answer->response.status,
              answer->error.code[0] ? answer->error.code : "-", (int)answer->response.end,
              request->body ? request->body->size : 0, answer->response.received,
              took_ns / (int64_t)NS_PER_MS);
}

static void
note_answer(struct client *client, const struct client_answer *answer)
{
    int64_t none = 0;
    enum http_end end = answer->response.end;
    if (answer->response.status) {
        atomic_store(&client->answered, true);
        atomic_store(&client->silent_ns, 0);
    } else if (end != HTTP_REFUSED && end != HTTP_LOCAL) {
        (void)atomic_compare_exchange_strong(&client->silent_ns, &none, clock_mono_ns());
    }
}

static int
exchange(struct client *client, const struct client_request *request, struct draft *draft,
         struct client_answer *answer, struct err *err)
{
    if (draft_names(client, request, draft, err) < 0 ||
        wait_turn(client, request->deadline_ns, err) < 0 ||
        enter(client, request->deadline_ns, err) < 0) {
        answer->verdict = RETRY_NO;
        return -1;
    }
    /* Signed only now: waiting for a place may have taken a while. */
    if (draft_sign(client, request, draft, err) < 0) {
        leave(client, RETRY_RESULT_BAD);
        answer->verdict = RETRY_NO;
        return -1;
    }
    int64_t begun = clock_mono_ns();
    count_request(client, request);
    answer->keys_generation = draft->generation;
    int result = draft_send(client, request, draft, answer, err);
    note_answer(client, answer);
    result = result == 0 ? judge(client, request, answer, draft->wall_ns, err)
                         : judge_transport(request, answer, err);
    if (result < 0 && answer->verdict == RETRY_NO && keys_refused(answer, draft))
        answer->verdict = RETRY_KEYS;
    trace(request, draft, answer, clock_mono_ns() - begun);
    if (result < 0 && answer->verdict == RETRY_SLOW)
        atomic_fetch_add(&client->slow_downs, 1);
    leave(client, result == 0                     ? RETRY_RESULT_GOOD
                  : answer->verdict == RETRY_SLOW ? RETRY_RESULT_SLOW
                                                  : RETRY_RESULT_BAD);
    return result;
}

int
client_attempt(struct client *client, const struct client_request *request,
               struct client_answer *answer, struct err *err)
{
    struct draft draft;
    draft_init(&draft);
    int result = exchange(client, request, &draft, answer, err);
    draft_release(&draft);
    if (request->body && result == 0)
        atomic_fetch_add(&client->bytes_up, request->body->size);
    atomic_fetch_add(&client->bytes_down, answer->response.received);
    if (result < 0)
        atomic_fetch_add(&client->errors, 1);
    return result;
}

/* Nothing has ever come from this endpoint, and now there is not even a connection: the caller hears of it soon. */
static bool
is_unknown_and_silent(struct client *client, struct client_try *tries,
                      const struct client_answer *answer)
{
    if (atomic_load(&client->answered))
        return false;
    int64_t now = clock_mono_ns();
    if (tries->first_failed_ns == 0)
        tries->first_failed_ns = now;
    return answer->response.end == HTTP_TIMEOUT || now - tries->first_failed_ns >= PATIENCE_UNKNOWN;
}

static bool
has_fresh_keys(struct client *client, struct client_try *tries, const struct client_answer *answer)
{
    bool first = !tries->keys_renewed;
    tries->keys_renewed = true;
    if (!first || !client->keys)
        return false;
    return credentials_renew(client->keys, answer->keys_generation, tries->deadline_ns);
}

void
client_end(struct client *client, int64_t deadline_ns)
{
    atomic_store(&client->ends_ns, deadline_ns != 0 ? deadline_ns : 1);
}

/* False: there is no time for it any more. */
static bool
rest(struct client *client, int64_t wait)
{
    int64_t until = clock_mono_ns() + wait;
    for (;;) {
        int64_t now = clock_mono_ns(), ends = atomic_load(&client->ends_ns);
        if (ends != 0 && until >= ends)
            return false;
        if (now >= until)
            return true;
        clock_sleep_ns(until - now < REST_MAX ? until - now : REST_MAX);
    }
}

bool
client_again(struct client *client, struct client_try *tries, const struct client_answer *answer)
{
    if (answer->verdict == RETRY_NO)
        return false;
    if (answer->verdict == RETRY_CLOCK) {
        bool first = !tries->clock_learned;
        tries->clock_learned = true;
        return first;
    }
    if (answer->verdict == RETRY_KEYS)
        return has_fresh_keys(client, tries, answer);
    if (is_unknown_and_silent(client, tries, answer))
        return false;
    uint64_t state = atomic_fetch_add(&client->seed, 0x9e3779b97f4a7c15u);
    int64_t wait = retry_backoff_ns(tries->attempt, &state);
    int64_t asked =
        retry_after_ns(http_response_field(&answer->response, "retry-after"), clock_wall_ns());
    if (wait < asked)
        wait = asked;
    if (clock_mono_ns() + wait >= tries->deadline_ns || !rest(client, wait))
        return false;
    tries->attempt++;
    atomic_fetch_add(&client->retries, 1);
    return true;
}

int
client_call(struct client *client, const struct client_request *request,
            struct client_answer *answer, struct err *err)
{
    struct client_try tries = { .deadline_ns = request->deadline_ns };
    for (;;) {
        int result = client_attempt(client, request, answer, err);
        if (result == 0 || !client_again(client, &tries, answer))
            return result;
        client_answer_reset(answer);
    }
}
