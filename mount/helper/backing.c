#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mount/helper/helper_impl.h"

/* include/uapi/linux/fuse.h since Linux 6.9; the headers of older systems lack it. */
struct backing_map {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};
_Static_assert(HELPER_IOCTL_BACKING_OPEN == _IOW(229, 1, struct backing_map), "as in linux/fuse.h");
_Static_assert(HELPER_IOCTL_BACKING_CLOSE == _IOW(229, 2, uint32_t), "as in linux/fuse.h");

/* Where `id` is, or would be. */
static uint32_t
place_of(const struct connection *connection, int32_t id)
{
    uint32_t low = 0;
    uint32_t high = connection->backing_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (connection->backings[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int
make_room(struct connection *connection)
{
    if (connection->backing_count < connection->backing_room)
        return 0;
    if (connection->backing_count >= HELPER_BACKINGS)
        return ENFILE;
    uint32_t room = connection->backing_room == 0 ? 64 : connection->backing_room * 2;
    struct backing *more = realloc(connection->backings, room * sizeof(*more));
    if (!more)
        return ENOMEM;
    connection->backings = more;
    connection->backing_room = room;
    return 0;
}

/* A program's open flags decide what the kernel lets it do, whatever the descriptor says (docs/platform.md section 2): so
 * what a read-only connection is lent must be open for reading only, a second lock beside the superblock's flag (INV-14). */
static int
check_given(const struct connection *connection, int given)
{
    struct stat st;
    int flags = given < 0 ? -1 : fcntl(given, F_GETFL);
    if (flags < 0 || fstat(given, &st) < 0)
        return EBADF;
    if (!S_ISREG(st.st_mode))
        return EINVAL;
    return connection->read_only && (flags & O_ACCMODE) != O_RDONLY ? EROFS : 0;
}

int
helper_backing_open(struct connection *connection, const struct helper_request *request, int given,
                    struct helper_reply *reply)
{
    struct backing_map map = { .fd = given };
    int error = check_given(connection, given);
    if (error == 0)
        error = make_room(connection);
    if (error != 0)
        return error;
    int id = ioctl(connection->fuse, HELPER_IOCTL_BACKING_OPEN, &map);
    if (id <= 0)
        return id < 0 ? errno : EOPNOTSUPP;
    uint32_t at = place_of(connection, id);
    struct backing *slot = &connection->backings[at];
    memmove(slot + 1, slot, (connection->backing_count - at) * sizeof(*slot));
    *slot = (struct backing){ .node = request->node, .content = request->content, .id = id };
    connection->backing_count++;
    reply->backing = id;
    return 0;
}

int
helper_backing_close(struct connection *connection, const struct helper_request *request)
{
    int32_t ids[HELPER_CLOSE_MANY];
    if (request->record_len > sizeof(ids) || request->record_len % sizeof(ids[0]) != 0)
        return EINVAL;
    memcpy(ids, request->record, request->record_len);
    for (size_t i = 0; i < request->record_len / sizeof(ids[0]); i++) {
        uint32_t at = place_of(connection, ids[i]);
        struct backing *slot = &connection->backings[at];
        if (at == connection->backing_count || slot->id != ids[i])
            continue;
        /* An aborted connection has dropped it already. */
        (void)ioctl(connection->fuse, HELPER_IOCTL_BACKING_CLOSE, &ids[i]);
        connection->backing_count--;
        memmove(slot, slot + 1, (connection->backing_count - at) * sizeof(*slot));
    }
    return 0;
}

int
helper_backing_next(const struct connection *connection, const struct helper_request *request,
                    struct helper_reply *reply)
{
    uint32_t at = place_of(connection, request->backing + 1);
    if (request->backing == INT32_MAX || at == connection->backing_count)
        return ENOENT;
    reply->backing = connection->backings[at].id;
    reply->node = connection->backings[at].node;
    reply->content = connection->backings[at].content;
    return 0;
}
