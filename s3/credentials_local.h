#ifndef S3_CREDENTIALS_LOCAL_H
#define S3_CREDENTIALS_LOCAL_H

#include <sys/stat.h>

#include "s3/credentials_parse.h"

/*
 * Keys of this machine: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; else the profile AWS_PROFILE
 * ("default") of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and AWS_CONFIG_FILE (~/.aws/config).
 */

/* To see that a file became another one. */
struct credentials_stamp {
    bool present;
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};
struct credentials_stamps {
    struct credentials_stamp file[2];
};
void credentials_local_stamp(struct credentials_stamps *out);
bool credentials_local_same(const struct credentials_stamps *a, const struct credentials_stamps *b);

enum credentials_origin {
    CREDENTIALS_NOWHERE,
    CREDENTIALS_ENVIRONMENT,
    CREDENTIALS_FILE,
    CREDENTIALS_PROCESS /* the profile names a credential_process and no keys before it */
};
/* -1 when a file cannot be read or an entry is unusable. */
int credentials_local_find(struct s3_credentials *out, enum credentials_origin *origin,
                           struct err *err) MUST_CHECK;
/* The credential_process of the profile: 1, or 0 when there is none or keys come before it. `out` holds
 * CREDENTIALS_COMMAND_MAX. */
int credentials_local_command(char *out, struct err *err) MUST_CHECK;
/* The region of the profile, "" for none; errors count as none. */
void credentials_local_region(char *out, size_t size);
/* Where it looks, in words: "profile 'x' in FILE and FILE". */
int credentials_local_places(struct buf *out, struct err *err) MUST_CHECK;

#endif
