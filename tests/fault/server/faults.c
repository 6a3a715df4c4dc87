#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "tests/fault/server/server.h"

/* The plan, and counts of the requests seen. */

#define PLAN_MAX 32
static const char *const names[] = {
#define X(name) #name,
    FAULT_KINDS(X)
#undef X
};
#define KIND_COUNT (sizeof(names) / sizeof(names[0]))
static const char *const ops[] = { FAULT_OPS };
#define OP_COUNT (sizeof(ops) / sizeof(ops[0]))

struct entry {
    enum fault fault;
    char op[OP_SIZE];
    unsigned skip, count;
    unsigned long arg;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the three below */
static struct entry plan[PLAN_MAX];
static unsigned planned;
static unsigned long seen[OP_COUNT];

_Atomic int64_t faults_skew_s;

int64_t
server_wall_ns(void)
{
    return clock_wall_ns() + atomic_load(&faults_skew_s) * NS_PER_S;
}

static void
forget_spent(void)
{
    unsigned left = 0;
    for (unsigned i = 0; i < planned; i++) {
        if (plan[i].count > 0)
            plan[left++] = plan[i];
    }
    planned = left;
}

bool
faults_add(const char *kind, const char *op, unsigned skip, unsigned count, unsigned long arg)
{
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (strcasecmp(names[i], kind) != 0)
            continue;
        pthread_mutex_lock(&lock);
        forget_spent();
        bool room = planned < PLAN_MAX;
        if (room) {
            plan[planned] = (struct entry){ (enum fault)i, "", skip, count, arg };
            (void)snprintf(plan[planned].op, sizeof(plan[planned].op), "%s", op);
            planned++;
        }
        pthread_mutex_unlock(&lock);
        return room;
    }
    return false;
}

void
faults_clear(void)
{
    pthread_mutex_lock(&lock);
    planned = 0;
    memset(seen, 0, sizeof(seen));
    pthread_mutex_unlock(&lock);
    atomic_store(&faults_skew_s, 0);
}

static bool
fits(const struct entry *entry, const char *op)
{
    return strcmp(entry->op, "*") == 0 || strcmp(entry->op, op) == 0;
}

static struct hit
take(const char *op)
{
    for (unsigned i = 0; i < planned; i++) {
        struct entry *entry = &plan[i];
        if (!fits(entry, op) || entry->count == 0 || entry->fault == FAULT_IGNORE_CONDITIONS)
            continue;
        if (entry->skip > 0) {
            entry->skip--;
            continue;
        }
        entry->count--;
        return (struct hit){ entry->fault, entry->arg };
    }
    return (struct hit){ FAULT_NONE, 0 };
}

struct hit
faults_next(const char *op)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < OP_COUNT; i++)
        seen[i] += strcmp(ops[i], op) == 0;
    struct hit hit = take(op);
    pthread_mutex_unlock(&lock);
    return hit;
}

bool
faults_ignore_conditions(const char *op)
{
    bool ignore = false;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < planned; i++)
        ignore = ignore || (plan[i].fault == FAULT_IGNORE_CONDITIONS && fits(&plan[i], op) &&
                            plan[i].count > 0);
    pthread_mutex_unlock(&lock);
    return ignore;
}

void
faults_stats(struct buf *out)
{
    struct err err = ERR_INIT;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < OP_COUNT; i++) {
        if (buf_appendf(out, &err, "%s=%lu\n", ops[i], seen[i]) < 0)
            break;
    }
    pthread_mutex_unlock(&lock);
}
