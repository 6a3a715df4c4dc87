#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/parse.h"

/* Both end in NULL for nearest_word(). */
static const char *const level_names[] = { "error", "warn", "info", "debug", "trace", NULL };
static const char *const component_names[] = {
#define X(name) #name,
    LOG_COMPONENTS(X)
#undef X
        NULL
};

#define LONGEST_WORD 16

/* Levels are stored less LOG_LEVEL_INFO, so that zero-initialized means "info". */
static _Atomic int levels[LOG_COMPONENT_COUNT];
static _Atomic int target_fd = STDERR_FILENO;

static int
find_word(const char *word, size_t len, const char *const *words)
{
    for (int i = 0; words[i]; i++) {
        if (strlen(words[i]) == len && memcmp(words[i], word, len) == 0)
            return i;
    }
    return -1;
}

static int
unknown_word(const char *what, const char *word, size_t len, const char *const *words,
             struct err *err)
{
    char copy[LONGEST_WORD + 1];
    (void)snprintf(copy, sizeof(copy), "%.*s", (int)(len < LONGEST_WORD ? len : LONGEST_WORD),
                   word);
    const char *near = nearest_word(copy, words);
    if (near)
        return err_set(err, ERR_USAGE, "unknown log %s '%s', did you mean '%s'?", what, copy, near);
    return err_set(err, ERR_USAGE, "unknown log %s '%s'", what, copy);
}

/* One "level" (component -1) or "component=level". */
static int
parse_item(const char *item, size_t len, int *component, int *level, struct err *err)
{
    const char *equals = memchr(item, '=', len);
    const char *word = equals ? equals + 1 : item;
    size_t word_len = len - (size_t)(word - item);
    *component = -1;
    if (equals) {
        size_t name_len = (size_t)(equals - item);
        *component = find_word(item, name_len, component_names);
        if (*component < 0)
            return unknown_word("component", item, name_len, component_names, err);
    }
    *level = find_word(word, word_len, level_names);
    return *level < 0 ? unknown_word("level", word, word_len, level_names, err) : 0;
}

int
log_configure(const char *spec, struct err *err)
{
    int general = LOG_LEVEL_INFO;
    int own[LOG_COMPONENT_COUNT];
    for (int i = 0; i < LOG_COMPONENT_COUNT; i++)
        own[i] = -1;
    for (const char *at = spec; *at != '\0';) {
        size_t len = strcspn(at, ",");
        int component;
        int level = LOG_LEVEL_INFO;
        if (parse_item(at, len, &component, &level, err) < 0)
            return -1;
        *(component < 0 ? &general : &own[component]) = level;
        at += len + (at[len] == ',' ? 1 : 0);
    }
    for (int i = 0; i < LOG_COMPONENT_COUNT; i++)
        atomic_store(&levels[i], (own[i] < 0 ? general : own[i]) - LOG_LEVEL_INFO);
    return 0;
}

bool
log_enabled(enum log_component component, enum log_level level)
{
    return (int)level - LOG_LEVEL_INFO <=
           atomic_load_explicit(&levels[component], memory_order_relaxed);
}

void
log_redirect(int fd)
{
    atomic_store(&target_fd, fd);
}

/* One write(2): lines of threads and processes do not mix. A log that cannot be written is not
 * worth failing for. */
static void
emit(const char *line, size_t len)
{
    ssize_t put;
    do {
        put = write(atomic_load(&target_fd), line, len);
    } while (put < 0 && errno == EINTR);
}

void
log_write(enum log_component component, enum log_level level, const char *fmt, ...)
{
    if (!log_enabled(component, level))
        return;
    int saved = errno;
    char stamp[TIME_RFC3339_SIZE];
    char text[LIMIT_LOG_LINE];
    char line[LIMIT_LOG_LINE];
    va_list ap;
    va_start(ap, fmt);
    errno = saved; /* for %m */
    int full = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (full < 0)
        text[0] = '\0';
    time_rfc3339(clock_wall_ns(), stamp, sizeof(stamp));
    int head = snprintf(line, sizeof(line), "%s %-5s %s ", stamp, level_names[level],
                        component_names[component]);
    size_t len = (size_t)head;
    size_t text_len = strlen(text);
    len += text_escape(text, text_len, line + len, sizeof(line) - len - 1);
    line[len++] = '\n';
    emit(line, len);
    errno = saved;
}
