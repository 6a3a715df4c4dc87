#include "volume/volume.h"

static const struct {
    const char *type, *op;
} words[] = {
    [VOLUME_EVENT_CREATED] = { "change", "create" },
    [VOLUME_EVENT_CHANGED] = { "change", "write" },
    [VOLUME_EVENT_OPENED] = { "change", NULL },
    [VOLUME_EVENT_REMOVED] = { "change", "remove" },
    [VOLUME_EVENT_RENAMED] = { "change", "move_from" },
    [VOLUME_EVENT_SYNCED] = { "synced", NULL },
    [VOLUME_EVENT_CONFLICT] = { "conflict", NULL },
    [VOLUME_EVENT_RESOLVED] = { "resolved", NULL },
    [VOLUME_EVENT_STALE] = { "stale", NULL },
    [VOLUME_EVENT_STORE] = { "store", NULL },
    [VOLUME_EVENT_LOST] = { "lost", NULL },
};

const char *
volume_event_type(enum volume_event_kind kind)
{
    return words[kind].type;
}

const char *
volume_event_op(enum volume_event_kind kind)
{
    return words[kind].op;
}
