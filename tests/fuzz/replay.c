#include <dirent.h>
#include <errno.h>
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
        (void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
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

int
main(int argc, char **argv)
{
    unsigned count = 0;
    (void)LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    if (!dir) {
        (void)fprintf(stderr, "no corpus\n");
        return 1;
    }
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (entry->d_name[0] == '.')
            continue;
        if (replay_file(argv[1], entry->d_name) < 0)
            return 1;
        count++;
    }
    (void)closedir(dir);
    (void)printf("%u inputs\n", count);
    return count > 0 ? 0 : 1;
}
