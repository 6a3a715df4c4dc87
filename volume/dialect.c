#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/parse.h"
#include "volume/dialect_impl.h"

#define S3CMD "s3cmd-attrs"

/* The value of `name` in "name:value/name:value"; false when absent, no number or too large. */
static bool
attr_number(const char *attrs, const char *name, uint64_t max, uint64_t *out)
{
    size_t name_len = strlen(name);
    for (const char *p = attrs; *p != '\0'; p += strspn(p, "/")) {
        size_t len = strcspn(p, "/");
        if (len > name_len && p[name_len] == ':' && strncmp(p, name, name_len) == 0)
            return parse_u64_n(p + name_len + 1, len - name_len - 1, out) && *out <= max;
        p += len;
    }
    return false;
}

void
dialect_read(const struct meta *meta, struct object_attrs *attrs)
{
    const char *text = meta_get(meta, S3CMD);
    uint64_t mode, mtime, uid, gid;
    if (text == NULL)
        return;
    if (!attrs->has_mode && attr_number(text, "mode", UINT16_MAX, &mode)) {
        attrs->has_mode = true;
        attrs->mode = (uint32_t)mode;
    }
    if (!attrs->has_mtime && attr_number(text, "mtime", INT64_MAX / NS_PER_S, &mtime)) {
        attrs->has_mtime = true;
        attrs->mtime_ns = (int64_t)mtime * NS_PER_S;
    }
    if (!attrs->has_owner && attr_number(text, "uid", UINT32_MAX, &uid) &&
        attr_number(text, "gid", UINT32_MAX, &gid)) {
        attrs->has_owner = true;
        attrs->uid = (uint32_t)uid;
        attrs->gid = (uint32_t)gid;
    }
}

int
dialect_write(const struct index_node *node, const struct index_content *content, struct meta *out,
              struct err *err)
{
    char text[160];
    if (node->kind != INDEX_FILE || node->mtime_ns < 0)
        return 0; /* s3cmd knows neither folders nor links */
    (void)snprintf(text, sizeof(text), "gid:%u/mode:%u/mtime:%lld/uid:%u%s%s", node->gid,
                   node->mode, (long long)(node->mtime_ns / NS_PER_S), node->uid,
                   content->md5[0] == '\0' ? "" : "/md5:", content->md5);
    return meta_set(out, S3CMD, text, err);
}

/* Sorted by extension. What browsers show or save by it; all else is bytes. */
static const struct content_type {
    const char *ext, *type;
} types[] = {
    { "avif", "image/avif" },
    { "bmp", "image/bmp" },
    { "c", "text/plain; charset=utf-8" },
    { "css", "text/css; charset=utf-8" },
    { "csv", "text/csv; charset=utf-8" },
    { "docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document" },
    { "flac", "audio/flac" },
    { "gif", "image/gif" },
    { "gz", "application/gzip" },
    { "h", "text/plain; charset=utf-8" },
    { "htm", "text/html; charset=utf-8" },
    { "html", "text/html; charset=utf-8" },
    { "ico", "image/vnd.microsoft.icon" },
    { "ipynb", "application/x-ipynb+json" },
    { "jpeg", "image/jpeg" },
    { "jpg", "image/jpeg" },
    { "js", "text/javascript; charset=utf-8" },
    { "json", "application/json" },
    { "jsonl", "application/jsonl" },
    { "log", "text/plain; charset=utf-8" },
    { "md", "text/markdown; charset=utf-8" },
    { "mjs", "text/javascript; charset=utf-8" },
    { "mp3", "audio/mpeg" },
    { "mp4", "video/mp4" },
    { "ogg", "audio/ogg" },
    { "parquet", "application/vnd.apache.parquet" },
    { "pdf", "application/pdf" },
    { "png", "image/png" },
    { "pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation" },
    { "py", "text/x-python; charset=utf-8" },
    { "rs", "text/plain; charset=utf-8" },
    { "sh", "text/x-shellscript; charset=utf-8" },
    { "svg", "image/svg+xml" },
    { "tar", "application/x-tar" },
    { "tif", "image/tiff" },
    { "tiff", "image/tiff" },
    { "toml", "application/toml" },
    { "ts", "text/plain; charset=utf-8" },
    { "tsv", "text/tab-separated-values; charset=utf-8" },
    { "txt", "text/plain; charset=utf-8" },
    { "wasm", "application/wasm" },
    { "wav", "audio/wav" },
    { "webm", "video/webm" },
    { "webp", "image/webp" },
    { "xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" },
    { "xml", "application/xml" },
    { "yaml", "application/yaml" },
    { "yml", "application/yaml" },
    { "zip", "application/zip" },
    { "zst", "application/zstd" },
};

static int
compare_type(const void *ext, const void *type)
{
    const struct content_type *entry = type;
    return strcasecmp(ext, entry->ext);
}

const char *
dialect_content_type(const struct index_node *node)
{
    static const char bytes[] = "application/octet-stream";
    const char *dot = strrchr(node->name, '.');
    if (node->kind == INDEX_DIR)
        return "application/x-directory";
    if (node->kind != INDEX_FILE || dot == NULL || dot == node->name)
        return bytes;
    const struct content_type *found =
        bsearch(dot + 1, types, sizeof(types) / sizeof(types[0]), sizeof(types[0]), compare_type);
    return found == NULL ? bytes : found->type;
}
