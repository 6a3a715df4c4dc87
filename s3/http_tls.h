#ifndef S3_HTTP_TLS_H
#define S3_HTTP_TLS_H

#include <curl/curl.h>

#include "s3/http.h"

/* Whom an exchange trusts, and in plain words why it does not. Verifying cannot be switched off. */

/* `why` holds CURL_ERROR_SIZE and gets libcurl's own words. */
int http_tls_set(CURL *easy, const struct http_options *options, char *why,
                 struct err *err) MUST_CHECK;
/* For CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE and
 * CURLE_SSL_PINNEDPUBKEYNOTMATCH. Answers -1. */
int http_tls_error(CURL *easy, CURLcode code, const struct http_options *options, const char *why,
                   struct err *err);

#endif
