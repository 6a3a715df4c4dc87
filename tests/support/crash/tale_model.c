#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "support/crash/tale.h"

/* What has to be there behind each step, by the plain meaning of the words. Nothing here asks the code under test. */

/* ---- contents ---- */

uint8_t *
tale_bytes(const char *content, size_t *len)
{
    uint8_t *out;
    char line[24];
    size_t unit =
        (size_t)snprintf(line, sizeof(line), "%s %c\n", content, content[strlen(content) - 1] + 17);
    size_t size = unit * (1 + ((size_t)content[0] * 7 + (size_t)content[1] * 131) % 700);
    if ((out = malloc(size)) == NULL)
        rig_die("out of memory");
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)line[i % unit];
    *len = size;
    return out;
}

bool
tale_content_of(const uint8_t *data, size_t len, char out[16])
{
    size_t want_len;
    const uint8_t *space = memchr(data, ' ', len < 15 ? len : 15);
    if (space == NULL)
        return false;
    (void)snprintf(out, 16, "%.*s", (int)(space - data), (const char *)data);
    uint8_t *want = tale_bytes(out, &want_len);
    bool same = want_len == len && memcmp(want, data, len) == 0;
    free(want);
    return same;
}

/* ---- trees ---- */

static int
place_of(const struct tale_tree *tree, const char *path)
{
    for (unsigned i = 0; i < tree->count; i++)
        if (strcmp(tree->entry[i].path, path) == 0)
            return (int)i;
    return -1;
}

const char *
tale_tree_find(const struct tale_tree *tree, const char *path)
{
    int at = place_of(tree, path);
    return at < 0 ? NULL : tree->entry[at].content;
}

static void
put(struct tale_tree *tree, const char *path, const char *content)
{
    int at = place_of(tree, path);
    if (at < 0) {
        at = (int)tree->count++;
        if (at >= (int)TALE_PATHS)
            rig_die("a tale of too many paths");
    }
    (void)snprintf(tree->entry[at].path, sizeof(tree->entry[at].path), "%s", path);
    tree->entry[at].content = content;
}

static bool
is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* A path and what lies below it. */
static void
cut(struct tale_tree *tree, const char *path)
{
    unsigned left = 0;
    for (unsigned i = 0; i < tree->count; i++)
        if (!is_below(tree->entry[i].path, path))
            tree->entry[left++] = tree->entry[i];
    tree->count = left;
}

static void
graft(struct tale_tree *tree, const struct tale_tree *from, const char *path, const char *to)
{
    char name[sizeof(tree->entry[0].path)];
    for (unsigned i = 0; i < from->count; i++)
        if (is_below(from->entry[i].path, path)) {
            (void)snprintf(name, sizeof(name), "%.20s%.24s", to,
                           from->entry[i].path + strlen(path));
            put(tree, name, from->entry[i].content);
        }
}

/* ---- steps ---- */

static void
keep(struct tale_model *model, const char *content, bool staged)
{
    if (content == NULL || content[0] == '/')
        return;
    for (unsigned i = 0; i < model->kept_count; i++)
        if (strcmp(model->kept[i].content, content) == 0)
            return;
    if (model->kept_count == sizeof(model->kept) / sizeof(model->kept[0]))
        rig_die("a tale of too many contents");
    model->kept[model->kept_count].content = content;
    model->kept[model->kept_count++].staged = staged;
}

static void
barrier(struct tale_model *model)
{
    for (unsigned i = 0; i < model->kept_count; i++)
        model->kept[i].staged = false;
    for (unsigned i = 0; i < model->now.count; i++)
        keep(model, model->now.entry[i].content, false);
}

static void
drop(struct tale_model *model, const char *names)
{
    unsigned left = 0;
    for (unsigned i = 0; i < model->kept_count; i++)
        if (strstr(names, model->kept[i].content) == NULL)
            model->kept[left++] = model->kept[i];
    model->kept_count = left;
}

static void
unsnap(struct tale_model *model, const char *name)
{
    for (unsigned i = 0; i < TALE_MOMENTS; i++)
        if (model->snapshot[i] != NULL && strcmp(model->snapshot[i], name) == 0)
            model->snapshot[i] = NULL;
}

static void
undone(struct tale_model *model, const struct tale_op *op)
{
    struct tale_tree before = model->now;
    model->now = model->moment[op->moment];
    cut(&model->now, op->other);
    graft(&model->now, &before, op->other, op->other);
}

static void
move(struct tale_tree *tree, const char *from, const char *to)
{
    struct tale_tree before = *tree;
    cut(tree, from);
    cut(tree, to);
    graft(tree, &before, from, to);
}

/* NOLINTNEXTLINE(readability-function-size): one case for each kind of step */
static void
apply(struct tale_model *model, const struct tale_op *op)
{
    struct tale_tree *now = &model->now;
    switch (op->what) {
    case TALE_PUT:
        keep(model, op->other, true);
        __attribute__((fallthrough));
    case TALE_SAVE:
    case TALE_BACK:
        put(now, op->path, op->other);
        break;
    case TALE_REMOVE:
        cut(now, op->path);
        break;
    case TALE_MKDIR:
        put(now, op->path, "/");
        break;
    case TALE_MOVE:
        move(now, op->path, op->other);
        break;
    case TALE_SNAPSHOT:
        model->snapshot[op->moment] = op->other;
        __attribute__((fallthrough));
    case TALE_FLUSH:
        barrier(model);
        model->moment[op->moment] = op->what == TALE_SNAPSHOT ? *now : model->moment[op->moment];
        break;
    case TALE_MOMENT:
        model->moment[op->moment] = *now;
        break;
    case TALE_BACK_TO:
        cut(now, op->path);
        graft(now, &model->moment[op->moment], op->path, op->path);
        break;
    case TALE_UNDO:
        barrier(model); /* it begins with a barrier */
        undone(model, op);
        break;
    case TALE_PRUNE:
        drop(model, op->other);
        break;
    case TALE_UNSNAPSHOT:
        unsnap(model, op->other);
        break;
    case TALE_RUN:
    case TALE_END:
        break;
    }
}

void
tale_model_after(const struct tale *tale, unsigned acts, struct tale_model *out)
{
    memset(out, 0, sizeof(*out));
    for (unsigned i = 0; i < TALE_OPS && tale->begin[i].what != TALE_END; i++)
        apply(out, &tale->begin[i]);
    barrier(out);
    for (unsigned i = 0; i < acts; i++)
        apply(out, &tale->act[i]);
}

bool
tale_is_many(const struct tale_op *op)
{
    return op->what == TALE_BACK_TO || op->what == TALE_UNDO;
}

unsigned
tale_acts(const struct tale *tale)
{
    unsigned count = 0;
    while (count < TALE_OPS && tale->act[count].what != TALE_END)
        count++;
    return count;
}
