#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

/*
 * Settings with the precedence command line > environment > file > default. The caller describes
 * every setting once in a table; an unknown section or key in the file is ERR_USAGE naming file,
 * line and the nearest known key.
 *
 * File form (INI): "[section]", "key = value", comments from '#' or ';' at the start of a line,
 * values may be "quoted" (then \" and \\ are escapes). The last of two lines for one key counts;
 * the sources may be loaded in any order. No includes, no continuation lines.
 */
enum config_source { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENV, CONFIG_ARGV };

enum config_kind { CONFIG_STR, CONFIG_BOOL, CONFIG_UINT, CONFIG_SIZE, CONFIG_DURATION };

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in reading order */
struct config_def {
    const char *section; /* "store", "listen", ...; "" for keys before the first section */
    const char *key;
    const char *env;  /* environment variable or NULL */
    const char *flag; /* long option without dashes or NULL */
    enum config_kind kind;
    const char *fallback; /* default as text, or NULL */
    bool secret;          /* shown as "(set)" only */
    const char *help;     /* one line */
};

struct config;
/* `defs` ends with an entry whose key is NULL and must outlive the config. Defaults are checked
 * too. */
struct config *config_new(const struct config_def *defs, struct err *err) MUST_CHECK;
void config_free(struct config *config);
int config_load_file(struct config *config, const char *path, struct err *err) MUST_CHECK;
int config_load_text(struct config *config, const char *name, const char *text, size_t len,
                     struct err *err) MUST_CHECK;
/* An empty variable counts as unset. */
int config_load_env(struct config *config, struct err *err) MUST_CHECK;
/* One "--flag value"; ERR_USAGE when no setting has this flag. A NULL value is "true" for a
 * CONFIG_BOOL. */
int config_set_flag(struct config *config, const char *flag, const char *value,
                    struct err *err) MUST_CHECK;

/* Values by "section.key" (or "key"); an unknown name is a bug and asserts. config_str may be
 * NULL when unset. */
const char *config_str(const struct config *config, const char *name);
bool config_bool(const struct config *config, const char *name);
uint64_t config_uint(const struct config *config, const char *name);    /* also sizes in bytes */
int64_t config_duration(const struct config *config, const char *name); /* nanoseconds */
enum config_source config_source(const struct config *config, const char *name);
/* "section.key = value  # source" lines, secrets hidden. */
void config_show(const struct config *config, FILE *out);
/* The entry of `words` (ending in NULL) nearest to `word`, or NULL when none is near. For "did
 * you mean". */
const char *nearest_word(const char *word, const char *const *words);

#endif
