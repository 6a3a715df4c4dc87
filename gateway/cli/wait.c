#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "gateway/cli/cli.h"

/* Waiting until a volume is in the bucket: barrier after barrier, each a few seconds long, and between them a line that says how
 * much is left. Who is killed here loses nothing: the gateway goes on. */

#define FIRST_S 1
#define SLICE_S 2
#define LINE_PAUSE (5 * NS_PER_S) /* where lines stay: not so many */

static int
barrier(struct cli *cli, const char *volume, int64_t seconds, int64_t *conflicts, struct err *err)
{
    json_t *answer = NULL;
    json_t *body = json_pack("{s:s, s:I}", "volume", volume, "timeout_s", (json_int_t)seconds);
    if (!body)
        return err_nomem(err);
    if (client_json(cli, &(struct json_call){ "POST", "/v1/flush", body, (int)seconds + 30 },
                    &answer, err) < 0)
        return -1;
    scope_json *held = answer;
    *conflicts += get_int(held, "conflicts");
    return 0;
}

static void
look(struct cli *cli, const char *volume, struct cli_synced *out)
{
    char target[LIMIT_VOLUME_NAME + 16];
    struct err ignored = ERR_INIT;
    json_t *answer = NULL;
    (void)snprintf(target, sizeof(target), "/v1/volumes/%s", volume);
    if (client_json(cli, &(struct json_call){ "GET", target, NULL, 30 }, &answer, &ignored) < 0)
        return;
    scope_json *held = answer;
    out->files = get_int(held, "unsynced_files");
    out->bytes = get_int(held, "unsynced_bytes");
    out->keys = get_int(held, "pending_keys");
}

void
cli_synced_text(const struct cli_synced *left, char *out, size_t size)
{
    char bytes[16];
    format_size((uint64_t)left->bytes, bytes);
    (void)snprintf(out, size, "%lld files (%s), %lld keys with work left", (long long)left->files,
                   bytes, (long long)left->keys);
}

struct line {
    bool moves; /* a terminal: one line that changes */
    bool shown;
    int64_t next_ns;
    char text[120];
};

static void
show(struct line *line, const char *volume, const struct cli_synced *left)
{
    char text[sizeof(line->text)];
    int64_t now = clock_mono_ns();
    cli_synced_text(left, text, sizeof(text));
    if (strcmp(text, line->text) == 0 || (!line->moves && now < line->next_ns))
        return;
    (void)snprintf(line->text, sizeof(line->text), "%s", text);
    (void)fprintf(stderr, line->moves ? "\r\033[K%s: %s" : "holdfast: waiting for %s: %s\n", volume,
                  text);
    line->shown = true;
    line->next_ns = now + LINE_PAUSE;
}

int
cli_wait_synced(struct cli *cli, const char *volume, int64_t seconds, struct cli_synced *out,
                struct err *err)
{
    struct line line = { .moves = isatty(STDERR_FILENO) && !secure_getenv("NO_COLOR") };
    int64_t end = clock_mono_ns() + seconds * NS_PER_S;
    int64_t slice = FIRST_S;
    memset(out, 0, sizeof(*out));
    for (;;) {
        int64_t left = (end - clock_mono_ns() + NS_PER_S - 1) / NS_PER_S;
        struct err why = ERR_INIT;
        slice = left < slice ? (left < 0 ? 0 : left) : slice;
        int rc = barrier(cli, volume, slice, &out->conflicts, &why);
        bool over = rc == 0 || why.code != ERR_NOT_SYNCED || clock_mono_ns() >= end;
        if (rc < 0 && why.code == ERR_NOT_SYNCED)
            look(cli, volume, out);
        if (rc < 0 && !over)
            show(&line, volume, out);
        if (over && line.shown && line.moves)
            (void)fprintf(stderr, "\r\033[K");
        if (rc < 0 && over)
            *err = why;
        if (over)
            return rc;
        slice = SLICE_S;
    }
}
