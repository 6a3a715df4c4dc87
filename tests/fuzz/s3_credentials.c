#include "s3/credentials_parse.h"

#include "tests/fuzz/fuzz.h"

/* Profile files, documents of processes and endpoints, words of a command, URLs. What is taken can go into a header as it is,
 * and no error text repeats what may be a secret. */

static void
check_value(const char *value, size_t size)
{
    size_t len = strnlen(value, size);
    HOLDS(len < size);
    for (size_t i = 0; i < len; i++)
        HOLDS((unsigned char)value[i] > 0x20 && (unsigned char)value[i] < 0x7f);
}

static void
check_keys(const struct s3_credentials *keys)
{
    check_value(keys->access_key, sizeof(keys->access_key));
    check_value(keys->secret_key, sizeof(keys->secret_key));
    check_value(keys->session_token, sizeof(keys->session_token));
}

static void
check_profiles(const char *text, size_t len)
{
    static const char *const names[] = { "default", "work" };
    for (int i = 0; i < 4; i++) {
        struct err err = ERR_INIT;
        struct credentials_profile profile;
        struct s3_credentials keys;
        const char *name = names[i & 1];
        int result = credentials_profile_parse(text, len, name, i >= 2, &profile, &err);
        int found = credentials_from_ini(text, len, name, i >= 2, &keys, &err);
        HOLDS((result < 0) == (found < 0));
        if (result < 0)
            continue;
        HOLDS(profile.has_keys == (found == 1));
        check_keys(&profile.keys);
        check_value(profile.region, sizeof(profile.region));
        HOLDS(strnlen(profile.command, sizeof(profile.command)) < sizeof(profile.command));
    }
}

static void
check_documents(const char *text, size_t len)
{
    static const enum credentials_document kinds[] = { CREDENTIALS_OF_PROCESS,
                                                       CREDENTIALS_OF_ENDPOINT };
    for (int i = 0; i < 2; i++) {
        struct err err = ERR_INIT;
        struct s3_credentials keys;
        if (credentials_from_json(text, len, kinds[i], &keys, &err) < 0) {
            HOLDS(keys.secret_key[0] == '\0' && keys.session_token[0] == '\0');
            continue;
        }
        check_keys(&keys);
        HOLDS(keys.access_key[0] && keys.secret_key[0] && keys.expires_wall_ns >= 0);
    }
}

static void
check_words(const char *text, size_t len)
{
    struct err err = ERR_INIT;
    char *argv[CREDENTIALS_WORDS_MAX + 1];
    char *copy = malloc(len + 1);
    HOLDS(copy);
    memcpy(copy, text, len + 1);
    if (credentials_split(copy, argv, &err) == 0) {
        size_t total = 0;
        HOLDS(argv[0]);
        for (size_t i = 0; argv[i]; i++) {
            HOLDS(argv[i] >= copy && argv[i] <= copy + len);
            total += strlen(argv[i]) + 1;
        }
        HOLDS(total <= len + 1);
    }
    free(copy);
}

static void
check_url(const char *text)
{
    if (!credentials_url_allowed(text))
        return;
    HOLDS(!strpbrk(text, " \t\r\n\\"));
    const char *host = strstr(text, "://");
    HOLDS(host);
    host += 3;
    HOLDS(!memchr(host, '@', strcspn(host, "/?#")));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    check_profiles(text, size);
    check_documents(text, size);
    check_words(text, strlen(text));
    check_url(text);
    free(text);
    return 0;
}
