#!/usr/bin/env bash
# Many readers cost time, not memory: files that together are many times the cache are read at once, whole and at random places,
# and the gateway stays small; so do its descriptors.
# timeout: 200
. "$(dirname "$0")/../support/lib.sh"
lib_begin memory

FILES=80
MIB=4
mkdir -p "$WORK/bucket/v/d"
head -c $((MIB << 20)) /dev/urandom >"$WORK/one"
for i in $(seq $FILES); do
    { printf '%-16s' "$i" && tail -c +17 "$WORK/one"; } >"$WORK/bucket/v/d/$i"
done
chmod -R a+rwX "$WORK/bucket"
gateway_start "$WORK/state" "file://$WORK/bucket" --cache-size 64M --cache-floor 1M
check_status 0 "$HOLDFAST" volume create v
memory() { awk '/VmHWM/ { print int($2 / 1024) }' "/proc/$GATEWAY_PID/status"; }
descriptors() { find "/proc/$GATEWAY_PID/fd" -mindepth 1 2>/dev/null | wc -l; }
api GET /v1/list/v/d >/dev/null
BEFORE=$(memory)
FDS=$(descriptors)
TOKEN=$(gateway_token)
export URL TOKEN WORK

# B132: 40 at once, five times the cache.
read_whole() { # NUMBER
    curl -sS -f -m 120 -H "Authorization: Bearer $TOKEN" "$URL/v1/files/v/d/$1" 2>>"$WORK/curl.log" | cmp -s - "$WORK/bucket/v/d/$1" || echo "$1"
}
export -f read_whole
WRONG=$(seq $FILES | xargs -P 40 -I{} bash -c 'read_whole {}')
check_eq 'files that were not read whole' '' "$WRONG"
note "memory: $BEFORE MiB before, $(memory) MiB after $FILES files of $MIB MiB, 40 at once"
[ "$(memory)" -lt $((BEFORE + 120)) ] || fail "reading took $(($(memory) - BEFORE)) MiB"

# B133: 4 KiB here and there of all of them.
read_piece() { # SEED
    local file=$(($1 * 7919 % 80 + 1)) off=$(($1 * 104729 % 1000 * 4096))
    curl -s -f -m 120 -H "Authorization: Bearer $TOKEN" -r "$off-$((off + 4095))" "$URL/v1/files/v/d/$file" |
        cmp -s - <(tail -c +$((off + 1)) "$WORK/bucket/v/d/$file" | head -c 4096) || echo "$file $off"
}
export -f read_piece
WRONG=$(seq 400 | xargs -P 20 -I{} bash -c 'read_piece {}')
check_eq 'pieces that were not read' '' "$WRONG"
note "memory: $(memory) MiB after 400 pieces"
[ "$(memory)" -lt $((BEFORE + 120)) ] || fail "pieces took $(($(memory) - BEFORE)) MiB"

# B114: what was opened for readers is closed again, but for what is kept warm on purpose.
few() { [ "$(descriptors)" -lt $((FDS + 300)) ]; }
wait_until 20 few || fail "$(descriptors) descriptors, $FDS before"
note "descriptors: $FDS before, $(descriptors) after"
gateway_stop
