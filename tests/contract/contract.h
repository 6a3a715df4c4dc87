#ifndef TESTS_CONTRACT_CONTRACT_H
#define TESTS_CONTRACT_CONTRACT_H

#include <string.h>

#include "base/buf.h"
#include "s3/store.h"

/*
 * One suite over every store. A case works on keys below ctx->base, which the runner removes afterwards. Where caps say
 * that a store cannot do a thing, the case checks that the gate refuses it and that nothing changed, and counts as skipped
 * under the name of that capability; nothing else skips a case, least of all the name of the store.
 */
struct ctx {
    struct store *store;
    char base[64]; /* "contract-<ulid>/<case number>/" */
    bool failed;
    bool skipped;
    const char *lacks; /* the capability that the probe found missing */
    char note[1024];   /* why */
    /* The last call. */
    struct err err;
    struct store_put_result res;
    enum store_outcome outcome;
    struct store_object object;
    struct buf got;
};

typedef void case_fn(struct ctx *ctx);
struct contract_case {
    const char *name;
    case_fn *run;
};
extern const struct contract_case object_cases[];
extern const struct contract_case copy_cases[];
extern const struct contract_case condition_cases[];
extern const struct contract_case key_cases[];
extern const struct contract_case list_cases[];
extern const struct contract_case multipart_cases[];
extern const struct contract_case other_cases[];

void fail_case(struct ctx *ctx, const char *file, int line, const char *what);
#define CHECK(ctx, condition)                               \
    do {                                                    \
        if (!(condition)) {                                 \
            fail_case(ctx, __FILE__, __LINE__, #condition); \
            return;                                         \
        }                                                   \
    } while (0)
#define CHECK_ERROR(ctx, rc, wanted)                                   \
    do {                                                               \
        if ((rc) != -1 || (ctx)->err.code != (wanted)) {               \
            fail_case(ctx, __FILE__, __LINE__, #rc " gives " #wanted); \
            return;                                                    \
        }                                                              \
    } while (0)
#define TEXT(text) (text), strlen(text)

/*
 * Whether the store has the capability. Without it the case goes on to see the refusal, and counts as skipped; it ends at
 * once (ctx->skipped) when the capability was not probed.
 */
bool has_cap(struct ctx *ctx, enum store_yes_no cap, const char *name);

/* Waits for listings that lag behind, where the probe found that they do. */
void settle(struct ctx *ctx);

/* ctx->base with `rest`; the answer lives for the next 16 calls of this thread. */
const char *key_of(struct ctx *ctx, const char *rest);
void fill_bytes(void *out, size_t len, unsigned seed);
char *new_bytes(size_t len, unsigned seed);

/* The calls with short arguments; their results go into ctx. */
int put(struct ctx *ctx, const char *key, const void *data, size_t len);
int put_absent(struct ctx *ctx, const char *key, const void *data, size_t len);
int put_match(struct ctx *ctx, const char *key, const void *data, size_t len, const char *etag);
int put_meta(struct ctx *ctx, const char *key, const struct meta *meta, const char *content_type);
int get(struct ctx *ctx, const char *key);
int get_range(struct ctx *ctx, const char *key, uint64_t off, uint64_t len, const char *if_match);
int head(struct ctx *ctx, const char *key);
int del(struct ctx *ctx, const char *key, const char *if_match);
int copy(struct ctx *ctx, const char *from, const char *to, const char *if_match,
         const struct meta *meta);
/* Whether the object holds exactly these bytes. */
bool holds(struct ctx *ctx, const char *key, const void *data, size_t len);
bool is_absent(struct ctx *ctx, const char *key);

/* A listing as text: each key without ctx->base and a '\n'. */
struct listing {
    struct buf text;
    unsigned count;
    unsigned prefixes;
};
int list(struct ctx *ctx, const char *prefix, const char *start_after, char delimiter,
         unsigned limit, struct listing *out);
/* list() and compare. */
bool lists(struct ctx *ctx, const char *prefix, const char *start_after, char delimiter,
           unsigned limit, const char *wanted);

#endif
