#!/usr/bin/env bash
# The main job on a real S3 server that nobody here wrote; the figures come back through awscli.
# timeout: 240
. "$(dirname "$0")/../support/lib.sh"
lib_begin demo-rgw
need_fuse

check_status 0 env HOLDFAST_BUILD="$HOLDFAST_BUILD" "$LIB_ROOT/scripts/demo" --store rgw --rows 2000
check_contains 'the demo prints the result' '5 orders, 9 items, 214 in all' "$WORK/out"
cat "$WORK/out"
