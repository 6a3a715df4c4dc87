#include "s3/http_tls.h"

#include <stdlib.h>
#include <string.h>

static const char *
ca_file(const struct http_options *options)
{
    const char *file = options->ca_file;
    if (!file)
        file = secure_getenv("AWS_CA_BUNDLE");
    return file && *file ? file : NULL;
}

#define SET(option, value)                                                    \
    do {                                                                      \
        if (curl_easy_setopt(easy, option, value) != CURLE_OK)                \
            return err_set(err, ERR_INTERNAL, "libcurl refuses %s", #option); \
    } while (0)

int
http_tls_set(CURL *easy, const struct http_options *options, char *why, struct err *err)
{
    const char *file = ca_file(options);
    if (file)
        SET(CURLOPT_CAINFO, file);
    if (options->pins)
        SET(CURLOPT_PINNEDPUBLICKEY, options->pins);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_ERRORBUFFER, why);
    return 0;
}

/* X509_V_ERR_* of OpenSSL's x509_vfy.h; its header is base/'s alone. */
enum verify {
    VERIFY_NOT_YET_VALID = 9,
    VERIFY_EXPIRED = 10,
    VERIFY_SELF_SIGNED = 18,
    VERIFY_SELF_SIGNED_ABOVE = 19,
    VERIFY_NO_ISSUER = 20,
    VERIFY_NO_ISSUER_LOCALLY = 21
};

static int
not_trusted(CURL *easy, const char *file, const char *why, struct err *err)
{
    long result = 0;
    (void)curl_easy_getinfo(easy, CURLINFO_SSL_VERIFYRESULT, &result);
    /* libcurl compares the names by itself: there is no code for it. */
    if (strstr(why, "subject name"))
        return err_set(err, ERR_STORE_AWAY,
                       "the store's certificate is for another host: use the name that it has in "
                       "endpoint= (%.160s)",
                       why);
    switch (result) {
    case VERIFY_EXPIRED:
        return err_set(err, ERR_STORE_AWAY,
                       "the store's certificate has expired: its owner has to renew it, or this "
                       "machine's clock is wrong");
    case VERIFY_NOT_YET_VALID:
        return err_set(err, ERR_STORE_AWAY,
                       "the store's certificate is not valid yet: this machine's clock is wrong");
    case VERIFY_SELF_SIGNED:
    case VERIFY_SELF_SIGNED_ABOVE:
    case VERIFY_NO_ISSUER:
    case VERIFY_NO_ISSUER_LOCALLY:
        return err_set(err, ERR_STORE_AWAY,
                       "the authority that signed the store's certificate is not known%s%.120s: "
                       "name the file of its certificate with --store-ca, ca= in the store's URL, "
                       "or AWS_CA_BUNDLE",
                       file ? " in " : "", file ? file : "");
    default:
        return err_set(err, ERR_STORE_AWAY, "the store's certificate is not trusted: %.200s", why);
    }
}

static int
no_connection(const char *why, struct err *err)
{
    if (strstr(why, "wrong version number") || strstr(why, "packet length too long"))
        return err_set(err, ERR_STORE_AWAY,
                       "there is no TLS at the store's endpoint: is it http:// rather than "
                       "https://?");
    return err_set(err, ERR_STORE_AWAY, "no TLS connection to the store: %.200s", why);
}

int
http_tls_error(CURL *easy, CURLcode code, const struct http_options *options, const char *why,
               struct err *err)
{
    const char *file = ca_file(options);
    if (code == CURLE_SSL_CONNECT_ERROR)
        return no_connection(why, err);
    if (code == CURLE_PEER_FAILED_VERIFICATION)
        return not_trusted(easy, file, why, err);
    if (code == CURLE_SSL_CACERT_BADFILE)
        return err_set(err, ERR_STORE_AWAY,
                       "the file of authorities '%.160s' cannot be read or holds no certificate: "
                       "check --store-ca, ca= in the store's URL, or AWS_CA_BUNDLE",
                       file ? file : "of this system");
    return err_set(err, ERR_STORE_AWAY,
                   "the store's key is not the pinned one: somebody is in between, or the store "
                   "has a new key, then put its pin into pin= of the store's URL");
}
