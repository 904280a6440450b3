"""A Prometheus server scrapes real daemons by the configuration we ship. Under load every expression of the dashboard and every recording rule has a value and nothing is
alerted; meanwhile each alert fires on a daemon that has the fault it is for. Windows and delays of the rules are divided by SCALE, so that "for: 30m" takes 45 s;
alert_rules_test.yml checks the times as they are."""

import ctypes
import errno
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from rig import BUILD, ROOT, Daemon, Prometheus, SlowSource, TextfileExporter, die_with_parent, eventually  # noqa: E402

import tierd  # noqa: E402

SCALE = 40
SCRAPE = "1500ms"  # not scaled: a daemon whose loop hangs takes a second to say so
CONFIG = ROOT / "config/prometheus"
MAX_SERIES = 320 - 15  # of a daemon with one source: with two there are at most 320
# Expressions that have a value only where a plan was told: of that daemon, with what it must be.
OF_A_PLAN = {
    'sum by (job, instance, slot) (rate(tierd_prefetch_lead_seconds_sum{job=~".*",instance=~".*",slot=~".*"}[6s])) / '
    '(sum by (job, instance, slot) (rate(tierd_prefetch_lead_seconds_count{job=~".*",instance=~".*",slot=~".*"}[6s])) > 0)': lambda found: [0 < value < 60 for _, value in found] == [True],
    'tierd_plans{job=~".*",instance=~".*",slot=~".*"} > 0': lambda found: [(metric["state"], value) for metric, value in found] == [("followed", 1)],
}
# Alerts whose fault needs what is not everywhere: with the reason they are only checked by alert_rules_test.yml.
NOT_HERE: dict[str, str] = {}


def scaled(text):
    """Durations of PromQL and of rule files, SCALE times shorter."""
    milliseconds = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    return re.sub(r"(\[|for: |evaluation_interval: )(\d+)([smhd])\b", lambda m: f"{m[1]}{int(m[2]) * milliseconds[m[3]] // SCALE}ms", text)


def names(kind, file):
    return re.findall(rf"^ *- {kind}: (\S+)", (CONFIG / file).read_text(), re.M)


def dashboard_expressions():
    panels = json.loads((ROOT / "config/grafana/tierd.json").read_text())["panels"]
    chosen = {"$__rate_interval": "6s", "$__range": "30s", "$job": ".*", "$instance": ".*", "$slot": ".*"}
    return [re.sub("|".join(map(re.escape, chosen)), lambda found: chosen[found[0]], t["expr"]) for p in panels for t in p.get("targets", [])]


def make_files(folder, count, size, at=None):
    """Files in a folder; their paths below `at`."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        (folder / f"f{i}").write_bytes(os.urandom(size))
    return [str((at or folder) / f"f{i}") for i in range(count)]


class Load:
    """Threads that call work(client, draws) until stopped. What the source says is no matter here: the test is about what is counted."""

    def __init__(self, daemon, work, threads=1):
        self.ended, self.work = threading.Event(), work
        self.client = tierd.Client(daemon.socket)
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self, seed):
        draws = random.Random(seed)
        while not self.ended.is_set():
            try:
                self.work(self.client, draws)
            except OSError:
                pass

    def stop(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(20)


def reading(paths, pause):
    def work(client, draws):
        client.read(draws.choice(paths))
        time.sleep(pause)
    return work


def io_uring_is_refused():
    """By a filter or a sysctl: an invalid argument is seen only where the call is allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(425, 0, None)  # io_uring_setup
    return ctypes.get_errno() in (errno.EPERM, errno.ENOSYS)


@unittest.skipUnless(shutil.which("prometheus"), "no prometheus server here")
class Monitoring(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-monitoring-"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.daemons, self.expected = [], {}

    # ---- what it is made of ----------------------------------------------------------------------------------------------------

    def daemon(self, name, source, *options, **more):
        daemon = Daemon(self.work, name, source, *options, **more)
        self.addCleanup(daemon.stop, signal.SIGKILL)
        self.daemons.append(daemon)
        return daemon

    def source(self, name, *options):
        try:
            source = SlowSource(self.work, name, *options)
        except OSError as why:
            self.skipTest(str(why))
        self.addCleanup(source.stop)
        return source

    def load(self, *arguments, **more):
        load = Load(*arguments, **more)
        self.addCleanup(load.stop)
        return load

    def scrape(self):
        """Starts the server with what we ship, but for the targets and the scale of time."""
        config = scaled((CONFIG / "prometheus.yml").read_text())
        targets = ", ".join(f'"127.0.0.1:{d.port}"' for d in self.daemons)
        config = re.sub(r"targets: \[.*\]", f"targets: [{targets}]", config)
        config += f'  - job_name: node\n    static_configs:\n      - targets: ["127.0.0.1:{self.exporter.port}"]\n'
        (self.work / "prometheus.yml").write_text(re.sub(r"scrape_interval: \S+", f"scrape_interval: {SCRAPE}", config))
        for rules in ("recording_rules.yml", "alert_rules.yml"):
            (self.work / rules).write_text(scaled((CONFIG / rules).read_text()))
        self.prometheus = Prometheus(self.work, self.work / "prometheus.yml")
        self.addCleanup(self.prometheus.stop)
        self.assertTrue(self.prometheus.ready(), self.prometheus.process.text())

    def firing(self, daemon, alert=".+"):
        found = self.prometheus.query(f'ALERTS{{alertname=~"{alert}",alertstate="firing",instance="127.0.0.1:{daemon.port}"}}')
        return {sample["metric"]["alertname"] for sample in found}

    def expect(self, daemon, *alerts):
        for alert in alerts:
            self.expected[alert] = daemon

    def await_alerts(self, *alerts, seconds=60):
        waiting = set(alerts)

        def all_fired():
            waiting.difference_update([alert for alert in waiting if self.firing(self.expected[alert], alert)])
            return not waiting

        eventually(all_fired, seconds, 0.3)
        pages = ""
        for daemon in {self.expected[alert] for alert in waiting}:
            if daemon.process.popen.poll() is None:
                pages += f"\n{daemon.name}:\n" + "\n".join(line for line in daemon.metrics().splitlines() if not re.search(r" 0$|_bucket|^#", line))
        self.assertEqual(waiting, set(), f"not fired{pages}")

    # ---- the faults ------------------------------------------------------------------------------------------------------------

    def fault_of_the_source(self):
        """A slow one, one that fails, one that hangs."""
        slow = self.source("slow-source")
        slow_daemon = self.daemon("slow", slow.mount)
        paths = make_files(slow.backing, 600, 4096, slow.mount)
        failing = self.source("failing-source")
        failing_daemon = self.daemon("failing", failing.mount)
        unreadable = make_files(failing.backing, 50, 4096, failing.mount)
        hung = self.source("hung-source")
        hung_daemon = self.daemon("hung", hung.mount)
        make_files(hung.backing, 20, 4096)

        def inject():
            slow.ctl("latency", "read", "1500000")
            self.load(slow_daemon, lambda client, draws: client.read(paths.pop()), threads=4)
            failing.ctl("fault", "add", "op=read", "errno=EIO")
            self.load(failing_daemon, reading(unreadable, 0.02))
            hung.ctl("fault", "add", "op=read", "errno=hang")
            hung_daemon.control("POST", "/v1/prefetch", {"paths": [str(hung.mount)]})  # no reader: it would hang as well

        self.expect(slow_daemon, "TierdSourceSlow", "TierdFallbacks")
        self.expect(failing_daemon, "TierdSourceErrors")
        self.expect(hung_daemon, "TierdSourceHung")
        return inject

    def fault_of_the_disk(self):
        """The cache directory goes; the tier gets smaller; no io_uring."""
        source = self.work / "disk-data"
        files = make_files(source, 40, 100_000)
        gone = self.daemon("gone", source)
        small = self.daemon("small", source, "ssd.engine=threads")
        gone.control("POST", "/v1/prefetch", {"paths": [str(source)], "tier": "ssd"})

        def inject():
            shutil.rmtree(gone.ssd)
            self.load(gone, reading(files, 0.05))
            # Not by ssd.min_free: what is free changes with all else that runs on this machine. A change is refused when others have taken it meanwhile, and the tier grows again when they give it back.
            answer = small.control("PATCH", "/v1/config", {"key": "ssd.capacity", "value": "256 MiB"})
            self.assertIn("applied", answer)

        self.expect(gone, "TierdTierDegraded")
        self.expect(small, "TierdTierShrunk", "TierdWithoutIoUring")
        return inject

    def fault_of_a_full_cache(self):
        source = self.work / "full-data"
        files = make_files(source, 300, 200_000)
        daemon = self.daemon("full", source, ram="16 MiB", ssd="off")
        self.expect(daemon, "TierdCacheTooSmall")
        return lambda: self.load(daemon, reading(files, 0.01))

    def fault_of_records(self):
        """Bits of what is on the SSD, then one start after the other."""
        source = self.work / "flipped-data"
        files = make_files(source, 60, 50_000)
        daemon = self.daemon("flipped", source)
        daemon.prefetch(source)

        def inject():
            daemon.stop()
            for region in pathlib.Path(daemon.ssd).glob("*region*"):
                with open(region, "r+b") as file:
                    for at in range(2000, min(4_000_000, region.stat().st_size), 4096 * 3):
                        file.seek(at)
                        byte = file.read(1)
                        file.seek(at)
                        file.write(bytes([byte[0] ^ 4]))
            daemon.start()
            time.sleep(2)  # a page with no failures, or there is no increase
            client = tierd.Client(daemon.socket)
            for path in files:
                client.read(path)
            self.await_alerts("TierdIntegrityFailures")
            for _ in range(2):
                daemon.stop(signal.SIGKILL)
                daemon.start()
                time.sleep(3)
            self.await_alerts("TierdRestarting")
            daemon.stop(signal.SIGKILL)

        self.expect(daemon, "TierdIntegrityFailures", "TierdRestarting", "TierdDown")
        return inject

    def fault_of_the_loop(self):
        """A daemon that hardly gets the processor, with readers that go on."""
        source = self.work / "starved-data"
        files = make_files(source, 300, 100_000)
        daemon = self.daemon("starved", source, "source.policy=lru", ram="16 MiB", ssd="off")

        def starve(ended):
            while not ended.is_set():
                os.kill(daemon.pid, signal.SIGSTOP)
                time.sleep(0.1)  # long enough for more accesses than a ring holds, also where the reader gets a tenth of a processor
                os.kill(daemon.pid, signal.SIGCONT)
                time.sleep(0.002)  # a few turns: most of these are short, whatever becomes of one of them

        def inject():
            self.load(daemon, reading(files, 0), threads=2)
            hits = "import sys, tierd\nclient = tierd.Client(sys.argv[1])\nwhile True:\n  for i in range(1000): client.view(sys.argv[2])\n"
            reader = subprocess.Popen([sys.executable, "-c", hits, str(daemon.socket), files[0]], preexec_fn=die_with_parent)
            self.addCleanup(lambda: (reader.kill(), reader.wait()))
            ended = threading.Event()
            thread = threading.Thread(target=starve, args=(ended,), daemon=True)
            self.addCleanup(lambda: (ended.set(), thread.join()))
            thread.start()

        self.expect(daemon, "TierdLoopSlow", "TierdAccessesLost")
        return inject

    def fault_of_clients(self):
        """One that is none, one that keeps its views; then a loop that does not turn."""
        source = self.work / "clients-data"
        files = make_files(source, 60, 500_000)
        daemon = self.daemon("clients", source, "ram.pin_cap=60 MiB", ssd="off")
        daemon.prefetch(source)

        def inject():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
                stranger.connect(str(daemon.socket))
                stranger.send(b"hello?")
            holder = tierd.Client(daemon.socket)
            views = [holder.view(path) for path in files]
            daemon.control("POST", "/v1/evict", {"paths": [str(source)]})
            self.await_alerts("TierdClientsRefused", "TierdViewsHeld")
            del views
            if self.stop_loop(daemon):
                self.await_alerts("TierdHung")

        self.expect(daemon, "TierdClientsRefused", "TierdViewsHeld", "TierdHung")
        return inject

    def stop_loop(self, daemon):
        """Stops the main thread alone; the exporter's go on. Only a tracer can."""
        libc = ctypes.CDLL(None, use_errno=True)
        attach, detach = 16, 17
        if libc.ptrace(attach, daemon.pid, None, None) != 0:
            NOT_HERE["TierdHung"] = "may not trace: " + os.strerror(ctypes.get_errno())
            return False
        os.waitpid(daemon.pid, 0x40000000)  # __WALL
        self.addCleanup(libc.ptrace, detach, daemon.pid, None, None)
        return True

    def fault_of_a_device(self):
        """A disk that does not answer: an image on a source that hangs, behind a loop device in a mount namespace of the daemon's."""
        if os.geteuid() != 0 or os.environ.get("TIERD_RESTRICTED"):
            NOT_HERE["TierdSsdHung"] = "may not mount a disk image"
            return lambda: None
        below = self.source("device", "--direct-io")
        disk, data = self.work / "disk", self.work / "device-data"
        disk.mkdir()
        files = make_files(data, 250, 100_000)
        image = below.mount / "image"
        made = subprocess.run(f"truncate -s 96M {image} && PATH=$PATH:/sbin:/usr/sbin mkfs.ext4 -q -F {image}", shell=True, capture_output=True, text=True, check=False)
        try:
            self.assertEqual(made.returncode, 0, made.stderr)
            script = f'PATH=$PATH:/sbin:/usr/sbin; mount -o loop {image} {disk} && exec "$@"'
            daemon = self.daemon("device-daemon", data, ram="16 MiB", ssd=disk / "cache", prefix=["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh"])
        except (RuntimeError, AssertionError) as why:
            NOT_HERE["TierdSsdHung"] = f"no loop mount: {why}"
            return lambda: None
        self.addCleanup(below.ctl, "release")
        self.addCleanup(below.ctl, "fault", "clear")
        daemon.control("POST", "/v1/prefetch", {"paths": [str(data)], "tier": "ssd"})
        self.assertTrue(eventually(lambda: daemon.control("GET", "/v1/status")["tiers"]["ssd"]["objects"] >= 250, 20))

        def inject():
            below.ctl("fault", "add", "op=read", "errno=hang")
            self.load(daemon, reading(files, 0.02))

        self.expect(daemon, "TierdSsdHung")
        return inject

    def planned(self):
        """A daemon that was told the order in which its reader reads, again and again, more than its memory holds."""
        source = self.work / "planned-data"
        files = make_files(source, 400, 60_000)
        (self.work / "order").write_text("\n".join(files) + "\n")
        daemon = self.daemon("planned", source, ram="16 MiB", ssd="off")

        def work(client, _draws):
            for path in files:
                client.read(path)
                time.sleep(0.005)

        def start():
            told = subprocess.run([BUILD / "tierctl/tierctl", "--socket", daemon.socket, "plan", "sequential", "--keep", self.work / "order"], capture_output=True, text=True, check=False)
            self.assertEqual(told.returncode, 0, told.stderr)
            self.load(daemon, work)

        return daemon, start

    # ---- the test --------------------------------------------------------------------------------------------------------------

    def textfiles(self, **slots):
        """A node exporter with a textfile per slot, written as systemd/tierd-textfile@.service does it, and two files that nobody writes."""
        self.exporter = TextfileExporter(self.work / "textfiles")
        self.addCleanup(self.exporter.stop)

        def write(ended):
            while True:
                for slot, daemon in slots.items():
                    page = self.work / f"{slot}.page"
                    subprocess.run([BUILD / "tierctl/tierctl", "--socket", daemon.socket, "metrics", "--output", page], check=False)
                    subprocess.run([BUILD / "tierctl/tierctl", "metrics", "--from", page, "--label", f"slot={slot}", "--output", self.exporter.folder / f"tierd-{slot}.prom"], check=False)
                if ended.wait(1):
                    return

        ended = threading.Event()
        thread = threading.Thread(target=write, args=(ended,), daemon=True)
        self.addCleanup(lambda: (ended.set(), thread.join()))
        thread.start()
        first = self.exporter.folder / f"tierd-{next(iter(slots))}.prom"
        self.assertTrue(eventually(first.exists, 20))
        page = first.read_text()
        for slot in ("gone", "old"):
            (self.exporter.folder / f"tierd-{slot}.prom").write_text(re.sub('slot="[a-z]+"', f'slot="{slot}"', page))
        os.utime(self.exporter.folder / "tierd-old.prom", (time.time() - 1000,) * 2)

    def check_textfiles(self):
        """The same by the other way: every expression has a value of the slot, and daemons of one node are not added up."""
        of_exporter = lambda metric: metric.get("instance") == f"127.0.0.1:{self.exporter.port}"  # noqa: E731
        empty = []
        for expression in dashboard_expressions() + names("record", "recording_rules.yml"):
            found = [s["metric"] for s in self.prometheus.query(expression)]
            together = expression.startswith(("sum (", "clamp_min(", "count ("))
            if expression not in OF_A_PLAN and not together and not any(of_exporter(m) and m.get("slot") == "good" for m in found):
                empty.append(expression)
            self.assertFalse(any(of_exporter(m) and "slot" not in m for m in found), f"slots are added up: {expression}")
        self.assertEqual(empty, [], "no value by a textfile")
        reads = self.prometheus.query("sum by (slot) (tierd:reads:rate5m{job='node'})")
        self.assertLessEqual({"good", "planned"}, {s["metric"].get("slot") for s in reads})
        (self.exporter.folder / "tierd-gone.prom").unlink()
        fired = lambda alert, more: self.prometheus.query(f'ALERTS{{alertname="{alert}",alertstate="firing",job="node",{more}}}')  # noqa: E731
        self.assertTrue(eventually(lambda: fired("TierdDown", 'slot="gone"'), 60, 0.5), "a textfile that has gone")
        self.assertTrue(eventually(lambda: fired("TierdHung", 'file=~".*tierd-old.prom"'), 60, 0.5), "a textfile that nobody renews")
        for alert in ("TierdDown", "TierdHung"):
            self.assertEqual([s["metric"] for s in fired(alert, 'slot!="gone",file!~".*tierd-old.prom"')], [])

    def healthy(self):
        """A daemon with everything going on that goes on in a good life."""
        source = self.work / "data"
        files = make_files(source, 400, 60_000)
        (self.work / "data" / "changing").write_bytes(b"x" * 5000)
        # What is measured at the start of a busy machine may choose threads.
        engine = [] if io_uring_is_refused() else ["ssd.engine=io_uring"]
        daemon = self.daemon("good", source, "source.policy=lru", *engine, ram="16 MiB")

        def work(client, draws):
            for path in draws.sample(files, 10):
                client.read(path)
            client.read(str(source / ".." / "data" / "f1"))  # a name that the library does not resolve: past the cache, and counted
            if draws.random() < 0.2:
                victims = draws.sample(files, 3)
                client.evict(victims)
                client.prefetch(victims)
            time.sleep(0.02)

        return daemon, lambda: self.load(daemon, work)

    def test_every_expression_has_a_value_and_every_alert_fires(self):
        good, start_good = self.healthy()
        planned, start_planned = self.planned()
        faults = [self.fault_of_the_source(), self.fault_of_the_disk(), self.fault_of_a_full_cache(), self.fault_of_the_loop(), self.fault_of_a_device()]
        patient = [self.fault_of_records(), self.fault_of_clients()]  # take their time: a thread each
        self.textfiles(good=good, planned=planned)
        self.scrape()
        start_good()
        start_planned()
        seen = lambda: self.prometheus.query('count(count_over_time(up{job="tierd"}[1m]) >= 3)')  # noqa: E731
        self.assertTrue(eventually(lambda: seen() and int(seen()[0]["value"][1]) == len(self.daemons), 30), "what counts from nought must have been seen at nought")
        for inject in faults:
            inject()
        failures = []

        def run(inject):
            try:
                inject()
            except BaseException as error:  # pylint: disable=broad-except
                failures.append(error)

        # Who traces is the main thread, so the clients' fault runs here.
        thread = threading.Thread(target=run, args=(patient[0],))
        thread.start()
        patient[1]()
        thread.join()
        if failures:
            raise failures[0]
        self.check_expressions(good, planned)
        self.check_textfiles()
        wanted = set(names("alert", "alert_rules.yml")) - set(NOT_HERE)
        self.assertEqual(wanted - set(self.expected), set(), "alerts without a fault")
        self.await_alerts(*wanted - {"TierdIntegrityFailures", "TierdRestarting", "TierdClientsRefused", "TierdViewsHeld", "TierdHung"})
        # But for what a machine without CPU to spare does to any daemon: that alert is right, then.
        # And but for what the place refuses to all daemons.
        refused = {"TierdWithoutIoUring"} if io_uring_is_refused() else set()
        self.assertEqual(self.firing(good) - {"TierdLoopSlow"} - refused, set(), "a healthy daemon under load")
        for alert, reason in NOT_HERE.items():
            print(f"{alert} has not been fired here: {reason}")

    def values(self, expression, daemon):
        """(labels, value) of its samples of this daemon that are numbers."""
        found = [(s["metric"], float(s["value"][1])) for s in self.prometheus.query(expression)]
        return [(metric, value) for metric, value in found if metric.get("instance", "all") in (f"127.0.0.1:{daemon.port}", "all") and value == value]

    def check_expressions(self, good, planned):
        expressions = dashboard_expressions() + names("record", "recording_rules.yml")
        self.assertEqual(set(OF_A_PLAN) - set(expressions), set())
        for expression, right in OF_A_PLAN.items():
            self.assertTrue(eventually(lambda: right(self.values(expression, planned)), 20, 0.5), f"{expression}: {self.values(expression, planned)}")  # pylint: disable=cell-var-from-loop
        instance = f"127.0.0.1:{good.port}"
        empty = [expression for expression in expressions if expression not in OF_A_PLAN and not self.values(expression, good)]
        self.assertEqual(empty, [], "no value under load")
        series = float(self.prometheus.query(f'count({{job="tierd",instance="{instance}",__name__=~"tierd_.+"}})')[0]["value"][1])
        self.assertLessEqual(series, MAX_SERIES)
        print(f"{series:.0f} series of a daemon with one source")


if __name__ == "__main__":
    unittest.main(verbosity=2)
