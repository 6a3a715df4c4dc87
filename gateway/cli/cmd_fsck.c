#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/path.h"
#include "gateway/cli/cli.h"
#include "gateway/fsck.h"
#include "gateway/offline.h"
#include "gateway/settings.h"

/* `holdfast fsck`: by the gateway, or, where none runs, here. */

#define SHOW_EVERY_NS (200 * NS_PER_MS)
#define LONGEST_S 86400

struct shown {
    int64_t last_ns;
    bool any;
};

static void
show(void *arg, const char *what, uint64_t done)
{
    struct shown *shown = arg;
    int64_t now = clock_mono_ns();
    if (now - shown->last_ns < SHOW_EVERY_NS)
        return;
    shown->last_ns = now;
    shown->any = true;
    (void)fprintf(stderr, "\r\033[K%llu %s", (unsigned long long)done, what);
}

static int
check_there(struct cli *cli, const struct gateway_fsck *call, json_t **out, struct err *err)
{
    json_t *body = json_pack("{s:s?, s:b, s:b}", "volume", call->volume, "full", (int)call->full,
                             "repair", (int)call->repair);
    if (!body)
        return err_nomem(err);
    return client_json(cli, &(struct json_call){ "POST", "/v1/fsck", body, LONGEST_S }, out, err);
}

static int
check_offline(const struct config *config, struct gateway_offline *offline,
              struct gateway_fsck *call, json_t **out, struct err *err)
{
    struct shown shown = { .last_ns = 0 };
    struct volume_service_args args = { .state_dir = offline->state,
                                        .lock_fd = offline->lock_fd,
                                        .store = offline->store,
                                        .cache = offline->cache,
                                        .list_ttl_ns = config_duration(config, "store.list-ttl") };
    offline->lock_fd = -1;
    offline->store = NULL;
    struct volume_service *service = volume_service_open(&args, err);
    if (!service)
        return -1;
    call->progress = isatty(STDERR_FILENO) ? show : NULL;
    call->progress_arg = &shown;
    int rc = gateway_fsck_run(service, call, out, err);
    if (shown.any)
        (void)fputs("\r\033[K", stderr);
    volume_service_close(service, 0);
    return rc;
}

/* Or a wrong path would become a new state directory. */
static int
check_state(const struct config *config, struct err *err)
{
    char state[PATH_MAX], index[PATH_MAX + 16];
    if (gateway_settings_state(config, state, sizeof(state), err) < 0)
        return -1;
    (void)snprintf(index, sizeof(index), "%s/index.db", state);
    if (access(index, F_OK) == 0)
        return 0;
    return err_set(
        err, ERR_NOT_FOUND,
        "no gateway answers, and there is no index in '%s': check --state; a lost index is "
        "made anew by 'holdfast rebuild'",
        state);
}

static int
check_here(struct cli *cli, struct gateway_fsck *call, const char *store, json_t **out,
           struct err *err)
{
    struct gateway_offline offline;
    char *flags[4];
    int count = 0;
    if (cli->state) {
        flags[count++] = (char *)(uintptr_t) "--state";
        flags[count++] = (char *)(uintptr_t)cli->state;
    }
    if (store) {
        flags[count++] = (char *)(uintptr_t) "--store";
        flags[count++] = (char *)(uintptr_t)store;
    }
    struct config *config = cli_settings(cli, count, flags, NULL, err);
    if (!config)
        return -1;
    int rc = log_configure(config_str(config, "log.levels"), err);
    if (rc == 0)
        rc = check_state(config, err);
    if (rc == 0)
        rc = gateway_offline_open(config, &offline, err);
    if (rc == 0) {
        rc = check_offline(config, &offline, call, out, err);
        gateway_offline_close(&offline);
    }
    config_free(config);
    return rc;
}

static void
finding_lines(const json_t *f)
{
    const char *failed = get_text(f, "failed");
    print_line("%s  %s", get_text(f, "code"), get_text(f, "where"));
    print_line("    %s", get_text(f, "what"));
    if (get_bool(f, "repaired"))
        print_line("    repaired: %s", get_text(f, "repair"));
    else if (failed[0] != '\0')
        print_line("    not repaired: %s", failed);
    else
        print_line("    repair: %s", get_text(f, "repair"));
}

static void
report_lines(const json_t *answer)
{
    size_t i;
    json_t *finding;
    char size[16];
    json_array_foreach (json_object_get(answer, "findings"), i, finding)
        finding_lines(finding);
    if (get_int(answer, "not_shown") > 0)
        print_line("and %lld more", (long long)get_int(answer, "not_shown"));
    print_line("checked    %lld objects, %lld files, %lld files of the cache in %.1f s",
               (long long)get_int(answer, "objects"), (long long)get_int(answer, "files"),
               (long long)get_int(answer, "cached"),
               json_real_value(json_object_get(answer, "seconds")));
    if (get_int(answer, "unlisted") > 0)
        print_line("           %lld objects lie in folders that nobody has looked into yet",
                   (long long)get_int(answer, "unlisted"));
    format_size((uint64_t)get_int(answer, "bytes_read"), size);
    if (get_int(answer, "bytes_read") > 0)
        print_line("           %s read and compared; %lld have no checksum to compare with", size,
                   (long long)get_int(answer, "unverified"));
    if (get_bool(answer, "clean"))
        print_line("clean      index, cache and bucket agree");
    else
        print_line("found      %lld, %lld of them repaired", (long long)get_int(answer, "found"),
                   (long long)get_int(answer, "repaired"));
}

int
cmd_fsck(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *words[1];
    const char *store = NULL;
    struct gateway_fsck call = { .volume = NULL };
    struct err away = ERR_INIT;
    json_t *answer = NULL;
    const struct cli_option options[] = { { "full", 0, CLI_FLAG, &call.full },
                                          { "repair", 0, CLI_FLAG, &call.repair },
                                          { "store", 0, CLI_TEXT, &store },
                                          { NULL, 0, CLI_FLAG, NULL } };
    int count = cli_parse(cli, argc, argv, options, &(struct cli_words){ 0, 1, words }, err);
    if (count < 0 || (count == 1 && path_check_volume(words[0], err) < 0))
        return -1;
    call.volume = count == 1 ? words[0] : NULL;
    int rc = check_there(cli, &call, &answer, &away);
    if (rc < 0 && (away.code != ERR_GATEWAY_AWAY || cli->url))
        *err = away;
    else if (rc < 0)
        rc = check_here(cli, &call, store, &answer, err);
    if (rc < 0)
        return -1;
    scope_json *held = answer;
    if (cli->json && print_json(held, err) < 0)
        return -1;
    if (!cli->json)
        report_lines(held);
    return get_bool(held, "clean") ? 0 : 1;
}
