#ifndef SUPPORT_CRASH_POINTS_H
#define SUPPORT_CRASH_POINTS_H

#include "s3/store.h"

/*
 * A store whose PUTs, COPYs and DELETEs are points where libcrash_io.so may kill the process (io.h): before the request is sent,
 * and when it has been done and nobody knows. Takes `inner`. `weak`: as RGW it ignores the conditions of COPY and DELETE.
 */
struct store *points_store(struct store *inner, bool weak);

#endif
