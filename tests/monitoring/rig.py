"""What the tests of monitoring stand on: a tierd, a pfs_sim and a Prometheus of their own, on loopback, each ended by its pid. A child dies with the test."""

import ctypes
import http.client
import http.server
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TIERD_BUILD"])
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def eventually(condition, seconds, step=0.1):
    """The first true value of condition(), or the last one when the time is up."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(step)


class Process:
    """A child with its output in a file."""

    def __init__(self, command, output, **more):
        with open(output, "w") as out:
            self.popen = subprocess.Popen([str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, **more)
        self.output = output

    def text(self):
        return pathlib.Path(self.output).read_text(errors="replace")

    def kill(self, number=signal.SIGKILL):
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.send_signal(number)
        return self.popen.wait(30)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("tierd", timeout=10)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemon:
    """tierd in WORK/NAME, with its metrics at a port that stays the same from start to start."""

    def __init__(self, work, name, source, *options, ram="64 MiB", ssd=None, prefix=()):
        self.work = pathlib.Path(work) / name
        self.work.mkdir()
        self.name, self.port = name, free_port()
        self.socket = self.work / "run" / "tierd.sock"
        self.ssd = self.work / "ssd" if ssd is None else ssd
        trust = ["source.racy_window=0s", "ssd.min_free=1 MiB", "source.warm=off"]
        self.command = [*prefix, *os.environ.get("TIERD_UNDER", "").split(), BUILD / "tierd/tierd", "--config", "none", "--source", source, "--ram", ram, "--ssd", self.ssd, "--ssd-capacity", "1 GiB", "--socket", self.socket,
                        "--metrics", f"127.0.0.1:{self.port}"]
        for setting in [*trust, *options]:
            self.command += ["--set", setting]
        self.process = None
        self.start()

    def start(self):
        self.process = Process(self.command, self.work / "tierd.out")
        if not eventually(lambda: "tierd ready" in self.process.text() or self.process.popen.poll() is not None, 20, 0.02) or self.process.popen.poll() is not None:
            raise RuntimeError(self.process.text())
        return self

    def stop(self, number=signal.SIGTERM):
        return self.process.kill(number)

    @property
    def pid(self):
        return self.process.popen.pid

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as page:
            return page.read().decode()

    def control(self, method, target, body=None):
        connection = UnixConnection(self.work / "run" / "control.sock")
        text = None if body is None else json.dumps(body)
        connection.request(method, target, text, {} if text is None else {"Content-Type": "application/json"})
        answer = connection.getresponse().read()
        connection.close()
        return json.loads(answer)

    def prefetch(self, path):
        job = self.control("POST", "/v1/prefetch", {"paths": [str(path)]})["job"]
        return eventually(lambda: (lambda j: j if j["state"] not in ("running", "verifying") else None)(self.control("GET", f"/v1/jobs/{job}")), 30, 0.02)


class SlowSource:
    """A pfs_sim mount of a directory."""

    def __init__(self, work, name, *options):
        self.work = pathlib.Path(work) / name
        self.backing, self.mount, self.socket = self.work / "backing", self.work / "mount", self.work / "sock"
        self.backing.mkdir(parents=True)
        self.mount.mkdir()
        self.program = BUILD / "tests/pfs_sim/pfs_sim"
        self.process = Process([self.program, self.backing, self.mount, "--control", self.socket, *options], self.work / "out")
        if not eventually(lambda: os.path.ismount(self.mount), 10, 0.02):
            self.process.kill()
            raise OSError("pfs_sim: " + self.process.text())

    def ctl(self, *words):
        return subprocess.run([self.program, "ctl", self.socket, *words], capture_output=True, text=True, check=False).stdout

    def stop(self):
        self.ctl("fault", "clear")
        self.ctl("release")
        self.process.kill(signal.SIGTERM)


class Prometheus:
    """Debian's server with a configuration of the test's."""

    def __init__(self, work, config):
        self.port = free_port()
        command = ["prometheus", f"--config.file={config}", f"--web.listen-address=127.0.0.1:{self.port}", f"--storage.tsdb.path={work}/prometheus", "--log.level=warn"]
        self.process = Process(command, pathlib.Path(work) / "prometheus.out", env={**os.environ, "GOMAXPROCS": "1"})

    def api(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None  # on its way up
            raise AssertionError(f"{query}: {error.read().decode()}") from None
        except (urllib.error.URLError, ConnectionError):
            return None

    def ready(self):
        return eventually(lambda: self.api("status/buildinfo") is not None, 20)

    def query(self, expression):
        data = self.api("query", query=expression)
        return [] if data is None else data["result"]

    def stop(self):
        return self.process.kill(signal.SIGTERM)


class TextfileExporter:
    """What a node exporter gives of its textfiles: their samples, and how old they are."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(page):  # pylint: disable=invalid-name,no-self-argument
                body = self.page().encode()
                page.send_response(200)
                page.send_header("Content-Type", "text/plain; version=0.0.4")
                page.send_header("Content-Length", str(len(body)))
                page.end_headers()
                page.wfile.write(body)

            def log_message(page, *_):  # pylint: disable=no-self-argument
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def page(self):
        text = ""
        for path in sorted(self.folder.glob("*.prom")):
            try:
                text += path.read_text() + f'node_textfile_mtime_seconds{{file="{path}"}} {path.stat().st_mtime}\n'
            except OSError:
                pass  # it has gone meanwhile
        return text

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
