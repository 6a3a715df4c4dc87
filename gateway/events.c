#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/text.h"
#include "gateway/router.h"

/* What changes, for who follows: a stream of server-sent events (the WHATWG's HTML standard, section 9.2), or a document at a time. */

#define BEAT_NS \
    (15 * NS_PER_S) /* proxies end what is silent, and so it is found out that nobody listens */
#define STREAM_ITEMS 256u
#define PAGE_ITEMS 1000u
#define WAIT_MOST 25u

struct follow {
    struct feed *feed;
    struct feed_query query;
    char volume[LIMIT_VOLUME_NAME + 1];
    char folder[LIMIT_PATH + 1];
    const struct gateway *gateway;
    char token[ULID_SIZE]; /* whose stream it is; "": the owner's */
    struct buf out;        /* not taken by the connection yet */
    size_t taken;
};

/* ---- what is asked for ---- */
static int
read_since(struct exchange *x, uint64_t *since, struct err *err)
{
    const char *last = exchange_header(x, "Last-Event-ID");
    *since = FEED_NOW;
    if (last && !parse_u64(last, since))
        return err_set(err, ERR_INVAL, "Last-Event-ID must be a number");
    return exchange_query_uint(x, "since", since, err);
}

static int
read_filter(struct exchange *x, struct follow *follow, struct err *err)
{
    struct volume_info info;
    scope_buf name;
    buf_init(&name, sizeof(follow->volume));
    if (gateway_request_query(&x->target, "volume", &name, err) < 0 ||
        gateway_tree_prefix(x, follow->folder, err) < 0)
        return -1;
    text_set(follow->volume, buf_cstr(&name));
    if (x->access.volume != 0 && follow->volume[0] == '\0') {
        text_set(follow->volume, x->access.volume_name);
        if (follow->folder[0] == '\0')
            text_set(follow->folder, x->access.folder);
    }
    if (gateway_access_reaches(&x->access, follow->volume, follow->folder, err) < 0)
        return -1;
    text_set(follow->token, x->access.id);
    follow->query.volume = follow->volume;
    follow->query.folder = follow->folder;
    if (follow->folder[0] != '\0' && follow->volume[0] == '\0')
        return err_set(err, ERR_INVAL, "the parameter 'prefix' goes with 'volume'");
    return follow->volume[0] != '\0' ? volume_find(x->gateway->service, follow->volume, &info, err)
                                     : 0;
}

/* ---- a stream ---- */
static int
add_event(void *arg, const struct feed_item *item, struct err *err)
{
    struct follow *follow = arg;
    return buf_appendf(&follow->out, err, "id: %llu\nevent: %s\ndata: %s\n\n",
                       (unsigned long long)item->seq, item->type, item->line);
}

static int
add_gap(struct follow *follow, struct err *err)
{
    return buf_appendf(&follow->out, err, "event: gap\ndata: {\"first_seq\":%llu}\n\n",
                       (unsigned long long)follow->query.first);
}

static int
fill_stream(struct follow *follow, struct err *err)
{
    buf_clear(&follow->out);
    follow->taken = 0;
    follow->query.limit = STREAM_ITEMS;
    if (feed_read(follow->feed, &follow->query, clock_mono_ns() + BEAT_NS, add_event, follow, err) <
        0)
        return -1;
    /* What happens after a token was revoked is not for it. */
    if (follow->token[0] != '\0' && gateway_tokens_check(follow->gateway, follow->token, err) < 0)
        return -1;
    if (follow->query.gap) { /* it stands before what was told now */
        scope_buf items = follow->out;
        buf_init(&follow->out, items.max);
        if (add_gap(follow, err) < 0 || buf_append(&follow->out, items.data, items.len, err) < 0)
            return -1;
    }
    if (follow->out.len > 0 || feed_ends(follow->feed))
        return 0;
    return buf_append_str(&follow->out, ":\n\n", err);
}

static ssize_t
stream_read(void *arg, uint64_t off, void *out, size_t max, struct err *err)
{
    struct follow *follow = arg;
    (void)off;
    if (follow->taken == follow->out.len && fill_stream(follow, err) < 0)
        return -1;
    size_t left = follow->out.len - follow->taken;
    size_t len = left < max ? left : max;
    memcpy(out, buf_cstr(&follow->out) + follow->taken, len);
    follow->taken += len;
    return (ssize_t)len;
}

static void
follow_free(void *arg)
{
    struct follow *follow = arg;
    buf_release(&follow->out);
    free(follow);
}

static int
reply_stream(struct exchange *x, struct follow **follow, struct err *err)
{
    /* Begins at once: who connects is to see that it is open. */
    if (buf_append_str(&(*follow)->out, "retry: 2000\n:\n\n", err) < 0 ||
        exchange_reply_header(x, "Content-Type", err, "text/event-stream") < 0 ||
        exchange_reply_header(x, "Cache-Control", err, "no-store") < 0 ||
        exchange_reply_header(x, "X-Accel-Buffering", err, "no") < 0)
        return -1;
    x->reply.stream = (struct exchange_stream){ .read = stream_read,
                                                .free = follow_free,
                                                .arg = steal(follow),
                                                .size = EXCHANGE_SIZE_UNKNOWN };
    x->reply.status = 200;
    return 0;
}

/* ---- a document ---- */
static int
add_line(void *arg, const struct feed_item *item, struct err *err)
{
    struct exchange_list *list = arg;
    json_t *json = json_parse(item->line, strlen(item->line), err);
    int rc = json ? exchange_list_add(list, json, err) : -1;
    return rc > 0 ? err_set(err, ERR_INTERNAL, "a page of events is too large") : rc;
}

static int
reply_page(struct exchange *x, struct follow *follow, struct err *err)
{
    uint64_t wait = 0, limit = PAGE_ITEMS;
    if (exchange_query_uint(x, "wait", &wait, err) < 0 ||
        exchange_query_uint(x, "limit", &limit, err) < 0)
        return -1;
    if (limit < 1 || limit > PAGE_ITEMS || wait > WAIT_MOST)
        return err_set(err, ERR_INVAL, "'limit' is 1 to %u, 'wait' at most %u", PAGE_ITEMS,
                       WAIT_MOST);
    struct exchange_list list = { .items = json_array(),
                                  .limit = limit,
                                  .room = EXCHANGE_LIST_ROOM };
    scope_json *items = list.items;
    if (!items)
        return err_nomem(err);
    follow->query.limit = (size_t)limit;
    if (feed_read(x->gateway->feed, &follow->query, clock_mono_ns() + (int64_t)wait * NS_PER_S,
                  add_line, &list, err) < 0)
        return -1;
    return exchange_reply_json(
        x, 200,
        json_pack("{s:O, s:I, s:I, s:b}", "events", items, "next", (json_int_t)follow->query.since,
                  "first_seq", (json_int_t)follow->query.first, "gap", (int)follow->query.gap),
        err);
}

static void
follow_free_ptr(struct follow **follow)
{
    if (*follow)
        follow_free(*follow);
}

int
gateway_events(struct exchange *x, struct err *err)
{
    bool stream = true;
    scope(follow_free_ptr) struct follow *follow = calloc(1, sizeof(*follow));
    if (!follow)
        return err_nomem(err);
    follow->gateway = x->gateway;
    follow->feed = x->gateway->feed;
    buf_init(&follow->out, 4u << 20);
    if (read_since(x, &follow->query.since, err) < 0 || read_filter(x, follow, err) < 0 ||
        exchange_query_bool(x, "follow", &stream, err) < 0)
        return -1;
    return stream ? reply_stream(x, &follow, err) : reply_page(x, follow, err);
}
