#!/bin/sh
# run-swift.sh CONTRACT [ARG...]: the contract suite on OpenStack Swift's S3 face, which lives for this run.
exec "$(dirname "$0")/run-server.sh" swift "$@"
