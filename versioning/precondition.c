#include "versioning/precondition.h"

#include <string.h>

/* entity-tag = [ "W/" ] DQUOTE *etagc DQUOTE; etagc is any visible byte but '"', and obs-text (RFC 9110 section 8.8.3). */
static const char *
take_tag(const char *text, char out[LIMIT_ETAG], bool *weak, struct err *err)
{
    *weak = text[0] == 'W' && text[1] == '/';
    text += *weak ? 2 : 0;
    if (*text != '"') {
        (void)err_set(err, ERR_INVAL, "an entity tag is written in double quotes");
        return NULL;
    }
    size_t len = 0;
    for (text++; *text != '"'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x21 || c == 0x7f || len + 1 >= LIMIT_ETAG) {
            (void)err_set(err, ERR_INVAL, "a malformed entity tag");
            return NULL;
        }
        out[len++] = *text;
    }
    out[len] = '\0';
    return text + 1;
}

static const char *
skip_blank(const char *text)
{
    return text + strspn(text, " \t");
}

static int
parse_list(const char *text, bool weak_ok, struct precondition *out, struct err *err)
{
    for (text = skip_blank(text); *text != '\0'; text = skip_blank(text)) {
        bool weak;
        if (*text == ',') {
            text++;
            continue;
        }
        if (out->count == PRECONDITION_TAGS)
            return err_set(err, ERR_INVAL, "more than %d entity tags", PRECONDITION_TAGS);
        text = take_tag(text, out->tag[out->count], &weak, err);
        if (text == NULL)
            return -1;
        if (weak && !weak_ok)
            return err_set(err, ERR_INVAL, "a weak entity tag cannot guard a write");
        out->count++;
        text = skip_blank(text);
        if (*text != '\0' && *text != ',')
            return err_set(err, ERR_INVAL, "entity tags are separated by commas");
    }
    return out->count > 0 ? 0 : err_set(err, ERR_INVAL, "an empty list of entity tags");
}

static bool
is_star(const char *text)
{
    text = skip_blank(text);
    return text[0] == '*' && *skip_blank(text + 1) == '\0';
}

int
precondition_parse(const char *if_match, const char *if_none_match, struct precondition *out,
                   struct err *err)
{
    memset(out, 0, sizeof(*out));
    if (if_match != NULL && if_none_match != NULL)
        return err_set(err, ERR_INVAL, "If-Match and If-None-Match exclude each other");
    if (if_match == NULL && if_none_match == NULL)
        return 0;
    if (if_match != NULL) {
        out->kind = is_star(if_match) ? PRECONDITION_EXISTS : PRECONDITION_MATCH;
        return out->kind == PRECONDITION_EXISTS ? 0 : parse_list(if_match, false, out, err);
    }
    out->kind = is_star(if_none_match) ? PRECONDITION_ABSENT : PRECONDITION_NONE_MATCH;
    return out->kind == PRECONDITION_ABSENT ? 0 : parse_list(if_none_match, true, out, err);
}

static bool
among(const struct precondition *pre, const char *tag)
{
    for (size_t i = 0; i < pre->count; i++)
        if (strcmp(pre->tag[i], tag) == 0)
            return true;
    return false;
}

bool
precondition_holds(const struct precondition *pre, const char *tag)
{
    switch (pre->kind) {
    case PRECONDITION_NONE:
    case PRECONDITION_ABSENT:
        return tag == NULL;
    case PRECONDITION_EXISTS:
        return tag != NULL;
    case PRECONDITION_MATCH:
        return tag != NULL && among(pre, tag);
    case PRECONDITION_NONE_MATCH:
        return tag == NULL || !among(pre, tag);
    case PRECONDITION_ANY:
        return true;
    }
    return false;
}
