#ifndef S3_CREDENTIALS_REMOTE_H
#define S3_CREDENTIALS_REMOTE_H

#include "s3/credentials_parse.h"
#include "s3/http.h"

/*
 * Keys that an endpoint beside the machine hands out. Container (ECS, EKS): AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or
 * _FULL_URI, with AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE (read anew each time) or _TOKEN. Instance (EC2, IMDSv2 only):
 * unless AWS_EC2_METADATA_DISABLED is true, at AWS_EC2_METADATA_SERVICE_ENDPOINT.
 */
bool credentials_container_wanted(void);
int credentials_container_fetch(struct http *http, struct s3_credentials *out,
                                struct err *err) MUST_CHECK;
bool credentials_instance_wanted(void);
int credentials_instance_fetch(struct http *http, struct s3_credentials *out,
                               struct err *err) MUST_CHECK;

#endif
