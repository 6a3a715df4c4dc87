#ifndef S3_CREDENTIALS_H
#define S3_CREDENTIALS_H

#include "s3/open.h"

/*
 * Where the keys of an s3:// store come from when nobody gives a provider: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
 * AWS_SESSION_TOKEN; else the profile AWS_PROFILE ("default") of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials), then
 * of AWS_CONFIG_FILE (~/.aws/config). credential_process is not run here: it comes as an s3_credentials_fn of the
 * launcher (docs/design.md section 9).
 */

/* An s3_credentials_fn; `arg` is not used. ERR_STORE_DENIED saying where it looked when there are none. */
int credentials_default(void *arg, struct s3_credentials *out, struct err *err) MUST_CHECK;

/* Reads the keys of `profile` from the text of such a file. Answers 1 when found, 0 when not, -1 with an error when the
 * entry is unusable. `config_form`: sections are "[profile NAME]" except "[default]". Pure. */
int credentials_from_ini(const char *text, size_t len, const char *profile, bool config_form,
                         struct s3_credentials *out, struct err *err) MUST_CHECK;
void credentials_wipe(struct s3_credentials *credentials);

#endif
