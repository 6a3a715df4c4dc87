#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/bench/load/load.h"

/* What cat, cp and tar do: plain reads and writes of a mebibyte at most, one file after the other. */

static int
write_all(int fd, const char *data, size_t len, struct err *err)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, errno, "cannot write");
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* All bytes of `from`, to `to` unless it is -1. */
static int
pump(struct worker *worker, int from, int to, struct err *err)
{
    for (;;) {
        ssize_t n = read(from, worker->block, BLOCK_SIZE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "cannot read");
        if (n == 0)
            return 0;
        if (to >= 0 && write_all(to, worker->block, (size_t)n, err) < 0)
            return -1;
        atomic_fetch_add(&worker->load->tally.bytes, (uint64_t)n);
    }
}

/* Errors of close count: a mount tells there what it could not keep. */
static int
copy_file(struct worker *worker, const char *from, const char *to, struct err *err)
{
    scope_fd int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return err_sys(err, errno, "cannot open '%s'", from);
    int out = -1;
    if (to) {
        out = open(to, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
        if (out < 0)
            return err_sys(err, errno, "cannot make '%s'", to);
    }
    int result = pump(worker, in, out, err);
    if (out >= 0 && close(out) < 0 && result == 0)
        result = err_sys(err, errno, "cannot close '%s'", to);
    return result;
}

static int
one_file(struct load *load, const char *from, const char *to, struct err *err)
{
    struct worker worker;
    int result = worker_init(&worker, load, false, err);
    load->tally.began_ns = clock_mono_ns();
    load->tally.first_write_ns = load->tally.began_ns;
    if (result == 0)
        result = copy_file(&worker, from, to, err);
    load->tally.ended_ns = clock_mono_ns();
    worker_release(&worker);
    return result;
}

int
load_read(struct load *load, const char *file, const char *copy, struct err *err)
{
    return one_file(load, file, copy, err);
}

int
load_copy(struct load *load, const char *from, const char *to, struct err *err)
{
    return one_file(load, from, to, err);
}

struct tree {
    const char *from;
    const char *to; /* NULL: only read */
    struct names names;
};

static int
tree_file(void *arg, struct worker *worker, size_t item, struct err *err)
{
    const struct tree *tree = arg;
    char from[PATH_MAX];
    char to[PATH_MAX] = "";
    const char *name = tree->names.list[item];
    int len = snprintf(from, sizeof(from), "%s/%s", tree->from, name);
    int to_len = tree->to ? snprintf(to, sizeof(to), "%s/%s", tree->to, name) : 0;
    if (len < 0 || (size_t)len >= sizeof(from) || to_len < 0 || (size_t)to_len >= sizeof(to))
        return err_set(err, ERR_NAME_TOO_LONG, "the name '%s' is too long", name);
    return copy_file(worker, from, tree->to ? to : NULL, err);
}

static int
run_tree(struct load *load, struct tree *tree, struct err *err)
{
    load->tally.began_ns = clock_mono_ns();
    load->tally.first_write_ns = load->tally.began_ns;
    int result = names_of_dir(&tree->names, tree->from, err);
    if (result == 0)
        result = workers_run(load, false, tree->names.count, tree_file, tree, err);
    load->tally.ended_ns = clock_mono_ns();
    names_release(&tree->names);
    return result;
}

int
load_read_tree(struct load *load, const char *dir, struct err *err)
{
    return run_tree(load, &(struct tree){ .from = dir }, err);
}

int
load_copy_tree(struct load *load, const char *from, const char *to, struct err *err)
{
    return run_tree(load, &(struct tree){ .from = from, .to = to }, err);
}
