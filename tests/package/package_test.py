"""The Debian packages of this build: each file in its package, dependencies as they are, lintian without errors, and the programs run from where they were unpacked."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["TIERD_BUILD"])
# Whose package it is says -DTIERD_PACKAGE_CONTACT.
NOT_OURS = ["bogus-mail-host", "bogus-mail-host-in-debian-changelog"]


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)


@unittest.skipUnless(shutil.which("dpkg-deb") and shutil.which("dpkg-shlibdeps"), "no dpkg-dev here")
class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-package-"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        ran = run(os.environ["TIERD_CPACK"], "-G", "DEB", "-B", cls.work, cwd=BUILD)
        if ran.returncode != 0:
            raise AssertionError(ran.stdout + ran.stderr)
        cls.packages = {path.name.split("_")[0]: path for path in cls.work.glob("*.deb")}

    def content(self, name):
        listing = run("dpkg-deb", "-c", self.packages[name]).stdout
        return {line.split()[5].lstrip(".") for line in listing.splitlines() if not line.startswith("d")}

    def field(self, name, field):
        return run("dpkg-deb", "-f", self.packages[name], field).stdout.strip()

    def test_what_is_in_which(self):
        self.assertEqual(set(self.packages), {"tierd", "libtier1", "libtier-dev", "python3-tierd"})
        tierd = self.content("tierd")
        for path in ("/usr/bin/tierd", "/usr/bin/tierctl", "/usr/lib/systemd/system/tierd@.service", "/usr/lib/systemd/user/tierd.service", "/usr/share/man/man8/tierd.8.gz", "/usr/share/tierd/tierd.toml",
                     "/usr/share/tierd/prometheus/alert_rules.yml", "/usr/share/tierd/grafana/tierd.json", "/usr/share/tierd/slurm/prolog.sh",
                     "/usr/share/doc/tierd/README.md", "/usr/share/doc/tierd/docs/run.md", "/usr/share/doc/tierd/tierd/server/CONTROL.md"):
            self.assertIn(path, tierd)
        library, headers, python = (self.content(n) for n in ("libtier1", "libtier-dev", "python3-tierd"))
        self.assertTrue(any(p.endswith("/libtier.so.1") for p in library) and any(p.endswith("/libtier_preload.so") for p in library), library)
        self.assertFalse(any(p.startswith("/usr/include") for p in library))
        for end in ("/include/tier/tier.h", "/include/tierd/tierd_policy.h", "/libtier.so", "/pkgconfig/tier.pc", "/cmake/tier/tier-config.cmake", "/man3/libtier.3.gz"):
            self.assertTrue(any(p.endswith(end) for p in headers), end)
        self.assertTrue(any(p.endswith("/tierd/_client.py") for p in python))
        self.assertEqual(tierd & library | tierd & headers | library & headers | tierd & python, set(), "no file in two packages")

    def test_dependencies(self):
        self.assertIn("libtier1 (= ", self.field("tierd", "Depends"))
        self.assertRegex(self.field("tierd", "Depends"), r"liburing2|libleveldb")
        self.assertRegex(self.field("libtier1", "Depends"), r"^libc6 \([^)]*\)$")
        self.assertIn("libtier1 (= ", self.field("libtier-dev", "Depends"))
        self.assertEqual(self.field("python3-tierd", "Architecture"), "all")

    @unittest.skipUnless(shutil.which("lintian"), "no lintian here")
    def test_lintian(self):
        ran = run("lintian", "--fail-on", "error", "--no-tag-display-limit", "--allow-root", "--suppress-tags", ",".join(NOT_OURS), *self.packages.values())
        errors = [line for line in ran.stdout.splitlines() if line.startswith("E:")]
        self.assertEqual(errors, [], ran.stdout)

    def test_programs_run_where_they_were_unpacked(self):
        root = self.work / "root"
        for package in self.packages.values():
            self.assertEqual(run("dpkg-deb", "-x", package, root).returncode, 0)
        for program in ("tierd", "tierctl"):
            ran = run(root / "usr/bin" / program, "--version", env={"PATH": "/usr/bin:/bin"})
            self.assertRegex(ran.stdout, rf"^{program} \d+\.\d+")
        data = self.work / "data"
        data.mkdir()
        (data / "hello").write_text("hello\n")
        ran = run(root / "usr/bin/tierctl", "run", "--quiet", "--source", data, "--", "cat", data / "hello",
                  env={"PATH": "/usr/bin:/bin", "TMPDIR": str(self.work), "HOME": str(self.work)})
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "hello\n", ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
