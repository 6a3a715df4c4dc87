/*
 * contract [--name NAME] [--only CASE] [--wrap fault|weak] [--list] URL
 *
 * Runs the contract suite on a store and prints the probe's duration and what it found missing, a line per case, with the
 * missing capability for each one skipped, and one at the end: "NAME: N run, N skipped, N failed".
 * --wrap fault puts a fault wrapper without faults around the store, --wrap weak one that ignores all conditions (so
 * that the probe finds them missing).
 */
#include <getopt.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/ulid.h"
#include "s3/fault.h"
#include "s3/open.h"
#include "tests/contract/contract.h"

static const struct contract_case *const groups[] = {
    object_cases, copy_cases, condition_cases, key_cases, list_cases, multipart_cases, other_cases,
};
#define GROUP_COUNT (sizeof(groups) / sizeof(groups[0]))

struct options {
    const char *url;
    const char *name;
    const char *only;
    const char *wrap;
    bool list;
};

struct totals {
    unsigned run;
    unsigned skipped;
    unsigned failed;
};

struct leftovers {
    struct buf keys; /* NUL-separated */
};

static int
note_key(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct leftovers *left = arg;

    return buf_append(&left->keys, entry->key, strlen(entry->key) + 1, err);
}

/* Deletes what the case left. */
static int
clean(struct ctx *ctx)
{
    struct leftovers left;
    struct store_list req = { .prefix = ctx->base, .fn = note_key, .arg = &left };
    int rc;

    buf_init(&left.keys, 16u << 20);
    settle(ctx);
    rc = store_list(ctx->store, &req, &ctx->err);
    for (size_t at = 0; rc == 0 && at < left.keys.len; at += strlen(left.keys.data + at) + 1)
        rc = del(ctx, left.keys.data + at, NULL);
    buf_release(&left.keys);
    return rc;
}

static void
run_case(struct ctx *ctx, const struct contract_case *test, struct totals *totals)
{
    ctx->failed = ctx->skipped = false;
    ctx->lacks = NULL;
    ctx->err = (struct err)ERR_INIT;
    buf_init(&ctx->got, 1);
    store_object_init(&ctx->object);
    test->run(ctx);
    if (clean(ctx) < 0 && !ctx->failed)
        fail_case(ctx, __FILE__, __LINE__, "clean up");
    if (ctx->failed) {
        totals->failed++;
        printf("FAIL %s: %s\n", test->name, ctx->note);
    } else if (ctx->skipped) {
        printf("SKIP %s (%s)\n", test->name, ctx->note);
    } else if (ctx->lacks) {
        printf("SKIP %s (no %s)\n", test->name, ctx->lacks);
    } else {
        printf("PASS %s\n", test->name);
    }
    bool skipped = !ctx->failed && (ctx->skipped || ctx->lacks);
    totals->skipped += skipped;
    totals->run += !skipped;
    buf_release(&ctx->got);
    store_object_release(&ctx->object);
    (void)fflush(stdout);
}

static int
run_all(struct store *store, const struct options *options, struct totals *totals, struct err *err)
{
    struct ctx ctx = { .store = store };
    char id[ULID_SIZE];
    unsigned number = 0;

    if (ulid_new(id, err) < 0)
        return -1;
    for (size_t g = 0; g < GROUP_COUNT; g++) {
        for (const struct contract_case *test = groups[g]; test->name; test++) {
            (void)snprintf(ctx.base, sizeof(ctx.base), "contract-%s/%u/", id, ++number);
            if (!options->only || strcmp(options->only, test->name) == 0)
                run_case(&ctx, test, totals);
        }
    }
    return 0;
}

static void
print_names(void)
{
    for (size_t g = 0; g < GROUP_COUNT; g++) {
        for (const struct contract_case *test = groups[g]; test->name; test++)
            printf("%s\n", test->name);
    }
}

static struct store *
open_store(const struct options *options, struct err *err)
{
    struct store_open_args args = { .url = options->url };
    struct fault_plan plan = { .seed = 1 };
    scope_store *store = store_open(&args, err);
    struct store *wrapped;

    if (!store || !options->wrap)
        return steal(&store);
    if (strcmp(options->wrap, "weak") == 0)
        plan.ignore_put_conditions = plan.ignore_delete_conditions = plan.ignore_copy_conditions =
            true;
    wrapped = fault_store_wrap(store, &plan, err);
    if (wrapped)
        steal(&store);
    return wrapped;
}

/* What the probe found missing, as doctor says it. */
static int
print_habits(const struct store *store, int64_t took_ns, struct err *err)
{
    scope_buf words;

    buf_init(&words, 16384);
    if (store_caps_explain(&store->caps, &words, err) < 0)
        return -1;
    printf("PROBED in %lld ms\n", (long long)(took_ns / NS_PER_MS));
    for (char *line = words.data, *end; line && (end = strchr(line, '\n')); line = end + 1)
        printf("HABIT %.*s\n", (int)(end - line), line);
    return 0;
}

static int
run(const struct options *options, struct totals *totals, struct err *err)
{
    scope_store *store = open_store(options, err);
    int64_t began = clock_mono_ns();

    if (!store || store_probe(store, err) < 0 ||
        print_habits(store, clock_mono_ns() - began, err) < 0)
        return -1;
    return run_all(store, options, totals, err);
}

static bool
parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        { "name", required_argument, NULL, 'n' },
        { "only", required_argument, NULL, 'o' },
        { "wrap", required_argument, NULL, 'w' },
        { "list", no_argument, NULL, 'l' },
        { NULL, 0, NULL, 0 },
    };
    int opt;

    while ((opt = getopt_long(argc, argv, "", known, NULL)) !=
           -1) { /* NOLINT(concurrency-mt-unsafe) */
        if (opt == 'n')
            options->name = optarg;
        else if (opt == 'o')
            options->only = optarg;
        else if (opt == 'w')
            options->wrap = optarg;
        else if (opt == 'l')
            options->list = true;
        else
            return false;
    }
    options->url = argv[optind];
    return options->list || (options->url && !argv[optind + 1]);
}

int
main(int argc, char **argv)
{
    struct options options = { 0 };
    struct totals totals = { 0 };
    struct err err = ERR_INIT;

    if (!parse(argc, argv, &options)) {
        fprintf(stderr,
                "usage: contract [--name NAME] [--only CASE] [--wrap fault|weak] [--list] URL\n");
        return 2;
    }
    if (options.list) {
        print_names();
        return 0;
    }
    if (run(&options, &totals, &err) < 0) {
        fprintf(stderr, "contract: %s: %s\n", options.url, err.msg);
        return 1;
    }
    printf("%s: %u run, %u skipped, %u failed\n", options.name ? options.name : options.url,
           totals.run, totals.skipped, totals.failed);
    return totals.failed > 0 || totals.run + totals.skipped == 0 ? 1 : 0;
}
