#!/bin/sh
# run.sh PROGRAM CORPUS - fuzzes for HOLDFAST_FUZZ_SECONDS (5). New inputs stay in the build; one that crashes is printed: put it into
# CORPUS with the fix.
set -eu
program=$1
found=$program.found
mkdir -p "$found"
exec "$program" -max_total_time="${HOLDFAST_FUZZ_SECONDS:-5}" -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$program.crash-" "$found" "$2"
