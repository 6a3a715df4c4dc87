"""Figures out of samples; the table, the JSON file and the page with bars."""
import html
import json
import statistics

NOTES = (
    "Both sides run on the machine of the server and share its processors: what one side burns, the server lacks.",
    "Runs alternate: Holdfast, client, Holdfast, client. A ratio is of one pair of runs, Holdfast's rate over that of the "
    "client's variant with the best median; the figure is the median of the ratios.",
    "The client sends unconditional requests with an unsigned payload and no metadata, retries nothing and keeps no index. Holdfast's "
    "writes are conditional, carry metadata and checksums, and are journaled.",
    "Cold means: a gateway with a new state directory (no index, no cache) on the same bucket, and the kernel's caches dropped.",
    "'others' are processor seconds of the machine that none of the two sides nor the server used: above a tenth of the run "
    "the figures are only a trial.",
    "'by CPU' is the ratio if both sides kept all processors busy all the time: the client's processor seconds with the server's, over "
    "Holdfast's with the server's. It holds where the machine is the limit, and suffers less from what others do on it.",
    "Every variant's bytes are compared by sha256 in its first run, outside of the time.",
)


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def mean(samples, *path):
    """The mean of a number inside the samples, None when one has it not."""
    values = []
    for sample in samples:
        for name in path:
            sample = sample.get(name) if isinstance(sample, dict) else None
        if sample is None:
            return None
        values.append(sample)
    return sum(values) / len(values) if values else None


def work(samples):
    """Processor seconds of a run: the server's, the gateway's and those of the program that reads or writes."""
    return sum(mean(samples, "cpu", name) for name in ("server", "gateway", "mounter", "client"))


def judge(job, runs):
    """`runs`: {side: {variant: [sample, ...]}}; adds medians, the best client, ratios, the verdict."""
    rates = {side: {variant: [job.rate(s) for s in samples] for variant, samples in variants.items()}
             for side, variants in runs.items()}
    best = max((v for v in rates["client"] if v.split(" ", 1)[1] not in job.beside), key=lambda v: statistics.median(rates["client"][v]))
    ratios = {variant: [a / b for a, b in zip(values, rates["client"][best])] for variant, values in rates["holdfast"].items()}
    others = {f"{side}: {variant}": [a / b for a, b in zip(values, rates["client"][best])]
              for side, variants in rates.items() if side not in ("holdfast", "client") for variant, values in variants.items()}
    figure = spread(ratios[job.ours])
    sums = [s["sha256_ok"] for variants in runs.values() for samples in variants.values() for s in samples
            if s["sha256_ok"] is not None]
    return {
        "job": job.name, "title": job.title, "unit": job.unit, "explained": job.explained, "target": job.target,
        "compared": {"holdfast": job.ours, "client": best},
        "rates": {side: {v: spread(values) for v, values in variants.items()} for side, variants in rates.items()},
        "ratio": figure, "ratios": ratios[job.ours],
        "other_ratios": {v: spread(r) for v, r in {**ratios, **others}.items() if v != job.ours},
        "cpu_ratios": {variant: work(runs["client"][best]) / max(work(samples), 0.01)
                       for variant, samples in runs["holdfast"].items()},
        "pass": figure["median"] >= job.target,
        "bytes_ok": all(sums) and bool(sums),
        "runs": runs,
    }


def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def cost_row(side, variant, samples):
    requests = mean(samples, "server_requests", "requests")
    ours = mean(samples, "store_counters", "requests")
    if ours is None:
        ours = mean(samples, "client_requests") if side == "client" else None
    cells = [number(requests, 0), number(ours, 0)]
    cells += [number(mean(samples, "cpu", name), 2) for name in ("server", "gateway", "mounter", "client", "others")]
    memory = max((s["memory"] or 0) for s in samples)
    return cells + [f"{memory / 2**20:.0f}" if memory else "-"]


HEAD = ("side", "variant", "median", "min", "max", "ratio", "by CPU", "requests", "by client", "server", "gateway", "mounter", "client",
        "others", "MiB")


def rows(result):
    for side, variants in result["runs"].items():
        for variant, samples in variants.items():
            rate = result["rates"][side][variant]
            key = variant if side == "holdfast" else f"{side}: {variant}"
            ratio = result["ratio"] if (side, variant) == ("holdfast", result["compared"]["holdfast"]) else \
                result["other_ratios"].get(key)
            mark = " *" if result["compared"].get(side) == variant else ""
            yield [side, variant + mark, *(number(rate[n]) for n in ("median", "min", "max")),
                   number(ratio["median"], 2) if ratio else "",
                   number(result["cpu_ratios"][variant], 2) if side == "holdfast" else "", *cost_row(side, variant, samples)]


MEMORY_TARGET = 200 << 20


def memory_verdict(report):
    return (f"{'PASS' if report['memory'] < MEMORY_TARGET else 'MISS'}  memory: {report['memory'] / 2**20:.0f} MiB at most was resident in the "
            f"gateway (VmHWM), wanted under {MEMORY_TARGET >> 20}")


def passed(report):
    return report["memory"] < MEMORY_TARGET and all(result["pass"] for result in report["jobs"])


def verdict(result):
    ratio, compared = result["ratio"], result["compared"]
    return (f"{'PASS' if result['pass'] else 'MISS'}  {result['job']}: {ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f}) of the "
            f"client '{compared['client']}', wanted {result['target']}" + ("" if result["bytes_ok"] else "  BYTES DIFFER"))


def table(result):
    lines = [list(HEAD), *rows(result)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    text = [f"== {result['title']} ({result['unit']}; CPU in seconds)"]
    for line in lines:
        text.append("  ".join(cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))).rstrip())
    return "\n".join([*text, verdict(result)])


def facts_lines(report):
    facts, options = report["machine"], report["options"]
    yield f"{report['version']}; server {report['server']} ({facts['radosgw'] or 'version not known'}), {facts['curl'][:40]}"
    yield (f"{facts['cores']} cores of {facts['cpu']}, {facts['memory_bytes'] / 2**30:.1f} GiB, kernel {facts['kernel']}, "
           f"files on {facts['file_system']}")
    yield (f"load average {facts['load_average_start'][0]} at the start, {facts['load_average_end'][0]} at the end; "
           f"kernel caches {'dropped before each run' if report['caches_dropped'] else 'NOT dropped (that needs root)'}")
    yield (f"{options['size'] / 2**20:g} MiB large, {options['count']} files of {options['small_size']} bytes, {options['concurrency']} "
           f"connections on both sides, {options['runs']} runs of each variant")
    yield memory_verdict(report)


def print_text(report):
    print("\n".join(facts_lines(report)))
    for note in NOTES:
        print(f"- {note}")
    for result in report["jobs"]:
        print(f"\n{table(result)}\n{result['explained']}")
    for name, lines in report["perf"].items():
        print(f"\n-- where the gateway's time went in {name}\n" + "\n".join(lines))
    print("\n" + "\n".join([*(verdict(result) for result in report["jobs"]), memory_verdict(report)]))
    print("'*' is compared. requests: as the server counts; by client: as Holdfast or the client counts its own. CPU is a mean of the runs.")


# ---- the page ----
STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:.7em 0;font-size:13px}td,th{border:1px solid #ccc;padding:.2em .5em;text-align:right}
td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}.miss{color:#a30000}.pass{color:#006b2d}pre{font-size:12px;overflow:auto}"""
LEFT, WIDTH, ROW = 230, 620, 30


def bar(y, name, ratio, target, top):
    def x(value):
        return LEFT + WIDTH * value / top
    good = target is None or ratio["median"] >= target
    parts = [f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{html.escape(name)}</text>',
             f'<rect x="{LEFT}" y="{y}" width="{x(ratio["median"]) - LEFT:.1f}" height="18" fill="{"#3b7dbd" if good else "#c4673a"}"/>',
             f'<path d="M{x(ratio["min"]):.1f} {y + 9}H{x(ratio["max"]):.1f}M{x(ratio["min"]):.1f} {y + 4}v10M{x(ratio["max"]):.1f} {y + 4}v10" '
             'stroke="#000" fill="none"/>',
             f'<text x="{x(max(ratio["max"], ratio["median"])) + 6:.1f}" y="{y + 14}">{ratio["median"]:.2f}</text>']
    if target is not None:
        parts.append(f'<path d="M{x(target):.1f} {y - 4}v26" stroke="#c00" stroke-width="2"><title>target {target}</title></path>')
    return "".join(parts)


def chart(results):
    bars = []
    for result in results:
        bars.append((f"{result['job']}: {result['compared']['holdfast']}", result["ratio"], result["target"]))
        bars += [(f"{result['job']}: {name}", ratio, None) for name, ratio in result["other_ratios"].items()]
    top = max([1.1, *(ratio["max"] * 1.1 for _, ratio, _ in bars)])
    one = LEFT + WIDTH / top
    height = 24 + ROW * len(bars)
    body = "".join(bar(20 + ROW * i, name, ratio, target, top) for i, (name, ratio, target) in enumerate(bars))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {LEFT + WIDTH + 60} {height}" font-size="12">'
            f'<title>Holdfast over the best client</title><path d="M{one:.1f} 8V{height}" stroke="#888" stroke-dasharray="4 3"/>'
            f'<text x="{one:.1f}" y="8" text-anchor="middle">client = 1</text>{body}</svg>')


def html_table(result):
    head = "".join(f"<th>{h}</th>" for h in HEAD)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows(result))
    return (f"<h2>{html.escape(result['title'])} ({result['unit']})</h2><p>{html.escape(result['explained'])}</p>"
            f"<table><tr>{head}</tr>{body}</table>"
            f'<p class="{"pass" if result["pass"] else "miss"}">{html.escape(verdict(result))}</p>')


def page(report):
    perf = "".join(f"<h2>Where the gateway's time went: {html.escape(n)}</h2><pre>{html.escape(chr(10).join(lines))}</pre>"
                   for n, lines in report["perf"].items())
    return ("<!doctype html><html lang=en><meta charset=utf-8><title>scripts/bench data</title>"
            f"<style>{STYLE}</style><h1>Holdfast against plain clients</h1>"
            + "".join(f"<p>{html.escape(line)}</p>" for line in facts_lines(report))
            + "<ul>" + "".join(f"<li>{html.escape(note)}" for note in NOTES) + "</ul>"
            + "<p>Bars: median of the ratios; whiskers: least and greatest; red: target.</p>" + chart(report["jobs"])
            + "".join(html_table(result) for result in report["jobs"]) + perf + "</html>\n")


def write(report, json_file, html_file):
    if json_file:
        with open(json_file, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    if html_file:
        with open(html_file, "w", encoding="utf-8") as file:
            file.write(page(report))
