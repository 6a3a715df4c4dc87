#ifndef TESTS_SUPPORT_TMP_H
#define TESTS_SUPPORT_TMP_H

#include <stdlib.h>

/* Where the directories of tests go: $TMPDIR or /tmp. scripts/test gives each run a place of its
 * own and looks at what is left there. */
static inline const char *
tmp_base(void)
{
    const char *base = secure_getenv("TMPDIR");
    return base && base[0] == '/' ? base : "/tmp";
}

#endif
