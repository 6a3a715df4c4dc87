# shellcheck shell=bash
# tests/support/daemons.sh - sourced by the scripts that run test servers: processes with a pid file in "$dir", on ports
# that are free.

dir=''  # the server's directory
me=''   # the script's name
mark='' # what is in "$dir/mark"
daemons_begin() { # SCRIPT MARK
    me=$1
    mark=$2
}
daemons_dir() { dir=$(realpath -m -- "$1"); } # DIR

die() {
    echo "$me: $*" >&2
    exit 1
}

# The directory is new, empty, or one that this script has made.
claim_dir() {
    mkdir -p "$dir"
    if [ ! -f "$dir/mark" ]; then
        [ -z "$(ls -A "$dir")" ] || die "'$dir' is neither empty nor of this script"
        echo "$mark" >"$dir/mark"
    fi
}

# A pid file holds the pid and the start time, so that a reused pid is never taken for ours.
started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

running() { # NAME: prints the pid
    local pid since
    read -r pid since 2>/dev/null <"$dir/$1.pid" || return 1
    [ -n "$since" ] && [ "$(started_at "$pid")" = "$since" ] && echo "$pid"
}

launch() { # NAME COMMAND...: output in NAME.out
    local name=$1 pid
    shift
    : >"$dir/$name.out" # here, not in the child: who waits for a word in it must not find the last start's
    setsid "$@" </dev/null >>"$dir/$name.out" 2>&1 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- &
    pid=$!
    echo "$pid $(started_at "$pid")" >"$dir/$name.pid"
}

halt() { # NAME
    local pid i
    if pid=$(running "$1"); then
        kill -CONT "$pid" 2>/dev/null || true
        kill -TERM "$pid" 2>/dev/null || true
        for ((i = 0; i < 100; i++)); do
            running "$1" >/dev/null || break
            sleep 0.1
        done
        ! running "$1" >/dev/null || kill -KILL "$pid" 2>/dev/null || true
    fi
    rm -f "$dir/$1.pid"
}

until_ready() { # NAME SECONDS COMMAND...
    local name=$1 deadline=$((SECONDS + $2))
    shift 2
    until "$@" >/dev/null 2>&1; do
        if ! running "$name" >/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
            tail -n 15 "$dir/$name.out" >&2
            halt_all
            die "$name did not come up in '$dir'"
        fi
        sleep 0.1
    done
}

free_ports() { # N distinct ports that nothing uses now
    python3 -c 'import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in held: s.bind(("127.0.0.1", 0))
print(*[s.getsockname()[1] for s in held])' "$1"
}

load_settings() {
    [ -f "$dir/settings" ] || die "'$dir' holds no server: start it first"
    # shellcheck disable=SC1091
    . "$dir/settings"
}

print_keys() { # ENDPOINT REGION ACCESS_KEY SECRET_KEY
    cat <<ENV
S3_ENDPOINT=$1
S3_REGION=$2
S3_ACCESS_KEY=$3
S3_SECRET_KEY=$4
AWS_ENDPOINT_URL=$1
AWS_ENDPOINT_URL_S3=$1
AWS_ACCESS_KEY_ID=$3
AWS_SECRET_ACCESS_KEY=$4
AWS_DEFAULT_REGION=$2
AWS_REGION=$2
AWS_EC2_METADATA_DISABLED=true
ENV
}

wipe_dir() {
    [ -e "$dir" ] || return 0
    [ "$(cat "$dir/mark" 2>/dev/null)" = "$mark" ] || die "'$dir' was not made by this script"
    halt_all
    rm -rf -- "$dir"
}
