#!/usr/bin/env bash
# The main job on the embedded store: sandbox, second sandbox, HTTP and the bucket agree (docs/interface.md section 3).
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin demo
need_fuse

check_status 0 env HOLDFAST_BUILD="$HOLDFAST_BUILD" "$LIB_ROOT/scripts/demo" --store file --rows 500
check_contains 'the demo prints the result' '5 orders, 9 items, 214 in all' "$WORK/out"
cat "$WORK/out"
