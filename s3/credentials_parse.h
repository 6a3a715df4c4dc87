#ifndef S3_CREDENTIALS_PARSE_H
#define S3_CREDENTIALS_PARSE_H

#include "s3/open.h"

/*
 * Keys in the forms in which others write them. Pure. No error text holds a value: it may be a secret in the wrong
 * place. Values are printable ASCII without blanks, since they go into headers.
 */

#define CREDENTIALS_COMMAND_MAX 4096
#define CREDENTIALS_WORDS_MAX 64
/* Of a process or an endpoint. */
#define CREDENTIALS_OUTPUT_MAX (64u << 10)

/* What one profile says in one file. */
struct credentials_profile {
    struct s3_credentials keys;
    bool has_keys;                         /* both halves of the pair */
    char command[CREDENTIALS_COMMAND_MAX]; /* credential_process, "" for none */
    char region[64];
};

/* Reads the section of `profile` from the text of a profile file. `config_form`: sections are "[profile NAME]" except
 * "[default]". The last line for a setting counts. */
int credentials_profile_parse(const char *text, size_t len, const char *profile, bool config_form,
                              struct credentials_profile *out, struct err *err) MUST_CHECK;

/* Reads the keys of `profile` from the text of such a file. Answers 1 when found, 0 when not, -1 with an error when the
 * entry is unusable. */
int credentials_from_ini(const char *text, size_t len, const char *profile, bool config_form,
                         struct s3_credentials *out, struct err *err) MUST_CHECK;

/* The JSON that a credential_process prints ("Version": 1), and the one of the container and instance endpoints
 * (docs.aws.amazon.com/sdkref, "Process credential provider", "Container credential provider", "IMDS"). */
enum credentials_document { CREDENTIALS_OF_PROCESS, CREDENTIALS_OF_ENDPOINT };
int credentials_from_json(const char *text, size_t len, enum credentials_document kind,
                          struct s3_credentials *out, struct err *err) MUST_CHECK;

/* Splits a credential_process into words, in place, as a POSIX shell quotes ('', "", \) and without anything else of a
 * shell: no variables, no pipes. argv holds CREDENTIALS_WORDS_MAX + 1 and ends in NULL. */
int credentials_split(char *command, char **argv, struct err *err) MUST_CHECK;

/* Whether the keys may be asked for at this URL: https, or plain HTTP to this machine or to the link-local addresses that
 * AWS's own tools allow. */
bool credentials_url_allowed(const char *url);

void credentials_wipe(struct s3_credentials *credentials);

/* One setting of the environment or a file; ERR_STORE_DENIED names it when it is unusable. */
enum credentials_field { CREDENTIALS_ACCESS_KEY, CREDENTIALS_SECRET_KEY, CREDENTIALS_TOKEN };
int credentials_set(struct s3_credentials *out, enum credentials_field field, const char *name,
                    const char *value, size_t len, struct err *err) MUST_CHECK;

#endif
