#!/usr/bin/env bash
# Edits of a text over the command line and over HTTP, against what python's replace() and sed(1) make of the same bytes, the diff
# against patch(1); copies; every refusal with its reason, and the file as it was.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin edit

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
put() { check_status 0 "$HOLDFAST" put "$WORK/$1" "v:/$1"; }
version() { "$HOLDFAST" stat "v:/$1" --json | jq -r .version; }
is() { # FILE: object and file are what is wanted
    check_same "the object of $1" "$WORK/wanted" "$WORK/bucket/v/$1"
    "$HOLDFAST" cat "v:/$1" >"$WORK/seen"
    check_same "$1 as it is read" "$WORK/wanted" "$WORK/seen"
}

# ---- one replacement; the diff makes the new text of the old one ----
seq -f 'line %g' 200 >"$WORK/a.txt"
put a.txt
sed 's/^line 77$/LINE 77\nand\tone more/' "$WORK/a.txt" >"$WORK/wanted"
check_status 0 "$HOLDFAST" edit v:/a.txt --old $'line 77\n' --new $'LINE 77\nand\tone more\n' --dry-run
check_same 'a dry run changes nothing' "$WORK/a.txt" "$WORK/bucket/v/a.txt"
check_status 0 "$HOLDFAST" edit v:/a.txt --old $'line 77\n' --new $'LINE 77\nand\tone more\n'
cp "$WORK/out" "$WORK/diff"
is a.txt
patch -s -o "$WORK/patched" "$WORK/a.txt" "$WORK/diff" || fail 'patch(1) does not take the diff'
check_same 'the diff' "$WORK/wanted" "$WORK/patched"
check_eq 'versions of the file' 2 "$("$HOLDFAST" history v:/a.txt --json | jq '.versions|length')"

# ---- a list, from a file and from standard input; line endings, mark and mode stay ----
printf '\xef\xbb\xbfone\r\ntwo\r\nthree\r\ntwo and a half\r\n' >"$WORK/crlf.txt"
put crlf.txt
mkdir "$WORK/m"
if [ -c /dev/fuse ] && [ "$(id -u)" = 0 ]; then
    check_status 0 "$HOLDFAST" mount v "$WORK/m"
    defer "'$HOLDFAST' umount '$WORK/m' --force 2>/dev/null"
    chmod 750 "$WORK/m/crlf.txt"
    check_status 0 "$HOLDFAST" flush v --wait
fi
cat >"$WORK/edits.json" <<'JSON'
[{"old": "one\ntwo\n", "new": "1\n2\n"}, {"old": "a half", "new": "ü"}, {"at": "end", "new": "end\n"}, {"at": "start", "new": "start\n"}]
JSON
check_status 0 "$HOLDFAST" edit v:/crlf.txt --edits "$WORK/edits.json" --json
check_eq 'what it tells' '[4,1,false,true]' "$(jq -c '[.replacements,.first_line,.unchanged,.synced]' "$WORK/out")"
check_eq 'the new version' "$(version crlf.txt)" "$(jq -r .version "$WORK/out")"
printf '\xef\xbb\xbfstart\r\n1\r\n2\r\nthree\r\ntwo and ü\r\nend\r\n' >"$WORK/wanted"
is crlf.txt
if mountpoint -q "$WORK/m"; then check_eq 'the mode' 750 "$(stat -c %a "$WORK/m/crlf.txt")"; fi
check_status 0 "$HOLDFAST" edit v:/crlf.txt --edits - <<<'{"edits": [{"old": "two", "new": "2"}]}'
sed -i 's/two/2/' "$WORK/wanted"
is crlf.txt
check_status 0 "$HOLDFAST" edit v:/crlf.txt --old 2 --new two --all
sed -i 's/2/two/' "$WORK/wanted"
is crlf.txt

# ---- a large one ----
python3 - "$WORK" <<'PY'
import random, sys
random.seed(3)
text = "".join(f"{i} {random.random()}\n" for i in range(180000))
open(sys.argv[1] + "/large.txt", "w").write(text)
assert text.count("\n90000 ") == 1
open(sys.argv[1] + "/wanted", "w").write(text.replace("\n90000 ", "\nhere "))
PY
put large.txt
check_status 0 "$HOLDFAST" edit v:/large.txt --old $'\n90000 ' --new $'\nhere '
is large.txt

# ---- refused, and nothing was changed ----
before=$(version a.txt)
cp "$WORK/bucket/v/a.txt" "$WORK/wanted"
check_status 1 "$HOLDFAST" edit v:/a.txt --old 'line 1' --new x
check_one_line
check_contains 'how often and where' '111 times, at lines 1, 10, 11' "$WORK/err"
check_eq 'grep counts the same' 111 "$(grep -c 'line 1' "$WORK/wanted")"
check_status 1 "$HOLDFAST" edit v:/a.txt --old 'no such line' --new x
check_contains 'not found' 'not in the file' "$WORK/err"
check_status 1 "$HOLDFAST" edit v:/a.txt --old 'line 5' --new 'line 5'
check_status 3 "$HOLDFAST" edit v:/a.txt --old 'line 55' --new x --base 01JZX3T6W8Q9V4N2M7K5H1C0BD
check_contains 'the present version' "$before" "$WORK/err"
check_status 2 "$HOLDFAST" edit v:/a.txt --old x
check_status 2 "$HOLDFAST" edit v:/a.txt --old x --new y --edits f
check_status 4 "$HOLDFAST" edit v:/none --old x --new y
head -c 5300000 /dev/zero | tr '\0' x >"$WORK/huge"
put huge
check_status 1 "$HOLDFAST" edit v:/huge --old xy --new x
check_contains 'too large' 'write it anew' "$WORK/err"
printf 'a\0b' >"$WORK/binary"
put binary
check_status 1 "$HOLDFAST" edit v:/binary --old a --new x
check_contains 'binary' 'no text' "$WORK/err"
check_status 0 "$HOLDFAST" mkdir v:/d
check_status 1 "$HOLDFAST" edit v:/d --old a --new x
ops() { api POST /v1/ops -H 'Content-Type: application/json' -d "$1" >"$WORK/answer"; }
refused() { # STATUS MEMBERS EDITS [BASE]
    ops "{\"op\": \"edit\", \"volume\": \"v\", \"path\": \"a.txt\", \"base\": \"${4:-$before}\", \"edits\": $3}"
    check_eq "status of $3" "$1" "$(api_status)"
    check_eq "members of $3" "$2" "$(jq -c '[.reason,.edit,.found,.lines,.current.version]' "$WORK/answer")"
}
refused 422 '["ambiguous",2,11,[19,191,192,193,194,195,196,197,198,199],null]' '[{"old": "line 8\n", "new": "x"}, {"old": "line 19", "new": ""}]'
refused 422 '["not-found",2,null,[],null]' '[{"old": "line 9\n", "new": "x"}, {"old": "nothing", "new": ""}]'
refused 422 '["overlap",2,null,[9],null]' '[{"old": "line 9\nline", "new": "x"}, {"old": "9\nline 10\n", "new": "y"}]'
refused 412 "[null,null,null,null,\"$before\"]" '[{"old": "line 9\n", "new": "x"}]' other
for edits in '[]' '{}' '[1]' '[{"old": "a"}]' '[{"new": "a"}]' '[{"old": "a", "new": 1}]' '[{"old": "a", "new": "b", "at": "end"}]' '[{"at": "middle", "new": "b"}]' '[{"old": "", "new": "b"}]' '[{"old": "a", "nwe": "b", "new": "c"}]'; do
    refused 400 '[null,null,null,null,null]' "$edits"
done
ops '{"op": "edit", "volume": "v", "path": "a.txt", "edits": [{"old": "line 9\n", "new": "x"}]}'
check_eq 'without a base' 428 "$(api_status)"
check_eq 'after all that' "$before" "$(version a.txt)"
is a.txt

# ---- two who began with the same version: one of them wins, the other is told ----
ops "{\"op\": \"edit\", \"volume\": \"v\", \"path\": \"a.txt\", \"base\": \"$before\", \"edits\": [{\"old\": \"line 9\\n\", \"new\": \"mine\\n\"}]}"
check_eq 'the first' 200 "$(api_status)"
now=$(jq -r .version "$WORK/answer")
refused 412 "[null,null,null,null,\"$now\"]" '[{"old": "line 10\n", "new": "theirs\n"}]'
sed -i 's/^line 9$/mine/' "$WORK/wanted"
is a.txt

# ---- copy, restore ----
check_status 0 "$HOLDFAST" cp v:/a.txt v:/d/copy.txt
check_same 'a copy' "$WORK/wanted" "$WORK/bucket/v/d/copy.txt"
check_status 3 "$HOLDFAST" cp v:/crlf.txt v:/d/copy.txt
check_status 0 "$HOLDFAST" cp v:/crlf.txt v:/d/copy.txt --replace
check_same 'a copy over it' "$WORK/bucket/v/crlf.txt" "$WORK/bucket/v/d/copy.txt"
check_status 4 "$HOLDFAST" cp v:/none v:/d/none
check_status 1 "$HOLDFAST" cp v:/d v:/e
ops "{\"op\": \"restore\", \"volume\": \"v\", \"path\": \"a.txt\", \"version\": \"$before\"}"
check_eq 'restore' 200 "$(api_status)"
sed -i 's/^mine$/line 9/' "$WORK/wanted"
is a.txt
ops '{"op": "shuffle", "volume": "v"}'
check_eq 'an unknown operation' 422 "$(api_status)"
