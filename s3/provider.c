#include "s3/provider.h"

#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/clock.h"

/* 4.995 GiB, developers.cloudflare.com/r2/platform/limits: a single upload. */
#define R2_MAX_PUT ((4995ull << 30) / 1000)

static const struct provider profiles[] = {
    { .name = "generic", .region = "us-east-1" },
    { .name = "aws",
      .hosts = { ".amazonaws.com", ".amazonaws.com.cn" },
      .endpoint = "s3.%r.amazonaws.com",
      .region = "us-east-1",
      .virtual_style = true,
      .priced = true,
      .milli_usd_a = 5000,
      .milli_usd_b = 400,
      .milli_usd_gb_month = 23 },
    { .name = "b2",
      .hosts = { ".backblazeb2.com" },
      .endpoint = "s3.%r.backblazeb2.com",
      .region = "us-west-000",
      .region_needed = true,
      .no_put_if_absent = true,
      .no_copy_conditions = true,
      .no_complete_if_absent = true,
      .no_complete_if_match = true },
    { .name = "ceph",
      .region = "us-east-1",
      .etag_bare = true,
      .no_delete_if_match = true,
      .no_copy_conditions = true,
      .no_complete_if_absent = true,
      .no_complete_if_match = true },
    { .name = "garage",
      .region = "garage",
      .no_put_if_absent = true,
      .no_put_if_match = true,
      .no_complete_if_absent = true,
      .no_complete_if_match = true },
    { .name = "gcs",
      .hosts = { "storage.googleapis.com" },
      .endpoint = "storage.googleapis.com",
      .region = "auto",
      .no_put_if_absent = true,
      .no_put_if_match = true,
      .no_delete_if_match = true,
      .no_copy_conditions = true,
      .no_complete_if_absent = true,
      .no_complete_if_match = true },
    { .name = "hetzner",
      .hosts = { ".your-objectstorage.com" },
      .endpoint = "%r.your-objectstorage.com",
      .region = "us-east-1",
      .region_needed = true,
      .no_copy_conditions = true,
      .no_complete_if_absent = true,
      .no_complete_if_match = true },
    { .name = "minio", .region = "us-east-1" },
    { .name = "r2",
      .hosts = { ".r2.cloudflarestorage.com" },
      .endpoint = "%a.r2.cloudflarestorage.com",
      .region = "auto",
      .no_delete_if_match = true,
      .no_complete_if_match = true,
      .folds_names = true,
      .equal_parts = true,
      .min_write_interval_ns = NS_PER_S,
      .max_put_bytes = R2_MAX_PUT,
      .max_part_bytes = R2_MAX_PUT,
      .max_copy_bytes = R2_MAX_PUT,
      .priced = true,
      .milli_usd_a = 4500,
      .milli_usd_b = 360,
      .milli_usd_gb_month = 15 },
    { .name = "spaces",
      .hosts = { ".digitaloceanspaces.com" },
      .endpoint = "%r.digitaloceanspaces.com",
      .region = "us-east-1",
      .region_needed = true,
      .no_copy_conditions = true,
      .no_complete_if_absent = true,
      .no_complete_if_match = true },
    { .name = "swift",
      .region = "us-east-1",
      .no_put_if_absent = true,
      .no_put_if_match = true,
      .no_copy_conditions = true,
      .no_complete_if_absent = true,
      .no_complete_if_match = true },
    { .name = "tigris",
      .hosts = { ".tigris.dev", ".storage.dev" },
      .endpoint = "t3.storage.dev",
      .region = "auto" },
    { .name = "versity", .region = "us-east-1" },
    { .name = "wasabi",
      .hosts = { ".wasabisys.com" },
      .endpoint = "s3.%r.wasabisys.com",
      .region = "us-east-1",
      .no_put_if_absent = true,
      .no_put_if_match = true,
      .no_delete_if_match = true,
      .no_copy_conditions = true,
      .no_complete_if_absent = true,
      .no_complete_if_match = true },
};
#define PROFILE_COUNT (sizeof(profiles) / sizeof(profiles[0]))

const struct provider *
provider_find(const char *name)
{
    for (size_t i = 0; i < PROFILE_COUNT; i++) {
        if (strcmp(profiles[i].name, name) == 0)
            return &profiles[i];
    }
    return NULL;
}

/* Does `host` (len bytes) end in `tail`? A tail with a leading dot also is the host without it. */
static bool
host_ends(const char *host, size_t len, const char *tail)
{
    size_t tail_len = strlen(tail);
    if (tail[0] == '.' && len == tail_len - 1)
        return strncasecmp(host, tail + 1, len) == 0;
    return len >= tail_len && strncasecmp(host + len - tail_len, tail, tail_len) == 0;
}

const struct provider *
provider_guess(const char *host, const char *path)
{
    size_t len = strcspn(host, ":");
    for (size_t i = 0; i < PROFILE_COUNT; i++) {
        for (size_t j = 0; j < 4 && profiles[i].hosts[j]; j++) {
            if (host_ends(host, len, profiles[i].hosts[j]))
                return &profiles[i];
        }
    }
    /* Cloudflare's local R2 (miniflare) has its S3 face at a fixed path. */
    if (strncmp(path, "/cdn-cgi/local/r2", 17) == 0)
        return provider_find("r2");
    return &profiles[0];
}

int
provider_names(struct buf *out, struct err *err)
{
    for (size_t i = 0; i < PROFILE_COUNT; i++) {
        if (buf_appendf(out, err, "%s%s", i ? ", " : "", profiles[i].name) < 0)
            return -1;
    }
    return 0;
}

/* ---- endpoints ---- */

/* One piece of a pattern: a placeholder, or the text up to the next one. */
static int
append_piece(const char **pattern, const char *region, const char *account, struct buf *out,
             struct err *err)
{
    size_t len = strcspn(*pattern, "%");
    if (len > 0) {
        const char *text = *pattern;
        *pattern += len;
        return buf_append(out, text, len, err);
    }
    const char *value = (*pattern)[1] == 'a' ? account : region;
    *pattern += 2;
    return buf_append_str(out, value, err);
}

int
provider_endpoint(const struct provider *provider, const char *region, const char *account,
                  struct buf *out, struct err *err)
{
    const char *pattern = provider->endpoint;
    if (!pattern)
        return err_set(err, ERR_USAGE, "the store's URL needs endpoint= for provider '%s'",
                       provider->name);
    if (strstr(pattern, "%a") && (!account || !*account))
        return err_set(err, ERR_USAGE,
                       "the store's URL needs account= or endpoint= for provider '%s'",
                       provider->name);
    if (!region && provider->region_needed)
        return err_set(err, ERR_USAGE,
                       "the store's URL needs region= or endpoint= for provider '%s'",
                       provider->name);
    while (*pattern) {
        if (append_piece(&pattern, region ? region : provider->region, account, out, err) < 0)
            return -1;
    }
    return 0;
}

bool
provider_host_region(const struct provider *provider, const char *host, char *out, size_t size)
{
    const char *mark = provider->endpoint ? strstr(provider->endpoint, "%r") : NULL;
    size_t len = strcspn(host, ":");
    if (!mark)
        return false;
    size_t before = (size_t)(mark - provider->endpoint);
    size_t after = strlen(mark + 2);
    if (len <= before + after || len - before - after >= size ||
        strncasecmp(host, provider->endpoint, before) != 0 ||
        strncasecmp(host + len - after, mark + 2, after) != 0 ||
        memchr(host + before, '.', len - before - after))
        return false;
    memcpy(out, host + before, len - before - after);
    out[len - before - after] = '\0';
    return true;
}

/* ---- capabilities ---- */

static uint64_t
or_five_gib(uint64_t bytes)
{
    return bytes ? bytes : LIMIT_PUT_BODY;
}

static void
limit_multipart(const struct provider *provider, struct store_caps *caps)
{
    if (provider->no_complete_if_absent)
        caps->complete_if_absent = STORE_NO;
    if (provider->no_complete_if_match)
        caps->complete_if_match = STORE_NO;
    if (provider->no_multipart)
        caps->multipart = STORE_NO;
    if (provider->no_copy_parts)
        caps->copy_parts = STORE_NO;
    if (provider->no_delete_many)
        caps->delete_many = STORE_NO;
    if (provider->no_list_uploads)
        caps->list_uploads = STORE_NO;
}

void
provider_limit_caps(const struct provider *provider, struct store_caps *caps)
{
    if (provider->no_put_if_absent)
        caps->put_if_absent = caps->put_atomic = STORE_NO;
    if (provider->no_put_if_match)
        caps->put_if_match = STORE_NO;
    if (provider->no_delete_if_match)
        caps->delete_if_match = STORE_NO;
    if (provider->no_copy_conditions)
        caps->copy_source_if_match = caps->copy_dest_conditions = STORE_NO;
    if (provider->no_server_side_copy)
        caps->server_side_copy = STORE_NO;
    if (provider->folds_names)
        caps->folds_names = STORE_YES;
    limit_multipart(provider, caps);
    caps->min_write_interval_ns = provider->min_write_interval_ns;
    caps->max_put_bytes = or_five_gib(provider->max_put_bytes);
    caps->max_copy_bytes = or_five_gib(provider->max_copy_bytes);
}

void
provider_caps(const struct provider *provider, struct store_caps *out)
{
    *out = (struct store_caps){
        .put_if_absent = STORE_NOT_PROBED,
        .put_if_match = STORE_NOT_PROBED,
        .put_atomic = STORE_NOT_PROBED,
        .delete_if_match = STORE_NOT_PROBED,
        .copy_source_if_match = STORE_NOT_PROBED,
        .copy_dest_conditions = STORE_NOT_PROBED,
        .server_side_copy = STORE_NOT_PROBED,
        .etag_quoted = provider->etag_bare ? STORE_NO : STORE_NOT_PROBED,
        .list_consistent = STORE_NOT_PROBED,
        .presign = STORE_NOT_PROBED,
        .folds_names = STORE_NOT_PROBED,
        .any_bytes = STORE_NOT_PROBED,
        .long_meta = STORE_NOT_PROBED,
        .multipart = STORE_NOT_PROBED,
        .complete_if_absent = STORE_NOT_PROBED,
        .complete_if_match = STORE_NOT_PROBED,
        .copy_parts = STORE_NOT_PROBED,
        .copy_parts_decodes_twice = STORE_NOT_PROBED,
        .delete_many = STORE_NOT_PROBED,
        .list_uploads = STORE_NOT_PROBED,
    };
    provider_limit_caps(provider, out);
}
