#!/usr/bin/env bash
# Lines that `grep` finds over the command line and over HTTP, against grep(1) on a plain copy of the tree: patterns, context, pages,
# what is left out and why; fetched from the bucket, and read from the cache.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin grep

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/plain"
python3 - "$WORK/plain" <<'PY'
import os, random, sys
random.seed(20261130)
root = sys.argv[1]
words = ["alpha", "beta", "Gamma", "delta", "x=1", "ERROR", "warning: no", "a.b", "Zürich", "日本語", "  indented", "", "tab\there", "(paren)", "end$", "back\\slash"]
for i in range(120):
    folder = os.path.join(root, random.choice(["src", "src/deep", "doc", "."]))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"f{i}." + random.choice(["c", "txt", "md"])), "w", encoding="utf-8") as f:
        for _ in range(random.randrange(60)):
            f.write(" ".join(random.choice(words) for _ in range(random.randrange(5))) + "\n")
        if i % 3 == 0:
            f.write("last line without an end, beta")
open(root + "/latin1.txt", "wb").write(b"caf\xe9 alpha\nplain alpha\n")
open(root + "/empty.txt", "w").close()
PY
cp -r "$WORK/plain/." "$WORK/bucket/v/"
chown -R --reference="$WORK/bucket" "$WORK/bucket/v"
head -c 20000 /dev/urandom >"$WORK/bucket/v/binary.bin"
printf 'alpha\0beta' >>"$WORK/bucket/v/binary.bin"

# ---- folders that nobody has looked into; bytes that are not here ----
check_status 1 "$HOLDFAST" grep alpha v
check_contains 'what was never listed' 'not complete' "$WORK/err"
check_status 0 "$HOLDFAST" find v --list
check_status 1 "$HOLDFAST" grep alpha v --fetch 0 --json
check_eq 'nothing is here' "[$(find "$WORK/plain" -type f -empty | wc -l),0,false,$(find "$WORK/plain" -type f -size +0 | wc -l)]" \
    "$(jq -c '[.searched,.hits,.complete,.skipped.not_fetched.files - 1]' "$WORK/out")"
check_status 1 "$HOLDFAST" grep alpha v --fetch 0
check_contains 'how to go on' '--fetch' "$WORK/err"

# ---- the same lines as grep(1) ----
normal() { sed 's,^v:/,,' "$WORK/out" | sort >"$WORK/seen"; }
expect() { # GREP-ARG...: what grep(1) finds in the copy
    (cd "$WORK/plain" && grep -r "$@" .) | sed 's,^\./,,' | sort >"$WORK/wanted"
    [ -s "$WORK/wanted" ] || fail "'$*' finds nothing, which proves nothing"
}
same() { # WHAT
    cmp -s "$WORK/wanted" "$WORK/seen" || fail "$1: $(diff "$WORK/wanted" "$WORK/seen" | head -n 6)"
}
for pattern in alpha alpha '^alpha' 'beta$' 'Zür' '日.語' 'a\.b' '^$' '[xyz]=\d' 'alpha.*delta|ERROR' '\bno\b' '^\s+ind' 'last.*end' '(?<!alpha )beta' 'b(?=eta)'; do
    # The first time from the bucket, then from the cache.
    expect -anP "$pattern"
    check_status 0 "$HOLDFAST" grep "$pattern" v
    normal
    # Bytes that are no UTF-8 are replaced in JSON.
    LC_ALL=C sed -i 's/^latin1.txt:1:.*/latin1.txt:1:/' "$WORK/wanted" "$WORK/seen"
    same "$pattern"
done
expect -anF 'end$'
check_status 0 "$HOLDFAST" grep -F 'end$' v && normal && same 'fixed'
expect -aniP 'GAMMA|zÜrich'
check_status 0 "$HOLDFAST" grep -i 'GAMMA|zÜrich' v && normal && same 'any case'
expect -anP alpha --include='*.md'
check_status 0 "$HOLDFAST" grep alpha v --include '*.md' && normal && same 'include'
(cd "$WORK/plain" && grep -rnP alpha src) | sort >"$WORK/wanted"
check_status 0 "$HOLDFAST" grep alpha v:/src && normal && same 'below a folder'
file=$(cd "$WORK/plain" && grep -lr alpha src | head -n 1)
(cd "$WORK/plain" && grep -HnP alpha "$file") | sort >"$WORK/wanted"
check_status 0 "$HOLDFAST" grep alpha "v:/$file" && normal && same 'one file'
expect -alP beta
check_status 0 "$HOLDFAST" grep -l beta v && normal && same 'names'
(cd "$WORK/plain" && grep -rcaP beta . | grep -v ':0$') | sed 's,^\./,,' | sort >"$WORK/wanted"
check_status 0 "$HOLDFAST" grep -c beta v && normal && same 'counts'
# Groups of context: grep's own output of one file, as it stands.
for lines in 1 3; do
    (cd "$WORK/plain" && grep -Hn -C "$lines" 'ERROR' "$file") >"$WORK/wanted"
    check_status 0 "$HOLDFAST" grep -C "$lines" ERROR "v:/$file"
    sed 's,^v:/,,' "$WORK/out" >"$WORK/seen"
    same "$lines lines around"
done
check_status 1 "$HOLDFAST" grep 'nowhere at all' v
check_eq 'nothing is printed' '' "$(cat "$WORK/out")"

# ---- in order of paths and lines; pages give the same, of any size ----
check_status 0 "$HOLDFAST" grep beta v --json
jq -r '.matches[] | "\(.path):\(.line)"' "$WORK/out" >"$WORK/whole"
tr '/:' '\001\t' <"$WORK/whole" | LC_ALL=C sort -c -t "$(printf '\t')" -k1,1 -k2,2n || fail 'matches are not in order'
for limit in 1 50; do
    : >"$WORK/paged"
    next=''
    for ((pages = 0; pages < 2000; pages++)); do
        api GET "/v1/grep/v?q=beta&limit=$limit$next" >"$WORK/page"
        jq -r '.matches[] | "\(.path):\(.line)"' "$WORK/page" >>"$WORK/paged"
        [ "$(jq .truncated "$WORK/page")" = true ] || break
        next="&cursor=$(jq -r .next "$WORK/page")"
        [ "$limit" != 1 ] || [ "$pages" -lt 12 ] || break
    done
    head -n "$(wc -l <"$WORK/paged")" "$WORK/whole" >"$WORK/wanted"
    check_same "pages of $limit" "$WORK/wanted" "$WORK/paged"
done
check_status 0 "$HOLDFAST" grep beta v --limit 2
check_eq 'as many as were asked for' 2 "$(wc -l <"$WORK/out")"

# ---- long lines, what is no text, what is too large, what takes too long ----
python3 -c 'print("x" * 5000 + "NEEDLE" + "y" * 5000)' >"$WORK/long"
check_status 0 "$HOLDFAST" put "$WORK/long" v:/long.txt
check_status 0 "$HOLDFAST" grep NEEDLE v --json
check_eq 'a long line is cut around it, and says so' '["long.txt",1,5001,true,true]' \
    "$(jq -c '.matches[0] | [.path,.line,.column,.clipped,(.text | length < 500 and contains("NEEDLE"))]' "$WORK/out")"
check_eq 'binary' '[1,"binary.bin"]' "$(jq -c '.skipped.binary | [.files,.path]' "$WORK/out")"
head -c 17000000 /dev/zero | tr '\0' '\n' >"$WORK/huge"
check_status 0 "$HOLDFAST" put "$WORK/huge" v:/huge.txt
python3 -c 'print("a" * 64 + "!")' >"$WORK/hard"
check_status 0 "$HOLDFAST" put "$WORK/hard" v:/hard.txt
check_status 1 timeout 60 "$HOLDFAST" grep '^(a+)+$' v --json
check_eq 'too hard, and too large' '["hard.txt","huge.txt",false]' "$(jq -c '[.skipped.too_hard.path,.skipped.too_large.path,.complete]' "$WORK/out")"
check_status 1 "$HOLDFAST" grep 'a(b' v
check_contains 'where the pattern is wrong' 'character 4' "$WORK/err"
check_one_line
for query in '' 'q=' 'q=%28' 'q=a%0Ab' 'q=a&context=101' 'q=a&mode=x' 'q=a&limit=0' 'q=a&cursor=zz' 'q=a&cursor=61' 'q=a&regex=perhaps' 'q=a&include=%5B'; do
    api GET "/v1/grep/v?$query" >"$WORK/page"
    check_eq "status of $query" 400 "$(api_status)"
done
api GET '/v1/grep/v?q=a&prefix=none' >"$WORK/page"
check_eq 'no such folder' 404 "$(api_status)"
