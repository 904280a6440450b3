"""Views, files and clients over fork (F53), in threads, and at the end of the interpreter."""

import os
import signal
import unittest

import rig
import tierd


def in_child(body):
    """Runs body() in a forked child; True if it returned True."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        good = False
        try:
            good = body()
        finally:
            os._exit(0 if good else 1)
    return os.waitpid(pid, 0)[1] == 0


class ForkTest(rig.DaemonTest):
    default = True

    @classmethod
    def fill(cls):
        cls.paths = [cls.rig.write(f"file-{i}", 100_000) for i in range(20)]
        cls.contents = [rig.content(f"file-{i}", 100_000) for i in range(20)]

    def test_inherited_view_is_valid_and_may_end_in_both(self):
        view = tierd.view(self.paths[0])
        self.assertTrue(in_child(lambda: bytes(view) == self.contents[0]))
        self.assertEqual(bytes(view), self.contents[0])
        expected = self.contents[0]

        def child():
            nonlocal view
            same = bytes(view) == expected
            del view
            return same and tierd.read(self.paths[1]) == self.contents[1]

        self.assertTrue(in_child(child))
        self.assertEqual(bytes(view), expected)

    def test_inherited_view_outlives_the_parents(self):
        view = tierd.view(self.paths[2])
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            os.read(read_end, 1)
            os._exit(0 if bytes(view) == self.contents[2] else 1)
        del view
        for _ in range(3):  # what the daemon could give away, it gives away now
            tierd.evict(self.paths)
            for path in self.paths:
                tierd.read(path)
        os.write(write_end, b"x")
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        os.close(read_end)
        os.close(write_end)

    def test_child_reads_on_everything_it_inherited(self):
        file = tierd.open(self.paths[3])
        own = tierd.Client(self.rig.socket)
        tierd.read(self.paths[4])

        def child():
            return (file.read() == self.contents[3] and own.read(self.paths[5]) == self.contents[5] and tierd.read(self.paths[4]) == self.contents[4]
                    and tierd.stats().reads["bypass"] == 0)

        self.assertTrue(in_child(child))
        self.assertEqual(file.read(), self.contents[3])
        self.assertEqual(own.read(self.paths[6]), self.contents[6])

    def test_many_children_at_once(self):
        view = tierd.view(self.paths[7])
        pids = []
        for _ in range(8):
            pid = os.fork()
            if pid == 0:
                good = all(tierd.read(p) == c for p, c in zip(self.paths, self.contents)) and bytes(view) == self.contents[7]
                os._exit(0 if good else 1)
            pids.append(pid)
        self.assertEqual([os.waitpid(pid, 0)[1] for pid in pids], [0] * 8)


class ExitTest(rig.DaemonTest):
    """Nothing on stderr, exit code 0, whatever is alive when the interpreter ends."""

    @classmethod
    def fill(cls):
        cls.path = cls.rig.write("file", 100_000)

    def ends_well(self, code):
        ended = rig.run_python("import sys, tierd\npath = sys.argv[1]\n" + code, self.path, env={"TIERD_SOCKET": self.rig.socket})
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout

    def test_views_in_globals(self):
        self.ends_well("held = tierd.view(path)\nimport numpy\narray = numpy.frombuffer(held, 'u1')")

    def test_views_in_a_module_and_in_a_cycle(self):
        self.ends_well("import os\nos.held = [tierd.view(path)]\nos.held.append(os.held)\nfile = tierd.open(path)\nclient = tierd.Client()\nview = client.view(path)")

    def test_in_atexit_and_in_del(self):
        out = self.ends_well("""
import atexit
class Late:
    def __del__(self): print(len(self.view))
late = Late(); late.view = tierd.view(path)
atexit.register(lambda: print(len(tierd.read(path))))
""")
        self.assertEqual(out.split(), ["100000", "100000"])

    def test_with_threads_that_read(self):
        self.ends_well("""
import threading
def go():
    while True: tierd.view(path), tierd.read(path)
for _ in range(3): threading.Thread(target=go, daemon=True).start()
import time; time.sleep(.3)
""")

    def test_leases_are_gone_with_the_process(self):
        self.ends_well("import os\nheld = [tierd.view(path) for _ in range(10)]\nos.kill(os.getpid(), 0)")
        self.eventually(lambda: self.rig.status()["sessions"] in (0, []) or self.rig.status().get("leases", 0) == 0)


if __name__ == "__main__":
    unittest.main()
