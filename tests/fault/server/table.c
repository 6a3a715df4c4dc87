#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/fault/server/objects.h"

static struct object **objects;
static size_t count, room;
static unsigned listings;

static size_t
position(const char *key)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(objects[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct object *
find_any(const char *key)
{
    size_t at = position(key);
    return at < count && strcmp(objects[at]->key, key) == 0 ? objects[at] : NULL;
}

struct object *
table_find(const char *key)
{
    struct object *object = find_any(key);
    return object && object->content ? object : NULL;
}

size_t
table_count(void)
{
    return count;
}

struct object *
table_at(size_t i)
{
    return objects[i];
}

static struct object *
insert(const char *key)
{
    if (count == room) {
        room = room ? 2 * room : 64;
        objects = reallocarray(objects, room, sizeof(struct object *));
    }
    size_t at = position(key);
    memmove((void *)(objects + at + 1), (void *)(objects + at),
            (count - at) * sizeof(struct object *));
    count++;
    objects[at] = calloc(1, sizeof(struct object));
    objects[at]->key = strdup(key);
    return objects[at];
}

static bool
lies(const struct object *object)
{
    return roles_has(ROLE_LYING_LIST) && object->changed_ns &&
           (clock_mono_ns() - object->changed_ns < objects_modes.lag_ms * NS_PER_MS ||
            listings - object->changed_list < objects_modes.lag_lists);
}

/* What was shown before stays shown while the lie lasts. */
static void
change(struct object *object, struct view now)
{
    if (!lies(object))
        object->before = object->now;
    object->now = now;
    object->changed_ns = clock_mono_ns();
    object->changed_list = listings;
}

struct object *
table_store(const char *key, struct content *content, const char *etag, const char *head)
{
    struct object *object = find_any(key);
    struct view now = { .there = true,
                        .size = content_len(content),
                        .modified_ns = server_wall_ns() };
    if (!object)
        object = insert(key);
    (void)snprintf(now.etag, sizeof(now.etag), "%s", etag);
    change(object, now);
    char *kept = strdup(head); /* may be this object's own */
    content_drop(object->content);
    free(object->head);
    object->content = content;
    object->head = kept;
    return object;
}

static void
forget(struct object *object)
{
    content_drop(object->content);
    free(object->key);
    free(object->head);
    free(object);
}

void
table_erase(const char *key)
{
    struct object *object = table_find(key);
    if (!object)
        return;
    if (roles_has(ROLE_LYING_LIST)) {
        change(object, (struct view){ .there = false });
        content_drop(object->content);
        object->content = NULL;
        return;
    }
    size_t at = position(key);
    forget(object);
    memmove((void *)(objects + at), (void *)(objects + at + 1),
            (count - at - 1) * sizeof(struct object *));
    count--;
}

void
table_clear(void)
{
    while (count > 0)
        forget(objects[--count]);
}

const struct view *
table_view(const struct object *object)
{
    return lies(object) ? &object->before : &object->now;
}

void
table_listed(void)
{
    size_t kept = 0;
    listings++;
    for (size_t i = 0; i < count; i++) {
        if (!objects[i]->content && !lies(objects[i]))
            forget(objects[i]);
        else
            objects[kept++] = objects[i];
    }
    count = kept;
}
