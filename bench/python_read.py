#!/usr/bin/python3
"""B3: Python's hits. tierd.read(p), and np.frombuffer(tierd.view(p)).sum(), against open(p, "rb").read() and the same sum over it, of files in the page cache.

One process, 2,000 files of 110 KiB in a new random order each round; the sides take turns. Built as bench_python (a copy in the build tree, where it finds its tierd).
usage: bench_python [--only LIST] [--rounds N]     a row per line on stdout, as the other programs
"""

import argparse
import ctypes
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(__file__).resolve().parent.parent
FILES, DOUBLES = 2000, 110 * 1024 // 8
BAR = 1.5
OLD_ENOUGH_SECONDS = 11  # after which files are older than the racy window, as datasets are


def hardware():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return f"{os.cpu_count()} x {model}, {memory} GiB, Linux {os.uname().release}"


class Daemon:
    """A private tierd over `source`, ready; ends with this process."""

    def __init__(self, work, source):
        (work / "run").mkdir(mode=0o700)
        self.socket = str(work / "run" / "tierd.sock")
        binary = os.environ.get("TIERD_BINARY", str(BUILD / "tierd" / "tierd"))
        self._process = subprocess.Popen(
            [binary, "--config", "none", "--source", str(source), "--ram", "1 GiB", "--ssd", "off", "--socket", self.socket, "--metrics", "off"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))
        while "tierd ready" not in (line := self._process.stdout.readline()):
            if not line:
                sys.exit("bench_python: tierd did not start")

    def stop(self):
        self._process.terminate()
        self._process.wait(30)


def files_per_second(operation, paths, order):
    start = time.perf_counter()
    for index in order:
        operation(paths[index])
    return len(order) / (time.perf_counter() - start)


def compare(ours, baseline, paths, rounds):
    """Files per second of both, in turns; which goes first alternates."""
    dice, found = random.Random(1), ([], [])
    for turn in range(rounds + 1):
        order = dice.sample(range(len(paths)), len(paths))
        for which in ((0, 1) if turn % 2 else (1, 0)):
            found[which].append(files_per_second((ours, baseline)[which], paths, order))
    return found[0][1:], found[1][1:]  # the first turn touched memory for the first time


def numbers(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def row(name, what, ours, baseline, pages):
    ratio = numbers([a / b for a, b in zip(ours, baseline)])
    return {"id": name, "what": what, "unit": "files/s", "note": f"{1e6 / statistics.median(ours):.1f} us against {1e6 / statistics.median(baseline):.1f} us",
            "ours": numbers(ours), "baseline": numbers(baseline), "ratio": ratio, "bar": f">= {BAR:g}", "met": ratio["median"] >= BAR, "runs": len(ours), "pages": pages,
            "hardware": hardware()}


def measure(tierd, np, paths, arguments):
    def bare_read(path):
        with open(path, "rb") as file:
            return file.read()

    sides = {
        "B3.read": ("Python: tierd.read against open().read(), 110 KiB, RAM hits", tierd.read, bare_read),
        "B3.view": ("Python: np.frombuffer(tierd.view(p)).sum() against the same over open().read()", lambda path: np.frombuffer(tierd.view(path)).sum(),
                    lambda path: np.frombuffer(bare_read(path)).sum()),
    }
    for path in paths:
        assert tierd.read(path) == bare_read(path)
    for name, (what, ours, baseline) in sides.items():
        if arguments.only and not any(name == wanted or name.startswith(wanted + ".") for wanted in arguments.only.split(",")):
            continue
        before = tierd.stats()
        measured = compare(ours, baseline, paths, arguments.rounds or 9)
        after = tierd.stats()
        if sum(after.reads.values()) - sum(before.reads.values()) != after.reads["ram"] - before.reads["ram"]:
            sys.exit("bench_python: not every read was a hit")
        print(json.dumps(row(name, what, *measured, after.pages)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only")
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    sys.path.insert(0, str(BUILD / "client_lib" / "python"))
    import numpy as np
    import tierd

    work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-bench.", dir=os.environ.get("TIERD_BENCH_DIR", "/var/tmp")))
    try:
        (work / "source").mkdir()
        paths = [str(work / "source" / f"{number:05}") for number in range(FILES)]
        data = np.random.default_rng(0).random(DOUBLES)
        for number, path in enumerate(paths):
            (data + number).tofile(path)
        time.sleep(OLD_ENOUGH_SECONDS)
        daemon = Daemon(work, work / "source")
        try:
            os.environ["TIERD_SOCKET"] = daemon.socket
            measure(tierd, np, paths, arguments)
        finally:
            daemon.stop()
    finally:
        shutil.rmtree(work, ignore_errors=True)


main()
