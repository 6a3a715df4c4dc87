#!/usr/bin/env bash
# The command line without a gateway: help, usage errors, settings, completion. No command needs a daemon to say what is wrong
# with its words.
# timeout: 60
. "$(dirname "$0")/../support/lib.sh"
lib_begin cli-usage
export HOLDFAST_STATE=$WORK/none

check_status 0 "$HOLDFAST" --help
[ "$(wc -l <"$WORK/out")" -le 40 ] || fail "--help has $(wc -l <"$WORK/out") lines"
# One a line with its summary, or several on a line of their own.
commands=$(sed -n -e 's/^  \([a-z]*\) .*/\1/p' -e 's/^  \([a-z]*, [a-z, ]*\)$/\1/p' "$WORK/out" | tr -d ,)
check_eq 'the overview names all that completion knows' \
    "$("$HOLDFAST" completion fish | sed -n "s/^complete -c holdfast -n __fish_use_subcommand -f -a \([a-z]*\) .*/\1/p" | sort)" \
    "$(xargs -n 1 <<<"$commands" | sort)"
[ "$(wc -w <<<"$commands")" -ge 32 ] || fail 'the overview lacks commands'
for command in $commands; do
    check_status 0 "$HOLDFAST" "$command" --help
    check_contains "help of $command" "example: " "$WORK/out"
    check_status 0 "$HOLDFAST" help "$command"
done
check_status 0 "$HOLDFAST" version
check_contains version 'holdfast 0.' "$WORK/out"
check_status 0 "$HOLDFAST" version --json
jq -e .version "$WORK/out" >/dev/null || fail 'version --json is no JSON'

usage() { # WHAT-IS-SAID ARG...: exit status 2, one line that holds the words
    local said=$1
    shift
    check_status 2 "$HOLDFAST" "$@"
    check_one_line
    check_contains "'$*'" "$said" "$WORK/err"
}
usage "did you mean 'status'" statsu
usage "did you mean 'mount'" moutn
usage "unknown command 'xyzzy'" xyzzy
usage "did you mean '--timeout'" flush --timeuot 3
usage "--timeout needs a value" flush --timeout
usage "--json takes no value" status --json=yes
usage 'one word too many' status now
usage 'something is missing' cat
usage "is not VOLUME:/path" cat reports/a
usage "names no file" cat reports:/
usage "did you mean 'volume list'" volume lits
usage 'takes a name' volume create
usage '--timeout is 0 to' flush --timeout x
usage "only ':ro'" run -v reports:rw -- true
usage "cannot be shown at '/etc'" run -v reports@/etc -- true
usage 'no command to run' run -v reports
usage "--net is" run --net all -- true
usage 'ULID' run --run x -- true
usage "did you mean 'history'" histroy
usage "did you mean 'undo'" undoo
usage "did you mean 'restore'" restroe
usage "did you mean '--version'" restore v:/a --verison x
usage 'exclude each other' restore v:/a --version x --at 2h
usage 'is no time' restore v:/a --at 'last week'
usage 'is no time' restore v:/a --at 2026-13-01T00:00:00Z
usage '--at TIME' restore v:/
usage '--run ID' undo v
usage 'names no file' history v:/
usage 'is not VOLUME:/path' diff v
usage '--limit is 1 to' history v:/a --limit 0
usage 'one file' cat v:/a v:/b --version x
usage 'twice at most' diff v:/a --version 1 --version 2 --version 3
usage 'did you mean' serve --stroe file:///x
usage 'loopback' serve --state "$WORK/s" --listen 0.0.0.0:8480
usage 'loopback' serve --state "$WORK/s" --listen 192.0.2.1:80
usage 'no address' serve --state "$WORK/s" --listen 8480
usage 'unknown' serve --state "$WORK/s" --log loud
for word in 'a/b' '../x' 'UPPER' '-x-' 'a b' "$(printf 'a%.0s' $(seq 64))"; do
    STATUS=0
    "$HOLDFAST" volume create -- "$word" >"$WORK/out" 2>"$WORK/err" || STATUS=$?
    check_eq "volume name '$word'" 1 "$STATUS"
    check_one_line
done

# Without a gateway: one line that says how to start one.
for line in 'ls reports' 'status' 'mounts' 'flush' 'cat v:/a' 'volume list' 'mkdir v:/d'; do
    # shellcheck disable=SC2086
    check_status 6 "$HOLDFAST" $line
    check_one_line
    check_contains "$line" 'holdfast serve' "$WORK/err"
done
[ ! -e "$WORK/none" ] || fail 'a command without a gateway made a state directory'

# Settings: command line over environment over file; a misspelt key is named with its line.
printf '[http]\nlisten = 127.0.0.1:1111\n[cache]\nsize = 1G\n' >"$WORK/conf"
check_status 0 "$HOLDFAST" config show --config "$WORK/conf"
check_contains 'from the file' 'cache.size = 1G  # file' "$WORK/out"
HOLDFAST_LISTEN=127.0.0.1:2222 check_status 0 "$HOLDFAST" config show --config "$WORK/conf"
check_contains 'from the environment' 'http.listen = 127.0.0.1:2222  # environment' "$WORK/out"
HOLDFAST_LISTEN=127.0.0.1:2222 check_status 0 "$HOLDFAST" config show --config "$WORK/conf" --listen 127.0.0.1:3333
check_contains 'from the command line' 'http.listen = 127.0.0.1:3333  # command line' "$WORK/out"
check_status 0 "$HOLDFAST" config check --config "$WORK/conf"
printf '[cache]\nsiez = 1G\n' >"$WORK/conf"
check_status 2 "$HOLDFAST" config check --config "$WORK/conf"
check_one_line
check_contains 'a misspelt key' "conf:2" "$WORK/err"
check_contains 'a misspelt key' "did you mean 'size'" "$WORK/err"

for shell in bash zsh fish; do
    check_status 0 "$HOLDFAST" completion "$shell"
    if command -v "$shell" >/dev/null; then
        "$shell" -n "$WORK/out" || fail "the completion for $shell does not parse"
    fi
    check_contains "completion for $shell" doctor "$WORK/out"
done
usage 'no completion' completion tcsh

# doctor works without a gateway and says so.
STATUS=0
"$HOLDFAST" doctor --json >"$WORK/out" 2>"$WORK/err" || STATUS=$?
jq -e '.checks|length > 5' "$WORK/out" >/dev/null || fail 'doctor --json has too few checks'
check_eq 'doctor on the gateway' warn "$(jq -r '.checks[]|select(.check=="gateway").result' "$WORK/out")"
