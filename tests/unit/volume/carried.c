#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/unit/volume/volume_fixture.h"

/* A gateway dies (INV-13, docs/mechanisms.md section 3): what programs have open goes on in the next one, and what the first one did and
 * could not tell has its effect once. */

static struct {
    int64_t volume, root, written, unlinked, forgotten, folder;
    char dir[sizeof(rig.dir)];
} * shared; /* between the gateway that dies and us */

static struct volume_ctx
request(uint64_t unique, uint32_t slot, bool resent)
{
    struct volume_ctx ctx = rig.ctx;
    ctx.connection = 7;
    ctx.unique = unique;
    ctx.slot = slot;
    ctx.resent = resent;
    return ctx;
}

static struct volume_file *
create(const char *name, const struct volume_ctx *ctx)
{
    struct volume_attr attr;
    struct volume_file *file = NULL;
    struct volume_new made = { .at = name_at(name), .mode = 0644, .flags = O_RDWR | O_EXCL };
    RUN_OK(rig.err, volume_file_create(rig.service, ctx, &made, &attr, &file, &rig.err));
    return file;
}

static void
first_gateway(void)
{
    struct volume_attr attr;
    struct volume_name folder;
    rig_open(&(struct rig_options){ .weak_delete = false });
    shared->volume = rig.volume;
    shared->root = rig.root;
    memcpy(shared->dir, rig.dir, sizeof(rig.dir));
    struct volume_file *written = open_at("written", O_CREAT | O_RDWR);
    write_at(written, "first ", 0);
    shared->written = volume_file_node(written);
    save("unlinked", "still read");
    shared->unlinked = volume_file_node(open_at("unlinked", O_RDONLY));
    unlink_at("unlinked");
    save("forgotten", "by nobody read");
    shared->forgotten = volume_file_node(open_at("forgotten", O_RDONLY));
    unlink_at("forgotten");
    struct volume_ctx made = request(100, 1, false);
    (void)create("made", &made);
    struct volume_ctx asked = request(101, 2, false);
    folder = name_at("folder");
    RUN_OK(rig.err, volume_mkdir(rig.service, &asked, &folder, 0755, &attr, &rig.err));
    shared->folder = attr.node;
    _exit(0); /* as SIGKILL: nothing is closed */
}

static int
by_node(const void *a, const void *b)
{
    const struct volume_carried_open *x = a, *y = b;
    return x->node < y->node ? -1 : x->node > y->node;
}

static void
second_gateway(void)
{
    struct volume_carried_open opens[] = { { shared->written, true }, { shared->unlinked, false } };
    struct volume_carried carried = { opens, 2 };
    qsort(opens, 2, sizeof(opens[0]), by_node);
    rig.ctx = (struct volume_ctx){ .actor = "test", .connection = 1 };
    rig.mem = mem_store_open(&rig.err);
    assert_non_null(rig.mem);
    rig_serve(&(struct rig_options){ .carried = &carried });
    rig.volume = shared->volume;
    rig.root = shared->root;
}

static int
set_up(void **state)
{
    int status;
    (void)state;
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0)
        first_gateway();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    memset(&rig, 0, sizeof(rig));
    memcpy(rig.dir, shared->dir, sizeof(rig.dir));
    second_gateway();
    return 0;
}

static struct volume_file *
reopen(int64_t node, bool writer)
{
    struct volume_file *file = NULL;
    struct volume_ctx ctx = request(0, 0, false);
    RUN_OK(rig.err, volume_file_reopen(rig.service, &ctx, node, writer, &file, &rig.err));
    return file;
}

static void
what_was_open_goes_on(void **state)
{
    (void)state;
    char out[32] = "";
    struct volume_attr attr;
    struct volume_file *written = reopen(shared->written, true);
    write_at(written, "second", 6);
    RUN_OK(rig.err, volume_file_flush(written, &rig.ctx, &rig.err));
    close_file(written);
    assert_reads("written", "first second");
    flush();
    assert_bucket("written", "first second");

    struct volume_file *unlinked = reopen(shared->unlinked, false);
    assert_int_equal(volume_file_read(unlinked, &rig.ctx, out, 31, 0, &rig.err), 10);
    assert_string_equal(out, "still read");
    close_file(unlinked);
    assert_int_equal(volume_getattr(rig.service, &rig.ctx, shared->unlinked, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NOT_FOUND);
    /* Nobody had this one open any more. */
    assert_int_equal(volume_getattr(rig.service, &rig.ctx, shared->forgotten, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NOT_FOUND);
}

static void
what_was_done_is_done_once(void **state)
{
    (void)state;
    bool replayed = false;
    struct volume_attr attr;
    struct volume_name folder = name_at("folder");
    struct volume_ctx again = request(101, 65536 + 1, true);
    again.replayed = &replayed;
    RUN_OK(rig.err, volume_mkdir(rig.service, &again, &folder, 0755, &attr, &rig.err));
    assert_int_equal(attr.node, shared->folder);
    assert_true(replayed);
    /* Its open file had not been handed out: the name is made anew, exclusively all the same. */
    struct volume_ctx made = request(100, 65536 + 2, true);
    close_file(create("made", &made));
    struct volume_ctx other = request(200, 65536 + 3, false);
    assert_int_equal(volume_mkdir(rig.service, &other, &folder, 0755, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_EXISTS);
    /* Once all was answered, nothing of the first gateway's is kept; what this one has answered is. */
    struct volume_name second = name_at("second");
    struct volume_ctx asked = request(201, 65536 + 4, false);
    RUN_OK(rig.err, volume_mkdir(rig.service, &asked, &second, 0755, &attr, &rig.err));
    volume_connection_settled(rig.service, 7, 65536, 2 * 65536);
    assert_int_equal(volume_mkdir(rig.service, &again, &folder, 0755, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_EXISTS);
    asked.resent = true;
    RUN_OK(rig.err, volume_mkdir(rig.service, &asked, &second, 0755, &attr, &rig.err));
}

static int
tear_down(void **state)
{
    (void)munmap(shared, 4096);
    return rig_teardown(state);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_open_goes_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_done_is_done_once, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
