#include "s3/probe.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "base/ulid.h"
#include "s3/probe_impl.h"

#define PROBE_DIR ".holdfast/probe/"
#define PROBE_KEY_SIZE 64
#define WRONG_ETAG "00000000000000000000000000000000"
#define PARALLEL 3

static enum store_yes_no
yes(bool it_is)
{
    return it_is ? STORE_YES : STORE_NO;
}

static bool
good(int status)
{
    return status >= 200 && status < 300;
}

static void
conclude_multi(const struct probe_seen *seen, struct store_caps *caps)
{
    bool works = (good(seen->complete_absent) || good(seen->complete)) && seen->kept_parts;
    caps->multipart = yes(works);
    caps->complete_if_absent = yes(works && good(seen->complete_absent) &&
                                   seen->complete_again == 412 && seen->kept_after_complete_again);
    caps->complete_if_match = yes(works && seen->complete_wrong_match == 412 &&
                                  seen->kept_after_complete_match && good(seen->complete_match));
    caps->copy_parts = yes(works && (seen->part_copied || seen->part_copied_twice));
    caps->copy_parts_decodes_twice = yes(!seen->part_copied && seen->part_copied_twice);
    caps->list_uploads = yes(works && seen->upload_listed);
    caps->delete_many = yes(seen->deleted_many);
}

void
probe_conclude(const struct probe_seen *seen, const struct provider *provider,
               struct store_caps *caps)
{
    bool absent = good(seen->create) && seen->create_again == 412 && seen->kept_after_create_again;
    bool refuses = seen->wrong_match == 412 && seen->kept_after_wrong_match;
    caps->put_if_absent = yes(absent);
    caps->put_atomic =
        yes(absent && seen->parallel_won == 1 && seen->parallel_lost == PARALLEL - 1);
    caps->put_if_match = yes(refuses && (good(seen->match_quoted) || good(seen->match_bare)));
    caps->etag_quoted = good(seen->match_quoted) ? STORE_YES
                        : good(seen->match_bare) ? STORE_NO
                                                 : STORE_NOT_PROBED;
    caps->delete_if_match = yes(seen->delete_wrong_match == 412 && seen->kept_after_delete);
    caps->server_side_copy = yes(good(seen->copy));
    caps->copy_source_if_match = yes(good(seen->copy) && seen->copy_wrong_source == 412);
    caps->copy_dest_conditions = yes(seen->copy_to_existing == 412 && seen->kept_after_copy);
    caps->list_consistent = yes(seen->listed);
    caps->folds_names = seen->name_folded ? STORE_YES
                        : seen->name_kept ? STORE_NO
                                          : STORE_NOT_PROBED;
    caps->long_meta = yes(seen->long_meta);
    caps->any_bytes = seen->bytes_asked ? yes(seen->bytes_kept) : STORE_NOT_PROBED;
    caps->presign = yes(seen->presign_works);
    conclude_multi(seen, caps);
    provider_limit_caps(provider, caps);
    /* Three writes of one key in a row: who minds that wants them further apart, as R2 does. */
    if (seen->slow_down && caps->min_write_interval_ns == 0)
        caps->min_write_interval_ns = NS_PER_S;
}

/* ---- the questions ---- */

struct probe {
    struct http_store *self;
    char key[PROBE_KEY_SIZE];
    char copy[PROBE_KEY_SIZE + 8];
    char race[PROBE_KEY_SIZE + 8];
    char source[PROBE_KEY_SIZE + 8]; /* of a copied part */
    char parts[PROBE_KEY_SIZE + 8];
    char etag[LIMIT_ETAG]; /* of `key` now */
    struct probe_seen seen;
};

/* One request, tried again only when the store was too busy to look at it; answers the status. */
static int
ask(struct probe *probe, struct client_request *request, char etag[LIMIT_ETAG])
{
    struct err err = ERR_INIT;
    struct client_answer answer;
    struct client_try tries = { .deadline_ns = request->deadline_ns };
    client_answer_init(&answer);
    int result = client_attempt(&probe->self->client, request, &answer, &err);
    if (answer.response.status == 429 && strcmp(request->key, probe->key) == 0)
        probe->seen.slow_down = true;
    while (result < 0 && (answer.verdict == RETRY_SLOW || answer.verdict == RETRY_CLOCK) &&
           client_again(&probe->self->client, &tries, &answer)) {
        client_answer_reset(&answer);
        result = client_attempt(&probe->self->client, request, &answer, &err);
    }
    int status = answer.response.status;
    if (result < 0 && good(status))
        status = 0; /* an error document in a 200, or a cut answer */
    const char *value = http_response_field(&answer.response, "etag");
    if (result == 0 && etag && value && etag_strip(value, etag) < 0)
        etag[0] = '\0';
    client_answer_release(&answer);
    return status;
}

/* The store's default deadline for each request. */
static void
begin(struct client_request *request, const char *method, const char *key)
{
    *request = (struct client_request){ .method = method,
                                        .key = key,
                                        .deadline_ns = http_store_deadline(0, 0) };
}

static int
put_text(struct probe *probe, const char *key, const char *text, const char *header,
         const char *value, char etag[LIMIT_ETAG])
{
    struct client_request request;
    struct err err = ERR_INIT;
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX];
    const struct store_body body = { .mem = text, .fd = -1, .size = strlen(text) };
    if (sha256(text, strlen(text), digest, &err) < 0)
        return 0;
    hex_encode(digest, sizeof(digest), hex);
    begin(&request, "PUT", key);
    request.body = &body;
    request.payload_hash = hex;
    if (header)
        client_field(&request, header, value);
    return ask(probe, &request, etag);
}

/* Does the object still hold `text`? Asked as a plain GET of the whole. */
static bool
holds(struct probe *probe, const char *key, const char *text)
{
    struct client_request request;
    struct client_answer answer;
    struct err err = ERR_INIT;
    begin(&request, "GET", key);
    client_answer_init(&answer);
    int result = client_call(&probe->self->client, &request, &answer, &err);
    bool same = result == 0 && strcmp(buf_cstr(&answer.response.body), text) == 0;
    client_answer_release(&answer);
    return same;
}

static int
delete_key(struct probe *probe, const char *key, const char *if_match)
{
    struct client_request request;
    begin(&request, "DELETE", key);
    if (if_match)
        client_field(&request, "if-match", if_match);
    return ask(probe, &request, NULL);
}

static int
copy_key(struct probe *probe, const char *header, const char *value)
{
    static const struct store_body empty = { .mem = "", .fd = -1, .size = 0 };
    struct client *client = &probe->self->client;
    struct client_request request;
    struct err err = ERR_INIT;
    scope_buf key;
    scope_buf source;
    buf_init(&key, LIMIT_KEY + 1);
    buf_init(&source, 4 * LIMIT_KEY);
    if (client_full_key(client, probe->key, &key, &err) < 0 ||
        canonical_path("", client->bucket, buf_cstr(&key), &source, &err) < 0)
        return 0;
    begin(&request, "PUT", probe->copy);
    request.body = &empty;
    client_field(&request, "x-amz-copy-source", buf_cstr(&source));
    if (header)
        client_field(&request, header, value);
    return ask(probe, &request, NULL);
}

static void
ask_conditions(struct probe *probe)
{
    struct probe_seen *seen = &probe->seen;
    char quoted[LIMIT_ETAG + 3];
    seen->create_again = put_text(probe, probe->key, "two", "if-none-match", "*", NULL);
    seen->kept_after_create_again = holds(probe, probe->key, "one");
    seen->wrong_match = put_text(probe, probe->key, "two", "if-match", "\"" WRONG_ETAG "\"", NULL);
    seen->kept_after_wrong_match = holds(probe, probe->key, "one");
    (void)snprintf(quoted, sizeof(quoted), "\"%s\"", probe->etag);
    /* Bytes of another length each time, so that what is there shows whose it is. */
    seen->match_quoted = put_text(probe, probe->key, "three", "if-match", quoted, probe->etag);
    if (good(seen->match_quoted))
        return;
    seen->match_bare = put_text(probe, probe->key, "three", "if-match", probe->etag, probe->etag);
}

struct racer {
    struct probe *probe;
    char text[8];
    int status;
    pthread_t thread;
    bool running;
};

static void *
race(void *arg)
{
    struct racer *racer = arg;
    racer->status =
        put_text(racer->probe, racer->probe->race, racer->text, "if-none-match", "*", NULL);
    return NULL;
}

static void
ask_race(struct probe *probe)
{
    struct racer racer[PARALLEL];
    for (int i = 0; i < PARALLEL; i++) {
        racer[i] = (struct racer){ .probe = probe };
        (void)snprintf(racer[i].text, sizeof(racer[i].text), "%d", i);
        racer[i].running = pthread_create(&racer[i].thread, NULL, race, &racer[i]) == 0;
    }
    for (int i = 0; i < PARALLEL; i++) {
        if (racer[i].running)
            pthread_join(racer[i].thread, NULL);
        if (good(racer[i].status))
            probe->seen.parallel_won++;
        else if (racer[i].status >= 400) /* RGW's losers may see a 500 */
            probe->seen.parallel_lost++;
    }
}

static void
ask_presign(struct probe *probe)
{
    struct err err = ERR_INIT;
    const struct store_presign req = { .method = "GET", .key = probe->key, .expires_s = 60 };
    struct http_response response;
    scope_buf url;
    buf_init(&url, LIMIT_HTTP_HEADERS);
    /* Readers' name of the store may not be reachable from here. */
    if (probe->self->client.public_endpoint.host) {
        probe->seen.presign_works = true;
        return;
    }
    if (http_store_presign(&probe->self->store, &req, &url, &err) < 0)
        return;
    const struct http_request request = { .method = "GET",
                                          .url = buf_cstr(&url),
                                          .deadline_ns = http_store_deadline(0, 0),
                                          .idle_ns = 10 * 1000000000ll,
                                          .loopback = probe->self->client.loopback };
    http_response_init(&response);
    if (http_perform(probe->self->client.http, &request, &response, &err) == 0)
        probe->seen.presign_works = response.status == 200 && response.received > 0;
    http_response_release(&response);
}

static void
ask_delete_and_copy(struct probe *probe)
{
    struct probe_seen *seen = &probe->seen;
    const char *now = good(seen->match_quoted) || good(seen->match_bare) ? "three" : "one";
    seen->copy_wrong_source = copy_key(probe, "x-amz-copy-source-if-match", "\"" WRONG_ETAG "\"");
    seen->copy = copy_key(probe, NULL, NULL);
    if (good(seen->copy)) {
        (void)put_text(probe, probe->copy, "keep", NULL, NULL, NULL);
        seen->copy_to_existing = copy_key(probe, "if-none-match", "*");
        seen->kept_after_copy = holds(probe, probe->copy, "keep");
    }
    seen->delete_wrong_match = delete_key(probe, probe->key, "\"" WRONG_ETAG "\"");
    seen->kept_after_delete = holds(probe, probe->key, now);
}

static void
clean_up(struct probe *probe)
{
    (void)delete_key(probe, probe->key, NULL);
    (void)delete_key(probe, probe->copy, NULL);
    (void)delete_key(probe, probe->race, NULL);
    (void)delete_key(probe, probe->source, NULL);
    if (!probe->seen.deleted_many)
        (void)delete_key(probe, probe->parts, NULL);
}

/* Whoever reads the message knows the store, not the scratch key: "'key': why" becomes "store 'url': why". */
static int
name_store(const struct probe *probe, struct err *err)
{
    char prefix[PROBE_KEY_SIZE + 8];
    (void)snprintf(prefix, sizeof(prefix), "'%s': ", probe->key);
    size_t len = strlen(prefix);
    if (strncmp(err->msg, prefix, len) == 0)
        memmove(err->msg, err->msg + len, strlen(err->msg + len) + 1);
    return err_wrap(err, "store '%s'", probe->self->store.url);
}

/* The first write must work at all: with the condition, or without where conditions are refused (501). */
static int
create(struct probe *probe, struct err *err)
{
    const struct store_put plain = { .key = probe->key,
                                     .body = { .mem = "one", .fd = -1, .size = 3 } };
    struct store_put_result res;
    probe->seen.create = put_text(probe, probe->key, "one", "if-none-match", "*", probe->etag);
    if (good(probe->seen.create))
        return 0;
    if (http_store_put(&probe->self->store, &plain, &res, err) < 0)
        return name_store(probe, err);
    memcpy(probe->etag, res.etag, sizeof(res.etag));
    return 0;
}

/* ---- three threads, since every start waits for the answers ---- */

static void *
ask_names(void *arg)
{
    struct probe *probe = arg;
    ask_race(probe);
    probe_names(probe->self, probe->key, &probe->seen);
    return NULL;
}

static void *
ask_parts(void *arg)
{
    struct probe *probe = arg;
    (void)put_text(probe, probe->source, "source", NULL, NULL, NULL);
    probe_multi(probe->self, probe->parts, probe->source, &probe->seen);
    return NULL;
}

/* In a thread of its own, or here when there is none. */
static void
start_asking(pthread_t *thread, bool *running, void *(*questions)(void *), struct probe *probe)
{
    *running = pthread_create(thread, NULL, questions, probe) == 0;
    if (!*running)
        (void)questions(probe);
}

/* Each thread has its own keys and its own members of probe->seen. Parts need to know how ETags are sent. */
static void
ask_all(struct probe *probe)
{
    pthread_t names;
    pthread_t parts;
    bool names_run;
    bool parts_run;
    start_asking(&names, &names_run, ask_names, probe);
    ask_conditions(probe);
    start_asking(&parts, &parts_run, ask_parts, probe);
    ask_presign(probe);
    ask_delete_and_copy(probe);
    if (names_run)
        pthread_join(names, NULL);
    if (parts_run)
        pthread_join(parts, NULL);
}

int
http_store_probe(struct store *store, struct store_caps *caps, struct err *err)
{
    struct probe probe = { .self = http_store_of(store) };
    int64_t began = clock_mono_ns();
    char id[ULID_SIZE];
    if (ulid_new(id, err) < 0)
        return -1;
    (void)snprintf(probe.key, sizeof(probe.key), PROBE_DIR "%s", id);
    (void)snprintf(probe.copy, sizeof(probe.copy), "%s-copy", probe.key);
    (void)snprintf(probe.parts, sizeof(probe.parts), "%s-parts", probe.key);
    (void)snprintf(probe.race, sizeof(probe.race), "%s-race", probe.key);
    (void)snprintf(probe.source, sizeof(probe.source), "%s-a+b%%41", probe.key);
    if (create(&probe, err) < 0)
        return -1;
    ask_all(&probe);
    clean_up(&probe);
    probe_conclude(&probe.seen, probe.self->client.provider, caps);
    client_limit_caps(&probe.self->client, caps);
    store->caps = *caps;
    log_info(s3, "store asked url=%s took_ms=%lld", store->url,
             (long long)((clock_mono_ns() - began) / NS_PER_MS));
    return 0;
}
