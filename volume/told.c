#include <stdlib.h>
#include <string.h>

#include "base/scope.h"
#include "volume/service_impl.h"

/*
 * Of which conflicts a barrier has told. Who calls a barrier wants to know of what met a conflict since he began to write, and
 * that may have been found before the call: an upload begins with the close. So a barrier counts every conflict that none
 * which ended before it began has told of; two at once both tell. The ids of conflicts rise, whatever the clock does.
 */

struct told_mark {
    struct told_mark *next;
    int64_t volume;
    char id[ULID_SIZE];
};

void
told_init(struct told *told)
{
    pthread_mutex_init(&told->lock, NULL);
}

/* What the last service left untold is in the lists, and no news. */
int
told_start(struct told *told, struct err *err)
{
    return ulid_new(told->start, err);
}

static void
free_marks(struct told_mark *mark)
{
    for (struct told_mark *next; mark != NULL; mark = next) {
        next = mark->next;
        free(mark);
    }
}

void
told_release(struct told *told)
{
    free_marks(told->marks);
    told->marks = NULL;
    pthread_mutex_destroy(&told->lock);
}

static struct told_mark *
find(struct told_mark *mark, int64_t volume)
{
    while (mark != NULL && mark->volume != volume)
        mark = mark->next;
    return mark;
}

static int
add(struct told_mark **marks, int64_t volume, const char *id, struct err *err)
{
    struct told_mark *mark = calloc(1, sizeof(*mark));
    if (mark == NULL)
        return err_nomem(err);
    mark->volume = volume;
    text_set(mark->id, id);
    mark->next = *marks;
    *marks = mark;
    return 0;
}

int
told_begin(struct told *told, struct told_view *view, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&told->lock);
    *view = (struct told_view){ .told = told };
    for (const struct told_mark *at = told->marks; at != NULL; at = at->next) {
        if (add(&view->marks, at->volume, at->id, err) != 0) {
            told_end(view);
            return -1;
        }
    }
    return 0;
}

bool
told_is_news(const struct told_view *view, const struct index_conflict *row)
{
    const struct told_mark *mark = find(view->marks, row->volume);
    return strcmp(row->id, mark == NULL ? view->told->start : mark->id) > 0;
}

int
told_tell(struct told_view *view, const struct index_conflict *row, struct err *err)
{
    struct told *told = view->told;
    scope_unlock pthread_mutex_t *held = scope_lock(&told->lock);
    struct told_mark *mark = find(told->marks, row->volume);
    if (mark == NULL)
        return add(&told->marks, row->volume, row->id, err);
    if (strcmp(row->id, mark->id) > 0)
        text_set(mark->id, row->id);
    return 0;
}

void
told_end(struct told_view *view)
{
    free_marks(view->marks);
    view->marks = NULL;
}
