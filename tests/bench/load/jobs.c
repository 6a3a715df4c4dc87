#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "tests/bench/load/load.h"

/* One object between the server and one file, in pieces. */
struct pieces {
    const char *key;
    int fd;
    uint64_t size;
    uint64_t part;
    size_t count;
    const char *upload_id; /* escaped; NULL: one plain PUT */
    char (*etags)[160];
};

static void
cut(const struct load *load, struct pieces *pieces)
{
    uint64_t part = load->part;
    if (part == 0)
        part = (pieces->size + load->connections - 1) / load->connections;
    if (load->single || part == 0)
        part = pieces->size;
    pieces->part = part;
    pieces->count = part == 0 ? 1 : (size_t)((pieces->size + part - 1) / part);
}

static uint64_t
piece_len(const struct pieces *pieces, size_t item)
{
    uint64_t off = item * pieces->part;
    return pieces->size - off < pieces->part ? pieces->size - off : pieces->part;
}

/* ---- down ---- */
static int
get_piece(void *arg, struct worker *worker, size_t item, struct err *err)
{
    const struct pieces *pieces = arg;
    struct request request = request_of("GET", pieces->key, "");
    uint64_t len = piece_len(pieces, item);
    request.out_fd = pieces->fd;
    request.out_off = item * pieces->part;
    if (pieces->count > 1) {
        request.range_off = item * pieces->part;
        request.range_len = len;
    }
    if (worker_send(worker, &request, err) < 0)
        return -1;
    if (worker->answer.got != len)
        return err_set(err, ERR_STORE_BAD_ANSWER, "%llu bytes came, wanted %llu",
                       (unsigned long long)worker->answer.got, (unsigned long long)len);
    atomic_fetch_add(&worker->load->tally.bytes, len);
    return 0;
}

static int
ask_size(struct load *load, const char *key, uint64_t *size, struct err *err)
{
    struct worker worker;
    struct request request = request_of("HEAD", key, "");
    int result = worker_init(&worker, load, true, err);
    if (result == 0)
        result = worker_send(&worker, &request, err);
    if (result == 0)
        *size = worker.answer.length;
    worker_release(&worker);
    return result;
}

static int
create_file(const char *file, struct err *err)
{
    int fd = open(file, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
    return fd < 0 ? err_sys(err, errno, "cannot make '%s'", file) : fd;
}

int
load_get(struct load *load, const char *key, const char *file, struct err *err)
{
    struct pieces pieces = { .key = key };
    scope_fd int fd = create_file(file, err);
    if (fd < 0)
        return -1;
    load->tally.began_ns = clock_mono_ns();
    if (ask_size(load, key, &pieces.size, err) < 0)
        return -1;
    pieces.fd = fd;
    cut(load, &pieces);
    if (workers_run(load, true, pieces.count, get_piece, &pieces, err) < 0)
        return -1;
    load->tally.ended_ns = clock_mono_ns();
    return 0;
}

/* ---- up ---- */
static int
put_piece(void *arg, struct worker *worker, size_t item, struct err *err)
{
    struct pieces *pieces = arg;
    char query[512] = "";
    struct request request = request_of("PUT", pieces->key, query);
    request.in_fd = pieces->fd;
    request.in_off = item * pieces->part;
    request.in_len = piece_len(pieces, item);
    request.if_absent = worker->load->if_absent && !pieces->upload_id;
    if (pieces->upload_id)
        (void)snprintf(query, sizeof(query), "partNumber=%zu&uploadId=%s", item + 1,
                       pieces->upload_id);
    if (worker_send(worker, &request, err) < 0)
        return -1;
    memcpy(pieces->etags[item], worker->answer.etag, sizeof(pieces->etags[item]));
    atomic_fetch_add(&worker->load->tally.bytes, request.in_len);
    return 0;
}

/* The text of the first <tag> from `at`; NULL when there is none. */
static const char *
tag_text(const char *at, const char *tag, size_t *len)
{
    size_t name = strlen(tag);
    for (const char *open = strchr(at, '<'); open; open = strchr(open + 1, '<')) {
        if (strncmp(open + 1, tag, name) != 0 || open[1 + name] != '>')
            continue;
        const char *text = open + name + 2;
        const char *end = strchr(text, '<');
        if (!end)
            return NULL;
        *len = (size_t)(end - text);
        return text;
    }
    return NULL;
}

static int
begin_upload(struct worker *worker, const char *key, struct buf *id, struct err *err)
{
    size_t len;
    struct request request = request_of("POST", key, "uploads=");
    if (worker_send(worker, &request, err) < 0)
        return -1;
    const char *text = tag_text(buf_cstr(&worker->answer.body), "UploadId", &len);
    if (!text)
        return err_set(err, ERR_STORE_BAD_ANSWER, "no upload id in the answer");
    return percent_encode(text, len, false, id, err);
}

static int
complete_upload(struct worker *worker, const struct pieces *pieces, struct err *err)
{
    char query[512];
    scope_buf xml;
    buf_init(&xml, 8 << 20);
    if (buf_append_str(&xml, "<CompleteMultipartUpload>", err) < 0)
        return -1;
    for (size_t i = 0; i < pieces->count; i++)
        if (buf_appendf(&xml, err, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag></Part>",
                        i + 1, pieces->etags[i]) < 0)
            return -1;
    if (buf_append_str(&xml, "</CompleteMultipartUpload>", err) < 0)
        return -1;
    (void)snprintf(query, sizeof(query), "uploadId=%s", pieces->upload_id);
    struct request request = request_of("POST", pieces->key, query);
    request.mem = xml.data;
    request.in_len = xml.len;
    if (worker_send(worker, &request, err) < 0)
        return -1;
    if (strstr(buf_cstr(&worker->answer.body), "<Error"))
        return err_set(err, ERR_STORE_BAD_ANSWER, "the upload was not completed: %.200s",
                       buf_cstr(&worker->answer.body));
    return 0;
}

static int
put_in_parts(struct load *load, struct pieces *pieces, struct err *err)
{
    struct worker worker;
    scope_buf id;
    buf_init(&id, 400);
    int result = worker_init(&worker, load, true, err);
    if (result == 0)
        result = begin_upload(&worker, pieces->key, &id, err);
    if (result == 0) {
        pieces->upload_id = buf_cstr(&id);
        result = workers_run(load, true, pieces->count, put_piece, pieces, err);
    }
    if (result == 0)
        result = complete_upload(&worker, pieces, err);
    worker_release(&worker);
    return result;
}

static int
open_sized(const char *file, uint64_t *size, struct err *err)
{
    struct stat st;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        int sys = errno;
        scope_close_fd(&fd);
        return err_sys(err, sys, "cannot open '%s'", file);
    }
    *size = (uint64_t)st.st_size;
    return fd;
}

int
load_put(struct load *load, const char *file, const char *key, struct err *err)
{
    struct pieces pieces = { .key = key };
    load->tally.began_ns = clock_mono_ns();
    scope_fd int fd = open_sized(file, &pieces.size, err);
    if (fd < 0)
        return -1;
    pieces.fd = fd;
    cut(load, &pieces);
    scope_free void *etags = calloc(pieces.count, sizeof(*pieces.etags));
    if (!etags)
        return err_nomem(err);
    pieces.etags = etags;
    int result = load->single ? workers_run(load, true, pieces.count, put_piece, &pieces, err)
                              : put_in_parts(load, &pieces, err);
    load->tally.ended_ns = clock_mono_ns();
    return result;
}

/* ---- many ---- */
struct many {
    const char *dir;
    const char *prefix;
    struct names names; /* of files, or whole keys */
};

/* One page of a listing in; `token` is the escaped continuation, empty at the end. */
static int
list_page(struct worker *worker, const char *prefix, struct buf *token, struct names *names,
          struct err *err)
{
    size_t len;
    scope_buf query;
    buf_init(&query, 4096);
    if ((token->len > 0 &&
         buf_appendf(&query, err, "continuation-token=%s&", buf_cstr(token)) < 0) ||
        buf_append_str(&query, "list-type=2&prefix=", err) < 0 ||
        percent_encode(prefix, strlen(prefix), false, &query, err) < 0)
        return -1;
    struct request request = request_of("GET", "", buf_cstr(&query));
    if (worker_send(worker, &request, err) < 0)
        return -1;
    const char *at = buf_cstr(&worker->answer.body);
    for (const char *key = tag_text(at, "Key", &len); key; key = tag_text(key, "Key", &len))
        if (names_add(names, key, len, err) < 0)
            return -1;
    buf_clear(token);
    const char *next = tag_text(at, "NextContinuationToken", &len);
    return next ? percent_encode(next, len, false, token, err) : 0;
}

static int
list_keys(struct load *load, const char *prefix, struct names *names, struct err *err)
{
    struct worker worker;
    scope_buf token;
    buf_init(&token, 4096);
    int result = worker_init(&worker, load, true, err);
    do {
        if (result == 0)
            result = list_page(&worker, prefix, &token, names, err);
    } while (result == 0 && token.len > 0);
    worker_release(&worker);
    return result;
}

static int
get_one(void *arg, struct worker *worker, size_t item, struct err *err)
{
    const struct many *many = arg;
    char path[PATH_MAX];
    const char *key = many->names.list[item];
    const char *slash = strrchr(key, '/');
    struct request request = request_of("GET", key, "");
    if (slash && !slash[1])
        return 0; /* a directory marker */
    int len = snprintf(path, sizeof(path), "%s/%s", many->dir, slash ? slash + 1 : key);
    if (len < 0 || (size_t)len >= sizeof(path))
        return err_set(err, ERR_NAME_TOO_LONG, "the name '%s' is too long", key);
    scope_fd int fd = create_file(path, err);
    if (fd < 0)
        return -1;
    request.out_fd = fd;
    if (worker_send(worker, &request, err) < 0)
        return -1;
    atomic_fetch_add(&worker->load->tally.bytes, worker->answer.got);
    return 0;
}

static int
delete_one(void *arg, struct worker *worker, size_t item, struct err *err)
{
    const struct many *many = arg;
    struct request request = request_of("DELETE", many->names.list[item], "");
    return worker_send(worker, &request, err);
}

static int
put_one(void *arg, struct worker *worker, size_t item, struct err *err)
{
    const struct many *many = arg;
    char path[PATH_MAX];
    char key[1100];
    const char *name = many->names.list[item];
    int len = snprintf(path, sizeof(path), "%s/%s", many->dir, name);
    int key_len = snprintf(key, sizeof(key), "%s%s", many->prefix, name);
    if (len < 0 || (size_t)len >= sizeof(path) || key_len < 0 || (size_t)key_len >= sizeof(key))
        return err_set(err, ERR_NAME_TOO_LONG, "the name '%s' is too long", name);
    struct request request = request_of("PUT", key, "");
    scope_fd int fd = open_sized(path, &request.in_len, err);
    if (fd < 0)
        return -1;
    request.in_fd = fd;
    request.if_absent = worker->load->if_absent;
    if (worker_send(worker, &request, err) < 0)
        return -1;
    atomic_fetch_add(&worker->load->tally.bytes, request.in_len);
    return 0;
}

static int
run_many(struct load *load, struct many *many, item_fn *fn, struct err *err)
{
    int result = workers_run(load, true, many->names.count, fn, many, err);
    load->tally.ended_ns = clock_mono_ns();
    names_release(&many->names);
    return result;
}

int
load_get_many(struct load *load, const char *prefix, const char *dir, struct err *err)
{
    struct many many = { .dir = dir, .prefix = prefix };
    load->tally.began_ns = clock_mono_ns();
    if (list_keys(load, prefix, &many.names, err) < 0) {
        names_release(&many.names);
        return -1;
    }
    return run_many(load, &many, get_one, err);
}

int
load_delete_many(struct load *load, const char *prefix, struct err *err)
{
    struct many many = { .prefix = prefix };
    load->tally.began_ns = clock_mono_ns();
    if (list_keys(load, prefix, &many.names, err) < 0) {
        names_release(&many.names);
        return -1;
    }
    return run_many(load, &many, delete_one, err);
}

int
load_put_many(struct load *load, const char *dir, const char *prefix, struct err *err)
{
    struct many many = { .dir = dir, .prefix = prefix };
    load->tally.began_ns = clock_mono_ns();
    if (names_of_dir(&many.names, dir, err) < 0) {
        names_release(&many.names);
        return -1;
    }
    return run_many(load, &many, put_one, err);
}
