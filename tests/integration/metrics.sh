#!/usr/bin/env bash
# GET /metrics: a page that Prometheus' own client reads, with figures that move as they should, and a dashboard that names what is there.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin metrics
/usr/bin/python3 -c 'import prometheus_client' 2>/dev/null || skip 'no python3-prometheus-client'

gateway_start "$WORK/state" "file://$WORK/bucket" --sync-rest 0s
"$HOLDFAST" volume create v --quota 1M >/dev/null || fail_now 'no volume'
api GET /metrics >"$WORK/before"
check_eq 'status' 200 "$(api_status)"
head -c 300000 /dev/urandom >"$WORK/f"
for i in 1 2 3; do check_status 0 "$HOLDFAST" put "$WORK/f" "v:/d/f$i"; done
check_status 4 "$HOLDFAST" cat v:/none
check_status 0 "$HOLDFAST" rm v:/d/f3
check_status 0 "$HOLDFAST" flush --timeout 30 v
api GET /metrics >"$WORK/after"
curl -s -m 10 -o /dev/null -w '%{http_code}' "$URL/metrics" >"$WORK/anonymous"
check_eq 'nobody without a token' 401 "$(cat "$WORK/anonymous")"

/usr/bin/python3 - "$WORK/before" "$WORK/after" "$LIB_ROOT/docs/grafana.json" <<'PY' || fail 'the page is not as it should be'
import json
import re
import sys
from prometheus_client.parser import text_string_to_metric_families as parse

bad = []


def page(name):
    out, families = {}, {}
    for family in parse(open(name, encoding="utf-8").read()):
        if family.name in families:
            bad.append(f"{family.name} comes twice")
        if not family.documentation or family.type == "unknown":
            bad.append(f"{family.name} lacks help or type")
        families[family.name] = family
        for sample in family.samples:
            out[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return out, families


before, _ = page(sys.argv[1])
after, families = page(sys.argv[2])


def grew(name, least, **labels):
    key = name, tuple(sorted(labels.items()))
    if key not in after or after[key] - before.get(key, 0) < least:
        bad.append(f"{key} went from {before.get(key)} to {after.get(key)}, {least} more were expected")


grew("holdfast_store_requests_total", 3, kind="put")
grew("holdfast_store_requests_total", 1, kind="delete")
grew("holdfast_store_call_seconds_count", 3, call="put", result="ok")
grew("holdfast_store_call_seconds_count", 1, call="delete", result="ok")
grew("holdfast_store_call_seconds_bucket", 3, call="put", result="ok", le="+Inf")
grew("holdfast_store_sent_bytes_total", 900000)
grew("holdfast_http_answers_total", 1, **{"class": "4xx"})
for name, value in (("holdfast_volume_files", 2), ("holdfast_volume_bytes", 600000), ("holdfast_volume_quota_bytes", 1 << 20),
                    ("holdfast_volume_unsynced_files", 0)):
    if after.get((name, (("volume", "v"),))) != value:
        bad.append(f"{name} is {after.get((name, (('volume', 'v'),)))}, not {value}")
for name, value in (("holdfast_unsynced_files", 0), ("holdfast_store_up", 1), ("holdfast_history_versions", 1)):
    if after.get((name, ())) != value:
        bad.append(f"{name} is {after.get((name, ()))}, not {value}")

# Histograms: buckets never fall, and end in the count.
for (name, labels), value in after.items():
    if not name.endswith("_count"):
        continue
    base = name[:-6]
    rows = sorted((float(dict(l)["le"]), v) for (n, l), v in after.items()
                  if n == base + "_bucket" and tuple(x for x in l if x[0] != "le") == labels)
    if [v for _, v in rows] != sorted(v for _, v in rows) or not rows or rows[-1][1] != value:
        bad.append(f"{name}{labels}: {rows}, {value}")

# The dashboard names only what there is; the cost is there only where prices are known.
names = {n for n, _ in after} | {"holdfast_store_cost_usd_total"}
for panel in json.load(open(sys.argv[3], encoding="utf-8"))["panels"]:
    for target in panel["targets"]:
        for name in re.findall(r"holdfast_\w+", target["expr"]):
            if name not in names:
                bad.append(f"the dashboard's panel '{panel['title']}' names {name}")
print(*bad, sep="\n", file=sys.stderr)
sys.exit(1 if bad else 0)
PY
lib_end
