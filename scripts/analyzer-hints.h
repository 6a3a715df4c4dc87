#ifndef SCRIPTS_ANALYZER_HINTS_H
#define SCRIPTS_ANALYZER_HINTS_H

/* For scripts/check-tidy only: the analyzer sees one file at a time and would follow paths on which these answer 0. */
#include "base/err.h"

#define err_set(...) ((void)err_set(__VA_ARGS__), -1)
#define err_sys(...) ((void)err_sys(__VA_ARGS__), -1)
#define err_wrap(...) ((void)err_wrap(__VA_ARGS__), -1)
#define err_nomem(...) ((void)err_nomem(__VA_ARGS__), -1)

#endif
