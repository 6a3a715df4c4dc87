#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "gateway/router.h"
#include "gateway/share.h"
#include "volume/artifact.h"

/* Somebody follows a link: no login, the secret in the address is all. */

#define URL_LIFE_S 60
#define BLOCK (1u << 20)

struct hit {
    char hash[SHA256_HEX];
    unsigned kind; /* INDEX_SHARE_PUT or 0 */
    bool count;
    struct index_share row;
    struct index_volume volume;
};

/* Looked up, judged and counted in one transaction: of ten who come at once for the last download one gets it. */
static int
hit_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct hit *hit = arg;
    if (index_share_find(tx, hit->hash, &hit->row, err) != 0)
        return -1;
    if ((hit->row.flags & INDEX_SHARE_ENDED) != 0 || hit->row.expires_ns <= clock_wall_ns() ||
        (hit->row.most != 0 && hit->row.hits >= hit->row.most) ||
        (hit->row.flags & INDEX_SHARE_PUT) != hit->kind)
        return err_set(err, ERR_NOT_FOUND, "there is no such link");
    if (hit->kind != 0 && index_volume_get(tx, hit->row.volume, &hit->volume, err) != 0)
        return -1;
    if (!hit->count)
        return 0;
    hit->row.hits++;
    return index_share_put(tx, &hit->row, err);
}

static struct hit *
take(struct exchange *x, unsigned kind, bool count, struct err *err)
{
    struct index *index = volume_service_index(x->gateway->service);
    struct err missing = ERR_INIT;
    struct hit *hit = calloc(1, sizeof(*hit));
    if (!hit) {
        (void)err_nomem(err);
        return NULL;
    }
    hit->kind = kind;
    hit->count = count;
    if (gateway_links_hash(x->name, hit->hash, err) == 0) {
        int rc = count ? index_write(index, INDEX_NORMAL, hit_tx, hit, &missing)
                       : index_read(index, hit_tx, hit, &missing);
        if (rc == 0)
            return hit;
        /* One answer for what never was, what ended and what is used up. */
        (void)err_set(err, missing.code, "%s",
                      missing.code == ERR_NOT_FOUND
                          ? "there is no such link (any more): ask who gave it to you"
                          : missing.msg);
    }
    free(hit);
    return NULL;
}

/* What history and audit say of who came by a link. */
static void
act_as(struct exchange *x, const struct index_share *row)
{
    gateway_access_all(GATEWAY_NOBODY, &x->access);
    x->access.verbs = 0;
    (void)snprintf(x->access.actor, sizeof(x->access.actor), "link:%s", row->id);
    text_set(x->access.run, row->run);
}

/* ---- downloads ---- */

struct reader {
    struct volume_service *service;
    char key[LIMIT_KEY + 1];
    uint64_t size, at;
    size_t have;
    char block[BLOCK];
};

static ssize_t
reader_read(void *arg, uint64_t off, void *out, size_t max, struct err *err)
{
    struct reader *reader = arg;
    if (off >= reader->size)
        return 0;
    if (off < reader->at || off >= reader->at + reader->have) {
        uint64_t left = reader->size - off;
        ssize_t got = volume_artifact_read(reader->service, reader->key, reader->block,
                                           left < BLOCK ? (size_t)left : (size_t)BLOCK, off, err);
        if (got <= 0)
            return got < 0 ? -1 : err_set(err, ERR_CORRUPT, "a frozen copy is too short");
        reader->at = off;
        reader->have = (size_t)got;
    }
    size_t len = reader->have - (size_t)(off - reader->at);
    len = len < max ? len : max;
    memcpy(out, reader->block + (off - reader->at), len);
    return (ssize_t)len;
}

static int
send_bytes(struct exchange *x, const struct index_share *row, const char *disposition,
           struct err *err)
{
    x->reply.status = 200;
    if (strlen(disposition) >= GATEWAY_REPLY_VALUE_MAX)
        disposition = "attachment";
    if (exchange_reply_header(x, "Content-Type", err, "%s", gateway_share_type(row->name)) < 0 ||
        exchange_reply_header(x, "Content-Disposition", err, "%s", disposition) < 0 ||
        exchange_reply_header(x, "Content-Security-Policy", err, "sandbox; default-src 'none'") < 0)
        return -1;
    if (row->size == 0)
        return 0;
    struct reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return err_nomem(err);
    reader->service = x->gateway->service;
    reader->size = row->size;
    text_set(reader->key, row->key);
    x->reply.stream = (struct exchange_stream){ reader_read, free, reader, row->size };
    return 0;
}

static int
send_away(struct exchange *x, const struct index_share *row, const char *disposition,
          struct err *err)
{
    int64_t left = (row->expires_ns - clock_wall_ns()) / NS_PER_S;
    struct volume_artifact_url want = {
        .key = row->key,
        .type = gateway_share_type(row->name),
        .disposition = disposition,
        .expires_s = left < 1            ? 1
                     : left < URL_LIFE_S ? left
                                         : URL_LIFE_S,
    };
    x->reply.status = 302;
    return volume_artifact_presign(x->gateway->service, &want, &x->reply.location, err);
}

int
gateway_links_get(struct exchange *x, struct err *err)
{
    scope_buf disposition;
    scope_free struct hit *hit = take(x, 0, true, err);
    buf_init(&disposition, 4096);
    if (!hit)
        return -1;
    const struct index_share *row = &hit->row;
    act_as(x, row);
    bool show = (row->flags & INDEX_SHARE_INLINE) != 0;
    if (gateway_share_disposition(row->name, show, &disposition, err) < 0 ||
        exchange_reply_header(x, "Cache-Control", err, "no-store") < 0 ||
        exchange_reply_header(x, "Referrer-Policy", err, "no-referrer") < 0)
        return -1;
    bool here =
        (row->flags & INDEX_SHARE_PROXY) != 0 || !volume_artifact_presigns(x->gateway->service);
    return here ? send_bytes(x, row, buf_cstr(&disposition), err)
                : send_away(x, row, buf_cstr(&disposition), err);
}

/* ---- uploads: as PUT of a new file ---- */

int
gateway_links_put_begin(struct exchange *x, struct err *err)
{
    scope_free struct hit *hit = take(x, INDEX_SHARE_PUT, false, err);
    if (!hit)
        return -1;
    const struct index_share *row = &hit->row;
    text_set(x->link, x->name);
    text_set(x->name, hit->volume.name);
    text_set(x->link_path, row->path);
    x->path = x->link_path;
    x->put_most = row->size;
    act_as(x, row);
    if (x->content_length >= 0 && row->size != 0 && (uint64_t)x->content_length > row->size)
        return err_set(err, ERR_TOO_LARGE, "this link takes at most %llu bytes",
                       (unsigned long long)row->size);
    return gateway_files_put_begin(x, err);
}

int
gateway_links_put_end(struct exchange *x, struct err *err)
{
    if (gateway_files_put_end(x, err) < 0)
        return -1;
    text_set(x->name, x->link);
    struct err late = ERR_INIT; /* it is in: whether the link holds longer changes nothing */
    free(take(x, INDEX_SHARE_PUT, true, &late));
    return 0;
}
