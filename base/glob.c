#include "base/glob.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/scope.h"

#define TEXT_MAX LIMIT_PATH
#define FORMS_MAX 256u   /* after the braces are gone */
#define FORMS_WORK 2048u /* texts on the way there */
#define TOKENS_MAX 65535u
#define NO_CHARACTER UINT32_MAX

enum token_kind { TOKEN_BYTE, TOKEN_ONE, TOKEN_STAR, TOKEN_CLASS };
struct range {
    uint32_t low, high;
};
struct class
{
    size_t first, count; /* ranges */
    bool negated;
};
enum element_kind { ELEMENT_END, ELEMENT_FOLDERS, ELEMENT_NAME };
/* One position: a component of one form of the pattern, or its end. */
struct element {
    enum element_kind kind;
    size_t first, count;   /* tokens */
    size_t prefix, suffix; /* of these, so many stand for themselves at either end */
};

struct glob {
    uint8_t *kinds; /* of tokens */
    char *bytes;    /* TOKEN_BYTE: its byte */
    uint16_t *classes_of;
    size_t tokens;
    struct class *classes;
    size_t class_count;
    struct range *ranges;
    size_t range_count;
    struct element elements[GLOB_POSITIONS];
    size_t count;
    size_t words; /* of glob_at that are in use */
    struct glob_at start, ends;
};

static bool
get_bit(const struct glob_at *at, size_t i)
{
    return (at->bits[i / 64] >> (i % 64) & 1) != 0;
}

static void
set_bit(struct glob_at *at, size_t i)
{
    at->bits[i / 64] |= 1ull << (i % 64);
}

/* ---- characters ---- */
static uint32_t
character(const char *text, size_t len, size_t *used)
{
    static const uint8_t first_bits[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    size_t n = utf8_next(text, len < 4 ? len : 4);
    *used = n > 0 ? n : 1;
    if (n == 0)
        return NO_CHARACTER; /* a byte that is none */
    uint32_t c = (uint8_t)text[0] & first_bits[n];
    for (size_t i = 1; i < n; i++)
        c = c << 6 | ((uint8_t)text[i] & 0x3f);
    return c;
}

/* ---- braces: one text becomes many ---- */
struct forms {
    char **text;
    size_t count, cap;
};

static void
forms_release(struct forms *forms)
{
    for (size_t i = 0; i < forms->count; i++)
        free(forms->text[i]);
    free(forms->text);
}

static int
forms_add(struct forms *forms, char *take_text, struct err *err)
{
    if (take_text == NULL)
        return err_nomem(err);
    if (forms->count == forms->cap) {
        size_t cap = forms->cap > 0 ? 2 * forms->cap : 8;
        char **more = realloc(forms->text, cap * sizeof(*more));
        if (more == NULL) {
            free(take_text);
            return err_nomem(err);
        }
        forms->text = more;
        forms->cap = cap;
    }
    forms->text[forms->count++] = take_text;
    return 0;
}

/* Behind the class that begins at `at`; `at` + 1 when nothing closes it. */
static const char *
skip_class(const char *at)
{
    const char *p = at + 1;
    if (*p == '!' || *p == '^')
        p++;
    if (*p == ']')
        p++;
    for (; *p != '\0' && *p != ']'; p++)
        if (*p == '\\' && p[1] != '\0')
            p++;
    return *p == ']' ? p + 1 : at + 1;
}

/* The next of the characters `what` from `p` on that is itself, at depth 0 of braces; NULL. */
static const char *
find_plain(const char *p, const char *what)
{
    unsigned depth = 0;
    while (*p != '\0') {
        if (depth == 0 && strchr(what, *p) != NULL)
            return p;
        depth += *p == '{';
        depth -= *p == '}' && depth > 0;
        if (*p == '\\' && p[1] != '\0')
            p += 2;
        else
            p = *p == '[' ? skip_class(p) : p + 1;
    }
    return NULL;
}

static char *
joined(const char *text, const char *open, const char *from, const char *to, const char *close)
{
    size_t head = (size_t)(open - text), middle = (size_t)(to - from), tail = strlen(close + 1);
    char *out = malloc(head + middle + tail + 1);
    if (out == NULL)
        return NULL;
    memcpy(out, text, head);
    memcpy(out + head, from, middle);
    memcpy(out + head + middle, close + 1, tail + 1);
    return out;
}

/* Replaces the text's first braces by each of their parts. */
static int
expand_one(const char *text, const char *open, struct forms *work, struct err *err)
{
    const char *close = find_plain(open + 1, "}");
    if (close == NULL)
        return err_set(err, ERR_INVAL,
                       "the pattern has a '{' without its '}': \\{ is the character");
    for (const char *from = open + 1; from <= close;) {
        const char *to = find_plain(from, ",}");
        if (forms_add(work, joined(text, open, from, to, close), err) < 0)
            return -1;
        if (work->count > FORMS_WORK)
            return err_set(err, ERR_TOO_LARGE, "the pattern has too many alternatives");
        from = to + 1;
    }
    return 0;
}

static int
expand(const char *text, struct forms *out, struct err *err)
{
    scope(forms_release) struct forms work = { .count = 0 };
    if (forms_add(&work, strdup(text), err) < 0)
        return -1;
    for (size_t steps = 0; work.count > 0; steps++) {
        scope_free char *form = work.text[--work.count];
        const char *open = find_plain(form, "{");
        if (steps > FORMS_WORK || out->count > FORMS_MAX)
            return err_set(err, ERR_TOO_LARGE, "the pattern has too many alternatives");
        if (open != NULL) {
            if (expand_one(form, open, &work, err) < 0)
                return -1;
        } else if (forms_add(out, steal(&form), err) < 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- one component becomes tokens ---- */
static void
add_token(struct glob *glob, enum token_kind kind, char byte)
{
    glob->kinds[glob->tokens] = (uint8_t)kind;
    glob->bytes[glob->tokens] = byte;
    glob->classes_of[glob->tokens] = (uint16_t)glob->class_count;
    glob->tokens++;
}

/* A character of a class; `p` moves behind it. */
static uint32_t
class_character(const char **p, const char *end)
{
    size_t used;
    if (**p == '\\' && *p + 1 < end)
        (*p)++;
    uint32_t c = character(*p, (size_t)(end - *p), &used);
    *p += used;
    return c;
}

/* From '[' to behind ']'. */
static int
add_class(struct glob *glob, const char **at, const char *end, struct err *err)
{
    const char *p = *at + 1, *close = skip_class(*at) - 1;
    if (*close != ']' || close <= *at || close >= end)
        return err_set(err, ERR_INVAL,
                       "the pattern has a '[' without its ']': \\[ is the character");
    struct class *class = &glob->classes[glob->class_count];
    *class = (struct class){ .first = glob->range_count, .negated = *p == '!' || *p == '^' };
    p += class->negated;
    while (p < close) {
        uint32_t low = class_character(&p, close), high = low;
        if (p + 1 < close && *p == '-') {
            p++;
            high = class_character(&p, close);
        }
        if (low == NO_CHARACTER || high == NO_CHARACTER || low > high)
            return err_set(err, ERR_INVAL, "the pattern has a range in '[]' that cannot be");
        glob->ranges[glob->range_count++] = (struct range){ low, high };
        class->count++;
    }
    add_token(glob, TOKEN_CLASS, 0);
    glob->class_count++;
    *at = close + 1;
    return 0;
}

static int
add_tokens(struct glob *glob, const char *p, const char *end, struct err *err)
{
    size_t first = glob->tokens;
    while (p < end) {
        if (*p == '[') {
            if (add_class(glob, &p, end, err) < 0)
                return -1;
            continue;
        }
        if (*p == '\\' && p + 1 == end)
            return err_set(err, ERR_INVAL, "the pattern has a '\\' at the end of a name");
        if (*p == '*') {
            if (glob->tokens == first || glob->kinds[glob->tokens - 1] != TOKEN_STAR)
                add_token(glob, TOKEN_STAR, 0);
        } else if (*p == '?') {
            add_token(glob, TOKEN_ONE, 0);
        } else {
            p += *p == '\\';
            add_token(glob, TOKEN_BYTE, *p);
        }
        p++;
    }
    return 0;
}

static int
add_element(struct glob *glob, enum element_kind kind, size_t first_token, struct err *err)
{
    if (glob->count == GLOB_POSITIONS)
        return err_set(err, ERR_TOO_LARGE, "the pattern has too many parts");
    struct element *element = &glob->elements[glob->count++];
    *element =
        (struct element){ .kind = kind, .first = first_token, .count = glob->tokens - first_token };
    size_t count = element->count;
    const uint8_t *kinds = glob->kinds + first_token;
    while (element->prefix < count && kinds[element->prefix] == TOKEN_BYTE)
        element->prefix++;
    while (element->suffix < count && kinds[count - 1 - element->suffix] == TOKEN_BYTE)
        element->suffix++;
    return 0;
}

static int
add_component(struct glob *glob, const char *from, const char *to, struct err *err)
{
    size_t first = glob->tokens, len = (size_t)(to - from);
    bool folders = glob->count > 0 && glob->elements[glob->count - 1].kind == ELEMENT_FOLDERS;
    if (len == 2 && memcmp(from, "**", 2) == 0)
        return folders ? 0 : add_element(glob, ELEMENT_FOLDERS, first, err);
    if (len == 0)
        return err_set(
            err, ERR_INVAL,
            "the pattern has an empty name: no '//', and no '/' at its end ('a/**' is all "
            "below a)");
    if ((len == 1 && *from == '.') || (len == 2 && memcmp(from, "..", 2) == 0))
        return err_set(err, ERR_INVAL, "the pattern may not have '.' or '..' as a name");
    if (add_tokens(glob, from, to, err) < 0)
        return -1;
    return add_element(glob, ELEMENT_NAME, first, err);
}

/* The next slash that parts components. */
static const char *
component_end(const char *p)
{
    while (*p != '\0' && *p != '/') {
        if (*p == '\\' && p[1] != '\0' && p[1] != '/')
            p += 2;
        else
            p = *p == '[' && memchr(p, '/', (size_t)(skip_class(p) - p)) == NULL ? skip_class(p)
                                                                                 : p + 1;
    }
    return p;
}

static void
add_closure(const struct glob *glob, struct glob_at *at, size_t i)
{
    set_bit(at, i);
    if (glob->elements[i].kind == ELEMENT_FOLDERS)
        set_bit(at, i + 1);
}

static int
add_form(struct glob *glob, const char *text, struct err *err)
{
    size_t first = glob->count;
    const char *end = component_end(text);
    if (*text == '\0')
        return err_set(err, ERR_INVAL, "a pattern is needed: '**' means everything");
    if (*end == '\0' && add_element(glob, ELEMENT_FOLDERS, glob->tokens, err) < 0)
        return -1;
    if (*text == '/')
        text++;
    for (;;) {
        end = component_end(text);
        if (add_component(glob, text, end, err) < 0)
            return -1;
        if (*end == '\0')
            break;
        text = end + 1;
    }
    /* All below is: any folders, and then any name. */
    if (glob->elements[glob->count - 1].kind == ELEMENT_FOLDERS &&
        add_component(glob, "*", &"*"[1], err) < 0)
        return -1;
    size_t last = glob->count;
    if (add_element(glob, ELEMENT_END, glob->tokens, err) < 0)
        return -1;
    set_bit(&glob->ends, last);
    add_closure(glob, &glob->start, first);
    return 0;
}

/* ---- the whole ---- */
static int
make_room(struct glob *glob, const struct forms *forms, struct err *err)
{
    size_t room = 1;
    for (size_t i = 0; i < forms->count; i++)
        room += strlen(forms->text[i]) + 2;
    if (room > TOKENS_MAX)
        return err_set(err, ERR_TOO_LARGE, "the pattern has too many alternatives");
    glob->kinds = calloc(room, sizeof(*glob->kinds));
    glob->bytes = calloc(room, sizeof(*glob->bytes));
    glob->classes_of = calloc(room, sizeof(*glob->classes_of));
    glob->classes = calloc(room, sizeof(*glob->classes));
    glob->ranges = calloc(room, sizeof(*glob->ranges));
    if (!glob->kinds || !glob->bytes || !glob->classes_of || !glob->classes || !glob->ranges)
        return err_nomem(err);
    return 0;
}

static int
fill(struct glob *glob, const char *text, struct err *err)
{
    scope(forms_release) struct forms forms = { .count = 0 };
    if (expand(text, &forms, err) < 0 || make_room(glob, &forms, err) < 0)
        return -1;
    for (size_t i = 0; i < forms.count; i++) {
        if (add_form(glob, forms.text[i], err) < 0)
            return -1;
    }
    glob->words = (glob->count + 63) / 64;
    return 0;
}

int
glob_compile(const char *text, size_t len, struct glob **out, struct err *err)
{
    char copy[TEXT_MAX + 1];
    if (len > TEXT_MAX)
        return err_set(err, ERR_TOO_LARGE, "a pattern has %u bytes at most", (unsigned)TEXT_MAX);
    if (memchr(text, '\0', len) != NULL)
        return err_set(err, ERR_INVAL, "the pattern has a NUL byte");
    memcpy(copy, text, len);
    copy[len] = '\0';
    scope_glob *glob = calloc(1, sizeof(*glob));
    if (glob == NULL)
        return err_nomem(err);
    if (fill(glob, copy, err) < 0)
        return -1;
    *out = steal(&glob);
    return 0;
}

void
glob_free(struct glob *glob)
{
    if (glob == NULL)
        return;
    free(glob->kinds);
    free(glob->bytes);
    free(glob->classes_of);
    free(glob->classes);
    free(glob->ranges);
    free(glob);
}

void
glob_free_ptr(struct glob **glob)
{
    glob_free(*glob);
}

/* ---- matching ---- */
static bool
in_class(const struct glob *glob, const struct class *class, uint32_t c)
{
    bool found = false;
    for (size_t i = 0; i < class->count && !found; i++) {
        const struct range *range = &glob->ranges[class->first + i];
        found = c >= range->low && c <= range->high;
    }
    return found != class->negated;
}

/* How many bytes of the name this token takes; 0: it does not fit. */
static size_t
take(const struct glob *glob, size_t token, const char *name, size_t len)
{
    size_t used;
    if (len == 0)
        return 0;
    if (glob->kinds[token] == TOKEN_BYTE)
        return *name == glob->bytes[token];
    uint32_t c = character(name, len, &used);
    if (glob->kinds[token] == TOKEN_CLASS &&
        !in_class(glob, &glob->classes[glob->classes_of[token]], c))
        return 0;
    return used;
}

/* Only the last star has to be tried anew: what an earlier one took can stay as it is. */
static bool
match_tokens(const struct glob *glob, const struct element *element, const char *name, size_t len)
{
    size_t token = 0, at = 0, star = SIZE_MAX, star_at = 0;
    while (at < len || token < element->count) {
        size_t used = 0;
        if (token < element->count && glob->kinds[element->first + token] == TOKEN_STAR) {
            star = token++;
            star_at = at;
            continue;
        }
        if (token < element->count)
            used = take(glob, element->first + token, name + at, len - at);
        if (used > 0) {
            token++;
            at += used;
            continue;
        }
        if (star == SIZE_MAX || star_at >= len)
            return false;
        (void)character(name + star_at, len - star_at, &used);
        star_at += used;
        at = star_at;
        token = star + 1;
    }
    return true;
}

static bool
match_name(const struct glob *glob, const struct element *element, const char *name, size_t len)
{
    const char *bytes = glob->bytes + element->first;
    if (element->prefix == element->count)
        return len == element->count && memcmp(name, bytes, len) == 0;
    if (len < element->prefix + element->suffix || memcmp(name, bytes, element->prefix) != 0 ||
        memcmp(name + len - element->suffix, bytes + element->count - element->suffix,
               element->suffix) != 0)
        return false;
    if (element->prefix + element->suffix + 1 == element->count &&
        glob->kinds[element->first + element->prefix] == TOKEN_STAR)
        return true;
    return match_tokens(glob, element, name, len);
}

void
glob_start(const struct glob *glob, struct glob_at *out)
{
    *out = glob->start;
}

void
glob_step(const struct glob *glob, const struct glob_at *at, const char *name, size_t len,
          struct glob_at *out)
{
    memset(out, 0, sizeof(*out));
    for (size_t word = 0; word < glob->words; word++) {
        for (uint64_t bits = at->bits[word]; bits != 0; bits &= bits - 1) {
            size_t i = 64 * word + (size_t)__builtin_ctzll(bits);
            const struct element *element = &glob->elements[i];
            if (element->kind == ELEMENT_FOLDERS)
                add_closure(glob, out, i);
            else if (element->kind == ELEMENT_NAME && !get_bit(out, i + 1) &&
                     match_name(glob, element, name, len))
                add_closure(glob, out, i + 1);
        }
    }
}

bool
glob_done(const struct glob *glob, const struct glob_at *at)
{
    for (size_t word = 0; word < glob->words; word++)
        if ((at->bits[word] & glob->ends.bits[word]) != 0)
            return true;
    return false;
}

bool
glob_more(const struct glob *glob, const struct glob_at *at)
{
    for (size_t word = 0; word < glob->words; word++)
        if ((at->bits[word] & ~glob->ends.bits[word]) != 0)
            return true;
    return false;
}

bool
glob_match(const struct glob *glob, const char *path)
{
    struct glob_at at, next;
    const char *name;
    size_t len, rest = strlen(path);
    glob_start(glob, &at);
    while (path_next(&path, &rest, &name, &len)) {
        glob_step(glob, &at, name, len, &next);
        at = next;
    }
    return glob_done(glob, &at);
}
