#ifndef BASE_BANNED_H
#define BASE_BANNED_H

/*
 * Included before every source file (cmake/Options.cmake). These calls write past buffers, hide
 * errors, or start a shell; base/buf.h, base/parse.h and the launcher have the replacements. The
 * libc headers come first, so that their own declarations are not poisoned.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* gets() needs no poison: C11 and later do not declare it. */
#pragma GCC poison strcpy strcat sprintf vsprintf atoi atol atoll strtok system

#endif
