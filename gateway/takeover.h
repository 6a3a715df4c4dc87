#ifndef GATEWAY_TAKEOVER_H
#define GATEWAY_TAKEOVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/config.h"
#include "base/json.h"
#include "gateway/privilege.h"

/*
 * What a gateway does to be replaced under running programs, and to replace one that died (docs/adr/0007).
 */
enum gateway_takeover {
    GATEWAY_TAKEOVER_OFF,     /* a death ends the mounts */
    GATEWAY_TAKEOVER_WAIT,    /* programs wait for who starts the next gateway: systemd, a user */
    GATEWAY_TAKEOVER_RESPAWN, /* a guard starts it (gateway/guard.h) */
};
/* The setting, and what this build, kernel and user can. */
int gateway_takeover_mode(const struct config *config, enum gateway_takeover *out,
                          struct err *err) MUST_CHECK;

struct gateway_takeover_mounter {
    const struct config *config;
    enum gateway_takeover mode;
    const char *state_dir;
    const char *program; /* of the mounter */
    const struct gateway_user *user;
    /* answers */
    int socket;
    pid_t pid;    /* 0: not our child */
    bool carried; /* it lived: its connections are to be taken over */
};
/* The living mounter of a gateway that died, else a new one. Root only, before any thread exists, with the state directory's
 * lock. */
int gateway_takeover_mounter(struct gateway_takeover_mounter *mounter, struct err *err) MUST_CHECK;
/* For status and doctor: whether a death would be survived by programs in mounts, and what takeovers met so far. */
struct gateway;
json_t *gateway_takeover_json(const struct gateway *gateway);
/* POST /v1/upgrade: the next gateway takes over, started from the program's file. */
struct exchange;
int gateway_takeover_upgrade(struct exchange *x, struct err *err) MUST_CHECK;
/* Whether the living mounter, if there is one, speaks as this build does. */
int gateway_takeover_check(const char *state_dir, struct err *err) MUST_CHECK;
/* After an orderly end. */
void gateway_takeover_forget(const char *state_dir);

#endif
