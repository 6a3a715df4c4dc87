#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/parse.h"
#include "gateway/cli/cli.h"

#define STANDARD "  --state DIR  the gateway to talk to   --json  one JSON document on stdout\n"

const struct cli_command cli_commands[] = {
    { "serve", "[--state DIR] [--store URL] [--listen ADDR:PORT] [--config FILE] [--log SPEC]",
      "run the gateway until it gets SIGTERM",
      "  every setting of 'holdfast config show' is an option too\n",
      "holdfast serve --state /var/lib/holdfast --store "
      "'s3://bucket?endpoint=https://s3.example.org&region=auto'",
      cmd_serve },
    { "status", "", "what is synced, what is not, and why", STANDARD, "holdfast status",
      cmd_status },
    { "upgrade", "[--timeout S]", "replace the running gateway by the program's file of now",
      "  programs in mounts wait for a moment and see no error\n", "holdfast upgrade",
      cmd_upgrade },
    { "doctor", "", "check this machine and the store, and say what to do", STANDARD,
      "holdfast doctor", cmd_doctor },
    { "rebuild", "[--state DIR] [--store URL] [--json]",
      "make the index of a state directory anew, from the bucket alone",
      "  no gateway may run on the directory; every setting of 'serve' is an option too\n"
      "  the bucket is only read; files that are not in it yet are found in the cache\n"
      "  the old index, if there is one, is set aside\n",
      "holdfast rebuild --state /var/lib/holdfast --store "
      "'s3://bucket?endpoint=https://s3.example.org&region=auto'",
      cmd_rebuild },
    { "fsck", "[VOLUME] [--full] [--repair] [--store URL]",
      "hold index, cache and bucket against one another",
      "  --full       read all bytes too, and compare them with their checksums\n"
      "  --repair     mend what can be mended; nothing is destroyed, nothing asked\n"
      "  --store URL  where no gateway runs: the store of the state directory\n" STANDARD
      "  status 0: clean, 1: something was found\n",
      "holdfast fsck reports --full", cmd_fsck },
    { "volume", "create|list|show|set|delete [NAME] [OPTION...]",
      "make, list, change and forget volumes",
      "  --prefix P        key prefix in the bucket (NAME/)\n  --quota BYTES     0: none\n"
      "  --history DAYS    how long replaced and removed versions are kept (30; 0: not)\n"
      "  --history-versions N  how many of a file at most (0: any number)\n"
      "  --snapshots RULE  taken by themselves, and how many are kept: "
      "hourly=24,daily=7,weekly=4,monthly=12 (any of these), or off\n"
      "  --sync background|close\n"
      "  --storage-class C, --encryption AES256|aws:kms[:KEY]   of objects from now on, '' as the "
      "bucket says\n"
      "  --conflict-copy on|off    the loser of a conflict also becomes a file beside the path\n"
      "  --stale-reads mark|refuse|off   what runs write after others changed what they had read\n"
      "  --audit-reads on|off      reads are recorded too (holdfast audit)\n"
      "  --read-only       nobody may change it (set: --read-write undoes it)\n  --force           "
      "delete: although something is unsynced\n",
      "holdfast volume create reports", cmd_volume },
    { "freeze", "[VOLUME]", "emergency stop: no more writes, nothing goes to the bucket",
      "  of one volume, or of all there are; works while the bucket is away\n"
      "  what waits here waits on, until 'holdfast thaw'\n",
      "holdfast freeze reports", cmd_freeze },
    { "thaw", "[VOLUME]", "the end of a freeze", STANDARD, "holdfast thaw reports", cmd_thaw },
    { "mount", "VOLUME[@SNAPSHOT][/FOLDER] [PATH] [--read-only] [--lease MINUTES] [--run ID]",
      "show a volume as a directory",
      "  without PATH: the first free of /mnt/data/1, 2, ...; prints the path\n"
      "  @SNAPSHOT: as it was then, read-only\n",
      "holdfast mount reports /srv/reports", cmd_mount },
    { "umount", "PATH|ID [--force] [--timeout S]", "sync, then take a mount away",
      "  --force      although in use or not synced: what is left stays here and goes up later\n"
      "  --timeout S  of the wait for the bucket (30, with --force 5)\n",
      "holdfast umount /srv/reports", cmd_umount },
    { "mounts", "", "what is mounted where", STANDARD, "holdfast mounts --json", cmd_mounts },
    { "run",
      "[-v VOLUME[@SNAPSHOT][/FOLDER][:ro][@PATH]]... [--timeout 60] [--net none|host] [--run ID] "
      "-- COMMAND "
      "[ARG...]",
      "run a command in a sandbox that sees only these volumes",
      "  -v, --volume      shown at /mnt/data/1, 2, ... or at PATH; a snapshot read-only\n  "
      "--timeout S       of the "
      "command (124), 0: none\n"
      "  --net host        with the host's network; else there is none\n  --sync-timeout S  of the "
      "wait for the bucket at the end (60)\n",
      "holdfast run -v reports -- python3 /mnt/data/1/clean.py", cmd_run },
    { "ls", "[VOLUME[:/FOLDER] [--at TIME]]", "list a folder; without one, the volumes",
      "  --at TIME  as it was: 2h ago, 2026-07-01T10:00:00Z, or at a snapshot\n",
      "holdfast ls reports:/2026", cmd_ls },
    { "stat", "VOLUME:/path", "all about one file or folder", STANDARD,
      "holdfast stat reports:/orders.csv", cmd_stat },
    { "cat", "VOLUME:/path... [--version V | --at TIME]", "write files to standard output",
      "  --version V  a version that 'holdfast history' names, of one file\n"
      "  --at TIME    as it was: 2h ago, 2026-07-01T10:00:00Z, or at a snapshot\n",
      "holdfast cat reports:/summary.md", cmd_cat },
    { "put", "FILE|- VOLUME:/path [--base VERSION | --create] [--no-wait] [--timeout S]",
      "write a file",
      "  --base VERSION  only if this is the version there now; else the one that is there when "
      "put starts\n"
      "  --create        only if nothing is there\n  --no-wait       come back when it is staged, "
      "not yet in the bucket\n",
      "holdfast put orders.csv reports:/orders.csv", cmd_put },
    { "get", "VOLUME:/path [FILE|-] [--version V | --at TIME]", "read a file",
      "  --version V  a version that 'holdfast history' names\n"
      "  --at TIME    as it was: 2h ago, 2026-07-01T10:00:00Z, or at a snapshot\n",
      "holdfast get reports:/clean.csv -", cmd_get },
    { "rm", "VOLUME:/path... [-r]", "remove files, or with -r folders", NULL,
      "holdfast rm reports:/old.csv", cmd_rm },
    { "mkdir", "VOLUME:/path... [-p]", "make folders", NULL, "holdfast mkdir -p reports:/2026/07",
      cmd_mkdir },
    { "mv", "VOLUME:/from VOLUME:/to [--replace]", "rename within a volume", NULL,
      "holdfast mv reports:/a.csv reports:/b.csv", cmd_mv },
    { "cp", "VOLUME:/from VOLUME:/to [--replace]", "copy a file within a volume", NULL,
      "holdfast cp reports:/a.csv reports:/b.csv", cmd_cp },
    { "edit",
      "VOLUME:/path --old TEXT --new TEXT [--all] | --edits FILE.json|- [--base V] [--dry-run]",
      "replace parts of a text file, and show what differs",
      "  --old, --new  TEXT occurs exactly once, or with --all at least once\n"
      "  --edits FILE  a list of {\"old\", \"new\", \"all\"}, or {\"at\": \"start\"|\"end\", "
      "\"new\"}; - is standard "
      "input\n"
      "  --base V      only if this is the version there now; else the one that is there when edit "
      "starts\n"
      "  --dry-run     only show it\n"
      "  all edits apply to the file as it is, together or not at all\n",
      "holdfast edit reports:/summary.md --old draft --new final", cmd_edit },
    { "find", "VOLUME[:/FOLDER] [GLOB] [--kind file|dir] [--newer T] [--larger SIZE] [--limit N]",
      "paths by a pattern, from the index",
      "  GLOB         * in one name, ** any folders, ?, [a-z], {a,b}; without a slash: a name "
      "anywhere\n"
      "  --newer T    changed since: 2h ago, or 2026-07-01T10:00:00Z\n"
      "  --larger S   more bytes than this: 10M\n"
      "  --limit N    at most so many paths; else all\n"
      "  --list       first list folders of the bucket that nobody has looked into yet\n",
      "holdfast find reports '**/*.csv' --newer 2d", cmd_find },
    { "grep",
      "PATTERN VOLUME[:/FOLDER] [-i] [-F] [-l | -c] [-C LINES] [--include GLOB] [--limit N] "
      "[--fetch "
      "SIZE]",
      "lines of files that a pattern matches",
      "  PATTERN          a regular expression (PCRE2), or with -F the text itself; -i: any case\n"
      "  -l, -c           only names of files; how many lines of each\n"
      "  -C LINES         lines around each\n"
      "  --include GLOB   only such paths, as 'holdfast find' takes them\n"
      "  --limit N        at most so many lines; else all\n"
      "  --fetch SIZE     how much may be fetched from the bucket for a page (64M)\n"
      "  status 0: found, 1: not\n",
      "holdfast grep -i 'error|fatal' reports:/logs --include '*.log' -C 2", cmd_grep },
    { "conflicts",
      "list [VOLUME] [--run ID] | show ID | diff ID [--from SIDE] [--to SIDE] | resolve ID --keep "
      "mine|theirs|both|merge",
      "writes that lost against a newer version",
      "  --keep mine       the loser's bytes become the file again\n"
      "  --keep theirs     the file stays as it is\n"
      "  --keep both       the loser's bytes become a file beside it, 'name (conflict abcd).ext'\n"
      "  --keep merge      both changes, where they touch different lines of a text\n"
      "  --base VERSION    mine: only if this is the version there now; else the one it lost to\n"
      "  --create          mine: only if nothing is there now\n"
      "  --from, --to      diff: mine, theirs, base or merged (from theirs to mine)\n",
      "holdfast conflicts resolve 01JZX3T6W8Q9V4N2M7K5H1C0BD --keep both", cmd_conflicts },
    { "publish", "VOLUME:/path [--expires 1h] [--name N] [--downloads N] [--inline] [--proxy]",
      "freeze a copy of a file, and print a link to it",
      "  --expires T    until then, 7d at most (1h)\n"
      "  --name N       under which it is saved\n"
      "  --downloads N  so many, then it ends (0: any number)\n"
      "  --inline       browsers show it, else they save it\n"
      "  --proxy        the gateway sends the bytes, the client never sees the bucket\n" STANDARD,
      "holdfast publish reports:/clean.csv --expires 2h", cmd_publish },
    { "link", "create VOLUME:/path [--put] [OPTION...] | list | show ID | revoke ID",
      "links to files, and for files that others bring",
      "  create takes the options of publish, and\n"
      "  --put          the link takes a new file for this path instead of giving one\n"
      "  --max-bytes N  of such a file\n" STANDARD,
      "holdfast link revoke 01JZX3T6W8Q9V4N2M7K5H1C0BD", cmd_link },
    { "token",
      "create [-v VOLUME[/FOLDER]] [--allow VERBS] [--expires 1d] [--label L] [--run ID] | list | "
      "revoke ID",
      "keys to this gateway that open one volume, folder or verb only",
      "  -v, --volume   the volume, or the folder of one, that it is for (all)\n"
      "  --allow VERBS  of read, write, delete, share, mount, exec, admin, with commas (read)\n"
      "  --expires T    90m, 1h, 7d or never (1d)\n"
      "  --label L      shown in lists, and as the author of what it changes\n"
      "  --run ID       all that it does belongs to this run\n" STANDARD,
      "holdfast token create -v reports/2026 --allow read,write --expires 2h", cmd_token },
    { "history", "VOLUME:/path [--limit N]", "the versions of a file, newest first", STANDARD,
      "holdfast history reports:/orders.csv", cmd_history },
    { "diff", "VOLUME:/path [--version A] [--version B]",
      "what differs between two versions of a file",
      "  --version    given once: that one against the present; twice: A against B;\n"
      "               else the one before the present against the present\n",
      "holdfast diff reports:/orders.csv", cmd_diff },
    { "restore", "VOLUME:/path [--version V | --at TIME] [--dry-run] [--timeout S]",
      "bring back an older version, or what was removed",
      "  --version V  of a file, as 'holdfast history' names it\n"
      "  --at TIME    what was there then: 2026-07-01T10:00:00Z, '2026-07-01 10:00' (local), or 2h "
      "and 3d ago;\n"
      "               of a file, a folder or, as VOLUME:/, a whole volume\n"
      "  without both the version before the present one; of what was removed, the last one\n"
      "  --dry-run    only say what would be done\n"
      "  --timeout S  of the wait for the bucket at the end (60)\n"
      "  --limit N    print so many steps at most (100000)\n"
      "  what is replaced is kept first: 'holdfast undo' takes a restore back\n",
      "holdfast restore reports:/orders.csv --at 2h", cmd_restore },
    { "undo", "--run ID [VOLUME] [--dry-run] [--timeout S]", "take back what a run did",
      "  only where nobody changed it since: the rest is listed and left (exit status 3)\n"
      "  VOLUME       may be left out when there is one only\n"
      "  --dry-run    only say what would be done\n"
      "  --timeout S  of the wait for the bucket at the end (60)\n"
      "  --limit N    print so many steps at most (100000)\n",
      "holdfast undo --run 01KB7Q2M4T6V8XZAC1EG3HJ5KN reports", cmd_undo },
    { "trash", "VOLUME[:/folder] [--limit N] | restore VOLUME:/path",
      "what was removed, and its way back",
      "  trash restore  takes the options of 'holdfast restore'\n" STANDARD,
      "holdfast trash reports:/2026", cmd_trash },
    { "snapshot",
      "create VOLUME NAME | list VOLUME | show VOLUME NAME | diff VOLUME FROM [TO] | restore "
      "VOLUME "
      "NAME | fork VOLUME NAME NEW | delete VOLUME NAME",
      "moments of a volume that have a name",
      "  create         waits until all is in the bucket, and is done at once then\n"
      "  diff           FROM and TO are snapshots, times or how long ago (2h); TO: now\n"
      "  restore        brings the volume, or --path P of it, back; 'holdfast undo' takes that "
      "back\n"
      "  fork           makes the volume NEW with the files of then, which the store copies; "
      "done when all are there\n"
      "  --no-wait      fork: 'holdfast volume show NEW' tells how far it is\n"
      "  --path P       a file or folder\n"
      "  --dry-run      restore: only say what would be done\n"
      "  --timeout S    create, restore: of the wait for the bucket (60)\n"
      "  --limit N      diff: print so many at most (10000)\n" STANDARD,
      "holdfast snapshot create reports before-migration", cmd_snapshot },
    { "events", "[VOLUME[:/folder]] [--since SEQ] [--follow]", "what changed, oldest first",
      "  --since SEQ  what came after that event; else all that is known, or from now on\n"
      "  --follow     goes on until it is stopped; with --json an object a line\n",
      "holdfast events reports --follow", cmd_events },
    { "audit", "[--run ID] [--volume V] [--path P] [--since T]",
      "who did what; verify: is it whole",
      "  --path P     of a file, or of a folder and all below it; --verb read, write, exec, ...\n"
      "  --since T, --until T   a time, or how long ago (2h)\n  --limit N    so many at most "
      "(1000)\n"
      "  verify       each record is there and as it was written, here and in the bucket (--local: "
      "here)\n" STANDARD,
      "holdfast audit --run 01KB8Q4Z017M3XW9D2TR5VNC6H", cmd_audit },
    { "flush", "[VOLUME] [--timeout S]", "wait until everything is in the bucket", STANDARD,
      "holdfast flush reports --timeout 120", cmd_flush },
    { "config", "[show|check] [--config FILE]", "the settings and where they come from", NULL,
      "holdfast config show", cmd_config },
    { "version", "", "the version", NULL, "holdfast version", cmd_version },
    { "completion", "bash|zsh|fish", "completion for a shell", NULL,
      "source <(holdfast completion bash)", cmd_completion },
    { "help", "[COMMAND]", "this, or help for a command", NULL, "holdfast help run", cmd_help },
    { NULL, NULL, NULL, NULL, NULL, NULL },
};

const struct cli_command *
cli_find(const char *name)
{
    for (const struct cli_command *command = cli_commands; command->name; command++) {
        if (strcmp(command->name, name) == 0)
            return command;
    }
    return NULL;
}

/* Commands that the overview tells of together, so that it fits one screen; the others have a line each. */
static const struct {
    const char *names; /* in the order of cli_commands[] where the first stands */
    const char *summary;
} groups[] = {
    { "ls, stat, cat, put, get, rm, mkdir, mv, cp, edit, find, grep",
      "files and folders of a volume" },
    { "freeze, thaw", "emergency stop of a volume, or of all: nothing is written; its end" },
    { "history, diff, restore, undo, trash", "older versions, and the way back" },
};
#define GROUPS (sizeof(groups) / sizeof(groups[0]))

/* The group that names the command, GROUPS for none; `first`: it stands there at the beginning. */
static size_t
group_of(const char *name, bool *first)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < GROUPS; i++) {
        for (const char *at = groups[i].names; *at; at += strspn(at, ", ")) {
            size_t word = strcspn(at, ", ");
            *first = at == groups[i].names;
            if (word == len && strncmp(at, name, len) == 0)
                return i;
            at += word;
        }
    }
    return GROUPS;
}

static void
print_overview(FILE *out)
{
    bool first;
    (void)fputs("Holdfast keeps the files of sandboxes in a bucket.\n\nusage: holdfast COMMAND "
                "[OPTION...]\n\n",
                out);
    for (const struct cli_command *command = cli_commands; command->name; command++) {
        size_t group = group_of(command->name, &first);
        if (group == GROUPS)
            (void)fprintf(out, "  %-11s %s\n", command->name, command->summary);
        else if (first)
            (void)fprintf(out, "  %s\n%14s%s\n", groups[group].names, "", groups[group].summary);
    }
    (void)fputs(
        "\nFiles are named VOLUME:/path. 'holdfast COMMAND --help' has options and an example.\n"
        "Exit status: 0 done, 1 failed, 2 usage, 3 conflict, 4 not found, 5 denied, 6 "
        "unavailable,\n"
        "7 not synced in time, 8 quota or space.\n",
        out);
}

static void
print_help(const struct cli_command *command)
{
    (void)printf("usage: holdfast %s %s\n%s\n", command->name, command->usage, command->summary);
    if (command->details)
        (void)printf("%s", command->details);
    (void)printf("example: %s\n", command->example);
}

static int
unknown_command(const char *word, struct err *err)
{
    const char *names[64] = { NULL };
    size_t count = 0;
    for (const struct cli_command *command = cli_commands; command->name; command++)
        names[count++] = command->name;
    const char *near = nearest_word(word, names);
    if (near)
        return err_set(err, ERR_USAGE, "unknown command '%s', did you mean '%s'?", word, near);
    return err_set(err, ERR_USAGE, "unknown command '%s': see 'holdfast help'", word);
}

int
cmd_help(struct cli *cli, int argc, char **argv, struct err *err)
{
    (void)cli;
    if (argc < 1) {
        print_overview(stdout);
        return 0;
    }
    const struct cli_command *command = cli_find(argv[0]);
    if (!command)
        return unknown_command(argv[0], err);
    print_help(command);
    return 0;
}

/* --help before "--" and before the command of `run`. */
static bool
wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || (argc == 1 && strcmp(argv[i], "-h") == 0))
            return true;
    }
    return false;
}

static int
run_command(struct cli *cli, int argc, char **argv, struct err *err)
{
    const char *word = argv[0];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    if (strcmp(word, "--version") == 0)
        word = "version";
    const struct cli_command *command = cli_find(word);
    if (!command)
        return unknown_command(word, err);
    if (wants_help(argc - 1, argv + 1)) {
        print_help(command);
        return 0;
    }
    return command->fn(cli, argc - 1, argv + 1, err);
}

static int
report(const struct err *err)
{
    char text[LIMIT_ERR_MSG];
    (void)text_escape(err->msg, strlen(err->msg), text, sizeof(text));
    (void)fprintf(stderr, "holdfast: %s\n", text);
    return err_exit(err->code);
}

int
main(int argc, char **argv)
{
    struct err err = ERR_INIT;
    char program[4096];
    struct cli cli = { .url = secure_getenv("HOLDFAST_URL") };
    ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
    program[len > 0 ? len : 0] = '\0';
    cli.program = program;
    if (cli.url && cli.url[0] == '\0')
        cli.url = NULL;
    if (argc < 2) {
        print_overview(stderr);
        return err_exit(ERR_USAGE);
    }
    int status = run_command(&cli, argc - 1, argv + 1, &err);
    if (status < 0)
        status = report(&err);
    if (fflush(stdout) != 0 && status == 0) {
        (void)err_set(&err, ERR_IO, "cannot write to standard output");
        status = report(&err);
    }
    return status;
}
