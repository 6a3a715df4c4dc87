#!/bin/sh
# run-rgw.sh CONTRACT [ARG...]: the contract suite on a real S3 server (Ceph RGW), which lives for this run.
exec "$(dirname "$0")/run-server.sh" rgw "$@"
