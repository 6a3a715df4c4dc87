#include "volume/loser_meta.h"

#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "base/scope.h"
#include "base/text.h"

/* Values stay below what the strictest store takes (Swift: 256 bytes), all of it below what AWS takes (2,048 with the names). */
#define PIECE 240u
#define PIECES 6u
#define USER_META_MAX 2048u

static size_t
bytes_of(const struct meta *meta)
{
    size_t bytes = 0;
    for (size_t i = 0; i < meta->count; i++)
        bytes += strlen(meta->entry[i].name) + strlen(meta->entry[i].value);
    return bytes;
}

static int
add_text(struct meta *meta, const char *name, const char *text, struct err *err)
{
    scope_buf value;
    buf_init(&value, 4096);
    if (text[0] == '\0')
        return 0;
    if (percent_encode(text, strlen(text), true, &value, err) != 0)
        return -1;
    return value.len > PIECE ? 0 : meta_set(meta, name, buf_cstr(&value), err);
}

/* As it was written: these are in every object's metadata. */
static void
take_word(const struct meta *meta, const char *name, char *out, size_t size)
{
    const char *text = meta_get(meta, name);
    if (text != NULL && strlen(text) < size)
        text_copy(out, size, text);
}

static void
piece_name(unsigned piece, char out[32])
{
    (void)snprintf(out, 32, "holdfast-path64-%u", piece + 1);
}

/* A path whose readable form is too long, in base64, as far as there is room. */
static int
add_pieces(struct meta *meta, const char *path, struct err *err)
{
    scope_buf value;
    char name[32], piece[PIECE + 1];
    buf_init(&value, 4096);
    if (base64_encode(path, strlen(path), &value, err) != 0)
        return -1;
    for (unsigned i = 0; i < PIECES && i * PIECE < value.len; i++) {
        piece_name(i, name);
        (void)snprintf(piece, sizeof(piece), "%.*s", (int)PIECE, buf_cstr(&value) + i * PIECE);
        if (bytes_of(meta) + strlen(name) + strlen(piece) > USER_META_MAX)
            return 0;
        if (meta_set(meta, name, piece, err) != 0)
            return -1;
    }
    return 0;
}

int
loser_meta_add(const struct index_conflict *row, struct meta *out, struct err *err)
{
    const char *theirs = row->theirs_version[0] != '\0' ? row->theirs_version : row->theirs_etag;
    if (add_text(out, "holdfast-reason", row->reason, err) != 0 ||
        add_text(out, "holdfast-theirs", theirs, err) != 0 ||
        add_text(out, "holdfast-actor", row->actor, err) != 0 ||
        add_text(out, "holdfast-path", row->path, err) != 0)
        return -1;
    return meta_get(out, "holdfast-path") != NULL ? 0 : add_pieces(out, row->path, err);
}

/* Into a field of `size` bytes; what does not fit, or is not well-formed, is not told. */
static int
take_text(const struct meta *meta, const char *name, char *out, size_t size, struct err *err)
{
    scope_buf value;
    struct err bad = ERR_INIT;
    const char *text = meta_get(meta, name);
    buf_init(&value, 4096);
    if (text == NULL)
        return 0;
    if (percent_decode(text, strlen(text), &value, &bad) != 0)
        return bad.code == ERR_NOMEM ? err_set(err, bad.code, "%s", bad.msg) : 0;
    if (value.len < size)
        text_copy(out, size, buf_cstr(&value));
    return 0;
}

static int
take_pieces(const struct meta *meta, struct index_conflict *out, struct err *err)
{
    scope_buf text, path;
    struct err bad = ERR_INIT;
    char name[32];
    buf_init(&text, 4096);
    buf_init(&path, 4096);
    for (unsigned i = 0; i < PIECES; i++) {
        piece_name(i, name);
        const char *piece = meta_get(meta, name);
        if (piece == NULL)
            break;
        if (buf_append_str(&text, piece, err) != 0)
            return -1;
    }
    if (text.len == 0)
        return 0;
    buf_truncate(&text, text.len - text.len % 4); /* shortened: whole groups of three bytes */
    if (base64_decode(buf_cstr(&text), text.len, &path, &bad) != 0)
        return bad.code == ERR_NOMEM ? err_set(err, bad.code, "%s", bad.msg) : 0;
    if (path.len < sizeof(out->path) && memchr(path.data, '\0', path.len) == NULL)
        text_set(out->path, buf_cstr(&path));
    return 0;
}

int
loser_meta_read(const struct meta *meta, struct index_conflict *out, struct err *err)
{
    char theirs[LIMIT_ETAG] = "";
    take_word(meta, "holdfast-run", out->run, sizeof(out->run));
    take_word(meta, "holdfast-base", out->base_version, sizeof(out->base_version));
    take_word(meta, "holdfast-version", out->mine_version, sizeof(out->mine_version));
    if (take_text(meta, "holdfast-reason", out->reason, sizeof(out->reason), err) != 0 ||
        take_text(meta, "holdfast-theirs", theirs, sizeof(theirs), err) != 0 ||
        take_text(meta, "holdfast-actor", out->actor, sizeof(out->actor), err) != 0 ||
        take_text(meta, "holdfast-path", out->path, sizeof(out->path), err) != 0)
        return -1;
    if (ulid_valid(theirs))
        text_set(out->theirs_version, theirs);
    else
        text_set(out->theirs_etag, theirs);
    return out->path[0] != '\0' ? 0 : take_pieces(meta, out, err);
}
