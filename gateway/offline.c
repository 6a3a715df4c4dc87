#include "gateway/offline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/daemon.h"
#include "gateway/keys.h"
#include "gateway/privilege.h"
#include "gateway/settings.h"
#include "s3/open.h"
#include "volume/volume.h"

static int
find_places(const struct config *config, const struct gateway_user *user,
            struct gateway_offline *out, struct err *err)
{
    char given[PATH_MAX];
    if (gateway_settings_state(config, given, sizeof(given), err) < 0 ||
        gateway_privilege_own(given, user, err) < 0)
        return -1;
    if (!realpath(given, out->state))
        return err_sys(err, errno, "cannot find the state directory '%s'", given);
    if (gateway_daemon_store_url(config, out->state, out->store_url, sizeof(out->store_url), err) <
        0)
        return -1;
    const char *ca_file = config_str(config, "store.ca");
    if (ca_file && *ca_file && !realpath(ca_file, out->ca_file))
        return err_sys(err, errno, "cannot find the file of authorities '%s'", ca_file);
    return 0;
}

/* Without this a wrong path would become a new, empty store. */
static int
check_store(const struct gateway_offline *offline, struct err *err)
{
    const char *dir =
        strncmp(offline->store_url, "file://", 7) == 0 ? offline->store_url + 7 : NULL;
    if (!dir || dir[0] != '/' || access(dir, R_OK | X_OK) == 0)
        return 0;
    return err_sys(err, errno, "cannot read the store's directory '%s'", dir);
}

static int
open_parts(const struct config *config, struct gateway_offline *out, struct err *err)
{
    const struct store_open_args args = { .url = out->store_url,
                                          .process = gateway_keys_run_here,
                                          .provider = config_str(config, "store.provider"),
                                          .ca_file = out->ca_file[0] ? out->ca_file : NULL };
    if (volume_state_lock(out->state, 0, &out->lock_fd, err) < 0)
        return -1;
    if (check_store(out, err) < 0)
        return -1;
    out->store = store_open(&args, err);
    return out->store ? 0 : -1;
}

int
gateway_offline_open(const struct config *config, struct gateway_offline *out, struct err *err)
{
    struct gateway_user user;
    memset(out, 0, sizeof(*out));
    out->lock_fd = -1;
    out->cache = (struct cache_limits){ .max_bytes = config_uint(config, "cache.size"),
                                        .floor_bytes = config_uint(config, "cache.floor"),
                                        .reserve_bytes = config_uint(config, "cache.reserve") };
    (void)umask(077);
    if (gateway_privilege_user(config_str(config, "user"), &user, err) < 0 ||
        find_places(config, &user, out, err) < 0 || gateway_keys_prepare(err) < 0 ||
        gateway_privilege_drop(&user, err) < 0)
        return -1;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no thread exists yet */
    (void)setenv("SQLITE_TMPDIR", out->state, 1);
    if (open_parts(config, out, err) == 0)
        return 0;
    gateway_offline_close(out);
    return -1;
}

void
gateway_offline_close(struct gateway_offline *offline)
{
    if (offline->store)
        store_free(offline->store);
    if (offline->lock_fd >= 0)
        (void)close(offline->lock_fd);
    offline->store = NULL;
    offline->lock_fd = -1;
}
