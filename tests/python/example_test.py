"""client_lib/examples/python: the same losses to the last bit, bare, through tierd.torch, and under `tierctl run` where it is built. Under that also torchvision's own
ImageFolder: the same samples in the same order, with not a line changed."""

import importlib.util
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
# Samples as torchvision lists them, then what a shuffling DataLoader with workers gives of two epochs: index, label, pixels.
IMAGE_FOLDER = """
import hashlib, sys, torch, torchvision
folder = torchvision.datasets.ImageFolder(sys.argv[1], torchvision.transforms.PILToTensor())
print(folder.classes, folder.samples)
class Numbered(torch.utils.data.Dataset):
    def __len__(self): return len(folder)
    def __getitem__(self, index):
        image, label = folder[index]
        return index, label, hashlib.sha256(image.numpy().tobytes()).hexdigest()
torch.manual_seed(5)
for batch in (batch for _ in range(2) for batch in torch.utils.data.DataLoader(Numbered(), 32, shuffle=True, num_workers=2)): print(batch)
"""


class ExampleTest(rig.DaemonTest):
    @classmethod
    def fill(cls):
        if not pathlib.Path("/usr/share/datasets/fashion-mnist").is_dir():
            raise unittest.SkipTest("dataset-fashion-mnist is not installed")
        cls.run_program("fashion_files.py", str(cls.rig.source / "images"), "--images", str(IMAGES))

    @classmethod
    def run_program(cls, name, *arguments, **more):
        return cls.run_python(str(EXAMPLES / name), *arguments, **more)

    @classmethod
    def run_python(cls, *arguments, before=(), socket=None):
        environment = {**os.environ, "TIERD_SOCKET": socket or str(cls.rig.base / "none.sock"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*before, sys.executable, *arguments], capture_output=True, text=True, timeout=120, env=environment)
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

    def tierctl_run(self, report):
        tierctl = pathlib.Path(os.environ["TIERD_BUILD"]) / "tierctl" / "tierctl"
        if not tierctl.is_file() or "\n  run " not in subprocess.run([tierctl, "--help"], capture_output=True, text=True, timeout=10).stdout:
            self.skipTest("tierctl run is not built")
        return (str(tierctl), "run", "--source", str(self.rig.source), "--ram", "128 MiB", "--report", str(report), "--")

    def test_under_tierctl_run(self):
        report = self.rig.base / "run.json"
        before = self.tierctl_run(report)
        bare = self.losses()
        self.assertEqual(self.losses(before=before), bare)
        self.check_served(json.loads(report.read_text()), opens=2 * IMAGES)

    def test_torchvision_under_tierctl_run(self):
        if importlib.util.find_spec("torchvision") is None:
            self.skipTest("torchvision is not installed (Debian: python3-torchvision)")
        report = self.rig.base / "torchvision.json"
        before = self.tierctl_run(report)
        program = ("-c", IMAGE_FOLDER, str(self.rig.source / "images"))
        bare = self.run_python(*program)
        self.assertEqual(bare.count(program[-1] + "/"), IMAGES, "all are listed")
        self.assertEqual(self.run_python(*program, before=before).splitlines(), bare.splitlines())
        self.check_served(json.loads(report.read_text()), opens=2 * IMAGES)

    def check_served(self, report, opens):
        """Where there is no cache, or no preload library, the command runs bare, and its losses are right as well."""
        reads = {origin: each["count"] for origin, each in report["reads"].items()}
        self.assertEqual(report["opened"], opens, report)  # counted by the preload library only
        self.assertGreaterEqual(reads["ram"] + reads["source"], opens, reads)
        self.assertLess(reads["bypass"], IMAGES // 100, report["fallback"])


if __name__ == "__main__":
    unittest.main(verbosity=2)  # names what is skipped
