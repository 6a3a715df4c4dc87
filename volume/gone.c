#include <string.h>

#include "base/scope.h"
#include "volume/service_impl.h"

/* Keys whose objects ended a short while ago. A listing that began before still shows them, and nothing in the index says any
 * more that they were ours (docs/mechanisms.md section 8). */

void
gone_keys_init(struct gone_keys *gone)
{
    memset(gone, 0, sizeof(*gone));
    pthread_mutex_init(&gone->lock, NULL);
}

void
gone_keys_release(struct gone_keys *gone)
{
    for (size_t i = 0; i < GONE_KEYS; i++)
        free(gone->key[i]);
    pthread_mutex_destroy(&gone->lock);
}

void
gone_keys_add(struct gone_keys *gone, const char *key)
{
    char *copy = strdup(key); /* without memory: NULL, which stands for any key */
    scope_unlock pthread_mutex_t *held = scope_lock(&gone->lock);
    (void)held;
    size_t at = gone->count++ % GONE_KEYS;
    free(gone->key[at]);
    gone->key[at] = copy;
}

uint64_t
gone_keys_now(struct gone_keys *gone)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&gone->lock);
    (void)held;
    return gone->count;
}

bool
gone_keys_since(struct gone_keys *gone, uint64_t since, const char *key, bool prefix)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&gone->lock);
    (void)held;
    if (gone->count - since > GONE_KEYS)
        return true; /* more than we remember */
    for (uint64_t i = since; i < gone->count; i++) {
        const char *ended = gone->key[i % GONE_KEYS];
        if (ended == NULL ||
            (prefix ? strncmp(ended, key, strlen(key)) == 0 : strcmp(ended, key) == 0))
            return true;
    }
    return false;
}
