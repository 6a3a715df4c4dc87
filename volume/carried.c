#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/log.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/* What a takeover needs of the files that programs have open (docs/mechanisms.md section 3). */

int
volume_state_lock(const char *state_dir, int64_t until_ns, int *fd_out, struct err *err)
{
    scope_fd int dir = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, errno, "cannot open the state directory '%s'", state_dir);
    scope_fd int fd = openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, errno, "the state directory '%s' cannot be written", state_dir);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (clock_mono_ns() >= until_ns)
            return err_set(
                err, ERR_BUSY,
                "another gateway uses the state directory '%s': stop it, or give --state",
                state_dir);
        clock_sleep_ns(2 * NS_PER_MS);
    }
    *fd_out = steal_fd(&fd);
    return 0;
}

bool
carried_is_open(const struct volume_service *service, int64_t node, bool writer)
{
    const struct volume_carried *carried = service->carried;
    size_t low = 0, high = carried == NULL ? 0 : carried->count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (carried->opens[mid].node < node)
            low = mid + 1;
        else
            high = mid;
    }
    for (; carried != NULL && low < carried->count && carried->opens[low].node == node; low++) {
        if (!writer || carried->opens[low].writer)
            return true;
    }
    return false;
}

struct reopen_call {
    int64_t node;
    struct index_node row;
};

static int
reopen_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct reopen_call *call = arg;
    return index_node_get(tx, call->node, &call->row, err);
}

static int
reopen_bytes(struct volume_file *file, const struct index_node *row, struct err *err)
{
    struct inode *inode = file->inode;
    pthread_mutex_lock(&inode->lock);
    inode->volume = row->volume;
    int rc = 0;
    if (file->writable && row->content != 0)
        rc = content_open_locked(file->service, inode, err);
    if (rc == 0 && file->writable) {
        inode->writers++;
        file->counted = true;
    }
    pthread_mutex_unlock(&inode->lock);
    /* Its writer may have been told already; better twice than never. */
    if (rc == 0 && file->writable && (row->flags & INDEX_NODE_LOSER) != 0)
        atomic_store(&inode->told_error, ESTALE);
    return rc;
}

int
volume_file_reopen(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                   bool writer, struct volume_file **out, struct err *err)
{
    struct reopen_call call = { .node = node };
    struct volume_file *file = handle_new(service, ctx, node, writer ? O_RDWR : O_RDONLY, err);
    if (file == NULL)
        return -1;
    if (index_read(service->index, reopen_tx, &call, err) != 0 ||
        reopen_bytes(file, &call.row, err) != 0) {
        handle_forget(file);
        return -1;
    }
    if ((call.row.flags & INDEX_NODE_ORPHAN) != 0)
        (void)inode_open_count(&service->inodes, node); /* its last close ends it */
    *out = file;
    return 0;
}

struct settled_call {
    int64_t connection;
    uint32_t first, end;
};

static int
settled_tx(struct index_tx *tx, void *arg, struct err *err)
{
    const struct settled_call *call = arg;
    return index_answer_drop_others(tx, call->connection, call->first, call->end, err);
}

void
volume_connection_settled(struct volume_service *service, int64_t connection, uint32_t first,
                          uint32_t end)
{
    struct settled_call call = { connection, first, end };
    struct err err = ERR_INIT;
    if (index_write(service->index, INDEX_NORMAL, settled_tx, &call, &err) != 0)
        log_warn(volume, "cannot forget the answers of mount %lld: %s", (long long)connection,
                 err.msg);
}
