#include <string.h>

#include "sim.h"

/* ---- the view of a key, from rows ---- */

static void
view_attempt(const struct world *world, const struct attempt *row, struct sync_attempt *out)
{
    *out = (struct sync_attempt){ .op = row->op };
    if (row->op == SYNC_OP_NONE)
        return;
    out->unknown = row->unknown;
    out->node = row->node;
    out->content = row->content;
    out->size = size_of(row->value);
    out->cond_absent = row->cond_absent;
    text_version(row->version, out->version);
    text_md5(row->value, out->md5);
    text_sha256(row->value, out->sha256);
    text_etag(world, row->cond_etag, out->cond_etag);
}

static void
view_want(const struct world *world, struct gateway *gateway, int path, struct sync_want *out)
{
    const struct node *node = node_at(&gateway->cur, path);

    *out = (struct sync_want){ .present = node != NULL };
    if (node == NULL)
        return;
    out->node = node->id;
    out->writing = node->live >= 0;
    out->bytes_local = node->frozen >= 0;
    if (node->place.kind != PLACE_NONE) {
        out->at_this_key = node->place.kind == PLACE_KEY && node->place.at == path;
        text_etag(world, node->place.etag, out->base_etag);
        text_version(node->base_version, out->base_version);
        text_version(node->base_version, out->version);
    }
    if (node->frozen < 0)
        return;
    const struct content *content = &gateway->cur.contents[node->frozen];
    out->dirty = content->state == CONTENT_FROZEN;
    out->size = size_of(gateway->disk[node->frozen].value);
    text_version(content->version, out->version);
    text_md5(content->value, out->md5);
    text_sha256(content->value, out->sha256);
}

static bool
home_free(struct gateway *gateway, int64_t owner)
{
    const struct node *node = node_get(&gateway->cur, owner);

    if (node == NULL || node->path < 0 || node->live >= 0)
        return false;
    return !gateway->cur.keys[node->path].present &&
           gateway->cur.intents[node->path].attempt.op == SYNC_OP_NONE;
}

static void
view_have(const struct world *world, struct gateway *gateway, int path, struct sync_have *out)
{
    const struct keyrow *row = &gateway->cur.keys[path];

    *out = (struct sync_have){ .present = row->present };
    if (!row->present)
        return;
    out->size = row->size;
    out->owner = row->owner;
    out->discard = row->discard;
    out->kept = row->kept;
    text_etag(world, row->etag, out->etag);
    text_version(row->version, out->version);
    text_sha256(row->value, out->sha256);
    out->owner_home_free = home_free(gateway, row->owner);
}

void
driver_view(struct world *world, struct gateway *gateway, int path, struct sync_view *view,
            struct sync_attempt late[LATE])
{
    const struct intent *intent = &gateway->cur.intents[path];

    view_want(world, gateway, path, &view->want);
    view_have(world, gateway, path, &view->have);
    view_attempt(world, &intent->attempt, &view->attempt);
    view->rules = (struct sync_rules){
        .put_if_absent = world->put_if_absent,
        .put_if_match = world->put_if_match,
        .delete_if_match = world->delete_if_match,
        .lease_held = lease_valid(&gateway->lease, gateway_clock(world, gateway)),
        .history = world->history,
    };
    for (int i = 0; i < intent->late_count; i++)
        view_attempt(world, &intent->late[i], &late[i]);
    view->late = late;
    view->late_count = (size_t)intent->late_count;
}

void
observed_from(const struct world *world, const struct object *object, struct observed *out)
{
    *out = (struct observed){ .present = object->present };
    if (!object->present)
        return;
    out->size = size_of(object->value);
    text_etag(world, object->etag, out->etag);
    if (object->meta_version == 0)
        return;
    text_version(object->meta_version, out->version);
    out->has_version_size = true;
    out->version_size = size_of(object->meta_value);
    text_md5(object->meta_value, out->md5);
    text_sha256(object->meta_value, out->sha256);
}

/* ---- steps of a key's work: decide, begin, send, judge ---- */

static void
send_look(struct world *world, struct gateway *gateway, int path, bool observing)
{
    struct request *request = net_send(world, (int)(gateway - world->gateways), REQ_HEAD, path);

    if (request == NULL)
        return;
    gateway->workers[path] =
        (struct worker){ .stage = STAGE_SENT, .action = SYNC_LOOK, .observing = observing };
}

static void
hash(struct world *world, struct gateway *gateway, int path)
{
    struct node *node = node_at(&gateway->cur, path);
    struct content *content = &gateway->cur.contents[node->frozen];

    content->value = gateway->disk[node->frozen].value;
    if (content->version == 0) {
        content->version =
            ledger_record(world, (int)(gateway - world->gateways), content->value, content->rec);
        content->rec = content->version;
    }
    commit(world, gateway, false);
}

void
driver_fetch(struct world *world, int g, struct node *node)
{
    struct gateway *gateway = &world->gateways[g];
    int row = node_row(&gateway->cur, node);

    if (node->place.kind == PLACE_NONE || node->frozen >= 0 || gateway->fetching[row])
        return;
    struct request *request = net_send(world, g, REQ_GET, NONE);
    if (request == NULL)
        return;
    request->from = node->place;
    request->node = node->id;
    gateway->fetching[row] = true;
}

/* Planted fault: the rename's copy goes straight onto the file key. */
static void
send_move(struct world *world, struct gateway *gateway, int path)
{
    struct node *node = node_at(&gateway->cur, path);
    struct request *request = net_send(world, (int)(gateway - world->gateways), REQ_MOVE, path);

    if (request == NULL)
        return;
    request->from = node->place;
    request->node = node->id;
    gateway->workers[path] = (struct worker){ .stage = STAGE_SENT, .action = SYNC_FETCH };
}

static bool
index_names_park(const struct index *index, int slot)
{
    for (int i = 0; i < NODES; i++) {
        const struct node *node = &index->nodes[i];
        if (node->id != 0 && node->place.kind == PLACE_PARK && node->place.at == slot)
            return true;
    }
    for (int i = 0; i < CONFLICTS; i++) {
        const struct conflict *conflict = &index->conflicts[i];
        if (conflict->used && conflict->place.kind == PLACE_PARK && conflict->place.at == slot)
            return true;
    }
    return false;
}

static bool
park_is_free(const struct world *world, int slot)
{
    for (int g = 0; g < GATEWAYS; g++) {
        if (index_names_park(&world->gateways[g].cur, slot) ||
            index_names_park(&world->gateways[g].dur, slot))
            return false;
    }
    for (int i = 0; i < REQUESTS; i++) {
        const struct request *request = &world->requests[i];
        if (request->state != REQ_FREE && request->kind == REQ_COPY && request->to == slot)
            return false;
    }
    return true;
}

static void
send_park(struct world *world, struct gateway *gateway, int path)
{
    const struct keyrow *row = &gateway->cur.keys[path];
    int slot = 0;

    if (row->owner < 0) { /* a loser's object: its bytes go up first */
        driver_upload_conflict(world, (int)(gateway - world->gateways));
        return;
    }
    while (slot < PARKS && !park_is_free(world, slot))
        slot++;
    struct request *request =
        slot < PARKS ? net_send(world, (int)(gateway - world->gateways), REQ_COPY, path) : NULL;
    if (request == NULL)
        return;
    world->bucket.parks[slot].present = false;
    request->from = (struct place){ .kind = PLACE_KEY, .at = path, .etag = row->etag };
    request->to = slot;
    request->node = row->owner;
    gateway->workers[path] = (struct worker){ .stage = STAGE_SENT, .action = SYNC_PARK };
}

/* To a fresh key every time: an earlier copy whose answer was lost lies there too. */
static void
send_keep(struct world *world, struct gateway *gateway, int path)
{
    struct request *request = net_send(world, (int)(gateway - world->gateways), REQ_KEEP, path);

    if (request == NULL)
        return;
    request->from =
        (struct place){ .kind = PLACE_KEY, .at = path, .etag = gateway->cur.keys[path].etag };
    gateway->workers[path] = (struct worker){ .stage = STAGE_SENT, .action = SYNC_PRESERVE };
}

static void
begin(struct world *world, struct gateway *gateway, int path, const struct sync_view *view,
      const struct sync_decision *decision)
{
    struct intent *intent = &gateway->cur.intents[path];
    struct node *node = node_at(&gateway->cur, path);
    struct sync_attempt attempt;

    if (intent->late_count >= LATE - 1) { /* too many open ends: let some grow too old first */
        intent->not_before = world->now + 5000;
        return;
    }
    int content = decision->action == SYNC_PUT ? node->frozen : NONE;
    sync_begin(view, decision, content, &attempt);
    if (content >= 0 && world_chance(world, 400))
        sync_content(gateway, content);
    intent->attempt = (struct attempt){
        .op = attempt.op,
        .node = attempt.node,
        .content = content,
        .version = number_of(attempt.version),
        .value = number_of(attempt.sha256),
        .cond_absent = attempt.cond_absent,
        .cond_etag = number_of(attempt.cond_etag),
        .sent_at = world->now,
    };
    gateway->workers[path] = (struct worker){ .stage = STAGE_BEGUN,
                                              .action = decision->action,
                                              .checked = decision->checked };
    commit(world, gateway, sync_rule_on(RULE_ATTEMPT_FULL));
}

static void
act(struct world *world, int g, int path, const struct sync_view *view,
    const struct sync_decision *decision)
{
    struct gateway *gateway = &world->gateways[g];
    struct intent *intent = &gateway->cur.intents[path];
    struct node *owner;

    switch (decision->action) {
    case SYNC_IDLE:
        intent->active = intent->late_count > 0;
        break;
    case SYNC_WAIT:
        intent->not_before = world->now + (int64_t)world_pick(world, 3000);
        break;
    case SYNC_LOOK:
        send_look(world, gateway, path, false);
        break;
    case SYNC_HASH:
        hash(world, gateway, path);
        break;
    case SYNC_FETCH:
        if (sync_rule_on(RULE_PLAIN_PUT))
            driver_fetch(world, g, node_at(&gateway->cur, path));
        else
            send_move(world, gateway, path);
        intent->not_before = world->now + (int64_t)world_pick(world, 3000);
        break;
    case SYNC_EVACUATE:
        owner = node_get(&gateway->cur, decision->node);
        if (owner != NULL)
            touch(world, gateway, owner->path);
        intent->not_before = world->now + (int64_t)world_pick(world, 3000);
        break;
    case SYNC_PARK:
        send_park(world, gateway, path);
        break;
    case SYNC_PRESERVE:
        send_keep(world, gateway, path);
        break;
    case SYNC_PUT:
    case SYNC_DELETE:
        begin(world, gateway, path, view, decision);
        break;
    case SYNC_ADOPT:
    case SYNC_CONFLICT:
        driver_apply(world, gateway, path, &decision->effect, gateway->cur.keys[path].rec);
        break;
    }
}

static bool
is_free(const struct worker *worker)
{
    return worker->stage == STAGE_IDLE || !sync_rule_on(RULE_SERIAL_KEY);
}

void
driver_work(struct world *world, int g, int path)
{
    static const char *const names[] = { "idle", "wait", "look", "hash",   "fetch",    "evacuate",
                                         "park", "keep", "put",  "delete", "conflict", "adopt" };
    struct gateway *gateway = &world->gateways[g];
    struct intent *intent = &gateway->cur.intents[path];
    struct sync_attempt late[LATE];
    struct sync_view view;
    struct sync_decision decision;

    if (!is_free(&gateway->workers[path]) || !intent->active)
        return;
    if (intent->attempt.op == SYNC_OP_NONE && intent->look_at != 0 &&
        world->now >= intent->look_at) {
        send_look(world, gateway, path, true);
        return;
    }
    if (world->now < intent->not_before)
        return;
    driver_view(world, gateway, path, &view, late);
    sync_decide(&view, &decision);
    if (decision.action != SYNC_IDLE && decision.action != SYNC_WAIT)
        trace(world, "gateway %d: %s %s version %u cond %s%x", g, names[decision.action],
              path_names[path], number_of(view.want.version), decision.cond_absent ? "absent" : "",
              number_of(decision.cond_etag));
    act(world, g, path, &view, &decision);
}

static void
judge(struct world *world, struct gateway *gateway, int path, const struct sync_answer *answer,
      uint32_t rec)
{
    struct sync_attempt late[LATE];
    struct sync_view view;
    struct sync_effect effect;

    driver_view(world, gateway, path, &view, late);
    sync_judge(&view, answer, &effect);
    driver_apply(world, gateway, path, &effect, rec);
}

/* On a weak store the lease must still be ours now; where it ignores this condition, the key be as expected now. */
static bool
check_first(struct world *world, struct gateway *gateway, int path)
{
    const struct attempt *attempt = &gateway->cur.intents[path].attempt;
    const struct object *at = &world->bucket.keys[path];
    struct sync_answer answer = { .result = SYNC_RESULT_NOT_DONE };
    bool fits = attempt->cond_absent ? !at->present : at->present && at->etag == attempt->cond_etag;

    if (!lease_valid(&gateway->lease, gateway_clock(world, gateway)) &&
        sync_rule_on(RULE_LEASE_WEAK)) {
        judge(world, gateway, path, &answer, 0);
        return false;
    }
    if (fits || !gateway->workers[path].checked ||
        (attempt->op == SYNC_OP_DELETE && !sync_rule_on(RULE_DELETE_CHECK)))
        return true;
    answer.result = SYNC_RESULT_SEEN;
    observed_from(world, at, &answer.seen);
    judge(world, gateway, path, &answer, at->rec);
    return false;
}

void
driver_send(struct world *world, int g, int path)
{
    struct gateway *gateway = &world->gateways[g];
    struct worker *worker = &gateway->workers[path];
    struct attempt *attempt = &gateway->cur.intents[path].attempt;

    if (worker->stage != STAGE_BEGUN)
        return;
    worker->stage = STAGE_IDLE;
    if (attempt->op == SYNC_OP_NONE || (world_weak(world) && !check_first(world, gateway, path)))
        return;
    struct request *request =
        net_send(world, g, attempt->op == SYNC_OP_PUT ? REQ_PUT : REQ_DELETE, path);
    if (request == NULL)
        return;
    request->cond_absent = attempt->cond_absent;
    request->cond_etag = attempt->cond_etag;
    request->content = attempt->content;
    request->value = attempt->value;
    request->version = attempt->version;
    request->node = attempt->node;
    request->free_of_conditions = worker->checked;
    const struct node *node = node_at(&gateway->cur, path);
    request->at_home = node != NULL && node->place.kind == PLACE_KEY && node->place.at == path;
    attempt->sent_at = world->now;
    if (request->kind == REQ_PUT)
        ledger_sent(world, request);
    worker->stage = STAGE_SENT;
    if (worker->checked)
        ledger_sent_blind(world, request);
}

/* ---- answers ---- */

static void
answer_look(struct world *world, struct gateway *gateway, const struct request *request,
            enum sync_result result)
{
    struct intent *intent = &gateway->cur.intents[request->key];
    struct sync_answer answer = { .result = SYNC_RESULT_SEEN };
    int kept = 0;

    if (result != SYNC_RESULT_SEEN) {
        intent->not_before = world->now + 500;
        return;
    }
    observed_from(world, &request->seen, &answer.seen);
    judge(world, gateway, request->key, &answer, request->seen.rec);
    for (int i = 0; i < intent->late_count; i++) {
        if (intent->late[i].sent_at + LATE_MAX >= request->landed_at)
            intent->late[kept++] = intent->late[i];
    }
    intent->late_count = kept;
    intent->look_at = kept > 0 ? world->now + 10000 + (int64_t)world_pick(world, 90000) : 0;
}

static bool
same_place(const struct place *a, const struct place *b)
{
    return a->kind == b->kind && a->at == b->at && a->etag == b->etag;
}

/* Something else lies where the bytes were: when the row knows that already, they are lost. */
static void
fetch_refused(struct world *world, struct gateway *gateway, struct node *node)
{
    int key = node->place.at;
    const struct keyrow *row = &gateway->cur.keys[key];

    if (node->path != key && (!row->present || row->etag != node->place.etag)) {
        place_lost(world, gateway, node->id, key);
        commit(world, gateway, false);
        return;
    }
    touch(world, gateway, key);
    gateway->cur.intents[key].look_at = world->now;
}

static void
answer_fetch(struct world *world, struct gateway *gateway, const struct request *request,
             enum sync_result result)
{
    struct node *node = node_get(&gateway->cur, request->node);

    if (node == NULL)
        return;
    gateway->fetching[node_row(&gateway->cur, node)] = false;
    if (!same_place(&node->place, &request->from) || node->frozen >= 0 || node->live >= 0)
        return;
    if (result == SYNC_RESULT_REFUSED) {
        if (node->place.kind == PLACE_PARK) {
            violate(world, "the parked bytes of a file are gone");
            return;
        }
        fetch_refused(world, gateway, node);
    }
    if (result != SYNC_RESULT_DONE)
        return;
    int at = content_new(world, gateway, node);
    struct content *content = &gateway->cur.contents[at];
    content->state = CONTENT_CLEAN;
    content->flags = CONTENT_COMPLETE;
    content->version = node->base_version;
    content->value = request->seen.value;
    content->rec = node->rec;
    gateway->disk[at].value = request->seen.value;
    if (world_chance(world, 300))
        sync_content(gateway, at);
    node->frozen = at;
    world->counts[COUNT_FETCHED]++;
    commit(world, gateway, false);
}

static void
answer_park(struct world *world, struct gateway *gateway, const struct request *request,
            enum sync_result result)
{
    struct keyrow *row = &gateway->cur.keys[request->key];
    struct node *node = node_get(&gateway->cur, request->node);

    if (result == SYNC_RESULT_REFUSED)
        gateway->cur.intents[request->key].look_at = world->now;
    if (result != SYNC_RESULT_DONE)
        return;
    if (node == NULL || row->owner != node->id || !same_place(&node->place, &request->from))
        return;
    node->place = (struct place){ .kind = PLACE_PARK, .at = request->to, .etag = request->etag };
    row->owner = 0;
    row->discard = true;
    row->seq = ++gateway->cur.seq;
    world->counts[COUNT_PARKED]++;
    commit(world, gateway, false);
}

static void
answer_keep(struct world *world, struct gateway *gateway, const struct request *request,
            enum sync_result result)
{
    struct keyrow *row = &gateway->cur.keys[request->key];

    if (result == SYNC_RESULT_REFUSED)
        gateway->cur.intents[request->key].look_at = world->now;
    if (result != SYNC_RESULT_DONE) {
        gateway->cur.intents[request->key].not_before =
            world->now + (int64_t)world_pick(world, 3000);
        return;
    }
    world->counts[COUNT_PRESERVED]++;
    if (!row->present || row->etag != request->from.etag)
        return;
    row->kept = true;
    row->seq = ++gateway->cur.seq;
    commit(world, gateway, false);
}

static void
answer_move(struct world *world, struct gateway *gateway, const struct request *request,
            enum sync_result result)
{
    struct node *node = node_get(&gateway->cur, request->node);
    struct sync_effect effect = { .bits = SYNC_SET_HAVE | SYNC_SYNCED, .node = request->node };

    if (result != SYNC_RESULT_DONE || node == NULL)
        return;
    effect.have = (struct sync_have){ .present = true, .owner = node->id };
    text_etag(world, request->etag, effect.have.etag);
    text_version(node->base_version, effect.have.version);
    text_version(node->base_version, effect.version);
    driver_apply(world, gateway, request->key, &effect, request->version);
}

void
driver_answer(struct world *world, struct request *request, enum sync_result result)
{
    struct gateway *gateway = &world->gateways[request->gateway];
    struct sync_answer answer = { .result = result };

    if (request->key >= 0)
        gateway->workers[request->key].stage = STAGE_IDLE;
    switch (request->kind) {
    case REQ_HEAD:
        answer_look(world, gateway, request, result);
        break;
    case REQ_GET:
        answer_fetch(world, gateway, request, result);
        break;
    case REQ_COPY:
        answer_park(world, gateway, request, result);
        break;
    case REQ_KEEP:
        answer_keep(world, gateway, request, result);
        break;
    case REQ_MOVE:
        answer_move(world, gateway, request, result);
        break;
    default:
        text_etag(world, request->etag, answer.etag);
        judge(world, gateway, request->key, &answer, request->version);
        break;
    }
}
