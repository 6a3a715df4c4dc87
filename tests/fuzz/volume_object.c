#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"
#include "volume/service_impl.h"

/* Metadata of objects that other clients wrote: lines "name=value", then what it says about the file; and there and back. */

static void
take_lines(char *text, struct meta *meta)
{
    struct err err = ERR_INIT;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *value = strchr(line, '=');
        if (!value)
            continue;
        *value++ = '\0';
        (void)!meta_set(meta, line, value, &err);
    }
}

static void
check_there_and_back(const struct object_attrs *attrs)
{
    struct err err = ERR_INIT;
    static struct index_node node;
    static struct index_content content;
    struct object_attrs again;
    struct observed seen;
    struct store_object object;
    store_object_init(&object);
    node.mode = S_IFREG | (attrs->mode & 07777);
    node.mtime_ns = attrs->mtime_ns;
    node.uid = attrs->uid;
    node.gid = attrs->gid;
    HOLDS(object_meta_make(&node, &content, 0, &object.meta, &err) == 0);
    object_read(&object, &seen, &again);
    HOLDS(again.has_mode && again.mode == node.mode);
    HOLDS(again.has_mtime && again.mtime_ns == node.mtime_ns);
    HOLDS(again.has_owner && again.uid == node.uid && again.gid == node.gid);
    store_object_release(&object);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct observed seen;
    struct object_attrs attrs;
    struct store_object object;
    char *text = fuzz_text(data, size);
    store_object_init(&object);
    take_lines(text, &object.meta);
    memcpy(object.etag, "e", 2);
    object_read(&object, &seen, &attrs);
    HOLDS(!attrs.has_mode || attrs.mode <= UINT16_MAX);
    HOLDS(memchr(seen.version, 0, sizeof(seen.version)) && memchr(seen.md5, 0, sizeof(seen.md5)));
    HOLDS(memchr(seen.sha256, 0, sizeof(seen.sha256)));
    (void)identity_believed(&seen, "e");
    check_there_and_back(&attrs);
    store_object_release(&object);
    free(text);
    return 0;
}
