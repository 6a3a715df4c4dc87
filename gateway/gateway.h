#ifndef GATEWAY_GATEWAY_H
#define GATEWAY_GATEWAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "gateway/feed.h"
#include "gateway/guard.h"
#include "gateway/takeover.h"
#include "mount/mount.h"
#include "volume/volume.h"

/*
 * What every request handler of one daemon shares. Filled by gateway/daemon.c before the listeners start, read-only after.
 */
#define GATEWAY_TOKEN_SIZE 65

struct gateway {
    struct volume_service *service;
    struct mount_service *mounts; /* NULL: this daemon cannot mount */
    struct feed *feed;
    const char *state_dir;
    const char *hosts;              /* further Host names, comma-separated, or NULL */
    unsigned port;                  /* of the TCP listener */
    char token[GATEWAY_TOKEN_SIZE]; /* of STATE/token: asked for on TCP */
    char hardening[256];            /* which protections are on, for status and doctor */
    int64_t started_ns;             /* wall */
    enum gateway_takeover takeover;
    struct gateway_guard *guard; /* who starts the next gateway; never NULL */
    struct ticker *sweeper;      /* of ended links; NULL: none runs */
    uint32_t uid, gid;           /* owner of what HTTP and CLI create */
};

#endif
