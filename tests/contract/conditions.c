/* Conditional writes, one at a time and in parallel (INV-3). */
#include <pthread.h>

#include "tests/contract/contract.h"

/* Whether the store can; when it says that it cannot, the refusal is checked here. */
static bool
can_put(struct ctx *ctx, enum store_cond_kind kind)
{
    const struct store_caps *caps = &ctx->store->caps;
    const char *key = key_of(ctx, "refused");
    int rc;

    if (kind == STORE_COND_ABSENT) {
        if (has_cap(ctx, caps->put_if_absent, "put_if_absent") || ctx->skipped)
            return !ctx->skipped;
        rc = put_absent(ctx, key, TEXT("x"));
    } else {
        if (has_cap(ctx, caps->put_if_match, "put_if_match") || ctx->skipped)
            return !ctx->skipped;
        rc = put_match(ctx, key, TEXT("x"), "0123");
    }
    if (rc != -1 || ctx->err.code != ERR_STORE_UNSUPPORTED || ctx->res.outcome != STORE_NOT_DONE ||
        !is_absent(ctx, key))
        fail_case(ctx, __FILE__, __LINE__, "a missing capability is refused");
    return false;
}

static void
create(struct ctx *ctx)
{
    const char *key = key_of(ctx, "new");

    if (!can_put(ctx, STORE_COND_ABSENT))
        return;
    CHECK(ctx, put_absent(ctx, key, TEXT("first")) == 0 && ctx->res.outcome == STORE_DONE);
    CHECK(ctx, holds(ctx, key, TEXT("first")));
}

/* B208 */
static void
create_existing(struct ctx *ctx)
{
    const char *key = key_of(ctx, "new");

    if (!can_put(ctx, STORE_COND_ABSENT))
        return;
    CHECK(ctx, put(ctx, key, TEXT("first")) == 0);
    CHECK_ERROR(ctx, put_absent(ctx, key, TEXT("second")), ERR_CONFLICT);
    CHECK(ctx, ctx->res.outcome == STORE_REFUSED);
    CHECK(ctx, holds(ctx, key, TEXT("first")));
    CHECK(ctx, put(ctx, key, "", 0) == 0);
    CHECK_ERROR(ctx, put_absent(ctx, key, TEXT("third")), ERR_CONFLICT);
    CHECK(ctx, holds(ctx, key, "", 0));
}

static void
create_deleted(struct ctx *ctx)
{
    const char *key = key_of(ctx, "new");

    if (!can_put(ctx, STORE_COND_ABSENT))
        return;
    CHECK(ctx, put_absent(ctx, key, TEXT("first")) == 0);
    CHECK(ctx, del(ctx, key, NULL) == 0);
    CHECK(ctx, put_absent(ctx, key, TEXT("second")) == 0);
    CHECK(ctx, holds(ctx, key, TEXT("second")));
}

static void
create_beside_directory(struct ctx *ctx)
{
    if (!can_put(ctx, STORE_COND_ABSENT))
        return;
    CHECK(ctx, put_absent(ctx, key_of(ctx, "n/x"), TEXT("1")) == 0);
    CHECK(ctx, put_absent(ctx, key_of(ctx, "n"), TEXT("2")) == 0);
    CHECK_ERROR(ctx, put_absent(ctx, key_of(ctx, "n"), TEXT("3")), ERR_CONFLICT);
    CHECK(ctx, put_absent(ctx, key_of(ctx, "n/"), TEXT("4")) == 0);
    CHECK_ERROR(ctx, put_absent(ctx, key_of(ctx, "n/"), TEXT("5")), ERR_CONFLICT);
    CHECK(ctx, holds(ctx, key_of(ctx, "n"), TEXT("2")));
    CHECK(ctx, holds(ctx, key_of(ctx, "n/"), TEXT("4")));
}

static void
swap(struct ctx *ctx)
{
    const char *key = key_of(ctx, "swap");
    char first[LIMIT_ETAG];

    if (!can_put(ctx, STORE_COND_MATCH))
        return;
    CHECK(ctx, put(ctx, key, TEXT("first")) == 0);
    memcpy(first, ctx->res.etag, sizeof(first));
    CHECK(ctx, put_match(ctx, key, TEXT("second"), first) == 0);
    CHECK(ctx, ctx->res.outcome == STORE_DONE && strcmp(first, ctx->res.etag) != 0);
    CHECK(ctx, holds(ctx, key, TEXT("second")));
}

static void
swap_old(struct ctx *ctx)
{
    const char *key = key_of(ctx, "swap");
    char first[LIMIT_ETAG];

    if (!can_put(ctx, STORE_COND_MATCH))
        return;
    CHECK(ctx, put(ctx, key, TEXT("first")) == 0);
    memcpy(first, ctx->res.etag, sizeof(first));
    CHECK(ctx, put(ctx, key, TEXT("second")) == 0);
    CHECK_ERROR(ctx, put_match(ctx, key, TEXT("third"), first), ERR_CONFLICT);
    CHECK(ctx, ctx->res.outcome == STORE_REFUSED);
    CHECK(ctx, holds(ctx, key, TEXT("second")));
}

static void
swap_wrong(struct ctx *ctx)
{
    const char *key = key_of(ctx, "swap");

    if (!can_put(ctx, STORE_COND_MATCH))
        return;
    CHECK(ctx, put(ctx, key, TEXT("first")) == 0);
    CHECK_ERROR(ctx, put_match(ctx, key, TEXT("x"), "00000000000000000000000000000000"),
                ERR_CONFLICT);
    CHECK(ctx, ctx->res.outcome == STORE_REFUSED);
    CHECK(ctx, holds(ctx, key, TEXT("first")));
}

static void
swap_missing(struct ctx *ctx)
{
    const char *key = key_of(ctx, "swap");

    if (!can_put(ctx, STORE_COND_MATCH))
        return;
    CHECK_ERROR(ctx, put_match(ctx, key, TEXT("x"), "00000000000000000000000000000000"),
                ERR_CONFLICT);
    CHECK(ctx, ctx->res.outcome == STORE_REFUSED);
    CHECK(ctx, is_absent(ctx, key));
}

static void
swap_to_zero_and_back(struct ctx *ctx)
{
    const char *key = key_of(ctx, "swap");

    if (!can_put(ctx, STORE_COND_MATCH))
        return;
    CHECK(ctx, put(ctx, key, TEXT("first")) == 0);
    CHECK(ctx, put_match(ctx, key, "", 0, ctx->res.etag) == 0);
    CHECK(ctx, holds(ctx, key, "", 0));
    CHECK(ctx, put_match(ctx, key, TEXT("back"), ctx->object.etag) == 0);
    CHECK(ctx, holds(ctx, key, TEXT("back")));
}

static void
etag_of_head_swaps(struct ctx *ctx)
{
    const char *key = key_of(ctx, "swap");

    if (!can_put(ctx, STORE_COND_MATCH))
        return;
    CHECK(ctx, put(ctx, key, TEXT("first")) == 0);
    CHECK(ctx, head(ctx, key) == 0);
    CHECK(ctx, put_match(ctx, key, TEXT("second"), ctx->object.etag) == 0);
}

/* ---- parallel ---- */

#define THREADS 16

struct racer {
    struct ctx ctx; /* its own results */
    pthread_barrier_t *start;
    const char *key;
    const char *etag; /* NULL: create */
    bool plain;
    unsigned number;
    int rc;
};

static void *
race(void *arg)
{
    struct racer *racer = arg;
    char body[64];

    (void)snprintf(body, sizeof(body), "racer %u", racer->number);
    pthread_barrier_wait(racer->start);
    if (racer->plain)
        racer->rc = put(&racer->ctx, racer->key, TEXT(body));
    else if (racer->etag)
        racer->rc = put_match(&racer->ctx, racer->key, TEXT(body), racer->etag);
    else
        racer->rc = put_absent(&racer->ctx, racer->key, TEXT(body));
    return NULL;
}

/* Lets 16 threads write one key at the same moment; answers the number of winners. */
static unsigned
run_race(struct ctx *ctx, struct racer racers[THREADS], const char *key, const char *etag,
         bool plain)
{
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    unsigned won = 0;

    pthread_barrier_init(&start, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        racers[i] = (struct racer){
            .ctx = { .store = ctx->store, .err = ERR_INIT },
            .start = &start,
            .key = key,
            .etag = etag,
            .plain = plain,
            .number = i,
        };
        if (pthread_create(&threads[i], NULL, race, &racers[i]) != 0)
            abort(); /* the others would wait for ever */
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        won += racers[i].rc == 0 ? 1 : 0;
    }
    pthread_barrier_destroy(&start);
    return won;
}

/* Exactly one racer won, the key holds its bytes, and every loser knows that it lost. */
static void
check_one_winner(struct ctx *ctx, const struct racer racers[THREADS], const char *key)
{
    char body[64];

    for (unsigned i = 0; i < THREADS; i++) {
        const struct racer *racer = &racers[i];
        ctx->err = racer->ctx.err;
        (void)snprintf(body, sizeof(body), "racer %u", i);
        bool right = racer->rc == 0
                         ? holds(ctx, key, TEXT(body))
                         : ctx->err.code == ERR_CONFLICT || ctx->err.code == ERR_STORE_RACE;
        CHECK(ctx, right);
    }
}

/* B101 */
static void
parallel_creates(struct ctx *ctx)
{
    const char *key = key_of(ctx, "dir/race");
    static struct racer racers[THREADS];
    unsigned won;

    if (!can_put(ctx, STORE_COND_ABSENT) ||
        !has_cap(ctx, ctx->store->caps.put_atomic, "put_atomic"))
        return;
    won = run_race(ctx, racers, key, NULL, false);
    CHECK(ctx, won == 1);
    check_one_winner(ctx, racers, key);
}

static void
parallel_swaps(struct ctx *ctx)
{
    const char *key = key_of(ctx, "race");
    static struct racer racers[THREADS];
    unsigned won;

    if (!can_put(ctx, STORE_COND_MATCH) || !has_cap(ctx, ctx->store->caps.put_atomic, "put_atomic"))
        return;
    CHECK(ctx, put(ctx, key, TEXT("start")) == 0);
    won = run_race(ctx, racers, key, ctx->res.etag, false);
    CHECK(ctx, won == 1);
    check_one_winner(ctx, racers, key);
}

/* Without conditions each write is whole, and the last one stays. */
static void
parallel_overwrites(struct ctx *ctx)
{
    const char *key = key_of(ctx, "race");
    static struct racer racers[THREADS];
    char body[64];
    bool found = false;

    CHECK(ctx, run_race(ctx, racers, key, NULL, true) == THREADS);
    CHECK(ctx, get(ctx, key) == 0);
    for (unsigned i = 0; i < THREADS; i++) {
        (void)snprintf(body, sizeof(body), "racer %u", i);
        found = found || strcmp(buf_cstr(&ctx->got), body) == 0;
    }
    CHECK(ctx, found);
}

#define COUNTERS 4
#define COUNTS 10

/* Adds one to the number in the object, COUNTS times, by compare and swap. */
static void *
count_up(void *arg)
{
    struct racer *racer = arg;
    struct ctx *ctx = &racer->ctx;

    buf_init(&ctx->got, 1);
    store_object_init(&ctx->object);
    for (int done = 0; done < COUNTS;) {
        char text[32];
        if (get(ctx, racer->key) < 0)
            break;
        (void)snprintf(text, sizeof(text), "%ld", strtol(buf_cstr(&ctx->got), NULL, 10) + 1);
        if (put_match(ctx, racer->key, TEXT(text), ctx->object.etag) == 0)
            done++;
        else if (ctx->err.code != ERR_CONFLICT && ctx->err.code != ERR_STORE_RACE)
            break;
        racer->rc = done;
    }
    buf_release(&ctx->got);
    store_object_release(&ctx->object);
    return NULL;
}

/* No increment is lost: a lost update would leave a smaller number. */
static void
parallel_counter(struct ctx *ctx)
{
    struct racer racers[COUNTERS];
    pthread_t threads[COUNTERS];
    const char *key = key_of(ctx, "counter");

    if (!can_put(ctx, STORE_COND_MATCH))
        return;
    CHECK(ctx, put(ctx, key, TEXT("0")) == 0);
    for (unsigned i = 0; i < COUNTERS; i++) {
        racers[i] = (struct racer){ .ctx = { .store = ctx->store, .err = ERR_INIT }, .key = key };
        CHECK(ctx, pthread_create(&threads[i], NULL, count_up, &racers[i]) == 0);
    }
    for (unsigned i = 0; i < COUNTERS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < COUNTERS; i++) {
        ctx->err = racers[i].ctx.err;
        CHECK(ctx, racers[i].rc == COUNTS);
    }
    CHECK(ctx, holds(ctx, key, TEXT("40")));
}

const struct contract_case condition_cases[] = {
    { "create", create },
    { "create an existing key", create_existing },
    { "create a deleted key", create_deleted },
    { "create beside a directory", create_beside_directory },
    { "swap", swap },
    { "swap of an old version", swap_old },
    { "swap with a wrong ETag", swap_wrong },
    { "swap of a missing key", swap_missing },
    { "swap to zero bytes and back", swap_to_zero_and_back },
    { "swap with the ETag of a head", etag_of_head_swaps },
    { "16 parallel creates: exactly one", parallel_creates },
    { "16 parallel swaps: exactly one", parallel_swaps },
    { "16 parallel overwrites: one whole", parallel_overwrites },
    { "parallel counter: no lost update", parallel_counter },
    { NULL, NULL },
};
