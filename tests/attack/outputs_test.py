"""What tierd and tierctl write: nothing below a source by whatever name, nothing that a reader of logs
or terminals would take for something else, nothing of a peer's beyond what was expected of it, nothing
that others may read."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "monitoring"))
from rig import BUILD, Daemon, Process, eventually  # noqa: E402

TIERD = BUILD / "tierd/tierd"
TIERCTL = BUILD / "tierctl/tierctl"
SECRET = "tierd_reads_total 4\nnot of the page\n"


def tierctl(*words, **more):
    return subprocess.run([str(w) for w in (TIERCTL, *words)], capture_output=True, text=True, check=False, timeout=60, **more)


class Attack(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-attack-"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.data = self.work / "data"
        (self.data / "inner").mkdir(parents=True)
        (self.data / "file").write_text("x")

    def tree(self):
        return sorted(str(path.relative_to(self.data)) for path in self.data.rglob("*"))


class Sources(Attack):
    def test_no_trace_is_written_below_a_source_whose_root_is_a_link(self):
        link, inner = self.work / "link", self.work / "shortcut"
        link.symlink_to(self.data)
        inner.symlink_to(self.data / "inner")
        daemon = Daemon(self.work, "daemon", link, ssd="off")
        self.addCleanup(daemon.stop)
        before = self.tree()
        for name in (self.data / "t", self.data / "inner/t", link / "t", link / "inner/t", inner / "t", self.work / "link/../data/t"):
            answer = daemon.control("POST", "/v1/trace", {"path": str(name)})
            self.assertIn(f"is below the source {link}: nothing is written there", answer.get("error", {}).get("message", ""), name)
        self.assertEqual(self.tree(), before)
        beside = self.work / "t"
        self.assertTrue(daemon.control("POST", "/v1/trace", {"path": str(beside)})["trace"]["running"])
        self.assertEqual(beside.stat().st_mode & 0o777, 0o600)

    @unittest.skipUnless(os.geteuid() == 0, "only root mounts")
    def test_no_trace_is_written_below_a_source_that_is_mounted_twice(self):
        again = self.work / "again"
        again.mkdir()
        if subprocess.run(["mount", "--bind", self.data, again], check=False, capture_output=True).returncode != 0:
            self.skipTest("no mount here")
        self.addCleanup(subprocess.run, ["umount", "-l", again], check=False)
        daemon = Daemon(self.work, "daemon", self.data, ssd="off")
        self.addCleanup(daemon.stop)
        answer = daemon.control("POST", "/v1/trace", {"path": str(again / "inner/t")})
        self.assertIn("nothing is written there", answer.get("error", {}).get("message", ""))

    def test_no_cache_is_made_below_a_source_whose_root_is_a_link(self):
        link = self.work / "link"
        link.symlink_to(self.data)
        before = self.tree()
        command = [TIERD, "--config", "none", "--source", link, "--ram", "16 MiB", "--metrics", "off", "--socket", self.work / "run/tierd.sock"]
        places = {"CACHE_DIRECTORY": self.data / "cache", "XDG_CACHE_HOME": self.data / "inner", "HOME": self.data}
        daemon = Process(command, self.work / "out", env={**os.environ, **{name: str(path) for name, path in places.items()}})
        self.addCleanup(daemon.kill)
        self.assertTrue(eventually(lambda: "tierd ready" in daemon.text() or daemon.popen.poll() is not None, 30, 0.02))
        self.assertEqual(self.tree(), before)
        self.assertIn(f"lies inside the source {link}", daemon.text())


class Words(Attack):
    def test_a_name_cannot_fake_a_line_of_the_log(self):
        policies = self.work / "policies"
        policies.mkdir(0o755)
        (policies / "a\n2026-01-01T00:00:00.000 info all is well\x1b[2J\x9b.so").write_text("no policy")
        daemon = Daemon(self.work, "daemon", self.data, f"policy.directory={policies}", ssd="off")
        self.addCleanup(daemon.stop)
        text = pathlib.Path(daemon.process.output).read_bytes()
        refused = [line for line in text.split(b"\n") if b"policy refused" in line]
        self.assertEqual(len(refused), 1, text)
        self.assertIn(rb"a\n2026-01-01T00:00:00.000 info all is well\x1b[2J\xc2\x9b.so", refused[0])
        self.assertNotIn(b"\x1b", text)
        self.assertNotIn(b"\n2026-01-01", text)

    def test_nor_a_message_of_a_start(self):
        ran = subprocess.run([TIERD, "--config", self.work / "a\x1b[2J", "--check-config"], capture_output=True, check=False)
        self.assertIn(rb"\x1b[2J", ran.stderr)
        self.assertNotIn(b"\x1b", ran.stderr)


class Bundles(Attack):
    def test_a_bundle_is_for_its_owner_alone(self):
        file = self.work / "bundle.json"
        for was in (None, 0o644):
            if was is not None:
                file.chmod(was)
            ran = tierctl("--socket", self.work / "none", "debug", "bundle", "-o", file, umask=0)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertEqual(file.stat().st_mode & 0o777, 0o600)

    def test_a_bundle_without_a_name_replaces_nothing(self):
        """Its name can be known before: the second is in it."""
        planted = self.work / "planted"
        planted.write_text("mine")
        made = []
        for _ in range(20):
            ran = tierctl("--socket", self.work / "none", "debug", "bundle", cwd=self.work, umask=0)
            made += [self.work / ran.stdout.strip()] if ran.returncode == 0 else []
            if ran.returncode != 0:
                self.assertIn("File exists", ran.stderr)
                break
        self.assertTrue(made)
        for bundle in made:
            self.assertEqual(bundle.stat().st_mode & 0o777, 0o600)
            self.assertIn('"host"', bundle.read_text())


class Textfile(Attack):
    """What root takes from a process of the user (systemd/tierd-textfile@.service)."""

    def setUp(self):
        super().setUp()
        self.page, self.out = self.work / "page", self.work / "out.prom"

    def take(self, text=None, *more):
        if text is not None:
            self.page.write_bytes(text if isinstance(text, bytes) else text.encode())
        ran = tierctl("metrics", "--from", self.page, "--label", "slot=alice", "--output", self.out, *more)
        return ran, self.out.read_text() if self.out.exists() else None

    def test_a_page_of_ours_passes_whole(self):
        daemon = Daemon(self.work, "daemon", self.data, ssd="off")
        self.addCleanup(daemon.stop)
        self.assertEqual(tierctl("--socket", daemon.work / "run/control.sock", "metrics", "--output", self.page).returncode, 0)
        ran, text = self.take()
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        plain = tierctl("--socket", daemon.work / "run/control.sock", "metrics", "--label", "slot=alice").stdout

        def shape(page):
            """Samples without their values, and what is said of them."""
            return sorted(line if line.startswith("#") else line.rsplit(" ", 1)[0] for line in page.splitlines())

        self.assertEqual(shape(text), shape(plain))

    def test_more_than_a_mebibyte_is_not_taken(self):
        self.out.write_text("old")
        ran, text = self.take("tierd_sessions 0\n" * (1 << 16))
        self.assertEqual((ran.returncode, text), (3, None))
        self.assertIn("larger than 1 MiB", ran.stderr)

    def test_only_a_regular_file_is_read(self):
        secret = self.work / "secret"
        secret.write_text(SECRET)
        for plant in (lambda: self.page.symlink_to(secret), lambda: os.mkfifo(self.page), self.page.mkdir):
            plant()
            ran, text = self.take()
            self.assertEqual((ran.returncode, text), (3, None), ran.stderr)
            self.page.rmdir() if self.page.is_dir() and not self.page.is_symlink() else self.page.unlink()

    def test_only_metrics_of_ours_are_taken(self):
        good = ['tierd_sessions 0', 'tierd_reads_total{tier="ram",result="hit"} 17', 'tierd_read_duration_seconds_bucket{tier="ram",le="+Inf"} 1', 'tierd_prefetch_lead_seconds_sum 1.5e-3']
        bad = ["node_load1 99", "up 0", "tierd_evil_total 1", "tierd_sessions 1", "tierd_sessions 0 1700000000000", "tierd_leases", "tierd_leases x", 'tierd_leases{a="b} 1',
               'tierd_leases{a="b"c="d"} 1', 'tierd_leases{a="\\q"} 1', "tierd_leases{} 1", "tierd_reads_total_bucket 1", "tierd_read_duration_seconds 1", 'tierd_leases{a="\x1b[2J"} 1',
               'tierd_leases{a-b="c"} 1', " tierd_leases 1", "tierd_leases  1"]
        lies = ["# TYPE tierd_sessions counter", "# HELP tierd_sessions of somebody else", "# EOF"]
        ran, text = self.take("\n".join(lies + good + bad) + "\ntierd_leased_bytes 12")  # the last line is cut
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn(f"left out {len(bad)} lines", ran.stderr)
        samples = [line for line in text.splitlines() if not line.startswith("#")]
        self.assertEqual(sorted(samples), sorted([
            'tierd_sessions{slot="alice"} 0', 'tierd_reads_total{slot="alice",tier="ram",result="hit"} 17',
            'tierd_read_duration_seconds_bucket{slot="alice",tier="ram",le="+Inf"} 1', 'tierd_prefetch_lead_seconds_sum{slot="alice"} 1.5e-3']))
        self.assertIn("# TYPE tierd_sessions gauge\n", text)
        self.assertNotIn("somebody else", text)

    def test_a_user_cannot_speak_for_another(self):
        self.out.write_text("old")
        ran, text = self.take('tierd_sessions{slot="bob"} 0\n')
        self.assertEqual((ran.returncode, text), (64, "old"))
        self.assertIn("label slot would stand twice", ran.stderr)

    def test_what_is_planted_beside_the_file_is_not_written_through(self):
        victim = self.work / "victim"
        victim.write_text("mine")
        shell = f'ln -s {victim} {self.out}.$$; exec "$@"'
        self.page.write_text("tierd_sessions 0\n")
        ran = subprocess.run(["sh", "-c", shell, "sh", TIERCTL, "metrics", "--from", self.page, "--output", self.out], capture_output=True, text=True, check=False)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual(victim.read_text(), "mine")
        self.assertIn("tierd_sessions 0\n", self.out.read_text())
        self.assertFalse(self.out.is_symlink())


if __name__ == "__main__":
    unittest.main(verbosity=2)
