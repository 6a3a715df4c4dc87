#include "volume/fork_impl.h"

#include "base/scope.h"
#include "tests/unit/volume/volume_fixture.h"
#include "volume/snapshot.h"

/* Forks over a store that fails and a parent that goes on; the service's own thread is stopped, each look is the test's. */

static int
stop_thread(int rc)
{
    fork_stop(rig.service);
    return rc;
}

static int
setup(void **state)
{
    return stop_thread(rig_setup(state));
}

static int
setup_weak(void **state)
{
    return stop_thread(rig_setup_weak(state));
}

static int64_t
moment(void)
{
    clock_sleep_ns(3 * NS_PER_MS);
    int64_t now = clock_wall_ns();
    clock_sleep_ns(3 * NS_PER_MS);
    return now;
}

static void
fork_at(int64_t at_ns, const char *name)
{
    struct volume_fork_args args = { .parent = rig.volume, .at_ns = at_ns, .name = name };
    RUN_OK(rig.err, volume_fork(rig.service, &rig.ctx, &args, &rig.err));
}

static enum err_code
refused(int64_t at_ns, const char *name)
{
    struct err err = ERR_INIT;
    struct volume_fork_args args = { .parent = rig.volume, .at_ns = at_ns, .name = name };
    assert_int_equal(volume_fork(rig.service, &rig.ctx, &args, &err), -1);
    return err.code;
}

static void
assert_object(const char *key, const char *text)
{
    struct store_object object;
    scope_free char *data = NULL;
    size_t len = 0;
    struct err err = ERR_INIT;
    store_object_init(&object);
    int rc = store_get_small(rig.mem, key, 1 << 20, &data, &len, &object, &err);
    store_object_release(&object);
    if (rc != 0)
        fail_msg("'%s': %s", key, err.msg);
    if (len != strlen(text) || memcmp(data, text, len) != 0)
        fail_msg("'%s' is '%.*s', not '%s'", key, (int)len, data, text);
}

static bool
is_object(const char *key)
{
    struct err err = ERR_INIT;
    return store_head(rig.mem, key, 0, NULL, &err) == 0;
}

static struct volume_fork_state
told(const char *name)
{
    struct volume_fork_state state;
    RUN_OK(rig.err, volume_fork_state(rig.service, name, &state, &rig.err));
    return state;
}

static int64_t
make_parent(void)
{
    make_dir("d");
    make_dir("empty");
    save("d/kept", "kept");
    save("d/changed", "before");
    save("d/removed", "removed");
    save("moved", "moved");
    flush();
    return moment();
}

static void
change_parent(void)
{
    save("d/changed", "after it");
    unlink_at("d/removed");
    move("moved", "d/elsewhere", 0);
    save("added", "added");
    flush();
}

static void
assert_fork(void)
{
    struct volume_info info;
    struct volume_snapshot snapshot;
    struct err err = ERR_INIT;
    RUN_OK(rig.err, volume_find(rig.service, "w", &info, &rig.err));
    assert_object("w/d/kept", "kept");
    assert_object("w/d/changed", "before");
    assert_object("w/d/removed", "removed");
    assert_object("w/moved", "moved");
    assert_object("w/empty/", "");
    assert_false(is_object("w/added"));
    assert_false(is_object("w/d/elsewhere"));
    assert_true(is_object(".holdfast/volumes/w.json"));
    assert_string_equal(told("w").of, "");
    assert_int_equal(volume_snapshot_find(rig.service, rig.volume, "fork-w", &snapshot, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void
of_then_whatever_came_after(void **state)
{
    (void)state;
    struct volume_info info;
    struct volume_attr attr;
    int64_t then = make_parent();
    change_parent();
    fork_at(then, "w");
    fork_run(rig.service);
    assert_fork();
    RUN_OK(rig.err, volume_find(rig.service, "w", &info, &rig.err));
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, info.id, "d/changed", &attr, &rig.err));
    assert_int_equal(attr.size, 6);
    assert_object("v/d/changed", "after it");
}

/* The store fails in the middle, the parent goes on, and so does the fork. */
static void
goes_on_after_a_failure(void **state)
{
    (void)state;
    struct volume_info info;
    struct volume_snapshot snapshot;
    struct err err = ERR_INIT;
    int64_t then = make_parent();
    atomic_store(&rig.hook->fail[HOOK_COPY], 2);
    fork_at(then, "w");
    fork_run(rig.service);
    assert_int_equal(volume_find(rig.service, "w", &info, &err), -1);
    assert_int_equal(err.code, ERR_AGAIN);
    RUN_OK(rig.err, volume_find_any(rig.service, "w", &info, &rig.err));
    assert_true(info.forking);
    assert_string_equal(told("w").of, "v");
    assert_int_equal(told("w").files, 4);
    assert_int_equal(told("w").copied, 2);
    assert_true(told("w").error[0] != '\0');
    assert_false(is_object(".holdfast/volumes/w.json"));

    /* What it needs stays. */
    RUN_OK(rig.err, volume_snapshot_find(rig.service, rig.volume, "fork-w", &snapshot, &rig.err));
    assert_int_equal(snapshot.at_ns, then);
    assert_int_equal(volume_snapshot_delete(rig.service, rig.volume, "fork-w", &err), -1);
    assert_int_equal(err.code, ERR_BUSY);
    assert_int_equal(volume_delete(rig.service, "v", true, &err), -1);
    assert_int_equal(err.code, ERR_BUSY);

    change_parent();
    int copies = atomic_load(&rig.hook->count[HOOK_COPY]);
    fork_run(rig.service);
    assert_fork();
    /* What was there already was not copied again. */
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_COPY]) - copies, 2);
    fork_run(rig.service);
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_COPY]) - copies, 2);
}

/* Between the listing of where the versions lie and the copy of one, it is replaced. */
static void
replace_once(enum hook_op op, const char *key)
{
    if (op != HOOK_LIST || strcmp(key, "w/") != 0)
        return;
    atomic_store(&rig.hook->after, NULL);
    change_parent();
}

static void
replaced_while_it_is_made(void **state)
{
    (void)state;
    int64_t then = make_parent();
    fork_at(then, "w");
    atomic_store(&rig.hook->after, replace_once);
    fork_run(rig.service);
    assert_fork();
}

static void
deleted_while_it_is_made(void **state)
{
    (void)state;
    struct volume_info info;
    struct volume_snapshot snapshot;
    struct err err = ERR_INIT;
    int64_t then = make_parent();
    atomic_store(&rig.hook->fail[HOOK_COPY], -1);
    fork_at(then, "w");
    fork_run(rig.service);
    RUN_OK(rig.err, volume_delete(rig.service, "w", false, &rig.err));
    assert_int_equal(volume_snapshot_find(rig.service, rig.volume, "fork-w", &snapshot, &err), -1);
    atomic_store(&rig.hook->fail[HOOK_COPY], 0);
    fork_run(rig.service);
    assert_int_equal(volume_find_any(rig.service, "w", &info, &err), -1);
    assert_false(is_object(".holdfast/volumes/w.json"));
}

static void
frozen_by_the_owner(void **state)
{
    (void)state;
    unsigned changed = 0;
    int64_t then = make_parent();
    fork_at(then, "w");
    RUN_OK(rig.err, volume_freeze(rig.service, "w", true, &changed, &rig.err));
    fork_run(rig.service);
    assert_false(is_object("w/d/kept"));
    assert_true(told("w").error[0] != '\0');
    RUN_OK(rig.err, volume_freeze(rig.service, "w", false, &changed, &rig.err));
    fork_run(rig.service);
    assert_fork();
}

static void
what_is_refused(void **state)
{
    (void)state;
    struct store_put_result result;
    int64_t then = make_parent();
    char name[LIMIT_VOLUME_NAME + 1];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(refused(then, "v"), ERR_EXISTS);
    assert_int_equal(refused(then, name), ERR_NAME_TOO_LONG);
    assert_int_equal(refused(then, "No"), ERR_BAD_NAME);
    assert_int_equal(refused(clock_wall_ns() + 3600 * NS_PER_S, "w"), ERR_INVAL);
    RUN_OK(rig.err,
           store_put_small(rig.mem, "w/x", "x", 1, (struct store_cond){ .kind = STORE_COND_NONE },
                           &result, &rig.err));
    assert_int_equal(refused(then, "w"), ERR_NOT_EMPTY);
    struct volume_settings settings = { .name = "v", .history_ns = -1 };
    RUN_OK(rig.err, volume_set(rig.service, "v", &settings, &rig.err));
    assert_int_equal(refused(then, "u"), ERR_UNSUPPORTED);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, rig_teardown)
#define W(name) cmocka_unit_test_setup_teardown(name, setup_weak, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(of_then_whatever_came_after), W(of_then_whatever_came_after),
        T(goes_on_after_a_failure),     T(replaced_while_it_is_made),
        W(replaced_while_it_is_made),   T(deleted_while_it_is_made),
        T(frozen_by_the_owner),         T(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
