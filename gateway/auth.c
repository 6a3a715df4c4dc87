#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "gateway/router.h"

/* DNS rebinding: a page of a foreign name that resolves to this address must get nothing, on loopback too. */
static int
check_host(const struct exchange *x, struct err *err)
{
    const char *host = exchange_header(x, "Host");
    if (!host || !gateway_request_host_allowed(host, x->gateway->port, x->gateway->hosts))
        return err_set(err, ERR_MISDIRECTED,
                       "the host '%s' is not served here: allow it with --host", host ? host : "");
    return 0;
}

static int
check_token(struct exchange *x, struct err *err)
{
    static const char scheme[] = "Bearer ";
    const char *value = exchange_header(x, "Authorization");
    if (!value)
        return err_set(err, ERR_UNAUTHENTICATED,
                       "send 'Authorization: Bearer TOKEN' with one of 'holdfast token create', or "
                       "that of STATE/token");
    const char *token = value + sizeof(scheme) - 1;
    if (strncasecmp(value, scheme, sizeof(scheme) - 1) != 0)
        return err_set(err, ERR_UNAUTHENTICATED, "'Authorization' must be 'Bearer TOKEN'");
    if (strlen(token) != GATEWAY_TOKEN_SIZE - 1 ||
        !hash_equal(token, x->gateway->token, GATEWAY_TOKEN_SIZE - 1))
        return gateway_tokens_login(x, token, err);
    gateway_access_all(GATEWAY_OWNER, &x->access);
    return 0;
}

static bool
changes(const struct exchange *x)
{
    return strcmp(x->method, "GET") != 0 && strcmp(x->method, "HEAD") != 0;
}

/* A browser says where a request comes from; other clients say nothing, which is fine. */
static int
check_origin(const struct exchange *x, struct err *err)
{
    const char *site = exchange_header(x, "Sec-Fetch-Site");
    const char *origin = exchange_header(x, "Origin");
    if (!changes(x))
        return 0;
    if (site) {
        if (strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0)
            return 0;
        return err_set(err, ERR_DENIED, "a change asked for by another site is refused");
    }
    if (!origin)
        return 0;
    const char *host = strstr(origin, "://");
    if (host && gateway_request_host_allowed(host + 3, x->gateway->port, x->gateway->hosts))
        return 0;
    return err_set(err, ERR_DENIED, "a change asked for by '%s' is refused", origin);
}

int
gateway_auth_check(struct exchange *x, struct err *err)
{
    if (x->local) {
        gateway_access_all(GATEWAY_LOCAL, &x->access);
        return 0;
    }
    if (check_host(x, err) < 0 || check_origin(x, err) < 0)
        return -1;
    return check_token(x, err);
}
