#include "gateway/edit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "gateway/router.h"

/* Files changed in places, and copied, each under the version that was seen. */

#define DIFF_MAX (1u << 20)
#define WAIT_SECONDS 30

/* ---- the list of edits ---- */
static int
take_text(const json_t *item, const char *field, const char **text, size_t *len, struct err *err)
{
    const json_t *value = json_object_get(item, field);
    if (value == NULL || json_is_null(value))
        return 0;
    if (!json_is_string(value))
        return err_set(err, ERR_INVAL, "'%s' must be a text", field);
    *text = json_string_value(value);
    *len = json_string_length(value);
    return 1;
}

static int
parse_one(const json_t *item, struct edit *edit, struct err *err)
{
    static const char *const known[] = { "old", "new", "all", "at", NULL };
    const char *at = NULL;
    if (!json_is_object(item))
        return err_set(err, ERR_INVAL, "an edit is an object with 'old' and 'new'");
    if (exchange_known_fields(item, known, err) < 0 ||
        json_opt_bool(item, "all", &edit->all, err) < 0 || json_opt_str(item, "at", &at, err) < 0)
        return -1;
    int old = take_text(item, "old", &edit->old, &edit->old_len, err);
    int text = old < 0 ? -1 : take_text(item, "new", &edit->text, &edit->text_len, err);
    if (text < 0)
        return -1;
    if (text == 0)
        return err_set(err, ERR_INVAL, "'new' is missing");
    if ((old > 0) == (at != NULL))
        return err_set(err, ERR_INVAL, "either 'old' or 'at' says where");
    if (at == NULL)
        return 0;
    if (strcmp(at, "start") != 0 && strcmp(at, "end") != 0)
        return err_set(err, ERR_INVAL, "'at' must be start or end");
    edit->at = strcmp(at, "start") == 0 ? EDIT_START : EDIT_END;
    return 0;
}

int
gateway_edit_parse(const json_t *list, struct edit **out, size_t *count, struct err *err)
{
    size_t i;
    json_t *item;
    size_t size = json_array_size(list);
    if (!json_is_array(list) || size < 1 || size > EDITS_MAX)
        return err_set(err, ERR_INVAL, "'edits' must be a list of 1 to %u edits", EDITS_MAX);
    scope_free struct edit *edits = calloc(size, sizeof(*edits));
    if (edits == NULL)
        return err_nomem(err);
    json_array_foreach ((json_t *)(uintptr_t)list, i, item) {
        if (parse_one(item, &edits[i], err) < 0)
            return err_wrap(err, "edit %zu", i + 1);
    }
    *out = steal(&edits);
    *count = size;
    return 0;
}

/* ---- edit ---- */
static int
read_path(const json_t *body, const char *field, char out[LIMIT_PATH + 1], struct err *err)
{
    const char *text;
    if (json_need_str(body, field, &text, err) < 0)
        return -1;
    if (path_normalize(text, strlen(text), out, LIMIT_PATH + 1, err) < 0)
        return err_wrap(err, "%s", field);
    return out[0] != '\0' ? 0 : err_set(err, ERR_INVAL, "%s: a file is meant", field);
}

/* What a program needs to try again: which edit, where, and what is there now. */
static int
tell_failure(struct exchange *x, const struct volume_edited *edited, const struct err *err)
{
    const struct edits_result *result = &edited->result;
    struct err ignored = ERR_INIT;
    json_t *extra = json_object();
    json_t *lines = json_array();
    int rc = extra && lines ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < EDITS_LINES && result->lines[i] != 0; i++)
        rc = json_array_append_new(lines, json_integer((json_int_t)result->lines[i]));
    if (rc == 0 && result->reason != EDITS_OK)
        rc = json_object_set_new(extra, "reason", json_string(edits_reason_word(result->reason)));
    if (rc == 0 && result->edit != 0)
        rc = json_object_set_new(extra, "edit", json_integer((json_int_t)result->edit));
    if (rc == 0 && result->reason == EDITS_AMBIGUOUS)
        rc = json_object_set_new(extra, "found", json_integer((json_int_t)result->found));
    if (rc == 0 && result->edit != 0)
        rc = json_object_set(extra, "lines", lines);
    if (rc == 0 && err->code == ERR_CONFLICT && edited->attr.version[0] != '\0')
        rc = json_object_set_new(extra, "current",
                                 json_pack("{s:s, s:I}", "version", edited->attr.version, "size",
                                           (json_int_t)edited->attr.size));
    json_decref(lines);
    json_decref(x->extra);
    x->extra = rc == 0 ? extra : NULL;
    if (rc != 0)
        json_decref(extra);
    return rc == 0 ? 0 : err_nomem(&ignored);
}

static int
answer_edit(struct exchange *x, const struct volume_info *info, const struct volume_edit *want,
            const struct volume_edited *edited, struct err *err)
{
    bool written = !want->dry_run && !edited->unchanged;
    json_t *answer = json_pack(
        "{s:s, s:o, s:s, s:I, s:I, s:I, s:b, s:b, s:b, s:o, s:b}", "volume", info->name, "path",
        json_bytes(want->path, strlen(want->path)), "version", edited->attr.version, "size",
        (json_int_t)edited->attr.size, "replacements", (json_int_t)edited->result.replacements,
        "first_line", (json_int_t)edited->result.first_line, "unchanged", (int)edited->unchanged,
        "dry_run", (int)want->dry_run, "synced", (int)edited->attr.synced, "diff",
        json_bytes(buf_cstr(want->diff), want->diff->len), "truncated", (int)edited->cut);
    return exchange_reply_json(x, written && !edited->attr.synced ? 202 : 200, answer, err);
}

int
gateway_edit_op(struct exchange *x, const json_t *body, const struct volume_info *info,
                struct err *err)
{
    static const char *const known[] = { "op", "volume", "path", "base", "edits", "dry_run", NULL };
    char path[LIMIT_PATH + 1];
    scope_buf diff;
    scope_free struct edit *edits = NULL;
    struct volume_ctx ctx;
    struct volume_edited edited;
    struct volume_edit want = { .volume = info->id, .path = path, .diff = &diff };
    buf_init(&diff, DIFF_MAX);
    exchange_ctx(x, WAIT_SECONDS, &ctx);
    if (exchange_known_fields(body, known, err) < 0 || read_path(body, "path", path, err) < 0 ||
        json_opt_str(body, "base", &want.base, err) < 0 ||
        json_opt_bool(body, "dry_run", &want.dry_run, err) < 0 ||
        gateway_edit_parse(json_object_get(body, "edits"), &edits, &want.count, err) < 0)
        return -1;
    if (want.base == NULL)
        return err_set(err, ERR_PRECONDITION, "say which version the edits are meant for: 'base'");
    want.edits = edits;
    want.wait_synced = !exchange_prefers(x, "respond-async", NULL);
    if (volume_edit(x->gateway->service, &ctx, &want, &edited, err) < 0) {
        (void)tell_failure(x, &edited, err);
        return -1;
    }
    return answer_edit(x, info, &want, &edited, err);
}

/* ---- copy ---- */
int
gateway_edit_copy(struct exchange *x, const json_t *body, const struct volume_info *info,
                  struct err *err)
{
    static const char *const known[] = { "op", "volume", "from", "to", "base", "to_base", NULL };
    char from[LIMIT_PATH + 1];
    char to[LIMIT_PATH + 1];
    const char *to_base = NULL;
    struct volume_ctx ctx;
    struct volume_attr attr = { 0 };
    bool created = false;
    struct volume_copying want = { .volume = info->id, .from = from, .to = to };
    exchange_ctx(x, WAIT_SECONDS, &ctx);
    if (exchange_known_fields(body, known, err) < 0 || read_path(body, "from", from, err) < 0 ||
        read_path(body, "to", to, err) < 0 || json_opt_str(body, "base", &want.base, err) < 0 ||
        json_opt_str(body, "to_base", &to_base, err) < 0)
        return -1;
    if (to_base && (to_base[0] == '\0' || strlen(to_base) >= LIMIT_ETAG))
        return err_set(err, ERR_INVAL, "'to_base' must be a version");
    want.pre.kind = to_base ? PRECONDITION_MATCH : PRECONDITION_ABSENT;
    want.pre.count = to_base ? 1 : 0;
    (void)snprintf(want.pre.tag[0], LIMIT_ETAG, "%s", to_base ? to_base : "");
    want.wait_synced = !exchange_prefers(x, "respond-async", NULL);
    if (volume_copy_file(x->gateway->service, &ctx, &want, &attr, &created, err) < 0)
        return -1;
    const char *name = strrchr(to, '/');
    name = name ? name + 1 : to;
    return exchange_reply_json(x,
                               !attr.synced ? 202
                               : created    ? 201
                                            : 200,
                               gateway_tree_json(name, strlen(name), &attr), err);
}
