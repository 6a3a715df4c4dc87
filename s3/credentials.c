#include "s3/credentials.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/scope.h"
#include "base/sys.h"

void
credentials_wipe(struct s3_credentials *credentials)
{
    secret_wipe(credentials, sizeof(*credentials));
}

static int
copy_value(char *out, size_t size, const char *name, const char *text, size_t len, struct err *err)
{
    if (len >= size)
        return err_set(err, ERR_STORE_DENIED, "%s is longer than %zu bytes", name, size - 1);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] <= 0x20 || (unsigned char)text[i] > 0x7e)
            return err_set(err, ERR_STORE_DENIED, "%s holds a blank or a control character", name);
    }
    memcpy(out, text, len);
    out[len] = '\0';
    return 0;
}

struct field {
    const char *name; /* in the profile files */
    const char *env;
    size_t offset;
    size_t size;
};
#define FIELD(ini, env, member)                             \
    {                                                       \
        ini, env, offsetof(struct s3_credentials, member),  \
            sizeof(((struct s3_credentials *)NULL)->member) \
    }
static const struct field fields[] = {
    FIELD("aws_access_key_id", "AWS_ACCESS_KEY_ID", access_key),
    FIELD("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", secret_key),
    FIELD("aws_session_token", "AWS_SESSION_TOKEN", session_token),
};
#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

static char *
member(struct s3_credentials *out, const struct field *field)
{
    return (char *)out + field->offset;
}

struct line {
    const char *text;
    size_t len;
};

static struct line
trimmed(const char *text, size_t len)
{
    while (len > 0 && strchr(" \t\r", text[0])) {
        text++;
        len--;
    }
    while (len > 0 && strchr(" \t\r", text[len - 1]))
        len--;
    return (struct line){ text, len };
}

static bool
line_is(struct line line, const char *word)
{
    return line.len == strlen(word) && memcmp(line.text, word, line.len) == 0;
}

/* "[name]" or, in config files, "[profile name]". */
static bool
is_section(struct line line, const char *profile, bool config_form)
{
    if (line.len < 2 || line.text[line.len - 1] != ']')
        return false;
    struct line name = trimmed(line.text + 1, line.len - 2);
    if (config_form && strcmp(profile, "default") != 0) {
        if (name.len < 8 || memcmp(name.text, "profile", 7) != 0)
            return false;
        name = trimmed(name.text + 7, name.len - 7);
    }
    return line_is(name, profile);
}

static int
set_field(struct line line, struct s3_credentials *out, struct err *err)
{
    const char *mark = memchr(line.text, '=', line.len);
    if (!mark)
        return 0;
    struct line name = trimmed(line.text, (size_t)(mark - line.text));
    struct line value = trimmed(mark + 1, line.len - (size_t)(mark + 1 - line.text));
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (line_is(name, fields[i].name)) {
            return copy_value(member(out, &fields[i]), fields[i].size, fields[i].name, value.text,
                              value.len, err);
        }
    }
    return 0;
}

int
credentials_from_ini(const char *text, size_t len, const char *profile, bool config_form,
                     struct s3_credentials *out, struct err *err)
{
    bool inside = false;
    memset(out, 0, sizeof(*out));
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t line_len = end ? (size_t)(end - text) - at : len - at;
        /* An indented line belongs to the nested setting above it. */
        bool nested = line_len > 0 && (text[at] == ' ' || text[at] == '\t');
        struct line line = trimmed(text + at, line_len);
        at += line_len + 1;
        if (line.len == 0 || line.text[0] == '#' || line.text[0] == ';')
            continue;
        if (line.text[0] == '[')
            inside = is_section(line, profile, config_form);
        else if (inside && !nested && set_field(line, out, err) < 0)
            return err_wrap(err, "profile '%s'", profile);
    }
    return out->access_key[0] && out->secret_key[0] ? 1 : 0;
}

static int
from_env(struct s3_credentials *out, struct err *err)
{
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const char *value = secure_getenv(fields[i].env);
        if (value && copy_value(member(out, &fields[i]), fields[i].size, fields[i].env, value,
                                strlen(value), err) < 0)
            return -1;
    }
    return out->access_key[0] && out->secret_key[0] ? 1 : 0;
}

/* The file that `env` names, or ~/.aws/`name`. A file that is not there has no keys. */
static int
from_file(const char *env, const char *name, bool config_form, struct s3_credentials *out,
          struct err *err)
{
    const char *profile = secure_getenv("AWS_PROFILE");
    const char *path = secure_getenv(env);
    const char *home = secure_getenv("HOME");
    scope_buf own;
    buf_init(&own, 4096);
    if (!path || !*path) {
        if (!home || !*home)
            return 0;
        if (buf_appendf(&own, err, "%s/.aws/%s", home, name) < 0)
            return -1;
        path = buf_cstr(&own);
    }
    struct err read_err = ERR_INIT;
    char *text = NULL;
    size_t len = 0;
    if (sys_read_file(AT_FDCWD, path, LIMIT_CONFIG_FILE, &text, &len, &read_err) < 0) {
        if (read_err.code == ERR_NOT_FOUND)
            return 0;
        *err = read_err;
        return -1;
    }
    int found = credentials_from_ini(text, len, profile && *profile ? profile : "default",
                                     config_form, out, err);
    secret_wipe(text, len);
    free(text);
    return found < 0 ? err_wrap(err, "%s", path) : found;
}

int
credentials_default(void *arg, struct s3_credentials *out, struct err *err)
{
    (void)arg;
    int found = from_env(out, err);
    if (found == 0)
        found = from_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", false, out, err);
    if (found == 0)
        found = from_file("AWS_CONFIG_FILE", "config", true, out, err);
    if (found < 0)
        return -1;
    if (found == 0) {
        return err_set(err, ERR_STORE_DENIED,
                       "no keys for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                       "write a profile in ~/.aws/credentials");
    }
    return 0;
}
