#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/scope.h"
#include "base/ulid.h"
#include "s3/client.h"
#include "s3/credentials_local.h"
#include "s3/url.h"

/* Taking an s3:// URL apart into a client. */

#define DEFAULT_CONNECTIONS 16

static const char *const known_params[] = { "endpoint",        "region",  "style",    "provider",
                                            "public-endpoint", "account", "ca",       "pin",
                                            "requester-pays",  "max-put", "max-copy", NULL };

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

/* Letters, digits and a few marks: these names stand in URLs and headers as they are. */
static bool
is_plain(const char *text, const char *marks)
{
    for (; *text; text++) {
        bool letter = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');
        if (!letter && !(*text >= '0' && *text <= '9') && !strchr(marks, *text))
            return false;
    }
    return true;
}

static int
fill_endpoint(const struct url *url, const char *name, struct client_endpoint *out, struct err *err)
{
    if (strcmp(url->scheme, "http") != 0 && strcmp(url->scheme, "https") != 0)
        return err_set(err, ERR_USAGE, "%s must begin with http:// or https://", name);
    if (!*url->host || url->params > 0)
        return err_set(err, ERR_USAGE, "%s must be a URL with a host and without '?'", name);
    if (!is_plain(url->host, ".-_:[]"))
        return err_set(err, ERR_USAGE, "%s names a host that cannot be", name);
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

/* `given`: what the settings name; the URL's own counts before it. */
static int
choose_provider(struct client *client, const struct url *url, const char *given, struct err *err)
{
    const char *name = url_param(url, "provider");
    if (!name && given && *given)
        name = given;
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
    client->provider = client->endpoint.host
                           ? provider_guess(client->endpoint.host, client->endpoint.path)
                           : provider_find("aws");
    return 0;
}

/* AWS's own settings say nothing about other providers' regions. */
static const char *
region_of_settings(const struct client *client, char *room, size_t size)
{
    static const char *const names[] = { "AWS_REGION", "AWS_DEFAULT_REGION" };
    if (strcmp(client->provider->name, "aws") != 0 &&
        strcmp(client->provider->name, "generic") != 0)
        return NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = secure_getenv(names[i]);
        if (value && *value)
            return value;
    }
    credentials_local_region(room, size);
    return *room ? room : NULL;
}

static int
choose_region(struct client *client, const struct url *url, struct err *err)
{
    char room[64];
    const char *region = url_param(url, "region");
    if ((!region || !*region) && client->endpoint.host &&
        provider_host_region(client->provider, client->endpoint.host, room, sizeof(room)))
        region = room;
    if (!region || !*region)
        region = region_of_settings(client, room, sizeof(room));
    if (region && !is_plain(region, "-_"))
        return err_set(err, ERR_USAGE, "region '%.40s' is no region's name", region);
    if (!client->endpoint.host) {
        scope_buf host;
        buf_init(&host, 512);
        if (provider_endpoint(client->provider, region, url_param(url, "account"), &host, err) <
                0 ||
            (region && strncmp(region, "cn-", 3) == 0 && buf_append_str(&host, ".cn", err) < 0))
            return -1;
        if (!is_plain(buf_cstr(&host), ".-_"))
            return err_set(err, ERR_USAGE, "the store's URL names an account that cannot be");
        client->endpoint.tls = true;
        if (copy(buf_cstr(&host), &client->endpoint.host, err) < 0 ||
            copy("", &client->endpoint.path, err) < 0)
            return -1;
    }
    return copy(region && *region ? region : client->provider->region, &client->region, err);
}

/* The URL's, else where AWS's own tools would go, unless the provider is another one. */
static const char *
given_endpoint(const struct url *url, const char *provider)
{
    static const char *const names[] = { "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL" };
    const char *endpoint = url_param(url, "endpoint");
    if (endpoint || url_param(url, "account") || provider)
        return endpoint;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = secure_getenv(names[i]);
        if (value && *value)
            return value;
    }
    return NULL;
}

static int
choose_endpoint(struct client *client, const struct url *url, const char *provider, struct err *err)
{
    const char *named = url_param(url, "provider");
    const char *public_endpoint = url_param(url, "public-endpoint");
    if (!named && provider && *provider)
        named = provider;
    const char *endpoint = given_endpoint(url, named);
    if (public_endpoint &&
        parse_endpoint(public_endpoint, "public-endpoint", &client->public_endpoint, err) < 0)
        return -1;
    return endpoint ? parse_endpoint(endpoint, "endpoint", &client->endpoint, err) : 0;
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
    if (!is_plain(url->host, ".-_"))
        return err_set(err, ERR_USAGE, "the store's URL names a bucket that cannot be");
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

/* ---- trust ---- */

/* "sha256//" and 32 bytes in base64, once or more with ';' between. */
static bool
is_pin(const char *text)
{
    for (;;) {
        size_t len = strcspn(text, ";");
        if (len != 8 + 44 || strncmp(text, "sha256//", 8) != 0 || text[len - 1] != '=')
            return false;
        if (text[len] == '\0')
            return true;
        text += len + 1;
    }
}

static int
choose_trust(struct client *client, const struct url *url, const char *ca_file, struct err *err)
{
    const char *file = url_param(url, "ca");
    const char *pins = url_param(url, "pin");
    /* Whoever opens the store may have left the directory that the user was in. */
    if (file && file[0] != '/')
        return err_set(err, ERR_USAGE, "ca= of the store's URL has to be an absolute path");
    if (!file && ca_file && *ca_file)
        file = ca_file;
    if ((file || pins) && !client->endpoint.tls)
        return err_set(err, ERR_USAGE,
                       "an own authority or a pinned key needs an endpoint with https://");
    if (pins && !is_pin(pins))
        return err_set(err, ERR_USAGE,
                       "pin= has to be sha256//BASE64, the SHA-256 of the server's public key");
    if (pins && copy(pins, &client->pins, err) < 0)
        return -1;
    return file ? copy(file, &client->ca_file, err) : 0;
}

static int
choose_payer(struct client *client, const struct url *url, struct err *err)
{
    const char *pays = url_param(url, "requester-pays");
    if (pays && !parse_bool(pays, &client->requester_pays))
        return err_set(err, ERR_USAGE, "requester-pays is yes or no, not '%.20s'", pays);
    return 0;
}

/* Proxies before a store often take less in one request than the store does. The 5 MiB are the least that every store takes
 * as a part (docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html). */
#define SIZE_LEAST (5ull << 20)

static int
choose_size(const struct url *url, const char *name, uint64_t *out, struct err *err)
{
    const char *text = url_param(url, name);
    if (text && (!parse_size(text, out) || *out < SIZE_LEAST))
        return err_set(err, ERR_USAGE, "%s is a size of at least 5 MiB such as 100M, not '%.20s'",
                       name, text);
    return 0;
}

void
client_limit_caps(const struct client *client, struct store_caps *caps)
{
    if (client->max_put_bytes && client->max_put_bytes < caps->max_put_bytes)
        caps->max_put_bytes = client->max_put_bytes;
    if (client->max_copy_bytes && client->max_copy_bytes < caps->max_copy_bytes)
        caps->max_copy_bytes = client->max_copy_bytes;
}

static int
open_url(struct client *client, const struct url *url, const struct store_open_args *args,
         struct err *err)
{
    if (url_check_params(url, known_params, err) < 0 || set_names(client, url, err) < 0 ||
        choose_endpoint(client, url, args->provider, err) < 0 ||
        choose_provider(client, url, args->provider, err) < 0 ||
        choose_region(client, url, err) < 0 || choose_trust(client, url, args->ca_file, err) < 0 ||
        choose_payer(client, url, err) < 0 ||
        choose_size(url, "max-put", &client->max_put_bytes, err) < 0 ||
        choose_size(url, "max-copy", &client->max_copy_bytes, err) < 0)
        return -1;
    client->loopback = is_loopback(client->endpoint.host);
    return choose_style(client, url, err);
}

static void
init_limits(struct client *client, const struct store_limits *limits)
{
    limit_init(&client->requests_limit, limits->requests_per_s);
    limit_init(&client->up_limit, limits->bytes_up_per_s);
    limit_init(&client->down_limit, limits->bytes_down_per_s);
}

static int
open_transport(struct client *client, const struct store_open_args *args, unsigned connections,
               struct err *err)
{
    client->http = http_new(connections, err);
    if (!client->http)
        return -1;
    http_configure(
        client->http,
        &(struct http_options){ .ca_file = client->ca_file,
                                .pins = client->pins,
                                .up = args->limits.bytes_up_per_s ? &client->up_limit : NULL,
                                .down = args->limits.bytes_down_per_s ? &client->down_limit : NULL,
                                .limited_ns = &client->limited_ns,
                                .ends_ns = &client->ends_ns });
    if (client->credentials)
        return 0;
    client->keys = credentials_open(args->process, args->process_arg, err);
    return client->keys ? 0 : -1;
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
    init_limits(client, &args->limits);
    client->credentials = args->credentials;
    client->credentials_arg = args->credentials_arg;
    unsigned connections = args->max_connections ? args->max_connections : DEFAULT_CONNECTIONS;
    retry_limit_init(&client->limit, connections);
    atomic_store(&client->etag_is_md5, STORE_NOT_PROBED);
    if (random_bytes(&seed, sizeof(seed), err) < 0 || url_parse(args->url, &url, err) < 0)
        return -1;
    atomic_store(&client->seed, seed);
    int result = open_url(client, &url, args, err);
    url_release(&url);
    return result < 0 ? -1 : open_transport(client, args, connections, err);
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
    credentials_close(client->keys);
    http_free(client->http);
    free(client->ca_file);
    free(client->pins);
    limit_release(&client->requests_limit);
    limit_release(&client->up_limit);
    limit_release(&client->down_limit);
    release_endpoint(&client->endpoint);
    release_endpoint(&client->public_endpoint);
    free(client->bucket);
    free(client->prefix);
    free(client->region);
    pthread_cond_destroy(&client->freed);
    pthread_mutex_destroy(&client->lock);
}
