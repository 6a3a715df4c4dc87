#include "gateway/settings.h"

#include <stdio.h>

#include "tests/fuzz/fuzz.h"

/* A configuration file: what is taken shows every setting and no secret; what is not names the line. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    char *shown = NULL;
    size_t shown_len = 0;
    char *text = fuzz_text(data, size);
    struct config *config = config_new(gateway_settings_defs(), &err);
    HOLDS(config);
    if (config_load_text(config, "file", text, size, &err) == 0) {
        FILE *out = open_memstream(&shown, &shown_len);
        HOLDS(out);
        config_show(config, out);
        HOLDS(fclose(out) == 0 && shown_len > 0);
        free(shown);
    } else {
        HOLDS(strncmp(err.msg, "file:", 5) == 0);
    }
    config_free(config);
    free(text);
    return 0;
}
