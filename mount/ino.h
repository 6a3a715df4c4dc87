#ifndef MOUNT_INO_H
#define MOUNT_INO_H

#include <stdint.h>

/*
 * Inode numbers of a mount are the index's node ids, which are never reused and need no table (a takeover depends on it); only
 * FUSE wants its root to be 1. So 1 and the mounted folder's node change places: still one to one, in both directions. Numbers with bit 62 are
 * those of `.holdfast/` (virtual.h). Pure.
 */
#define INO_ROOT 1

static inline uint64_t
ino_swap(uint64_t value, uint64_t root)
{
    if (value == INO_ROOT)
        return root;
    return value == root ? INO_ROOT : value;
}

static inline uint64_t
ino_of_node(int64_t node, int64_t root)
{
    return ino_swap((uint64_t)node, (uint64_t)root);
}

static inline int64_t
ino_to_node(uint64_t ino, int64_t root)
{
    return (int64_t)ino_swap(ino, (uint64_t)root);
}

#endif
