"""What the machine and its processes did: CPU seconds, memory, caches, facts."""
import os
import platform
import shutil
import subprocess
import tempfile

TICKS = os.sysconf("SC_CLK_TCK")


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def stat_of(pid):
    """(name, the fields after it) of /proc/PID/stat; ("", []) when it is gone."""
    text = read(f"/proc/{pid}/stat")
    if not text:
        return "", []
    return text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()


def cpu(pids):
    """User and system seconds of these processes so far."""
    total = 0
    for pid in pids:
        fields = stat_of(pid)[1]
        if fields:
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def busy():
    """Seconds that all processors together have worked so far."""
    first = read("/proc/stat").split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, irq, softirq, steal = (int(n) for n in first[:8])
    return (user + nice + system + irq + softirq + steal) / TICKS


def tree(pid):
    """The process and everything below it."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = stat_of(entry)[1]
            if fields:
                parents.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        todo += parents.get(one, [])
    return found


def peak_memory(pid):
    """The largest resident size so far (VmHWM), in bytes."""
    for line in read(f"/proc/{pid}/status").split("\n"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def drop_caches():
    """Write everything back, then empty the kernel's caches; False when only root could do that."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3\n")
        return True
    except OSError:
        return False


def warm(path):
    """Bring a file, or every file of a directory, into the kernel's cache."""
    names = [os.path.join(path, n) for n in os.listdir(path)] if os.path.isdir(path) else [path]
    for name in names:
        with open(name, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def discard(path, trash):
    """Away with a directory: large files now, the rest into `trash`. ext4 keeps the inodes of thousands of files that were
    just deleted for a minute and looks at each of them when the next thousands are made; the next run would pay for it."""
    if not os.path.isdir(path):
        return
    for folder, _dirs, files in os.walk(path):
        for name in files:
            file = os.path.join(folder, name)
            if not os.path.islink(file) and os.lstat(file).st_size > 1 << 20:
                os.unlink(file)
    os.makedirs(trash, exist_ok=True)
    os.rename(path, tempfile.mkdtemp(dir=trash))


def load_average():
    return [round(n, 2) for n in os.getloadavg()]


def first_line(*command):
    if not shutil.which(command[0]):
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return (done.stdout or done.stderr).strip().split("\n")[0]


def file_system(path):
    done = subprocess.run(["findmnt", "-n", "-o", "FSTYPE,SOURCE", "-T", path], capture_output=True, text=True, check=False)
    return " ".join(done.stdout.split())


def facts(work):
    model = [line.split(":", 1)[1].strip() for line in read("/proc/cpuinfo").split("\n") if line.startswith("model name")]
    memory = [line.split()[1] for line in read("/proc/meminfo").split("\n") if line.startswith("MemTotal:")]
    return {
        "cores": os.cpu_count(),
        "cpu": model[0] if model else platform.machine(),
        "memory_bytes": int(memory[0]) * 1024 if memory else 0,
        "kernel": platform.release(),
        "file_system": file_system(work),
        "disk_free_bytes": shutil.disk_usage(work).free,
        "radosgw": first_line("radosgw", "--version"),
        "curl": first_line("curl", "--version"),
        "load_average_start": load_average(),
    }
