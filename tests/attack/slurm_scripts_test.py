"""The scripts of examples/slurm against a user of the node who may write where they work: planted
links, directories made by somebody else, names that are swapped between two steps."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/slurm"
NOBODY = 65534
JOB = "17"


def eventually(condition, seconds=10):
    end = time.monotonic() + seconds
    while not (result := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return result


class Attack(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-attack-"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.work.chmod(0o755)
        self.base = self.work / "scratch"
        self.base.mkdir()
        self.base.chmod(0o1777)
        self.job = self.base / f"job.{JOB}"
        self.vault = self.work / "vault"  # what nobody but root may change
        self.vault.mkdir(0o700)

    def run_script(self, name, job_uid=None, user=None):
        environment = {"PATH": f"{self.work}/bin:/usr/bin:/bin", "TIERD_SCRATCH": str(self.base), "SLURM_JOB_ID": JOB,
                       "SLURM_JOB_UID": str(os.geteuid() if job_uid is None else job_uid)}
        ran = subprocess.run([EXAMPLES / f"{name}.sh"], env=environment, capture_output=True, text=True, check=False,
                             timeout=60, user=user, start_new_session=True)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        return ran.stdout

    def before(self, program, text):
        """What happens in the moment before a script runs a program."""
        (self.work / "bin").mkdir(exist_ok=True)
        path = self.work / "bin" / program
        path.write_text(f"#!/bin/sh\n{text}\nexec {shutil.which(program)} \"$@\"\n")
        path.chmod(0o755)

    def tree_of_the_job(self):
        self.job.mkdir(0o700)
        (self.job / "authorized_keys").write_text("mine\n")

    # Epilog: where the job's directory goes.

    def test_a_planted_link_gets_no_tree_of_the_job(self):
        (self.base / f".gone.{JOB}").symlink_to(self.vault)
        self.tree_of_the_job()
        self.run_script("epilog")
        self.assertTrue(eventually(lambda: not os.path.lexists(self.job)))
        self.assertTrue(eventually(lambda: not os.listdir(self.base)), os.listdir(self.base))
        self.assertEqual(os.listdir(self.vault), [])

    def test_a_link_in_place_of_the_new_directory_gets_no_tree_of_the_job(self):
        """The directory for what goes is swapped before the job's is moved into it."""
        self.base.chmod(0o777)
        self.before("mv", f"mkdir {self.base}/kept; for d in {self.base}/.gone.*; do /bin/mv $d {self.base}/kept/; ln -s {self.vault} $d; done")
        self.tree_of_the_job()
        self.run_script("epilog")
        self.assertTrue(eventually(lambda: not os.path.lexists(self.job)))
        self.assertEqual(os.listdir(self.vault), [])

    def test_a_link_in_place_of_the_job_directory_is_what_goes(self):
        (self.vault / "precious").write_text("x")
        self.job.symlink_to(self.vault)
        self.run_script("epilog")
        self.assertTrue(eventually(lambda: not os.listdir(self.base)), os.listdir(self.base))
        self.assertTrue((self.vault / "precious").exists())

    @unittest.skipUnless(os.geteuid() == 0, "needs processes of two users")
    def test_a_daemon_of_another_user_does_not_end_with_the_job(self):
        """Any process may say in its environment that it is of the job."""
        shutil.copy("/bin/sleep", self.work / "tierd")
        with subprocess.Popen([self.work / "tierd", "100"], env={"SLURM_JOB_ID": JOB}) as daemon:
            self.addCleanup(daemon.kill)
            self.run_script("epilog", job_uid=NOBODY)
            self.assertIsNone(daemon.poll())
            self.run_script("epilog", job_uid=0)
            self.assertTrue(eventually(lambda: daemon.poll() is not None))

    # Prolog: whose the directory becomes.

    @unittest.skipUnless(os.geteuid() == 0, "a prolog runs as root")
    def test_a_swapped_name_gives_nothing_away(self):
        """The job's directory is another thing by the time that it is handed to the user."""
        self.base.chmod(0o777)
        secret = self.vault / "shadow"
        for what, target in (("link to a file", secret), ("link to a directory", self.vault), ("hard link", secret)):
            for program in ("stat", "chown"):
                with self.subTest(what=what, before=program):
                    for left in (self.job, self.base / "aside", self.work / "bin"):
                        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink(missing_ok=True)
                    os.chown(self.vault, 0, 0)
                    secret.unlink(missing_ok=True)
                    secret.write_text("root's")
                    link = "ln" if what == "hard link" else "ln -s"
                    self.before(program, f"[ -e {self.base}/aside ] || {{ /bin/mv {self.job} {self.base}/aside; {link} {target} {self.job}; }}")
                    self.run_script("prolog", job_uid=NOBODY)
                    self.assertEqual((target.stat().st_uid, self.vault.stat().st_uid), (0, 0))

    @unittest.skipUnless(os.geteuid() == 0, "a prolog runs as root")
    def test_a_planted_name_is_not_handed_over(self):
        for plant in (lambda: self.job.symlink_to(self.vault), self.job.mkdir):
            plant()
            self.run_script("prolog", job_uid=NOBODY)
            self.assertEqual((self.vault.stat().st_uid, self.job.stat().st_uid), (0, 0))
            self.assertEqual(self.run_script("taskprolog", user=NOBODY), "")
            self.job.unlink() if self.job.is_symlink() else self.job.rmdir()

    # Task prolog: what the job takes for its own.

    @unittest.skipUnless(os.geteuid() == 0, "needs two users")
    def test_a_directory_made_by_somebody_else_is_not_the_jobs(self):
        self.job.mkdir()
        self.job.chmod(0o777)
        self.assertEqual(self.run_script("taskprolog", user=NOBODY), "")

    def test_a_directory_that_others_may_write_is_not_the_jobs(self):
        self.job.mkdir()
        self.job.chmod(0o770)
        self.assertEqual(self.run_script("taskprolog"), "")
        self.job.chmod(0o700)
        self.assertIn(f"export TMPDIR={self.job}\n", self.run_script("taskprolog"))

    def test_a_link_is_not_the_jobs(self):
        """To a directory of the user's own, where somebody else wants the job's files."""
        self.job.symlink_to(self.vault)
        self.assertEqual(self.run_script("taskprolog"), "")

    def test_no_directory_is_taken_where_others_may_rename_it(self):
        self.job.mkdir(0o700)
        self.base.chmod(0o777)
        told = self.run_script("taskprolog")
        self.assertNotIn("export", told)
        self.assertIn(f"chmod +t {self.base}", told)


if __name__ == "__main__":
    unittest.main(verbosity=2)
