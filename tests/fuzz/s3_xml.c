#include "s3/xml.h"

#include "tests/fuzz/fuzz.h"

/* INV-9: a page that is believed has every field and rising keys. (That it has a way on is judged by list_page.c: s3_listing.c.) */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct xml_error error;
    struct xml_list list;
    char etag[LIMIT_ETAG];
    char *text = fuzz_text(data, size);
    if (xml_error_parse(text, size, &error))
        HOLDS(memchr(error.code, 0, sizeof(error.code)) &&
              memchr(error.message, 0, sizeof(error.message)));
    xml_list_init(&list);
    if (xml_list_parse(text, size, &list, &err) == 0) {
        for (size_t i = 0; i < list.count; i++) {
            HOLDS(list.entry[i].key && (list.entry[i].is_prefix || list.entry[i].etag));
            HOLDS(i == 0 || strcmp(list.entry[i - 1].key, list.entry[i].key) <= 0);
        }
    }
    xml_list_release(&list);
    if (xml_copy_parse(text, size, etag, &err) == 0)
        HOLDS(etag[0] != '\0');
    free(text);
    return 0;
}
