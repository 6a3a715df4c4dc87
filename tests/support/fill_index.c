/*
 * hf-fill-index STATE VOLUME FOLDERS FILES: puts FOLDERS folders with FILES files each into the index of a gateway that does
 * not run, as rows of files that are synced and not cached: a large tree without as many uploads.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/ulid.h"
#include "versioning/index.h"

#define BATCH 20000u

struct fill {
    struct index_volume volume;
    uint64_t folders, files;
    uint64_t next; /* entry: folder * files + file */
    int64_t folder;
};

static int
insert(struct index_tx *tx, const struct fill *fill, struct index_node *node, int64_t parent,
       struct err *err)
{
    node->volume = fill->volume.id;
    node->parent = parent;
    node->name_len = (uint16_t)strlen(node->name);
    node->mtime_ns = node->ctime_ns = clock_wall_ns();
    node->uid = node->gid = 0;
    if (ulid_new(node->ulid, err) != 0)
        return -1;
    return index_node_insert(tx, node, err);
}

static int
add_folder(struct index_tx *tx, struct fill *fill, uint64_t number, struct err *err)
{
    struct index_node node = { .kind = INDEX_DIR, .mode = S_IFDIR | 0755 };
    (void)snprintf(node.name, sizeof(node.name), "d%06llu", (unsigned long long)number);
    node.listed_ns = clock_wall_ns();
    if (insert(tx, fill, &node, fill->volume.root, err) != 0)
        return -1;
    fill->folder = node.id;
    return 0;
}

static int
add_file(struct index_tx *tx, struct fill *fill, uint64_t folder, uint64_t number, struct err *err)
{
    struct index_node node = { .kind = INDEX_FILE, .mode = S_IFREG | 0644, .size = 4096 };
    struct index_key key = { .volume = fill->volume.id, .size = 4096 };
    (void)snprintf(node.name, sizeof(node.name), "file-%06llu.txt", (unsigned long long)number);
    (void)snprintf(node.etag, sizeof(node.etag), "\"%032llx\"", (unsigned long long)fill->next);
    if (snprintf(node.key, sizeof(node.key), "%sd%06llu/%s", fill->volume.prefix,
                 (unsigned long long)folder, node.name) >= (int)sizeof(node.key))
        return err_set(err, ERR_NAME_TOO_LONG, "the volume's prefix is too long");
    if (insert(tx, fill, &node, fill->folder, err) != 0)
        return -1;
    (void)snprintf(key.key, sizeof(key.key), "%s", node.key);
    (void)snprintf(key.etag, sizeof(key.etag), "%s", node.etag);
    key.owner = node.id;
    return index_key_put(tx, &key, err);
}

static int
fill_some(struct index_tx *tx, void *arg, struct err *err)
{
    struct fill *fill = arg;
    for (unsigned i = 0; i < BATCH && fill->next < fill->folders * fill->files; i++) {
        uint64_t folder = fill->next / fill->files, file = fill->next % fill->files;
        if (file == 0 && add_folder(tx, fill, folder, err) != 0)
            return -1;
        if (add_file(tx, fill, folder, file, err) != 0)
            return -1;
        fill->next++;
    }
    return 0;
}

/* The root counts as listed, too. */
static int
find_volume(struct index_tx *tx, void *arg, struct err *err)
{
    struct fill *fill = arg;
    struct index_node root;
    char name[LIMIT_VOLUME_NAME + 1];
    (void)snprintf(name, sizeof(name), "%s", fill->volume.name);
    if (index_volume_find(tx, name, &fill->volume, err) != 0 ||
        index_node_get(tx, fill->volume.root, &root, err) != 0)
        return -1;
    root.listed_ns = clock_wall_ns();
    return index_node_update(tx, &root, err);
}

static int
fill_all(struct index *index, struct fill *fill, struct err *err)
{
    if (index_write(index, INDEX_NORMAL, find_volume, fill, err) != 0)
        return -1;
    while (fill->next < fill->folders * fill->files)
        if (index_write(index, INDEX_NORMAL, fill_some, fill, err) != 0)
            return -1;
    return 0;
}

int
main(int argc, char **argv)
{
    struct err err = ERR_INIT;
    struct fill fill = { .next = 0 };
    struct index_options options = { .create = false };
    if (argc != 5 || !parse_u64(argv[3], &fill.folders) || !parse_u64(argv[4], &fill.files)) {
        (void)fprintf(stderr, "usage: hf-fill-index STATE VOLUME FOLDERS FILES\n");
        return 2;
    }
    (void)snprintf(fill.volume.name, sizeof(fill.volume.name), "%s", argv[2]);
    struct index *index = index_open(argv[1], &options, &err);
    int rc = index == NULL ? -1 : fill_all(index, &fill, &err);
    index_close(index);
    if (rc != 0)
        (void)fprintf(stderr, "hf-fill-index: %s\n", err.msg);
    return rc != 0;
}
