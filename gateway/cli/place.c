#include <string.h>

#include "base/parse.h"
#include "gateway/cli/cli.h"

/* VOLUME:/path as the commands take it: read, asked about, fetched. */

int
place_read(const char *text, bool need_path, struct place *out, struct err *err)
{
    if (!cli_is_place(text))
        return err_set(err, ERR_USAGE, "'%s' is not VOLUME:/path", text);
    if (cli_place(text, out->volume, out->path, err) < 0)
        return -1;
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
    if (version && (buf_append_str(&target, "?version=", err) < 0 ||
                    percent_encode(version, strlen(version), false, &target, err) < 0))
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
