#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/path.h"
#include "gateway/cli/cli.h"

#define OPTIONS_MAX 32

struct walk {
    struct cli_option options[OPTIONS_MAX];
    size_t count;
    int argc;
    char **argv;
    int at;
};

static int
unknown_option(const struct walk *walk, const char *word, struct err *err)
{
    const char *names[OPTIONS_MAX + 1] = { NULL };
    for (size_t i = 0; i < walk->count; i++)
        names[i] = walk->options[i].name;
    const char *near = strncmp(word, "--", 2) == 0 ? nearest_word(word + 2, names) : NULL;
    if (near)
        return err_set(err, ERR_USAGE, "unknown option '%s', did you mean '--%s'?", word, near);
    return err_set(err, ERR_USAGE, "unknown option '%s': see --help", word);
}

static const struct cli_option *
match(const struct walk *walk, const char *word, const char **value)
{
    *value = NULL;
    for (size_t i = 0; i < walk->count; i++) {
        const struct cli_option *option = &walk->options[i];
        size_t len = strlen(option->name);
        if (word[0] == '-' && word[1] != '-' && option->letter && word[1] == option->letter) {
            *value = word[2] != '\0' ? word + 2 : NULL;
            return option->kind == CLI_FLAG && *value ? NULL : option;
        }
        if (strncmp(word, "--", 2) == 0 && strncmp(word + 2, option->name, len) == 0 &&
            (word[2 + len] == '\0' || word[2 + len] == '=')) {
            *value = word[2 + len] == '=' ? word + 3 + len : NULL;
            return option;
        }
    }
    return NULL;
}

static int
store_value(const struct cli_option *option, const char *value, struct err *err)
{
    if (option->kind == CLI_TEXT) {
        *(const char **)option->out = value;
        return 0;
    }
    struct cli_list *list = option->out;
    if (list->count == CLI_LIST_MAX)
        return err_set(err, ERR_USAGE, "--%s was given too often", option->name);
    list->item[list->count++] = value;
    return 0;
}

static int
take_option(struct walk *walk, struct err *err)
{
    const char *value;
    const char *word = walk->argv[walk->at];
    const struct cli_option *option = match(walk, word, &value);
    if (!option)
        return unknown_option(walk, word, err);
    if (option->kind == CLI_FLAG) {
        if (value)
            return err_set(err, ERR_USAGE, "--%s takes no value", option->name);
        *(bool *)option->out = true;
        return 0;
    }
    if (!value) {
        if (walk->at + 1 >= walk->argc)
            return err_set(err, ERR_USAGE, "--%s needs a value", option->name);
        value = walk->argv[++walk->at];
    }
    return store_value(option, value, err);
}

static void
fill_options(struct walk *walk, struct cli *cli, const struct cli_option *options)
{
    const struct cli_option standard[] = { { "json", 0, CLI_FLAG, &cli->json },
                                           { "state", 0, CLI_TEXT, &cli->state },
                                           { "url", 0, CLI_TEXT, &cli->url },
                                           { "config", 0, CLI_TEXT, &cli->config } };
    for (size_t i = 0; i < sizeof(standard) / sizeof(standard[0]); i++)
        walk->options[walk->count++] = standard[i];
    for (; options && options->name && walk->count < OPTIONS_MAX; options++)
        walk->options[walk->count++] = *options;
}

int
cli_parse(struct cli *cli, int argc, char **argv, const struct cli_option *options,
          const struct cli_words *words, struct err *err)
{
    struct walk walk = { .argc = argc, .argv = argv };
    int count = 0;
    bool ended = false;
    fill_options(&walk, cli, options);
    for (; walk.at < argc; walk.at++) {
        const char *word = argv[walk.at];
        if (!ended && strcmp(word, "--") == 0) {
            ended = true;
        } else if (!ended && word[0] == '-' && word[1] != '\0') {
            if (take_option(&walk, err) < 0)
                return -1;
        } else if (count == words->most) {
            return err_set(err, ERR_USAGE, "'%s' is one word too many: see --help", word);
        } else {
            words->out[count++] = word;
        }
    }
    if (count < words->least)
        return err_set(err, ERR_USAGE, "something is missing: see --help");
    return count;
}

bool
cli_is_place(const char *text)
{
    return strchr(text, ':') != NULL;
}

int
cli_place(const char *text, char *volume, char *path, struct err *err)
{
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : strlen(text);
    if (len > LIMIT_VOLUME_NAME)
        return err_set(err, ERR_BAD_NAME, "the volume's name in '%s' is too long", text);
    memcpy(volume, text, len);
    volume[len] = '\0';
    if (path_check_volume(volume, err) < 0)
        return -1;
    const char *rest = colon ? colon + 1 : "";
    if (path_normalize(rest, strlen(rest), path, LIMIT_PATH + 1, err) < 0)
        return err_wrap(err, "'%s'", text);
    return 0;
}
