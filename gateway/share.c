#include "gateway/share.h"

#include <string.h>
#include <strings.h>

#include "base/parse.h"

const char *
gateway_share_type(const char *name)
{
    /* Texts are shown as text whatever they hold: nothing here is a page, a script or SVG. */
    static const struct {
        const char *ending, *type;
    } types[] = {
        { "csv", "text/csv; charset=utf-8" },
        { "txt", "text/plain; charset=utf-8" },
        { "log", "text/plain; charset=utf-8" },
        { "md", "text/markdown; charset=utf-8" },
        { "tsv", "text/tab-separated-values; charset=utf-8" },
        { "json", "application/json" },
        { "pdf", "application/pdf" },
        { "png", "image/png" },
        { "jpg", "image/jpeg" },
        { "jpeg", "image/jpeg" },
        { "gif", "image/gif" },
        { "webp", "image/webp" },
        { "mp3", "audio/mpeg" },
        { "wav", "audio/wav" },
        { "mp4", "video/mp4" },
        { "webm", "video/webm" },
        { "zip", "application/zip" },
        { "gz", "application/gzip" },
    };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcasecmp(dot + 1, types[i].ending) == 0)
            return types[i].type;
    }
    return "application/octet-stream";
}

int
gateway_share_disposition(const char *name, bool show, struct buf *out, struct err *err)
{
    if (buf_append_str(out, show ? "inline; filename=\"" : "attachment; filename=\"", err) < 0)
        return -1;
    for (const char *c = name; *c != '\0'; c++) {
        unsigned char byte = (unsigned char)*c;
        bool plain = byte >= 0x20 && byte < 0x7f && !strchr("\"\\%/", byte);
        if (buf_append(out, plain ? c : "_", 1, err) < 0)
            return -1;
    }
    if (buf_append_str(out, "\"; filename*=UTF-8''", err) < 0)
        return -1;
    return percent_encode(name, strlen(name), false, out, err);
}
