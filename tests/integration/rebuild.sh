#!/usr/bin/env bash
# INV-6 (S31, S32): losing the index loses nothing that was synced, and no staged byte either. A tree with modes, links and hostile names,
# conflicts, and files that were not in the bucket yet: the index is deleted, damaged, or the whole state directory is gone;
# `holdfast rebuild` makes it anew, also after being killed at any moment, and what is there afterwards is compared with a
# directory on a disk beside it and with a walk of the bucket by another program.
# timeout: 180
# long-timeout: 1200
. "$(dirname "$0")/../support/lib.sh"
lib_begin rebuild
need_fuse
command -v python3 >/dev/null || skip 'no python3'

STATE=$WORK/state
BUCKET=$WORK/bucket
STORE=file://$BUCKET
M=$WORK/m
T=$WORK/twin
umask 022
mkdir "$M" "$T"
defer "while umount '$M' 2>/dev/null; do :; done"
mounted() { check_status 0 "$HOLDFAST" mount v "$M"; }
unmounted() { # by the gateway while it lives, so that the next one does not mount it again
    "$HOLDFAST" umount "$M" 2>/dev/null
    while umount "$M" 2>/dev/null; do :; done
}
both() { # COMMAND, in either directory
    (cd "$T" && eval "$1") || fail "not on the disk: $1"
    (cd "$M" && eval "$1") || fail "not in the mount: $1"
}
tree() { # DIR: every name with type, mode, size (not of folders), target and bytes
    (cd "$1" && find . -mindepth 1 -not -path './.holdfast*' \( -type d -printf '%P\0%y %m\0' -o -printf '%P\0%y %m %s %l\0' \) |
        python3 -c 'import sys
words = sys.stdin.buffer.read().split(b"\0")[:-1]
for name, rest in sorted(zip(words[::2], words[1::2])):
    print(repr(name), repr(rest))'
    find . -type f -not -path './.holdfast*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    stat -c '%n %Y' a/zeros a/b/22)
}
same_tree() { # WHAT
    tree "$T" >"$WORK/tree.disk"
    tree "$M" >"$WORK/tree.mount"
    cmp -s "$WORK/tree.disk" "$WORK/tree.mount" || {
        fail "$1: not the same tree"
        diff "$WORK/tree.disk" "$WORK/tree.mount" | head -n 20 >&2
    }
}
conflicts() { api GET /v1/conflicts | jq -r '.conflicts[] | [.id, .path, .reason, .base, .mine, .theirs] | join(" ")' | sort; }
rebuild() { "$HOLDFAST" rebuild --state "$STATE" --store "$STORE" "$@"; }
number() { jq -r "$1" "$WORK/out"; }

# ---- a tree, synced ----
gateway_start "$STATE" "$STORE" --sync-rest 100ms
check_status 0 "$HOLDFAST" volume create v --history 7 --quota 1G
check_status 0 "$HOLDFAST" volume create other --prefix deep/er/ --sync close
mounted
both 'mkdir -p a/b/c empty "sp ace" && echo 1 >a/1 && echo 22 >a/b/22 && chmod 640 a/1 && chmod 711 a/b'
both 'head -c 300000 /dev/zero >a/zeros && chmod 4755 a/zeros && touch -d @1000000000 a/zeros a/b/22'
both 'ln -s ../a/1 "sp ace/link" && ln -s nowhere dangling && mkfifo pipe && : >nothing'
# shellcheck disable=SC2016 # expanded where it runs
both 'printf x >"$(printf "new\nline")" && printf y >"$(printf "quote\"%%25 +#?&")" && printf z >"ünï" && mkdir -- -rf && echo q >-rf/--'
# shellcheck disable=SC2016 # expanded where it runs
both 'printf d >a.b && mkdir a.c && echo k >"$(head -c 250 /dev/zero | tr "\0" n)"'
# shellcheck disable=SC2016 # expanded where it runs
both 'for i in $(seq 300); do echo "$i" >"a/many$i"; done'
check_status 0 "$HOLDFAST" flush --timeout 60
echo other >"$WORK/o"
check_status 0 "$HOLDFAST" put "$WORK/o" other:/o
same_tree 'before anything is lost'

# ---- older versions, and a snapshot ----
both 'echo second >a/1 && echo passing >a/passing'
check_status 0 "$HOLDFAST" flush --timeout 60
check_status 0 "$HOLDFAST" snapshot create v first
wait_until 20 test -s "$BUCKET/.holdfast/snapshots/v/first.json.zst" || fail 'no manifest'
both 'echo third >a/1 && rm a/passing && chmod 600 a/b/22 && touch -d @1000000000 a/b/22'
check_status 0 "$HOLDFAST" flush --timeout 60
versions() { # every older one of two files; who ended it only the index knows
    for f in a/1 a/passing; do
        "$HOLDFAST" history "v:/$f" --json | jq -c '.versions[] | select(.present | not) | del(.gone)'
    done | sort
}
versions >"$WORK/versions.before"
check_eq 'older versions' 3 "$(wc -l <"$WORK/versions.before")"

# ---- conflicts, kept in the bucket ----
unmounted
gateway_stop
gateway_start "$STATE" "$STORE" --sync-rest 60s
mounted
echo base >"$M/fought" && cp "$M/fought" "$T/fought"
echo base >"$M/gone" && cp "$M/gone" "$T/gone"
check_status 0 "$HOLDFAST" flush --timeout 60
echo mine >"$M/fought"
echo mine too >"$M/gone"
echo theirs >"$BUCKET/v/fought"
rm "$BUCKET/v/gone"
check_status 3 "$HOLDFAST" flush --timeout 60
echo theirs >"$T/fought"
rm "$T/gone"
conflicts >"$WORK/conflicts.before"
check_eq 'two conflicts' 2 "$(wc -l <"$WORK/conflicts.before")"

# ---- files that are not in the bucket yet ----
echo 'an old one, new bytes' >"$M/a/1"
echo 'a new one' >"$M/a/b/fresh"
mkdir "$M/young" && echo 'in a new folder' >"$M/young/fresh"
echo 'made from what somebody else replaces' >"$M/a.b"
head -c 2000000 /dev/urandom >"$WORK/big" && cp "$WORK/big" "$M/big"
exec 7>"$M/open" && echo 'never closed' >&7
sync -f "$M/open" 2>/dev/null || true
check_status 1 rebuild
check_contains 'a running gateway is named' 'another gateway uses' "$WORK/err"
check_one_line
gateway_kill
exec 7>&-
unmounted
echo 'somebody else' >"$BUCKET/v/a.b"
rm "$STATE"/index.db*

# ---- the gateway does not begin anew over them ----
STATUS=0
timeout 20 "$HOLDFAST" serve --state "$STATE" --store "$STORE" --listen none >"$WORK/out" 2>"$WORK/err" || STATUS=$?
check_eq 'serve without its index' 1 "$STATUS"
check_contains 'and says what to do' "run 'holdfast rebuild'" "$WORK/err"
check_eq 'the staged files stay where they are' 0 "$(find "$STATE/lost" -type f | wc -l)"

# ---- killed in the middle, again and again ----
ended=0
for ms in 1 4 8 12 16 20 25 30 36 43 52 62 75 90 120 160; do
    "$HOLDFAST" rebuild --state "$STATE" --store "$STORE" >"$WORK/killed.out" 2>&1 &
    pid=$!
    sleep "0.$(printf %03d "$ms")"
    kill -KILL "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null && ended=$((ended + 1))
done
[ "$ended" -lt 14 ] || fail "only $((16 - ended)) of 16 rebuilds were killed"
note "16 rebuilds killed, $ended of them had ended"
check_status 0 rebuild --json
note "rebuilt: $(jq -c . "$WORK/out")"
check_eq 'volumes' 2 "$(number .volumes)"
check_eq 'conflicts' 2 "$(number .conflicts)"
check_eq 'older versions' 3 "$(number .history)"
check_eq 'snapshots' 1 "$(number .snapshots)"
check_eq 'files that go up' 4 "$(number .staged.uploads)"
check_eq 'files that met something newer' 1 "$(number .staged.conflicts)"
check_eq 'torn files' 1 "$(number .staged.torn)"
objects=$(find "$BUCKET/v" "$BUCKET/deep/er" \( -type f -o -type d -empty \) | wc -l)
[ "$(number .requests.head)" -lt 20 ] || fail "a HEAD for each of $objects objects: $(number .requests.head)"
check_eq 'no bytes are fetched but four documents' 4 "$(number .requests.get)"
# Once more, over a whole index: the same again, and the former one is kept.
check_status 0 rebuild --json
check_eq 'the second time' 4 "$(number .staged.uploads)"
[ -s "$STATE/$(number .old_index)" ] || fail 'the old index is not kept'

# ---- everything is there ----
echo 'an old one, new bytes' >"$T/a/1"
echo 'a new one' >"$T/a/b/fresh"
mkdir "$T/young" && echo 'in a new folder' >"$T/young/fresh"
cp "$WORK/big" "$T/big"
echo 'somebody else' >"$T/a.b"
gateway_start "$STATE" "$STORE" --sync-rest 100ms
mounted
check_status 3 "$HOLDFAST" flush --timeout 60
same_tree 'after the rebuild'
conflicts >"$WORK/conflicts.after"
check_eq 'the old conflicts' "$(cat "$WORK/conflicts.before")" "$(grep -F -f "$WORK/conflicts.before" "$WORK/conflicts.after")"
check_eq 'with the two new ones' 4 "$(wc -l <"$WORK/conflicts.after")"
check_eq 'one of them torn' 1 "$(grep -c ' open torn ' "$WORK/conflicts.after")"
cut -d' ' -f1 "$WORK/conflicts.after" | while read -r id; do cat "$BUCKET/.holdfast/conflicts/v/$id"; done | sort >"$WORK/losers"
printf '%s\n' mine 'mine too' 'never closed' 'made from what somebody else replaces' | sort >"$WORK/losers.want"
check_same 'the bytes of the losers' "$WORK/losers.want" "$WORK/losers"
versions >"$WORK/versions.after"
check_eq 'every older version' '' "$(comm -23 "$WORK/versions.before" "$WORK/versions.after")"
check_eq 'one more since' 4 "$(wc -l <"$WORK/versions.after")"
check_eq 'the bytes of an older one' 1 "$("$HOLDFAST" get v:/a/1 - --version "$(jq -r 'select(.path == "a/1") | .id' "$WORK/versions.before" | sort | head -n 1)")"
check_eq 'the snapshot' 'first true' "$("$HOLDFAST" snapshot list v --json | jq -r '.snapshots[] | "\(.name) \(.published)"')"
check_status 0 "$HOLDFAST" snapshot restore v first --path a/passing
check_eq 'a removed file from the snapshot' passing "$(cat "$M/a/passing")"
check_status 0 "$HOLDFAST" snapshot restore v first --path a/1
check_eq 'an overwritten one' second "$(cat "$M/a/1")"
echo 'an old one, new bytes' >"$M/a/1" && rm "$M/a/passing"
check_status 0 "$HOLDFAST" flush --timeout 60
check_eq 'settings' '604800000000000 1073741824' "$("$HOLDFAST" volume show v --json | jq -r '"\(.history_days * 86400000000000) \(.quota)"')"
check_eq 'more settings' 'deep/er/ close' "$("$HOLDFAST" volume show other --json | jq -r '"\(.prefix) \(.sync)"')"
check_eq 'the other volume' other "$("$HOLDFAST" cat other:/o)"
# Another program's walk of the bucket against what the volume says.
(cd "$BUCKET/v" && find . -type f -not -name '.hf~*' -printf '%P\n' | LC_ALL=C sort) >"$WORK/walk.bucket"
(cd "$M" && find . -not -type d -not -path './.holdfast*' -printf '%P\n' | LC_ALL=C sort) >"$WORK/walk.mount"
check_same 'the bucket as another program walks it' "$WORK/walk.bucket" "$WORK/walk.mount"

# ---- damage ----
unmounted
gateway_stop
python3 - "$STATE/index.db" <<'PY'
import sys
with open(sys.argv[1], "r+b") as f:
    for page in range(1, 40):
        f.seek(page * 4096 + 1000)
        f.write(b"\x55" * 64)
PY
STATUS=0
timeout 20 "$HOLDFAST" serve --state "$STATE" --store "$STORE" --listen none >"$WORK/out" 2>"$WORK/err" || STATUS=$?
check_eq 'serve with a damaged index' 1 "$STATUS"
check_contains 'and says what to do' 'holdfast rebuild' "$WORK/err"
check_status 0 rebuild
check_contains 'the damaged one is kept' 'index.db.before-' "$WORK/out"
gateway_start "$STATE" "$STORE"
mounted
same_tree 'after damage'
check_eq 'conflicts after damage' "$(cat "$WORK/conflicts.after")" "$(conflicts)"

# ---- the whole state directory, and nobody runs a rebuild ----
unmounted
gateway_stop
rm -rf "$STATE"
gateway_start "$STATE" "$STORE"
check_eq 'the volumes are found' 'other v' "$("$HOLDFAST" volume list --json | jq -r '[.volumes[].name] | sort | join(" ")')"
mounted
same_tree 'with a new state directory'
check_eq 'conflicts with a new state directory' "$(cat "$WORK/conflicts.after")" "$(conflicts)"
# Making a volume that is there already means that one, once.
check_status 0 "$HOLDFAST" volume create v
check_status 1 "$HOLDFAST" volume create v
unmounted
gateway_stop

# ---- what cannot be ----
check_status 4 "$HOLDFAST" rebuild --state "$STATE.none" --store "file://$WORK"
check_contains 'an empty bucket' 'check --store' "$WORK/err"
mkdir "$WORK/bucket2"
gateway_start "$WORK/state2" "file://$WORK/bucket2"
gateway_stop
check_status 1 "$HOLDFAST" rebuild --state "$WORK/state2" --store "$STORE"
check_contains 'another store' 'check --store' "$WORK/err"

# ---- 100,000 objects with history: the same tree and history, with the time and the requests (long form) ----
[ "${HOLDFAST_TEST_LONG:-}" = 1 ] || exit 0
FILES=${FILES:-90000} HISTORY=${HISTORY:-10000}
STATE=$WORK/state3
BUCKET=$WORK/bucket3
STORE=file://$BUCKET
gateway_start "$STATE" "$STORE" --sync-rest 100ms
check_status 0 "$HOLDFAST" volume create v
mounted
write_all() { # TEXT
    python3 -c 'import os, sys
text, root, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for i in range(count):
    os.makedirs(f"{root}/h{i % 100}", exist_ok=True)
    with open(f"{root}/h{i % 100}/f{i}", "w") as f:
        f.write(f"{text} {i}\n")' "$1" "$M" "$HISTORY"
    check_status 0 "$HOLDFAST" flush --timeout 600
}
write_all one
write_all two
python3 -c 'import os, sys
root, count = sys.argv[1], int(sys.argv[2])
for i in range(count):
    os.makedirs(f"{root}/d{i % 200}/sub", exist_ok=True)
    with open(f"{root}/d{i % 200}/sub/file{i}", "w") as f:
        f.write(f"{i}\n")' "$BUCKET/v" "$FILES"
some() { # versions of some files
    for i in 1 77 5000 $((HISTORY - 1)); do
        "$HOLDFAST" history "v:/h$((i % 100))/f$i" --json | jq -c '.versions[] | select(.present | not) | del(.gone)'
    done
}
some >"$WORK/some.before"
unmounted
gateway_stop
rm -rf "$STATE"
check_status 0 rebuild --json
note "rebuilt: $(jq -c . "$WORK/out")"
check_eq 'all files' $((FILES + HISTORY)) "$(number .files)"
check_eq 'all older versions' "$HISTORY" "$(number .history)"
check_eq 'bytes fetched for them' 2 "$(number .requests.get)"
[ "$(number .seconds | cut -d. -f1)" -lt 60 ] || fail "it took $(number .seconds) s"
gateway_start "$STATE" "$STORE"
mounted
some >"$WORK/some.after"
check_same 'older versions' "$WORK/some.before" "$WORK/some.after"
(cd "$BUCKET/v" && find . -type f -not -name '.hf~*' | LC_ALL=C sort) >"$WORK/walk.bucket"
(cd "$M" && find . -not -type d -not -path './.holdfast*' | LC_ALL=C sort) >"$WORK/walk.mount"
check_same 'the tree' "$WORK/walk.bucket" "$WORK/walk.mount"
check_status 0 "$HOLDFAST" fsck
