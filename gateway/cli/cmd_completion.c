#include <stdio.h>
#include <string.h>

#include "gateway/cli/cli.h"

static void
words(const char *separator)
{
    for (const struct cli_command *command = cli_commands; command->name; command++)
        (void)printf("%s%s", command == cli_commands ? "" : separator, command->name);
}

/* Options that are long to type. */
static const struct {
    const char *command, *words;
} option_words[] = {
    { "cp", "--replace" },
    { "edit", "--old --new --all --edits --base --dry-run" },
    { "grep", "--ignore-case --fixed-strings --files-with-matches --count --context --include "
              "--limit --fetch" },
    { "find", "--kind --newer --larger --limit --list" },
    { "history", "--limit" },
    { "events", "--since --follow" },
    { "trash", "--limit" },
    { "diff", "--version" },
    { "ls", "--at" },
    { "cat", "--version --at" },
    { "get", "--version --at" },
    { "restore", "--version --at --dry-run --timeout --limit" },
    { "undo", "--run --dry-run --timeout --limit" },
    { "publish", "--expires --name --downloads --inline --proxy" },
    { "link", "--put --max-bytes --expires --name --downloads --inline --proxy" },
    { "token", "--volume --allow --expires --label --run" },
    { "snapshot", "--path --limit --timeout --dry-run --no-wait" },
    { "conflicts", "--run --keep --base --create --from --to" },
    { "audit", "--run --volume --path --verb --since --until --limit --local" },
    { "volume", "--prefix --quota --history --history-versions --sync --read-only --read-write "
                "--storage-class --encryption --conflict-copy --stale-reads --audit-reads "
                "--snapshots --force" },
};

static void
bash(void)
{
    (void)printf("_holdfast() {\n"
                 "    local word=${COMP_WORDS[COMP_CWORD]} words\n"
                 "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
                 "        mapfile -t COMPREPLY < <(compgen -W '");
    words(" ");
    (void)printf(
        "' -- \"$word\")\n"
        "    elif [ \"${COMP_WORDS[1]}\" = volume ] && [ \"$COMP_CWORD\" = 2 ]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W 'create list show set delete' -- \"$word\")\n"
        "    elif [ \"${COMP_WORDS[1]}\" = link ] && [ \"$COMP_CWORD\" = 2 ]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W 'create list show revoke' -- \"$word\")\n"
        "    elif [ \"${COMP_WORDS[1]}\" = token ] && [ \"$COMP_CWORD\" = 2 ]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W 'create list revoke' -- \"$word\")\n"
        "    elif [ \"${COMP_WORDS[1]}\" = snapshot ] && [ \"$COMP_CWORD\" = 2 ]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W 'create list show diff restore fork delete' "
        "-- "
        "\"$word\")\n"
        "    elif [ \"${COMP_WORDS[1]}\" = conflicts ] && [ \"$COMP_CWORD\" = 2 ]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W 'list show diff resolve' -- \"$word\")\n"
        "    elif [ \"${COMP_WORDS[COMP_CWORD - 1]}\" = --keep ]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W 'mine theirs both merge' -- \"$word\")\n"
        "    elif [[ $word == -* ]]; then\n"
        "        case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < sizeof(option_words) / sizeof(option_words[0]); i++)
        (void)printf("            %s) words='%s --json' ;;\n", option_words[i].command,
                     option_words[i].words);
    (void)printf("            *) words='--json --help' ;;\n"
                 "        esac\n"
                 "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
                 "    else\n"
                 "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
                 "    fi\n"
                 "}\n"
                 "complete -F _holdfast holdfast\n");
}

static void
zsh(void)
{
    (void)printf("#compdef holdfast\n_holdfast() {\n    local -a commands\n    commands=(\n");
    for (const struct cli_command *command = cli_commands; command->name; command++)
        (void)printf("        \"%s:%s\"\n", command->name, command->summary);
    (void)printf("    )\n"
                 "    if ((CURRENT == 2)); then _describe command commands; else _files; fi\n"
                 "}\n"
                 "compdef _holdfast holdfast\n");
}

static void
fish(void)
{
    for (const struct cli_command *command = cli_commands; command->name; command++)
        (void)printf("complete -c holdfast -n __fish_use_subcommand -f -a %s -d \"%s\"\n",
                     command->name, command->summary);
}

int
cmd_completion(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *word[1];
    if (cli_parse(cli, argc, argv, NULL, &(struct cli_words){ 1, 1, word }, err) < 0)
        return -1;
    if (strcmp(word[0], "bash") == 0)
        bash();
    else if (strcmp(word[0], "zsh") == 0)
        zsh();
    else if (strcmp(word[0], "fish") == 0)
        fish();
    else
        return err_set(err, ERR_USAGE, "no completion for '%s': bash, zsh and fish are known",
                       word[0]);
    return 0;
}
