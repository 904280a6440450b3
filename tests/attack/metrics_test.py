"""/metrics on loopback, where every user of the node may come: it costs the daemon little however fast
it is asked, and nobody keeps Prometheus out."""

import http.client
import os
import pathlib
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "monitoring"))
from rig import Daemon  # noqa: E402

SECONDS = 2
PAGES_A_SECOND, GIVEN_AT_ONCE, CONNECTIONS = 4, 16, 16


class Attack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-attack-"))
        cls.addClassCleanup(shutil.rmtree, work, ignore_errors=True)
        (work / "data").mkdir()
        cls.daemon = Daemon(work, "daemon", work / "data", ssd="off")
        cls.addClassCleanup(cls.daemon.stop)

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.daemon.port), 10)
        self.addCleanup(connection.close)
        return connection

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.daemon.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def scrape_until(self, end, keep, pages):
        connection = None
        while time.monotonic() < end:
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=10)
                connection.request("GET", "/metrics")
                answer = connection.getresponse()
                page = answer.read()
                if answer.status == 200:
                    pages.append(page)
            except (OSError, http.client.HTTPException):
                connection = None
                continue
            if not keep:
                connection.close()
                connection = None

    def test_a_page_is_built_four_times_a_second_at_most(self):
        for keep in (True, False):
            pages, begin, before = [], time.monotonic(), self.processor_seconds()
            threads = [threading.Thread(target=self.scrape_until, args=(begin + SECONDS, keep, pages)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took = time.monotonic() - begin
            built = int(took * PAGES_A_SECOND) + 2
            lag = {re.search(rb"^tierd_loop_lag_seconds_count (\S+)$", page, re.M)[1] for page in pages}  # the turns of the loop so far
            self.assertLessEqual(len(lag), built, f"keep={keep}")
            self.assertLessEqual(len(pages), built * (GIVEN_AT_ONCE + CONNECTIONS), f"keep={keep}")
            self.assertGreater(len(pages), PAGES_A_SECOND)
            self.assertLess(self.processor_seconds() - before, took / 4, f"keep={keep}")

    def test_incomplete_requests_keep_nobody_out(self):
        held = [self.connect() for _ in range(CONNECTIONS)]
        for connection in held:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        for _ in range(3):
            self.assertIn("tierd_build_info", self.daemon.metrics())

    def test_idle_connections_keep_nobody_out(self):
        held = [self.connect() for _ in range(CONNECTIONS)]
        for connection in held:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n")
        for connection in held:
            self.assertTrue(connection.recv(1 << 20).startswith(b"HTTP/1.1 200"))
        for _ in range(3):
            self.assertIn("tierd_build_info", self.daemon.metrics())

    def test_an_endless_request_is_ended(self):
        """However slowly it comes: the five seconds are of the whole request."""
        connection = self.connect()
        connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        begin = time.monotonic()
        with self.assertRaises(OSError):
            while time.monotonic() - begin < 60:
                connection.sendall(b"X: y\r\n")
                time.sleep(0.1)
        self.assertGreaterEqual(time.monotonic() - begin, 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
