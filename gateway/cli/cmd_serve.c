#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "gateway/cli/cli.h"
#include "gateway/daemon.h"
#include "gateway/settings.h"

/* Options of serve and config are the settings themselves. */
static int
apply_flags(struct config *config, struct cli *cli, int argc, char **argv, struct err *err)
{
    (void)cli;
    for (int i = 0; i < argc; i++) {
        char flag[64];
        const char *word = argv[i];
        if (strncmp(word, "--", 2) != 0)
            return err_set(err, ERR_USAGE, "'%s' is one word too many: see --help", word);
        size_t len = strcspn(word + 2, "=");
        (void)snprintf(flag, sizeof(flag), "%.*s", (int)len, word + 2);
        const char *value = word[2 + len] == '=' ? word + 3 + len : NULL;
        if (strcmp(flag, "config") == 0) {
            i += value ? 0 : 1;
            continue;
        }
        if (!value && i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0)
            value = argv[++i];
        if (config_set_flag(config, flag, value, err) < 0)
            return -1;
    }
    return 0;
}

static int
find_config(int argc, char **argv, const char **out, struct err *err)
{
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0)
            *out = argv[i] + 9;
        if (strcmp(argv[i], "--config") != 0)
            continue;
        if (i + 1 == argc)
            return err_set(err, ERR_USAGE, "--config needs a value");
        *out = argv[i + 1];
    }
    return 0;
}

struct config *
cli_settings(struct cli *cli, int argc, char **argv, char *used, struct err *err)
{
    const char *file = cli->config;
    if (find_config(argc, argv, &file, err) < 0)
        return NULL;
    struct config *config = gateway_settings_load(file, used, err);
    if (config && apply_flags(config, cli, argc, argv, err) < 0) {
        config_free(config);
        return NULL;
    }
    return config;
}

int
cmd_serve(struct cli *cli, int argc, char **argv, struct err *err)
{
    struct config *config = cli_settings(cli, argc, argv, NULL, err);
    if (!config)
        return -1;
    int rc = gateway_daemon_run(config, cli->program, err);
    config_free(config);
    return rc;
}

int
cmd_config(struct cli *cli, int argc, char **argv, struct err *err)
{
    char used[PATH_MAX];
    char state[PATH_MAX];
    char url[PATH_MAX];
    const char *word = "show";
    if (argc > 0 && argv[0][0] != '-') {
        word = argv[0];
        argc--;
        argv++;
    }
    if (strcmp(word, "show") != 0 && strcmp(word, "check") != 0)
        return err_set(err, ERR_USAGE, "unknown word '%s': config show or config check", word);
    struct config *config = cli_settings(cli, argc, argv, used, err);
    if (!config)
        return -1;
    int rc = gateway_settings_state(config, state, sizeof(state), err);
    if (rc == 0)
        rc = gateway_daemon_store_url(config, state, url, sizeof(url), err);
    if (rc == 0 && strcmp(word, "show") == 0) {
        (void)printf("# file: %s\n# state: %s\n# store: %s\n", used[0] != '\0' ? used : "(none)",
                     state, url);
        config_show(config, stdout);
    } else if (rc == 0) {
        (void)printf("ok: %s\n", used[0] != '\0' ? used : "no file, defaults only");
    }
    config_free(config);
    return rc;
}

int
cmd_version(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *words[1];
    if (cli_parse(cli, argc, argv, NULL, &(struct cli_words){ 0, 0, words }, err) < 0)
        return -1;
    if (cli->json)
        (void)printf("{\"version\":\"%s\"}\n", HOLDFAST_VERSION);
    else
        (void)printf("holdfast %s\n", HOLDFAST_VERSION);
    return 0;
}
