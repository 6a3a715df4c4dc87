#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/parse.h"
#include "volume/service_impl.h"

/* Fifos, sockets and device nodes: names with a mode, without bytes (docs/adr/0006). The device's number stands as
 * "MAJOR:MINOR" in the row's `target`, which only symlinks use otherwise. */

bool
special_mode(uint32_t mode)
{
    return S_ISFIFO(mode) || S_ISSOCK(mode) || S_ISCHR(mode) || S_ISBLK(mode);
}

static bool
is_device(uint32_t mode)
{
    return S_ISCHR(mode) || S_ISBLK(mode);
}

void
special_set(struct index_node *node, uint32_t mode, uint64_t rdev)
{
    node->kind = INDEX_SPECIAL;
    node->mode = mode;
    node->size = 0;
    node->target[0] = '\0';
    if (is_device(mode))
        (void)snprintf(node->target, sizeof(node->target), "%u:%u", major(rdev), minor(rdev));
}

uint64_t
special_rdev(const struct index_node *node)
{
    char text[24];
    uint64_t number[2];
    text_set(text, node->target);
    char *colon = strchr(text, ':');
    if (node->kind != INDEX_SPECIAL || colon == NULL)
        return 0;
    *colon = '\0';
    if (!parse_u64(text, &number[0]) || !parse_u64(colon + 1, &number[1]))
        return 0;
    return makedev((unsigned)number[0], (unsigned)number[1]);
}

/* rclone's name and form: st_rdev in hexadecimal. */
int
special_meta(const struct index_node *node, struct meta *out, struct err *err)
{
    char text[24];
    if (node->kind != INDEX_SPECIAL || !is_device(node->mode))
        return 0;
    (void)snprintf(text, sizeof(text), "%llx", (unsigned long long)special_rdev(node));
    return meta_set(out, "rdev", text, err);
}

uint64_t
special_meta_read(const struct meta *meta)
{
    const char *text = meta_get(meta, "rdev");
    if (text == NULL || text[0] == '\0' || strlen(text) > 16 ||
        text[strspn(text, "0123456789abcdefABCDEF")] != '\0')
        return 0;
    return strtoull(text, NULL, 16);
}
