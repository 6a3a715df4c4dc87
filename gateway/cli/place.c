#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "gateway/cli/cli.h"

/* VOLUME:/path as the commands take it: read, asked about, fetched. */

int
place_read(const char *text, bool need_path, struct place *out, struct err *err)
{
    if (!cli_is_place(text))
        return err_set(err, ERR_USAGE, "'%s' is not VOLUME:/path", text);
    if (cli_place(text, out->volume, out->path, err) < 0)
        return -1;
    out->at = NULL;
    if (need_path && out->path[0] == '\0')
        return err_set(err, ERR_USAGE, "'%s' names no file", text);
    return 0;
}

const char *
place_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int
place_get(struct cli *cli, const char *prefix, const struct place *place, const char *query,
          json_t **out, struct err *err)
{
    scope_buf target;
    buf_init(&target, LIMIT_HTTP_TARGET);
    if (client_target(prefix, place->volume, place->path, &target, err) < 0 ||
        buf_append_str(&target, query, err) < 0)
        return -1;
    return client_json(cli, &(struct json_call){ "GET", buf_cstr(&target), NULL, 60 }, out, err);
}

int
place_fetch(struct cli *cli, const struct place *place, const char *version, int fd,
            const char *progress, struct err *err)
{
    scope_buf target;
    struct client_response response;
    buf_init(&target, LIMIT_HTTP_TARGET);
    if (client_target("/v1/files", place->volume, place->path, &target, err) < 0)
        return -1;
    const char *which = version ? version : place->at;
    if (which && (buf_append_str(&target, version ? "?version=" : "?at=", err) < 0 ||
                  percent_encode(which, strlen(which), false, &target, err) < 0))
        return -1;
    struct client_request request = { .method = "GET",
                                      .target = buf_cstr(&target),
                                      .sink_fd = fd,
                                      .has_sink = true,
                                      .progress = progress };
    client_response_init(&response);
    int rc = cli_client_call(cli, &request, &response, err);
    client_response_release(&response);
    return rc;
}

/* ---- times as people give them ---- */
static bool
read_local(const char *text, int64_t *wall_ns)
{
    static const char *const forms[] = { "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d" };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct tm tm = { .tm_isdst = -1 };
        const char *end = strptime(text, forms[i], &tm);
        if (!end || *end != '\0')
            continue;
        time_t seconds = mktime(&tm);
        if (seconds == (time_t)-1)
            return false;
        *wall_ns = seconds * NS_PER_S;
        return true;
    }
    return false;
}

int
place_time(const char *text, char out[TIME_RFC3339_SIZE], struct err *err)
{
    int64_t ns;
    size_t len = strlen(text);
    bool unit = len > 0 && strchr("smhd", text[len - 1]) != NULL;
    if (time_parse_rfc3339(text, &ns) < 0 && !read_local(text, &ns)) {
        struct err ignored = ERR_INIT;
        bool ago = unit && parse_duration(text, &ns) && ns <= clock_wall_ns();
        if (!ago && path_check_volume(text, &ignored) == 0 && len < TIME_RFC3339_SIZE) {
            memcpy(out, text, len + 1);
            return 0;
        }
        if (!ago)
            return err_set(err, ERR_USAGE,
                           "'%s' is no time: 2026-07-01T10:00:00Z, '2026-07-01 10:00' (local), how "
                           "long ago, as 2h or 3d, or the name of a snapshot",
                           text);
        ns = clock_wall_ns() - ns;
    }
    time_rfc3339(ns, out, TIME_RFC3339_SIZE);
    return 0;
}
