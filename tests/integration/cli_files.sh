#!/usr/bin/env bash
# The commands on files, over the local socket and over TCP with a token: what goes in comes out, names its base, and every
# failure has its exit status and one line.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin cli-files

gateway_start "$WORK/state" "file://$WORK/bucket"

# ---- volumes ----
check_status 0 "$HOLDFAST" volume create reports
check_status 1 "$HOLDFAST" volume create reports
check_one_line
check_status 0 "$HOLDFAST" volume create other --prefix deep/er/ --quota 10M --history 7 --history-versions 5 --sync close
check_status 0 "$HOLDFAST" volume show other --json
check_eq 'settings of a volume' '["deep/er/",10485760,7,5,"close",false]' \
    "$(jq -c '[.prefix,.quota,.history_days,.history_versions,.sync,.read_only]' "$WORK/out")"
check_status 0 "$HOLDFAST" volume set other --read-only
check_status 0 "$HOLDFAST" volume show other --json
check_eq 'what is not named stays' '[7,5,0]' "$(jq -c '[.history_days,.history_versions,.kept_versions]' "$WORK/out")"
check_eq 'settings in the bucket' '[604800,5]' \
    "$(jq -c '[.history_seconds,.history_count]' "$WORK/bucket/.holdfast/volumes/other.json")"
check_status 0 "$HOLDFAST" volume list --json
check_eq 'volumes' '["other","reports"]' "$(jq -c '[.volumes[].name]|sort' "$WORK/out")"
echo x >"$WORK/x"
check_status 5 "$HOLDFAST" put "$WORK/x" other:/x
check_one_line
check_status 5 "$HOLDFAST" mkdir other:/d
check_status 0 "$HOLDFAST" volume set other --read-write
check_status 0 "$HOLDFAST" put "$WORK/x" other:/x
check_same 'an object under the chosen prefix' "$WORK/x" "$WORK/bucket/deep/er/x"
check_status 4 "$HOLDFAST" volume show nothing
check_status 0 "$HOLDFAST" volume delete other
check_same 'a forgotten volume leaves its objects' "$WORK/x" "$WORK/bucket/deep/er/x"

# ---- bytes of every size that matters, in and out ----
for size in 0 1 65536 1048576 1048577 9000001; do
    head -c "$size" /dev/urandom >"$WORK/in"
    check_status 0 "$HOLDFAST" put "$WORK/in" "reports:/sizes/$size"
    check_status 0 "$HOLDFAST" get "reports:/sizes/$size" "$WORK/got"
    check_same "get of $size bytes" "$WORK/in" "$WORK/got"
    check_same "object of $size bytes" "$WORK/in" "$WORK/bucket/reports/sizes/$size"
    "$HOLDFAST" cat "reports:/sizes/$size" >"$WORK/got"
    check_same "cat of $size bytes" "$WORK/in" "$WORK/got"
    check_status 0 "$HOLDFAST" put - "reports:/stdin/$size" <"$WORK/in"
    check_same "put of standard input of $size bytes" "$WORK/in" "$WORK/bucket/reports/stdin/$size"
done

# ---- names are bytes and text, not syntax ----
for name in 'a b' 'ä ö' '%41' 'a+b&c=d' '#x?y' "it's \"q\"" '...' '日本' 'a;b' '-v'; do
    printf '%s' "$name" >"$WORK/in"
    check_status 0 "$HOLDFAST" put "$WORK/in" "reports:/names/$name"
    check_same "object '$name'" "$WORK/in" "$WORK/bucket/reports/names/$name"
    "$HOLDFAST" cat "reports:/names/$name" >"$WORK/got"
    check_same "cat '$name'" "$WORK/in" "$WORK/got"
done
check_status 0 "$HOLDFAST" ls --json reports:/names
check_eq 'names in a listing' 10 "$(jq '.entries|length' "$WORK/out")"

# ---- a folder as the target ----
check_status 0 "$HOLDFAST" mkdir -p reports:/2026/07
check_status 0 "$HOLDFAST" put "$WORK/x" reports:/2026/07
check_status 0 "$HOLDFAST" cat reports:/2026/07/x
mkdir "$WORK/dir"
check_status 0 "$HOLDFAST" get reports:/2026/07/x "$WORK/dir"
check_same 'get into a folder' "$WORK/x" "$WORK/dir/x"
check_status 1 "$HOLDFAST" put - reports:/2026 <"$WORK/x"

# ---- versions: nothing is overwritten unseen ----
echo one >"$WORK/one"
echo two >"$WORK/two"
echo three >"$WORK/three"
check_status 0 "$HOLDFAST" put --json "$WORK/one" reports:/f
version=$(jq -r .version "$WORK/out")
check_status 3 "$HOLDFAST" put --create "$WORK/two" reports:/f
check_one_line
check_status 0 "$HOLDFAST" put --base "$version" "$WORK/two" reports:/f
check_status 3 "$HOLDFAST" put --base "$version" "$WORK/three" reports:/f
check_one_line
check_same 'the object after a refused put' "$WORK/two" "$WORK/bucket/reports/f"
check_status 2 "$HOLDFAST" put --base x --create "$WORK/one" reports:/f
check_status 0 "$HOLDFAST" get --version "$version" reports:/f "$WORK/got"
check_same 'an older version' "$WORK/one" "$WORK/got"
check_status 4 "$HOLDFAST" get --version 01ARZ3NDEKTSV4RRFFQ69G5FAV reports:/f -
touch -d '2020-01-02T03:04:05.25Z' "$WORK/one"
chmod 750 "$WORK/one"
check_status 0 "$HOLDFAST" put "$WORK/one" reports:/f
check_status 0 "$HOLDFAST" stat --json reports:/f
check_eq 'mode, time, state' '["0750","2020-01-02T03:04:05.250000000Z",true]' "$(jq -c '[.mode,.mtime,.synced]' "$WORK/out")"

# ---- removing and moving ----
check_status 4 "$HOLDFAST" rm reports:/nothing
check_one_line
check_status 1 "$HOLDFAST" rm reports:/2026
check_status 0 "$HOLDFAST" rm -r reports:/2026
check_status 4 "$HOLDFAST" stat reports:/2026
check_status 0 "$HOLDFAST" rm reports:/sizes/0 reports:/sizes/1
check_status 0 "$HOLDFAST" mv reports:/sizes reports:/moved
check_status 0 "$HOLDFAST" get reports:/moved/9000001 "$WORK/got"
check_same 'a file in a moved folder' "$WORK/bucket/reports/stdin/9000001" "$WORK/got"
check_status 1 "$HOLDFAST" mv reports:/f reports:/moved/65536
check_status 0 "$HOLDFAST" mv --replace reports:/f reports:/moved/65536
check_status 1 "$HOLDFAST" mv reports:/moved other:/moved
check_status 0 "$HOLDFAST" flush reports --timeout 30
check_same 'the bucket follows a move' "$WORK/one" "$WORK/bucket/reports/moved/65536"
[ ! -e "$WORK/bucket/reports/f" ] || fail 'the old name of a moved file is still in the bucket'
check_status 1 "$HOLDFAST" mkdir reports:/moved
check_status 4 "$HOLDFAST" mkdir reports:/no/parent

# ---- what get leaves behind when it fails ----
echo keep >"$WORK/target"
check_status 4 "$HOLDFAST" get reports:/nothing "$WORK/target"
check_eq 'a failed get leaves the old file' keep "$(cat "$WORK/target")"
check_eq 'and nothing beside it' 1 "$(find "$WORK" -maxdepth 1 -name 'target*' | wc -l)"

# ---- the same over TCP ----
export HOLDFAST_TOKEN
HOLDFAST_TOKEN=$(gateway_token)
check_status 0 "$HOLDFAST" cat --url "$URL" reports:/moved/65536
check_same 'cat over TCP' "$WORK/one" "$WORK/out"
check_status 0 "$HOLDFAST" put --url "$URL" - reports:/tcp <"$WORK/two"
check_status 3 "$HOLDFAST" put --url "$URL" --create "$WORK/two" reports:/tcp
head -c 9000001 /dev/urandom >"$WORK/in"
check_status 3 "$HOLDFAST" put --url "$URL" --create "$WORK/in" reports:/tcp
HOLDFAST_TOKEN=0000
check_status 5 "$HOLDFAST" cat --url "$URL" reports:/tcp
check_one_line
unset HOLDFAST_TOKEN
check_status 6 "$HOLDFAST" cat --url http://127.0.0.1:1 reports:/tcp
check_one_line

# ---- state ----
check_status 0 "$HOLDFAST" status
check_contains 'status' 'everything is in the bucket' "$WORK/out"
check_status 0 "$HOLDFAST" status --json
check_eq 'status as JSON' '[true,0,0]' "$(jq -c '[.store.ok,.unsynced_files,.conflicts]' "$WORK/out")"
check_status 0 "$HOLDFAST" doctor --json
check_eq 'doctor finds the gateway' ok "$(jq -r '.checks[]|select(.check=="gateway").result' "$WORK/out")"
check_status 0 "$HOLDFAST" mounts --json

# ---- the end: orderly, and everything is there at the next start ----
stop_begin=$(now_ms)
gateway_stop
[ $(($(now_ms) - stop_begin)) -lt 30000 ] || fail 'the gateway takes too long to end'
check_status 6 "$HOLDFAST" ls reports
check_one_line
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" get reports:/tcp "$WORK/got"
check_same 'a file after a restart' "$WORK/two" "$WORK/got"
