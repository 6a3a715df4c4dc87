#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/scope.h"
#include "s3/xml_walk_impl.h"

/* Expat still tells the end of an empty element, and sometimes more, after it was stopped (XML_StopParser in expat.h): each
 * handler looks at `failed` first. */
static void
stop(struct xml_walk *walk)
{
    walk->failed = true;
    XML_StopParser(walk->parser, XML_FALSE);
}

static void XMLCALL
on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    (void)attributes;
    struct xml_walk *walk = arg;
    if (walk->failed)
        return;
    const char *local = strrchr(name, '|');
    local = local ? local + 1 : name;
    if (walk->depth == XML_DEPTH_MAX || strlen(local) >= XML_NAME_MAX) {
        err_set(walk->err, ERR_STORE_BAD_ANSWER, "the document is nested too deeply");
        stop(walk);
        return;
    }
    memcpy(walk->name[walk->depth++], local, strlen(local) + 1);
    buf_clear(&walk->text);
    if (walk->begin && walk->begin(walk, local) < 0)
        stop(walk);
}

static void XMLCALL
on_end(void *arg, const XML_Char *name)
{
    (void)name;
    struct xml_walk *walk = arg;
    if (walk->failed)
        return;
    const char *local = walk->name[walk->depth - 1];
    if (walk->end(walk, local, buf_cstr(&walk->text)) < 0) {
        stop(walk);
        return;
    }
    walk->depth--;
    buf_clear(&walk->text);
}

static void XMLCALL
on_text(void *arg, const XML_Char *text, int len)
{
    struct xml_walk *walk = arg;
    if (!walk->failed && buf_append(&walk->text, text, (size_t)len, walk->err) < 0)
        stop(walk);
}

static void XMLCALL
on_doctype(void *arg, const XML_Char *name, const XML_Char *sysid, const XML_Char *pubid,
           int internal)
{
    (void)name;
    (void)sysid;
    (void)pubid;
    (void)internal;
    struct xml_walk *walk = arg;
    if (!walk->failed) {
        err_set(walk->err, ERR_STORE_BAD_ANSWER, "the document has a DOCTYPE");
        stop(walk);
    }
}

int
xml_walk_run(struct xml_walk *walk, const void *data, size_t len)
{
    const char *text = data;
    while (len > 0 && strchr(" \t\r\n", *text) && *text) {
        text++;
        len--;
    }
    if (len > LIMIT_XML_BODY)
        return err_set(walk->err, ERR_STORE_BAD_ANSWER, "the document is too large");
    walk->parser = XML_ParserCreateNS(NULL, '|');
    if (!walk->parser)
        return err_nomem(walk->err);
    buf_init(&walk->text, LIMIT_XML_BODY);
    XML_SetUserData(walk->parser, walk);
    XML_SetElementHandler(walk->parser, on_start, on_end);
    XML_SetCharacterDataHandler(walk->parser, on_text);
    XML_SetStartDoctypeDeclHandler(walk->parser, on_doctype);
    int result = 0;
    if (XML_Parse(walk->parser, text, (int)len, XML_TRUE) != XML_STATUS_OK) {
        result = -1;
        if (!walk->failed)
            err_set(walk->err, ERR_STORE_BAD_ANSWER, "the document is broken: %s",
                    XML_ErrorString(XML_GetErrorCode(walk->parser)));
    }
    buf_release(&walk->text);
    XML_ParserFree(walk->parser);
    return result;
}

bool
xml_walk_below_root(const struct xml_walk *walk, const char *root)
{
    return walk->depth == 2 && strcmp(walk->name[0], root) == 0;
}

/* ---- texts ---- */

int
xml_walk_decode_key(char **text, struct err *err)
{
    scope_buf raw;
    buf_init(&raw, 4 * LIMIT_KEY);
    for (char *p = *text; *p; p++) {
        if (*p == '+')
            *p = ' ';
    }
    if (percent_decode(*text, strlen(*text), &raw, err) < 0) {
        return err_set(err, ERR_STORE_BAD_ANSWER, "the listing's text '%.100s' is badly escaped",
                       *text);
    }
    char *plain = buf_steal(&raw);
    if (!plain)
        return err_nomem(err);
    free(*text);
    *text = plain;
    return 0;
}

static bool
is_xml_char(uint64_t c)
{
    return c == 9 || c == 10 || c == 13 || (c >= 0x20 && c < 0xd800) ||
           (c > 0xdfff && c < 0xfffe) || (c > 0xffff && c < 0x110000);
}

/* Length of the reference to a character that XML does not allow, such as "&#x1;"; 0 for anything else. */
static size_t
bad_reference(const char *p, size_t left)
{
    char digits[8];
    uint64_t value = 0;
    size_t at = 2;
    if (left < 4 || p[0] != '&' || p[1] != '#')
        return 0;
    bool hex = p[at] == 'x';
    at += hex;
    size_t len = 0;
    while (at + len < left && len < sizeof(digits) - 1 && p[at + len] != ';')
        len++;
    if (at + len >= left || p[at + len] != ';')
        return 0;
    memcpy(digits, p + at, len);
    digits[len] = '\0';
    if (!(hex ? parse_hex_u64(digits, &value) : parse_u64(digits, &value)) || is_xml_char(value))
        return 0;
    return at + len + 1;
}

/* Length of what is no XML character at `p`, 0 when it is one; `step` is the length of the good one. */
static size_t
bad_bytes(const char *p, size_t left, size_t *step)
{
    unsigned char c = (unsigned char)*p;
    *step = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (c < 0x80)
        return is_xml_char(c) ? bad_reference(p, left) : 1;
    if (*step > left || !utf8_valid(p, *step))
        return 1;
    bool noncharacter = c == 0xef && (unsigned char)p[1] == 0xbf && (unsigned char)p[2] >= 0xbe;
    return noncharacter ? 3 : 0;
}

int
xml_walk_clean(const char *data, size_t len, struct buf *out, bool *changed, struct err *err)
{
    size_t kept = 0;
    *changed = false;
    for (size_t at = 0; at < len;) {
        size_t step;
        size_t bad_len = bad_bytes(data + at, len - at, &step);
        if (bad_len == 0) {
            at += step;
            continue;
        }
        *changed = true;
        if (buf_append(out, data + kept, at - kept, err) < 0 || buf_append(out, "?", 1, err) < 0)
            return -1;
        at += bad_len;
        kept = at;
    }
    return buf_append(out, data + kept, len - kept, err);
}
