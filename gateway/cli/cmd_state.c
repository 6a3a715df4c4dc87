#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "gateway/cli/cli.h"

int
cmd_flush(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *timeout = "60";
    const char *words[1];
    bool wait = false; /* is what flush does; the word is allowed */
    uint64_t seconds;
    json_t *answer = NULL;
    const struct cli_option options[] = { { "timeout", 0, CLI_TEXT, &timeout },
                                          { "wait", 0, CLI_FLAG, &wait },
                                          { NULL, 0, CLI_FLAG, NULL } };
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 0, 1, words }, err);
    if (count < 0 || (count == 1 && path_check_volume(words[0], err) < 0))
        return -1;
    if (!parse_u64(timeout, &seconds) || seconds > 86400)
        return err_set(err, ERR_USAGE, "--timeout is 0 to 86400 seconds");
    json_t *body = json_pack("{s:I, s:s?}", "timeout_s", (json_int_t)seconds, "volume",
                             count == 1 ? words[0] : NULL);
    if (!body)
        return err_nomem(err);
    if (client_json(cli, &(struct json_call){ "POST", "/v1/flush", body, (int)seconds + 30 },
                    &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json && print_json(held, err) < 0)
        return -1;
    if (get_int(held, "conflicts") > 0)
        return err_set(err, ERR_CONFLICT,
                       "everything is in the bucket, but %lld writes met a conflict: see 'holdfast "
                       "conflicts list'",
                       (long long)get_int(held, "conflicts"));
    return 0;
}

/* ---- status in plain words ---- */
static void
ago(const char *when, char *out, size_t size)
{
    int64_t then;
    if (time_parse_rfc3339(when, &then) < 0) {
        (void)snprintf(out, size, "?");
        return;
    }
    int64_t seconds = (clock_wall_ns() - then) / NS_PER_S;
    if (seconds < 120)
        (void)snprintf(out, size, "%lld s ago", (long long)(seconds < 0 ? 0 : seconds));
    else if (seconds < 7200)
        (void)snprintf(out, size, "%lld min ago", (long long)seconds / 60);
    else
        (void)snprintf(out, size, "%lld h ago", (long long)seconds / 3600);
}

static void
limit_lines(const json_t *store)
{
    size_t i;
    json_t *limit;
    json_array_foreach (json_object_get(store, "limits"), i, limit)
        print_line("limit      %s", json_string_value(limit));
}

static void
frozen_line(const json_t *status)
{
    size_t i;
    json_t *name;
    json_array_foreach (json_object_get(status, "frozen"), i, name)
        print_line("FROZEN     volume '%s': nothing is written, nothing goes to the bucket, until "
                   "'holdfast thaw %s'",
                   json_string_value(name), json_string_value(name));
}

static void
store_lines(const json_t *store)
{
    char since[40];
    if (get_bool(store, "ok")) {
        print_line("store      ok, %s", get_text(store, "url"));
    } else {
        bool refused = strcmp(get_text(store, "error_code"), err_slug(ERR_STORE_DENIED)) == 0;
        ago(get_text(store, "away_since"), since, sizeof(since));
        print_line("store      %s since %s, %s", refused ? "REFUSES THE KEYS" : "AWAY", since,
                   get_text(store, "url"));
        print_line("           %s", get_text(store, "error"));
        print_line("           what is written waits here until %s",
                   refused ? "the keys are good again, and then goes up by itself"
                           : "it is back, and then goes up by itself");
    }
    if (get_bool(store, "degraded"))
        print_line("           degraded: no conditional writes, so another program's change can be "
                   "overwritten");
    limit_lines(store);
}

static void
request_lines(const json_t *store)
{
    char up[16];
    char down[16];
    const json_t *cost = json_object_get(store, "cost");
    const json_t *usd = json_object_get(cost, "usd");
    if (get_int(store, "requests") == 0)
        return;
    format_size((uint64_t)get_int(store, "bytes_up"), up);
    format_size((uint64_t)get_int(store, "bytes_down"), down);
    print_line("requests   %lld since the start: %lld that write or list, %lld that read, %lld "
               "deletes; %s up, %s down",
               (long long)get_int(store, "requests"), (long long)get_int(cost, "class_a"),
               (long long)get_int(cost, "class_b"), (long long)get_int(cost, "free"), up, down);
    if (json_is_real(usd))
        print_line("           about $%.4f at the list prices of %s", json_real_value(usd),
                   get_text(store, "provider"));
}

static void
sync_lines(const json_t *s)
{
    char size[16];
    char since[40];
    int64_t files = get_int(s, "unsynced_files");
    int64_t keys = get_int(s, "pending_keys");
    if (files == 0 && keys == 0) {
        print_line("synced     everything is in the bucket");
    } else {
        format_size((uint64_t)get_int(s, "unsynced_bytes"), size);
        ago(get_text(s, "unsynced_since"), since, sizeof(since));
        print_line("unsynced   %lld files (%s) and %lld keys with work left, the oldest %s",
                   (long long)files, size, (long long)keys, since);
    }
    if (get_int(s, "uploads_failing") > 0)
        print_line("           %lld uploads failed at their last try and go on being tried",
                   (long long)get_int(s, "uploads_failing"));
    if (get_int(s, "uploads_foreign") > 0)
        print_line(
            "           %lld uploads in parts of other clients lie unfinished for over a day in "
            "the bucket and cost: see 'aws s3api list-multipart-uploads'",
            (long long)get_int(s, "uploads_foreign"));
    if (get_int(s, "conflicts") > 0)
        print_line("conflicts  %lld: the losers' bytes are kept, see 'holdfast conflicts list'",
                   (long long)get_int(s, "conflicts"));
    else
        print_line("conflicts  none");
    const json_t *hidden = json_object_get(s, "unreachable");
    if (get_int(hidden, "count") > 0)
        print_line("keys       %lld in the bucket cannot be shown as files, such as '%s': %s",
                   (long long)get_int(hidden, "count"), get_text(hidden, "key"),
                   get_text(hidden, "why"));
}

static void
history_lines(const json_t *history)
{
    char size[16];
    format_size((uint64_t)get_int(history, "bytes"), size);
    print_line("history    %lld versions that were replaced or removed, %s",
               (long long)get_int(history, "versions"), size);
}

static void
cache_lines(const json_t *s)
{
    const json_t *cache = json_object_get(s, "cache");
    char used[16];
    char most[16];
    char staged[16];
    char left[16];
    format_size((uint64_t)get_int(cache, "bytes"), used);
    format_size((uint64_t)get_int(cache, "max_bytes"), most);
    format_size((uint64_t)get_int(cache, "staged_bytes"), staged);
    format_size((uint64_t)get_int(cache, "disk_free_bytes"), left);
    print_line("cache      %s of %s, %s of it staged; disk free %s", used, most, staged, left);
    if (get_bool(s, "disk_low"))
        print_line("           the disk is nearly full: writes are slowed, then refused");
    if (get_bool(s, "read_only"))
        print_line("           READ-ONLY: a write to this machine's disk failed; check the disk, "
                   "then restart");
}

static void
takeover_lines(const json_t *s)
{
    const json_t *takeover = json_object_get(s, "takeover");
    if (!get_bool(takeover, "possible"))
        print_line("takeover   no, mounts end with the gateway: %s", get_text(takeover, "why"));
    else if (get_int(takeover, "count") > 0)
        print_line("takeover   yes (%s); %lld so far, %lld met requests under way",
                   get_text(takeover, "mode"), (long long)get_int(takeover, "count"),
                   (long long)get_int(takeover, "met"));
    else
        print_line("takeover   yes (%s)", get_text(takeover, "mode"));
}

static void
mount_lines(const json_t *status)
{
    if (!get_bool(status, "can_mount")) {
        print_line("mounts     this gateway cannot mount: see 'holdfast doctor'");
        return;
    }
    print_line("mounts     %lld active, %lld failed", (long long)get_int(status, "mounts"),
               (long long)get_int(status, "mounts_failed"));
    if (get_int(status, "mounts_plain") > 0)
        print_line("           %lld without passthrough, so slower: %s",
                   (long long)get_int(status, "mounts_plain"),
                   get_text(status, "mounts_plain_why"));
}

int
cmd_status(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *words[1];
    json_t *answer = NULL;
    if (cli_parse(cli, argc, argv, NULL, &(struct cli_words){ 0, 0, words }, err) < 0 ||
        client_json(cli, &(struct json_call){ "GET", "/v1/status", NULL, 30 }, &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json)
        return print_json(held, err);
    frozen_line(held);
    store_lines(json_object_get(held, "store"));
    request_lines(json_object_get(held, "store"));
    sync_lines(held);
    history_lines(json_object_get(held, "history"));
    cache_lines(held);
    mount_lines(held);
    takeover_lines(held);
    print_line("gateway    %s, since %s, state %s", get_text(held, "version"),
               get_text(held, "started"), get_text(held, "state_dir"));
    print_line("           %s", get_text(held, "hardening"));
    if (get_text(held, "recovered")[0] != '\0')
        print_line("recovered  %s", get_text(held, "recovered"));
    return 0;
}

/* ---- upgrade ---- */

/* Answers the pid of who serves now, 0 while nobody does. */
static int64_t
serving_pid(struct cli *cli, char version[64])
{
    struct err ignored = ERR_INIT;
    json_t *answer = NULL;
    if (client_json(cli, &(struct json_call){ "GET", "/v1/status", NULL, 30 }, &answer, &ignored) <
        0)
        return 0;
    scope_json *held = answer;
    (void)snprintf(version, 64, "%s", get_text(held, "version"));
    return get_int(held, "pid");
}

int
cmd_upgrade(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *timeout = "60";
    const char *words[1];
    uint64_t seconds;
    json_t *answer = NULL;
    const struct cli_option options[] = { { "timeout", 0, CLI_TEXT, &timeout },
                                          { NULL, 0, CLI_FLAG, NULL } };
    if (cli_parse(cli, argc, argv, options, &(struct cli_words){ 0, 0, words }, err) < 0)
        return -1;
    if (!parse_u64(timeout, &seconds) || seconds > 86400)
        return err_set(err, ERR_USAGE, "--timeout is 0 to 86400 seconds");
    if (client_json(cli, &(struct json_call){ "POST", "/v1/upgrade", NULL, 90 }, &answer, err) < 0)
        return -1;
    scope_json *old = answer;
    int64_t until = clock_mono_ns() + (int64_t)seconds * NS_PER_S;
    char version[64];
    int64_t pid;
    while ((pid = serving_pid(cli, version)) == 0 || pid == get_int(old, "pid")) {
        if (clock_mono_ns() >= until)
            return err_set(err, ERR_GATEWAY_AWAY, "no other gateway serves yet: see its log");
        clock_sleep_ns(20 * NS_PER_MS);
    }
    if (cli->json)
        (void)printf("{\"pid\":%lld,\"version\":\"%s\"}\n", (long long)pid, version);
    else
        print_line("upgraded: %s (process %lld) is now %s (process %lld)", get_text(old, "version"),
                   (long long)get_int(old, "pid"), version, (long long)pid);
    return 0;
}
