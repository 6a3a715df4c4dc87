#ifndef UNIT_MOUNT_FAKE_VOLUME_H
#define UNIT_MOUNT_FAKE_VOLUME_H

/*
 * The functions of volume/volume.h (and of the index) that mount/ calls, in memory: the front end is proven on a real kernel
 * mount without a store. Names that begin with "slow" stand for objects that are not here: with `nowait` they answer
 * ERR_AGAIN, without it they wait until fake.released or the deadline. The program that includes this replaces the library.
 */
#include "fake_files.h"
#include "fake_past.h"
#include "fake_service.h"
#include "fake_tree.h"

#endif
