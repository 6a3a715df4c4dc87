#!/bin/sh
# run-fault-server.sh CONTRACT FAULT_SERVER [ROLE] [ARG...]: the contract suite on the S3 server of tests/fault/server, without
# faults, in this role (see its README.md; "" for none).
contract=$1
FAULT_SERVER=$2
role=${3:-}
[ $# -lt 3 ] || shift
shift 2
export FAULT_SERVER
exec "$(dirname "$0")/run-server.sh" "fault-server${role:+:$role}" "$contract" "$@"
