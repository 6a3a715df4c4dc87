#include "volume/uploads.h"
#include "tests/unit/volume/volume_fixture.h"

/* Uploads in parts: a store that takes a PUT in parts from 1,000 bytes on, and lists and ends uploads as S3 does. */

#define PART_FROM 1000u
#define UPLOADS_MAX 16u

static struct parts {
    struct store_upload upload[UPLOADS_MAX];
    char key[UPLOADS_MAX][128], id[UPLOADS_MAX][32];
    unsigned count; /* unfinished ones */
    unsigned numbers, begun, aborted;
    atomic_bool die; /* the next upload's answer is lost, and the upload stays unfinished */
    atomic_bool
        landed; /* the next upload's answer is lost, and it has landed; the store still knows the upload */
    atomic_bool no_aborts; /* the store cannot end any now */
    pthread_mutex_t lock;  /* the service sweeps on a thread of its own */
} parts;

static struct store_ops ops;
static int (*plain_put)(struct store *store, const struct store_put *req,
                        struct store_put_result *res, struct err *err);

/* With parts.lock. */
static void
add_upload(const char *key, const char *id, int64_t age_ns)
{
    unsigned at = parts.count++;
    assert_true(at < UPLOADS_MAX);
    (void)snprintf(parts.key[at], sizeof(parts.key[at]), "%s", key);
    (void)snprintf(parts.id[at], sizeof(parts.id[at]), "%s", id);
    parts.upload[at].initiated_ns = clock_wall_ns() - age_ns;
}

/* With parts.lock. */
static bool
drop_upload(const char *key, const char *id)
{
    for (unsigned i = 0; i < parts.count; i++) {
        if (strcmp(parts.key[i], key) != 0 || strcmp(parts.id[i], id) != 0)
            continue;
        unsigned last = --parts.count;
        memcpy(parts.key[i], parts.key[last], sizeof(parts.key[i]));
        memcpy(parts.id[i], parts.id[last], sizeof(parts.id[i]));
        parts.upload[i] = parts.upload[last];
        return true;
    }
    return false;
}

/* An upload of another client. */
static void
upload_of_others(const char *key, const char *id, int64_t age_ns)
{
    pthread_mutex_lock(&parts.lock);
    add_upload(key, id, age_ns);
    pthread_mutex_unlock(&parts.lock);
}

static bool
took_upload(const char *key, const char *id)
{
    pthread_mutex_lock(&parts.lock);
    bool was_there = drop_upload(key, id);
    pthread_mutex_unlock(&parts.lock);
    return was_there;
}

static unsigned
now(const unsigned *number)
{
    pthread_mutex_lock(&parts.lock);
    unsigned value = *number;
    pthread_mutex_unlock(&parts.lock);
    return value;
}

static int
put_in_parts(struct store *store, const struct store_put *req, struct store_put_result *res,
             struct err *err)
{
    char id[32];
    if (req->body.size < PART_FROM)
        return plain_put(store, req, res, err);
    pthread_mutex_lock(&parts.lock);
    (void)snprintf(id, sizeof(id), "upload-%u", ++parts.numbers);
    parts.begun++;
    add_upload(req->key, id, 0);
    bool die = atomic_exchange(&parts.die, false), landed = atomic_exchange(&parts.landed, false);
    pthread_mutex_unlock(&parts.lock);
    res->outcome = STORE_NOT_DONE;
    if (req->on_upload == NULL || req->on_upload(req->on_upload_arg, id, err) != 0)
        return -1;
    if (die) {
        res->outcome = STORE_UNKNOWN;
        return err_set(err, ERR_STORE_TIMEOUT, "no answer within the deadline");
    }
    int rc = plain_put(store, req, res, err);
    if (landed) {
        res->outcome = STORE_UNKNOWN;
        return err_set(err, ERR_STORE_TIMEOUT, "no answer within the deadline");
    }
    pthread_mutex_lock(&parts.lock);
    if (rc == 0)
        (void)drop_upload(req->key, id);
    pthread_mutex_unlock(&parts.lock);
    return rc;
}

static int
list_uploads(struct store *store, const char *prefix, store_uploads_fn *fn, void *arg,
             struct err *err)
{
    int rc = 0;
    (void)store;
    pthread_mutex_lock(&parts.lock);
    for (unsigned i = 0; rc == 0 && i < parts.count; i++) {
        struct store_upload one = parts.upload[i];
        one.key = parts.key[i];
        one.upload_id = parts.id[i];
        if (strncmp(one.key, prefix, strlen(prefix)) == 0)
            rc = fn(arg, &one, err);
    }
    pthread_mutex_unlock(&parts.lock);
    return rc;
}

static int
abort_upload(struct store *store, const char *key, const char *upload_id, int64_t deadline_ns,
             struct err *err)
{
    (void)store;
    (void)deadline_ns;
    pthread_mutex_lock(&parts.lock);
    bool refused = parts.no_aborts;
    parts.aborted += !refused && drop_upload(key, upload_id);
    pthread_mutex_unlock(&parts.lock);
    return refused ? err_set(err, ERR_STORE_AWAY, "the store answers 503") : 0;
}

static int
probe_parts(struct store *store, struct store_caps *caps, struct err *err)
{
    if (hook_probe(store, caps, err) != 0)
        return -1;
    caps->multipart = caps->list_uploads = STORE_YES;
    return 0;
}

/* Takes the place of the hook's PUT. */
static void
take_over(struct hook_store *hook)
{
    ops = *hook->base.ops;
    plain_put = ops.put;
    ops.put = put_in_parts;
    ops.probe = probe_parts;
    ops.uploads = list_uploads;
    ops.upload_abort = abort_upload;
    hook->base.ops = &ops;
}

static int
begin(void **state)
{
    memset(&parts, 0, sizeof(parts));
    pthread_mutex_init(&parts.lock, NULL);
    rig_adapt = take_over;
    return rig_setup(state);
}

static char large[PART_FROM + 200];

static void
save_large(const char *path, char byte)
{
    memset(large, byte, sizeof(large) - 1);
    save(path, large);
}

struct counted {
    uint64_t open, foreign;
};

static int
count_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct counted *counted = arg;
    return uploads_count(rig.service, tx, &counted->open, &counted->foreign, err);
}

static struct counted
counted(void)
{
    struct counted out = { 0 };
    RUN_OK(rig.err, index_read(rig.service->index, count_tx, &out, &rig.err));
    return out;
}

static void
a_finished_upload_leaves_no_record(void **state)
{
    (void)state;
    save_large("big", 'a');
    flush();
    assert_bucket("big", large);
    assert_int_equal(now(&parts.begun), 1);
    assert_int_equal(now(&parts.count), 0);
    assert_int_equal(counted().open, 0);
}

static void
an_upload_without_an_answer_is_ended_and_sent_again(void **state)
{
    (void)state;
    parts.die = true;
    save_large("big", 'b');
    flush();
    assert_bucket("big", large);
    assert_int_equal(now(&parts.begun), 2);
    assert_int_equal(now(&parts.aborted), 1);
    assert_int_equal(now(&parts.count), 0);
    assert_int_equal(counted().open, 0);
}

/* B189, INV-10: what has landed is not ended; a store may still be taking its parts together. */
static void
an_upload_that_landed_is_not_ended(void **state)
{
    (void)state;
    parts.landed = true;
    save_large("big", 'e');
    flush();
    assert_bucket("big", large);
    assert_int_equal(now(&parts.begun), 1);
    assert_int_equal(now(&parts.aborted), 0);
    assert_int_equal(conflicts(NULL), 0);
}

static void
restart(void)
{
    volume_service_close(rig.service, 0);
    rig_serve(&(struct rig_options){ .weak_delete = false });
}

/* S6: the process ended with the upload under way: the next one finds it in its index. */
static void
what_an_earlier_life_left_is_ended_at_the_start(void **state)
{
    (void)state;
    parts.die = true;
    parts.no_aborts = true;
    hold(HOOK_HEAD); /* so that nobody comes to sending it again */
    save_large("big", 'c');
    wait_for_waiting(HOOK_HEAD);
    assert_int_equal(now(&parts.count), 1);
    assert_int_equal(counted().open, 1);
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    release(HOOK_HEAD);
    parts.no_aborts = false;
    restart();
    flush();
    RUN_OK(rig.err, uploads_sweep(rig.service, &rig.err));
    assert_bucket("big", large);
    assert_int_equal(now(&parts.count), 0);
    assert_int_equal(counted().open, 0);
}

/* Never another client's, however old, below a volume; below .holdfast/ what no gateway can still be at. */
static void
uploads_of_others_are_left_alone_and_counted(void **state)
{
    (void)state;
    static const int64_t hour = 3600 * NS_PER_S;
    upload_of_others("v/new-of-others", "o1", hour);
    upload_of_others("v/old-of-others", "o2", 1000 * hour);
    upload_of_others("elsewhere/old", "o3", 1000 * hour);
    upload_of_others(".holdfast/conflicts/v/01", "h1", 1000 * hour);
    upload_of_others(".holdfast/conflicts/v/02", "h2", 30 * hour);
    RUN_OK(rig.err, uploads_sweep(rig.service, &rig.err));
    assert_int_equal(now(&parts.aborted), 1);
    assert_false(took_upload(".holdfast/conflicts/v/01", "h1"));
    assert_true(took_upload("v/new-of-others", "o1"));
    assert_true(took_upload("v/old-of-others", "o2"));
    assert_true(took_upload("elsewhere/old", "o3"));
    assert_true(took_upload(".holdfast/conflicts/v/02", "h2"));
    assert_int_equal(counted().foreign, 1);
}

static void
what_cannot_be_ended_stays_recorded(void **state)
{
    (void)state;
    parts.die = true;
    parts.no_aborts = true;
    save_large("big", 'd');
    flush();
    assert_bucket("big", large);
    assert_int_equal(now(&parts.begun), 2);
    assert_int_equal(now(&parts.count), 1); /* the first one */
    assert_int_equal(counted().open, 1);
    parts.no_aborts = false;
    restart();
    RUN_OK(rig.err, uploads_sweep(rig.service, &rig.err));
    assert_int_equal(now(&parts.count), 0);
    assert_int_equal(counted().open, 0);
}

static int
old_copy_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_upload_put(tx, arg, err);
}

static void
left_copy(const char *key, int64_t age_ns)
{
    struct index_upload row = { .volume = 1, .begun_ns = clock_wall_ns() - age_ns };
    struct store_put_result result;
    text_set(row.key, key);
    (void)snprintf(row.id, sizeof(row.id), "copy:%s", key);
    text_set(row.life, "another");
    RUN_OK(rig.err, index_write(rig.service->index, INDEX_FULL, old_copy_tx, &row, &rig.err));
    RUN_OK(rig.err,
           store_put_small(rig.mem, key, "x", 1, (struct store_cond){ 0 }, &result, &rig.err));
}

static bool
is_there(const char *key)
{
    struct store_object object;
    struct err err = ERR_INIT;
    store_object_init(&object);
    int rc = store_head(rig.mem, key, clock_mono_ns() + 5 * NS_PER_S, &object, &err);
    store_object_release(&object);
    return rc == 0;
}

/* What was parked by a process that died before it could say so: removed, but not while the copy may still land. */
static void
a_copy_of_an_earlier_life_goes_once_it_cannot_land_any_more(void **state)
{
    (void)state;
    static const int64_t minute = 60 * NS_PER_S;
    left_copy(".holdfast/park/v/old", 21 * minute);
    left_copy(".holdfast/park/v/young", 5 * minute);
    restart(); /* its sweep at the start may be at it too */
    int rc = uploads_sweep(rig.service, &rig.err);
    assert_int_equal(rc, -1); /* the young one has to wait */
    assert_false(is_there(".holdfast/park/v/old"));
    assert_true(is_there(".holdfast/park/v/young"));
    assert_int_equal(counted().open, 1);
}

int
main(void)
{
#define ONE(name) cmocka_unit_test_setup_teardown(name, begin, rig_teardown)
    const struct CMUnitTest tests[] = {
        ONE(a_finished_upload_leaves_no_record),
        ONE(an_upload_without_an_answer_is_ended_and_sent_again),
        ONE(an_upload_that_landed_is_not_ended),
        ONE(what_an_earlier_life_left_is_ended_at_the_start),
        ONE(uploads_of_others_are_left_alone_and_counted),
        ONE(what_cannot_be_ended_stays_recorded),
        ONE(a_copy_of_an_earlier_life_goes_once_it_cannot_land_any_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
