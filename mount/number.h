#ifndef MOUNT_NUMBER_H
#define MOUNT_NUMBER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * Numbers for names, for inodes that no index knows. A number comes from the name's hash, so that the same name has the same one after
 * it was forgotten, and in the next gateway; a table keeps which name a number stands for while a kernel knows it, and tells the few
 * apart that share a hash. A number that is not in the table stands for nothing.
 *
 * Names are any bytes. Numbers have NUMBER_BITS bits. Thread safe; the mutex is a leaf.
 */
#define NUMBER_BITS 54

struct number;
struct number_table {
    pthread_mutex_t mutex;
    struct number **bucket;
    size_t size, count;
};

int number_table_init(struct number_table *table, struct err *err) MUST_CHECK;
void number_table_release(struct number_table *table);
/* Counts the name once more. `check`: 32 further bits of its hash. */
int number_give(struct number_table *table, const void *name, size_t len, uint64_t *number,
                uint32_t *check, struct err *err) MUST_CHECK;
/* The number that the name would have, unless others share its hash. */
int number_of(const void *name, size_t len, uint64_t *number, struct err *err) MUST_CHECK;
/* How long the name is (at most `size` bytes are copied); -1: unknown. */
ssize_t number_name(struct number_table *table, uint64_t number, void *out, size_t size);
/* Counts it so many times less; at none it is unknown. */
void number_forget(struct number_table *table, uint64_t number, uint64_t count);

#endif
