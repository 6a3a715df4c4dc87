#!/usr/bin/env bash
# What `find` finds, over the command line and over HTTP, against find(1) and the shell's own patterns on a plain copy of
# the tree; pages; folders of the bucket that nobody has looked into yet.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin search

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v

# ---- a tree that another client put into the bucket ----
mkdir "$WORK/plain"
python3 - "$WORK/plain" <<'PY'
import os, random, sys
random.seed(20261130)
root = sys.argv[1]
names = ["a", "b", "src", "doc", "ü", "with space", ".hidden", "x.d"]
for i in range(240):
    parts = [random.choice(names) for _ in range(random.randrange(4))]
    os.makedirs(os.path.join(root, *parts), exist_ok=True)
    path = os.path.join(root, *parts, f"f{i}" + random.choice([".csv", ".txt", ".tar.gz", "", ".ä"]))
    with open(path, "w") as f:
        f.write("x" * (i % 7) * 100)
PY
cp -r "$WORK/plain/." "$WORK/bucket/v/"
chown -R --reference="$WORK/bucket" "$WORK/bucket/v"
plain() { (cd "$WORK/plain" && find . -mindepth 1 "$@" -printf '%P\n') | sort >"$WORK/wanted"; }
found() { # ARG...: paths without the volume, sorted
    check_status 0 "$HOLDFAST" find "$@"
    sed 's,^v:/,,; s,/$,,' "$WORK/out" | sort >"$WORK/seen"
}
check_found() { # WHAT
    [ -s "$WORK/wanted" ] || fail "$1: nothing is expected, which proves nothing"
    cmp -s "$WORK/wanted" "$WORK/seen" || fail "$1: $(diff "$WORK/wanted" "$WORK/seen" | head -n 5)"
}

found v
check_contains 'what was never listed is said' 'not complete' "$WORK/err"
plain
found v --list
check_found 'everything, folders listed first'
check_eq 'and nothing is said' '' "$(cat "$WORK/err")"
found v
check_found 'everything, without asking the bucket'

# ---- patterns, as bash means them ----
shopt -s globstar dotglob nullglob extglob
shell() { # PATTERN: what bash finds
    local path
    (cd "$WORK/plain" && for path in $1; do printf '%s\n' "${path%/}"; done) | sort -u >"$WORK/wanted"
}
IFS=
for pattern in '**/*.csv' 'src/*' 'src/**/*.txt' '**/doc/**/*' 'a/*/b/*' '**/f[0-9].*' '**/f[!0-5]?.csv' '**/?/*.txt' '**/*.ä' 'src/**'; do
    shell "$pattern"
    [ "$pattern" != 'src/**' ] || sed -i '/^src$/d' "$WORK/wanted" # here only what lies below
    found v "$pattern"
    check_found "$pattern"
done
unset IFS
(cd "$WORK/plain" && find . -mindepth 1 \( -name '*.csv' -o -name '*.tar.gz' \) -printf '%P\n') | sort >"$WORK/wanted"
found v '*.{csv,tar.gz}'
check_found 'a name anywhere, in braces'
(cd "$WORK/plain/a" && find . -mindepth 1 -name '*.txt' -printf 'a/%P\n') | sort >"$WORK/wanted"
found v:/a '*.txt'
check_found 'below a folder'
plain -type d
found v --kind dir
check_found 'folders'
plain -type f -size +400c
found v --larger 400 --kind file
check_found 'larger'
touch -d '2 days ago' "$WORK/marker"
echo new >"$WORK/new"
check_status 0 "$HOLDFAST" put "$WORK/new" v:/src/new.txt
mtime=$("$HOLDFAST" stat v:/src/new.txt --json | jq -r .mtime)
check_eq 'nothing is newer than the newest' '' "$("$HOLDFAST" find v --kind file --newer "$mtime")"
check_eq 'newer' v:/src/new.txt "$("$HOLDFAST" find v 'new*' --newer 1h)"

# ---- pages: in one order, none twice, none left out ----
check_status 0 "$HOLDFAST" find v --json
jq -r '.files[].path' "$WORK/out" >"$WORK/whole"
check_eq 'complete' true "$(jq .complete "$WORK/out")"
tr / '\001' <"$WORK/whole" | LC_ALL=C sort -c || fail 'paths are not in order'
: >"$WORK/paged"
next="" pages=0
while [ "$pages" -lt 50 ]; do
    api GET "/v1/find/v?limit=17$next" >"$WORK/page"
    check_eq 'a page' 200 "$(api_status)"
    jq -r '.files[].path' "$WORK/page" >>"$WORK/paged"
    pages=$((pages + 1))
    [ "$(jq .truncated "$WORK/page")" = true ] || break
    next="&cursor=$(jq -r .next "$WORK/page")"
done
check_same 'pages' "$WORK/whole" "$WORK/paged"
check_eq 'how many pages' $((($(wc -l <"$WORK/whole") + 16) / 17)) "$pages"
check_status 0 "$HOLDFAST" find v --limit 3
check_contains 'that there are more' 'there are more' "$WORK/err"
check_eq 'as many as were asked for' 3 "$(wc -l <"$WORK/out")"

# ---- what cannot be ----
for query in 'glob=%5Ba' 'glob=a//b' 'glob=' 'glob=../x' 'kind=no' 'limit=0' 'limit=10001' 'newer=never' 'larger=x' 'cursor=zz' 'cursor=2e2e' 'glob=%00'; do
    api GET "/v1/find/v?$query" >"$WORK/page"
    check_eq "status of $query" 400 "$(api_status)"
done
api GET "/v1/find/v?prefix=nothing" >"$WORK/page"
check_eq 'no such folder' 404 "$(api_status)"
api GET "/v1/find/v?prefix=src/new.txt" >"$WORK/page"
check_eq 'no folder' 409 "$(api_status)"
check_status 4 "$HOLDFAST" find nothing
check_status 2 "$HOLDFAST" find v --limit 0
check_status 2 "$HOLDFAST" find v --larger much
