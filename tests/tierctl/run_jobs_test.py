"""Several `tierctl run` on one node: those of one batch job share a daemon, those of other jobs have each
its own and divide what is free."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "monitoring"))
from rig import BUILD, SlowSource, UnixConnection, die_with_parent, eventually  # noqa: E402

FILES, BYTES = 20, 50_000


class Run:
    """One `tierctl run` whose command reads all files, says so, and goes on when told."""

    def __init__(self, test, name, source, *options, variables=None, prefix=()):
        self.name, self.work, self.source = name, test.work, source
        self.ready, self.go, self.report = (test.work / f"{name}.{what}" for what in ("ready", "go", "json"))
        read = f"cat {source}/* >/dev/null"
        script = f"{read}; touch {self.ready}; until [ -e {self.go} ]; do sleep 0.05; done; {read}"
        environment = {**os.environ, "TMPDIR": str(test.tmp), "HOME": str(test.work), "XDG_RUNTIME_DIR": str(test.work / "none"), "TIERD_LEDGER": str(test.shared), **(variables or {})}
        for name_of_job in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"):
            if name_of_job not in (variables or {}):
                environment.pop(name_of_job, None)
        self.output = test.work / f"{name}.out"
        with open(self.output, "w") as out:
            self.popen = subprocess.Popen([*prefix, BUILD / "tierctl/tierctl", "run", "--source", source, "--report", self.report, *options, "--", "sh", "-c", script], env=environment,
                                          stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_parent)
        test.addCleanup(self.kill)

    def kill(self):
        """The wrapper, its command and all that it has started but the daemon."""
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.popen.wait(30)

    def text(self):
        return self.output.read_text(errors="replace")

    def has_read(self):
        return eventually(lambda: self.ready.exists() or self.popen.poll() is not None, 60, 0.05) and self.ready.exists()

    def finish(self):
        self.go.touch()
        return self.popen.wait(60)


class Jobs(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-jobs-", dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.tmp = self.work / "tmp"
        self.shared = self.work / "shared"
        for folder in (self.tmp, self.shared):
            folder.mkdir()
        self.job = f"{os.getpid()}-{self.id().rsplit('.', 1)[1]}"  # of nobody else's

    def plain_source(self):
        source = self.work / "source"
        source.mkdir()
        for i in range(FILES):
            (source / f"f{i}").write_bytes(os.urandom(BYTES))
        return source

    def slow_source(self):
        try:
            rig = SlowSource(self.work, "rig")
        except OSError as why:
            self.skipTest(str(why))
        self.addCleanup(rig.stop)
        for i in range(FILES):
            (rig.backing / f"f{i}").write_bytes(os.urandom(BYTES))
        return rig

    def records(self, word=None):
        """Of the daemons of this test's jobs."""
        found = []
        for path in self.shared.glob("tierd-ledger-*/*.json"):
            try:
                record = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            if str(self.work) in record["scratch"] and (word is None or word in record["job"]):
                found.append(record)
        return found

    def status(self, record):
        connection = UnixConnection(record["control"])
        connection.request("GET", "/v1/status")
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def expect_nothing_left(self, pids=()):
        left = lambda: [name for name in os.listdir(self.tmp) if name.startswith("tierd-")] + os.listdir(self.shared) + [pid for pid in pids if pathlib.Path(f"/proc/{pid}/fd").exists()]  # noqa: E731
        self.assertTrue(eventually(lambda: not left(), 20), left())

    def test_runs_of_one_job_share_one_daemon_that_reads_the_source_once(self):
        for variable in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"):
            with self.subTest(variable):
                rig = self.slow_source() if variable == "SLURM_JOB_ID" else None
                source = rig.mount if rig else self.work / "source" if (self.work / "source").exists() else self.plain_source()
                runs = [Run(self, f"{variable}{i}", source, variables={variable: self.job}) for i in range(4)]
                for run in runs:
                    self.assertTrue(run.has_read(), run.text())
                self.assertEqual(len(self.records(self.job)), 1)
                self.assertEqual(sum("joined the cache that another run" in run.text() for run in runs), 3, [run.text() for run in runs])
                daemon = self.status(self.records(self.job)[0])["pid"]
                for run in runs:
                    self.assertEqual(run.finish(), 0, run.text())
                    self.assertFalse(json.loads(run.report.read_text())["own_daemon"], "it served others, too")
                if rig:
                    counters = json.loads(rig.ctl("counters"))
                    self.assertEqual((counters["ops"]["open"]["count"], counters["bytes_read"]), (FILES, FILES * BYTES), [json.loads(run.report.read_text()) for run in runs])
                self.expect_nothing_left([daemon])

    def test_a_size_that_the_node_has_not_is_said_at_the_start_and_in_the_advice(self):
        run = Run(self, "large", self.plain_source(), "--ram", "99TB", "--ssd", "off", "--keep")
        self.assertTrue(run.has_read(), run.text())
        said = "--ram 99 TB: this node or its cgroup has "
        self.assertIn("tierctl: run: " + said, run.text())
        self.assertIn("tierctl: run: --keep: there is no SSD tier", run.text())
        self.assertEqual(run.finish(), 0, run.text())
        report = json.loads(run.report.read_text())
        self.assertTrue(report["option_notes"][0].startswith(said), report["option_notes"])
        self.assertIn(said, report["advice"])
        self.assertNotIn("nothing to improve", report["advice"])

    def test_the_others_go_on_when_the_first_run_is_killed(self):
        source = self.plain_source()
        first = Run(self, "first", source, variables={"SLURM_JOB_ID": self.job})
        self.assertTrue(first.has_read(), first.text())
        others = [Run(self, f"other{i}", source, variables={"SLURM_JOB_ID": self.job}) for i in range(2)]
        for run in others:
            self.assertTrue(run.has_read(), run.text())
        record, = self.records(self.job)
        daemon = self.status(record)["pid"]
        first.kill()
        self.assertEqual(self.status(record)["pid"], daemon)
        self.assertEqual(others[0].finish(), 0, others[0].text())
        self.assertEqual(self.status(record)["pid"], daemon)
        self.assertEqual(others[1].finish(), 0, others[1].text())
        for run in others:
            report = json.loads(run.report.read_text())
            self.assertEqual(report["reads"]["bypass"]["count"], 0, report["reads"])
            self.assertGreaterEqual(report["reads"]["ram"]["count"] + report["reads"]["ssd"]["count"], FILES)
        self.expect_nothing_left([daemon])

    def test_jobs_have_daemons_of_their_own_that_divide_what_is_free(self):
        source = self.plain_source()
        runs = []
        for i in range(3):
            runs.append(Run(self, f"run{i}", source, variables={"SLURM_JOB_ID": f"{self.job}-{i}"}))
            self.assertTrue(runs[-1].has_read(), runs[-1].text())
        records = self.records(self.job)
        self.assertEqual(len(records), 3)
        tiers = [self.status(record)["tiers"] for record in records]
        memory = int(next(line for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")).split()[1]) * 1024
        disk = os.statvfs(self.tmp)
        free = {"ram": memory, "ssd": disk.f_bavail * disk.f_frsize}
        for tier, bytes_free in free.items():
            self.assertLessEqual(sum(one[tier]["capacity_bytes"] for one in tiers if "capacity_bytes" in one[tier]), bytes_free + sum(one[tier].get("allocated_bytes", 0) for one in tiers), tier)
        self.assertNotIn("other cache", runs[0].text().replace("another cache", ""))
        for run in runs[1:]:
            self.assertRegex(run.text(), r"tierctl: run: (another cache|\d+ other caches) of yours on this node: they divide what is free; this one takes [\d.]+ \w+ of memory and ")
        for run in runs:
            self.assertEqual(run.finish(), 0, run.text())
        self.expect_nothing_left()

    def test_runs_without_a_job_do_not_join(self):
        source = self.plain_source()
        runs = [Run(self, f"run{i}", source, "--ram", "32 MiB") for i in range(2)]
        for run in runs:
            self.assertTrue(run.has_read(), run.text())
            self.assertNotIn("joined", run.text())
        self.assertEqual(len(self.records()), 2)
        for run in runs:
            self.assertEqual(run.finish(), 0, run.text())

    def test_other_options_are_said(self):
        source = self.plain_source()
        first = Run(self, "first", source, "--ram", "64 MiB", variables={"SLURM_JOB_ID": self.job})
        self.assertTrue(first.has_read(), first.text())
        for name, options, says in (("ram", ("--ram", "32 MiB"), "--ram is 64 MiB there"), ("policy", ("--policy", "lru", "--ram", "64 MiB"), "--policy is not given there"),
                                    ("source", ("--source", str(self.tmp), "--ram", "64 MiB"), "it has another --source")):
            run = Run(self, name, source, *options, variables={"SLURM_JOB_ID": self.job})
            self.assertTrue(run.has_read(), run.text())
            self.assertIn(f"a cache of its own beside that of another run of Slurm job {self.job}: {says}\n", run.text())
            self.assertEqual(run.finish(), 0)
        same = Run(self, "same", source, "--ram", "64 MiB", variables={"SLURM_JOB_ID": self.job})
        self.assertTrue(same.has_read(), same.text())
        self.assertIn("joined the cache", same.text())

    @unittest.skipUnless(os.geteuid() == 0, "only root makes a mount namespace without a user namespace")
    def test_another_mount_namespace_is_another_node(self):
        source = self.plain_source()
        first = Run(self, "first", source, "--ram", "32 MiB", variables={"SLURM_JOB_ID": self.job})
        self.assertTrue(first.has_read(), first.text())
        other = Run(self, "other", source, "--ram", "32 MiB", variables={"SLURM_JOB_ID": self.job}, prefix=["unshare", "-m"])
        if not other.has_read() and "unshare" in other.text():
            self.skipTest(other.text())
        self.assertNotIn("joined", other.text())
        self.assertEqual(len(self.records(self.job)), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
