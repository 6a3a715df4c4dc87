#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

#include "base/err.h"

/*
 * Leveled lines "time level component message key=value ..." on stderr. A component's level is set
 * by a spec such as "info,s3=debug,cache=trace" (--log, HOLDFAST_LOG). Values that are secrets
 * never come here: the callers do not have them, and log_hide() masks texts that may. Thread safe;
 * a line is one write(2).
 */
enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARN,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_TRACE
};

/* X-macro of the components: the folders, and what one may want to switch by itself. */
#define LOG_COMPONENTS(X) \
    X(base) X(s3) X(cache) X(index) X(volume) X(sync) X(mount) X(http) X(gateway) X(run) X(audit)
enum log_component {
#define X(name) LOG_##name,
    LOG_COMPONENTS(X)
#undef X
        LOG_COMPONENT_COUNT
};

/* ERR_USAGE names the unknown word and the nearest known one; then nothing changes. A general level
 * counts for the components without their own, wherever it stands. */
int log_configure(const char *spec, struct err *err) MUST_CHECK;
bool log_enabled(enum log_component component, enum log_level level);
void log_write(enum log_component component, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Sends lines to `fd` instead of stderr (tests). */
void log_redirect(int fd);

#define log_error(component, ...) log_write(LOG_##component, LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(component, ...) log_write(LOG_##component, LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(component, ...) log_write(LOG_##component, LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(component, ...)                                     \
    do {                                                              \
        if (log_enabled(LOG_##component, LOG_LEVEL_DEBUG))            \
            log_write(LOG_##component, LOG_LEVEL_DEBUG, __VA_ARGS__); \
    } while (0)
#define log_trace(component, ...)                                     \
    do {                                                              \
        if (log_enabled(LOG_##component, LOG_LEVEL_TRACE))            \
            log_write(LOG_##component, LOG_LEVEL_TRACE, __VA_ARGS__); \
    } while (0)

#endif
