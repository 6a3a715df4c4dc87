#!/usr/bin/env bash
# scripts/bench works: every job runs on both sides on a real server, all bytes are right (sha256), the report has every
# figure that it promises, and nothing is left. How fast it is, is not judged here.
# timeout: 300
. "$(dirname "$0")/../support/lib.sh"
lib_begin bench
need_fuse
[ -x "$HOLDFAST_BUILD/tests/bench/hf-load" ] || fail_now 'no hf-load in the build'

check_status 2 "$LIB_ROOT/scripts/bench"
check_status 2 "$LIB_ROOT/scripts/bench" data --only nothing
export HOLDFAST_BUILD
mkdir "$WORK/place"

rgw_start
rgw_bucket bench-given
with=''
for name in rclone s3fs; do ! command -v "$name" >/dev/null || with+=$name,; done
check_status 0 timeout 240 "$LIB_ROOT/scripts/bench" data --quick --store "$(rgw_store_url bench-given/below)" --server-pids "$S3_PIDS" \
    --dir "$WORK/place" --with "$with" --json "$WORK/report.json" --html "$WORK/report.html"
check_eq 'left in its directory' '' "$(ls -A "$WORK/place")"
check_eq 'objects left in the bucket' '' \
    "$("${AWS[@]}" s3 ls --recursive s3://bench-given/below/hf-bench | head -n 3)"
for job in read-large write-large write-small read-small; do check_contains 'the verdicts' "$job: " "$WORK/out"; done
python3 - "$WORK/report.json" "$with" <<'PY' || fail 'the report is not whole'
import json, sys
report = json.load(open(sys.argv[1], encoding="utf-8"))
others = [name for name in sys.argv[2].split(",") if name]
problems = []

def want(what, truth):
    if not truth:
        problems.append(what)

for name in ("cores", "cpu", "memory_bytes", "kernel", "file_system", "load_average_start", "load_average_end"):
    want(f"machine.{name}", report["machine"].get(name))
want("version, notes", report["version"] and report["notes"])
want("resident memory", 1 << 20 < report["memory"] < 1 << 32)
want("four jobs", [j["job"] for j in report["jobs"]] == ["read-large", "write-large", "write-small", "read-small"])
options = report["options"]
for job in report["jobs"]:
    name = job["job"]
    large = name.endswith("large")
    want(f"{name}: bytes", job["bytes_ok"] is True)
    want(f"{name}: target, verdict", 0 < job["target"] < 1 and isinstance(job["pass"], bool))
    want(f"{name}: ratio", 0 < job["ratio"]["min"] <= job["ratio"]["median"] <= job["ratio"]["max"])
    want(f"{name}: server CPU", any(s["cpu"]["server"] > 0 for v in job["runs"].values() for r in v.values() for s in r))
    want(f"{name}: ratio of work", set(job["cpu_ratios"]) == set(job["runs"]["holdfast"]))
    want(f"{name}: sides", sorted(job["runs"]) == sorted(["holdfast", "client", *others]))
    want(f"{name}: compared", all(v in job["runs"][side] for side, v in job["compared"].items()))
    for side, variants in job["runs"].items():
        for variant, samples in variants.items():
            where = f"{name} {side} {variant}"
            want(f"{where}: runs", len(samples) == options["runs"])
            for s in samples:
                moved = options["size"] if large else options["count"] * options["small_size"]
                want(f"{where}: bytes moved", s["bytes"] == moved)
                want(f"{where}: time", s["seconds"] > 0 and s["mb_per_s"] > 0)
                want(f"{where}: cpu", set(s["cpu"]) == {"server", "gateway", "mounter", "client", "others"})
                if side == "holdfast":
                    want(f"{where}: requests", s["store_counters"]["requests"] >= (1 if large else options["count"]))
                    want(f"{where}: memory", s["memory"] > 1 << 20)
                elif side == "client":
                    want(f"{where}: requests", s["client_requests"] >= (1 if large else options["count"]))
                if side != "holdfast" or variant != "from first write":
                    want(f"{where}: sha256", s["sha256_ok"] is True)
print(*problems, sep="\n")
sys.exit(bool(problems))
PY
check_contains 'the page' '<svg' "$WORK/report.html"
check_eq 'addresses in the page' '' "$(grep -oE '(src|href)=' "$WORK/report.html" | head -n 1)"

# ---- a day's work: jobs of each kind once in the mount ----
jobs='create,stat,rm 1000,mv,write,read 64,8000,200,git status,untar,sqlite'
check_status 2 "$LIB_ROOT/scripts/bench" everyday --only nothing
check_status 0 timeout 240 "$LIB_ROOT/scripts/bench" everyday --quick --file --ceiling --only "$jobs" --dir "$WORK/place" --json "$WORK/everyday.json"
check_eq 'left in its directory' '' "$(ls -A "$WORK/place")"
check_eq 'jobs' 13 "$(jq '.jobs | length' "$WORK/everyday.json")"
check_eq 'jobs without a figure of each side' '' \
    "$(jq -r '.jobs[] | select((.ms | keys) != ["ceiling", "disk", "holdfast"] or (.ms | any(. == null))) | .job' "$WORK/everyday.json")"
check_eq 'the mean' true "$(jq '.summary.geometric_mean > 0' "$WORK/everyday.json")"
