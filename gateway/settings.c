#include "gateway/settings.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct config_def defs[] = {
    { "", "state", "HOLDFAST_STATE", "state", CONFIG_STR, NULL, false,
      "directory of index, cache and sockets" },
    { "", "user", "HOLDFAST_USER", "user", CONFIG_STR, NULL, false,
      "user that the gateway becomes when root starts it (holdfast, else nobody)" },
    { "", "harden", "HOLDFAST_HARDEN", "harden", CONFIG_BOOL, "yes", false,
      "no_new_privs, Landlock and seccomp when root starts it" },
    { "", "takeover", "HOLDFAST_TAKEOVER", "takeover", CONFIG_STR, "auto", false,
      "when the gateway dies: respawn it, wait for who starts it (systemd), off, or auto" },
    { "store", "url", "HOLDFAST_STORE", "store", CONFIG_STR, NULL, false,
      "file:///DIR or s3://BUCKET[/PREFIX]?endpoint=URL&region=NAME (file://STATE/bucket)" },
    { "store", "provider", "HOLDFAST_STORE_PROVIDER", "provider", CONFIG_STR, NULL, false,
      "maker of the store when its endpoint does not tell: r2, aws, ceph, minio, gcs, b2, ..." },
    { "store", "ca", "HOLDFAST_STORE_CA", "store-ca", CONFIG_STR, NULL, false,
      "PEM file of the authorities that may sign the store's certificate" },
    { "store", "limit-requests", "HOLDFAST_LIMIT_REQUESTS", "limit-requests", CONFIG_UINT, "0",
      false, "requests to the store per second, 0: no limit" },
    { "store", "limit-up", "HOLDFAST_LIMIT_UP", "limit-up", CONFIG_SIZE, "0", false,
      "bytes to the store per second, 0: no limit" },
    { "store", "limit-down", "HOLDFAST_LIMIT_DOWN", "limit-down", CONFIG_SIZE, "0", false,
      "bytes from the store per second, 0: no limit" },
    { "store", "threads", "HOLDFAST_STORE_THREADS", "store-threads", CONFIG_UINT, "8", false,
      "uploads, and fetches, at a time" },
    { "store", "list-ttl", "HOLDFAST_LIST_TTL", "list-ttl", CONFIG_DURATION, "30s", false,
      "how long a listing of the bucket is believed" },
    { "store", "change-log", "HOLDFAST_CHANGE_LOG", "change-log", CONFIG_DURATION, "2s", false,
      "how often other gateways' changes are asked for while a volume is in use, 0s: never" },
    { "store", "offline-start", "HOLDFAST_OFFLINE_START", "offline-start", CONFIG_BOOL, "no", false,
      "start although the store is away" },
    { "sync", "rest", "HOLDFAST_SYNC_REST", "sync-rest", CONFIG_DURATION, "1s", false,
      "how long what a mount changes rests before it is uploaded, 0s: at once, 60s at most" },
    { "sync", "open", "HOLDFAST_SYNC_OPEN", "sync-open", CONFIG_DURATION, "30s", false,
      "how often a file that stays open and changes is uploaded, 0s: only once it is closed" },
    { "sync", "stop-timeout", "HOLDFAST_STOP_TIMEOUT", "stop-timeout", CONFIG_DURATION, "10s",
      false, "how long the end of the gateway waits for uploads" },
    { "cache", "size", "HOLDFAST_CACHE_SIZE", "cache-size", CONFIG_SIZE, "0", false,
      "limit of the cache, 0: 80 % of the file system" },
    { "cache", "floor", "HOLDFAST_CACHE_FLOOR", "cache-floor", CONFIG_SIZE, "512M", false,
      "free space that stays free" },
    { "cache", "reserve", "HOLDFAST_CACHE_RESERVE", "cache-reserve", CONFIG_SIZE, "16M", false,
      "file that keeps the index alive on a full disk" },
    { "http", "listen", "HOLDFAST_LISTEN", "listen", CONFIG_STR, "127.0.0.1:8480", false,
      "loopback ADDR:PORT of the HTTP API, or 'none'" },
    { "http", "hosts", "HOLDFAST_HOSTS", "host", CONFIG_STR, NULL, false,
      "further Host names that are served, with commas" },
    { "mount", "parent", "HOLDFAST_MOUNT_PARENT", "mount-parent", CONFIG_STR, NULL, false,
      "where mounts without a path go (/mnt/data)" },
    { "mount", "wait", "HOLDFAST_MOUNT_WAIT", "mount-wait", CONFIG_DURATION, "30s", false,
      "how long programs in a mount wait for the next gateway when this one has died" },
    { "log", "levels", "HOLDFAST_LOG", "log", CONFIG_STR, "info", false,
      "LEVEL[,COMPONENT=LEVEL...]" },
    { "", NULL, NULL, NULL, CONFIG_STR, NULL, false, NULL },
};

const struct config_def *
gateway_settings_defs(void)
{
    return defs;
}

/* The file's standard place; false when there is none. */
static bool
standard_file(char *out, size_t size)
{
    const char *base = secure_getenv("XDG_CONFIG_HOME");
    const char *home = secure_getenv("HOME");
    if (geteuid() == 0)
        (void)snprintf(out, size, "/etc/holdfast/holdfast.conf");
    else if (base && base[0] == '/')
        (void)snprintf(out, size, "%s/holdfast/holdfast.conf", base);
    else if (home && home[0] == '/')
        (void)snprintf(out, size, "%s/.config/holdfast/holdfast.conf", home);
    else
        return false;
    return access(out, F_OK) == 0;
}

struct config *
gateway_settings_load(const char *file, char *used, struct err *err)
{
    char standard[PATH_MAX];
    struct config *config = config_new(defs, err);
    if (!config)
        return NULL;
    if (!file) {
        const char *named = secure_getenv("HOLDFAST_CONFIG");
        if (named && named[0] != '\0')
            file = named;
        else if (standard_file(standard, sizeof(standard)))
            file = standard;
    }
    if ((file && config_load_file(config, file, err) < 0) || config_load_env(config, err) < 0) {
        config_free(config);
        return NULL;
    }
    if (used)
        (void)snprintf(used, PATH_MAX, "%s", file ? file : "");
    return config;
}

/* Makes `path` absolute by the working directory. */
static int
absolute(const char *path, char *out, size_t size, struct err *err)
{
    char cwd[PATH_MAX];
    int len;
    if (path[0] == '/') {
        len = snprintf(out, size, "%s", path);
    } else {
        if (!getcwd(cwd, sizeof(cwd)))
            return err_set(err, ERR_USAGE, "the state directory '%s' needs an absolute path here",
                           path);
        len = snprintf(out, size, "%s/%s", cwd, path);
    }
    if (len < 0 || (size_t)len >= size)
        return err_set(err, ERR_USAGE, "the state directory's path is too long");
    return 0;
}

int
gateway_settings_state(const struct config *config, char *out, size_t size, struct err *err)
{
    const char *given = config_str(config, "state");
    const char *base = secure_getenv("XDG_STATE_HOME");
    const char *home = secure_getenv("HOME");
    if (given && given[0] != '\0')
        return absolute(given, out, size, err);
    if (geteuid() == 0)
        return absolute("/var/lib/holdfast", out, size, err);
    if (base && base[0] == '/') {
        (void)snprintf(out, size, "%s/holdfast", base);
        return 0;
    }
    if (!home || home[0] != '/')
        return err_set(err, ERR_USAGE, "no state directory: give --state DIR");
    (void)snprintf(out, size, "%s/.local/state/holdfast", home);
    return 0;
}
