"""What systemd's own tools say about systemd/: nothing to complain about (verify, also on stderr, with every drop-in example), an exposure within the bar, users and directories that
can be made in an empty root; and what the textfile unit runs, run."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TIERD_BUILD"])
UNITS = ROOT / "systemd"
MOST_EXPOSURE = 1.5


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)


@unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here")
class Units(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tierd-units-")
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def copy(self, name, to):
        """A unit that starts the programs that were built."""
        text = (UNITS / name).read_text()
        for program in ("tierd", "tierctl"):
            text = text.replace(f"/usr/bin/{program} ", f"{BUILD}/{program}/{program} ").replace(f"/usr/bin/{program}\n", f"{BUILD}/{program}/{program}\n")
        (self.work / to).write_text(text)
        return self.work / to

    def verify(self, *units, scope=()):
        pages = {"MANPATH": str(ROOT / "docs/man")} if (ROOT / "docs/man").is_dir() else {}
        ran = run("systemd-analyze", *scope, "verify", *([] if pages else ["--man=no"]), *units, env={**os.environ, "XDG_RUNTIME_DIR": str(self.work), **pages})
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "", ""))

    def exposure(self, unit):
        ran = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return float(re.search(r"Overall exposure level for \S+: ([\d.]+)", ran.stdout)[1])

    def test_system_units(self):
        for name, to in (("tierd.service", "tierd.service"), ("tierd@.service", "tierd@alice.service")):
            unit = self.copy(name, to)
            self.verify(unit)
            exposure = self.exposure(unit)
            print(f"{to}: exposure {exposure}")
            self.assertLessEqual(exposure, MOST_EXPOSURE)

    def test_the_user_unit(self):
        unit = self.copy("user/tierd.service", "tierd.service")
        self.verify(unit, scope=["--user"])

    def test_the_unit_that_mounts_the_memory(self):
        self.verify(self.copy("tierd-frames@.service", "tierd-frames@alice.service"))

    def test_the_unit_that_mounts_the_memory_has_no_mount_namespace(self):
        """The mount would stay in it, and tierd would not see it."""
        keys = {line.split("=")[0] for line in (UNITS / "tierd-frames@.service").read_text().splitlines()}
        own = {"ProtectSystem", "ProtectHome", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "PrivateTmp",
               "PrivateDevices", "PrivateMounts", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "TemporaryFileSystem", "BindPaths", "BindReadOnlyPaths"}
        self.assertEqual(keys & own, set())

    def test_the_textfile_units(self):
        unit = self.copy("tierd-textfile@.service", "tierd-textfile@alice.service")
        self.verify(unit, self.copy("tierd-textfile@.timer", "tierd-textfile@alice.timer"))
        self.assertLessEqual(self.exposure(unit), MOST_EXPOSURE)

    def test_every_drop_in_alone_and_all_of_them(self):
        unit = self.copy("tierd@.service", "tierd@alice.service")
        folder = self.work / "tierd@alice.service.d"
        folder.mkdir()
        examples = sorted((UNITS / "examples").glob("*.conf"))
        self.assertGreaterEqual(len(examples), 4)
        for example in examples:
            target = self.copy(f"examples/{example.name}", f"tierd@alice.service.d/{example.name}")
            self.verify(unit)
            target.unlink()
        for example in examples:
            self.copy(f"examples/{example.name}", f"tierd@alice.service.d/{example.name}")
        self.verify(unit)

    def test_a_mistake_would_be_seen(self):
        unit = self.copy("tierd@.service", "tierd@alice.service")
        unit.write_text(unit.read_text().replace("ProtectClock=yes", "ProtectClok=yes"))
        ran = run("systemd-analyze", "verify", "--man=no", unit)
        self.assertIn("ProtectClok", ran.stderr)

    def test_the_units_agree(self):
        """tierd.service is tierd@tierd.service: but for the user the same words."""
        def lines(name):
            return [line for line in (UNITS / name).read_text().splitlines() if line and line[0] != "#" and not line.startswith(("Description", "Conflicts"))]

        self.assertEqual(lines("tierd.service"), [line.replace("%i", "tierd") for line in lines("tierd@.service")])

    def test_what_no_unit_may_say(self):
        """A user namespace of the unit's makes all foreign groups one (a client without a group would pass for one with it); RemoveIPC takes a job's shared memory away when the daemon ends."""
        for unit in sorted(path for path in UNITS.rglob("*") if path.suffix in (".service", ".conf")):
            for key in ("PrivateUsers", "RemoveIPC"):
                self.assertNotIn(key, unit.read_text(), unit.name)

    @unittest.skipUnless(shutil.which("systemd-sysusers") and shutil.which("systemd-tmpfiles"), "no systemd-sysusers, systemd-tmpfiles here")
    def test_users_and_directories(self):
        root = self.work / "root"
        (root / "etc").mkdir(parents=True)
        (root / "etc/passwd").touch()
        (root / "etc/group").touch()
        for tool, file in (("systemd-sysusers", "tierd.sysusers"), ("systemd-tmpfiles", "tierd.tmpfiles")):
            more = ["--create"] if tool == "systemd-tmpfiles" else []
            shutil.copy(UNITS / file, self.work / f"{file}.conf")
            if os.geteuid() != 0:
                continue
            if tool == "systemd-tmpfiles":
                with (root / "etc/passwd").open("a") as passwd:
                    passwd.write("root:x:0:0::/root:/bin/sh\n")
                with (root / "etc/group").open("a") as group:
                    group.write("root:x:0:\n")
            ran = run(tool, f"--root={root}", *more, self.work / f"{file}.conf")
            self.assertEqual((ran.returncode, ran.stderr if tool == "systemd-tmpfiles" else ""), (0, ""), ran.stderr)
        if os.geteuid() == 0:
            self.assertIn("tierd:", (root / "etc/passwd").read_text())
            self.assertEqual((root / "run/tierd").stat().st_mode & 0o777, 0o755)
            self.assertTrue((root / "var/cache/tierd").is_dir())

    def test_the_textfile_comes_and_goes_with_the_daemon(self):
        sys.path.insert(0, str(ROOT / "tests/monitoring"))
        from rig import Daemon  # pylint: disable=import-outside-toplevel

        data = self.work / "data"
        data.mkdir()
        out = self.work / "textfiles"
        out.mkdir()
        text = (UNITS / "tierd-textfile@.service").read_text()
        self.assertIn("\nUser=%i\n", text)
        self.assertIn("/run/tierd/%i/tierd.sock", text)
        daemon = Daemon(self.work, "daemon", data, ssd="off")
        self.addCleanup(daemon.stop)
        between = self.work / "between"
        between.mkdir()
        for of_unit, here in (("/usr/bin/tierctl", BUILD / "tierctl/tierctl"), ("/run/tierd/%i/tierd.sock", daemon.socket), ("/run/tierd-textfile/%i", between),
                              ("/var/lib/prometheus/node-exporter", out), ("%i", "alice")):
            text = text.replace(of_unit, str(here))
        ask, take = re.findall(r"^ExecStart=(.*)$", text, re.M)
        self.assertEqual((ask[0], take[0]), ("-", "!"), "the user's process may fail; root's is not the user's")

        def turn():
            asked, taken = run(*ask[1:].split()), run(*take[1:].split())
            return asked.stderr + taken.stderr, taken.returncode

        for _ in range(2):
            self.assertEqual(turn(), ("", 0))
            self.assertEqual(os.listdir(out), ["tierd-alice.prom"])
        page = (out / "tierd-alice.prom").read_text()
        self.assertIn('tierd_sessions{slot="alice"} 0\n', page)
        self.assertIn('tierd_tier_objects{slot="alice",tier="ram"} 0\n', page)
        if shutil.which("promtool"):
            checked = run("promtool", "check", "metrics", input=page)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        daemon.stop()
        said, code = turn()
        self.assertIn("no tierd", said)
        self.assertEqual(code, int(re.search(r"^SuccessExitStatus=(\d+)$", text, re.M)[1]))
        self.assertEqual(os.listdir(out), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
