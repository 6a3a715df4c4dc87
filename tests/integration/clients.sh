#!/usr/bin/env bash
# The bucket is everybody's: what the mount writes is there for awscli, s3cmd, rclone, s3fs and libs3's s3 under its own name, with
# the bytes, and with mode, mtime and link as each of them understands these; and what they put there appears in the mount.
# B027 B028 B031 B034 B051 B052 B056 B063 B064 B072 B073 B076 B077 B078 B079 B081 B083 B109 B111 B116 B197
# timeout: 420
# long-timeout: 1800
. "$(dirname "$0")/../support/lib.sh"
lib_begin clients
need_fuse
for tool in aws s3cmd rclone s3fs s3 curl; do
    command -v "$tool" >/dev/null || fail_now "'$tool' is missing: run scripts/setup --tests"
done
rgw_start
BUCKET=clients-$$
rgw_bucket "$BUCKET"
M=$WORK/m
mkdir "$M"
umask 022
gateway_start "$WORK/state" "$(rgw_store_url "$BUCKET")" --list-ttl 1s
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$M"
defer "'$HOLDFAST' umount '$M' --force 2>/dev/null"

# ---- the clients ----
R=hf:$BUCKET
cat >"$WORK/rclone.conf" <<CONF
[hf]
type = s3
provider = Ceph
access_key_id = $S3_ACCESS_KEY
secret_access_key = $S3_SECRET_KEY
endpoint = $S3_ENDPOINT
region = $S3_REGION
force_path_style = true
CONF
cat >"$WORK/s3cfg" <<CONF
[default]
access_key = $S3_ACCESS_KEY
secret_key = $S3_SECRET_KEY
host_base = ${S3_ENDPOINT#http://}
host_bucket = ${S3_ENDPOINT#http://}
use_https = False
signature_v2 = False
CONF
echo "$S3_ACCESS_KEY:$S3_SECRET_KEY" >"$WORK/passwd-s3fs"
chmod 600 "$WORK/passwd-s3fs" "$WORK/rclone.conf" "$WORK/s3cfg"
rclone_() { env -u AWS_CA_BUNDLE rclone --config "$WORK/rclone.conf" --retries 1 "$@"; }
s3cmd_() { s3cmd -c "$WORK/s3cfg" --no-progress "$@"; }
libs3() { S3_ACCESS_KEY_ID=$S3_ACCESS_KEY S3_SECRET_ACCESS_KEY=$S3_SECRET_KEY S3_HOSTNAME=${S3_ENDPOINT#http://} s3 -u "$@"; }
put_key() { # KEY [AWS-ARG...]: the bytes of $WORK/body
    "${AWS[@]}" s3api put-object --bucket "$BUCKET" --key "$1" --body "$WORK/body" "${@:2}" >/dev/null || fail "cannot put '$1'"
}
put_raw() { # PERCENT-ENCODED-KEY: for keys that no client can type; 1 where the store refuses it
    printf 'user = "%s:%s"\n' "$S3_ACCESS_KEY" "$S3_SECRET_KEY" |
        curl -sS -f --path-as-is --noproxy '*' -m 20 -K - --aws-sigv4 "aws:amz:$S3_REGION:s3" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
            -o "$WORK/out" -T "$WORK/body" "$S3_ENDPOINT/$BUCKET/$1"
}

# ---- names ----
long=$(printf 'n%.0s' $(seq 251)).txt
NAMES=(plain 'with space' 'a+b' '100%' '%41%2F' 'a+b c%20d#e?f&g=h' $'\u00fc' $'u\u0308' '中文' '😀'
    "it's \"quoted\"" -dash .hidden 'x#1' 'x#2' foo foo.js 'semi;colon,(x)!~*' "$long")
HARD=($'back\\slash' 'trail ' $'new\nline' $'tab\tulator' '...' '~' '@:$' '[a]' '{b}' '<c>' '|d' '^e`')
[ "${HOLDFAST_TEST_LONG:-0}" = 0 ] || NAMES+=($'\u0661\u0662' $'\u05d0' 'CON' 'a.' $'e\u0301\u0302' '&amp;' '&lt;x>' "$(printf '\u4e2d%.0s' $(seq 85))")

facts() { # DIR: path, kind, mode, whole seconds of mtime, and sha256 or link target of all below
    python3 - "$1" <<'PY'
import hashlib, os, stat, sys
top = os.fsencode(sys.argv[1])
rows = []
for base, dirs, files in os.walk(top):
    for name in sorted(dirs + files):
        path = os.path.join(base, name)
        st = os.lstat(path)
        if stat.S_ISLNK(st.st_mode):
            what = "link " + os.fsdecode(os.readlink(path))
        elif stat.S_ISDIR(st.st_mode):
            what = "dir %o" % (st.st_mode & 0o7777)
        else:
            what = "file %o %d %s" % (st.st_mode & 0o7777, st.st_mtime, hashlib.sha256(open(path, "rb").read()).hexdigest())
        rows.append("%s\t%s" % (ascii(os.path.relpath(path, top)), what))
print("\n".join(sorted(rows)))
PY
}
check_facts() { # WHAT FILE FILE
    diff "$2" "$3" >"$WORK/diff" || fail "$1: $(head -c 1500 "$WORK/diff")"
}
only_bytes() { grep -P '\tfile' "$1" | sed -E 's/\tfile [0-7]+ -?[0-9]+ /\t/'; }
FILL='
import os, sys
top, names = os.fsencode(sys.argv[1]), [os.fsencode(n) for n in sys.argv[3:]]
for i, name in enumerate(names, 1):
    path = os.path.join(top, name)
    with open(path, "wb") as f:
        f.write(os.urandom(i * 321))
    os.chmod(path, 0o640 if i % 2 else 0o755)
    os.utime(path, ns=((int(sys.argv[2]) + i) * 10**9 + 250000000,) * 2)
'
fill() { # DIR FIRST-SECOND NAME...
    mkdir -p "$1/sub dir"
    python3 -c "$FILL" "$@" || fail "cannot fill '$1'"
    echo x >"$1/sub dir/x y"
    chmod 750 "$1/sub dir"
    touch -d @1450000000.5 "$1/sub dir/x y" "$1/sub dir"
}
s3fs_mount() { # [OPTION]
    mkdir -p "$WORK/s3fs"
    s3fs "$BUCKET:/v" "$WORK/s3fs" -f -o "passwd_file=$WORK/passwd-s3fs,url=$S3_ENDPOINT,use_path_request_style,endpoint=$S3_REGION${1:+,$1}" \
        >"$WORK/s3fs.log" 2>&1 &
    S3FS=$!
    defer "fusermount3 -u -z '$WORK/s3fs' 2>/dev/null"
    wait_until 20 mountpoint -q "$WORK/s3fs" || fail_now "s3fs does not mount: $(tail -n 3 "$WORK/s3fs.log")"
}
s3fs_umount() {
    fusermount3 -u "$WORK/s3fs" || fail "s3fs cannot be unmounted"
    wait "$S3FS" || true
}

# ---- from the mount to the clients ----
fill "$M/out" 1500000000 "${NAMES[@]}" "${HARD[@]}"
: >"$M/out/empty"
touch -d @1400000000 "$M/out/empty"
ln -s plain "$M/out/link"
check_status 0 "$HOLDFAST" flush v --wait
facts "$M/out" >"$WORK/out.facts"
check_eq 'files and links written' $((${#NAMES[@]} + ${#HARD[@]} + 3)) "$(grep -cP '\t(file|link)' "$WORK/out.facts")"
only_bytes "$WORK/out.facts" >"$WORK/out.bytes"

mkdir "$WORK"/{aws,rclone,s3cmd}
check_status 0 "${AWS[@]}" s3 sync --quiet "s3://$BUCKET/v/out" "$WORK/aws"
check_eq 'awscli sees a link as its target' plain "$(cat "$WORK/aws/link")"
rm -f "$WORK/aws/link"
facts "$WORK/aws" | only_bytes /dev/stdin >"$WORK/aws.bytes"
check_facts 'bytes by awscli' "$WORK/out.bytes" "$WORK/aws.bytes"

# rclone knows mtime; its own way of writing a mode is another one.
check_status 0 rclone_ copy --no-unicode-normalization "$R/v/out" "$WORK/rclone"
check_eq 'a fraction of a second by rclone' "$(stat -c %.Y "$M/out/plain")" "$(stat -c %.Y "$WORK/rclone/plain")"
rm -f "$WORK/rclone/link"
without_mode() { grep -P '\tfile' "$1" | sed -E 's/\tfile [0-7]+/\tfile/'; }
facts "$WORK/rclone" | without_mode /dev/stdin >"$WORK/rclone.facts"
without_mode "$WORK/out.facts" | check_facts 'bytes and mtime by rclone' - "$WORK/rclone.facts"

# s3cmd 2.3 asks for the wrong key where a name holds a line end.
check_status 0 s3cmd_ sync --exclude '*line' "s3://$BUCKET/v/out/" "$WORK/s3cmd/"
rm -f "$WORK/s3cmd/link"
facts "$WORK/s3cmd" | grep -P '\tfile' >"$WORK/s3cmd.facts"
grep -P '\tfile' "$WORK/out.facts" | grep -v 'nline' | check_facts 'bytes, mode and mtime by s3cmd' - "$WORK/s3cmd.facts"

s3fs_mount
facts "$WORK/s3fs/out" >"$WORK/s3fs.facts"
check_facts 'everything by s3fs' "$WORK/out.facts" "$WORK/s3fs.facts"

# libs3 signs with Signature V2 and knows plain names.
for name in plain foo foo.js -dash .hidden; do
    check_status 0 libs3 get "$BUCKET/v/out/$name" "filename=$WORK/libs3$name"
    check_same "$name by libs3" "$M/out/$name" "$WORK/libs3$name"
done

# ---- what s3fs changes about our objects: the bytes, and so the ETag, stay ----
# What is found by the time alone is found against an earlier listing: there has to be one since our own writes.
for _ in 1 2 3; do
    sleep 1.5
    ls -lR "$M/out" >/dev/null
done
chmod 600 "$WORK/s3fs/out/with space"
touch -d @1555555555 "$WORK/s3fs/out/with space"
chmod 711 "$WORK/s3fs/out/sub dir"
mv "$WORK/s3fs/out/a+b" "$WORK/s3fs/out/renamed"
shows() { [ "$(stat -c "$2" "$1" 2>/dev/null)" = "$3" ]; }
wait_until 15 shows "$M/out/with space" '%a %Y' '600 1555555555' ||
    fail "mode and time by s3fs: $(stat -c '%a %Y' "$M/out/with space")"
# A folder's own attributes are asked for when it is listed.
listed_shows() { ls "$1" >/dev/null && shows "$@"; }
wait_until 15 listed_shows "$M/out/sub dir" %a 711 || fail "a folder's mode by s3fs: $(stat -c %a "$M/out/sub dir")"
wait_until 15 test ! -e "$M/out/a+b" || fail 'a name that s3fs took away is still there'
check_eq 'bytes of what s3fs has renamed' "$(grep -F "b'a+b'" "$WORK/out.facts" | grep -o '[0-9a-f]*$')" \
    "$(sha256sum "$M/out/renamed" | cut -d' ' -f1)"

# ---- from the clients to the mount ----
fill "$WORK/src" 1600000000 "${NAMES[@]}"
facts "$WORK/src" >"$WORK/src.facts"
grep -v -P '\tdir' "$WORK/src.facts" >"$WORK/src.files"
BEFORE=$(date +%s)
check_status 0 "${AWS[@]}" s3 sync --quiet "$WORK/src" "s3://$BUCKET/v/in-aws"
check_status 0 rclone_ copy --no-unicode-normalization --metadata "$WORK/src" "$R/v/in-rclone"
check_status 0 rclone_ copyto --no-unicode-normalization "$WORK/src/plain" "$R/v/in-rclone-plain"
check_status 0 s3cmd_ sync "$WORK/src/" "s3://$BUCKET/v/in-s3cmd/"
check_status 0 cp -a "$WORK/src" "$WORK/s3fs/in-s3fs"
check_status 0 ln -s plain "$WORK/s3fs/in-s3fs/link"
check_status 0 libs3 put "$BUCKET/v/in-libs3" "filename=$WORK/src/plain"
s3fs_umount
printf '%s\t%s\n' "b'link'" 'link plain' | cat "$WORK/src.facts" - | sort >"$WORK/in-s3fs.wanted"
cp "$WORK/src.files" "$WORK/in-rclone.wanted"
cp "$WORK/src.files" "$WORK/in-s3cmd.wanted"
arrived() { # CLIENT: without folders where the client writes none
    facts "$M/in-$1" >"$WORK/all.facts"
    if [ "$1" = s3fs ]; then cp "$WORK/all.facts" "$WORK/in-$1.facts"; else grep -v -P '\tdir' "$WORK/all.facts" >"$WORK/in-$1.facts"; fi
    cmp -s "$WORK/in-$1.wanted" "$WORK/in-$1.facts"
}
for client in rclone s3cmd s3fs; do
    wait_until 15 arrived $client
    check_facts "what $client put there, in the mount" "$WORK/in-$client.wanted" "$WORK/in-$client.facts"
done

# ---- extended attributes are in the form of s3fs, both ways (by default it takes none) ----
echo ours >"$M/attributes"
check_status 0 setfattr -n user.ours -v 0x00ff3e3f0a "$M/attributes"
check_status 0 "$HOLDFAST" flush v --wait
s3fs_mount use_xattr
check_eq 'our attribute by s3fs' user.ours=0x00ff3e3f0a "$(getfattr -d -e hex "$WORK/s3fs/attributes" 2>/dev/null | grep '^user')"
echo theirs >"$WORK/s3fs/attributes2"
check_status 0 setfattr -n user.theirs -v 0x00ff3e3f0a "$WORK/s3fs/attributes2"
s3fs_umount
theirs_arrived() { ls "$M" >/dev/null && getfattr -d -e hex "$M/attributes2" 2>/dev/null | grep -qx user.theirs=0x00ff3e3f0a; }
wait_until 15 theirs_arrived || fail "the attribute of s3fs is not in the mount: $(getfattr -d "$M/attributes2" 2>&1)"

facts "$M/in-aws" >"$WORK/in-aws.facts"
check_facts 'what awscli put there' <(only_bytes "$WORK/src.facts") <(only_bytes "$WORK/in-aws.facts")
AGE=$(($(stat -c %Y "$M/in-aws/plain") - BEFORE))
if [ "$AGE" -lt -2 ] || [ "$AGE" -gt 120 ]; then fail "the time of an object without one is when it was put: $AGE s off"; fi
check_eq 'mode without one' 644 "$(stat -c %a "$M/in-aws/plain")"
check_eq 'mtime by rclone without metadata' 1600000001.250000000 "$(stat -c %.Y "$M/in-rclone-plain" | sed 's/,/./')"
check_same 'by libs3' "$WORK/src/plain" "$M/in-libs3"
# Reading moves no time, and says the same bytes again.
facts "$M/in-s3fs" >"$WORK/again"
check_facts 'read twice' "$WORK/in-s3fs.facts" "$WORK/again"

# ---- folders, in each way that somebody writes them; keys that are no paths ----
printf 'odd' >"$WORK/body"
put_key 'v/odd/ok'
: >"$WORK/none"
"${AWS[@]}" s3api put-object --bucket "$BUCKET" --key 'v/odd/marker/' --content-type text/plain >/dev/null
"${AWS[@]}" s3api put-object --bucket "$BUCKET" --key 'v/odd/x 8.2.2.jpg/' --content-type image/jpeg >/dev/null
# shellcheck disable=SC2016 # the name is meant so
HADOOP='old_$folder$'
"${AWS[@]}" s3api put-object --bucket "$BUCKET" --key "v/odd/$HADOOP" >/dev/null
put_key 'v/odd/both'
put_key 'v/odd/both/below'
put_key 'v/odd//double'
put_key 'v/odd/a/./dot'
put_key 'v/odd/a/../../../../up'
put_key 'v//lead'
put_key "v/odd/$(printf 'l%.0s' $(seq 256))"
RAW=($'ctl\001\037\177')
put_raw 'v/odd/ctl%01%1F%7F' || fail 'cannot put control characters'
put_raw 'v/odd/%FF%FE-not-utf8' 2>/dev/null && RAW+=($'\377\376-not-utf8') # Ceph refuses what is no UTF-8
put_key 'v/odd/gz' --content-encoding gzip
put_key 'v/odd/chunked' --content-encoding aws-chunked
wait_until 15 test -e "$M/odd/ok"
check_eq 'what is shown' "$(printf '%s\n' a both chunked gz marker "$HADOOP" ok 'x 8.2.2.jpg' "${RAW[@]}" | sort)" \
    "$(find "$M/odd" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort)"
for name in marker 'x 8.2.2.jpg' a; do [ -d "$M/odd/$name" ] || fail "'$name' is no folder"; done
check_eq 'a marker is no file in its folder' '' "$(ls -A "$M/odd/marker")"
check_eq 'an object beside its folder' odd "$(cat "$M/odd/both")"
for name in "${RAW[@]}" gz chunked; do check_eq "bytes as they lie: $name" odd "$(cat "$M/odd/$name")"; done
check_status 1 mkdir "$M/odd/both"
check_status 1 cat "$M/odd/$(printf 'l%.0s' $(seq 256))"
ls "$M/odd/a" >/dev/null

# ---- what others wrote with an object survives a change here ----
head_of() { "${AWS[@]}" s3api head-object --bucket "$BUCKET" --key "$1"; }
printf 'body { }' | gzip -n >"$WORK/body"
put_key 'v/odd/style.css' --content-encoding gzip --content-type 'text/x-mine; charset=latin1' --cache-control 'max-age=77' \
    --content-disposition 'inline; filename="a b.css"' --content-language de --metadata 'Colour=Blue,owner-note=some text'
wait_until 15 test -e "$M/odd/style.css"
check_same 'a gzip object as it lies' "$WORK/body" "$M/odd/style.css"
chmod 600 "$M/odd/style.css"
check_status 0 "$HOLDFAST" flush v --wait
kept() { # WHAT
    head_of v/odd/style.css >"$WORK/head"
    jq -r '[.ContentType, .CacheControl, .ContentDisposition, .ContentLanguage, .Metadata.colour, .Metadata["owner-note"], .Metadata.mode, .ContentEncoding // "none"] | join("|")' \
        <"$WORK/head" >"$WORK/kept"
    check_eq "$1" "$2" "$(cat "$WORK/kept")"
}
HAD='text/x-mine; charset=latin1|max-age=77|inline; filename="a b.css"|de|Blue|some text|33152'
kept 'after chmod' "$HAD|gzip"
printf 'plain { }' >"$M/odd/style.css"
check_status 0 "$HOLDFAST" flush v --wait
kept 'after an edit, which is not compressed' "$HAD|none"
check_eq 'a type by name' 'text/csv; charset=utf-8' "$(printf 'a,b\n' >"$M/t.csv" && "$HOLDFAST" flush v --wait && head_of v/t.csv | jq -r .ContentType)"

# ---- what has no place is told ----
check_status 0 "$HOLDFAST" status
check_contains 'status counts what cannot be shown' 'cannot be shown' "$WORK/out"
"$HOLDFAST" doctor >"$WORK/out" 2>&1 || true
check_contains 'doctor says what to do about it' 'rename these' "$WORK/out"
check_status 0 "$HOLDFAST" status --json
note "unreachable: $(jq -c .unreachable "$WORK/out")"
[ "$(jq .unreachable.count "$WORK/out")" -ge 3 ] || fail "status counts $(jq .unreachable "$WORK/out")"
