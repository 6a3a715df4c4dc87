#include "base/log.h"
#include "base/parse.h"
#include "volume/dialect_impl.h"
#include "volume/extra_impl.h"
#include "volume/step_impl.h"
#include "volume/uploads.h"

/* The requests of a key's work: the look, the PUT and the DELETE, each with what its answer means. No lock is held. */

/* ---- looking ---- */

static void
answer_from(struct step *step, int rc, enum store_outcome outcome, const char *etag,
            const struct err *why)
{
    step->answer = (struct sync_answer){ .result = SYNC_RESULT_UNKNOWN };
    step->has_attrs = false;
    step->error[0] = '\0';
    if (rc == 0) {
        step->answer.result = SYNC_RESULT_DONE;
        text_set(step->answer.etag, etag);
        return;
    }
    if (outcome == STORE_REFUSED)
        step->answer.result = SYNC_RESULT_REFUSED;
    else if (outcome == STORE_NOT_DONE)
        step->answer.result = SYNC_RESULT_NOT_DONE;
    if (outcome != STORE_REFUSED)
        (void)snprintf(step->error, sizeof(step->error), "%.*s", (int)sizeof(step->error) - 1,
                       why->msg);
}

/* HEAD; 1 when the store could not be asked. */
static int
look(struct step *step, struct err *err)
{
    struct store_object object;
    store_object_init(&object);
    int rc = store_head(step->service->store, step->key, 0, &object, err);
    bool absent = rc != 0 && err->code == ERR_NOT_FOUND;
    service_store_seen(step->service, rc == 0 || absent ? NULL : err);
    step->answer = (struct sync_answer){ .result = SYNC_RESULT_SEEN };
    step->has_attrs = rc == 0;
    step->error[0] = '\0';
    if (rc == 0)
        object_read(&object, &step->answer.seen, &step->attrs);
    store_object_release(&object);
    return rc == 0 || absent ? 0 : 1;
}

static bool
has_landed(const struct step *step)
{
    const struct sync_attempt *put = &step->kv.view.attempt;
    return put->op == SYNC_OP_PUT &&
           identity_landed(&step->answer.seen, put->version, put->size, put->md5);
}

/* An upload in parts whose object is there is not ended: there are stores that would take its parts from under it. Any other is,
 * so that nothing of it can land any more, and the key is looked at once more. */
int
step_request_look(struct step *step, struct err *err)
{
    struct err why = ERR_INIT;
    int rc = look(step, &why);
    if (rc == 0 && !has_landed(step) && uploads_end_of_key(step->service, step->key))
        rc = look(step, &why);
    if (rc != 0)
        return step_give_up(step, &why, err);
    return step_commit_loser(step, step_judge_tx, err);
}

/* ---- sending ---- */

/* After a look: only what was decided before it. */
static int
begin_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    struct sync_decision planned = step->decision;
    if (step_decide_tx(tx, step, err) != 0)
        return -1;
    if (step->decision.action != planned.action ||
        strcmp(step->decision.cond_etag, planned.cond_etag) != 0)
        return 0; /* the key's state moved */
    return step_begin(step, tx, err);
}

static int
on_upload(void *arg, const char *upload_id, struct err *err)
{
    struct step *step = arg;
    (void)snprintf(step->upload_id, sizeof(step->upload_id), "%s", upload_id);
    return uploads_begin(step->service, step->volume, step->key, upload_id, err);
}

struct sending {
    struct cache_file *file;
    uint64_t stirs;
};

/* A file that readers had lent may have become a writer's meanwhile, and its bytes' copy another row (content_aside_locked()). */
static bool
is_unchanged(void *arg)
{
    const struct sending *sending = arg;
    return cache_file_stirs(sending->file) == sending->stirs;
}

static int
send_put(struct step *step, struct cache_file *file, struct err *err)
{
    struct store_put_result result = { .outcome = STORE_NOT_DONE };
    const struct index_content *content = &step->kv.content;
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    struct object_room room;
    struct store_placement placement;
    struct store_put put = { .key = step->key,
                             .meta = &step->meta,
                             .content_type = extra_content_type(
                                 &step->meta, dialect_content_type(&step->kv.node)),
                             .placement = object_placement(&step->kv.volume, &room, &placement),
                             .on_upload = on_upload,
                             .on_upload_arg = step };
    struct sending sending = { .file = file, .stirs = file ? cache_file_stirs(file) : 0 };
    if (file != NULL) {
        put.still = is_unchanged;
        put.still_arg = &sending;
    }
    step->upload_id[0] = '\0';
    if (extra_check_encoding(&step->meta, file == NULL ? -1 : cache_file_fd(file), err) != 0)
        return -1;
    put.body.size = content->size;
    put.body.fd = -1;
    if (file != NULL)
        put.body.fd = cache_file_fd(file);
    else
        put.body.mem = step->kv.node.kind == INDEX_SYMLINK ? step->kv.node.target : "";
    if (hex_decode(content->sha256, strlen(content->sha256), sha, sizeof(sha)))
        put.body.sha256 = sha;
    if (hex_decode(content->md5, strlen(content->md5), md, sizeof(md)))
        put.body.md5 = md;
    if (step->decision.cond_absent)
        put.cond.kind = STORE_COND_ABSENT;
    else if (step->decision.cond_etag[0] != '\0')
        put.cond =
            (struct store_cond){ .kind = STORE_COND_MATCH, .etag = step->decision.cond_etag };
    if (step->decision.checked)
        put.cond.kind = STORE_COND_NONE;
    struct err why = ERR_INIT;
    int rc = store_put(step->service->store, &put, &result, &why);
    sync_wrote(step->service, step->key);
    /* One that may have landed is looked at first. */
    if (rc != 0 && result.outcome != STORE_UNKNOWN && step->upload_id[0] != '\0')
        (void)uploads_end_of_key(step->service, step->key);
    answer_from(step, rc, rc == 0 ? STORE_DONE : result.outcome, result.etag, &why);
    service_store_seen(step->service, rc == 0 || result.outcome == STORE_REFUSED ? NULL : &why);
    log_debug(sync, "put key=%s size=%llu outcome=%d%s%s", step->key,
              (unsigned long long)content->size, (int)step->answer.result,
              rc == 0 ? "" : " why=", rc == 0 ? "" : why.msg);
    return step_commit(step, step_judge_tx, err);
}

/* Where the store ignores the condition: look first, and send only while the lease holds. */
static int
check_first(struct step *step, bool *go, struct err *err)
{
    struct err why = ERR_INIT;
    const struct sync_decision *decision = &step->decision;
    *go = false;
    if (look(step, &why) != 0)
        return step_give_up(step, &why, err);
    const struct observed *seen = &step->answer.seen;
    bool as_wanted = decision->cond_absent
                         ? !seen->present
                         : seen->present && strcmp(seen->etag, decision->cond_etag) == 0;
    if (as_wanted) {
        *go = true;
        return 0;
    }
    return step_commit(step, step_judge_tx, err);
}

/* Sets step->begun when the request may go out. */
static int
begin_checked(struct step *step, struct err *err)
{
    bool go = true;
    if (step->begun)
        return 0;
    if (step->decision.checked && (check_first(step, &go, err) != 0 || !go))
        return go ? -1 : 0;
    return step_commit(step, begin_tx, err);
}

int
step_request_put(struct step *step, struct err *err)
{
    struct err local = ERR_INIT;
    struct cache_file *file = NULL;
    if (begin_checked(step, err) != 0)
        return -1;
    if (!step->begun)
        return 0;
    if (step->kv.node.kind == INDEX_FILE || step->kv.conflict_id[0] != '\0') {
        file = cache_get(step->service->cache, step->kv.content.id, &local);
        if (file == NULL) {
            /* The attempt stands in the index but was never sent. */
            answer_from(step, -1, STORE_NOT_DONE, "", &local);
            step->done = true;
            return step_commit(step, step_judge_tx, err);
        }
    }
    int rc = send_put(step, file, err);
    cache_put(file);
    return rc;
}

int
step_request_delete(struct step *step, struct err *err)
{
    struct err local = ERR_INIT;
    enum store_outcome outcome = STORE_NOT_DONE;
    if (begin_checked(step, err) != 0)
        return -1;
    if (!step->begun)
        return 0;
    struct store_delete req = { .key = step->key,
                                .if_match =
                                    step->decision.checked ? NULL : step->decision.cond_etag };
    int rc = store_delete(step->service->store, &req, &outcome, &local);
    sync_wrote(step->service, step->key);
    if (rc != 0 && local.code == ERR_NOT_FOUND) {
        rc = 0; /* it is gone: all that was wanted */
        outcome = STORE_DONE;
    }
    answer_from(step, rc, rc == 0 ? STORE_DONE : outcome, "", &local);
    service_store_seen(step->service, rc == 0 || outcome == STORE_REFUSED ? NULL : &local);
    log_debug(sync, "delete key=%s outcome=%d", step->key, (int)step->answer.result);
    return step_commit(step, step_judge_tx, err);
}
