#include "tests/unit/volume/volume_fixture.h"

#include <pthread.h>

/* INV-8: while one request to the store does not come back, everything that does not need its answer goes on: names, bytes
 * and saves of other files, and the attributes of the very file that waits. */

/* Lets the held request go when the main thread does not get through, so that a lock shows as a failure and not as no end. */
struct rescue {
    pthread_t thread;
    enum hook_op op;
    atomic_bool done;
    atomic_bool needed;
};

static void *
rescue_run(void *arg)
{
    struct rescue *rescue = arg;
    int64_t end = clock_mono_ns() + 20 * NS_PER_S;
    while (!atomic_load(&rescue->done) && clock_mono_ns() < end)
        clock_sleep_ns(NS_PER_MS);
    if (!atomic_load(&rescue->done)) {
        atomic_store(&rescue->needed, true);
        release(rescue->op);
    }
    return NULL;
}

struct one_call {
    pthread_t thread;
    int (*run)(struct err *err);
    struct err err;
    int rc;
};

static void *
one_call_run(void *arg)
{
    struct one_call *call = arg;
    call->rc = call->run(&call->err);
    return NULL;
}

static int
count_entry(void *arg, const struct volume_entry *entry, struct err *err)
{
    (void)entry;
    (void)err;
    ++*(unsigned *)arg;
    return 0;
}

static void
everything_else(int64_t held)
{
    struct volume_attr attr;
    unsigned entries = 0;
    const struct volume_page page = { .dir = rig.root, .limit = 100 };
    RUN_OK(rig.err, volume_getattr(rig.service, &rig.ctx, held, &attr, &rig.err));
    assert_int_equal(attr.node, held);
    RUN_OK(rig.err, volume_list(rig.service, &rig.ctx, &page, count_entry, &entries, &rig.err));
    assert_true(entries >= 2);
    assert_reads("other", "cached");
    save("new", "bytes");
    assert_reads("new", "bytes");
    move("new", "moved", 0);
    make_dir("folder");
    assert_reads("moved", "bytes");
    unlink_at("moved");
    assert_gone("moved");
}

/* `start` NULL: the background does the request by itself. */
static void
nothing_else_waits(enum hook_op op, int64_t held, int (*start)(struct err *err))
{
    struct rescue rescue = { .op = op };
    struct one_call call = { .run = start };
    if (start != NULL)
        assert_int_equal(pthread_create(&call.thread, NULL, one_call_run, &call), 0);
    wait_for_waiting(op);
    assert_int_equal(pthread_create(&rescue.thread, NULL, rescue_run, &rescue), 0);
    everything_else(held);
    int still_waits = atomic_load(&rig.hook->waiting[op]);
    atomic_store(&rescue.done, true);
    assert_int_equal(pthread_join(rescue.thread, NULL), 0);
    assert_false(atomic_load(&rescue.needed));
    assert_true(still_waits > 0);
    release(op);
    if (start == NULL)
        return;
    assert_int_equal(pthread_join(call.thread, NULL), 0);
    if (call.rc != 0)
        fail_msg("what was held: %s", call.err.msg);
}

static int
setup(void **state)
{
    (void)rig_setup(state);
    foreign_put("far", "not here yet");
    foreign_put("place/file", "not seen yet");
    save("other", "cached");
    save("held", "bytes");
    flush();
    relist("");
    assert_reads("other", "cached");
    return 0;
}

static void
an_upload(void **state)
{
    (void)state;
    hold(HOOK_PUT);
    save("held", "newer bytes");
    nothing_else_waits(HOOK_PUT, node_of("held"), NULL);
    flush();
    assert_bucket("held", "newer bytes");
}

/* The file whose upload is under way is read, and written again. */
static void
the_file_itself_during_its_upload(void **state)
{
    (void)state;
    struct rescue rescue = { .op = HOOK_PUT };
    hold(HOOK_PUT);
    save("held", "newer");
    wait_for_waiting(HOOK_PUT);
    assert_int_equal(pthread_create(&rescue.thread, NULL, rescue_run, &rescue), 0);
    assert_reads("held", "newer");
    save("held", "newest");
    assert_reads("held", "newest");
    atomic_store(&rescue.done, true);
    assert_int_equal(pthread_join(rescue.thread, NULL), 0);
    assert_false(atomic_load(&rescue.needed));
    release(HOOK_PUT);
    flush();
    assert_bucket("held", "newest");
}

static int64_t far_node;

static int
read_far(struct err *err)
{
    struct volume_file *file;
    char out[32] = "";
    if (volume_file_open(rig.service, &rig.ctx, far_node, O_RDONLY, &file, err) != 0)
        return -1;
    ssize_t got = volume_file_read(file, &rig.ctx, out, sizeof(out) - 1, 0, err);
    volume_file_close(file, &rig.ctx);
    if (got < 0)
        return -1;
    return strcmp(out, "not here yet") == 0 ? 0 : err_set(err, ERR_CORRUPT, "read '%s'", out);
}

static void
a_download(void **state)
{
    (void)state;
    far_node = node_of("far");
    hold(HOOK_GET);
    nothing_else_waits(HOOK_GET, far_node, read_far);
}

static int
look_below_place(struct err *err)
{
    struct volume_attr attr;
    return volume_resolve(rig.service, &rig.ctx, rig.volume, "place/file", &attr, err);
}

static void
a_listing(void **state)
{
    (void)state;
    int64_t place = node_of("place");
    hold(HOOK_LIST);
    nothing_else_waits(HOOK_LIST, place, look_below_place);
}

static void
a_delete(void **state)
{
    (void)state;
    hold(HOOK_DELETE);
    unlink_at("held");
    nothing_else_waits(HOOK_DELETE, node_of("other"), NULL);
    flush();
    assert_false(in_bucket("held"));
}

/* Of a file whose bytes are only in the bucket. */
static void
a_move(void **state)
{
    (void)state;
    hold(HOOK_PUT);
    move("far", "renamed", 0);
    nothing_else_waits(HOOK_PUT, node_of("renamed"), NULL);
    flush();
    assert_bucket("renamed", "not here yet");
    assert_false(in_bucket("far"));
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(an_upload),  T(the_file_itself_during_its_upload),
        T(a_download), T(a_listing),
        T(a_delete),   T(a_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
