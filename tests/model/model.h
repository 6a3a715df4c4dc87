#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "support/crash/rig.h"

/* A file tree in memory, as simple as can be: what a volume has to look like. Answers are errno values, 0 for success. */
#define MODEL_NAME 16
#define MODEL_CHILDREN 64

struct model_node {
    enum index_kind kind;
    uint32_t mode; /* permission bits */
    bool mtime_known;
    int64_t mtime_ns;
    uint8_t *bytes; /* of a file, or a link's target */
    size_t len;
    unsigned refs; /* names and handles */
    unsigned handles;
    struct {
        char name[MODEL_NAME];
        struct model_node *node;
    } child[MODEL_CHILDREN];
    size_t count;
};

struct model_node *model_new(enum index_kind kind, uint32_t mode);
struct model_node *model_ref(struct model_node *node);
void model_unref(struct model_node *node);
/* NULL when there is none. */
struct model_node *model_child(const struct model_node *dir, const char *name);
void model_add(struct model_node *dir, const char *name, struct model_node *node);
/* Takes the name away; the node goes with its last reference. */
void model_cut(struct model_node *dir, const char *name);
bool model_is_below(const struct model_node *node, const struct model_node *top);

int model_remove(struct model_node *dir, const char *name, bool is_dir);
struct model_place {
    struct model_node *dir;
    const char *name;
};
int model_rename(const struct model_place *from, const struct model_place *to, unsigned flags);

void model_write(struct model_node *node, size_t off, const void *data, size_t len);
void model_truncate(struct model_node *node, size_t size);

#endif
