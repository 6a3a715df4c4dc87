#include "s3/credentials_local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/scope.h"
#include "base/sys.h"

static const struct file {
    const char *env;
    const char *name; /* below ~/.aws */
    bool config_form;
} files[2] = {
    { "AWS_SHARED_CREDENTIALS_FILE", "credentials", false },
    { "AWS_CONFIG_FILE", "config", true },
};

static const char *
profile_name(void)
{
    const char *profile = secure_getenv("AWS_PROFILE");
    if (!profile || !*profile)
        profile = secure_getenv("AWS_DEFAULT_PROFILE");
    return profile && *profile ? profile : "default";
}

/* The path goes into `out`; 0 when there is none to look at. */
static int
file_path(const struct file *file, struct buf *out, struct err *err)
{
    const char *path = secure_getenv(file->env);
    const char *home = secure_getenv("HOME");
    if (path && *path)
        return buf_append_str(out, path, err) < 0 ? -1 : 1;
    if (!home || !*home)
        return 0;
    return buf_appendf(out, err, "%s/.aws/%s", home, file->name) < 0 ? -1 : 1;
}

static void
stamp(const struct file *file, struct credentials_stamp *out)
{
    struct err err = ERR_INIT;
    struct stat st;
    scope_buf path;
    buf_init(&path, 4096);
    *out = (struct credentials_stamp){ .present = false };
    if (file_path(file, &path, &err) != 1 || stat(buf_cstr(&path), &st) < 0)
        return;
    *out = (struct credentials_stamp){ .present = true,
                                       .device = st.st_dev,
                                       .inode = st.st_ino,
                                       .size = st.st_size,
                                       .changed = st.st_ctim };
}

void
credentials_local_stamp(struct credentials_stamps *out)
{
    for (int i = 0; i < 2; i++)
        stamp(&files[i], &out->file[i]);
}

bool
credentials_local_same(const struct credentials_stamps *a, const struct credentials_stamps *b)
{
    for (int i = 0; i < 2; i++) {
        const struct credentials_stamp *x = &a->file[i];
        const struct credentials_stamp *y = &b->file[i];
        if (x->present != y->present || x->device != y->device || x->inode != y->inode ||
            x->size != y->size || x->changed.tv_sec != y->changed.tv_sec ||
            x->changed.tv_nsec != y->changed.tv_nsec)
            return false;
    }
    return true;
}

static int
from_env(struct s3_credentials *out, struct err *err)
{
    static const char *const names[] = { "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                         "AWS_SESSION_TOKEN" };
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = secure_getenv(names[i]);
        if (value && credentials_set(out, (enum credentials_field)i, names[i], value, strlen(value),
                                     err) < 0)
            return -1;
    }
    return out->access_key[0] && out->secret_key[0] ? 1 : 0;
}

/* Only its owner can open a file of mode 600; say so in words that lead on. */
static int
cannot_read(const char *path, const struct err *why, struct err *err)
{
    if (why->sys == EACCES || why->sys == EPERM)
        return err_set(err, ERR_STORE_DENIED,
                       "the user of the gateway (%u) may not read '%s': give it the file, or put "
                       "the keys elsewhere",
                       (unsigned)geteuid(), path);
    *err = *why;
    err->code = err->code == ERR_NOMEM ? ERR_NOMEM : ERR_STORE_DENIED;
    return -1;
}

/* A file that is not there says nothing. */
static int
read_profile(const struct file *file, struct credentials_profile *out, struct err *err)
{
    struct err own = ERR_INIT;
    char *text = NULL;
    size_t len = 0;
    scope_buf path;
    buf_init(&path, 4096);
    memset(out, 0, sizeof(*out));
    int known = file_path(file, &path, err);
    if (known != 1)
        return known;
    if (sys_read_file(AT_FDCWD, buf_cstr(&path), LIMIT_CONFIG_FILE, &text, &len, &own) < 0)
        return own.code == ERR_NOT_FOUND ? 0 : cannot_read(buf_cstr(&path), &own, err);
    int result = credentials_profile_parse(text, len, profile_name(), file->config_form, out, err);
    secret_wipe(text, len);
    free(text);
    return result < 0 ? err_wrap(err, "%s", buf_cstr(&path)) : 0;
}

/* Keys of the credentials file, then a process of either file, then keys of the config file: the order of AWS's tools. */
static enum credentials_origin
choose(struct credentials_profile profile[2], struct s3_credentials *out)
{
    if (profile[0].has_keys) {
        *out = profile[0].keys;
        return CREDENTIALS_FILE;
    }
    if (profile[0].command[0] || profile[1].command[0])
        return CREDENTIALS_PROCESS;
    if (!profile[1].has_keys)
        return CREDENTIALS_NOWHERE;
    *out = profile[1].keys;
    return CREDENTIALS_FILE;
}

int
credentials_local_find(struct s3_credentials *out, enum credentials_origin *origin, struct err *err)
{
    struct credentials_profile profile[2];
    int found = from_env(out, err);
    *origin = CREDENTIALS_ENVIRONMENT;
    if (found != 0)
        return found < 0 ? -1 : 0;
    memset(out, 0, sizeof(*out));
    int result = 0;
    for (int i = 0; i < 2 && result == 0; i++)
        result = read_profile(&files[i], &profile[i], err);
    if (result == 0)
        *origin = choose(profile, out);
    secret_wipe(profile, sizeof(profile));
    return result;
}

int
credentials_local_command(char *out, struct err *err)
{
    struct s3_credentials keys;
    struct credentials_profile profile[2];
    int result = 0;
    for (int i = 0; i < 2 && result == 0; i++)
        result = read_profile(&files[i], &profile[i], err);
    if (result == 0 && choose(profile, &keys) == CREDENTIALS_PROCESS) {
        const char *command = profile[0].command[0] ? profile[0].command : profile[1].command;
        memcpy(out, command, strlen(command) + 1);
        result = 1;
    }
    credentials_wipe(&keys);
    secret_wipe(profile, sizeof(profile));
    return result;
}

void
credentials_local_region(char *out, size_t size)
{
    struct err ignored = ERR_INIT;
    struct credentials_profile profile;
    out[0] = '\0';
    if (read_profile(&files[1], &profile, &ignored) == 0)
        (void)snprintf(out, size, "%s", profile.region);
    secret_wipe(&profile, sizeof(profile));
}

int
credentials_local_places(struct buf *out, struct err *err)
{
    if (buf_appendf(out, err, "profile '%.60s' of ", profile_name()) < 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        scope_buf path;
        buf_init(&path, 4096);
        int known = file_path(&files[i], &path, err);
        if (known < 0 || buf_appendf(out, err, "%s%.100s", i ? " and " : "",
                                     known ? buf_cstr(&path) : files[i].env) < 0)
            return -1;
    }
    return 0;
}
