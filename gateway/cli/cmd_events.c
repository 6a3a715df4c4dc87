#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "gateway/cli/cli.h"

/* What changes, as it is told: a page, or page after page. */

#define PAGE 1000
#define WAIT_S 25

struct events {
    struct cli *cli;
    struct place place;
    bool has_place;
    char since[24]; /* "": from now on */
    bool follow;
    bool asked;  /* by --since */
    json_t *all; /* of a call with --json that ends */
};

static int
make_target(const struct events *events, struct buf *out, struct err *err)
{
    const struct place *place = &events->place;
    if (buf_appendf(out, err, "/v1/events?follow=false&limit=%d", PAGE) < 0 ||
        (events->since[0] && buf_appendf(out, err, "&since=%s", events->since) < 0) ||
        (events->follow && buf_appendf(out, err, "&wait=%d", WAIT_S) < 0))
        return -1;
    if (!events->has_place)
        return 0;
    return client_query_add(out, "volume", place->volume, err) < 0 ||
                   client_query_add(out, "prefix", place->path[0] ? place->path : NULL, err) < 0
               ? -1
               : 0;
}

static int
fetch(const struct events *events, json_t **out, struct err *err)
{
    scope_buf target;
    buf_init(&target, 8192);
    if (make_target(events, &target, err) < 0)
        return -1;
    struct json_call call = { .method = "GET", .target = buf_cstr(&target), .timeout_s = 60 };
    return client_json(events->cli, &call, out, err);
}

static void
show(const json_t *event)
{
    char when[20];
    scope_buf coded;
    struct err err = ERR_INIT;
    const char *op = get_text(event, "op");
    /* Of what lay in a folder that is gone only the name is known. */
    bool whole = !json_object_get(event, "name") && !json_object_get(event, "name_b64");
    const char *bytes = get_text(event, whole ? "path_b64" : "name_b64");
    buf_init(&coded, LIMIT_PATH + LIMIT_NAME + 2);
    format_local(get_text(event, "time"), when);
    const char *shown = bytes[0] && base64_decode(bytes, strlen(bytes), &coded, &err) == 0
                            ? buf_cstr(&coded)
                            : get_text(event, whole ? "path" : "name");
    if (json_object_get(event, "volume"))
        print_line("%lld  %s  %-9s  %s:%s%s", (long long)get_int(event, "seq"), when,
                   op[0] ? op : get_text(event, "type"), get_text(event, "volume"),
                   whole ? "" : ".../", shown);
    else
        print_line("%lld  %s  %s", (long long)get_int(event, "seq"), when, get_text(event, "type"));
}

static int
print_events(const struct events *events, const json_t *answer, struct err *err)
{
    size_t i;
    json_t *event;
    if (get_bool(answer, "gap") && events->asked)
        (void)fprintf(stderr, "holdfast: some of what came after %s is no longer known\n",
                      events->since);
    json_array_foreach (json_object_get(answer, "events"), i, event) {
        if (!events->cli->json)
            show(event);
        else if (events->follow ? print_json(event, err) < 0
                                : json_array_append(events->all, event) < 0)
            return -1;
    }
    (void)fflush(stdout);
    return 0;
}

static int
print_all(const struct events *events, const json_t *last, struct err *err)
{
    scope_json *out =
        json_pack("{s:O, s:O}", "events", events->all, "next", json_object_get(last, "next"));
    return out ? print_json(out, err) : err_nomem(err);
}

/* All that is known, or on and on. */
static int
run(struct events *events, struct err *err)
{
    for (;;) {
        json_t *answer = NULL;
        if (fetch(events, &answer, err) < 0)
            return -1;
        scope_json *held = answer;
        if (print_events(events, held, err) < 0)
            return -1;
        (void)snprintf(events->since, sizeof(events->since), "%lld",
                       (long long)get_int(held, "next"));
        if (!events->follow && json_array_size(json_object_get(held, "events")) == 0)
            return events->cli->json ? print_all(events, held, err) : 0;
    }
}

int
cmd_events(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *since = NULL;
    const char *words[1];
    uint64_t number = 0;
    struct events events = { .cli = cli };
    const struct cli_option options[] = { { "since", 0, CLI_TEXT, &since },
                                          { "follow", 'f', CLI_FLAG, &events.follow },
                                          { NULL, 0, CLI_FLAG, NULL } };
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 0, 1, words }, err);
    if (count < 0)
        return -1;
    events.has_place = count == 1;
    if (count == 1 && cli_place(words[0], events.place.volume, events.place.path, err) < 0)
        return -1;
    if (since && !parse_u64(since, &number))
        return err_set(err, ERR_USAGE, "--since takes the number of an event");
    if (since || !events.follow)
        (void)snprintf(events.since, sizeof(events.since), "%llu", (unsigned long long)number);
    events.asked = number > 0;
    scope_json *all = events.all = json_array();
    return all ? run(&events, err) : err_nomem(err);
}
