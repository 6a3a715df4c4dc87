#include "s3/open.h"

#include <stdio.h>

#include "base/buf.h"
#include "tests/fuzz/fuzz.h"

/* The URL of a store in every part but its scheme: nothing is left behind, and no secret of it is in the store's name. */

static int
no_keys(void *arg, struct s3_credentials *out, struct err *err)
{
    (void)arg;
    (void)err;
    memset(out, 0, sizeof(*out));
    memcpy(out->access_key, "ACCESS", 7);
    memcpy(out->secret_key, "secret", 7);
    return 0;
}

static void
check_link(struct store *store)
{
    struct err err = ERR_INIT;
    struct buf url;
    const struct store_presign req = { .method = "GET", .key = "a b/+%", .expires_s = 60 };
    buf_init(&url, 65536);
    if (store_presign(store, &req, &url, &err) == 0) {
        HOLDS(strncmp(buf_cstr(&url), "http", 4) == 0);
        for (size_t i = 0; i < url.len; i++)
            HOLDS((unsigned char)url.data[i] > 0x20 && (unsigned char)url.data[i] < 0x7f);
    }
    buf_release(&url);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    char *text = fuzz_text(data, size);
    char *url = malloc(size + 6);
    HOLDS(url);
    (void)snprintf(url, size + 6, "s3://%s", text);
    const struct store_open_args args = { .url = url, .credentials = no_keys };
    struct store *store = s3_store_open(&args, &err);
    if (store) {
        HOLDS(memchr(store->url, 0, sizeof(store->url)) && store->url[0]);
        check_link(store);
        store_free(store);
    } else {
        HOLDS(err.msg[0] != 0);
    }
    free(url);
    free(text);
    return 0;
}
