"""What looking costs: `tierctl top` and a scrape, once a second each, on a node with sixteen clients (two jobs of eight), take no more than one per cent of a core: daemon and looker together,
by the processor time that the kernel has counted, so that a busy machine changes little."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from rig import BUILD, Daemon, Process, die_with_parent, eventually  # noqa: E402

CLIENTS = 16
SECONDS = 8
MOST = 0.01  # of a core
READER = "import sys, time, tierd\nclient = tierd.Client(sys.argv[1])\nwhile True:\n  for path in sys.argv[2:]: client.read(path)\n  time.sleep(0.5)\n"


def cpu_seconds(pid):
    """Processor time of all threads of a process."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            pass
    return total * 1e-9


class Cost(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-cost-"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        data = self.work / "data"
        data.mkdir()
        for i in range(20):
            (data / f"f{i}").write_bytes(os.urandom(10_000))
        self.daemon = Daemon(self.work, "daemon", data)
        self.addCleanup(self.daemon.stop)
        for _ in range(CLIENTS):
            reader = subprocess.Popen([sys.executable, "-c", READER, str(self.daemon.socket), *map(str, data.iterdir())], preexec_fn=die_with_parent)
            self.addCleanup(lambda reader=reader: (reader.kill(), reader.wait()))
        self.assertTrue(eventually(lambda: f"tierd_sessions {CLIENTS}\n" in self.daemon.metrics(), 30))
        time.sleep(2)

    def measure(self, start, look):
        """Cores that the daemon takes more while somebody looks, and those of the looker, whom start() gives (None: this test)."""
        begin, clock = cpu_seconds(self.daemon.pid), time.monotonic()
        time.sleep(SECONDS / 2)
        alone = (cpu_seconds(self.daemon.pid) - begin) / (time.monotonic() - clock)
        looker = start()

        def both():
            return cpu_seconds(self.daemon.pid) + (cpu_seconds(looker) if looker else 0)

        begin, clock = both(), time.monotonic()
        for _ in range(SECONDS):
            look()
        return (both() - begin) / (time.monotonic() - clock) - alone

    def test_a_scrape_a_second(self):
        cores = self.measure(lambda: None, lambda: (self.daemon.metrics(), time.sleep(1)))
        print(f"a scrape a second: {100 * cores:.2f} % of a core")
        self.assertLessEqual(cores, MOST)

    def test_top(self):
        lookers = []

        def start():
            lookers.append(Process([BUILD / "tierctl/tierctl", "--socket", self.daemon.socket, "top", "-b", "-d", "1"], self.work / "top.out"))
            self.addCleanup(lookers[0].kill)
            time.sleep(0.5)  # what it takes to start is not what it costs
            return lookers[0].popen.pid

        cores = self.measure(start, lambda: time.sleep(1))
        print(f"tierctl top: {100 * cores:.2f} % of a core")
        self.assertLessEqual(cores, MOST)
        self.assertIn("16 clients", lookers[0].text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
