#!/bin/sh
# run-file.sh CONTRACT: the contract suite on a store in a fresh directory; nothing may be left there.
set -eu
dir=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-contract.XXXXXX")
trap 'rm -rf "$dir"' EXIT
"$1" --name file "file://$dir/store"
left=$(find "$dir/store" -mindepth 1 ! -path '*/.hf~*')
if [ -n "$left" ] || [ -n "$(ls "$dir/store/.hf~tmp")" ]; then
    echo "left behind: $left $(ls "$dir/store/.hf~tmp")" >&2
    exit 1
fi
