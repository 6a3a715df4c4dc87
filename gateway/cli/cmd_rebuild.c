#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "gateway/cli/cli.h"
#include "gateway/offline.h"
#include "volume/rebuild.h"

/* `holdfast rebuild`: without a gateway, as its user. */

#define SHOW_EVERY_NS (200 * NS_PER_MS)

struct shown {
    int64_t last_ns;
    bool any;
};

static void
show(void *arg, const char *what, const char *volume, uint64_t done)
{
    struct shown *shown = arg;
    int64_t now = clock_mono_ns();
    if (now - shown->last_ns < SHOW_EVERY_NS)
        return;
    shown->last_ns = now;
    shown->any = true;
    (void)fprintf(stderr, "\r\033[K%s%s%llu %s", volume, volume[0] != '\0' ? ": " : "",
                  (unsigned long long)done, what);
}

static json_t *
report_json(const struct volume_rebuild_report *r)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:f, s:s, s:s}",
        "volumes", (json_int_t)r->volumes, "files", (json_int_t)r->files, "folders",
        (json_int_t)r->folders, "bytes", (json_int_t)r->bytes, "conflicts",
        (json_int_t)r->conflicts, "history", (json_int_t)r->history, "snapshots",
        (json_int_t)r->snapshots, "nameless", (json_int_t)r->nameless, "unreachable",
        (json_int_t)r->unreachable, "parked", (json_int_t)r->parked, "volumeless",
        (json_int_t)r->volumeless, "staged",
        json_pack("{s:I, s:I, s:I, s:I, s:I}", "uploads", (json_int_t)r->staged_uploads,
                  "conflicts", (json_int_t)r->staged_contrary, "torn", (json_int_t)r->staged_torn,
                  "synced", (json_int_t)r->staged_synced, "left", (json_int_t)r->staged_left),
        "requests",
        json_pack("{s:I, s:I, s:I}", "list", (json_int_t)r->lists, "head", (json_int_t)r->heads,
                  "get", (json_int_t)r->gets),
        "seconds", (double)r->took_ns / 1e9, "old_index", r->old_index, "left_out", r->left_out);
}

static void
staged_lines(const struct volume_rebuild_report *r)
{
    if (r->staged_uploads + r->staged_contrary + r->staged_torn + r->staged_synced +
            r->staged_left ==
        0)
        return;
    print_line(
        "staged     %llu files go up when the gateway starts, %llu are in the bucket already",
        (unsigned long long)r->staged_uploads, (unsigned long long)r->staged_synced);
    if (r->staged_contrary > 0)
        print_line("           %llu met something newer in the bucket and become conflicts",
                   (unsigned long long)r->staged_contrary);
    if (r->staged_torn > 0)
        print_line("           %llu were being written when the gateway ended: conflicts marked "
                   "torn",
                   (unsigned long long)r->staged_torn);
    if (r->staged_left > 0)
        print_line("           %llu are not needed any more: the next start keeps them in 'lost' "
                   "for 7 days",
                   (unsigned long long)r->staged_left);
}

static void
report_lines(const struct gateway_offline *offline, const struct volume_rebuild_report *r)
{
    char size[16];
    format_size(r->bytes, size);
    print_line("rebuilt    %s from %s", offline->state, offline->store_url);
    print_line("found      %llu volumes, %llu files (%s) in %llu folders, %llu older versions, "
               "%llu snapshots, %llu conflicts",
               (unsigned long long)r->volumes, (unsigned long long)r->files, size,
               (unsigned long long)r->folders, (unsigned long long)r->history,
               (unsigned long long)r->snapshots, (unsigned long long)r->conflicts);
    staged_lines(r);
    if (r->unreachable > 0)
        print_line("keys       %llu cannot be shown as files", (unsigned long long)r->unreachable);
    if (r->parked > 0)
        print_line("parked     %llu objects of an exchange of names: see 'holdfast fsck'",
                   (unsigned long long)r->parked);
    if (r->left_out[0] != '\0')
        print_line("left out   %s", r->left_out);
    if (r->old_index[0] != '\0')
        print_line("old index  kept as '%s'", r->old_index);
    print_line("requests   %llu lists, %llu heads, %llu gets in %.1f s",
               (unsigned long long)r->lists, (unsigned long long)r->heads,
               (unsigned long long)r->gets, (double)r->took_ns / 1e9);
}

static int
run(struct cli *cli, const struct config *config, struct err *err)
{
    struct gateway_offline offline;
    struct volume_rebuild_report report;
    struct shown shown = { .last_ns = 0 };
    if (log_configure(config_str(config, "log.levels"), err) < 0 ||
        gateway_offline_open(config, &offline, err) < 0)
        return -1;
    struct volume_rebuild_args args = { .state_dir = offline.state,
                                        .store = offline.store,
                                        .cache = offline.cache,
                                        .progress_arg = &shown };
    if (isatty(STDERR_FILENO))
        args.progress = show;
    int rc = volume_rebuild(&args, &report, err);
    if (shown.any)
        (void)fputs("\r\033[K", stderr);
    if (rc == 0 && cli->json) {
        scope_json *out = report_json(&report);
        rc = out ? print_json(out, err) : err_nomem(err);
    } else if (rc == 0) {
        report_lines(&offline, &report);
    }
    gateway_offline_close(&offline);
    return rc;
}

/* The settings' options are not known to cli_parse(), and --json is no setting. */
int
cli_take_json(struct cli *cli, int argc, char **argv)
{
    int kept = 0;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            cli->json = true;
        else
            argv[kept++] = argv[i];
    }
    return kept;
}

int
cmd_rebuild(struct cli *cli, int argc, char **argv, struct err *err)
{
    argc = cli_take_json(cli, argc, argv);
    struct config *config = cli_settings(cli, argc, argv, NULL, err);
    if (!config)
        return -1;
    int rc = run(cli, config, err);
    config_free(config);
    return rc;
}
