#include "base/config.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/parse.h"
#include "base/scope.h"
#include "base/sys.h"

struct value {
    char *text; /* NULL: unset */
    enum config_source source;
    union {
        bool truth;
        uint64_t number;
        int64_t duration;
    } as;
};

struct config {
    const struct config_def *defs;
    size_t count;
    struct value values[];
};

static const char *const kind_words[] = {
    [CONFIG_STR] = "a text",
    [CONFIG_BOOL] = "true or false",
    [CONFIG_UINT] = "a whole number",
    [CONFIG_SIZE] = "a size such as 64M or 1.5G",
    [CONFIG_DURATION] = "a duration such as 500ms, 30s or 2h",
};

static void
free_text(const struct config_def *def, struct value *value)
{
    if (def->secret)
        secret_free_ptr(&value->text);
    free(value->text);
    value->text = NULL;
}

static bool
parse_value(enum config_kind kind, const char *text, struct value *out)
{
    switch (kind) {
    case CONFIG_STR:
        return true;
    case CONFIG_BOOL:
        return parse_bool(text, &out->as.truth);
    case CONFIG_UINT:
        return parse_u64(text, &out->as.number);
    case CONFIG_SIZE:
        return parse_size(text, &out->as.number);
    case CONFIG_DURATION:
        return parse_duration(text, &out->as.duration);
    }
    return false;
}

/* Checks the text always, and keeps it unless a stronger source has spoken. The error does not
 * name the setting. */
static int
set_value(struct config *config, size_t i, enum config_source source, const char *text,
          struct err *err)
{
    const struct config_def *def = &config->defs[i];
    struct value *old = &config->values[i];
    struct value value = { .source = source };
    if (!parse_value(def->kind, text, &value))
        return err_set(err, ERR_USAGE, "'%s' is not %s", def->secret ? "(secret)" : text,
                       kind_words[def->kind]);
    if (source < old->source)
        return 0;
    value.text = strdup(text);
    if (!value.text)
        return err_nomem(err);
    free_text(def, old);
    *old = value;
    return 0;
}

/* The name of a setting as "section.key", or "key" without a section. */
static int
append_name(const struct config_def *def, struct buf *out, struct err *err)
{
    return buf_appendf(out, err, "%s%s%s", def->section, def->section[0] ? "." : "", def->key);
}

static int
wrap_name(const struct config_def *def, struct err *err)
{
    return err_wrap(err, "%s%s%s", def->section, def->section[0] ? "." : "", def->key);
}

struct config *
config_new(const struct config_def *defs, struct err *err)
{
    size_t count = 0;
    while (defs[count].key)
        count++;
    struct config *config = calloc(1, sizeof(*config) + count * sizeof(config->values[0]));
    if (!config) {
        err_nomem(err);
        return NULL;
    }
    config->defs = defs;
    config->count = count;
    for (size_t i = 0; i < count; i++) {
        if (defs[i].fallback && set_value(config, i, CONFIG_DEFAULT, defs[i].fallback, err) < 0) {
            wrap_name(&defs[i], err);
            config_free(config);
            return NULL;
        }
    }
    return config;
}

void
config_free(struct config *config)
{
    if (!config)
        return;
    for (size_t i = 0; i < config->count; i++)
        free_text(&config->defs[i], &config->values[i]);
    free(config);
}

#define WORD_MAX 64

/* Levenshtein's distance with two rows; `a` and `b` are at most WORD_MAX long. */
static size_t
distance(const char *a, const char *b)
{
    size_t rows[2][WORD_MAX + 1];
    size_t width = strlen(b);
    size_t *above = rows[0];
    size_t *here = rows[1];
    for (size_t k = 0; k <= width; k++)
        above[k] = k;
    for (size_t i = 0; a[i] != '\0'; i++) {
        here[0] = i + 1;
        for (size_t k = 0; k < width; k++) {
            size_t best = above[k] + (a[i] != b[k]);
            best = above[k + 1] + 1 < best ? above[k + 1] + 1 : best;
            here[k + 1] = here[k] + 1 < best ? here[k] + 1 : best;
        }
        size_t *swap = above;
        above = here;
        here = swap;
    }
    return above[width];
}

const char *
nearest_word(const char *word, const char *const *words)
{
    size_t len = strlen(word);
    if (len > WORD_MAX)
        return NULL;
    const char *best = NULL;
    size_t best_distance = (len + 2) / 3 + 1; /* one typing error per three letters */
    for (size_t i = 0; words[i]; i++) {
        size_t other = strlen(words[i]);
        if (other > WORD_MAX)
            continue;
        size_t d = distance(word, words[i]);
        if (d < best_distance && d < other) {
            best = words[i];
            best_distance = d;
        }
    }
    return best;
}

enum list_kind { LIST_SECTIONS, LIST_KEYS, LIST_FLAGS };

/* NULL when the setting has no word of this kind, or is of another section. */
static const char *
list_word(const struct config_def *def, enum list_kind kind, const char *section)
{
    if (kind == LIST_SECTIONS)
        return def->section[0] ? def->section : NULL;
    if (kind == LIST_FLAGS)
        return def->flag;
    return strcmp(def->section, section) == 0 ? def->key : NULL;
}

/* Answers ERR_USAGE for `word` and names the nearest that would do. */
static int
unknown(const struct config *config, enum list_kind kind, const char *section, const char *word,
        struct err *err)
{
    static const char *const names[] = { "section", "key", "option" };
    scope_free const char **words = calloc(config->count + 1, sizeof(words[0]));
    if (!words)
        return err_nomem(err);
    size_t count = 0;
    for (size_t i = 0; i < config->count; i++) {
        const char *candidate = list_word(&config->defs[i], kind, section);
        if (candidate)
            words[count++] = candidate;
    }
    const char *near = nearest_word(word, words);
    const char *dashes = kind == LIST_FLAGS ? "--" : "";
    if (near)
        return err_set(err, ERR_USAGE, "unknown %s '%s%s', did you mean '%s%s'?", names[kind],
                       dashes, word, dashes, near);
    return err_set(err, ERR_USAGE, "unknown %s '%s%s'", names[kind], dashes, word);
}

static bool
find_key(const struct config *config, const char *section, const char *key, size_t *out)
{
    for (size_t i = 0; i < config->count; i++) {
        if (strcmp(config->defs[i].section, section) == 0 &&
            strcmp(config->defs[i].key, key) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

static bool
has_section(const struct config *config, const char *section)
{
    for (size_t i = 0; i < config->count; i++) {
        if (strcmp(config->defs[i].section, section) == 0)
            return true;
    }
    return false;
}

/* Cuts white space from both ends, in place. */
static char *
trim(char *text)
{
    text += strspn(text, " \t");
    size_t len = strlen(text);
    while (len > 0 && strchr(" \t\r", text[len - 1]))
        len--;
    text[len] = '\0';
    return text;
}

/* Takes the quotes off "..." in place; only \" and \\ are escapes. */
static int
unquote(char *text, struct err *err)
{
    char *to = text;
    for (const char *at = text + 1; *at != '\0'; at++) {
        if (*at == '"') {
            if (at[1] != '\0')
                return err_set(err, ERR_USAGE, "text after the closing quote");
            *to = '\0';
            return 0;
        }
        if (*at == '\\') {
            at++;
            if (*at != '"' && *at != '\\')
                return err_set(err, ERR_USAGE, "only \\\" and \\\\ are escapes");
        }
        *to++ = *at;
    }
    return err_set(err, ERR_USAGE, "the closing quote is missing");
}

static int
section_line(const struct config *config, char *line, const char **section, struct err *err)
{
    size_t len = strlen(line);
    if (line[len - 1] != ']')
        return err_set(err, ERR_USAGE, "']' is missing");
    line[len - 1] = '\0';
    char *name = trim(line + 1);
    if (name[0] == '\0' || !has_section(config, name))
        return unknown(config, LIST_SECTIONS, "", name, err);
    *section = name;
    return 0;
}

static int
key_line(struct config *config, char *line, const char *section, struct err *err)
{
    char *equals = strchr(line, '=');
    if (!equals)
        return err_set(err, ERR_USAGE, "'key = value' is needed");
    *equals = '\0';
    const char *key = trim(line);
    char *value = trim(equals + 1);
    size_t i;
    if (!find_key(config, section, key, &i))
        return unknown(config, LIST_KEYS, section, key, err);
    if (value[0] == '"' && unquote(value, err) < 0)
        return wrap_name(&config->defs[i], err);
    if (set_value(config, i, CONFIG_FILE, value, err) < 0)
        return wrap_name(&config->defs[i], err);
    return 0;
}

/* `text` is changed; *section points into it from line to line. */
static int
text_line(struct config *config, char *text, const char **section, struct err *err)
{
    char *line = trim(text);
    if (line[0] == '\0' || line[0] == '#' || line[0] == ';')
        return 0;
    return line[0] == '[' ? section_line(config, line, section, err)
                          : key_line(config, line, *section, err);
}

int
config_load_text(struct config *config, const char *name, const char *text, size_t len,
                 struct err *err)
{
    if (len > LIMIT_CONFIG_FILE)
        return err_set(err, ERR_TOO_LARGE, "%s: longer than %u bytes", name, LIMIT_CONFIG_FILE);
    if (memchr(text, '\0', len))
        return err_set(err, ERR_USAGE, "%s: holds a NUL byte", name);
    char *copy = strndup(text, len);
    if (!copy)
        return err_nomem(err);
    const char *section = "";
    unsigned number = 1;
    int rc = 0;
    for (char *line = copy; line && rc == 0; number++) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        rc = text_line(config, line, &section, err);
        if (rc < 0)
            err_wrap(err, "%s:%u", name, number);
        line = end ? end + 1 : NULL;
    }
    secret_wipe(copy, len);
    free(copy);
    return rc;
}

int
config_load_file(struct config *config, const char *path, struct err *err)
{
    char *text;
    size_t len;
    if (sys_read_file(AT_FDCWD, path, LIMIT_CONFIG_FILE, &text, &len, err) < 0)
        return -1;
    int rc = config_load_text(config, path, text, len, err);
    secret_wipe(text, len);
    free(text);
    return rc;
}

int
config_load_env(struct config *config, struct err *err)
{
    for (size_t i = 0; i < config->count; i++) {
        const char *name = config->defs[i].env;
        const char *value = name ? secure_getenv(name) : NULL;
        if (!value || value[0] == '\0')
            continue;
        if (set_value(config, i, CONFIG_ENV, value, err) < 0)
            return err_wrap(err, "%s", name);
    }
    return 0;
}

int
config_set_flag(struct config *config, const char *flag, const char *value, struct err *err)
{
    for (size_t i = 0; i < config->count; i++) {
        const struct config_def *def = &config->defs[i];
        if (!def->flag || strcmp(def->flag, flag) != 0)
            continue;
        if (!value && def->kind != CONFIG_BOOL)
            return err_set(err, ERR_USAGE, "--%s needs a value", flag);
        if (set_value(config, i, CONFIG_ARGV, value ? value : "true", err) < 0)
            return err_wrap(err, "--%s", flag);
        return 0;
    }
    return unknown(config, LIST_FLAGS, "", flag, err);
}

static size_t
index_of(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->count; i++) {
        const struct config_def *def = &config->defs[i];
        size_t len = strlen(def->section);
        const char *key = name;
        if (len > 0) {
            if (strncmp(name, def->section, len) != 0 || name[len] != '.')
                continue;
            key = name + len + 1;
        }
        if (strcmp(key, def->key) == 0)
            return i;
    }
    assert(false && "unknown setting");
    return 0;
}

const char *
config_str(const struct config *config, const char *name)
{
    return config->values[index_of(config, name)].text;
}

bool
config_bool(const struct config *config, const char *name)
{
    size_t i = index_of(config, name);
    assert(config->defs[i].kind == CONFIG_BOOL);
    return config->values[i].as.truth;
}

uint64_t
config_uint(const struct config *config, const char *name)
{
    size_t i = index_of(config, name);
    assert(config->defs[i].kind == CONFIG_UINT || config->defs[i].kind == CONFIG_SIZE);
    return config->values[i].as.number;
}

int64_t
config_duration(const struct config *config, const char *name)
{
    size_t i = index_of(config, name);
    assert(config->defs[i].kind == CONFIG_DURATION);
    return config->values[i].as.duration;
}

enum config_source
config_source(const struct config *config, const char *name)
{
    return config->values[index_of(config, name)].source;
}

/* Appends one line of config_show(). */
static int
show_line(const struct config_def *def, const struct value *value, struct buf *out, struct err *err)
{
    static const char *const sources[] = { "default", "file", "environment", "command line" };
    if (append_name(def, out, err) < 0 || buf_append_str(out, " = ", err) < 0)
        return -1;
    const char *text = value->text ? value->text : "(unset)";
    if (value->text && def->secret)
        text = "(set)";
    if (printable_append(text, strlen(text), out, err) < 0)
        return -1;
    return buf_appendf(out, err, "  # %s\n", sources[value->source]);
}

void
config_show(const struct config *config, FILE *out)
{
    for (size_t i = 0; i < config->count; i++) {
        struct err err = ERR_INIT;
        scope_buf line;
        buf_init(&line, SIZE_MAX);
        if (show_line(&config->defs[i], &config->values[i], &line, &err) < 0)
            (void)fprintf(out, "%s: %s\n", config->defs[i].key, err.msg);
        else
            (void)fputs(buf_cstr(&line), out);
    }
}
