#include "tests/unit/volume/volume_fixture.h"

/* What others did to a file that is dirty here: never a silent overwrite, never a lost byte (S25, S26, S28, S29). */

static char *
conflict_bytes(const struct index_conflict *row)
{
    char key[LIMIT_KEY + 1];
    char *data = NULL;
    size_t len;
    struct err err = ERR_INIT;
    (void)snprintf(key, sizeof(key), ".holdfast/conflicts/v/%s", row->id);
    if (store_get_small(rig.mem, key, 1u << 20, &data, &len, NULL, &err) != 0)
        fail_msg("the loser's bytes are not in the bucket: %s", err.msg);
    return data;
}

static void
assert_conflict_holds(const char *text, const char *reason, const char *path)
{
    struct index_conflict row;
    assert_int_equal(conflicts(&row), 1);
    assert_string_equal(row.reason, reason);
    assert_string_equal(row.path, path);
    char *data = conflict_bytes(&row);
    assert_string_equal(data, text);
    free(data);
}

static void
flush_with_conflict(void)
{
    struct volume_barrier barrier;
    assert_int_equal(flush_within(60 * NS_PER_S, &barrier), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
    assert_int_equal(barrier.conflicts, 1);
}

static void
a_file_replaced_while_dirty_is_a_conflict(void **state)
{
    (void)state;
    save("f", "base");
    flush();
    struct volume_file *file = open_at("f", O_RDWR | O_TRUNC);
    write_at(file, "mine", 0);
    foreign_put("f", "theirs");
    close_file(file);
    flush_with_conflict();
    assert_bucket("f", "theirs");
    assert_reads("f", "theirs");
    assert_conflict_holds("mine", "conflict", "f");
}

/* The upload begins with the close: the conflict is found, and its loser kept, before anybody asks. */
static void
a_conflict_from_before_the_barrier_is_told_once(void **state)
{
    (void)state;
    save("f", "base");
    flush();
    struct volume_file *file = open_at("f", O_RDWR | O_TRUNC);
    write_at(file, "mine", 0);
    foreign_put("f", "theirs");
    close_file(file);
    for (int i = 0; i < 60000 && conflicts(NULL) == 0; i++)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(conflicts(NULL), 1);
    clock_sleep_ns(2 * NS_PER_MS);
    flush_with_conflict();
    flush();
    assert_int_equal(conflicts(NULL), 1);
}

/* Who waits for one volume does not take the news from who waits for another. */
static void
each_volume_has_its_own_news(void **state)
{
    (void)state;
    struct volume_info other;
    struct volume_barrier barrier;
    struct volume_settings settings = { .name = "w" };
    RUN_OK(rig.err, volume_create(rig.service, &settings, &other, &rig.err));
    struct volume_file *file = open_at("new", O_CREAT | O_RDWR);
    write_at(file, "mine", 0);
    foreign_put("new", "theirs");
    close_file(file);
    for (int i = 0; i < 60000 && conflicts(NULL) == 0; i++)
        clock_sleep_ns(NS_PER_MS);
    RUN_OK(rig.err, volume_flush(rig.service, other.id, clock_mono_ns() + 60 * NS_PER_S, &barrier,
                                 &rig.err));
    assert_int_equal(
        volume_flush(rig.service, 0, clock_mono_ns() + 60 * NS_PER_S, &barrier, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
    flush();
}

static void
a_file_deleted_while_dirty_is_not_resurrected(void **state)
{
    (void)state;
    save("f", "base");
    flush();
    struct volume_file *file = open_at("f", O_RDWR | O_TRUNC);
    write_at(file, "mine", 0);
    foreign_delete("f");
    close_file(file);
    flush_with_conflict();
    assert_false(in_bucket("f"));
    assert_gone("f");
    assert_conflict_holds("mine", "deleted", "f");
}

static void
equal_bytes_are_no_conflict(void **state)
{
    (void)state;
    save("f", "base");
    flush();
    struct volume_file *file = open_at("f", O_RDWR | O_TRUNC);
    write_at(file, "same", 0);
    foreign_put("f", "same");
    /* Others carry our sha256 only when they copied it; what was put here has none: look at what happens with it. */
    struct meta meta;
    meta_init(&meta);
    RUN_OK(rig.err, meta_set(&meta, "holdfast-version", "01ARZ3NDEKTSV4RRFFQ69G5FAV", &rig.err));
    RUN_OK(rig.err, meta_set(&meta, "holdfast-size", "4", &rig.err));
    RUN_OK(rig.err, meta_set(&meta, "holdfast-md5", "51037a4a37730f52c8732586d3aaa316", &rig.err));
    RUN_OK(rig.err,
           meta_set(&meta, "holdfast-sha256",
                    "0967115f2813a3541eaef77de9d9d5773f1c0c04314b0bbfe4ff3b3b1c55b5d5", &rig.err));
    foreign_put_meta("f", "same", &meta);
    meta_release(&meta);
    close_file(file);
    flush();
    assert_int_equal(conflicts(NULL), 0);
    assert_bucket("f", "same");
}

/* Another client made the file that is new here. */
static void
a_new_name_that_others_took_is_a_conflict(void **state)
{
    (void)state;
    struct volume_file *file = open_at("new", O_CREAT | O_RDWR);
    write_at(file, "mine", 0);
    foreign_put("new", "theirs");
    close_file(file);
    flush_with_conflict();
    assert_bucket("new", "theirs");
    assert_conflict_holds("mine", "conflict", "new");
}

static void
a_move_onto_what_others_made_is_a_conflict(void **state)
{
    (void)state;
    save("a", "mine");
    flush();
    foreign_put("b", "theirs");
    move("a", "b", 0); /* the folder's listing does not show it yet */
    flush_with_conflict();
    assert_bucket("b", "theirs");
    assert_reads("b", "theirs");
    assert_false(in_bucket("a"));
    assert_conflict_holds("mine", "conflict", "b");
}

/* The program goes on writing to what lost. */
static void
the_writer_of_a_lost_file_is_told_and_keeps_what_it_writes(void **state)
{
    (void)state;
    struct index_conflict row;
    save("f", "base");
    flush();
    struct volume_file *file = open_at("f", O_RDWR);
    write_at(file, "one", 0);
    foreign_put("f", "theirs");
    RUN_OK(rig.err, volume_file_flush(file, &rig.ctx, &rig.err));
    flush_with_conflict();
    assert_reads("f", "theirs");
    assert_int_equal(volume_file_flush(file, &rig.ctx, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT); /* ESTALE, once */
    RUN_OK(rig.err, volume_file_flush(file, &rig.ctx, &rig.err));
    write_at(file, "two", 0);
    volume_file_close(file, &rig.ctx);
    struct volume_barrier barrier;
    (void)flush_within(60 * NS_PER_S, &barrier);
    assert_int_equal(conflicts(&row), 2);
    assert_string_equal(row.path, "f");
    char *data = conflict_bytes(&row);
    assert_string_equal(data, "twoe");
    free(data);
    assert_bucket("f", "theirs");
}

/* sync=close: close(2) itself says it, and never says that all is well. */
static void
a_close_through_to_the_bucket_tells_the_conflict(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        char path[32];
        (void)snprintf(path, sizeof(path), "f%d", i);
        struct volume_file *file = open_at(path, O_CREAT | O_RDWR);
        write_at(file, "mine", 0);
        foreign_put(path, "theirs");
        assert_int_equal(volume_file_flush(file, &rig.ctx, &rig.err), -1);
        assert_int_equal(rig.err.code, ERR_CONFLICT);
        volume_file_close(file, &rig.ctx);
    }
    assert_int_equal(conflicts(NULL), 20);
}

static int
put_whole(const char *path, const char *text, const struct precondition *pre,
          struct volume_attr *attr)
{
    bool created;
    struct volume_upload *upload =
        volume_upload_begin(rig.service, &rig.ctx, rig.volume, path, &rig.err);
    if (upload == NULL)
        return -1;
    RUN_OK(rig.err, volume_upload_write(upload, text, strlen(text), &rig.err));
    struct volume_commit_args args = { .pre = *pre, .wait_synced = true };
    return volume_commit(upload, &rig.ctx, &args, attr, &created, &rig.err);
}

/* S29 */
static void
a_whole_file_needs_to_say_what_it_replaces(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct precondition none = { .kind = PRECONDITION_NONE };
    struct precondition match = { .kind = PRECONDITION_MATCH, .count = 1 };
    save("f", "base");
    assert_int_equal(put_whole("f", "http", &none, &attr), -1);
    assert_int_equal(rig.err.code, ERR_PRECONDITION);
    text_set(match.tag[0], attr.version);
    struct volume_file *file = open_at("f", O_RDWR);
    write_at(file, "more", 0);
    close_file(file);
    assert_int_equal(put_whole("f", "http", &match, &attr), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
    text_set(match.tag[0], attr.version);
    RUN_OK(rig.err, put_whole("f", "http", &match, &attr));
    assert_bucket("f", "http");
    assert_int_equal(conflicts(NULL), 0);
}

/* A whole file takes the name from one that a program has open; the program's handle goes on by itself. */
static void
a_whole_file_replaces_one_that_is_open(void **state)
{
    (void)state;
    char out[16] = "";
    struct volume_attr attr;
    struct precondition any = { .kind = PRECONDITION_ANY };
    save("f", "old");
    flush();
    struct volume_file *reader = open_at("f", O_RDONLY);
    RUN_OK(rig.err, put_whole("f", "new", &any, &attr));
    assert_int_equal(volume_file_read(reader, &rig.ctx, out, 15, 0, &rig.err), 3);
    assert_string_equal(out, "old");
    volume_file_close(reader, &rig.ctx);
    assert_reads("f", "new");
    flush();
    assert_bucket("f", "new");
}

/* Somebody is writing the file: the name goes to the whole file, and the writer's bytes are kept, with the path they had. */
static void
a_whole_file_replaces_one_that_is_being_written(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_barrier barrier;
    struct precondition any = { .kind = PRECONDITION_ANY };
    save("f", "base");
    flush();
    struct volume_file *writer = open_at("f", O_RDWR | O_TRUNC);
    write_at(writer, "mine", 0);
    RUN_OK(rig.err, put_whole("f", "theirs", &any, &attr));
    assert_int_equal(volume_file_flush(writer, &rig.ctx, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
    volume_file_close(writer, &rig.ctx);
    (void)flush_within(60 * NS_PER_S, &barrier);
    assert_bucket("f", "theirs");
    assert_reads("f", "theirs");
    assert_conflict_holds("mine", "conflict", "f");
}

/* The gateway ends before that writer closes: the next start keeps what it wrote. */
static void
a_writer_that_lost_its_name_is_kept_across_a_crash(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_barrier barrier;
    struct precondition any = { .kind = PRECONDITION_ANY };
    save("f", "base");
    flush();
    struct volume_file *writer = open_at("f", O_RDWR | O_TRUNC);
    write_at(writer, "mine", 0);
    RUN_OK(rig.err, put_whole("f", "theirs", &any, &attr));
    volume_service_close(rig.service, 0);
    free(writer);
    rig_serve(&(struct rig_options){ .weak_delete = false });
    (void)flush_within(60 * NS_PER_S, &barrier);
    assert_bucket("f", "theirs");
    assert_conflict_holds("mine", "conflict", "f");
}

/* S28, in small. */
static void
each_round_of_two_writers_has_one_winner_and_one_conflict(void **state)
{
    (void)state;
    char mine[32], theirs[32];
    struct volume_barrier barrier;
    save("f", "base");
    flush();
    for (unsigned i = 1; i <= 20; i++) {
        (void)snprintf(mine, sizeof(mine), "mine %u", i);
        (void)snprintf(theirs, sizeof(theirs), "theirs %u", i);
        struct volume_file *file = open_at("f", O_RDWR | O_TRUNC);
        write_at(file, mine, 0);
        foreign_put("f", theirs);
        close_file(file);
        assert_int_equal(flush_within(60 * NS_PER_S, &barrier), -1);
        assert_int_equal(rig.err.code, ERR_CONFLICT);
        assert_int_equal(conflicts(NULL), i);
        assert_bucket("f", theirs);
    }
}

static int
setup_close(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .sync_close = true });
    return 0;
}

#define BOTH(test)                                                  \
    cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown), \
    {                                                               \
#test " (weak)", test, rig_setup_weak, rig_teardown, NULL   \
    }
#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(a_file_replaced_while_dirty_is_a_conflict),
        BOTH(a_file_deleted_while_dirty_is_not_resurrected),
        ONE(a_conflict_from_before_the_barrier_is_told_once),
        ONE(each_volume_has_its_own_news),
        BOTH(equal_bytes_are_no_conflict),
        BOTH(a_new_name_that_others_took_is_a_conflict),
        BOTH(a_move_onto_what_others_made_is_a_conflict),
        BOTH(the_writer_of_a_lost_file_is_told_and_keeps_what_it_writes),
        cmocka_unit_test_setup_teardown(a_close_through_to_the_bucket_tells_the_conflict,
                                        setup_close, rig_teardown),
        cmocka_unit_test_setup_teardown(a_whole_file_needs_to_say_what_it_replaces, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_whole_file_replaces_one_that_is_open, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_whole_file_replaces_one_that_is_being_written, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_writer_that_lost_its_name_is_kept_across_a_crash,
                                        rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(each_round_of_two_writers_has_one_winner_and_one_conflict,
                                        rig_setup, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
