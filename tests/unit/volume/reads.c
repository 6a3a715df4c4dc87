#include "tests/unit/volume/volume_fixture.h"

#include "volume/reads_impl.h"

/* Which inputs of a run count as changed, and that a bound is told and never taken for "nothing changed". */

#define RUN "01KB9ZZZZZ0123456789ABCDE1"
#define OTHER "01KB9ZZZZZ0123456789ABCDE2"

static void
as(const char *run)
{
    rig.ctx.run = run;
}

/* Read by that run. */
static void
read_as(const char *run, const char *path)
{
    as(run);
    close_file(open_at(path, O_RDONLY));
    as("");
}

static void
save_as(const char *run, const char *path, const char *text)
{
    as(run);
    save(path, text);
    as("");
}

static struct volume_run_reads
reads_of(const char *run)
{
    struct volume_run_reads out;
    volume_reads_of(rig.service, run, &out);
    return out;
}

static bool
mark_of(const char *path, struct index_stale *out)
{
    struct volume_attr attr;
    struct err err = ERR_INIT;
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, path, &attr, &rig.err));
    if (volume_reads_mark(rig.service, attr.version, out, &err) == 0)
        return true;
    assert_int_equal(err.code, ERR_NOT_FOUND);
    return false;
}

static void
what_others_changed_marks_what_is_written_then(void **state)
{
    (void)state;
    struct index_stale mark;
    save("in 1", "one");
    save("b", "two");
    read_as(RUN, "in 1");
    read_as(RUN, "b");
    save_as(RUN, "before", "x");
    assert_false(mark_of("before", &mark));
    save_as(OTHER, "in 1", "one again");
    save_as(RUN, "after", "x");
    assert_true(mark_of("after", &mark));
    assert_string_equal(mark.inputs, "v:in%201");
    assert_string_equal(mark.run, RUN);
    assert_int_equal(mark.changed, 1);
    assert_false(mark.incomplete);
    save("b", "anew");
    move("b", "c", 0); /* its bytes are what they are */
    save_as(RUN, "after", "y");
    assert_true(mark_of("after", &mark));
    assert_int_equal(mark.changed, 2);
    /* A copy that lands, a move and new attributes give it another id: the mark is that of its bytes. */
    flush();
    move("after", "moved", 0);
    flush();
    assert_true(mark_of("moved", &mark));
    save_as(OTHER, "moved", "z"); /* has read nothing */
    assert_false(mark_of("moved", &mark));
}

static void
its_own_changes_and_what_it_reads_again_are_fresh(void **state)
{
    (void)state;
    struct index_stale mark;
    save("a", "1");
    save("b", "1");
    read_as(RUN, "a");
    read_as(RUN, "b");
    save_as(RUN, "a", "2");
    as(RUN);
    unlink_at("b");
    as("");
    assert_int_equal(reads_of(RUN).changed, 0);
    save("a", "3");
    assert_int_equal(reads_of(RUN).changed, 1);
    read_as(RUN, "a");
    assert_int_equal(reads_of(RUN).changed, 0);
    /* Another file has the name now, and it is read. */
    save("new", "4");
    move("new", "a", 0);
    assert_int_equal(reads_of(RUN).changed, 1);
    read_as(RUN, "a");
    assert_int_equal(reads_of(RUN).changed, 0);
    save_as(RUN, "out", "x");
    assert_false(mark_of("out", &mark));
}

static void
opened_to_write_is_not_read_and_changes_nothing(void **state)
{
    (void)state;
    save("a", "1");
    read_as(RUN, "a");
    close_file(open_at("a", O_RDWR));
    assert_int_equal(reads_of(RUN).changed, 0);
    as(OTHER);
    close_file(open_at("a", O_WRONLY));
    as("");
    assert_int_equal(reads_of(OTHER).inputs, 0);
}

static void
what_others_put_into_the_bucket_counts(void **state)
{
    (void)state;
    save("a", "1");
    save("b", "1");
    flush();
    read_as(RUN, "a");
    read_as(RUN, "b");
    foreign_put("a", "theirs");
    foreign_delete("b");
    relist("");
    assert_int_equal(reads_of(RUN).changed, 2);
}

static void
two_writers_of_one_file_are_nobody(void **state)
{
    (void)state;
    save("a", "1");
    read_as(RUN, "a");
    as(RUN);
    struct volume_file *mine = open_at("a", O_WRONLY);
    write_at(mine, "mine", 0);
    as(OTHER);
    struct volume_file *theirs = open_at("a", O_WRONLY);
    write_at(theirs, "theirs", 0);
    close_file(theirs);
    as(RUN);
    close_file(mine);
    as("");
    assert_int_equal(reads_of(RUN).changed, 1);
}

static void
a_change_while_it_is_opened_counts(void **state)
{
    (void)state;
    struct index_node row = { .id = 4711, .name = "x" };
    as(RUN);
    RUN_OK(rig.err, reads_meet(rig.service, &rig.ctx, &rig.err));
    reads_begin(rig.service, &rig.ctx, row.id);
    reads_changed(rig.service, row.id, NULL);
    reads_end(rig.service, &rig.ctx, &row, true);
    assert_int_equal(reads_of(RUN).changed, 1);
    /* One that fails leaves it as it was, one that works does not. */
    reads_begin(rig.service, &rig.ctx, row.id);
    reads_end(rig.service, &rig.ctx, &row, false);
    assert_int_equal(reads_of(RUN).changed, 1);
    reads_begin(rig.service, &rig.ctx, row.id);
    reads_end(rig.service, &rig.ctx, &row, true);
    assert_int_equal(reads_of(RUN).changed, 0);
    row.id = 4712;
    reads_begin(rig.service, &rig.ctx, row.id);
    reads_end(rig.service, &rig.ctx, &row, false);
    assert_int_equal(reads_of(RUN).inputs, 1);
}

static void
read_many(const char *run, int64_t from, unsigned count)
{
    as(run);
    RUN_OK(rig.err, reads_meet(rig.service, &rig.ctx, &rig.err));
    for (unsigned i = 0; i < count; i++) {
        struct index_node row = { .id = from + i, .name = "x", .parent = from + i };
        reads_begin(rig.service, &rig.ctx, row.id);
        reads_end(rig.service, &rig.ctx, &row, true);
    }
    as("");
}

static void
more_than_there_is_room_for_is_told(void **state)
{
    (void)state;
    struct index_stale mark;
    read_many(RUN, 1000000, VOLUME_READS_OF_RUN);
    assert_true(reads_of(RUN).complete);
    read_many(RUN, 2000000, 1);
    assert_false(reads_of(RUN).complete);
    assert_int_equal(reads_of(RUN).inputs, VOLUME_READS_OF_RUN);
    save_as(RUN, "out", "x");
    assert_true(mark_of("out", &mark));
    assert_int_equal(mark.changed, 0);
    assert_true(mark.incomplete);
}

/* The run that was quiet longest gives its room, and is not complete when it comes back. */
static void
a_run_that_gave_its_room_is_not_complete(void **state)
{
    (void)state;
    char run[ULID_SIZE];
    read_many(RUN, 1000000, 10);
    for (unsigned i = 0; i < VOLUME_READS_IN_ALL / VOLUME_READS_OF_RUN; i++) {
        (void)snprintf(run, sizeof(run), "01KB9ZZZZZ0123456789ABC%03u", i);
        read_many(run, 2000000 + (int64_t)i * 10000, VOLUME_READS_OF_RUN);
        assert_true(reads_of(run).complete);
    }
    assert_false(reads_of(RUN).known);
    read_many(RUN, 1000000, 1);
    assert_false(reads_of(RUN).complete);
    as(OTHER);
    save("out", "x");
    as("");
    assert_true(reads_of(OTHER).complete);
}

static void
a_service_that_was_started_anew_knows_that_it_does_not_know(void **state)
{
    (void)state;
    struct index_stale mark;
    save("a", "1");
    flush();
    read_as(RUN, "a");
    volume_service_close(rig.service, 0);
    rig_serve(&(struct rig_options){ .weak_delete = false });
    save_as(RUN, "out", "x");
    assert_true(mark_of("out", &mark));
    assert_true(mark.incomplete);
    save_as(OTHER, "out", "x");
    assert_false(mark_of("out", &mark));
}

static void
set_guard(enum volume_stale_reads how)
{
    struct volume_settings settings = { .name = "v", .stale_reads = how };
    struct volume_info info;
    RUN_OK(rig.err, volume_set(rig.service, "v", &settings, &rig.err));
    RUN_OK(rig.err, volume_find(rig.service, "v", &info, &rig.err));
    assert_int_equal(info.stale_reads, how);
}

static void
a_volume_may_refuse_or_not_look(void **state)
{
    (void)state;
    struct index_stale mark;
    struct err err = ERR_INIT;
    struct volume_file *file = NULL;
    save("a", "1");
    save("out", "1");
    set_guard(VOLUME_STALE_REFUSE);
    read_as(RUN, "a");
    save("a", "2");
    as(RUN);
    assert_int_equal(volume_file_open(rig.service, &rig.ctx, node_of("out"), O_WRONLY, &file, &err),
                     -1);
    assert_int_equal(err.code, ERR_STALE_READ);
    assert_non_null(strstr(err.msg, "'a'"));
    assert_reads("out", "1");
    assert_int_equal(reads_of(RUN).refused, 1);
    read_as(RUN, "a");
    save_as(RUN, "out", "2");
    assert_false(mark_of("out", &mark));
    set_guard(VOLUME_STALE_OFF);
    save("a", "3");
    save_as(RUN, "out", "3");
    assert_false(mark_of("out", &mark));
    read_as(OTHER, "a");
    assert_int_equal(reads_of(OTHER).inputs, 0);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(what_others_changed_marks_what_is_written_then),
        ONE(its_own_changes_and_what_it_reads_again_are_fresh),
        ONE(opened_to_write_is_not_read_and_changes_nothing),
        ONE(what_others_put_into_the_bucket_counts),
        ONE(two_writers_of_one_file_are_nobody),
        ONE(a_change_while_it_is_opened_counts),
        ONE(more_than_there_is_room_for_is_told),
        ONE(a_run_that_gave_its_room_is_not_complete),
        ONE(a_service_that_was_started_anew_knows_that_it_does_not_know),
        ONE(a_volume_may_refuse_or_not_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
