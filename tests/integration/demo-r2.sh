#!/usr/bin/env bash
# The main job on Cloudflare's local R2: an endpoint with a path, quoted ETags, one write per second and key.
# timeout: 300
. "$(dirname "$0")/../support/lib.sh"
lib_begin demo-r2
need_fuse

"$LIB_ROOT/tests/support/r2.sh" install >"$WORK/install" 2>&1 || {
    [ $? != 77 ] || skip "npm's registry cannot be reached"
    fail_now "R2's local server cannot be installed: $(tail -n 3 "$WORK/install")"
}
check_status 0 env HOLDFAST_BUILD="$HOLDFAST_BUILD" "$LIB_ROOT/scripts/demo" --store r2 --rows 200
check_contains 'the demo prints the result' '5 orders, 9 items, 214 in all' "$WORK/out"
cat "$WORK/out"
