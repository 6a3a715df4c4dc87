#include "volume/edits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOM "\xef\xbb\xbf"
#define BOM_LEN 3u
#define FOUND_MAX 1000u /* counted: each may take as long as the text that is looked for */
#define SPANS_MAX 1000000u

struct span {
    size_t from, len; /* replaced */
    const char *text;
    size_t text_len;
    size_t edit;
};

struct work {
    const char *data;
    size_t len;
    bool crlf, lf; /* such lines are there */
    struct span *spans;
    size_t count, cap;
    char **made; /* texts with other line endings, one or two an edit */
    size_t made_count;
    struct edits_result *result;
};

static void
work_release(struct work *work)
{
    free(work->spans);
    for (size_t i = 0; i < work->made_count; i++)
        free(work->made[i]);
    free(work->made);
}

const char *
edits_reason_word(enum edits_reason reason)
{
    static const char *const words[] = {
        [EDITS_OK] = "",
        [EDITS_NOT_FOUND] = "not-found",
        [EDITS_AMBIGUOUS] = "ambiguous",
        [EDITS_OVERLAP] = "overlap",
        [EDITS_SAME] = "same",
        [EDITS_BINARY] = "binary",
        [EDITS_TOO_LARGE] = "too-large",
    };
    return words[reason];
}

static size_t
line_of(const struct work *work, size_t at)
{
    size_t line = 1;
    for (const char *p = work->data; (p = memchr(p, '\n', (size_t)(work->data + at - p))) != NULL;
         p++)
        line++;
    return line;
}

static void
look_at_lines(struct work *work)
{
    const char *end = work->data + work->len;
    for (const char *p = work->data; p < end && (p = memchr(p, '\n', (size_t)(end - p))) != NULL;
         p++) {
        bool crlf = p > work->data && p[-1] == '\r';
        work->crlf |= crlf;
        work->lf |= !crlf;
        if (work->crlf && work->lf)
            return;
    }
}

/* ---- line endings ---- */
/* A copy with the other endings; kept in `work`. NULL: out of memory. */
static const char *
with_endings(struct work *work, bool crlf, const char *text, size_t *len)
{
    char *out = malloc(2 * *len + 1), *to = out;
    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < *len; i++) {
        if (text[i] == '\r' && i + 1 < *len && text[i + 1] == '\n')
            continue;
        if (text[i] == '\n' && crlf)
            *to++ = '\r';
        *to++ = text[i];
    }
    *len = (size_t)(to - out);
    work->made[work->made_count++] = out;
    return out;
}

/* ---- finding ---- */
static const char *
find(const struct work *work, size_t from, const char *old, size_t len)
{
    return len > work->len - from ? NULL : memmem(work->data + from, work->len - from, old, len);
}

/* How often, overlaps too; where, as far as there is room. */
static size_t
count_found(struct work *work, const char *old, size_t len)
{
    size_t found = 0;
    const char *at;
    for (size_t from = 0; (at = find(work, from, old, len)) != NULL;
         from = (size_t)(at - work->data) + 1) {
        if (found < EDITS_LINES)
            work->result->lines[found] = line_of(work, (size_t)(at - work->data));
        if (++found == FOUND_MAX)
            break;
    }
    return found;
}

static int
add_span(struct work *work, const struct span *span, struct err *err)
{
    if (work->count == SPANS_MAX)
        return err_set(err, ERR_TOO_LARGE, "the edits have more than %u places", SPANS_MAX);
    if (work->count == work->cap) {
        size_t cap = work->cap > 0 ? 2 * work->cap : 16;
        struct span *more = realloc(work->spans, cap * sizeof(*more));
        if (more == NULL)
            return err_nomem(err);
        work->spans = more;
        work->cap = cap;
    }
    work->spans[work->count++] = *span;
    return 0;
}

static int
refuse(struct work *work, enum edits_reason reason, size_t edit)
{
    work->result->reason = reason;
    work->result->edit = edit;
    return -1;
}

/* The longest line of what was not found, when that alone is there: the rest differs. */
static int
not_found(struct work *work, const struct edit *edit, size_t number, struct err *err)
{
    const char *best = NULL, *end = edit->old + edit->old_len;
    size_t best_len = 3; /* shorter ones say nothing */
    memset(work->result->lines, 0, sizeof(work->result->lines));
    for (const char *p = edit->old; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop != NULL ? stop : end;
        const char *last = stop;
        while (p < last && (*p == ' ' || *p == '\t'))
            p++;
        while (last > p && (last[-1] == ' ' || last[-1] == '\t' || last[-1] == '\r'))
            last--;
        if ((size_t)(last - p) > best_len) {
            best = p;
            best_len = (size_t)(last - p);
        }
        p = stop < end ? stop + 1 : end;
    }
    if (best != NULL)
        (void)count_found(work, best, best_len);
    (void)refuse(work, EDITS_NOT_FOUND, number);
    size_t line = work->result->lines[0];
    if (line == 0)
        return err_set(err, ERR_UNSUPPORTED, "edit %zu: its old text is not in the file", number);
    return err_set(
        err, ERR_UNSUPPORTED,
        "edit %zu: its old text is not in the file; a part of it is at line %zu: read the "
        "lines there again",
        number, line);
}

static int
ambiguous(struct work *work, size_t number, size_t found, struct err *err)
{
    char lines[128] = "";
    (void)refuse(work, EDITS_AMBIGUOUS, number);
    work->result->found = found;
    for (size_t i = 0; i < EDITS_LINES && i < found; i++) {
        size_t len = strlen(lines);
        (void)snprintf(lines + len, sizeof(lines) - len, "%s%zu", i > 0 ? ", " : "",
                       work->result->lines[i]);
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "edit %zu: its old text is there %zu times, at lines %s%s: name more of what is "
                   "around it, or all",
                   number, found, lines, found > EDITS_LINES ? ", ..." : "");
}

static int
insert(struct work *work, const struct edit *edit, size_t number, struct err *err)
{
    bool bom = work->len >= BOM_LEN && memcmp(work->data, BOM, BOM_LEN) == 0;
    struct span span = { .from = edit->at == EDIT_END ? work->len : (bom ? BOM_LEN : 0),
                         .text = edit->text,
                         .text_len = edit->text_len,
                         .edit = number };
    if (work->crlf && !work->lf &&
        (span.text = with_endings(work, true, edit->text, &span.text_len)) == NULL)
        return err_nomem(err);
    return add_span(work, &span, err);
}

/* Found as it is; else with the file's line endings. In a file that has only the long ones, new lines get these too. */
static int
locate(struct work *work, const struct edit *edit, size_t number, struct err *err)
{
    struct span span = { .text = edit->text, .text_len = edit->text_len, .edit = number };
    const char *old = edit->old;
    size_t len = edit->old_len;
    bool lines = memchr(old, '\n', len) != NULL, convert = work->crlf && !work->lf;
    size_t found = count_found(work, old, len);
    if (found == 0 && lines) {
        convert = true;
        if ((old = with_endings(work, work->crlf, old, &len)) == NULL)
            return err_nomem(err);
        found = count_found(work, old, len);
    }
    if (found == 0)
        return not_found(work, edit, number, err);
    if (found > 1 && !edit->all)
        return ambiguous(work, number, found, err);
    if (convert && (span.text = with_endings(work, work->crlf, edit->text, &span.text_len)) == NULL)
        return err_nomem(err);
    const char *at;
    span.len = len;
    for (size_t from = 0; (at = find(work, from, old, len)) != NULL; from = span.from + len) {
        span.from = (size_t)(at - work->data);
        if (add_span(work, &span, err) != 0)
            return -1;
    }
    return 0;
}

static int
locate_all(struct work *work, const struct edit *edits, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct edit *edit = &edits[i];
        int rc;
        if (edit->at != EDIT_MATCH) {
            rc = insert(work, edit, i + 1, err);
        } else if (edit->old_len == 0) {
            rc = err_set(err, ERR_INVAL, "edit %zu: its old text is empty", i + 1);
        } else if (edit->old_len == edit->text_len &&
                   memcmp(edit->old, edit->text, edit->old_len) == 0) {
            (void)refuse(work, EDITS_SAME, i + 1);
            rc = err_set(err, ERR_UNSUPPORTED, "edit %zu: old and new text are the same", i + 1);
        } else {
            rc = locate(work, edit, i + 1, err);
        }
        if (rc != 0)
            return -1;
    }
    return 0;
}

/* ---- putting it together ---- */
static int
by_place(const void *left, const void *right)
{
    const struct span *a = left, *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if ((a->len == 0) != (b->len == 0))
        return a->len == 0 ? -1 : 1; /* what is put before a place comes before what replaces it */
    return (a->edit > b->edit) - (a->edit < b->edit);
}

static int
put_together(struct work *work, struct buf *out, struct err *err)
{
    size_t at = 0;
    if (work->count > 0)
        qsort(work->spans, work->count, sizeof(*work->spans), by_place);
    for (size_t i = 0; i < work->count; i++) {
        const struct span *span = &work->spans[i];
        if (span->from < at) {
            (void)refuse(work, EDITS_OVERLAP, span->edit);
            memset(work->result->lines, 0, sizeof(work->result->lines));
            work->result->lines[0] = line_of(work, span->from);
            return err_set(err, ERR_UNSUPPORTED,
                           "edits %zu and %zu change the same place, line %zu",
                           work->spans[i - 1].edit, span->edit, line_of(work, span->from));
        }
        if (buf_append(out, work->data + at, span->from - at, err) < 0 ||
            buf_append(out, span->text, span->text_len, err) < 0)
            return -1;
        at = span->from + span->len;
    }
    work->result->replacements = work->count;
    work->result->first_line = work->count > 0 ? line_of(work, work->spans[0].from) : 0;
    return buf_append(out, work->data + at, work->len - at, err);
}

int
edits_apply(const struct buf *text, const struct edit *edits, size_t count, struct buf *out,
            struct edits_result *result, struct err *err)
{
    scope(work_release) struct work work = { .data = buf_cstr(text),
                                             .len = text->len,
                                             .result = result };
    size_t before = out->len;
    *result = (struct edits_result){ .reason = EDITS_OK };
    if (text->len > EDITS_TEXT_MAX) {
        (void)refuse(&work, EDITS_TOO_LARGE, 0);
        return err_set(err, ERR_TOO_LARGE, "a file of over %u bytes is not edited: write it anew",
                       EDITS_TEXT_MAX);
    }
    if (text->len > 0 && memchr(work.data, '\0', text->len) != NULL) {
        (void)refuse(&work, EDITS_BINARY, 0);
        return err_set(err, ERR_UNSUPPORTED, "the file is no text: it has NUL bytes");
    }
    if (count == 0 || count > EDITS_MAX)
        return err_set(err, ERR_INVAL, "1 to %u edits are taken", EDITS_MAX);
    work.made = calloc(2 * count, sizeof(*work.made));
    if (work.made == NULL)
        return err_nomem(err);
    look_at_lines(&work);
    if (locate_all(&work, edits, count, err) == 0 && put_together(&work, out, err) == 0)
        return 0;
    buf_truncate(out, before);
    return -1;
}
