#ifndef GATEWAY_SETTINGS_H
#define GATEWAY_SETTINGS_H

#include "base/config.h"

/*
 * Every setting of the gateway, once (`holdfast config show` prints them). Keys of the store are not here: they come from the
 * AWS_* variables and profile files, so that no secret passes through our files.
 */
const struct config_def *gateway_settings_defs(void);

/* File, environment and defaults. `file` NULL: HOLDFAST_CONFIG, else the standard place when it exists. `used` (may be NULL)
 * tells the file that was read, "" for none; it holds PATH_MAX bytes. */
struct config *gateway_settings_load(const char *file, char *used, struct err *err) MUST_CHECK;

/* STATE: the setting, else /var/lib/holdfast for root, else $XDG_STATE_HOME/holdfast or ~/.local/state/holdfast. Absolute. */
int gateway_settings_state(const struct config *config, char *out, size_t size,
                           struct err *err) MUST_CHECK;

#endif
