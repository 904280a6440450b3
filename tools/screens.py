#!/usr/bin/env python3
"""Writes docs/screens.md: what tierctl shows, from a real run: a slow source (tests/pfs_sim, 1 ms per operation), a daemon, eight reading processes. Root only: the source is mounted at /mnt in a
mount namespace of its own.

    tools/screens.py BUILD > docs/screens.md
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

FILES, BYTES, READERS = 4000, 110_000, 8
READER = """
import random, sys, tierd
files = [f"/mnt/imagenet/train/img_{i:05}.jpg" for i in range(%d)]
while True:
    random.shuffle(files)
    for path in files: tierd.read(path)
""" % FILES


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    if "inside" not in sys.argv:
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, __file__, str(build), "inside"])
    work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-screens-"))
    environment = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(work / "run"), "HOME": str(work), "PYTHONPATH": str(build / "client_lib/python")}
    (work / "run").mkdir(mode=0o700)
    train = work / "backing/imagenet/train"
    train.mkdir(parents=True)
    for i in range(FILES):
        (train / f"img_{i:05}.jpg").write_bytes(os.urandom(BYTES))
    children = []
    try:
        rig = [build / "tests/pfs_sim/pfs_sim", work / "backing", "/mnt", "--control", work / "rig", "--latency-us", "1000"]
        children.append(subprocess.Popen(rig, stdout=subprocess.DEVNULL))
        while not os.path.ismount("/mnt"):
            time.sleep(0.05)
        daemon = [build / "tierd/tierd", "--config", "none", "--source", "/mnt/imagenet", "--ram", "512 MiB", "--ssd", work / "ssd", "--ssd-capacity", "4 GiB", "--set", "source.racy_window=0s"]
        children.append(subprocess.Popen(daemon, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        while not (work / "run/tierd/control.sock").exists():
            time.sleep(0.05)

        def screen(*arguments):
            """A block of text: the command, and what it printed."""
            ran = subprocess.run([build / "tierctl/tierctl", *arguments], env=environment, capture_output=True, text=True, check=False)
            shown = "\n".join(line.rstrip() for line in (ran.stdout + ran.stderr).replace(str(work), "/home/alice").rstrip().splitlines())
            shown = re.sub(r"(Linux \d+\.\d+\.\d+)\S*", r"\1", shown)
            return f"$ tierctl {' '.join(arguments)}\n{shown}\n"

        screens = {"prefetch": screen("prefetch", "--wait", "/mnt/imagenet/train")}
        for _ in range(READERS):
            children.append(subprocess.Popen(["/usr/bin/python3", "-c", READER], env=environment))
        time.sleep(4)
        screens["top"] = screen("top", "-b", "-n", "2", "-d", "2").replace("tierctl top -b -n 2 -d 2", "tierctl top")
        first, second = screens["top"].split("\n\ntierd ", 1)
        screens["top"] = first.splitlines()[0] + "\ntierd " + second
        screens["status"] = screen("status")
        screens["explain"] = screen("explain", "/mnt/imagenet/train/img_00042.jpg")
        for child in children[2:]:
            child.send_signal(signal.SIGTERM)
        screen("evict", "/mnt/imagenet/train")
        screens["bench"] = screen("bench", "/mnt/imagenet/train")
        screens["doctor"] = screen("doctor", "--no-speed", "--source", "/mnt/imagenet")
    finally:
        for child in reversed(children):
            child.send_signal(signal.SIGTERM)
            child.wait(20)
        subprocess.run(["rm", "-rf", work], check=False)
    print("# What tierctl shows\n\nFrom one real run, written by `tools/screens.py`: a source with 1 ms per operation (`tests/pfs_sim`), 4,000 files, eight processes that read them in random order, on a virtual machine\n"
          "with 2 cores that had other work as well. They show what the screens look like; how fast tierd is, `tools/bench.sh` says.\n")
    for name in ("prefetch", "top", "status", "explain", "bench", "doctor"):
        print(f"## {name}\n\n```text\n{screens[name]}```\n")


main()
