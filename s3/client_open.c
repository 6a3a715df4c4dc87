#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/scope.h"
#include "base/ulid.h"
#include "s3/client.h"
#include "s3/credentials.h"
#include "s3/url.h"

/* Taking an s3:// URL apart into a client. */

#define DEFAULT_CONNECTIONS 16

static const char *const known_params[] = { "endpoint", "region",          "style",
                                            "provider", "public-endpoint", NULL };

static int
copy(const char *text, char **out, struct err *err)
{
    *out = strdup(text);
    return *out ? 0 : err_nomem(err);
}

/* "host:443" of https is sent as "host" by every client, and signed so. */
static void
drop_default_port(char *host, bool tls)
{
    const char *port = tls ? ":443" : ":80";
    size_t len = strlen(host);
    size_t port_len = strlen(port);
    if (len > port_len && strcmp(host + len - port_len, port) == 0)
        host[len - port_len] = '\0';
}

static int
fill_endpoint(const struct url *url, const char *name, struct client_endpoint *out, struct err *err)
{
    if (strcmp(url->scheme, "http") != 0 && strcmp(url->scheme, "https") != 0)
        return err_set(err, ERR_USAGE, "%s must begin with http:// or https://", name);
    if (!*url->host || url->params > 0)
        return err_set(err, ERR_USAGE, "%s must be a URL with a host and without '?'", name);
    out->tls = strcmp(url->scheme, "https") == 0;
    if (copy(url->host, &out->host, err) < 0 || copy(url->path, &out->path, err) < 0)
        return -1;
    drop_default_port(out->host, out->tls);
    return 0;
}

static int
parse_endpoint(const char *text, const char *name, struct client_endpoint *out, struct err *err)
{
    struct url url;
    if (url_parse(text, &url, err) < 0)
        return err_wrap(err, "%s", name);
    int result = fill_endpoint(&url, name, out, err);
    url_release(&url);
    return result;
}

static int
choose_provider(struct client *client, const struct url *url, struct err *err)
{
    const char *name = url_param(url, "provider");
    const char *endpoint = url_param(url, "endpoint");
    if (name) {
        client->provider = provider_find(name);
        if (client->provider)
            return 0;
        scope_buf names;
        buf_init(&names, 1024);
        if (provider_names(&names, err) < 0)
            return -1;
        return err_set(err, ERR_USAGE, "unknown provider '%.40s', known are: %s", name,
                       buf_cstr(&names));
    }
    client->provider = endpoint ? provider_guess(client->endpoint.host, client->endpoint.path)
                                : provider_find("aws");
    return 0;
}

static int
choose_region(struct client *client, const struct url *url, struct err *err)
{
    const char *region = url_param(url, "region");
    bool from_env = strcmp(client->provider->name, "aws") == 0 ||
                    strcmp(client->provider->name, "generic") == 0;
    if (!region && from_env)
        region = secure_getenv("AWS_REGION");
    if (!region && from_env)
        region = secure_getenv("AWS_DEFAULT_REGION");
    if (!region || !*region)
        region = client->provider->region;
    return copy(region, &client->region, err);
}

static int
choose_endpoint(struct client *client, const struct url *url, struct err *err)
{
    const char *endpoint = url_param(url, "endpoint");
    const char *public_endpoint = url_param(url, "public-endpoint");
    if (public_endpoint &&
        parse_endpoint(public_endpoint, "public-endpoint", &client->public_endpoint, err) < 0)
        return -1;
    if (endpoint)
        return parse_endpoint(endpoint, "endpoint", &client->endpoint, err);
    const char *provider = url_param(url, "provider");
    if (provider && strcmp(provider, "aws") != 0)
        return err_set(err, ERR_USAGE, "the store's URL needs endpoint= for provider '%.40s'",
                       provider);
    return 0;
}

static int
default_endpoint(struct client *client, struct err *err)
{
    scope_buf host;
    buf_init(&host, 256);
    if (client->endpoint.host)
        return 0;
    if (buf_appendf(&host, err, "s3.%s.amazonaws.com%s", client->region,
                    strncmp(client->region, "cn-", 3) == 0 ? ".cn" : "") < 0)
        return -1;
    client->endpoint.tls = true;
    if (copy(buf_cstr(&host), &client->endpoint.host, err) < 0)
        return -1;
    return copy("", &client->endpoint.path, err);
}

static int
choose_style(struct client *client, const struct url *url, struct err *err)
{
    const char *style = url_param(url, "style");
    /* A dot in the bucket's name does not fit the wildcard certificate. */
    client->path_style = !client->provider->virtual_style || strchr(client->bucket, '.');
    if (!style)
        return 0;
    client->path_style = strcmp(style, "path") == 0;
    if (client->path_style || strcmp(style, "virtual") == 0)
        return 0;
    return err_set(err, ERR_USAGE, "style '%.20s' is neither path nor virtual", style);
}

static int
set_names(struct client *client, const struct url *url, struct err *err)
{
    if (!*url->host || strchr(url->host, ':'))
        return err_set(err, ERR_USAGE, "the store's URL names no bucket: s3://BUCKET[/PREFIX]");
    if (copy(url->host, &client->bucket, err) < 0)
        return -1;
    const char *path = url->path;
    while (*path == '/')
        path++;
    size_t len = strlen(path);
    if (len > LIMIT_KEY / 2)
        return err_set(err, ERR_USAGE, "the prefix of the store is too long");
    scope_buf prefix;
    buf_init(&prefix, LIMIT_KEY);
    if (buf_append_str(&prefix, path, err) < 0 ||
        (len > 0 && path[len - 1] != '/' && buf_append_str(&prefix, "/", err) < 0))
        return -1;
    return copy(buf_cstr(&prefix), &client->prefix, err);
}

static bool
is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strncmp(host, "[::1]", 5) == 0 ||
           strncasecmp(host, "localhost", 9) == 0;
}

static int
open_url(struct client *client, const struct url *url, struct err *err)
{
    if (url_check_params(url, known_params, err) < 0 || set_names(client, url, err) < 0 ||
        choose_endpoint(client, url, err) < 0 || choose_provider(client, url, err) < 0 ||
        choose_region(client, url, err) < 0 || default_endpoint(client, err) < 0)
        return -1;
    client->loopback = is_loopback(client->endpoint.host);
    return choose_style(client, url, err);
}

static void
init_lock(struct client *client)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&client->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&client->freed, &attributes);
    pthread_condattr_destroy(&attributes);
}

int
client_open(struct client *client, const struct store_open_args *args, struct err *err)
{
    struct url url;
    uint64_t seed = 0;
    memset(client, 0, sizeof(*client));
    init_lock(client);
    client->credentials = args->credentials ? args->credentials : credentials_default;
    client->credentials_arg = args->credentials_arg;
    unsigned connections = args->max_connections ? args->max_connections : DEFAULT_CONNECTIONS;
    retry_limit_init(&client->limit, connections);
    atomic_store(&client->etag_is_md5, STORE_NOT_PROBED);
    if (random_bytes(&seed, sizeof(seed), err) < 0 || url_parse(args->url, &url, err) < 0)
        return -1;
    atomic_store(&client->seed, seed);
    int result = open_url(client, &url, err);
    url_release(&url);
    if (result < 0)
        return -1;
    client->http = http_new(connections, err);
    return client->http ? 0 : -1;
}

static void
release_endpoint(struct client_endpoint *endpoint)
{
    free(endpoint->host);
    free(endpoint->path);
}

void
client_close(struct client *client)
{
    http_free(client->http);
    release_endpoint(&client->endpoint);
    release_endpoint(&client->public_endpoint);
    free(client->bucket);
    free(client->prefix);
    free(client->region);
    pthread_cond_destroy(&client->freed);
    pthread_mutex_destroy(&client->lock);
}
