#include "volume/merge.h"

#include <git2.h>
#include <pthread.h>
#include <string.h>

#include "base/scope.h"

/* The only includer of <git2.h>: its xdiff does the work (docs/design.md section 9). Of the library only functions on buffers are
 * used: no repository, no configuration, no network. */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool ready;

static void
begin(void)
{
    ready = git_libgit2_init() > 0;
}

static int
need_library(struct err *err)
{
    (void)pthread_once(&once, begin);
    return ready ? 0 : err_set(err, ERR_INTERNAL, "libgit2 does not start");
}

static int
failed(const char *what, struct err *err)
{
    const git_error *why = git_error_last();
    return err_set(err, ERR_INTERNAL, "cannot %s: %s", what, why != NULL ? why->message : "?");
}

bool
merge_is_text(const void *data, size_t len)
{
    return len <= LIMIT_MERGE && (len == 0 || memchr(data, '\0', len) == NULL);
}

static git_merge_file_input
input_of(const struct merge_text *text)
{
    return (git_merge_file_input){ .version = GIT_MERGE_FILE_INPUT_VERSION,
                                   .ptr = text->len == 0 ? "" : text->data,
                                   .size = text->len };
}

int
merge_three(const struct merge_text *base, const struct merge_text *mine,
            const struct merge_text *theirs, struct buf *out, bool *clean, struct err *err)
{
    git_merge_file_options options = { .version = GIT_MERGE_FILE_OPTIONS_VERSION,
                                       .ancestor_label = base->name,
                                       .our_label = mine->name,
                                       .their_label = theirs->name };
    git_merge_file_input from = input_of(base), ours = input_of(mine), others = input_of(theirs);
    git_merge_file_result result = { 0 };
    if (need_library(err) != 0)
        return -1;
    if (git_merge_file(&result, &from, &ours, &others, &options) != 0)
        return failed("merge", err);
    *clean = result.automergeable != 0;
    int rc = result.len == 0 ? 0 : buf_append(out, result.ptr, result.len, err);
    git_merge_file_result_free(&result);
    return rc;
}

struct printing {
    const char *from, *to;
    struct buf *out;
    struct err *err;
};

static int
print_line(const git_diff_delta *delta, const git_diff_hunk *hunk, const git_diff_line *line,
           void *arg)
{
    struct printing *print = arg;
    char origin = line->origin;
    (void)delta;
    (void)hunk;
    if (origin == GIT_DIFF_LINE_FILE_HDR)
        return buf_appendf(print->out, print->err, "--- %s\n+++ %s\n", print->from, print->to);
    bool marked = origin == GIT_DIFF_LINE_ADDITION || origin == GIT_DIFF_LINE_DELETION ||
                  origin == GIT_DIFF_LINE_CONTEXT;
    if (marked && buf_append(print->out, &origin, 1, print->err) != 0)
        return -1;
    return buf_append(print->out, line->content, line->content_len, print->err);
}

int
merge_diff(const struct merge_text *from, const struct merge_text *to, struct buf *out,
           struct err *err)
{
    git_diff_options options;
    git_patch *patch = NULL;
    struct err printed = ERR_INIT;
    struct printing print = { .from = from->name, .to = to->name, .out = out, .err = &printed };
    if (need_library(err) != 0)
        return -1;
    if (git_diff_options_init(&options, GIT_DIFF_OPTIONS_VERSION) != 0)
        return failed("compare", err);
    options.flags = GIT_DIFF_FORCE_TEXT;
    if (git_patch_from_buffers(&patch, from->len == 0 ? "" : from->data, from->len, "a",
                               to->len == 0 ? "" : to->data, to->len, "a", &options) != 0)
        return failed("compare", err);
    int rc = git_patch_num_hunks(patch) == 0 ? 0 : git_patch_print(patch, print_line, &print);
    git_patch_free(patch);
    if (rc == 0)
        return 0;
    if (printed.msg[0] == '\0')
        return failed("print a diff", err);
    *err = printed;
    return -1;
}
