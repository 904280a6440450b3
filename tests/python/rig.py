"""What the tests of the Python package begin with: a scratch directory with a source in it, and a real tierd over that source.

TIERD_BINARY names the daemon (tests/python/CMakeLists.txt sets it). A daemon of a rig ends with the test, also when the test dies.
"""

import ctypes
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

_PR_SET_PDEATHSIG = 1


def content(name, size, version=1):
    """Bytes that say which file they are of: any in a wrong place is seen."""
    seed = hashlib.sha256(f"{name}/{version}".encode()).digest()
    return hashlib.shake_128(seed).digest(size)


def interrupt_often(times, once):
    """Calls `once` again and again until ^C comes in the middle of it (between any two bytecodes), and all that so many times."""
    fired = []

    def interrupt(*_):
        fired.append(True)
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for n in range(times):
            fired.clear()
            try:
                signal.setitimer(signal.ITIMER_REAL, (200 + n % 101) * 1e-6)
                while not fired:  # what a finalizer written in Python raises is lost
                    once()
            except KeyboardInterrupt:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def _die_with_parent():
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Rig:
    """A scratch directory, `source` in it, and a tierd that serves it."""

    def __init__(self):
        self.base = pathlib.Path(os.path.realpath(tempfile.mkdtemp(prefix="tierd-py-")))
        self.source = self.base / "source"
        self.source.mkdir()
        (self.base / "run").mkdir(mode=0o700)
        self.socket = str(self.base / "run" / "tierd.sock")
        self.daemon = None

    def write(self, name, size=None, data=None, version=1):
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(name, size, version) if data is None else data)
        return str(path)

    def start(self, *more, ram="128 MiB"):
        with open(self.base / "tierd.out", "wb") as out:
            self.daemon = subprocess.Popen(
                [*os.environ.get("TIERD_UNDER", "").split(), os.environ["TIERD_BINARY"], "--config", "none", "--source", str(self.source), "--ram", ram, "--ssd", "off", "--socket", self.socket,
                 "--metrics", "off", *more], stdout=out, stderr=subprocess.STDOUT, preexec_fn=_die_with_parent, env=self._environment())
        deadline = time.monotonic() + 20
        while b"tierd ready" not in (self.base / "tierd.out").read_bytes():
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"tierd did not start: {(self.base / 'tierd.out').read_text()}")
            time.sleep(0.01)
        return self

    @staticmethod
    def _environment():
        return {key: value for key, value in os.environ.items() if key != "TIERD_SOCKET"}

    def kill(self):
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = None

    def status(self):
        """The daemon's own account: GET /v1/status."""
        return self.control("GET", "/v1/status")

    def control(self, method, target):
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(self.base / "run" / "control.sock"))
            control.sendall(f"{method} {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while part := control.recv(65536):
                answer += part
        return json.loads(answer.partition(b"\r\n\r\n")[2])

    def close(self):
        if self.daemon is not None:
            self.daemon.terminate()
            try:
                self.daemon.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.base, ignore_errors=True)


class DaemonTest(unittest.TestCase):
    """One daemon for all tests of a class; the process-wide client is connected to it when `default` is set (one such class per program)."""

    default = False

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig()
        cls.addClassCleanup(cls.rig.close)
        cls.fill()
        cls.rig.start()
        if cls.default:
            os.environ["TIERD_SOCKET"] = cls.rig.socket

    @classmethod
    def fill(cls):
        """Puts files into the source."""

    def eventually(self, condition, seconds=10):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, "in vain")
            time.sleep(0.005)


def run_python(code, *arguments, **more):
    """Runs a program in a Python of its own; the CompletedProcess, text."""
    environment = {**os.environ, **more.pop("env", {})}
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, env=environment, **more)
