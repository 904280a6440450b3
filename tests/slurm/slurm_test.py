"""examples/slurm under a real Slurm on this machine: jobs start, are served from job scratch, end, are cancelled and killed, and nothing is left of them. Prolog and epilog by
themselves: whatever the disk does, exit 0 within two seconds."""

import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "monitoring"))
from rig import BUILD, ROOT, Process, SlowSource, eventually, free_port  # noqa: E402

EXAMPLES = ROOT / "examples/slurm"
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "scancel", "scontrol")


def processes(word):
    """Pids whose environment holds the word."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def short_names():
    """Directories for sockets in /tmp that `tierctl run` makes where the path of the scratch is too long for one."""
    return set(pathlib.Path("/tmp").glob(f"tierd-run-{os.geteuid()}-*"))


class Cluster:
    """One node, its controller and munge, in a directory."""

    def __init__(self, work):
        self.work, self.scratch = work, work / "scratch"
        for name in ("state", "spool", "scratch"):
            (work / name).mkdir()
        key = work / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        (work / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n")
        for script in ("prolog", "epilog", "taskprolog"):  # as a site would: its own scratch directory, said in a file beside
            (work / f"{script}.sh").write_text(f'#!/bin/bash\nexport TIERD_SCRATCH={self.scratch}\nexec {EXAMPLES}/{script}.sh\n')
            (work / f"{script}.sh").chmod(0o755)
        (work / "slurm.conf").write_text(f"""
ClusterName=tierdtest
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
AuthType=auth/munge
AuthInfo=socket={work}/munge.sock
CredType=cred/munge
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/spool
SlurmctldPidFile={work}/slurmctld.pid
SlurmdPidFile={work}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ReturnToService=2
KillWait=2
Prolog={work}/prolog.sh
Epilog={work}/epilog.sh
TaskProlog={work}/taskprolog.sh
PrologFlags=Alloc
NodeName=localhost NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")
        self.environment = {"PATH": f"{BUILD}/tierctl:{os.environ['PATH']}:/usr/sbin:/sbin", "SLURM_CONF": str(work / "slurm.conf"), "HOME": str(work)}
        conf = work / "slurm.conf"
        self.daemons = [
            Process(["munged", "--force", "--foreground", f"--socket={work}/munge.sock", f"--key-file={key}", f"--pid-file={work}/munge.pid", f"--log-file={work}/munge.log",
                     f"--seed-file={work}/munge.seed"], work / "munge.out", env=self.environment)]
        if eventually((work / "munge.sock").exists, 10):
            self.daemons += [Process(["slurmctld", "-D", "-f", conf], work / "ctld.out", env=self.environment),
                             Process(["slurmd", "-D", "-f", conf, "-N", "localhost"], work / "slurmd.out", env=self.environment)]
        self.up = eventually(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T").stdout, 20)

    def run(self, *command):
        return subprocess.run([str(c) for c in command], env=self.environment, capture_output=True, text=True, check=False, timeout=30)

    def submit(self, *command):
        ran = self.run("sbatch", "--parsable", f"--output={self.work}/job.out", f"--chdir={self.work}", EXAMPLES / "train.sbatch", *command)
        if ran.returncode != 0:
            raise AssertionError(ran.stderr)
        return ran.stdout.strip()

    def job(self, number):
        shown = self.run("scontrol", "show", "job", number).stdout
        return dict(re.findall(r"(\w+)=(\S*)", shown))

    def over(self, number):
        state = self.job(number).get("JobState", "")
        return state if state not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "") else ""

    def log(self):
        return "\n".join(d.text()[-1500:] for d in self.daemons) + ((self.work / "job.out").read_text() if (self.work / "job.out").exists() else "")

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.kill(signal.SIGTERM)


@unittest.skipIf(os.environ.get("TIERD_RESTRICTED"), "slurmd needs its own limits")
@unittest.skipUnless(os.geteuid() == 0 and all(shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin") for p in PROGRAMS), "needs root and Slurm")
class Jobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-slurm-"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        cls.cluster = Cluster(cls.work)
        cls.addClassCleanup(cls.cluster.stop)
        if not cls.cluster.up:
            raise unittest.SkipTest("Slurm does not come up here: " + cls.cluster.log())
        cls.data = cls.work / "data"
        cls.data.mkdir()
        for i in range(30):
            (cls.data / f"f{i}").write_bytes(os.urandom(20_000))
        cls.before = cls.traces()

    def launch(self, script):
        """A job that reads all files and then does what `script` says; its number when it has read them."""
        (self.work / "read").unlink(missing_ok=True)
        number = self.cluster.submit(self.data, "sh", "-c", f"cat {self.data}/f* >/dev/null; cat {self.data}/f* >/dev/null; env >{self.work}/environment; touch {self.work}/read; {script}")
        self.assertTrue(eventually(lambda: (self.work / "read").exists() or self.cluster.over(number), 60), self.cluster.log())
        return number

    def daemon_of(self, number):
        found = [p for p in processes(f"SLURM_JOB_ID={number}") if name_of(p) == "tierd"]
        self.assertEqual(len(found), 1, self.cluster.log())
        return found[0]

    @classmethod
    def traces(cls):
        """What this cluster's jobs could leave on the node: directories of sockets, sockets, mounts. Other tests may run
        beside this one."""
        ours = lambda file: {line for line in pathlib.Path(file).read_text().splitlines() if str(cls.work) in line}  # noqa: E731
        sockets = {line.split()[-1] for line in ours("/proc/net/unix")}
        return short_names() | sockets | ours("/proc/mounts")

    def expect_nothing_left(self, number):
        left = lambda: processes(f"SLURM_JOB_ID={number}") or os.listdir(self.cluster.scratch) or self.traces() - self.before  # noqa: E731
        self.assertTrue(eventually(lambda: not left(), 20), f"left: {left()} {[name_of(p) for p in processes(f'SLURM_JOB_ID={number}')]}\n{self.cluster.log()}")
        self.assertEqual(self.cluster.run("sinfo", "-h", "-o", "%T").stdout.strip(), "idle", "the node is not drained")

    def test_a_job_from_start_to_end(self):
        number = self.launch("sleep 1")
        pid = self.daemon_of(number)
        scratch = self.cluster.scratch / f"job.{number}"
        environment = (self.work / "environment").read_text()
        self.assertIn(f"\nTMPDIR={scratch}\n", "\n" + environment)
        self.assertIn(f"\nSLURM_TMPDIR={scratch}\n", "\n" + environment)
        self.assertEqual(scratch.stat().st_mode & 0o777, 0o700)
        ssd = [p for p in pathlib.Path(f"/proc/{pid}/fd").iterdir() if str(scratch) in os.readlink(p)]
        self.assertTrue(ssd, "the cache is in job scratch")
        self.assertEqual(eventually(lambda: self.cluster.over(number), 60), "COMPLETED", self.cluster.log())
        report = json.loads((self.work / f"tierd-{number}.0.json").read_text())
        self.assertGreaterEqual(report["reads"]["ram"]["count"], 30, report)
        self.expect_nothing_left(number)

    def test_a_job_that_is_cancelled(self):
        number = self.launch("sleep 100")
        self.daemon_of(number)
        self.cluster.run("scancel", number)
        self.assertEqual(eventually(lambda: self.cluster.over(number), 60), "CANCELLED", self.cluster.log())
        self.expect_nothing_left(number)

    def test_a_job_that_is_killed(self):
        """All its processes at once, so that nothing of ours can tidy up."""
        number = self.launch("sleep 100")
        self.daemon_of(number)
        for pid in processes(f"SLURM_JOB_ID={number}"):
            if name_of(pid) not in ("slurmstepd", "srun"):
                os.kill(pid, signal.SIGKILL)
        self.assertIn(eventually(lambda: self.cluster.over(number), 60), ("FAILED", "COMPLETED"), self.cluster.log())
        self.expect_nothing_left(number)

    def test_a_job_whose_wrapper_is_killed_and_whose_daemon_is_stopped(self):
        """The daemon does not see that its lifeline has ended: the epilog ends it."""
        number = self.launch("sleep 100")
        daemon = self.daemon_of(number)
        os.kill(daemon, signal.SIGSTOP)
        self.cluster.run("scancel", "--signal=KILL", "--full", number)
        self.assertTrue(eventually(lambda: self.cluster.over(number), 60), self.cluster.log())
        self.expect_nothing_left(number)


class Scripts(unittest.TestCase):
    """By themselves, with what may go wrong."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tierd-slurm-")
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def run_script(self, name, scratch, job="17", uid=str(os.geteuid())):
        """As slurmd does it: in a process group of its own, which is killed when the script has ended."""
        begin = time.monotonic()
        environment = {"PATH": f"{self.work}/bin:/usr/bin:/bin", "TIERD_SCRATCH": str(scratch), **({"SLURM_JOB_ID": job} if job else {}), **({"SLURM_JOB_UID": uid} if uid else {})}
        with subprocess.Popen([EXAMPLES / f"{name}.sh"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as script:
            out, err = script.communicate(timeout=30)
        took = time.monotonic() - begin
        try:
            os.killpg(script.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.assertEqual((script.returncode, err), (0, ""), name)
        self.assertLess(took, 6, name)  # two seconds by its own clock, on a node with more to do than it can; what hangs, hangs for 100
        return out

    def program(self, name, text):
        """One that stands before the system's."""
        (self.work / "bin").mkdir(exist_ok=True)
        (self.work / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.work / "bin" / name).chmod(0o755)

    def test_in_order(self):
        self.assertEqual(self.run_script("prolog", self.work), "")
        job = self.work / "job.17"
        self.assertEqual(job.stat().st_mode & 0o777, 0o700)
        (job / "ssd").mkdir()
        self.assertIn(f"export TMPDIR={job}\n", self.run_script("taskprolog", self.work))
        self.run_script("epilog", self.work)
        self.assertTrue(eventually(lambda: not os.listdir(self.work), 5), os.listdir(self.work))

    def test_directories_of_sockets(self):
        """Of runs that were killed they go; one whose lock is held, or that says nothing yet, stays."""
        names = {}
        for name in ("gone", "held", "made"):
            path = pathlib.Path(tempfile.mkdtemp(prefix=f"tierd-run-{os.geteuid()}-", dir="/tmp"))
            names[name] = path.rename(path.with_name(f"tierd-run-{os.geteuid()}-{os.urandom(3).hex()}"))
            self.addCleanup(shutil.rmtree, names[name], ignore_errors=True)
            (names[name] / "lock").write_text("" if name == "made" else "tierd run 1\n")
        with open(names["held"] / "lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.run_script("epilog", self.work)
        self.assertEqual({name: path.exists() for name, path in names.items()}, {"gone": False, "held": True, "made": True})

    @unittest.skipUnless(os.geteuid() == 0, "an epilog runs as root")
    def test_what_a_user_owns_is_opened_as_the_user(self):
        """What the lock is by then may be a link to anywhere."""
        name = pathlib.Path(f"/tmp/tierd-run-65534-{os.urandom(3).hex()}")
        name.mkdir(0o700)
        self.addCleanup(shutil.rmtree, name, ignore_errors=True)
        (name / "lock").write_text("tierd run 1\n")
        os.chown(name / "lock", 65534, 65534)
        os.chown(name, 65534, 65534)
        seen = pathlib.Path(tempfile.mkdtemp(dir="/tmp")) / "uid"
        self.addCleanup(shutil.rmtree, seen.parent)
        seen.parent.chmod(0o777)
        self.work.chmod(0o755)
        self.program("flock", f'id -u >{seen}; exec /usr/bin/flock "$@"')
        self.run_script("epilog", self.work, uid="65534")
        self.assertEqual(seen.read_text(), "65534\n")
        self.assertFalse(name.exists())

    def test_nothing_to_work_with(self):
        for scratch in (self.work / "none" / "below", "/proc/none", "/dev/null/x"):
            for script in ("prolog", "epilog", "taskprolog"):
                for job in ("17", "", "../17", "1 2"):
                    self.run_script(script, scratch, job, "")

    def test_a_busy_node(self):
        """Everything takes its time: the job's directory goes all the same, also what an earlier epilog could not remove."""
        for name in ("mv", "rm"):
            self.program(name, f'sleep 0.3; exec /bin/{name} "$@"')
        scratch = self.work / "scratch"
        for name in ("job.17", ".gone.16", "job.18"):
            (scratch / name / "ssd").mkdir(parents=True)
        self.run_script("epilog", scratch)
        self.assertTrue(eventually(lambda: os.listdir(scratch) == ["job.18"], 5), os.listdir(scratch))

    def test_everything_hangs(self):
        """Each thing that a script does: two seconds are for all of it together."""
        for name in ("mkdir", "mv", "rm", "flock", "pgrep", "chown"):
            self.program(name, "exec sleep 100")
        self.program("sleep", 'case $1 in 100) exec /bin/sleep 100 ;; esac; exec /bin/sleep 0.1')  # as on a node with more to do than it can
        (self.work / "job.17").mkdir()
        for script in ("prolog", "epilog"):
            self.run_script(script, self.work)

    def test_a_disk_that_hangs(self):
        try:
            disk = SlowSource(self.work, "disk")
        except OSError as why:
            self.skipTest(str(why))
        self.addCleanup(disk.stop)
        (disk.backing / "job.17").mkdir()
        for operation in ("lookup", "mkdir", "rename", "getattr"):
            disk.ctl("fault", "add", f"op={operation}", "errno=hang")
        for script in ("prolog", "epilog"):
            self.run_script(script, disk.mount)


if __name__ == "__main__":
    unittest.main(verbosity=2)
