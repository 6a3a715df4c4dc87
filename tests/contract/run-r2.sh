#!/bin/sh
# run-r2.sh CONTRACT [ARG...]: the contract suite on Cloudflare's local R2, which lives for this run.
exec "$(dirname "$0")/run-server.sh" r2 "$@"
