#include "s3/answer.h"

#include <string.h>

#include "base/parse.h"

struct row {
    const char *code; /* the <Code> of the document */
    enum err_code err;
    const char *advice;
};

/* docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html, and the codes of RGW and R2 that mean the same. */
static const struct row rows[] = {
    { "SignatureDoesNotMatch", ERR_STORE_DENIED,
      "the secret key is wrong for this access key: check it" },
    { "InvalidAccessKeyId", ERR_STORE_DENIED, "the store does not know this access key: check it" },
    { "Unauthorized", ERR_STORE_DENIED, "the store refused the keys: check them" },
    { "AccessDenied", ERR_STORE_DENIED,
      "the keys have no right for this: allow it in the bucket's policy, or use other keys" },
    { "ExpiredToken", ERR_STORE_DENIED, "the temporary keys have expired: get fresh ones" },
    { "TokenRefreshRequired", ERR_STORE_DENIED, "the temporary keys have expired: get fresh ones" },
    { "InvalidToken", ERR_STORE_DENIED, "the session token is not valid: get fresh keys" },
    { "RequestTimeTooSkewed", ERR_STORE_DENIED, "the clock of this machine is wrong: set it" },
    { "AccountProblem", ERR_STORE_DENIED,
      "the store's account has a problem: see the provider's console" },
    { "NoSuchBucket", ERR_STORE_NO_BUCKET,
      "the bucket does not exist: create it or correct the store's URL" },
    { "NoSuchKey", ERR_NOT_FOUND, "it does not exist" },
    { "PreconditionFailed", ERR_CONFLICT, "its version is another one" },
    { "ConditionalRequestConflict", ERR_STORE_RACE, "another writer was at it, try again" },
    { "OperationAborted", ERR_STORE_RACE, "another writer was at it, try again" },
    { "InvalidRange", ERR_RANGE, "the range lies beyond the end" },
    { "NotImplemented", ERR_STORE_UNSUPPORTED, "the store cannot do this" },
    { "EntityTooLarge", ERR_TOO_LARGE, "it is too large for one upload" },
    { "KeyTooLongError", ERR_NAME_TOO_LONG, "the key is too long for the store" },
    { "BadDigest", ERR_STORE_BAD_ANSWER, "the bytes were damaged on their way" },
    { "XAmzContentSHA256Mismatch", ERR_STORE_BAD_ANSWER, "the bytes were damaged on their way" },
    { "QuotaExceeded", ERR_QUOTA, "the store's quota is used up" },
    { "InvalidObjectState", ERR_STORE_UNSUPPORTED,
      "it is archived: restore it in the store first" },
};

static const struct row *
find_row(const char *code)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].code, code) == 0)
            return &rows[i];
    }
    return NULL;
}

static int
by_status(int status, const struct xml_error *error, const char *what, bool is_head,
          struct err *err)
{
    const char *code = error->code[0] ? error->code : "no error code";
    switch (status) {
    case 401:
    case 403:
        return err_set(err, ERR_STORE_DENIED, "%s: the store refused access (%d, %s)", what, status,
                       code);
    case 404:
        /* A page of some proxy is no proof that the key is absent. */
        if (is_head)
            return err_set(err, ERR_NOT_FOUND, "%s: it does not exist", what);
        return err_set(err, ERR_STORE_BAD_ANSWER, "%s: 404 without S3's error document (%s)", what,
                       code);
    case 409:
        return err_set(err, ERR_STORE_RACE, "%s: another writer was at it, try again (%s)", what,
                       code);
    case 412:
        return err_set(err, ERR_CONFLICT, "%s: its version is another one", what);
    case 413:
        return err_set(err, ERR_TOO_LARGE, "%s: it is too large for one upload", what);
    case 416:
        return err_set(err, ERR_RANGE, "%s: the range lies beyond the end", what);
    case 501:
        return err_set(err, ERR_STORE_UNSUPPORTED, "%s: the store cannot do this (%s)", what, code);
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
        return err_set(err, ERR_STORE_AWAY, "%s: the store is not available (%d, %s)", what, status,
                       code);
    default:
        return err_set(err, ERR_STORE_BAD_ANSWER, "%s: unexpected answer %d (%s) %.120s", what,
                       status, code, error->message);
    }
}

/* 301, 400 AuthorizationHeaderMalformed and 307 name the region that the bucket is in. */
static bool
is_wrong_region(int status, const struct xml_error *error)
{
    return strcmp(error->code, "AuthorizationHeaderMalformed") == 0 ||
           strcmp(error->code, "PermanentRedirect") == 0 ||
           strcmp(error->code, "TemporaryRedirect") == 0 ||
           strcmp(error->code, "IllegalLocationConstraintException") == 0 || status == 301 ||
           status == 307;
}

/* INV-9: a server in trouble tells nothing about what is there, whatever code it sends along. */
static bool
is_witness(int status)
{
    return status < 500 && status != 429;
}

static bool
tells_state(enum err_code code)
{
    return code == ERR_NOT_FOUND || code == ERR_CONFLICT || code == ERR_STORE_NO_BUCKET;
}

int
answer_error(int status, const struct xml_error *error, const char *what, bool is_head,
             struct err *err)
{
    if (is_wrong_region(status, error)) {
        if (error->region[0]) {
            return err_set(err, ERR_STORE_DENIED,
                           "%s: the bucket is in region '%s': put region=%s into the store's URL",
                           what, error->region, error->region);
        }
        return err_set(err, ERR_STORE_DENIED,
                       "%s: the region or endpoint is wrong for this bucket: %.160s", what,
                       error->message);
    }
    const struct row *row = find_row(error->code);
    if (row && (is_witness(status) || !tells_state(row->err)))
        return err_set(err, row->err, "%s: %s (%s)", what, row->advice, error->code);
    return by_status(status, error, what, is_head, err);
}

bool
answer_content_range(const char *value, uint64_t *first, uint64_t *last, uint64_t *total)
{
    uint64_t number[3];
    if (strncmp(value, "bytes ", 6) != 0)
        return false;
    const char *p = value + 6;
    static const char ends[3] = { '-', '/', '\0' };
    for (int i = 0; i < 3; i++) {
        size_t len = strspn(p, "0123456789");
        if (!parse_u64_n(p, len, &number[i]) || p[len] != ends[i])
            return false;
        p += len + 1;
    }
    if (number[0] > number[1] || number[1] >= number[2])
        return false;
    *first = number[0];
    *last = number[1];
    *total = number[2];
    return true;
}

bool
answer_is_md5(const char *etag)
{
    return strlen(etag) == 32 && strspn(etag, "0123456789abcdefABCDEF") == 32;
}
