#include "base/log.h"
#include "base/parse.h"
#include "volume/link_impl.h"

/* A name of an inode towards the bucket: when its own newest bytes are no copy of the inode's, it gets one, and from there on it is
 * a file like any. */

/* ---- what is wanted ---- */

static int
load_pair(struct index_tx *tx, const struct index_node *name, struct index_link *link,
          struct index_node *inode, struct err *err)
{
    if (index_link_get(tx, name->id, link, err) != 0 ||
        index_node_get(tx, link->inode, inode, err) != 0)
        return -1;
    return 0;
}

static void
show_inode(struct key_view *kv, const struct index_node *inode)
{
    kv->inode = inode->id;
    kv->node.mode = inode->mode;
    kv->node.uid = inode->uid;
    kv->node.gid = inode->gid;
    kv->node.mtime_ns = inode->mtime_ns;
    text_set(kv->node.ulid, inode->ulid);
}

/* The synced bytes of a file that is being written in place may be nowhere but in the bucket, and soon replaced there. */
static int
is_only_live(struct index_tx *tx, const struct index_node *inode, bool *out, struct err *err)
{
    struct index_content content;
    *out = false;
    if (inode->content == 0)
        return 0;
    if (index_content_get(tx, inode->content, &content, err) != 0)
        return -1;
    *out = content.state == CONTENT_LIVE;
    return 0;
}

static void
want_copy(struct key_view *kv, const char *identity)
{
    struct sync_want *want = &kv->view.want;
    /* No version of ours, a foreign one's name: only that there is one counts, until the copy is made. */
    (void)snprintf(want->version, sizeof(want->version), "%.*s", (int)sizeof(want->version) - 1,
                   identity);
    want->dirty = true;
    want->bytes_local = false;
    kv->prepare = true;
}

int
link_view(struct index_tx *tx, const char *key, struct key_view *kv, struct err *err)
{
    struct sync_want *want = &kv->view.want;
    const struct sync_have *have = &kv->view.have;
    struct index_node *name = &kv->node;
    struct index_node inode;
    struct index_link link;
    char identity[LIMIT_ETAG];
    bool live = false;
    if (load_pair(tx, name, &link, &inode, err) != 0)
        return -1;
    show_inode(kv, &inode);
    want->present = true;
    want->node = name->id;
    want->at_this_key = name->key[0] != '\0' && strcmp(name->key, key) == 0;
    text_set(want->base_etag, name->etag);
    text_set(want->base_version, name->version);
    text_set(want->version, name->version);
    want->size = inode.size;
    if (name->content != 0) {
        if (index_content_get(tx, name->content, &kv->content, err) != 0)
            return -1;
        text_set(want->version, kv->content.version);
        text_set(want->md5, kv->content.md5);
        text_set(want->sha256, kv->content.sha256);
        want->size = kv->content.size;
        want->dirty = want->bytes_local = true;
        return 0;
    }
    struct index_content frozen;
    if (link_identity(tx, &inode, identity, &frozen, err) != 0)
        return -1;
    bool replaced = have->present && have->owner == 0 && have->discard;
    bool behind = identity[0] != '\0' &&
                  (strcmp(link.version, identity) != 0 || !want->at_this_key || replaced);
    if (frozen.id == 0 && is_only_live(tx, &inode, &live, err) != 0)
        return -1;
    if (behind && !live)
        want_copy(kv, identity);
    else if (!want->at_this_key)
        want->writing = true; /* the freeze makes the work item anew */
    return 0;
}

/* ---- the copy ---- */

bool
link_needs_copy(const struct step *step)
{
    const struct key_view *kv = &step->kv;
    return kv->prepare && kv->view.want.present && (kv->node.flags & INDEX_NODE_LINK) != 0 &&
           step->decision.action == SYNC_FETCH;
}

struct copy_call {
    struct step *step;
    int64_t inode, number;
    char identity[LIMIT_ETAG];
    struct index_content source, copy;
    bool found; /* the bytes are here */
    bool made;
};

/* The inode's newest bytes that do not change any more. */
static int
source_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct copy_call *call = arg;
    struct index_node name, inode;
    struct index_link link;
    call->found = false;
    if (index_node_get(tx, call->step->kv.node.id, &name, err) != 0 ||
        load_pair(tx, &name, &link, &inode, err) != 0 ||
        link_identity(tx, &inode, call->identity, &call->source, err) != 0)
        return -1;
    call->inode = inode.id;
    call->found = call->source.id != 0;
    if (call->found || inode.content == 0)
        return 0;
    if (index_content_get(tx, inode.content, &call->source, err) != 0)
        return -1;
    call->found =
        call->source.state == CONTENT_CLEAN && (call->source.flags & CONTENT_COMPLETE) != 0;
    return 0;
}

static void
fill_copy(struct copy_call *call, const struct index_node *name)
{
    struct index_content *row = &call->copy;
    const struct index_content *source = &call->source;
    row->id = call->number;
    row->node = name->id;
    row->volume = name->volume;
    row->state = CONTENT_FROZEN;
    row->flags = CONTENT_ACKED | CONTENT_COMPLETE;
    row->size = source->size;
    row->mtime_ns = source->mtime_ns;
    text_set(row->base_version, name->version);
    text_set(row->base_etag, name->etag);
    text_set(row->boot_id, call->step->service->boot_id);
    text_set(row->actor, source->actor);
    text_set(row->run, source->run);
}

static int
keep_copy_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct copy_call *call = arg;
    struct step *step = call->step;
    struct index_node name, inode;
    struct index_link link;
    struct index_content before = call->source;
    char identity[LIMIT_ETAG];
    if (step_decide_tx(tx, step, err) != 0)
        return -1;
    if (!link_needs_copy(step))
        return 0;
    text_set(identity, call->identity);
    if (source_tx(tx, call, err) != 0)
        return -1;
    /* Written again meanwhile: what was copied may be half of it. */
    if (!call->found || call->source.id != before.id || call->source.state != before.state ||
        strcmp(call->source.version, before.version) != 0 || strcmp(call->identity, identity) != 0)
        return 0;
    if (index_node_get(tx, step->kv.node.id, &name, err) != 0 ||
        load_pair(tx, &name, &link, &inode, err) != 0)
        return -1;
    fill_copy(call, &name);
    if (call->source.version[0] != '\0')
        text_set(call->copy.version, call->source.version);
    else if (ulid_new(call->copy.version, err) != 0)
        return -1;
    /* Should the link break, the name goes on with what it had. */
    name.content = call->number;
    name.size = inode.size;
    name.mode = inode.mode;
    name.uid = inode.uid;
    name.gid = inode.gid;
    name.mtime_ns = inode.mtime_ns;
    text_set(link.version, identity);
    if (index_content_insert(tx, &call->copy, err) != 0 || index_node_update(tx, &name, err) != 0 ||
        index_link_put(tx, &link, err) != 0)
        return -1;
    call->made = true;
    return step_advance(step, tx, err);
}

static int
number_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct copy_call *call = arg;
    return index_content_number(tx, &call->number, err);
}

static int
copy_bytes(struct copy_call *call, struct cache_file *to, struct err *why)
{
    struct cache_file *from = cache_get(call->step->service->cache, call->source.id, why);
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    int rc = from == NULL ? -1 : cache_file_copy(to, from, why);
    cache_put(from);
    if (rc != 0 || cache_file_hash(to, call->source.size, sha, md, why) != 0)
        return -1;
    hex_encode(sha, sizeof(sha), call->copy.sha256);
    hex_encode(md, sizeof(md), call->copy.md5);
    if (call->source.sha256[0] != '\0' && strcmp(call->source.sha256, call->copy.sha256) != 0)
        return err_set(why, ERR_AGAIN, "the file was written while it was copied");
    return 0;
}

static int
make_copy(struct copy_call *call, struct err *err)
{
    struct step *step = call->step;
    struct volume_service *service = step->service;
    struct err why = ERR_INIT;
    if (index_write(service->index, INDEX_NORMAL, number_tx, call, err) != 0)
        return -1;
    struct cache_file *file = cache_create(service->cache, call->number, NULL, true, &why);
    int rc = file == NULL ? -1 : copy_bytes(call, file, &why);
    cache_put(file);
    if (rc != 0) {
        cache_remove(service->cache, call->number);
        return why.code == ERR_AGAIN ? 0 : step_give_up(step, &why, err);
    }
    rc = step_commit_arg(step, keep_copy_tx, call, err);
    if (!call->made)
        cache_remove(service->cache, call->number);
    return rc;
}

/* A symlink's target, or whatever else has no content file. */
static int
stage_name_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct copy_call *call = arg;
    struct step *step = call->step;
    struct index_node name, inode;
    struct index_link link;
    if (step_decide_tx(tx, step, err) != 0)
        return -1;
    if (!link_needs_copy(step))
        return 0;
    if (source_tx(tx, call, err) != 0 || index_node_get(tx, step->kv.node.id, &name, err) != 0 ||
        load_pair(tx, &name, &link, &inode, err) != 0)
        return -1;
    name.mode = inode.mode;
    name.uid = inode.uid;
    name.gid = inode.gid;
    name.mtime_ns = inode.mtime_ns;
    text_set(link.version, call->identity);
    if (node_stage_inline(tx, &name, err) != 0 || index_node_update(tx, &name, err) != 0 ||
        index_link_put(tx, &link, err) != 0)
        return -1;
    return step_advance(step, tx, err);
}

int
link_step_copy(struct step *step, struct err *err)
{
    struct copy_call call = { .step = step };
    struct err why = ERR_INIT;
    if (step->kv.node.kind != INDEX_FILE)
        return step_commit_arg(step, stage_name_tx, &call, err);
    int rc = index_read(step->service->index, source_tx, &call, &why);
    if (rc == 0 && !call.found && (rc = step_bytes_bring(step, call.inode, &why)) == 0)
        rc = index_read(step->service->index, source_tx, &call, &why);
    if (rc == 0 && !call.found)
        rc = err_set(&why, ERR_AGAIN, "the file's bytes are not here yet");
    return rc != 0 ? step_give_up(step, &why, err) : make_copy(&call, err);
}
