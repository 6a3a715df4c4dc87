"""What one measured stretch cost: on the server, in our processes, in the client, and by everybody else."""
import os
import shutil
import signal
import subprocess
import time

import machine


def difference(after, before):
    if after is None or before is None:
        return None
    return {k: after[k] - before.get(k, 0) for k in after}


class Meter:
    """`with Meter(server, gateway, perf) as meter: ...`; then meter.sample(...). `pids`: of another mount program."""

    def __init__(self, server, gateway=None, perf=None, pids=()):
        self.server = server
        self.gateway = gateway
        self.perf = perf # a file for `perf record` on the gateway, or None
        self.others = list(pids)
        self.recorder = None

    def processes(self):
        gateway, mounter = self.gateway.processes() if self.gateway else ([], [])
        return {"server": self.server.pids, "gateway": gateway or self.others, "mounter": mounter}

    def counters(self):
        return self.server.counters(), self.gateway.store_counters() if self.gateway else None

    def cpu(self):
        cpu = {name: machine.cpu(pids) for name, pids in self.processes().items()}
        cpu["all"] = machine.busy()
        return cpu

    # Asking for counters costs too: outside of the stretch whose CPU is counted.
    def __enter__(self):
        if self.perf and self.gateway:
            self.start_perf()
        self.counters_before = self.counters()
        self.cpu_before = self.cpu()
        return self

    def __exit__(self, *_unused):
        self.cpu_after = self.cpu()
        if self.recorder:
            self.recorder.send_signal(signal.SIGINT)
            self.recorder.wait(120)
        self.counters_after = self.counters()

    def start_perf(self):
        if not shutil.which("perf"):
            return
        gateway, mounter = self.gateway.processes()
        pids = ",".join(str(pid) for pid in gateway + mounter)
        # Libraries have no frame pointers: the stack itself is recorded, and unwound later.
        self.recorder = subprocess.Popen(["perf", "record", "-q", "-F", "199", "--call-graph", "dwarf,16384", "-p", pids, "-o", self.perf],
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)

    def sample(self, tally, seconds=None):
        """One run as the report wants it; `tally` is what hf-load printed, `seconds` another stretch than its own."""
        cpu = difference(self.cpu_after, self.cpu_before)
        cpu["client"] = tally["cpu"]
        everything = cpu.pop("all")
        cpu["others"] = everything - sum(cpu.values())
        seconds = tally["seconds"] if seconds is None else seconds
        return {
            "seconds": seconds,
            "bytes": tally["bytes"],
            "items": tally["items"],
            "mb_per_s": tally["bytes"] / seconds / 1e6,
            "items_per_s": tally["items"] / seconds,
            "client_requests": tally["requests"],
            "server_requests": difference(self.counters_after[0], self.counters_before[0]),
            "store_counters": difference(self.counters_after[1], self.counters_before[1]),
            "cpu": {name: round(value, 3) for name, value in cpu.items()},
            "memory": self.gateway.peak_memory() if self.gateway else None,
            "sha256_ok": None,
        }


def perf_rows(path, column, *options):
    """[(percent, thread, object, symbol)], largest first; what has no symbol is added up for each object."""
    done = subprocess.run(["perf", "report", "-i", path, "--stdio", "--no-inline", "-g", "none", "-t", "\t", "-F", column + ",comm,dso,sym", *options],
                          capture_output=True, text=True, check=False)
    sums = {}
    for line in done.stdout.split("\n"):
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) < 4 or not cells[0].endswith("%"):
            continue
        symbol = cells[3].split("] ", 1)[-1]
        key = (cells[1], cells[2], "(no symbols)" if symbol.startswith("0x") else symbol)
        sums[key] = sums.get(key, 0) + float(cells[0][:-1])
    return sorted(((share, *key) for key, share in sums.items()), reverse=True)


def perf_top(path, lines=12):
    """Where the time went: by object, by function, and the product's own functions with all that they call."""
    if not os.path.exists(path):
        return []
    rows = perf_rows(path, "overhead", "--no-children")
    objects = {}
    for share, _thread, name, _symbol in rows:
        objects[name] = objects.get(name, 0) + share
    whole = {}
    for share, _thread, name, symbol in perf_rows(path, "overhead_children", "--children"):
        if name.startswith("holdfast"):
            whole[symbol] = whole.get(symbol, 0) + share
    text = ["by object: " + ", ".join(f"{n} {s:.0f} %" for n, s in sorted(objects.items(), key=lambda o: -o[1]) if s >= 1)]
    text += [f"{share:5.1f} %  {thread:16} {name:20} {symbol}" for share, thread, name, symbol in rows[:lines]]
    text.append("with what they call:")
    text += [f"{share:5.1f} %  {symbol}" for symbol, share in sorted(whole.items(), key=lambda w: -w[1])[:2 * lines]]
    return text
