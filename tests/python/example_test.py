"""client_lib/examples/python: the same losses to the last bit, bare, through tierd.torch, and under `tierctl run` where it is built."""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

import rig

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "client_lib" / "examples" / "python"
IMAGES = 600


class ExampleTest(rig.DaemonTest):
    @classmethod
    def fill(cls):
        if not pathlib.Path("/usr/share/datasets/fashion-mnist").is_dir():
            raise unittest.SkipTest("dataset-fashion-mnist is not installed")
        cls.run_program("fashion_files.py", str(cls.rig.source / "images"), "--images", str(IMAGES))

    @classmethod
    def run_program(cls, name, *arguments, before=(), socket=None):
        environment = {**os.environ, "TIERD_SOCKET": socket or str(cls.rig.base / "none.sock"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*before, sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def losses(self, *arguments, **more):
        found = re.findall(r"^epoch (\d+) loss (\S+) ", self.run_program("train.py", str(self.rig.source / "images"), "--epochs", "2", *arguments, **more), re.M)
        self.assertEqual([epoch for epoch, _ in found], ["0", "1"])
        return found

    def test_same_losses_to_the_last_bit(self):
        bare = self.losses()
        self.assertEqual(self.losses("--tierd", socket=self.rig.socket), bare)
        ram = self.rig.status()["tiers"]["ram"]
        self.assertGreaterEqual(ram["objects"], IMAGES)
        self.assertEqual(self.losses("--tierd", socket=self.rig.socket), bare)  # warm
        self.assertEqual(self.losses("--tierd", "--workers", "0"), bare)  # no daemon
        self.assertNotEqual(self.losses("--seed", "1"), bare)  # the comparison sees something

    def test_under_tierctl_run(self):
        tierctl = pathlib.Path(os.environ["TIERD_BUILD"]) / "tierctl" / "tierctl"
        if not tierctl.is_file() or "\n  run " not in subprocess.run([tierctl, "--help"], capture_output=True, text=True, timeout=10).stdout:
            self.skipTest("tierctl run is not built")
        report = self.rig.base / "run.json"
        bare = self.losses()
        self.assertEqual(self.losses(before=(str(tierctl), "run", "--source", str(self.rig.source), "--ram", "128 MiB", "--report", str(report), "--")), bare)
        self.check_served(json.loads(report.read_text()), epochs=2)

    def check_served(self, report, epochs):
        """Where there is no cache, or no preload library, the command runs bare, and its losses are right as well."""
        reads = {origin: each["count"] for origin, each in report["reads"].items()}
        self.assertEqual(report["opened"], epochs * IMAGES, report)  # counted by the preload library only
        self.assertGreaterEqual(reads["ram"] + reads["source"], epochs * IMAGES, reads)
        self.assertLess(reads["bypass"], IMAGES // 100, report["fallback"])


if __name__ == "__main__":
    unittest.main()
