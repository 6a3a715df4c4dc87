/* The talk with the helper, with a made-up helper at the other end; and what the helper refuses. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "mount/mounter.h"

/* Answers every request with the next of these; counts what it saw. */
struct peer {
    int socket;
    int error;
    bool broken; /* a reply of another build */
    struct helper_request last;
};

static void *
peer_main(void *arg)
{
    struct peer *peer = arg;
    while (recv(peer->socket, &peer->last, sizeof(peer->last), 0) == (ssize_t)sizeof(peer->last)) {
        struct helper_reply reply = { .version = HELPER_VERSION, .op = peer->last.op };
        reply.error = peer->last.op == HELPER_HELLO ? 0 : peer->error;
        reply.pid_count = 2;
        reply.pid[0] = 12;
        reply.pid[1] = 345;
        memcpy(reply.what, "the step", 9);
        if (peer->broken && peer->last.op != HELPER_HELLO)
            reply.version++;
        if (send(peer->socket, &reply, sizeof(reply), MSG_NOSIGNAL) < 0)
            break;
    }
    (void)close(peer->socket);
    return NULL;
}

static struct mounter *
start(struct peer *peer, pthread_t *thread)
{
    struct err err = ERR_INIT;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    peer->socket = ends[1];
    assert_int_equal(pthread_create(thread, NULL, peer_main, peer), 0);
    struct mounter *mounter = mounter_new(ends[0], 0, &err);
    assert_non_null(mounter);
    return mounter;
}

static void
test_requests(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct peer peer = { .error = 0 };
    pthread_t thread;
    char users[64];
    struct mounter *mounter = start(&peer, &thread);
    assert_int_equal(mounter_umount(mounter, 42, HELPER_DETACH, &err), 0);
    assert_int_equal(mounter_record(mounter, 42, "init", 4, -1, &err), 0);
    mounter_users(mounter, 42, users, sizeof(users));
    assert_string_equal(users, "12, 345");
    mounter_users(mounter, 42, users, 3);
    assert_string_equal(users, "12");
    peer.error = EBUSY;
    assert_int_equal(mounter_umount(mounter, 42, 0, &err), -1);
    assert_int_equal(err.code, ERR_BUSY);
    assert_int_equal(err.sys, EBUSY);
    assert_non_null(strstr(err.msg, "the step"));
    mounter_free(mounter);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* No descriptor in the answer to a mount is no mount. */
static void
test_missing_descriptor(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct peer peer = { .error = 0 };
    pthread_t thread;
    int fuse;
    uint32_t minor;
    struct mounter *mounter = start(&peer, &thread);
    struct mounter_mount args = { .id = 1, .path = "/a", .target = -1, .source = "holdfast:v" };
    assert_int_equal(mounter_mount(mounter, &args, &fuse, &minor, &err), -1);
    assert_int_equal(err.code, ERR_INTERNAL);
    mounter_free(mounter);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(peer.last.op, HELPER_MOUNT);
    assert_int_equal(peer.last.flags, HELPER_CREATE);
    assert_string_equal(peer.last.path, "/a");
    assert_string_equal(peer.last.source, "holdfast:v");
}

static void
test_dead_helper(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct peer peer = { .broken = true };
    pthread_t thread;
    struct mounter *mounter = start(&peer, &thread);
    assert_int_equal(mounter_abort(mounter, 1, &err), -1);
    assert_int_equal(err.code, ERR_INTERNAL);
    assert_int_equal(pthread_join(thread, NULL), 0); /* we hung up */
    assert_int_equal(mounter_abort(mounter, 1, &err), -1);
    assert_int_equal(err.code, ERR_INTERNAL);
    mounter_free(mounter);
}

static void
test_long_texts(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct helper_request request;
    char path[HELPER_PATH + 1];
    memset(path, 'a', sizeof(path));
    path[HELPER_PATH] = '\0';
    assert_int_equal(mounter_request(&request, HELPER_CLEAR, 1, path, "", &err), -1);
    assert_int_equal(err.code, ERR_NAME_TOO_LONG);
    path[HELPER_PATH - 1] = '\0';
    assert_int_equal(mounter_request(&request, HELPER_CLEAR, 1, path, "", &err), 0);
    assert_int_equal(request.path[HELPER_PATH - 1], '\0');
    path[HELPER_SOURCE] = '\0';
    assert_int_equal(mounter_request(&request, HELPER_CLEAR, 1, "", path, &err), -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_missing_descriptor),
        cmocka_unit_test(test_dead_helper),
        cmocka_unit_test(test_long_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
