#include "versioning/sync.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define V1 "01ARZ3NDEKTSV4RRFFQ69G5FA1"
#define V2 "01ARZ3NDEKTSV4RRFFQ69G5FA2"
#define V3 "01ARZ3NDEKTSV4RRFFQ69G5FA3"
#define MD5_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define MD5_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define MD5_C "cccccccccccccccccccccccccccccccc"
#define SHA_A "a-sha256"
#define SHA_B "b-sha256"
#define NODE 5
#define OTHER 6

static const struct sync_rules strong = { .put_if_absent = true,
                                          .put_if_match = true,
                                          .delete_if_match = true };
static const struct sync_rules weak = { .put_if_absent = false };
static const struct sync_rules weak_lease = { .lease_held = true };

/* ---- decide, by table ---- */

#define WANT_ANY .present = true, .node = NODE
#define VERSION_B .version = V2, .size = 1, .md5 = MD5_B, .sha256 = SHA_B, .bytes_local = true
#define HERE_BASE_A .at_this_key = true, .base_etag = MD5_A, .base_version = V1
#define HAVE_A .present = true, .etag = MD5_A, .version = V1, .size = 1, .sha256 = SHA_A

struct decide_case {
    const char *name;
    struct sync_want want;
    struct sync_have have;
    enum sync_action action;
    bool cond_absent;
    const char *cond_etag;
    unsigned bits;
};
static const struct decide_case decide_cases[] = {
    /* nothing to do */
    { "neither", { 0 }, { 0 }, SYNC_IDLE, false, "", 0 },
    { "synced and here",
      { WANT_ANY, VERSION_B, HERE_BASE_A },
      { HAVE_A, .owner = NODE },
      SYNC_IDLE,
      false,
      "",
      0 },
    { "synced and here, somebody put equal bytes again",
      { WANT_ANY, VERSION_B, HERE_BASE_A },
      { HAVE_A },
      SYNC_IDLE,
      false,
      "",
      0 },
    { "foreign and unknown to the tree", { 0 }, { HAVE_A }, SYNC_IDLE, false, "", 0 },
    { "created, nothing frozen", { WANT_ANY, .writing = true }, { 0 }, SYNC_WAIT, false, "", 0 },
    { "created where a foreign object lies, nothing frozen",
      { WANT_ANY, .writing = true },
      { HAVE_A },
      SYNC_WAIT,
      false,
      "",
      0 },
    /* a new file */
    { "new", { WANT_ANY, VERSION_B, .dirty = true }, { 0 }, SYNC_PUT, true, "", 0 },
    { "new, still being written",
      { WANT_ANY, VERSION_B, .dirty = true, .writing = true },
      { 0 },
      SYNC_PUT,
      true,
      "",
      0 },
    { "new, not hashed",
      { WANT_ANY, .version = V2, .bytes_local = true, .dirty = true },
      { 0 },
      SYNC_HASH,
      false,
      "",
      0 },
    { "rm + create is one PUT",
      { WANT_ANY, VERSION_B, .dirty = true },
      { HAVE_A, .discard = true },
      SYNC_PUT,
      false,
      MD5_A,
      0 },
    { "new where a foreign object lies",
      { WANT_ANY, VERSION_B, .dirty = true },
      { HAVE_A },
      SYNC_CONFLICT,
      false,
      "",
      SYNC_KEEP_LOSER | SYNC_TAKE_THEIRS },
    { "new where equal bytes lie",
      { WANT_ANY, VERSION_B, .dirty = true },
      { .present = true, .etag = MD5_B, .sha256 = SHA_B },
      SYNC_PUT,
      false,
      MD5_B,
      0 },
    /* a changed file */
    { "changed",
      { WANT_ANY, VERSION_B, HERE_BASE_A, .dirty = true },
      { HAVE_A, .owner = NODE },
      SYNC_PUT,
      false,
      MD5_A,
      0 },
    { "changed, not hashed",
      { WANT_ANY, .version = V2, .bytes_local = true, HERE_BASE_A, .dirty = true },
      { HAVE_A, .owner = NODE },
      SYNC_HASH,
      false,
      "",
      0 },
    { "changed, and replaced underneath (S25)",
      { WANT_ANY, VERSION_B, HERE_BASE_A, .dirty = true },
      { .present = true, .etag = MD5_C },
      SYNC_CONFLICT,
      false,
      "",
      SYNC_KEEP_LOSER | SYNC_TAKE_THEIRS },
    { "changed, and equal bytes came underneath",
      { WANT_ANY, VERSION_B, HERE_BASE_A, .dirty = true },
      { .present = true, .etag = "other", .sha256 = SHA_B },
      SYNC_PUT,
      false,
      "other",
      0 },
    { "changed, and deleted underneath (S26)",
      { WANT_ANY, VERSION_B, HERE_BASE_A, .dirty = true },
      { 0 },
      SYNC_CONFLICT,
      false,
      "",
      SYNC_KEEP_LOSER | SYNC_TAKE_THEIRS },
    { "changed, from an older version than the newest of our own",
      { WANT_ANY, VERSION_B, .at_this_key = true, .base_etag = MD5_C, .dirty = true },
      { HAVE_A, .owner = NODE },
      SYNC_CONFLICT,
      false,
      "",
      SYNC_KEEP_LOSER | SYNC_TAKE_THEIRS },
    { "changed, and an older version of ours came back",
      { WANT_ANY, VERSION_B, HERE_BASE_A, .dirty = true },
      { .present = true, .etag = MD5_C, .discard = true },
      SYNC_PUT,
      false,
      MD5_C,
      0 },
    /* clean here, and something else lies here */
    { "clean, replaced underneath (S24)",
      { WANT_ANY, VERSION_B, HERE_BASE_A },
      { .present = true, .etag = MD5_C },
      SYNC_CONFLICT,
      false,
      "",
      SYNC_TAKE_THEIRS },
    { "clean, deleted underneath",
      { WANT_ANY, VERSION_B, HERE_BASE_A },
      { 0 },
      SYNC_CONFLICT,
      false,
      "",
      SYNC_TAKE_THEIRS },
    { "clean, replaced underneath, open for writing",
      { WANT_ANY, VERSION_B, HERE_BASE_A, .writing = true },
      { .present = true, .etag = MD5_C },
      SYNC_WAIT,
      false,
      "",
      0 },
    { "clean, an older version of ours came back",
      { WANT_ANY, VERSION_B, HERE_BASE_A },
      { .present = true, .etag = MD5_C, .discard = true },
      SYNC_PUT,
      false,
      MD5_C,
      0 },
    { "clean, an older version of ours came back, bytes gone",
      { WANT_ANY, .version = V2, HERE_BASE_A },
      { .present = true, .etag = MD5_C, .discard = true },
      SYNC_CONFLICT,
      false,
      "",
      SYNC_TAKE_THEIRS },
    /* moved here */
    { "moved, bytes elsewhere",
      { WANT_ANY, .version = V2, .base_etag = MD5_B },
      { 0 },
      SYNC_FETCH,
      false,
      "",
      0 },
    { "moved, open for writing",
      { WANT_ANY, .version = V2, .base_etag = MD5_B, .writing = true },
      { 0 },
      SYNC_WAIT,
      false,
      "",
      0 },
    { "moved, a foreign version without an id",
      { WANT_ANY, .base_etag = MD5_B, .md5 = MD5_B, .sha256 = SHA_B, .bytes_local = true },
      { 0 },
      SYNC_HASH,
      false,
      "",
      0 },
    { "moved, local", { WANT_ANY, VERSION_B, .base_etag = MD5_B }, { 0 }, SYNC_PUT, true, "", 0 },
    { "moved over a file the tree knew",
      { WANT_ANY, VERSION_B, .base_etag = MD5_B },
      { HAVE_A, .discard = true },
      SYNC_PUT,
      false,
      MD5_A,
      0 },
    { "moved over a foreign object",
      { WANT_ANY, VERSION_B, .base_etag = MD5_B },
      { HAVE_A },
      SYNC_CONFLICT,
      false,
      "",
      SYNC_KEEP_LOSER | SYNC_TAKE_THEIRS },
    { "moved over a foreign object, bytes elsewhere: the loser's bytes first",
      { WANT_ANY, .version = V2, .base_etag = MD5_B },
      { HAVE_A },
      SYNC_FETCH,
      false,
      "",
      0 },
    /* another node's bytes lie here */
    { "the owner's home is free",
      { WANT_ANY, VERSION_B, .dirty = true },
      { HAVE_A, .owner = OTHER, .owner_home_free = true },
      SYNC_EVACUATE,
      false,
      "",
      0 },
    { "a cycle",
      { WANT_ANY, VERSION_B, .dirty = true },
      { HAVE_A, .owner = OTHER },
      SYNC_PARK,
      false,
      "",
      0 },
    { "an owner wins over discard",
      { WANT_ANY, VERSION_B, .dirty = true },
      { HAVE_A, .owner = OTHER, .discard = true },
      SYNC_PARK,
      false,
      "",
      0 },
    { "nothing frozen: nobody is disturbed",
      { WANT_ANY, .writing = true },
      { HAVE_A, .owner = OTHER },
      SYNC_WAIT,
      false,
      "",
      0 },
    /* nothing wanted */
    { "removed", { 0 }, { HAVE_A, .discard = true }, SYNC_DELETE, false, MD5_A, 0 },
    { "moved away, not yet at home", { 0 }, { HAVE_A, .owner = OTHER }, SYNC_WAIT, false, "", 0 },
    { "moved away: an owner wins over discard",
      { 0 },
      { HAVE_A, .owner = OTHER, .discard = true },
      SYNC_WAIT,
      false,
      "",
      0 },
};

static void
decide(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(decide_cases) / sizeof(decide_cases[0]); i++) {
        const struct decide_case *c = &decide_cases[i];
        const struct sync_view view = { .want = c->want, .have = c->have, .rules = strong };
        struct sync_decision got;
        sync_decide(&view, &got);
        if (got.action != c->action || got.cond_absent != c->cond_absent ||
            strcmp(got.cond_etag, c->cond_etag) != 0 || got.effect.bits != c->bits || got.checked)
            fail_msg("%s: action %d absent %d etag '%s' bits %x", c->name, (int)got.action,
                     got.cond_absent, got.cond_etag, got.effect.bits);
        if (got.action == SYNC_EVACUATE || got.action == SYNC_PARK)
            assert_int_equal(got.node, OTHER);
        /* Whatever else is known: while an outcome is open there is nothing but a look (INV-10). */
        struct sync_view open = view;
        open.attempt.op = (i & 1) != 0 ? SYNC_OP_PUT : SYNC_OP_DELETE;
        open.attempt.unknown = (i & 2) != 0;
        sync_decide(&open, &got);
        assert_int_equal(got.action, SYNC_LOOK);
    }
}

static void
stores_without_conditions(void **state)
{
    (void)state;
    struct sync_view put = { .want = { WANT_ANY, VERSION_B, .dirty = true }, .rules = weak };
    struct sync_view gone = { .have = { HAVE_A, .discard = true }, .rules = weak };
    struct sync_decision got;

    sync_decide(&put, &got);
    assert_int_equal(got.action, SYNC_WAIT);
    sync_decide(&gone, &got);
    assert_int_equal(got.action, SYNC_WAIT);
    put.rules = weak_lease;
    gone.rules = weak_lease;
    sync_decide(&put, &got);
    assert_int_equal(got.action, SYNC_PUT);
    assert_true(got.checked && got.cond_absent);
    sync_decide(&gone, &got);
    assert_int_equal(got.action, SYNC_DELETE);
    assert_true(got.checked);
    assert_string_equal(got.cond_etag, MD5_A);
    /* Each condition by itself: RGW honours those of PUT and not that of DELETE. */
    put.rules = (struct sync_rules){ .put_if_absent = true, .lease_held = true };
    sync_decide(&put, &got);
    assert_int_equal(got.action, SYNC_PUT);
    assert_false(got.checked);
    put.have = (struct sync_have){ HAVE_A, .discard = true };
    sync_decide(&put, &got);
    assert_true(got.checked);
    put.rules = (struct sync_rules){ .put_if_match = true, .lease_held = true };
    sync_decide(&put, &got);
    assert_int_equal(got.action, SYNC_PUT);
    assert_false(got.checked);
    /* A conditional PUT would be safe by itself, but not a DELETE of another gateway that meets it. */
    put.rules = (struct sync_rules){ .put_if_absent = true, .put_if_match = true };
    sync_decide(&put, &got);
    assert_int_equal(got.action, SYNC_WAIT);
}

/* A, B, A: the bytes of the base come back while a request that names the base may still land. */
static void
a_write_that_restores_a_condition_waits(void **state)
{
    (void)state;
    struct sync_attempt late = {
        .op = SYNC_OP_PUT, .version = V1, .md5 = MD5_A, .cond_etag = MD5_B, .size = 1
    };
    struct sync_view view = { .want = { WANT_ANY, VERSION_B, HERE_BASE_A, .dirty = true },
                              .have = { HAVE_A, .owner = NODE },
                              .rules = strong,
                              .late = &late,
                              .late_count = 1 };
    struct sync_decision got;

    sync_decide(&view, &got);
    assert_int_equal(got.action, SYNC_WAIT);
    late.op = SYNC_OP_DELETE;
    sync_decide(&view, &got);
    assert_int_equal(got.action, SYNC_WAIT);
    late =
        (struct sync_attempt){ .op = SYNC_OP_PUT, .version = V2, .md5 = MD5_B, .cond_etag = MD5_B };
    sync_decide(&view, &got); /* the very version landing twice harms nobody */
    assert_int_equal(got.action, SYNC_PUT);
    late = (struct sync_attempt){ .op = SYNC_OP_PUT, .version = V1, .cond_etag = MD5_A };
    sync_decide(&view, &got);
    assert_int_equal(got.action, SYNC_PUT);
}

/* All folder markers have one ETag: a late one over a newer one changes no byte. A late DELETE would end the folder, and a late
 * PUT of bytes would put them there. */
static void
a_late_marker_holds_up_no_other(void **state)
{
    (void)state;
    struct sync_attempt late = {
        .op = SYNC_OP_PUT, .version = V1, .md5 = MD5_B, .cond_etag = MD5_B, .size = 0
    };
    struct sync_view view = { .want = { WANT_ANY, VERSION_B, HERE_BASE_A, .dirty = true },
                              .have = { HAVE_A, .owner = NODE },
                              .rules = strong,
                              .late = &late,
                              .late_count = 1 };
    struct sync_decision got;

    view.want.size = 0;
    sync_decide(&view, &got);
    assert_int_equal(got.action, SYNC_PUT);
    late.size = 1;
    sync_decide(&view, &got);
    assert_int_equal(got.action, SYNC_WAIT);
    late.size = 0;
    late.op = SYNC_OP_DELETE;
    sync_decide(&view, &got);
    assert_int_equal(got.action, SYNC_WAIT);
}

/* Our own DELETE came late: the file is not "deleted underneath". */
static void
absence_by_our_own_late_delete(void **state)
{
    (void)state;
    const struct sync_attempt late = { .op = SYNC_OP_DELETE, .cond_etag = MD5_A };
    struct sync_view view = { .want = { WANT_ANY, VERSION_B, HERE_BASE_A, .dirty = true },
                              .rules = strong,
                              .late = &late,
                              .late_count = 1 };
    struct sync_decision got;

    sync_decide(&view, &got);
    assert_int_equal(got.action, SYNC_PUT);
    assert_true(got.cond_absent);
    view.want.dirty = false;
    sync_decide(&view, &got);
    assert_int_equal(got.action, SYNC_PUT);
    view.want.version[0] = '\0'; /* a foreign version gets an id before it is written again */
    sync_decide(&view, &got);
    assert_int_equal(got.action, SYNC_HASH);
    memcpy(view.want.version, V2, sizeof(V2));
    memcpy(view.want.base_etag, MD5_C, sizeof(MD5_C));
    sync_decide(&view, &got); /* a DELETE of another version explains nothing */
    assert_int_equal(got.action, SYNC_CONFLICT);
    view.rules = weak_lease; /* but where conditions are ignored it does */
    sync_decide(&view, &got);
    assert_int_equal(got.action, SYNC_PUT);
}

static void
begin(void **state)
{
    (void)state;
    const struct sync_view view = { .want = { WANT_ANY, VERSION_B, HERE_BASE_A, .dirty = true },
                                    .have = { HAVE_A, .owner = NODE },
                                    .rules = strong };
    struct sync_decision decision;
    struct sync_attempt attempt;

    sync_decide(&view, &decision);
    sync_begin(&view, &decision, 77, &attempt);
    assert_int_equal(attempt.op, SYNC_OP_PUT);
    assert_int_equal(attempt.node, NODE);
    assert_int_equal(attempt.content, 77);
    assert_int_equal(attempt.size, 1);
    assert_string_equal(attempt.version, V2);
    assert_string_equal(attempt.md5, MD5_B);
    assert_string_equal(attempt.sha256, SHA_B);
    assert_string_equal(attempt.cond_etag, MD5_A);
    assert_false(attempt.cond_absent);
    assert_false(attempt.unknown);

    const struct sync_view gone = { .have = { HAVE_A, .discard = true }, .rules = strong };
    sync_decide(&gone, &decision);
    sync_begin(&gone, &decision, 0, &attempt);
    assert_int_equal(attempt.op, SYNC_OP_DELETE);
    assert_string_equal(attempt.cond_etag, MD5_A);
    assert_string_equal(attempt.version, V1);
}

/* ---- judge ---- */

static struct sync_view
put_under_way(void)
{
    return (struct sync_view){
        .want = { WANT_ANY, VERSION_B, HERE_BASE_A, .dirty = true },
        .have = { HAVE_A, .owner = NODE },
        .attempt = { .op = SYNC_OP_PUT,
                     .node = NODE,
                     .content = 77,
                     .version = V2,
                     .size = 1,
                     .md5 = MD5_B,
                     .sha256 = SHA_B,
                     .cond_etag = MD5_A },
        .rules = strong,
    };
}

static struct sync_view
delete_under_way(void)
{
    return (struct sync_view){
        .have = { HAVE_A, .discard = true },
        .attempt = { .op = SYNC_OP_DELETE, .version = V1, .size = 1, .cond_etag = MD5_A },
        .rules = strong,
    };
}

static void
judge_answers(void **state)
{
    (void)state;
    static const struct {
        enum sync_result result;
        unsigned put, delete;
    } rows[] = {
        { SYNC_RESULT_DONE, SYNC_CLEAR_ATTEMPT | SYNC_SET_HAVE | SYNC_SYNCED,
          SYNC_CLEAR_ATTEMPT | SYNC_SET_HAVE },
        { SYNC_RESULT_REFUSED, SYNC_MARK_UNKNOWN, SYNC_MARK_UNKNOWN },
        { SYNC_RESULT_UNKNOWN, SYNC_MARK_UNKNOWN | SYNC_LOOK_AGAIN,
          SYNC_MARK_UNKNOWN | SYNC_LOOK_AGAIN },
        { SYNC_RESULT_NOT_DONE, SYNC_CLEAR_ATTEMPT | SYNC_BACK_OFF,
          SYNC_CLEAR_ATTEMPT | SYNC_BACK_OFF },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct sync_answer answer = { .result = rows[i].result, .etag = "new" };
        struct sync_view view = put_under_way();
        struct sync_effect effect;
        sync_judge(&view, &answer, &effect);
        assert_int_equal(effect.bits, rows[i].put);
        view = delete_under_way();
        sync_judge(&view, &answer, &effect);
        assert_int_equal(effect.bits, rows[i].delete);
        assert_false(effect.have.present);
    }
}

static void
judge_done_names_what_was_sent(void **state)
{
    (void)state;
    struct sync_view view = put_under_way();
    const struct sync_answer answer = { .result = SYNC_RESULT_DONE, .etag = MD5_B };
    struct sync_effect effect;

    memcpy(view.want.version, V3, sizeof(V3)); /* the tree has gone on meanwhile */
    sync_judge(&view, &answer, &effect);
    assert_true(effect.have.present);
    assert_string_equal(effect.have.etag, MD5_B);
    assert_string_equal(effect.have.version, V2);
    assert_string_equal(effect.have.sha256, SHA_B);
    assert_int_equal(effect.have.owner, NODE);
    assert_false(effect.have.discard);
    assert_int_equal(effect.node, NODE);
    assert_string_equal(effect.version, V2);
}

#define SEEN_A .present = true, .etag = MD5_A, .size = 1, .version = V1, .md5 = MD5_A
#define SEEN_B .present = true, .etag = MD5_B, .size = 1, .version = V2, .md5 = MD5_B
#define SEEN_C .present = true, .etag = MD5_C, .size = 1
#define CLEAR ((unsigned)SYNC_CLEAR_ATTEMPT)

struct seen_case {
    const char *name;
    struct observed seen;
    unsigned bits, bits_delete;
};
static const struct seen_case seen_cases[] = {
    { "ours is there (S4)",
      { SEEN_B },
      CLEAR | SYNC_SET_HAVE | SYNC_SYNCED,
      CLEAR | SYNC_LOOK_AGAIN | SYNC_SET_HAVE | SYNC_TAKE_THEIRS },
    { "not yet (S5)",
      { SEEN_A },
      CLEAR | SYNC_LOOK_AGAIN | SYNC_BACK_OFF,
      CLEAR | SYNC_LOOK_AGAIN | SYNC_BACK_OFF },
    { "somebody else's (S25)",
      { SEEN_C },
      CLEAR | SYNC_LOOK_AGAIN | SYNC_SET_HAVE | SYNC_KEEP_LOSER | SYNC_TAKE_THEIRS,
      CLEAR | SYNC_LOOK_AGAIN | SYNC_SET_HAVE | SYNC_TAKE_THEIRS },
    { "nothing (S26)",
      { .present = false },
      CLEAR | SYNC_LOOK_AGAIN | SYNC_SET_HAVE | SYNC_KEEP_LOSER | SYNC_TAKE_THEIRS,
      CLEAR | SYNC_LOOK_AGAIN | SYNC_SET_HAVE },
    { "our id on other bytes",
      { .present = true,
        .etag = MD5_C,
        .size = 1,
        .version = V2,
        .md5 = MD5_B,
        .has_version_size = true,
        .version_size = 1,
        .sha256 = SHA_B },
      CLEAR | SYNC_LOOK_AGAIN | SYNC_SET_HAVE | SYNC_KEEP_LOSER | SYNC_TAKE_THEIRS,
      CLEAR | SYNC_LOOK_AGAIN | SYNC_SET_HAVE | SYNC_TAKE_THEIRS },
    { "equal bytes of another gateway",
      { .present = true,
        .etag = MD5_B,
        .size = 1,
        .version = V3,
        .md5 = MD5_B,
        .has_version_size = true,
        .version_size = 1,
        .sha256 = SHA_B },
      CLEAR | SYNC_LOOK_AGAIN | SYNC_SET_HAVE | SYNC_SYNCED,
      CLEAR | SYNC_LOOK_AGAIN | SYNC_SET_HAVE | SYNC_TAKE_THEIRS },
};

static void
judge_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(seen_cases) / sizeof(seen_cases[0]); i++) {
        const struct seen_case *c = &seen_cases[i];
        const struct sync_answer answer = { .result = SYNC_RESULT_SEEN, .seen = c->seen };
        struct sync_effect effect;
        struct sync_view view = put_under_way();
        view.attempt.unknown = true;
        sync_judge(&view, &answer, &effect);
        if (effect.bits != c->bits)
            fail_msg("%s: bits %x, expected %x", c->name, effect.bits, c->bits);
        if ((effect.bits & SYNC_SYNCED) != 0)
            assert_string_equal(effect.version, V2);
        view = delete_under_way();
        view.attempt.unknown = true;
        sync_judge(&view, &answer, &effect);
        if (effect.bits != c->bits_delete)
            fail_msg("%s, delete: bits %x, expected %x", c->name, effect.bits, c->bits_delete);
    }
}

static void
judge_after_a_crash_does_not_back_off(void **state)
{
    (void)state;
    struct sync_view view = put_under_way();
    const struct sync_answer answer = { .result = SYNC_RESULT_SEEN, .seen = { SEEN_A } };
    struct sync_effect effect;
    sync_judge(&view, &answer, &effect);
    assert_int_equal(effect.bits, CLEAR | SYNC_LOOK_AGAIN);
}

/* The tree changed its mind while the PUT was under way. */
static void
judge_when_the_node_has_left(void **state)
{
    (void)state;
    struct sync_view view = put_under_way();
    const struct sync_answer foreign = { .result = SYNC_RESULT_SEEN, .seen = { SEEN_C } };
    const struct sync_answer landed = { .result = SYNC_RESULT_SEEN, .seen = { SEEN_B } };
    const struct sync_answer done = { .result = SYNC_RESULT_DONE, .etag = MD5_B };
    struct sync_effect effect;

    view.want =
        (struct sync_want){ .present = false }; /* removed or moved: nobody loses anything */
    sync_judge(&view, &foreign, &effect);
    assert_int_equal(effect.bits, CLEAR | SYNC_LOOK_AGAIN | SYNC_SET_HAVE | SYNC_TAKE_THEIRS);
    assert_int_equal(effect.have.owner, 0);
    sync_judge(&view, &landed, &effect); /* its newest bytes lay here: these are newer */
    assert_int_equal(effect.bits, CLEAR | SYNC_SET_HAVE | SYNC_SYNCED);
    assert_int_equal(effect.node, NODE);
    view.have = (struct sync_have){ .present = false };
    sync_judge(&view, &landed,
               &effect); /* it is no news of the file, which may be synced elsewhere */
    assert_int_equal(effect.bits, CLEAR | SYNC_SET_HAVE);
    assert_int_equal(effect.have.owner, 0);
    assert_true(effect.have.discard);
    sync_judge(&view, &done, &effect);
    assert_int_equal(effect.bits, CLEAR | SYNC_SET_HAVE);
    assert_true(effect.have.discard);
    view = put_under_way();
    view.have = (struct sync_have){ .present = false };
    view.want.at_this_key = false; /* moved away, synced there with V3, and moved back */
    view.want.dirty = false;
    memcpy(view.want.version, V3, sizeof(V3));
    sync_judge(&view, &done, &effect);
    assert_int_equal(effect.bits, CLEAR | SYNC_SET_HAVE);
    assert_true(effect.have.discard);
    memcpy(view.want.version, V2, sizeof(V2)); /* moved here, and this is the version */
    sync_judge(&view, &done, &effect);
    assert_int_equal(effect.bits, CLEAR | SYNC_SET_HAVE | SYNC_SYNCED);

    view = put_under_way();
    view.want.node = OTHER; /* a new file under the name: its own decision comes next */
    view.want.at_this_key = false;
    sync_judge(&view, &foreign, &effect);
    assert_int_equal(effect.bits, CLEAR | SYNC_LOOK_AGAIN | SYNC_SET_HAVE);
}

static void
judge_knows_its_own_late_versions(void **state)
{
    (void)state;
    struct sync_attempt late = {
        .op = SYNC_OP_PUT, .node = NODE, .version = V1, .size = 1, .md5 = MD5_C, .cond_absent = true
    };
    struct sync_view view = put_under_way();
    const struct sync_answer answer = { .result = SYNC_RESULT_SEEN,
                                        .seen = { SEEN_C, .version = V1 } };
    struct sync_effect effect;

    view.late = &late;
    view.late_count = 1;
    sync_judge(&view, &answer, &effect);
    assert_int_equal(effect.bits, CLEAR | SYNC_LOOK_AGAIN | SYNC_SET_HAVE);
    assert_true(effect.have.discard);
    assert_int_equal(effect.have.owner, 0);
    late.size = 2; /* not these bytes */
    sync_judge(&view, &answer, &effect);
    assert_true((effect.bits & SYNC_KEEP_LOSER) != 0);
}

static void
judge_a_version_sent_twice(void **state)
{
    (void)state;
    struct sync_view view = put_under_way();
    const struct sync_attempt late = view.attempt;
    const struct sync_answer answer = { .result = SYNC_RESULT_SEEN, .seen = { SEEN_B } };
    struct sync_effect effect;

    view.late = &late;
    view.late_count = 1;
    sync_judge(&view, &answer, &effect); /* which of the two it was is not known */
    assert_int_equal(effect.bits, CLEAR | SYNC_SET_HAVE | SYNC_SYNCED | SYNC_LOOK_AGAIN);
    view.late_count = 0;
    memcpy(view.attempt.cond_etag, MD5_B, sizeof(MD5_B)); /* over itself: it may not have landed */
    sync_judge(&view, &answer, &effect);
    assert_int_equal(effect.bits, CLEAR | SYNC_SET_HAVE | SYNC_SYNCED | SYNC_LOOK_AGAIN);
}

/* ---- observe ---- */

struct observe_case {
    const char *name;
    struct sync_want want;
    struct sync_have have;
    struct observed seen;
    unsigned bits;
};
static const struct observe_case observe_cases[] = {
    { "as believed",
      { WANT_ANY, VERSION_B, HERE_BASE_A },
      { HAVE_A, .owner = NODE },
      { SEEN_A },
      0 },
    { "both absent", { 0 }, { 0 }, { .present = false }, 0 },
    { "a foreign object appears", { 0 }, { 0 }, { SEEN_C }, SYNC_SET_HAVE | SYNC_TAKE_THEIRS },
    { "a removed object is gone already",
      { 0 },
      { HAVE_A, .discard = true },
      { .present = false },
      SYNC_SET_HAVE },
    { "replaced, clean (S24)",
      { WANT_ANY, VERSION_B, HERE_BASE_A },
      { HAVE_A, .owner = NODE },
      { SEEN_C },
      SYNC_SET_HAVE | SYNC_TAKE_THEIRS },
    { "deleted, clean (S27)",
      { WANT_ANY, VERSION_B, HERE_BASE_A },
      { HAVE_A, .owner = NODE },
      { .present = false },
      SYNC_SET_HAVE | SYNC_TAKE_THEIRS },
    { "replaced, dirty",
      { WANT_ANY, VERSION_B, HERE_BASE_A, .dirty = true },
      { HAVE_A, .owner = NODE },
      { SEEN_C },
      SYNC_SET_HAVE },
    { "deleted, dirty",
      { WANT_ANY, VERSION_B, HERE_BASE_A, .dirty = true },
      { HAVE_A, .owner = NODE },
      { .present = false },
      SYNC_SET_HAVE },
    { "replaced, being written",
      { WANT_ANY, VERSION_B, HERE_BASE_A, .writing = true },
      { HAVE_A, .owner = NODE },
      { SEEN_C },
      SYNC_SET_HAVE },
    { "appears where a moved file is wanted",
      { WANT_ANY, VERSION_B },
      { 0 },
      { SEEN_C },
      SYNC_SET_HAVE },
    { "equal bytes under another ETag",
      { WANT_ANY, VERSION_B, HERE_BASE_A },
      { HAVE_A, .owner = NODE },
      { .present = true,
        .etag = MD5_B,
        .size = 1,
        .version = V3,
        .md5 = MD5_B,
        .has_version_size = true,
        .version_size = 1,
        .sha256 = SHA_B },
      SYNC_SET_HAVE | SYNC_SYNCED },
    { "as believed, foreign, and the tree has left the name",
      { 0 },
      { HAVE_A },
      { SEEN_A },
      SYNC_SET_HAVE | SYNC_TAKE_THEIRS },
    { "as believed, and to be deleted", { 0 }, { HAVE_A, .discard = true }, { SEEN_A }, 0 },
    { "a moved file's old object is replaced",
      { 0 },
      { HAVE_A, .owner = OTHER },
      { SEEN_C },
      SYNC_SET_HAVE | SYNC_TAKE_THEIRS },
};

static void
observe(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(observe_cases) / sizeof(observe_cases[0]); i++) {
        const struct observe_case *c = &observe_cases[i];
        struct sync_view view = { .want = c->want, .have = c->have, .rules = strong };
        struct sync_effect effect;
        sync_observe(&view, &c->seen, &effect);
        if (effect.bits != c->bits)
            fail_msg("%s: bits %x, expected %x", c->name, effect.bits, c->bits);
        if ((effect.bits & SYNC_SET_HAVE) != 0)
            assert_string_equal(effect.have.etag, c->seen.etag);
        view.attempt.op = SYNC_OP_PUT; /* never while an attempt is open */
        sync_observe(&view, &c->seen, &effect);
        assert_int_equal(effect.bits, 0);
    }
}

static void
observe_late_arrivals(void **state)
{
    (void)state;
    struct sync_attempt late = {
        .op = SYNC_OP_PUT, .node = NODE, .version = V2, .size = 1, .md5 = MD5_B, .cond_etag = MD5_A
    };
    struct sync_view view = put_under_way();
    const struct observed landed = { SEEN_B };
    const struct observed nothing = { .present = false };
    struct sync_effect effect;

    view.attempt = (struct sync_attempt){ .op = SYNC_OP_NONE };
    view.late = &late;
    view.late_count = 1;
    sync_observe(&view, &landed, &effect); /* the wanted version landed after all */
    assert_int_equal(effect.bits, SYNC_SET_HAVE | SYNC_SYNCED);
    assert_int_equal(effect.have.owner, NODE);
    view.want = (struct sync_want){ .present = false };
    view.have = (struct sync_have){ .present = false };
    sync_observe(&view, &landed, &effect); /* removed meanwhile: it goes again */
    assert_int_equal(effect.bits, SYNC_SET_HAVE);
    assert_true(effect.have.discard);

    late = (struct sync_attempt){ .op = SYNC_OP_DELETE, .cond_etag = MD5_A };
    view = put_under_way();
    view.attempt = (struct sync_attempt){ .op = SYNC_OP_NONE };
    view.want.dirty = false;
    view.late = &late;
    view.late_count = 1;
    sync_observe(&view, &nothing, &effect); /* not "deleted underneath" */
    assert_int_equal(effect.bits, SYNC_SET_HAVE);
}

static void
a_look_without_an_attempt_observes(void **state)
{
    (void)state;
    struct sync_view view = { .rules = strong };
    struct sync_answer answer = { .result = SYNC_RESULT_SEEN, .seen = { SEEN_C } };
    struct sync_effect effect;
    sync_judge(&view, &answer, &effect);
    assert_int_equal(effect.bits, SYNC_SET_HAVE | SYNC_TAKE_THEIRS);
    answer.result = SYNC_RESULT_DONE; /* an answer to nothing changes nothing */
    sync_judge(&view, &answer, &effect);
    assert_int_equal(effect.bits, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decide),
        cmocka_unit_test(stores_without_conditions),
        cmocka_unit_test(a_write_that_restores_a_condition_waits),
        cmocka_unit_test(a_late_marker_holds_up_no_other),
        cmocka_unit_test(absence_by_our_own_late_delete),
        cmocka_unit_test(begin),
        cmocka_unit_test(judge_answers),
        cmocka_unit_test(judge_done_names_what_was_sent),
        cmocka_unit_test(judge_seen),
        cmocka_unit_test(judge_after_a_crash_does_not_back_off),
        cmocka_unit_test(judge_when_the_node_has_left),
        cmocka_unit_test(judge_knows_its_own_late_versions),
        cmocka_unit_test(judge_a_version_sent_twice),
        cmocka_unit_test(observe),
        cmocka_unit_test(observe_late_arrivals),
        cmocka_unit_test(a_look_without_an_attempt_observes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
