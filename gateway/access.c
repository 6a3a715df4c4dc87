#include "gateway/access.h"

#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "base/path.h"
#include "base/scope.h"

/* Pure: what a login may. */

static const struct {
    const char *word;
    unsigned verb;
} verb_words[] = {
    { "read", GATEWAY_READ },   { "write", GATEWAY_WRITE }, { "delete", GATEWAY_DELETE },
    { "share", GATEWAY_SHARE }, { "mount", GATEWAY_MOUNT }, { "exec", GATEWAY_EXEC },
    { "admin", GATEWAY_ADMIN },
};
#define VERB_COUNT (sizeof(verb_words) / sizeof(verb_words[0]))

unsigned
gateway_verb_parse(const char *word, size_t len)
{
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (strlen(verb_words[i].word) == len && strncmp(verb_words[i].word, word, len) == 0)
            return verb_words[i].verb;
    }
    return 0;
}

json_t *
gateway_verbs_json(unsigned verbs)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < VERB_COUNT; i++) {
        if ((verbs & verb_words[i].verb) == 0)
            continue;
        if (json_array_append_new(list, json_string(verb_words[i].word)) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

void
gateway_access_all(enum gateway_who who, struct gateway_access *out)
{
    memset(out, 0, sizeof(*out));
    out->who = who;
    out->verbs = GATEWAY_EVERYTHING;
    (void)snprintf(out->actor, sizeof(out->actor), "%s", who == GATEWAY_LOCAL ? "cli" : "http");
}

bool
gateway_access_is_owner(const struct gateway_access *access)
{
    return access->who == GATEWAY_LOCAL || access->who == GATEWAY_OWNER ||
           access->who == GATEWAY_SESSION;
}

int
gateway_access_may(const struct gateway_access *access, unsigned verbs, struct err *err)
{
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if ((verbs & verb_words[i].verb & ~access->verbs) == 0)
            continue;
        return err_set(err, ERR_DENIED,
                       "this token may not %s: ask the owner for one with '--allow %s'",
                       verb_words[i].word, verb_words[i].word);
    }
    return 0;
}

int
gateway_access_reaches(const struct gateway_access *access, const char *volume, const char *path,
                       struct err *err)
{
    if (gateway_access_is_owner(access) || (access->who == GATEWAY_TOKEN && access->volume == 0))
        return 0;
    if (access->who == GATEWAY_TOKEN && strcmp(access->volume_name, volume) == 0 &&
        path_within(path, access->folder))
        return 0;
    return err_set(err, ERR_DENIED, "this token is for '%s:/%s' only", access->volume_name,
                   access->folder);
}

bool
gateway_access_sees(const struct gateway_access *access, int64_t volume, const char *path)
{
    if (gateway_access_is_owner(access))
        return true;
    if (access->who != GATEWAY_TOKEN)
        return false;
    return access->volume == 0 || (access->volume == volume && path_within(path, access->folder));
}

const char *
gateway_access_within(const struct gateway_access *access)
{
    return access->folder[0] != '\0' ? access->folder : NULL;
}

unsigned
gateway_access_op(const char *op)
{
    static const struct {
        const char *op;
        unsigned verbs;
    } ops[] = {
        { "mkdir", GATEWAY_WRITE },
        { "move", GATEWAY_WRITE | GATEWAY_DELETE },
        { "copy", GATEWAY_READ | GATEWAY_WRITE },
        { "edit", GATEWAY_READ | GATEWAY_WRITE },
        { "restore", GATEWAY_WRITE | GATEWAY_DELETE },
    };
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (strcmp(ops[i].op, op) == 0)
            return ops[i].verbs;
    }
    return GATEWAY_EVERYTHING;
}

/* ---- paths in bodies ---- */

/* The text of a field in normal form; 1: it is there, 0: not. */
static int
field_path(const json_t *body, const char *field, char out[LIMIT_PATH + 1], struct err *err)
{
    static const char hex_end[] = "_hex";
    char raw[LIMIT_PATH + 1];
    const char *text = NULL;
    size_t name_len = strlen(field);
    if (json_opt_str(body, field, &text, err) < 0)
        return -1;
    if (!text)
        return 0;
    size_t len = strlen(text);
    if (name_len > strlen(hex_end) && strcmp(field + name_len - strlen(hex_end), hex_end) == 0) {
        if (len / 2 > LIMIT_PATH || !hex_decode(text, len, raw, len / 2))
            return err_set(err, ERR_INVAL, "%s must be the bytes of a path in hexadecimal", field);
        text = raw;
        len /= 2;
    }
    return path_normalize(text, len, out, LIMIT_PATH + 1, err) < 0 ? err_wrap(err, "%s", field) : 1;
}

int
gateway_access_fields(const struct gateway_access *access, const json_t *body, const char *fields,
                      struct err *err)
{
    const char *volume = NULL;
    char path[LIMIT_PATH + 1];
    char field[32];
    unsigned named = 0;
    if (access->volume == 0)
        return 0;
    if (json_need_str(body, "volume", &volume, err) < 0)
        return -1;
    for (const char *at = fields; at && *at != '\0'; at += strspn(at, ",")) {
        size_t len = strcspn(at, ",");
        (void)snprintf(field, sizeof(field), "%.*s", (int)len, at);
        at += len;
        int rc = field_path(body, field, path, err);
        if (rc < 0 || (rc > 0 && gateway_access_reaches(access, volume, path, err) < 0))
            return -1;
        named += (unsigned)rc;
    }
    return named > 0 ? 0 : gateway_access_reaches(access, volume, "", err);
}
