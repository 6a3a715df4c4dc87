#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/text.h"
#include "gateway/router.h"

/* Tokens: made, listed, revoked by the owner; looked up at each request, so that a revoked one is none from that moment on. */

#define PREFIX "hft_" /* so that scanners of code and logs know what they have found */
#define SECRET_BYTES 24
#define SECRET_LEN (sizeof(PREFIX) - 1 + 2 * (size_t)SECRET_BYTES)
#define EXPIRES_DEFAULT_S 86400
#define EXPIRES_MOST_S (10ll * 366 * 86400)
#define FORGET_AFTER (7ll * 86400 * NS_PER_S) /* how long an ended one stays in the list */

static int
hash_secret(const char *secret, char out[SHA256_HEX], struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    if (sha256(secret, strlen(secret), digest, err) < 0)
        return -1;
    hex_encode(digest, sizeof(digest), out);
    return 0;
}

/* ---- at each request ---- */

struct lookup {
    char hash[SHA256_HEX];
    struct index_token row;
    struct index_volume volume;
};

static int
lookup_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct lookup *call = arg;
    if (index_token_find(tx, call->hash, &call->row, err) != 0)
        return -1;
    return call->row.volume != 0 ? index_volume_get(tx, call->row.volume, &call->volume, err) : 0;
}

static void
fill_access(const struct lookup *call, struct gateway_access *out)
{
    const struct index_token *row = &call->row;
    memset(out, 0, sizeof(*out));
    out->who = GATEWAY_TOKEN;
    out->verbs = row->verbs;
    out->volume = row->volume;
    out->expires_ns = row->expires_ns;
    text_set(out->volume_name, row->volume != 0 ? call->volume.name : "");
    text_set(out->folder, row->folder);
    text_set(out->id, row->id);
    text_set(out->label, row->label);
    text_set(out->run, row->run);
    (void)snprintf(out->actor, sizeof(out->actor), "token:%.56s",
                   row->label[0] != '\0' ? row->label : row->id);
}

int
gateway_tokens_login(struct exchange *x, const char *secret, struct err *err)
{
    struct err missing = ERR_INIT;
    scope_free struct lookup *call = calloc(1, sizeof(*call));
    if (!call)
        return err_nomem(err);
    if (strlen(secret) != SECRET_LEN || strncmp(secret, PREFIX, sizeof(PREFIX) - 1) != 0)
        return err_set(err, ERR_UNAUTHENTICATED, "the token is wrong");
    if (hash_secret(secret, call->hash, err) < 0)
        return -1;
    if (index_read(volume_service_index(x->gateway->service), lookup_tx, call, &missing) != 0) {
        if (missing.code != ERR_NOT_FOUND)
            return err_set(err, missing.code, "%s", missing.msg);
        return err_set(err, ERR_UNAUTHENTICATED,
                       "the token is wrong, or was revoked: ask the owner for another one");
    }
    if (!hash_equal(call->hash, call->row.hash, SHA256_HEX - 1))
        return err_set(err, ERR_INTERNAL, "the index answered with another token");
    if (call->row.expires_ns != 0 && call->row.expires_ns <= clock_wall_ns())
        return err_set(err, ERR_UNAUTHENTICATED,
                       "the token has expired: ask the owner for another one");
    fill_access(call, &x->access);
    return 0;
}

struct check {
    const char *id;
    struct index_token row;
};

static int
check_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct check *call = arg;
    return index_token_get(tx, call->id, &call->row, err);
}

int
gateway_tokens_check(const struct gateway *gateway, const char *id, struct err *err)
{
    struct check call = { .id = id };
    if (index_read(volume_service_index(gateway->service), check_tx, &call, err) != 0)
        return -1;
    if (call.row.expires_ns != 0 && call.row.expires_ns <= clock_wall_ns())
        return err_set(err, ERR_UNAUTHENTICATED, "the token has expired");
    return 0;
}

/* ---- JSON ---- */

static json_t *
time_or_null(int64_t wall_ns)
{
    char text[TIME_RFC3339_SIZE];
    if (wall_ns == 0)
        return json_null();
    time_rfc3339(wall_ns, text, sizeof(text));
    return json_string(text);
}

static json_t *
text_or_null(const char *text)
{
    return text[0] != '\0' ? json_bytes(text, strlen(text)) : json_null();
}

static json_t *
token_json(const struct index_token *row, const char *volume)
{
    bool ended = row->expires_ns != 0 && row->expires_ns <= clock_wall_ns();
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "id", row->id, "label",
                     text_or_null(row->label), "volume", text_or_null(volume), "folder",
                     text_or_null(row->folder), "allow", gateway_verbs_json(row->verbs), "run",
                     text_or_null(row->run), "created", time_or_null(row->created_ns), "expires",
                     time_or_null(row->expires_ns), "expired", (int)ended);
}

int
gateway_tokens_me(struct exchange *x, struct err *err)
{
    static const char *const words[] = { [GATEWAY_LOCAL] = "socket",
                                         [GATEWAY_OWNER] = "token-file",
                                         [GATEWAY_SESSION] = "session",
                                         [GATEWAY_TOKEN] = "token" };
    const struct gateway_access *a = &x->access;
    return exchange_reply_json(
        x, 200,
        json_pack("{s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "login", words[a->who],
                  "owner", (int)gateway_access_is_owner(a), "id", text_or_null(a->id), "label",
                  text_or_null(a->label), "volume", text_or_null(a->volume_name), "folder",
                  text_or_null(a->folder), "allow", gateway_verbs_json(a->verbs), "run",
                  text_or_null(a->run), "expires", time_or_null(a->expires_ns), "actor", a->actor),
        err);
}

/* ---- listed ---- */

struct listing {
    struct exchange_list list;
    struct index_tx *tx;
};

static int
add_token(void *arg, const struct index_token *row, struct err *err)
{
    struct listing *listing = arg;
    struct index_volume volume = { .name = "" };
    if (row->volume != 0 && index_volume_get(listing->tx, row->volume, &volume, err) != 0)
        return -1;
    return exchange_list_add(&listing->list, token_json(row, volume.name), err) < 0 ? -1 : 0;
}

static int
list_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct listing *listing = arg;
    listing->tx = tx;
    return index_token_each(tx, add_token, listing, err);
}

int
gateway_tokens_list(struct exchange *x, struct err *err)
{
    scope_json *items = json_array();
    struct listing listing = {
        .list = { .items = items, .limit = UINT64_MAX, .room = EXCHANGE_LIST_ROOM }
    };
    if (!items)
        return err_nomem(err);
    if (index_read(volume_service_index(x->gateway->service), list_tx, &listing, err) != 0)
        return -1;
    return exchange_reply_json(
        x, 200, json_pack("{s:O, s:b}", "tokens", items, "truncated", (int)listing.list.truncated),
        err);
}

/* ---- made ---- */

static int
read_verbs(const json_t *body, uint32_t *out, struct err *err)
{
    const json_t *list = json_object_get(body, "allow");
    *out = list ? 0 : GATEWAY_READ;
    if (list && (!json_is_array(list) || json_array_size(list) == 0))
        return err_set(err, ERR_INVAL, "'allow' must be a list, as in [\"read\", \"write\"]");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *word = json_string_value(json_array_get(list, i));
        unsigned verb = word ? gateway_verb_parse(word, strlen(word)) : 0;
        if (verb == 0)
            return err_set(err, ERR_INVAL,
                           "'allow' takes read, write, delete, share, mount, exec and admin, not "
                           "'%s'",
                           word ? word : "?");
        *out |= verb;
    }
    return 0;
}

static int
read_place(struct exchange *x, const json_t *body, struct index_token *row,
           struct volume_info *info, struct err *err)
{
    const char *volume = NULL;
    const char *folder = "";
    memset(info, 0, sizeof(*info));
    if (json_opt_str(body, "volume", &volume, err) < 0 ||
        json_opt_str(body, "folder", &folder, err) < 0)
        return -1;
    if (path_normalize(folder, strlen(folder), row->folder, sizeof(row->folder), err) < 0)
        return err_wrap(err, "folder");
    if (!volume)
        return row->folder[0] == '\0' ? 0 : err_set(err, ERR_INVAL, "a folder is one of a volume");
    if (volume_find(x->gateway->service, volume, info, err) < 0)
        return -1;
    row->volume = info->id;
    return 0;
}

static int
read_rest(const json_t *body, struct index_token *row, struct err *err)
{
    const char *label = "";
    const char *run = "";
    int64_t seconds = EXPIRES_DEFAULT_S;
    if (json_opt_str(body, "label", &label, err) < 0 || json_opt_str(body, "run", &run, err) < 0 ||
        json_opt_int(body, "expires_s", &seconds, err) < 0)
        return -1;
    if (strlen(label) > LIMIT_LABEL)
        return err_set(err, ERR_INVAL, "a label has at most %d bytes", LIMIT_LABEL);
    for (const char *c = label; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return err_set(err, ERR_INVAL, "a label holds no control characters");
    }
    if (run[0] != '\0' && !ulid_valid(run))
        return err_set(err, ERR_INVAL, "a run's id is a ULID");
    if (seconds < 0 || seconds > EXPIRES_MOST_S)
        return err_set(err, ERR_INVAL, "expires_s must be 1 to %lld, or 0 for never",
                       (long long)EXPIRES_MOST_S);
    text_set(row->label, label);
    text_set(row->run, run);
    row->created_ns = clock_wall_ns();
    row->expires_ns = seconds > 0 ? row->created_ns + seconds * NS_PER_S : 0;
    return 0;
}

static int
make_secret(struct index_token *row, char out[SECRET_LEN + 1], struct err *err)
{
    uint8_t random[SECRET_BYTES];
    if (random_bytes(random, sizeof(random), err) < 0 || ulid_new(row->id, err) < 0)
        return -1;
    memcpy(out, PREFIX, sizeof(PREFIX) - 1);
    hex_encode(random, sizeof(random), out + sizeof(PREFIX) - 1);
    return hash_secret(out, row->hash, err);
}

static int
create_tx(struct index_tx *tx, void *arg, struct err *err)
{
    const struct index_token *row = arg;
    struct index_volume volume;
    if (row->volume != 0 && index_volume_get(tx, row->volume, &volume, err) != 0)
        return -1;
    if (index_token_forget(tx, row->created_ns - FORGET_AFTER, err) != 0)
        return -1;
    return index_token_insert(tx, row, err);
}

int
gateway_tokens_create(struct exchange *x, struct err *err)
{
    static const char *const known[] = { "volume",    "folder", "allow", "label",
                                         "expires_s", "run",    NULL };
    struct volume_info info;
    char secret[SECRET_LEN + 1];
    struct index_token row;
    scope_json *body = exchange_json(x, err);
    memset(&row, 0, sizeof(row));
    if (!body || exchange_known_fields(body, known, err) < 0 ||
        read_verbs(body, &row.verbs, err) < 0 || read_place(x, body, &row, &info, err) < 0 ||
        read_rest(body, &row, err) < 0 || make_secret(&row, secret, err) < 0)
        return -1;
    if (index_write(volume_service_index(x->gateway->service), INDEX_FULL, create_tx, &row, err) !=
        0)
        return -1;
    json_t *answer = token_json(&row, info.name);
    if (answer && json_object_set_new(answer, "token", json_string(secret)) < 0) {
        json_decref(answer);
        return err_nomem(err);
    }
    if (exchange_reply_header(x, "Cache-Control", err, "no-store") < 0) {
        json_decref(answer);
        return -1;
    }
    return exchange_reply_json(x, 201, answer, err);
}

/* ---- revoked ---- */

static int
revoke_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_token_delete(tx, arg, err);
}

int
gateway_tokens_revoke(struct exchange *x, struct err *err)
{
    if (index_write(volume_service_index(x->gateway->service), INDEX_FULL, revoke_tx, x->name,
                    err) != 0)
        return -1;
    return exchange_reply_json(x, 200, json_pack("{s:s, s:b}", "id", x->name, "revoked", 1), err);
}
