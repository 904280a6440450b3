"""run_signals_test.py TIERCTL: to signals, stops and the terminal a command under `tierctl run` behaves as without it, and so does the job as a whole."""

import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TIERCTL = sys.argv.pop(1)


def eventually(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def state_of(pid):
    """The letter of /proc/PID/stat."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class SignalsTest(unittest.TestCase):
    def setUp(self):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="tierd-signals-"))
        self.addCleanup(lambda: self.assertTrue(eventually(self.is_removed)))
        (self.base / "source").mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self.base), "XDG_CONFIG_HOME": str(self.base / "config"), "XDG_RUNTIME_DIR": str(self.base / "none")}

    def is_removed(self):
        """A daemon whose wrapper was killed ends some seconds later, and writes until then."""
        shutil.rmtree(self.base, ignore_errors=True)
        return not self.base.exists()

    def line(self, script):
        """`tierctl run` of a shell script, in which "$D" is the directory."""
        return [TIERCTL, "run", "-q", "--source", str(self.base / "source"), "--ram", "64 MiB", "--no-preload", "--", "/bin/bash", "-c", f"D={self.base}\n{script}"]

    def start(self, script, **more):
        """In a process group of its own, as a shell starts a job. A shell, we, is there to continue what stops."""
        return self.started(self.line(script), **more)

    def started(self, line, **more):
        job = subprocess.Popen(line, env=self.environment, process_group=0, **more)
        self.addCleanup(job.wait)
        self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
        return job

    # Takes each SIGUSR1 at once and writes a line; ends with 5 at a SIGTERM.
    COUNTING = """import os, signal, sys
taken = {signal.SIGUSR1, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, taken)
os.chdir(sys.argv[1])
open("tmp", "w").write(str(os.getpid()))
os.rename("tmp", "pid")
got = os.open("got", os.O_WRONLY | os.O_CREAT)
while True:
    number = signal.sigwait(taken)
    os.write(got, b"got\\n")
    if number == signal.SIGTERM: sys.exit(5)
"""

    def counting(self):
        return [*self.line("")[:-3], sys.executable, "-c", self.COUNTING, str(self.base)]

    def has(self, name):
        return eventually((self.base / name).exists)

    def pid_in(self, name):
        self.assertTrue(self.has(name))
        return int((self.base / name).read_text())

    def got(self):
        path = self.base / "got"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def quiet_at(self, number):
        """`number` signals have come, and no more do."""
        if not eventually(lambda: self.got() >= number):
            return False
        time.sleep(0.15)  # what is passed on too much comes within some 20 ms
        return self.got() == number

    def test_a_signal_to_the_group_comes_once(self):
        job = self.started(self.counting())
        self.pid_in("pid")
        for number in range(1, 6):
            os.killpg(job.pid, signal.SIGUSR1)
            self.assertTrue(self.quiet_at(number), f"{self.got()} of {number}")
        os.kill(job.pid, signal.SIGTERM)
        self.assertEqual(job.wait(20), 5)

    def test_a_signal_to_the_wrapper_is_passed_on(self):
        job = self.started(self.counting())
        self.pid_in("pid")
        for number in range(1, 6):
            os.kill(job.pid, signal.SIGUSR1)
            self.assertTrue(self.quiet_at(number), f"{self.got()} of {number}")
        os.kill(job.pid, signal.SIGTERM)
        self.assertEqual(job.wait(20), 5)

    # Those that a scheduler, a limit or a library sends, real-time ones among them: the command has handlers, the wrapper must not end of them.
    HANDLING = """import os, signal, sys
os.chdir(sys.argv[1])
numbers = [int(number) for number in sys.argv[2:]]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
open("tmp", "w").write(str(os.getpid()))
os.rename("tmp", "pid")
got = os.open("got", os.O_WRONLY | os.O_CREAT)
while True:
    number = signal.sigwaitinfo(numbers).si_signo
    os.write(got, b"%d\\n" % number)
    if number == signal.SIGTERM: sys.exit(5)
"""

    def test_any_signal_that_can_be_handled_is_passed_on(self):
        numbers = [signal.SIGXCPU, signal.SIGXFSZ, signal.SIGABRT, signal.SIGIO, signal.SIGPWR, signal.SIGVTALRM, signal.SIGPROF, signal.SIGPIPE, signal.SIGSEGV,
                   signal.SIGRTMIN, signal.SIGRTMIN + 1, signal.SIGRTMAX, signal.SIGTERM]
        job = self.started([*self.line("")[:-3], sys.executable, "-c", self.HANDLING, str(self.base), *(str(int(number)) for number in numbers)])
        self.pid_in("pid")
        for count, number in enumerate(numbers, 1):
            os.kill(job.pid, number)
            self.assertTrue(eventually(lambda: self.got() >= count), f"{number} did not come")
        self.assertEqual(job.wait(20), 5)
        self.assertEqual((self.base / "got").read_text().split(), [str(int(number)) for number in numbers])

    def test_a_signal_that_ends_the_command_ends_the_wrapper(self):
        for number in (signal.SIGXCPU, signal.SIGRTMIN + 3):
            job = self.start("echo $$ > $D/tmp; mv $D/tmp $D/pid; exec sleep 60")
            self.pid_in("pid")
            os.kill(job.pid, number)
            self.assertEqual(job.wait(20), -number)
            (self.base / "pid").unlink()

    def test_timeout_ends_it_as_without_us(self):
        for more in ([], ["--foreground"]):
            done = subprocess.run(["timeout", *more, "--preserve-status", "2", *self.counting()], env=self.environment, timeout=30, check=False)
            self.assertEqual((done.returncode, self.got()), (5, 1), more)
            (self.base / "got").unlink()

    def test_a_command_that_somebody_stops_does_not_stop_us(self):
        job = self.start("echo $$ > $D/tmp; mv $D/tmp $D/pid; while [ ! -e $D/done ]; do sleep 0.01; done; exit 5")
        command = self.pid_in("pid")
        os.kill(command, signal.SIGSTOP)
        self.assertTrue(eventually(lambda: state_of(command) == "T"))
        time.sleep(0.15)
        self.assertNotEqual(state_of(job.pid), "T")
        os.kill(command, signal.SIGCONT)
        (self.base / "done").touch()
        self.assertEqual(job.wait(20), 5)

    def test_a_stop_from_the_terminal_stops_the_job_and_fg_continues_it(self):
        job = self.start("echo $$ > $D/tmp; mv $D/tmp $D/pid; while [ ! -e $D/done ]; do sleep 0.01; done; exit 5")
        command = self.pid_in("pid")
        os.killpg(job.pid, signal.SIGTSTP)
        pid, status = os.waitpid(job.pid, os.WUNTRACED)
        self.assertEqual((pid, os.WIFSTOPPED(status) and os.WSTOPSIG(status)), (job.pid, signal.SIGTSTP))
        self.assertEqual(state_of(command), "T")
        os.killpg(job.pid, signal.SIGCONT)
        (self.base / "done").touch()
        self.assertEqual(job.wait(20), 5)

    def test_a_parent_that_ignores_its_children(self):
        seen = "import signal, sys; print(signal.getsignal(signal.SIGCHLD).name)"
        line = [TIERCTL, "run", "-q", "--source", str(self.base / "source"), "--ram", "64 MiB", "--", sys.executable, "-c", seen]
        done = subprocess.run(line, env=self.environment, timeout=30, capture_output=True, text=True, check=False,
                              preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual((done.returncode, done.stdout), (0, "SIG_IGN\n"), done.stderr)

    def test_nothing_that_we_start_keeps_a_pipe_open(self):
        read_end, write_end = os.pipe()
        job = self.started(self.counting(), pass_fds=[write_end])
        os.close(write_end)
        command = self.pid_in("pid")
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
        os.kill(command, signal.SIGTERM)  # it holds the pipe too
        os.set_blocking(read_end, False)
        self.assertTrue(eventually(lambda: self.at_end(read_end), 4))
        os.close(read_end)

    @staticmethod
    def at_end(fd):
        try:
            return os.read(fd, 1) == b""
        except BlockingIOError:
            return False

    def test_it_has_the_terminal(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(TIERCTL, self.line("test -t 0 && read -r answer && echo \"<$answer>\" && exit 7"), self.environment)
        os.write(terminal, b"yes\n")
        seen = b""
        while b"<yes>" not in seen:
            seen += os.read(terminal, 1000)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 7)
        os.close(terminal)

    def test_interrupt_on_the_terminal_ends_it(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(TIERCTL, self.line("echo ready; while true; do sleep 0.05; done"), self.environment)
        seen = b""
        while b"ready" not in seen:
            seen += os.read(terminal, 1000)
        os.write(terminal, b"\x03")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -signal.SIGINT)
        os.close(terminal)

    def test_the_end_of_the_terminal_ends_it(self):
        """The kernel tells the leader of the session alone."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(TIERCTL, self.line("trap 'echo hup >$D/hup; exit 0' HUP; echo ready; while true; do sleep 0.05; done"), self.environment)
        seen = b""
        while b"ready" not in seen:
            seen += os.read(terminal, 1000)
        os.close(terminal)
        ended = eventually(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid)
        if not ended:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.assertTrue(ended)
        self.assertTrue((self.base / "hup").exists())

    def test_what_comes_when_the_command_has_ended_changes_nothing(self):
        """The wrapper waits half a second for what the command has left."""
        for code, last in ((0, "exit 0"), (7, "exit 7"), (-signal.SIGALRM, "kill -ALRM $$")):
            for number in (signal.SIGUSR1, signal.SIGTERM):
                job = self.start(f"sleep 3 >/dev/null 2>&1 & echo $$ >$D/pid.new; mv $D/pid.new $D/pid; {last}", stderr=subprocess.DEVNULL)
                self.assertTrue(eventually((self.base / "pid").exists))
                command = int((self.base / "pid").read_text())
                self.assertTrue(eventually(lambda: not os.path.exists(f"/proc/{command}")))
                time.sleep(0.1)
                os.kill(job.pid, number)
                self.assertEqual(job.wait(), code)
                (self.base / "pid").unlink()


if __name__ == "__main__":
    unittest.main()
