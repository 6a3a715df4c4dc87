#include <dirent.h>
#include <stdio.h>

#include "tests/fuzz/fuzz.h"

/* Runs a fuzz target over every file of the directory given, and over nothing at all. */
static int
replay_file(const char *dir, const char *name)
{
    char path[4096];
    static uint8_t data[1 << 20];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "rbe");
    if (!file) {
        (void)fprintf(stderr, "%s: %m\n", path);
        return -1;
    }
    size_t size = fread(data, 1, sizeof(data), file);
    (void)fclose(file);
    uint8_t *copy = malloc(size + 1); /* of the right size, so that asan sees a read past its end */
    if (!copy)
        return -1;
    memcpy(copy, data, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    return 0;
}

static int
no_dots(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int
main(int argc, char **argv)
{
    (void)LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    struct dirent **entries = NULL;
    int found = argc == 2 ? scandir(argv[1], &entries, no_dots, alphasort) : -1;
    if (found <= 0) {
        (void)fprintf(stderr, "no corpus\n");
        return 1;
    }
    int rc = 0;
    for (int i = 0; i < found; i++) {
        rc |= replay_file(argv[1], entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    (void)printf("%d inputs\n", found);
    return rc == 0 ? 0 : 1;
}
