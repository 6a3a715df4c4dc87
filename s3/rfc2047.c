#include "s3/rfc2047.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"
#include "base/scope.h"

#define OPENING "=?UTF-8?B?"
#define WORD_BYTES \
    45 /* RFC 2047 section 2: a word is at most 75 characters; 45 bytes are 60 of base64 */

static bool
is_plain(const char *value)
{
    size_t len = strlen(value);
    if (len == 0)
        return true;
    if (value[0] == ' ' || value[len - 1] == ' ' || strstr(value, "=?") || strstr(value, "  "))
        return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)value[i];
        if (c < 0x20 || c > 0x7e)
            return false;
    }
    return true;
}

/* Section 5: a character is not split over two words. */
static size_t
word_len(const char *value, size_t left)
{
    size_t len = left < WORD_BYTES ? left : WORD_BYTES;
    size_t cut = len;
    while (cut > 0 && len < left && ((unsigned char)value[cut] & 0xc0) == 0x80)
        cut--;
    return cut > 0 ? cut : len;
}

int
rfc2047_encode(const char *value, struct buf *out, struct err *err)
{
    if (is_plain(value))
        return buf_append_str(out, value, err);
    size_t left = strlen(value);
    for (bool first = true; left > 0; first = false) {
        size_t len = word_len(value, left);
        if (buf_appendf(out, err, "%s" OPENING, first ? "" : " ") < 0 ||
            base64_encode(value, len, out, err) < 0 || buf_append_str(out, "?=", err) < 0)
            return -1;
        value += len;
        left -= len;
    }
    return 0;
}

struct word {
    char encoding; /* 'B' or 'Q' */
    const char *text;
    size_t len;
    const char *end; /* behind the closing "?=" */
};

/* Does an encoded word begin at `at`? */
static bool
find_word(const char *at, struct word *out)
{
    if (at[0] != '=' || at[1] != '?')
        return false;
    const char *charset = at + 2;
    const char *mark = strchr(charset, '?');
    if (!mark ||
        (strncasecmp(charset, "utf-8?", 6) != 0 && strncasecmp(charset, "us-ascii?", 9) != 0))
        return false;
    char encoding = mark[1];
    if (encoding != '\0' && mark[2] != '?')
        return false;
    if (encoding != 'B' && encoding != 'b' && encoding != 'Q' && encoding != 'q')
        return false;
    out->encoding = encoding == 'b' || encoding == 'B' ? 'B' : 'Q';
    out->text = mark + 3;
    const char *close = strstr(out->text, "?=");
    if (!close)
        return false;
    out->len = (size_t)(close - out->text);
    out->end = close + 2;
    return true;
}

/* Section 4.2: '_' is a blank, =XX a byte. */
static int
decode_q(const struct word *word, struct buf *out, struct err *err)
{
    for (size_t i = 0; i < word->len; i++) {
        unsigned char c = (unsigned char)word->text[i];
        if (c == '_') {
            c = ' ';
        } else if (c == '=') {
            if (i + 2 >= word->len || !hex_decode(word->text + i + 1, 2, &c, 1))
                return err_set(err, ERR_INVAL, "a broken encoded word");
            i += 2;
        }
        if (buf_append(out, &c, 1, err) < 0)
            return -1;
    }
    return 0;
}

static int
check_decoded(const char *data, size_t len, struct err *err)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)data[i] < 0x20 || data[i] == 0x7f)
            return err_set(err, ERR_INVAL, "a control character in an encoded word");
    }
    return 0;
}

static int
decode_word(const struct word *word, struct buf *out, struct err *err)
{
    size_t before = out->len;
    int result = word->encoding == 'B' ? base64_decode(word->text, word->len, out, err)
                                       : decode_q(word, out, err);
    if (result < 0)
        return -1;
    return out->len == before ? 0 : check_decoded(out->data + before, out->len - before, err);
}

int
rfc2047_decode(const char *value, struct buf *out, struct err *err)
{
    bool after_word = false;
    for (const char *p = value; *p;) {
        struct word word;
        size_t blanks = after_word ? strspn(p, " \t") : 0;
        if (find_word(p + blanks, &word)) {
            /* Section 6.2: blanks between two encoded words do not count. */
            if (decode_word(&word, out, err) < 0)
                return -1;
            p = word.end;
            after_word = true;
            continue;
        }
        if (buf_append(out, p, 1, err) < 0)
            return -1;
        p++;
        after_word = false;
    }
    return 0;
}
