"""The package under `tierctl run`: what it reads through libtier is counted too, beside the preload library and without it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import rig

FILES = 64
SCRIPT = """
import sys, tierd
from tierd.torch import FileDataset
from torch.utils.data import DataLoader
paths = [f"{sys.argv[1]}/{i:03}" for i in range(64)]
for epoch in range(3):
    sizes = [size for batch in DataLoader(FileDataset(paths, len), batch_size=8, shuffle=True, num_workers=2) for size in batch.tolist()]
    assert sorted(sizes) == [5000 + i for i in range(64)]
"""


class RunTest(unittest.TestCase):
    def setUp(self):
        self.tierctl = pathlib.Path(os.environ["TIERD_BUILD"]) / "tierctl" / "tierctl"
        directory = tempfile.TemporaryDirectory(prefix="tierd-py-")
        self.addCleanup(directory.cleanup)
        self.base = pathlib.Path(directory.name)
        (self.base / "source").mkdir()
        for i in range(FILES):
            (self.base / "source" / f"{i:03}").write_bytes(rig.content(str(i), 5000 + i))

    def run_job(self, *options, script=SCRIPT, arguments=()):
        report = self.base / "report.json"
        environment = {**os.environ, "TMPDIR": str(self.base), "XDG_CONFIG_HOME": str(self.base / "config"), "XDG_RUNTIME_DIR": str(self.base / "none"), "OMP_NUM_THREADS": "1"}
        environment.pop("TIERD_SOCKET", None)
        subprocess.run([self.tierctl, "run", "--source", self.base / "source", "--ram", "64 MiB", "--report", report, *options, "--", sys.executable, "-c", script, self.base / "source", *arguments],
                       env=environment, timeout=120, check=True)
        return json.loads(report.read_text())

    def check(self, report):
        reads = {origin: report["reads"][origin]["count"] for origin in ("ram", "ssd", "source", "bypass")}
        self.assertEqual(sum(reads.values()), 3 * FILES, reads)
        self.assertEqual(reads["bypass"], 0)
        self.assertEqual([epoch["files"] for epoch in report["epochs"]], [FILES] * 3)
        self.assertEqual([epoch["reads"]["ram"] for epoch in report["epochs"][1:]], [FILES] * 2)
        size = sum(5000 + i for i in range(FILES))
        self.assertEqual((report["source_read_bytes"], report["source_saved_bytes"]), (size, 2 * size))

    def test_without_the_preload_library(self):
        report = self.run_job("--no-preload")
        self.check(report)
        self.assertEqual(report["processes"], 0)

    def test_beside_the_preload_library(self):
        report = self.run_job()
        self.check(report)
        self.assertGreaterEqual(report["processes"], 2 * 3, report)  # each worker of each epoch: only the preload library says so

    def test_what_lies_below_no_source(self):
        (self.base / "beside").write_bytes(bytes(1 << 20))
        script = "import sys, tierd\ntierd.read(f'{sys.argv[1]}/000')\nfor _ in range(4): tierd.read(sys.argv[2])"
        report = self.run_job("--no-preload", script=script, arguments=[self.base / "beside"])
        self.assertEqual((report["reads"]["bypass"], report["fallback"]), ({"count": 4, "bytes": 4 << 20}, {}))
        self.assertIn("4 reads lie below no source", report["advice"])


if __name__ == "__main__":
    unittest.main()
