#include "mount/old.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

/* What may hold a '/' stands last; of two such the first has its length before it. */
static const char past_form[] = "a%lld/%s/%s";
static const char path_form[] = "v%s";
static const char version_form[] = "c%s/%lld/%llu/%lld/%zu/%s%s";

size_t
old_name(const struct old_place *place, char out[OLD_NAME_MAX])
{
    int len = 0;
    if (place->kind == OLD_PAST)
        len = snprintf(out, OLD_NAME_MAX, past_form, (long long)place->at_ns, place->text,
                       place->path);
    else if (place->kind == OLD_PATH)
        len = snprintf(out, OLD_NAME_MAX, path_form, place->path);
    else if (place->kind == OLD_VERSION)
        len = snprintf(out, OLD_NAME_MAX, version_form, place->copy, (long long)place->node,
                       (unsigned long long)place->size, (long long)place->made_ns,
                       strlen(place->version), place->version, place->path);
    return len < 0 ? 0 : (size_t)len;
}

/* ---- back ---- */

struct reader {
    const char *at, *end;
    bool bad;
};

static void
take(struct reader *from, size_t len, char *out, size_t size)
{
    if (from->bad || len >= size || len > (size_t)(from->end - from->at)) {
        from->bad = true;
        return;
    }
    memcpy(out, from->at, len);
    out[len] = '\0';
    from->at += len;
}

/* Up to the next '/', which is skipped. */
static void
take_field(struct reader *from, char *out, size_t size)
{
    const char *slash = from->bad ? NULL : memchr(from->at, '/', (size_t)(from->end - from->at));
    if (!slash) {
        from->bad = true;
        return;
    }
    take(from, (size_t)(slash - from->at), out, size);
    if (!from->bad)
        from->at++;
}

static int64_t
take_number(struct reader *from)
{
    char text[32] = "";
    long long value = 0;
    char rest;
    take_field(from, text, sizeof(text));
    if (!from->bad && sscanf(text, "%lld%c", &value, &rest) != 1) /* NOLINT(cert-err34-c): ours */
        from->bad = true;
    return value;
}

static void
take_rest(struct reader *from, char *out, size_t size)
{
    take(from, (size_t)(from->end - from->at), out, size);
}

bool
old_parse(const char *name, size_t len, struct old_place *out)
{
    struct reader from = { .at = name + 1, .end = name + len, .bad = len == 0 };
    memset(out, 0, sizeof(*out));
    if (from.bad)
        return false;
    if (name[0] == past_form[0]) {
        out->kind = OLD_PAST;
        out->at_ns = take_number(&from);
        take_field(&from, out->text, sizeof(out->text));
    } else if (name[0] == path_form[0]) {
        out->kind = OLD_PATH;
    } else if (name[0] == version_form[0]) {
        out->kind = OLD_VERSION;
        take_field(&from, out->copy, sizeof(out->copy));
        out->node = take_number(&from);
        out->size = (uint64_t)take_number(&from);
        out->made_ns = take_number(&from);
        take(&from, (size_t)take_number(&from), out->version, sizeof(out->version));
    } else {
        return false;
    }
    take_rest(&from, out->path, sizeof(out->path));
    return !from.bad;
}

/* ---- names of versions ---- */

#define ID_SHOWN 10u

/* ETags of others may hold anything. */
static void
put_id(const char *id, char *out)
{
    size_t len = 0;
    for (; *id != '\0' && len < ID_SHOWN; id++)
        if (isalnum((unsigned char)*id))
            out[len++] = *id;
    out[len] = '\0';
}

void
old_version_name(const struct volume_version *version, char out[OLD_VERSION_NAME])
{
    char time[40], id[ID_SHOWN + 1];
    int64_t ns = version->made_ns != 0 ? version->made_ns : version->gone_ns;
    int64_t second = ns - ns % NS_PER_S;
    time_rfc3339(second, time, sizeof(time));
    put_id(version->version, id);
    (void)snprintf(out, OLD_VERSION_NAME, "%.19s.%03lldZ-%s", time,
                   (long long)(ns % NS_PER_S / NS_PER_MS), id);
}
