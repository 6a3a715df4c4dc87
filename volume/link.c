#include "volume/link_impl.h"

/* The rows of hard links. */

int
link_resolve(struct index_tx *tx, struct index_node *node, struct err *err)
{
    struct index_link link;
    if ((node->flags & INDEX_NODE_LINK) == 0)
        return 0;
    if (index_link_get(tx, node->id, &link, err) != 0 ||
        index_node_get(tx, link.inode, node, err) != 0) {
        if (err->code == ERR_NOT_FOUND)
            return err_set(err, ERR_CORRUPT,
                           "a name in the index leads to no file: run 'holdfast rebuild'");
        return -1;
    }
    return 0;
}

int
link_inode_of(struct index_tx *tx, const struct index_node *node, int64_t *out, struct err *err)
{
    struct index_link link = { .inode = node->id };
    if ((node->flags & INDEX_NODE_LINK) != 0 && index_link_get(tx, node->id, &link, err) != 0)
        return -1;
    *out = link.inode;
    return 0;
}

struct names {
    int64_t node[LIMIT_LINKS];
    size_t count;
};

static int
collect_name(void *arg, const struct index_link *row, struct err *err)
{
    struct names *names = arg;
    (void)err;
    if (names->count == LIMIT_LINKS)
        return 1;
    names->node[names->count++] = row->node;
    return 0;
}

int
link_want(struct index_tx *tx, const struct index_node *inode, int64_t delay_ns, int64_t since_ns,
          struct err *err)
{
    struct names names;
    struct index_node name;
    char key[LIMIT_KEY + 1];
    if ((inode->flags & INDEX_NODE_LINKED) == 0)
        return 0;
    names.count = 0;
    if (index_link_each(tx, inode->id, 0, collect_name, &names, err) != 0)
        return -1;
    for (size_t i = 0; i < names.count; i++) {
        if (index_node_get(tx, names.node[i], &name, err) != 0 ||
            key_of_node(tx, &name, key, err) != 0)
            return -1;
        int rc = since_ns != 0 ? key_want_since(tx, name.volume, key, since_ns, err)
                               : key_want_sync(tx, name.volume, key, delay_ns, err);
        if (rc != 0)
            return -1;
    }
    return 0;
}

int
link_identity(struct index_tx *tx, const struct index_node *inode, char out[LIMIT_ETAG],
              struct index_content *frozen, struct err *err)
{
    struct err missing = ERR_INIT;
    const char *version = inode->version[0] != '\0' ? inode->version : inode->etag;
    if (inode->content != 0 && content_frozen_of(tx, inode->id, frozen, &missing) == 0) {
        version = frozen->version;
    } else {
        memset(frozen, 0, sizeof(*frozen));
        if (inode->content != 0 && missing.code != ERR_NOT_FOUND) {
            *err = missing;
            return -1;
        }
    }
    (void)snprintf(out, LIMIT_ETAG, "%s", version);
    return 0;
}

int
link_touch_inode(struct index_tx *tx, int64_t inode, struct err *err)
{
    struct index_node node;
    uint32_t names = 0;
    if (index_node_get(tx, inode, &node, err) != 0 || index_link_count(tx, inode, &names, err) != 0)
        return -1;
    node.ctime_ns = clock_wall_ns();
    if (names == 0)
        node.flags &= ~(unsigned)INDEX_NODE_LINKED;
    return index_node_update(tx, &node, err);
}

int
link_tell(struct volume_service *service, struct index_tx *tx, const struct index_node *row,
          struct err *err)
{
    struct index_node inode = *row;
    if ((row->flags & (INDEX_NODE_LINK | INDEX_NODE_LINKED)) == 0)
        return 0;
    if (link_resolve(tx, &inode, err) != 0)
        return -1;
    event_emit(service, VOLUME_EVENT_CHANGED, &inode, 0);
    return 0;
}

int
link_break(struct index_tx *tx, struct index_node *name, struct err *err)
{
    struct index_link link;
    struct index_key key;
    struct err missing = ERR_INIT;
    if (index_link_get(tx, name->id, &link, err) != 0 ||
        index_link_delete(tx, name->id, err) != 0 || link_touch_inode(tx, link.inode, err) != 0)
        return -1;
    name->flags &= ~(unsigned)INDEX_NODE_LINK;
    if (name->content != 0)
        return xattrs_copy(tx, link.inode, name->id, err);
    /* Its object tells what it is now. */
    name->flags |= INDEX_NODE_META_UNKNOWN;
    if (index_key_get(tx, name->key, &key, &missing) == 0) {
        name->size = key.size;
    } else if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    return 0;
}

/* ---- the inode's own name goes ---- */

/* Whether the name's object is the inode's newest version, and nothing is under way there. */
static int
is_current(const struct link_move *move, const struct index_node *inode,
           const struct index_node *name, bool *out, struct err *err)
{
    struct index_link link;
    struct index_key row;
    struct index_intent intent;
    struct index_content content;
    struct err missing = ERR_INIT;
    char identity[LIMIT_ETAG], home[LIMIT_KEY + 1];
    *out = false;
    if (name->content != 0 || name->key[0] == '\0')
        return 0;
    if (index_link_get(move->tx, name->id, &link, err) != 0 ||
        link_identity(move->tx, inode, identity, &content, err) != 0 ||
        key_of_node(move->tx, name, home, err) != 0)
        return -1;
    /* A staged or LIVE inode has to be sent anyway. */
    if (content.id != 0 || strcmp(link.version, identity) != 0 || strcmp(name->key, home) != 0)
        return 0;
    if (inode->content != 0) {
        if (index_content_get(move->tx, inode->content, &content, err) != 0)
            return -1;
        if (content.state != CONTENT_CLEAN)
            return 0;
    }
    if (index_intent_get(move->tx, home, &intent, &missing) == 0 &&
        intent.attempt.op != SYNC_OP_NONE)
        return 0;
    *out = index_key_get(move->tx, home, &row, &missing) == 0 && row.owner == name->id &&
           strcmp(row.etag, name->etag) == 0;
    return 0;
}

/* The name that the inode moves to: one whose object it can take over, else the first. */
static int
pick_name(const struct link_move *move, const struct index_node *inode, const struct names *names,
          struct index_node *out, bool *current, struct err *err)
{
    struct index_node name;
    *current = false;
    for (size_t i = 0; i < names->count && !*current; i++) {
        if (index_node_get(move->tx, names->node[i], &name, err) != 0 ||
            is_current(move, inode, &name, current, err) != 0)
            return -1;
        if (i == 0 || *current)
            *out = name;
    }
    return 0;
}

/* The name's object becomes the inode's. */
static int
take_object(const struct link_move *move, struct index_node *inode, const struct index_node *name,
            struct err *err)
{
    struct index_tx *tx = move->tx;
    struct index_key row;
    struct index_content content;
    if (move->discard_object && key_discard(tx, inode->volume, inode->key, err) != 0)
        return -1;
    if (index_key_get(tx, name->key, &row, err) != 0)
        return -1;
    row.owner = inode->id;
    row.discard = false;
    if (index_key_put(tx, &row, err) != 0)
        return -1;
    text_set(inode->key, name->key);
    text_set(inode->etag, name->etag);
    text_set(inode->version, name->version);
    if (inode->content == 0)
        return index_node_delete(tx, name->id, err);
    /* What is still to be fetched lies under another ETag now. */
    if (index_content_get(tx, inode->content, &content, err) != 0)
        return -1;
    text_set(content.etag, name->etag);
    text_set(content.version, name->version);
    if (index_content_update(tx, &content, err) != 0)
        return -1;
    return index_node_delete(tx, name->id, err);
}

/* Somebody else has the inode's object: its bytes go on from here, under a version of their own. False in *kept: there are none
 * here. */
static int
keep_bytes(const struct link_move *move, struct index_node *inode, bool *kept, struct err *err)
{
    struct index_content row;
    *kept = inode->kind != INDEX_FILE;
    if (inode->content != 0) {
        if (index_content_get(move->tx, inode->content, &row, err) != 0)
            return -1;
        *kept = row.state != CONTENT_CLEAN || (row.flags & CONTENT_COMPLETE) != 0;
        if (row.state == CONTENT_CLEAN && *kept) {
            row.state = CONTENT_FROZEN;
            row.flags |= CONTENT_ACKED;
            row.base_version[0] = row.base_etag[0] = '\0';
            if (ulid_new(row.version, err) != 0 || index_content_update(move->tx, &row, err) != 0)
                return -1;
            cache_pin(move->service->cache, row.id);
        }
    }
    if (*kept)
        inode->key[0] = inode->etag[0] = inode->version[0] = '\0';
    return inode->kind == INDEX_FILE ? 0 : node_stage_inline(move->tx, inode, err);
}

/* As a rename over the name would do it. */
static int
replace_name(const struct link_move *move, struct index_node *name, struct err *err)
{
    if (key_discard(move->tx, name->volume, name->key, err) != 0 ||
        node_drop_contents(move->tx, name->id, 0, move->drop, err) != 0)
        return -1;
    return index_node_delete(move->tx, name->id, err);
}

/* No name holds the newest bytes, nor does this machine: each goes on with what it has. */
static int
break_all(const struct link_move *move, const struct names *names, struct err *err)
{
    struct index_node name;
    for (size_t i = 0; i < names->count; i++) {
        if (index_node_get(move->tx, names->node[i], &name, err) != 0)
            return -1;
        int rc;
        if (name.content == 0 && name.key[0] == '\0')
            rc = replace_name(move, &name, err);
        else if ((rc = link_break(move->tx, &name, err)) == 0)
            rc = index_node_update(move->tx, &name, err);
        if (rc != 0)
            return -1;
    }
    return 0;
}

static int
settle_at(const struct link_move *move, struct index_node *inode, const struct index_node *name,
          struct err *err)
{
    uint32_t names = 0;
    char home[LIMIT_KEY + 1];
    if (index_link_count(move->tx, inode->id, &names, err) != 0)
        return -1;
    if (names == 0)
        inode->flags &= ~(unsigned)INDEX_NODE_LINKED;
    inode->parent = name->parent;
    inode->name_len = name->name_len;
    memcpy(inode->name, name->name, sizeof(inode->name));
    inode->ctime_ns = clock_wall_ns();
    if (index_node_update(move->tx, inode, err) != 0 ||
        key_of_node(move->tx, inode, home, err) != 0)
        return -1;
    return key_want_sync(move->tx, inode->volume, home, 0, err);
}

int
link_move_inode(const struct link_move *move, struct index_node *inode, bool *moved,
                struct err *err)
{
    struct names names;
    struct index_node name;
    char home[LIMIT_KEY + 1];
    bool current = false, kept = true;
    *moved = false;
    names.count = 0;
    if (index_link_each(move->tx, inode->id, 0, collect_name, &names, err) != 0 ||
        pick_name(move, inode, &names, &name, &current, err) != 0)
        return -1;
    if (names.count == 0)
        return 0;
    if (!current && !move->discard_object && keep_bytes(move, inode, &kept, err) != 0)
        return -1;
    if (!kept) {
        inode->flags &= ~(unsigned)INDEX_NODE_LINKED;
        return break_all(move, &names, err);
    }
    if (key_of_node(move->tx, inode, home, err) != 0 ||
        key_want_sync(move->tx, inode->volume, home, 0, err) != 0)
        return -1;
    int rc = current ? take_object(move, inode, &name, err) : replace_name(move, &name, err);
    *moved = rc == 0;
    return rc == 0 ? settle_at(move, inode, &name, err) : -1;
}
