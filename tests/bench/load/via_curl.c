#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/scope.h"
#include "tests/bench/load/load.h"

struct line {
    const struct endpoint *endpoint;
    CURL *easy;
    struct buf sign;
    /* The request under way. */
    const struct request *request;
    struct answer *answer;
    uint64_t sent;
    struct err err; /* of a callback; code 0: none */
    bool failed;
};

static void *
line_open(const struct endpoint *endpoint, struct err *err)
{
    struct line *line = calloc(1, sizeof(*line));
    if (!line || !(line->easy = curl_easy_init())) {
        free(line);
        (void)err_nomem(err);
        return NULL;
    }
    line->endpoint = endpoint;
    buf_init(&line->sign, 8192);
    return line;
}

static void
line_close(void *conn)
{
    struct line *line = conn;
    if (!line)
        return;
    curl_easy_cleanup(line->easy);
    buf_release(&line->sign);
    free(line);
}

static size_t
take_body(char *data, size_t unit, size_t count, void *arg)
{
    struct line *line = arg;
    struct answer *answer = line->answer;
    size_t len = unit * count;
    long status = 0;
    (void)curl_easy_getinfo(line->easy, CURLINFO_RESPONSE_CODE, &status);
    if (line->request->out_fd < 0 || status / 100 != 2) {
        line->failed = buf_append(&answer->body, data, len, &line->err) < 0;
        return line->failed ? 0 : len;
    }
    size_t done = 0;
    while (done < len) {
        ssize_t n = pwrite(line->request->out_fd, data + done, len - done,
                           (off_t)(line->request->out_off + answer->got));
        if (n <= 0) {
            line->failed = true;
            (void)err_sys(&line->err, errno, "cannot write the file");
            return 0;
        }
        done += (size_t)n;
        answer->got += (uint64_t)n;
    }
    return len;
}

static size_t
give_body(char *data, size_t unit, size_t count, void *arg)
{
    struct line *line = arg;
    uint64_t left = line->request->in_len - line->sent;
    size_t len = unit * count < left ? unit * count : left;
    ssize_t n =
        len ? pread(line->request->in_fd, data, len, (off_t)(line->request->in_off + line->sent))
            : 0;
    if (n < 0)
        return CURL_READFUNC_ABORT;
    line->sent += (uint64_t)n;
    return (size_t)n;
}

static int
rewind_body(void *arg, curl_off_t offset, int origin)
{
    struct line *line = arg;
    if (origin != SEEK_SET || offset < 0)
        return CURL_SEEKFUNC_CANTSEEK;
    line->sent = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

static size_t
take_header(char *data, size_t unit, size_t count, void *arg)
{
    struct line *line = arg;
    size_t len = unit * count;
    if (len > 6 && strncasecmp(data, "etag:", 5) == 0) {
        const char *value = data + 5;
        size_t size = len - 5;
        while (size > 0 && *value == ' ') {
            value++;
            size--;
        }
        while (size > 0 && (value[size - 1] == '\r' || value[size - 1] == '\n'))
            size--;
        (void)snprintf(line->answer->etag, sizeof(line->answer->etag), "%.*s", (int)size, value);
    }
    return len;
}

static int
add_header(struct curl_slist **list, const char *text, struct err *err)
{
    struct curl_slist *longer = curl_slist_append(*list, text);
    if (!longer)
        return err_nomem(err);
    *list = longer;
    return 0;
}

/* The signature's lines become a list as libcurl wants it. */
static int
header_list(struct line *line, struct curl_slist **list, struct err *err)
{
    if (sign_headers(line->endpoint, line->request, &line->sign, err) < 0)
        return -1;
    char *at = line->sign.data;
    for (char *end = strstr(at, "\r\n"); end; end = strstr(at, "\r\n")) {
        *end = '\0';
        if (add_header(list, at, err) < 0)
            return -1;
        at = end + 2;
    }
    if (line->request->if_absent && add_header(list, "If-None-Match: *", err) < 0)
        return -1;
    return add_header(list, "Expect:", err);
}

static void
set_method(struct line *line)
{
    const struct request *request = line->request;
    CURL *easy = line->easy;
    if (request->method[0] == 'H') {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    } else if (strcmp(request->method, "PUT") == 0) {
        curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->in_len);
    } else if (strcmp(request->method, "POST") == 0) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->in_len);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->mem ? request->mem : "");
    } else if (request->method[0] == 'D') {
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "DELETE");
    }
}

static void
set_callbacks(struct line *line)
{
    CURL *easy = line->easy;
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_body);
    curl_easy_setopt(easy, CURLOPT_READDATA, line);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, rewind_body);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, line);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, line);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, line);
}

static int
set_target(struct line *line, struct err *err)
{
    char text[2048];
    const struct request *request = line->request;
    const struct endpoint *endpoint = line->endpoint;
    CURL *easy = line->easy;
    int len = snprintf(text, sizeof(text), "http%s://%s/%s%s%s%s%s", endpoint->tls ? "s" : "",
                       endpoint->host_header, endpoint->bucket, request->key[0] ? "/" : "",
                       request->key, request->query[0] ? "?" : "", request->query);
    if (len < 0 || (size_t)len >= sizeof(text))
        return err_set(err, ERR_USAGE, "the key '%s' is too long", request->key);
    curl_easy_setopt(easy, CURLOPT_URL, text);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    /* The largest that libcurl takes: fewer calls for the same bytes. */
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 512L * 1024);
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 2L * 1024 * 1024);
    if (request->range_len > 0) {
        (void)snprintf(text, sizeof(text), "%llu-%llu", (unsigned long long)request->range_off,
                       (unsigned long long)(request->range_off + request->range_len - 1));
        curl_easy_setopt(easy, CURLOPT_RANGE, text);
    }
    return 0;
}

static int
perform(struct line *line, struct answer *answer, struct err *err)
{
    CURLcode code = curl_easy_perform(line->easy);
    if (line->failed) {
        *err = line->err;
        return -1;
    }
    if (code != CURLE_OK)
        return err_set(err, ERR_STORE_AWAY, "%s", curl_easy_strerror(code));
    long status = 0;
    curl_off_t length = -1;
    (void)curl_easy_getinfo(line->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(line->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    answer->status = (int)status;
    answer->length = length > 0 ? (uint64_t)length : 0;
    return 0;
}

static int
line_send(void *conn, const struct request *request, struct answer *answer, struct err *err)
{
    struct line *line = conn;
    struct curl_slist *list = NULL;
    line->request = request;
    line->answer = answer;
    line->sent = 0;
    line->failed = false;
    answer->got = 0;
    answer->etag[0] = '\0';
    buf_clear(&answer->body);
    curl_easy_reset(line->easy); /* keeps the connection */
    int result = header_list(line, &list, err);
    if (result == 0)
        result = set_target(line, err);
    if (result == 0) {
        set_callbacks(line);
        set_method(line);
        curl_easy_setopt(line->easy, CURLOPT_HTTPHEADER, list);
        result = perform(line, answer, err);
    }
    curl_slist_free_all(list);
    return result;
}

const struct transport transport_curl = { "curl", line_open, line_send, line_close };
