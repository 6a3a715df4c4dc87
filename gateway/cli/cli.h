#ifndef GATEWAY_CLI_CLI_H
#define GATEWAY_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"

/*
 * The program `holdfast`. A command answers its exit status, or -1 with an error (whose exit status and one line main() prints).
 */
struct cli {
    const char *program; /* path of this executable */
    const char *state;   /* --state, or NULL */
    const char *url;     /* --url or HOLDFAST_URL, or NULL */
    const char *config;  /* --config, or NULL */
    bool json;
};

typedef int cli_fn(struct cli *cli, int argc, char **argv, struct err *err);
struct cli_command {
    const char *name;
    const char *usage; /* behind the name */
    const char *summary;
    const char *details; /* options, one a line, or NULL */
    const char *example;
    cli_fn *fn;
};
extern const struct cli_command cli_commands[]; /* ends with a NULL name */
const struct cli_command *cli_find(const char *name);

/* ---- options.c: words after the command ---- */
#define CLI_LIST_MAX 32
struct cli_list {
    const char *item[CLI_LIST_MAX];
    size_t count;
};
enum cli_kind { CLI_FLAG, CLI_TEXT, CLI_MANY };
struct cli_option {
    const char *name; /* long, without dashes; NULL ends the table */
    char letter;      /* 0: none */
    enum cli_kind kind;
    void *out; /* bool *, const char **, struct cli_list * */
};
/* Sorts argv (behind the command's name) into options and words; --json, --state, --url and --config go into `cli`. "--" ends the
 * options. `least` to `most` words. Answers the number of words. */
struct cli_words {
    int least, most;
    const char **out;
};
int cli_parse(struct cli *cli, int argc, char **argv, const struct cli_option *options,
              const struct cli_words *words, struct err *err) MUST_CHECK;

/* VOLUME:/path, both checked; `path` holds LIMIT_PATH + 1, `volume` LIMIT_VOLUME_NAME + 1. */
bool cli_is_place(const char *text);
int cli_place(const char *text, char *volume, char *path, struct err *err) MUST_CHECK;

/* ---- client.c: one HTTP exchange with the gateway ---- */
struct client_header {
    const char *name;
    const char *value;
};
#define CLIENT_HEADERS_MAX 8
struct client_request {
    const char *method;
    const char *target;
    struct client_header headers[CLIENT_HEADERS_MAX];
    size_t header_count;
    const char *body; /* text, or NULL */
    int body_fd;      /* with `has_fd` */
    bool has_fd;
    int64_t body_size; /* -1: until the end of body_fd */
    int sink_fd;       /* with `has_sink`: where the answer's body goes */
    bool has_sink;
    int timeout_s;        /* 0: 60; for each wait on the socket */
    const char *progress; /* name to show while bytes move, or NULL */
};
struct client_response {
    int status;
    char etag[LIMIT_ETAG + 2];
    struct buf body; /* empty when it went to the sink */
};
void client_response_init(struct client_response *response);
void client_response_release(struct client_response *response);
/* Any answer below 400 is a success; a problem document becomes the error it describes. */
int cli_client_call(struct cli *cli, const struct client_request *request,
                    struct client_response *response, struct err *err) MUST_CHECK;
/* For JSON both ways: `body` is taken (NULL for none), *out (may be NULL) is the answer. */
struct json_call {
    const char *method;
    const char *target;
    json_t *body;
    int timeout_s;
};
int client_json(struct cli *cli, const struct json_call *call, json_t **out,
                struct err *err) MUST_CHECK;
/* STATE of this call: --state, HOLDFAST_STATE, the file, the default. */
int client_state(struct cli *cli, char *out, size_t size, struct err *err) MUST_CHECK;
/* "&name=value", percent-encoded; nothing for NULL. */
int client_query_add(struct buf *target, const char *name, const char *value,
                     struct err *err) MUST_CHECK;
/* prefix + "/" + volume + "/" + path, percent-encoded. */
int client_target(const char *prefix, const char *volume, const char *path, struct buf *out,
                  struct err *err) MUST_CHECK;

/* ---- place.c: VOLUME:/path ---- */
struct place {
    char volume[LIMIT_VOLUME_NAME + 1];
    char path[LIMIT_PATH + 1]; /* "": the volume */
    const char *at;            /* as it was then, for ls, cat and get; NULL: now */
};
int place_read(const char *text, bool need_path, struct place *out, struct err *err) MUST_CHECK;
/* RFC 3339, the local time that tables show, or how long ago (2h): as RFC 3339; the name of a snapshot as it is. */
int place_time(const char *text, char out[TIME_RFC3339_SIZE], struct err *err) MUST_CHECK;
/* Behind the last slash. */
const char *place_name(const char *path);
/* GET prefix/volume/path with a query ("" for none): JSON. */
int place_get(struct cli *cli, const char *prefix, const struct place *place, const char *query,
              json_t **out, struct err *err) MUST_CHECK;
/* The bytes of a file into `fd`; `version` NULL is the present one. `progress`: a name to show, or NULL. */
int place_fetch(struct cli *cli, const struct place *place, const char *version, int fd,
                const char *progress, struct err *err) MUST_CHECK;

/* ---- wait.c ---- */
struct cli_synced {
    int64_t conflicts;          /* found by what was waited for */
    int64_t files, bytes, keys; /* what is left; after a wait in vain */
};
/* The barrier of a volume, with lines on stderr that say how much is left. ERR_NOT_SYNCED: not within `seconds`, and why. */
int cli_wait_synced(struct cli *cli, const char *volume, int64_t seconds, struct cli_synced *out,
                    struct err *err) MUST_CHECK;
void cli_synced_text(const struct cli_synced *left, char *out, size_t size);

/* ---- output.c ---- */
#define TABLE_COLUMNS 8
struct table {
    size_t columns;
    size_t count, cap;
    char **cells;
    bool failed;
};
void table_init(struct table *table, size_t columns);
void table_add(struct table *table,
               const char *text); /* made safe for a terminal; NULL counts as "-" */
void table_add_size(struct table *table, int64_t bytes);
void table_print(struct table *table); /* the first row is the head; also frees */
int print_json(const json_t *value, struct err *err) MUST_CHECK;
/* A line of somebody's text behind `head`: on a terminal without control characters but tabs, else as it is. */
void print_text(const char *head, const char *text, size_t len);
void print_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void format_size(uint64_t bytes, char out[16]);
/* RFC 3339 as local time, "2026-07-01 10:00:00"; "-" when it is none. */
void format_local(const char *rfc3339, char out[20]);
/* A name's or path's own bytes: what is not UTF-8 comes in hexadecimal beside it, and is shown as \xNN. */
const char *get_bytes(const json_t *object, const char *name, char *out, size_t size);
/* Members of an answer, with defaults for what is not there. */
const char *get_text(const json_t *object, const char *name);
int64_t get_int(const json_t *object, const char *name);
bool get_bool(const json_t *object, const char *name);

/* ---- cmd_serve.c ---- */
/* Settings of the file, the environment and `argv`, whose options are the settings' names; `used` (NULL, or PATH_MAX bytes) tells the
 * file. */
struct config;
struct config *cli_settings(struct cli *cli, int argc, char **argv, char *used, struct err *err);
/* Takes --json out of words that are not for cli_parse(); answers how many are left. */
int cli_take_json(struct cli *cli, int argc, char **argv);

/* ---- the commands, by file ---- */
cli_fn cmd_serve, cmd_config, cmd_version;
cli_fn cmd_volume, cmd_freeze, cmd_thaw;
/* The rule of a volume's snapshots, in `field`, and when the next one is due; nothing where there is none. */
void show_rule(const json_t *answer, const char *field);
cli_fn cmd_mount, cmd_umount, cmd_mounts;
cli_fn cmd_run;
cli_fn cmd_ls, cmd_stat, cmd_cat, cmd_put, cmd_get, cmd_rm, cmd_mkdir, cmd_mv;
cli_fn cmd_grep, cmd_find, cmd_edit, cmd_cp;
cli_fn cmd_conflicts;
cli_fn cmd_history, cmd_trash;
cli_fn cmd_restore, cmd_undo;
cli_fn cmd_diff;
cli_fn cmd_events, cmd_audit;
cli_fn cmd_snapshot;
cli_fn cmd_flush, cmd_status, cmd_upgrade;
cli_fn cmd_doctor;
cli_fn cmd_token, cmd_publish, cmd_link;
cli_fn cmd_rebuild, cmd_fsck;
cli_fn cmd_completion, cmd_help;

#endif
