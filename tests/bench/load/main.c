#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <curl/curl.h>

#include "base/parse.h"
#include "tests/bench/load/load.h"

static const char usage[] =
    "usage: hf-load [OPTION]... JOB ARGUMENT...\n"
    "jobs against the server (keys in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY):\n"
    "  get KEY FILE | put FILE KEY             one object, in pieces of --part over N connections\n"
    "  get-many PREFIX DIR | put-many DIR PREFIX | delete-many PREFIX\n"
    "jobs on mounted files:\n"
    "  read FILE [COPY] | read-tree DIR | copy FROM TO | copy-tree FROM TO\n"
    "options:\n"
    "  --client curl|socket   --endpoint URL --region NAME --bucket NAME\n"
    "  --conns N (8)          connections, or writers\n"
    "  --part SIZE (16M)      of a range or part; 0: the size over N\n"
    "  --single               one request for the whole object\n"
    "  --new                  PUT only what is not there yet (If-None-Match: *)\n"
    "Prints one JSON object.\n";

typedef int job_fn(struct load *load, char **args, struct err *err);

static int
job_get(struct load *load, char **args, struct err *err)
{
    return load_get(load, args[0], args[1], err);
}
static int
job_put(struct load *load, char **args, struct err *err)
{
    return load_put(load, args[0], args[1], err);
}
static int
job_get_many(struct load *load, char **args, struct err *err)
{
    return load_get_many(load, args[0], args[1], err);
}
static int
job_put_many(struct load *load, char **args, struct err *err)
{
    return load_put_many(load, args[0], args[1], err);
}
static int
job_delete_many(struct load *load, char **args, struct err *err)
{
    return load_delete_many(load, args[0], err);
}
static int
job_read(struct load *load, char **args, struct err *err)
{
    return load_read(load, args[0], args[1], err);
}
static int
job_read_tree(struct load *load, char **args, struct err *err)
{
    return load_read_tree(load, args[0], err);
}
static int
job_copy(struct load *load, char **args, struct err *err)
{
    return load_copy(load, args[0], args[1], err);
}
static int
job_copy_tree(struct load *load, char **args, struct err *err)
{
    return load_copy_tree(load, args[0], args[1], err);
}

static const struct job {
    const char *name;
    int least, most; /* arguments */
    bool remote;
    job_fn *fn;
} jobs[] = {
    { "get", 2, 2, true, job_get },
    { "put", 2, 2, true, job_put },
    { "get-many", 2, 2, true, job_get_many },
    { "put-many", 2, 2, true, job_put_many },
    { "delete-many", 1, 1, true, job_delete_many },
    { "read", 1, 2, false, job_read },
    { "read-tree", 1, 1, false, job_read_tree },
    { "copy", 2, 2, false, job_copy },
    { "copy-tree", 2, 2, false, job_copy_tree },
};

static const struct job *
find_job(const char *name, int arguments)
{
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++)
        if (strcmp(jobs[i].name, name) == 0 && arguments >= jobs[i].least &&
            arguments <= jobs[i].most)
            return &jobs[i];
    return NULL;
}

static const struct option options[] = {
    { "client", required_argument, NULL, 'c' },
    { "endpoint", required_argument, NULL, 'e' },
    { "region", required_argument, NULL, 'r' },
    { "bucket", required_argument, NULL, 'b' },
    { "conns", required_argument, NULL, 'n' },
    { "part", required_argument, NULL, 'p' },
    { "single", no_argument, NULL, 's' },
    { "new", no_argument, NULL, 'a' },
    { NULL, 0, NULL, 0 },
};

static int
set_client(struct load *load, const char *name)
{
    if (strcmp(name, "curl") == 0)
        load->transport = &transport_curl;
    else if (strcmp(name, "socket") == 0)
        load->transport = &transport_socket;
    else
        return -1;
    return 0;
}

/* -1 on a word that is not known. */
static int
set_option(struct load *load, int option, const char *value, struct err *err)
{
    uint64_t number = 0;
    switch (option) {
    case 'c':
        return set_client(load, value);
    case 'e':
        return endpoint_parse(&load->endpoint, value, err);
    case 'r':
        load->endpoint.region = value;
        return 0;
    case 'b':
        load->endpoint.bucket = value;
        return 0;
    case 'n':
        if (!parse_u64(value, &number) || number < 1 || number > 256)
            return -1;
        load->connections = (unsigned)number;
        return 0;
    case 'p':
        return parse_size(value, &load->part) ? 0 : -1;
    case 's':
        load->single = true;
        return 0;
    case 'a':
        load->if_absent = true;
        return 0;
    default:
        return -1;
    }
}

static int
take_keys(struct endpoint *endpoint, struct err *err)
{
    endpoint->access_key = secure_getenv("AWS_ACCESS_KEY_ID");
    endpoint->secret_key = secure_getenv("AWS_SECRET_ACCESS_KEY");
    endpoint->token = secure_getenv("AWS_SESSION_TOKEN");
    if (endpoint->token && !endpoint->token[0])
        endpoint->token = NULL;
    if (!endpoint->access_key || !endpoint->secret_key)
        return err_set(err, ERR_USAGE, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set");
    if (!endpoint->host[0] || !endpoint->bucket)
        return err_set(err, ERR_USAGE, "--endpoint and --bucket are needed");
    return 0;
}

static double
seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static void
print_tally(const struct load *load, const char *job)
{
    const struct tally *t = &load->tally;
    struct rusage used = { 0 };
    (void)getrusage(RUSAGE_SELF, &used);
    (void)printf("{\"job\": \"%s\", \"client\": \"%s\", \"seconds\": %.6f, \"began\": %.6f, "
                 "\"first_write\": %.6f, \"ended\": %.6f, ",
                 job, load->transport->name, (double)(t->ended_ns - t->began_ns) / 1e9,
                 (double)t->began_ns / 1e9, (double)t->first_write_ns / 1e9,
                 (double)t->ended_ns / 1e9);
    (void)printf("\"bytes\": %llu, \"items\": %llu, \"requests\": %llu, \"cpu\": %.3f, "
                 "\"cpu_user\": %.3f, \"max_rss\": %ld}\n",
                 (unsigned long long)atomic_load(&t->bytes),
                 (unsigned long long)atomic_load(&t->items),
                 (unsigned long long)atomic_load(&t->requests),
                 seconds(used.ru_utime) + seconds(used.ru_stime), seconds(used.ru_utime),
                 used.ru_maxrss * 1024);
}

int
main(int argc, char **argv)
{
    struct load load = {
        .transport = &transport_curl,
        .connections = 8,
        .part = 16 << 20,
        .endpoint = { .region = "us-east-1" },
    };
    struct err err = { 0 };
    int option;
    int result = 0;
    while (result == 0 && /* one thread so far */
           (option = getopt_long(argc, argv, "", options, NULL)) !=
               -1) // NOLINT(concurrency-mt-unsafe)
        result = set_option(&load, option, optarg, &err);
    const struct job *job =
        result == 0 && optind < argc ? find_job(argv[optind], argc - optind - 1) : NULL;
    if (!job) {
        (void)fprintf(stderr, "%s%s%s", err.msg, err.msg[0] ? "\n" : "", usage);
        return 2;
    }
    if (curl_global_init(CURL_GLOBAL_ALL) != 0)
        return 1;
    if (job->remote)
        result = take_keys(&load.endpoint, &err);
    if (result == 0)
        result = job->fn(&load, argv + optind + 1, &err);
    curl_global_cleanup();
    if (result < 0) {
        (void)fprintf(stderr, "hf-load: %s: %s\n", job->name, err.msg);
        return 1;
    }
    print_tally(&load, job->name);
    return 0;
}
