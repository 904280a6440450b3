"""What decides what the daemon does, its configuration and its policies, against somebody who may
write to it, or to a directory on the way."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "monitoring"))
from rig import BUILD, Process, eventually  # noqa: E402

STRANGER = 12345
TIERD = BUILD / "tierd/tierd"
MODULE = BUILD / "tests/policies/bad/policy_sound.so"


class Attack(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-attack-"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.home = self.make(self.work / "home")
        self.policies = self.make(self.home / "policies")
        self.data = self.make(self.work / "data")
        self.file = self.home / "tierd.toml"
        self.write("info")
        self.module = self.policies / "sound.so"

    @staticmethod
    def make(path):
        path.mkdir()
        path.chmod(0o755)
        return path

    def write(self, level):
        self.file.write_text(f'[daemon]\nlog_level = "{level}"\nmetrics_address = "off"\n[policy]\ndirectory = "{self.policies}"\n[ssd]\ndirectory = "off"\n'
                             f'[ram]\ncapacity = "16 MiB"\n[[source]]\npath = "{self.data}"\n')
        self.file.chmod(0o644)

    def add_module(self):
        shutil.copy(MODULE, self.module)
        self.module.chmod(0o755)

    def check(self):
        return subprocess.run([TIERD, "--config", self.file, "--socket", self.work / "run/tierd.sock", "--check-config"], capture_output=True, text=True, check=False, timeout=60)

    def holes(self):
        """Each way in which somebody else may write what is read at `path`: a name, a way to open the hole, the remedy that is named."""
        for path, others in ((self.file, "configuration"), (self.home, "its directory")):
            yield f"{others} of a group", path, 0o020, f"{path} can be written by its group: chmod g-w {path}"
            yield f"{others} of everybody", path, 0o002, f"{path} can be written by everybody: chmod o-w {path}"

    def test_a_configuration_that_others_may_write_is_not_read(self):
        self.assertEqual(self.check().returncode, 0, self.check().stderr)
        for name, path, bits, remedy in self.holes():
            with self.subTest(name):
                mode = path.stat().st_mode & 0o777
                path.chmod(mode | bits)
                ran = self.check()
                path.chmod(mode)
                self.assertEqual(ran.returncode, 1, ran.stderr)
                self.assertIn(remedy, ran.stderr)
                self.assertIn(f"configuration {self.file}", ran.stderr)
        self.assertEqual(self.check().returncode, 0)

    @unittest.skipUnless(os.geteuid() == 0, "only root gives files away")
    def test_a_configuration_in_a_strangers_directory_is_not_read(self):
        os.chown(self.home, STRANGER, STRANGER)
        self.assertIn(f"{self.home} belongs to uid {STRANGER}", self.check().stderr)

    def test_a_link_is_as_good_as_what_it_names(self):
        link = self.work / "link.toml"
        link.symlink_to(self.file)
        self.home.chmod(0o777)
        real, self.file = self.file, link
        ran = self.check()
        self.assertEqual(ran.returncode, 1)
        self.assertIn(f"chmod go-w {real.parent}", ran.stderr)

    def test_a_configuration_in_a_sticky_directory_is_read(self):
        self.home.chmod(0o1777)
        self.assertEqual(self.check().returncode, 0, self.check().stderr)

    def test_a_policy_that_others_may_write_is_not_run(self):
        self.add_module()
        self.assertEqual(self.check().stderr, "")
        for path in (self.module, self.policies):
            for bits, words in ((0o020, "its group: chmod g-w"), (0o002, "everybody: chmod o-w")):
                with self.subTest(path=path.name, bits=bits):
                    path.chmod(0o755 | bits)
                    ran = self.check()
                    path.chmod(0o755)
                    self.assertIn(f"{path} can be written by {words} {path}", ran.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "only root gives files away")
    def test_a_strangers_policy_is_not_run(self):
        """Also in a sticky directory, where anybody may put one."""
        self.policies.chmod(0o1777)
        self.add_module()
        self.assertEqual(self.check().stderr, "")
        os.chown(self.module, STRANGER, STRANGER)
        self.assertIn(f"{self.module} belongs to uid {STRANGER}", self.check().stderr)

    def test_a_reload_checks_as_a_start_does(self):
        self.add_module()
        daemon = Process([TIERD, "--config", self.file, "--socket", self.work / "run/tierd.sock"], self.work / "tierd.out")
        self.addCleanup(daemon.kill)
        self.assertTrue(eventually(lambda: "tierd ready" in daemon.text(), 30, 0.02), daemon.text())
        control = self.work / "run/control.sock"
        reload = lambda: subprocess.run([BUILD / "tierctl/tierctl", "--socket", control, "config", "reload"], capture_output=True, text=True, check=False, timeout=60)  # noqa: E731
        self.write("debug")
        for name, path, bits, remedy in self.holes():
            with self.subTest(name):
                mode = path.stat().st_mode & 0o777
                path.chmod(mode | bits)
                ran = reload()
                path.chmod(mode)
                self.assertEqual((ran.returncode, ran.stdout), (1, ""))
                self.assertIn(remedy, ran.stderr)
        ran = reload()
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("daemon.log_level", ran.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
