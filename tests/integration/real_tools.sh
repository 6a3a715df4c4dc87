#!/usr/bin/env bash
# Tools that people and agents use, in a mount and on the local disk beside it, with the same results: git, rsync, tar, cp, SQLite
# with a writer that is killed, editors, backups, a compiler; in the long form also npm with some 500 packages and this project's own
# build. TOOLS="git tar" runs only these.
# timeout: 300
# long-timeout: 5400
. "$(dirname "$0")/../support/lib.sh"
lib_begin real-tools
need_fuse

LONG=${HOLDFAST_TEST_LONG:-0}
export HOME=$WORK/home GIT_CONFIG_GLOBAL=$WORK/home/gitconfig GIT_CONFIG_NOSYSTEM=1
mkdir "$WORK/home" "$WORK/m" "$WORK/disk"
git config --file "$GIT_CONFIG_GLOBAL" user.name tester
git config --file "$GIT_CONFIG_GLOBAL" user.email tester@example.org
git config --file "$GIT_CONFIG_GLOBAL" safe.directory '*'
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$WORK/m"
defer "'$HOLDFAST' umount '$WORK/m' --force 2>/dev/null"
M=$WORK/m D=$WORK/disk

# What two trees have in common: names, types, modes, owners, sizes of files, whole seconds of changes, targets, bytes.
picture() { # DIRECTORY
    (cd "$1" && find . ! -name . \( -type d -printf '%p d %m %U:%G\n' -o -printf '%p %y %m %U:%G %s %Ts %l\n' \) | sort)
    (cd "$1" && find . -type f -print0 | sort -z | xargs -0 -r sha256sum)
}
same_trees() { # WHAT ONE OTHER
    picture "$2" >"$WORK/picture.one"
    picture "$3" >"$WORK/picture.other"
    cmp -s "$WORK/picture.one" "$WORK/picture.other" ||
        fail "$1: $(diff "$WORK/picture.one" "$WORK/picture.other" | head -n 6)"
}
run() { # WHAT COMMAND...: its output only when it fails
    local what=$1
    shift
    "$@" >"$WORK/run.out" 2>&1 || fail "$what: '$*' ended with $?: $(tail -n 5 "$WORK/run.out")"
}

# A tree with what trees have: folders, links, modes, an empty file, a hole, odd names, old times.
make_tree() { # DIRECTORY
    mkdir -p "$1/src/deep/er" "$1/empty"
    for i in $(seq 60); do printf 'line %d\n' $(seq "$i") >"$1/src/file$i.txt"; done
    head -c 3000000 /dev/urandom >"$1/src/deep/large.bin"
    truncate -s 5M "$1/src/hole"
    : >"$1/src/nothing"
    printf x >"$1/src/deep/er/"$'odd \n name \xff'
    ln -s ../file1.txt "$1/src/deep/link"
    ln -s nowhere "$1/dangling"
    printf '#!/bin/sh\nexit 0\n' >"$1/src/script.sh"
    chmod 755 "$1/src/script.sh"
    chmod 600 "$1/src/file2.txt"
    chmod 1777 "$1/empty"
    touch -d '2001-02-03 04:05:06.789' "$1/src/file3.txt" "$1/src/deep"
}
make_tree "$WORK/tree"

tool_git() {
    git init -q "$WORK/origin"
    cp -a "$WORK/tree/src" "$WORK/origin/"
    git -C "$WORK/origin" add -A && git -C "$WORK/origin" commit -q -m one
    for i in 1 2 3; do
        echo "$i" >>"$WORK/origin/src/file$i.txt"
        git -C "$WORK/origin" commit -q -a -m "change $i"
    done
    local top
    for top in "$M" "$D"; do
        run "git in $top" git clone -q "$WORK/origin" "$top/clone"
        echo more >>"$top/clone/src/file5.txt"
        run "git in $top" git -C "$top/clone" commit -q -a -m more
        run "git in $top" git -C "$top/clone" checkout -q -b side HEAD~2
        run "git in $top" git -C "$top/clone" merge -q --no-edit master
        run "git in $top" git -C "$top/clone" gc -q
        run "git in $top" git -C "$top/clone" fsck --full --strict
        check_eq "git status in $top" '' "$(git -C "$top/clone" status --porcelain 2>&1)"
    done
    check_eq 'what git wrote' "$(git -C "$D/clone" ls-tree -r HEAD)" "$(git -C "$M/clone" ls-tree -r HEAD)"
}

tool_rsync() {
    run rsync rsync -a "$WORK/tree/" "$M/rsync/"
    same_trees 'rsync -a' "$WORK/tree" "$M/rsync"
    rsync -a --itemize-changes "$WORK/tree/" "$M/rsync/" >"$WORK/again" 2>&1
    check_eq 'what rsync transfers again' '' "$(cat "$WORK/again")"
}

tool_tar() {
    tar -C "$WORK/tree" -cf "$WORK/tree.tar" .
    mkdir "$M/tar" "$M/tar2"
    run tar tar -C "$M/tar" -xpf "$WORK/tree.tar"
    same_trees 'tar x' "$WORK/tree" "$M/tar"
    run tar tar -C "$M/tar" -cSf "$M/again.tar" .
    run tar tar -C "$M/tar2" -xpf "$M/again.tar"
    same_trees 'tar c of the mount, and x' "$WORK/tree" "$M/tar2"
}

tool_cp() {
    run cp cp -a "$WORK/tree" "$M/cp"
    same_trees 'cp -a into the mount' "$WORK/tree" "$M/cp"
    run cp cp -a "$M/cp" "$M/cp2"
    same_trees 'cp -a inside the mount' "$WORK/tree" "$M/cp2"
    run mv mv "$M/cp2" "$M/cp3"
    run cp cp -a "$M/cp3" "$D/back"
    same_trees 'cp -a out of the mount' "$WORK/tree" "$D/back"
    run rm rm -r "$M/cp3"
}

# A writer of SQLite is killed in the middle: whatever it had committed is there, and the database is whole.
tool_sqlite() {
    local mode round
    for mode in wal delete; do
        for round in 1 2 3; do
            python3 - "$M/$mode.db" "$mode" >"$WORK/committed" <<'PY' &
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
base.execute("pragma journal_mode=" + sys.argv[2])
base.execute("create table if not exists t(a integer primary key, b text)")
while True:
    base.execute("begin immediate")
    row = base.execute("insert into t(b) values (?)", ("x" * 500,)).lastrowid
    base.execute("update t set b = b || 'y' where a % 7 = ?", (row % 7,))
    base.execute("commit")
    print(row, flush=True)
PY
            local writer=$!
            sleep 1
            kill -KILL "$writer"
            wait "$writer" 2>/dev/null
            python3 - "$M/$mode.db" "$(tail -n 1 "$WORK/committed")" <<'PY' || fail "SQLite, $mode, round $round"
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=30)
seen = base.execute("pragma integrity_check").fetchone()[0]
last = base.execute("select max(a) from t").fetchone()[0]
if seen != "ok" or last < int(sys.argv[2] or 0):
    sys.exit("integrity: %s; last row %s, committed %s" % (seen, last, sys.argv[2]))
PY
        done
        note "SQLite, $mode: $(python3 -c 'import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute("select count(*) from t").fetchone()[0])' "$M/$mode.db") rows over 3 kills"
    done
}

tool_editors() {
    local top
    for top in "$M" "$D"; do
        printf 'one\ntwo\nthree\n' >"$top/edited"
        chmod 640 "$top/edited"
        run 'sed -i' sed -i s/two/TWO/ "$top/edited"
        run 'perl -i' perl -pi -e s/one/ONE/ "$top/edited"
        run vim vim.tiny -u NONE -N -es -c 'set backup writebackup' -c '%s/three/THREE/' -c 'wq' "$top/edited"
        run ex vim.tiny -u NONE -N -es -c 'set backupcopy=no' -c '1d' -c 'wq' "$top/edited"
    done
    check_eq 'after the editors' "$(cat "$D/edited")" "$(cat "$M/edited")"
    check_eq 'its mode' "$(stat -c %a "$D/edited")" "$(stat -c %a "$M/edited")"
    command -v nano >/dev/null || return
    for top in "$M" "$D"; do
        python3 - "$top/edited" <<'PY' || fail "nano in $top"
import os, pty, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execvp("nano", ["nano", "-B", sys.argv[1]])
def say(keys):
    os.write(fd, keys)
    end = time.time() + 0.7
    while time.time() < end:
        import select
        if select.select([fd], [], [], 0.1)[0]:
            try:
                os.read(fd, 65536)
            except OSError:
                return
say(b"")
say(b"nano was here\r")
say(b"\x0f"); say(b"\r"); say(b"\x18")
sys.exit(os.waitpid(pid, 0)[1])
PY
    done
    check_eq 'after nano' "$(cat "$D/edited")" "$(cat "$M/edited")"
    check_contains nano 'nano was here' "$M/edited"
}

tool_backup() {
    if command -v restic >/dev/null; then
        export RESTIC_PASSWORD=secret RESTIC_CACHE_DIR=$WORK/restic-cache
        run restic restic -q -r "$M/restic" init
        run restic restic -q -r "$M/restic" backup "$WORK/tree"
        echo more >>"$WORK/tree/src/file9.txt"
        run restic restic -q -r "$M/restic" backup "$WORK/tree"
        run restic restic -q -r "$M/restic" check --read-data
        run restic restic -q -r "$M/restic" forget --keep-last 1 --prune
        run restic restic -q -r "$M/restic" restore latest --target "$WORK/restored"
        same_trees restic "$WORK/tree" "$WORK/restored$WORK/tree"
    fi
    if command -v borg >/dev/null; then
        export BORG_BASE_DIR=$WORK/borg-home
        run borg borg init -e none "$M/borg"
        run borg borg create "$M/borg::one" "$WORK/tree"
        run borg borg create "$M/borg::two" "$WORK/tree"
        run borg borg check --verify-data "$M/borg"
        run borg borg delete "$M/borg::one"
        mkdir "$WORK/borg-out"
        (cd "$WORK/borg-out" && run borg borg extract "$M/borg::two")
        same_trees borg "$WORK/tree" "$WORK/borg-out$WORK/tree"
    fi
}

tool_compiler() {
    local top
    for top in "$M" "$D"; do
        mkdir "$top/c"
        for i in $(seq 12); do printf 'int f%d(int a) { return a + %d; }\n' "$i" "$i" >"$top/c/f$i.c"; done
        printf 'int f1(int);\nint main(void) { return f1(-1); }\n' >"$top/c/main.c"
        # shellcheck disable=SC2016 # make's own
        printf 'all: prog\nOBJS=%s\nprog: $(OBJS)\n\tcc -o $@ $^\nlib.a: $(OBJS)\n\tar rcs $@ $^\n' \
            "main.o $(seq -f 'f%.0f.o' -s ' ' 12)" >"$top/c/Makefile"
        run "make in $top" make -C "$top/c" -j4 all lib.a
        run "the program in $top" "$top/c/prog"
        check_eq "make has nothing to do in $top" 0 "$(make -C "$top/c" -q all lib.a >/dev/null; echo $?)"
    done
    check_same 'the program' "$M/c/prog" "$D/c/prog"
}

tool_npm() {
    [ "$LONG" = 1 ] || return
    mkdir -p "$M/npm" "$D/npm"
    local top
    for top in "$M" "$D"; do
        printf '{ "name": "app", "version": "1.0.0", "dependencies": { "react-scripts": "5.0.1" } }\n' >"$top/npm/package.json"
        run "npm in $top" npm --prefix "$top/npm" install --no-audit --no-fund --ignore-scripts
    done
    note "npm: $(find "$M/npm/node_modules" -name package.json -path '*node_modules/*/package.json' | wc -l) package.json, $(find "$M/npm" | wc -l) entries"
    run 'npm ls' npm --prefix "$M/npm" ls --all
    (cd "$M/npm" && find . -type f -print0 | sort -z | xargs -0 sha256sum) | grep -v '\.package-lock.json\|_logs' >"$WORK/npm.m"
    (cd "$D/npm" && find . -type f -print0 | sort -z | xargs -0 sha256sum) | grep -v '\.package-lock.json\|_logs' >"$WORK/npm.d"
    check_same npm "$WORK/npm.d" "$WORK/npm.m"
    run 'rm -r' rm -r "$M/npm"
}

tool_self() {
    [ "$LONG" = 1 ] || return
    run 'a clone of this project' git clone -q "$LIB_ROOT" "$M/self"
    run 'cmake' env CCACHE_DISABLE=1 cmake -S "$M/self" -B "$M/self/build/x" -G Ninja -DCMAKE_BUILD_TYPE=Debug
    run 'ninja' env CCACHE_DISABLE=1 ninja -C "$M/self/build/x" holdfast holdfast-mounter unit-base-buf
    run 'the program built there' "$M/self/build/x/holdfast" --version
    run 'a test built there' "$M/self/build/x/tests/unit-base-buf"
}

for tool in ${TOOLS:-git rsync tar cp sqlite editors backup compiler npm self}; do
    began=$(now_ms)
    "tool_$tool"
    note "$tool: $(($(now_ms) - began)) ms"
done

check_status 0 "$HOLDFAST" flush v --wait --timeout 600
picture "$M" >"$WORK/before"
check_status 0 "$HOLDFAST" umount "$M"
gateway_stop
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" mount v "$M"
picture "$M" >"$WORK/after"
check_same 'everything after a restart' "$WORK/before" "$WORK/after"
check_status 0 "$HOLDFAST" umount "$M"
