#include "s3/credentials_parse.h"

#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/parse.h"
#include "base/scope.h"

void
credentials_wipe(struct s3_credentials *credentials)
{
    secret_wipe(credentials, sizeof(*credentials));
}

/* ---- values ---- */

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

int
credentials_set(struct s3_credentials *out, enum credentials_field field, const char *name,
                const char *value, size_t len, struct err *err)
{
    switch (field) {
    case CREDENTIALS_ACCESS_KEY:
        return copy_value(out->access_key, sizeof(out->access_key), name, value, len, err);
    case CREDENTIALS_SECRET_KEY:
        return copy_value(out->secret_key, sizeof(out->secret_key), name, value, len, err);
    case CREDENTIALS_TOKEN:
        break;
    }
    return copy_value(out->session_token, sizeof(out->session_token), name, value, len, err);
}

/* ---- profile files ---- */

struct line {
    const char *text;
    size_t len;
};

static struct line
trimmed(const char *text, size_t len)
{
    while (len > 0 && text[0] != '\0' && strchr(" \t\r", text[0])) {
        text++;
        len--;
    }
    while (len > 0 && text[len - 1] != '\0' && strchr(" \t\r", text[len - 1]))
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
        if (name.len < 8 || memcmp(name.text, "profile", 7) != 0 ||
            (name.text[7] != ' ' && name.text[7] != '\t'))
            return false;
        name = trimmed(name.text + 7, name.len - 7);
        if (name.len >= 2 && name.text[0] == '"' && name.text[name.len - 1] == '"')
            name = (struct line){ name.text + 1, name.len - 2 };
    }
    return line_is(name, profile);
}

static int
set_command(struct line value, struct credentials_profile *out, struct err *err)
{
    if (value.len >= sizeof(out->command) || memchr(value.text, '\0', value.len))
        return err_set(err, ERR_STORE_DENIED, "credential_process is longer than %zu bytes",
                       sizeof(out->command) - 1);
    memcpy(out->command, value.text, value.len);
    out->command[value.len] = '\0';
    return 0;
}

static int
set_field(struct line line, struct credentials_profile *out, struct err *err)
{
    static const char *const names[] = { "aws_access_key_id", "aws_secret_access_key",
                                         "aws_session_token" };
    const char *mark = memchr(line.text, '=', line.len);
    if (!mark)
        return 0;
    struct line name = trimmed(line.text, (size_t)(mark - line.text));
    struct line value = trimmed(mark + 1, line.len - (size_t)(mark + 1 - line.text));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (line_is(name, names[i]))
            return credentials_set(&out->keys, (enum credentials_field)i, names[i], value.text,
                                   value.len, err);
    }
    if (line_is(name, "credential_process"))
        return set_command(value, out, err);
    if (line_is(name, "region"))
        return copy_value(out->region, sizeof(out->region), "region", value.text, value.len, err);
    return 0;
}

int
credentials_profile_parse(const char *text, size_t len, const char *profile, bool config_form,
                          struct credentials_profile *out, struct err *err)
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
    out->has_keys = out->keys.access_key[0] && out->keys.secret_key[0];
    return 0;
}

int
credentials_from_ini(const char *text, size_t len, const char *profile, bool config_form,
                     struct s3_credentials *out, struct err *err)
{
    struct credentials_profile found;
    memset(out, 0, sizeof(*out));
    int result = credentials_profile_parse(text, len, profile, config_form, &found, err);
    if (result == 0) {
        *out = found.keys;
        result = found.has_keys ? 1 : 0;
    }
    secret_wipe(&found, sizeof(found));
    return result;
}

/* ---- documents ---- */

/* jansson frees its strings without wiping them. */
static void
wipe_strings(json_t *doc)
{
    const char *name;
    json_t *value;
    json_object_foreach (doc, name, value) {
        if (json_is_string(value))
            secret_wipe((char *)(uintptr_t)json_string_value(value), json_string_length(value));
    }
}

static int
take_string(const json_t *doc, const char *name, enum credentials_field field, bool needed,
            struct s3_credentials *out, struct err *err)
{
    const json_t *value = json_object_get(doc, name);
    if (!value || json_is_null(value)) {
        return needed ? err_set(err, ERR_STORE_DENIED, "the document of the keys has no %s", name)
                      : 0;
    }
    if (!json_is_string(value) || (needed && json_string_length(value) == 0))
        return err_set(err, ERR_STORE_DENIED, "%s in the document of the keys is no text", name);
    return credentials_set(out, field, name, json_string_value(value), json_string_length(value),
                           err);
}

static int
take_expiration(const json_t *doc, struct s3_credentials *out, struct err *err)
{
    const json_t *value = json_object_get(doc, "Expiration");
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_string(value) ||
        time_parse_rfc3339(json_string_value(value), &out->expires_wall_ns) < 0 ||
        out->expires_wall_ns <= 0)
        return err_set(err, ERR_STORE_DENIED,
                       "Expiration in the document of the keys is no time of the form "
                       "2026-07-01T10:00:00Z");
    return 0;
}

static int
check_kind(const json_t *doc, enum credentials_document kind, struct err *err)
{
    const json_t *version = json_object_get(doc, "Version");
    const char *code = json_string_value(json_object_get(doc, "Code"));
    if (kind == CREDENTIALS_OF_PROCESS &&
        (!json_is_integer(version) || json_integer_value(version) != 1))
        return err_set(err, ERR_STORE_DENIED, "the document of the keys is not of Version 1");
    if (kind == CREDENTIALS_OF_ENDPOINT && code && strcmp(code, "Success") != 0)
        return err_set(err, ERR_STORE_DENIED, "the endpoint of the keys says '%.60s'", code);
    return 0;
}

int
credentials_from_json(const char *text, size_t len, enum credentials_document kind,
                      struct s3_credentials *out, struct err *err)
{
    struct err own = ERR_INIT;
    const char *token = kind == CREDENTIALS_OF_PROCESS ? "SessionToken" : "Token";
    memset(out, 0, sizeof(*out));
    if (len > CREDENTIALS_OUTPUT_MAX)
        return err_set(err, ERR_STORE_DENIED, "the document of the keys is longer than %u bytes",
                       CREDENTIALS_OUTPUT_MAX);
    scope_json *doc = json_parse(text, len, &own);
    if (!doc && own.code == ERR_NOMEM)
        return err_nomem(err);
    if (!json_is_object(doc))
        return err_set(err, ERR_STORE_DENIED, "the document of the keys is no JSON object");
    int result = check_kind(doc, kind, err);
    if (result == 0)
        result = take_string(doc, "AccessKeyId", CREDENTIALS_ACCESS_KEY, true, out, err);
    if (result == 0)
        result = take_string(doc, "SecretAccessKey", CREDENTIALS_SECRET_KEY, true, out, err);
    if (result == 0)
        result = take_string(doc, token, CREDENTIALS_TOKEN, false, out, err);
    if (result == 0)
        result = take_expiration(doc, out, err);
    wipe_strings(doc);
    if (result < 0)
        credentials_wipe(out);
    return result;
}

/* ---- a command in words ---- */

struct splitter {
    const char *from;
    char *to; /* never before `from`: words only get shorter */
    char quote;
};

/* One character or quote; false at the end of the word. */
static bool
take_char(struct splitter *s, bool *broken)
{
    char c = *s->from;
    if (c == '\0' || (!s->quote && (c == ' ' || c == '\t'))) {
        *broken = s->quote != 0;
        return false;
    }
    s->from++;
    if (s->quote ? c == s->quote : c == '\'' || c == '"') {
        s->quote = s->quote ? 0 : c;
        return true;
    }
    if (c == '\\' && s->quote != '\'') {
        char next = *s->from;
        /* Inside "" a backslash stands for itself but before these two. */
        bool escapes = !s->quote || next == '"' || next == '\\';
        if (next == '\0') {
            *broken = true;
            return false;
        }
        if (escapes) {
            c = next;
            s->from++;
        }
    }
    *s->to++ = c;
    return true;
}

int
credentials_split(char *command, char **argv, struct err *err)
{
    char *to = command;
    struct splitter s = { .from = command, .to = to };
    size_t count = 0;
    for (;;) {
        bool broken = false;
        while (*s.from == ' ' || *s.from == '\t')
            s.from++;
        if (*s.from == '\0')
            break;
        if (count == CREDENTIALS_WORDS_MAX)
            return err_set(err, ERR_STORE_DENIED, "credential_process has more than %d words",
                           CREDENTIALS_WORDS_MAX);
        argv[count++] = s.to;
        while (take_char(&s, &broken)) {
        }
        if (broken)
            return err_set(err, ERR_STORE_DENIED, "a quote in credential_process is not closed");
        bool last = *s.from == '\0';
        s.from += last ? 0 : 1;
        *s.to++ = '\0';
        if (last)
            break;
    }
    argv[count] = NULL;
    return count > 0 ? 0 : err_set(err, ERR_STORE_DENIED, "credential_process is empty");
}

/* ---- where keys may be asked for ---- */

static bool
is_ipv4_loopback(const char *host, size_t len)
{
    return len >= 9 && memcmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") >= len;
}

/* docs.aws.amazon.com/sdkref, "Container credential provider": ECS and EKS. */
static bool
host_allowed(const char *host, size_t len)
{
    static const char *const names[] = { "localhost",      "[::1]",          "169.254.170.2",
                                         "169.254.170.23", "[fd00:ec2::23]", "169.254.169.254",
                                         "[fd00:ec2::254]" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i]) == len && strncasecmp(names[i], host, len) == 0)
            return true;
    }
    return is_ipv4_loopback(host, len);
}

bool
credentials_url_allowed(const char *url)
{
    bool tls = strncasecmp(url, "https://", 8) == 0;
    const char *host = url + (tls ? 8 : 7);
    if (!tls && strncasecmp(url, "http://", 7) != 0)
        return false;
    for (const char *c = url; *c; c++) {
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c > 0x7e || *c == '\\')
            return false;
    }
    size_t len = strcspn(host, "/?#");
    if (len == 0 || memchr(host, '@', len))
        return false;
    size_t name = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/?#");
    if (name > len)
        return false;
    return tls || host_allowed(host, name);
}
