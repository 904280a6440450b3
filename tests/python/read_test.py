"""tierd.read, view, get_batch and the rest of the module, against open() and a real daemon."""

import errno
import gc
import os
import pathlib
import pickle
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

import numpy as np
import rig
import tierd

SIZES = [0, 1, 2, 7, 4095, 4096, 110 << 10, 300 << 10, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9 << 20]


class ReadTest(rig.DaemonTest):
    default = True

    @classmethod
    def fill(cls):
        cls.paths = {size: cls.rig.write(f"d/file-{size}", size) for size in SIZES}

    def tearDown(self):
        gc.collect()
        self.assertEqual(tierd.stats().leases, 0)

    def expected(self, size):
        return rig.content(f"d/file-{size}", size)

    def test_read_gives_what_open_gives(self):
        for size, path in self.paths.items():
            for _ in range(3):  # cold, then from RAM
                self.assertEqual(tierd.read(path), self.expected(size), size)
        self.assertGreater(tierd.stats().reads["ram"], len(SIZES))
        self.assertEqual(tierd.stats().fallback, {})

    def test_read_takes_every_kind_of_path(self):
        path = self.paths[4096]
        previous = os.getcwd()
        os.chdir(self.rig.source)
        try:
            for form in (path, os.fsencode(path), pathlib.Path(path), "d/file-4096", "./d/../d/file-4096"):
                self.assertEqual(tierd.read(form), self.expected(4096))
        finally:
            os.chdir(previous)

    def test_view_is_the_file_and_read_only(self):
        for size, path in self.paths.items():
            view = tierd.view(path)
            self.assertEqual((view.readonly, view.format, view.itemsize, view.ndim, view.nbytes, view.contiguous), (True, "B", 1, 1, size, True))
            self.assertEqual(view.tobytes(), self.expected(size))
            if size:
                self.assertEqual((view[0], view[-1]), (self.expected(size)[0], self.expected(size)[-1]))
                with self.assertRaises(TypeError):
                    view[0] = 1
                array = np.frombuffer(view, np.uint8)
                self.assertFalse(array.flags.writeable)

    def test_lease_ends_with_the_last_reference(self):
        path = self.paths[110 << 10]
        tierd.read(path)
        view = tierd.view(path)
        self.assertEqual(tierd.stats().leases, 1)
        part = view[10:20]
        array = np.frombuffer(part, np.uint8)
        tail = array[5:]
        del view, part, array
        gc.collect()
        self.assertEqual(tierd.stats().leases, 1)
        self.assertEqual(tail.tobytes(), self.expected(110 << 10)[15:20])
        del tail
        self.assertEqual(tierd.stats().leases, 0)

    def test_released_view_ends_the_lease(self):
        path = self.paths[4096]
        with tierd.view(path) as view:
            self.assertEqual(bytes(view[:4]), self.expected(4096)[:4])
        self.assertEqual(tierd.stats().leases, 0)

    def test_lease_in_a_reference_cycle_ends_with_the_collector(self):
        cycle = [tierd.view(self.paths[4096])]
        cycle.append(cycle)
        del cycle
        gc.collect()
        self.assertEqual(tierd.stats().leases, 0)

    def test_interrupts_lose_no_lease(self):
        """^C comes between any two bytecodes: after the library has given a view, and while one is given back."""
        path = self.paths[4096]
        tierd.read(path)

        def once():
            view = tierd.view(path)
            view = None
            tierd.read(path)
            view = tierd.get_batch([path, path])
            view = None

        rig.interrupt_often(1000, once)
        gc.collect()
        self.assertEqual(tierd.stats().leases, 0)

    def test_close_ends_the_connection(self):
        """Also that of a client that has read: what it keeps for the next read does not hold it."""
        def sockets():
            return sum(os.path.lexists(entry) and os.readlink(entry).startswith("socket:") for entry in pathlib.Path("/proc/self/fd").iterdir())

        for read in (tierd.Client.read, tierd.Client.view, lambda client, path: client.get_batch([path])):
            client = tierd.Client(self.rig.socket)
            read(client, self.paths[4096])
            before = sockets()
            client.close()
            self.assertEqual(sockets(), before - 1)

    def test_more_views_than_the_cap_are_copies(self):
        path = self.paths[4096]
        views = [tierd.view(path) for _ in range(3000)]
        self.assertTrue(all(view == self.expected(4096) for view in views))
        self.assertLess(tierd.stats().leases, 3000)

    def test_views_end_on_any_thread(self):
        path = self.paths[110 << 10]

        def churn():
            for i in range(300):
                held = [tierd.view(path) for _ in range(i % 7)]
                if held and held[-1][5] != self.expected(110 << 10)[5]:
                    wrong.append(i)

        wrong = []
        threads = [threading.Thread(target=churn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_errors_are_those_of_open(self):
        missing = str(self.rig.source / "missing")
        for bad in (missing, os.fsencode(missing), str(self.rig.source), self.paths[1] + "/below", "/" + "x" * 5000, str(self.rig.source / "x") + "/x" * 3000, ""):
            with self.assertRaises(OSError) as wanted:
                open(bad, "rb")
            for call in (tierd.read, tierd.view, tierd.open, lambda path: tierd.get_batch([path])):
                with self.assertRaises(type(wanted.exception)) as got:
                    call(bad)
                self.assertEqual((got.exception.errno, got.exception.filename), (wanted.exception.errno, bad))
        self.assertFalse({"hung", "timeout"} & set(tierd.stats().fallback), "nothing of it kept the daemon busy")
        with self.assertRaises(FileNotFoundError) as got:
            tierd.read(pathlib.Path(missing))
        self.assertEqual(got.exception.filename, missing)
        for call in (tierd.read, tierd.view, tierd.stat, tierd.prefetch):
            self.assertRaisesRegex(ValueError, "null byte", call, "/a\0b")
            self.assertRaises(TypeError, call, 3)

    def test_a_device_is_read_as_open_reads_it(self):
        path = os.path.join(self.rig.base, "pipe")
        os.mkfifo(path)
        for call in (tierd.read, tierd.view, lambda path: tierd.get_batch([path])):
            with self.assertRaises(OSError) as got:
                call(path)
            self.assertEqual((got.exception.errno, got.exception.filename), (errno.EINVAL, path), "and does not wait")
        for call in (tierd.read, tierd.view, lambda path: tierd.get_batch([self.paths[7], path])[1], lambda path: tierd.get_batch([path], errors="return")[0]):
            self.assertEqual(bytes(call("/dev/null")), b"")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path + ".socket")
            for call in (tierd.read, tierd.view, lambda path: tierd.get_batch([path])):
                with self.assertRaises(OSError) as got:
                    call(path + ".socket")
                self.assertEqual((got.exception.errno, got.exception.filename), (errno.ENXIO, path + ".socket"))
            first, error = tierd.get_batch([self.paths[7], path + ".socket"], errors="return")
        self.assertEqual((bytes(first), error.errno), (self.expected(7), errno.ENXIO))

    def test_get_batch_in_order_and_with_errors(self):
        missing = str(self.rig.source / "missing")
        wanted = list(self.paths) * 3
        views = tierd.get_batch(self.paths[size] for size in wanted)
        self.assertEqual([bytes(view) for view in views], [self.expected(size) for size in wanted])
        self.assertEqual(tierd.get_batch([]), [])
        self.assertRaises(TypeError, tierd.get_batch, self.paths[1])
        with self.assertRaises(FileNotFoundError):
            tierd.get_batch([self.paths[1], missing])
        first, error, last = tierd.get_batch([self.paths[1], missing, self.paths[7]], errors="return")
        self.assertEqual((bytes(first), error.errno, bytes(last)), (self.expected(1), errno.ENOENT, self.expected(7)))

    def test_a_batch_that_raises_keeps_nothing(self):
        missing = str(self.rig.source / "missing")
        batch = [self.paths[4096]] * 49 + [missing]
        gc.disable()
        self.addCleanup(gc.enable)
        for _ in range(20):
            try:  # assertRaises would clear the frames
                tierd.get_batch(batch)
                self.fail("nothing raised")
            except FileNotFoundError as error:
                self.assertEqual(error.filename, missing)
                held = tierd.stats().leases
        self.assertEqual((held, tierd.stats().leases), (0, 0))

    def test_views_of_a_batch_end_one_by_one(self):
        views = tierd.get_batch([self.paths[4095], self.paths[4096]])
        self.assertEqual(tierd.stats().leases, 2)
        del views[0]
        self.assertEqual(tierd.stats().leases, 1)

    def test_stat_shows_times_that_the_cache_cannot_hold(self):
        path = self.rig.write("year-2400", 10)
        os.utime(path, (13_569_465_600, 13_569_465_600))
        for _ in range(2):
            self.assertEqual(tierd.stat(path), os.stat(path))
            self.assertEqual(tierd.stat(path).st_mtime_ns, os.stat(path).st_mtime_ns)
        self.assertEqual(tierd.read(path), rig.content("year-2400", 10))

    def test_stat_and_scandir(self):
        path = self.paths[4096]
        late = 4 * 10**18  # an atime that no read moves (relatime)
        os.utime(path, ns=(late, os.stat(path).st_mtime_ns))
        tierd.invalidate(path)
        tierd.read(path)
        real, ours = os.stat(path), tierd.stat(path)
        for field in ("st_mode", "st_ino", "st_dev", "st_uid", "st_gid", "st_size", "st_atime_ns", "st_mtime_ns", "st_ctime_ns"):
            self.assertEqual(getattr(ours, field), getattr(real, field), field)
        self.assertEqual(ours.st_blocks, (ours.st_size + 4095) // 4096 * 8)  # as under tierctl run
        dice = random.Random(1)
        for n in range(300):  # to the last bit, and some times have more of them than a float
            os.utime(path, ns=(late + dice.randrange(10**17), 1_700_000_000_000_000_000 + dice.randrange(10**17)))
            tierd.invalidate(path)
            real, ours = os.stat(path), tierd.stat(path)
            for field in ("st_atime", "st_mtime", "st_ctime", "st_atime_ns", "st_mtime_ns", "st_rdev", "st_blocks", "st_blksize"):
                self.assertEqual(getattr(ours, field), getattr(real, field), (field, n))
        self.assertEqual(sorted(entry.name for entry in tierd.scandir(self.rig.source / "d")), sorted(os.listdir(self.rig.source / "d")))
        self.assertRaises(NotADirectoryError, tierd.scandir, path)

    def test_invalidate_shows_own_writes_at_once(self):
        path = self.rig.write("changing", 5000)
        self.assertEqual(tierd.read(path), rig.content("changing", 5000))
        self.rig.write("changing", 5000, version=2)
        self.assertEqual(tierd.invalidate(path), 1)
        self.assertEqual(tierd.read(path), rig.content("changing", 5000, 2))

    def test_prefetch_and_evict(self):
        path = self.rig.write("ahead", 5000)
        self.assertEqual(tierd.prefetch(path), 1)
        before = tierd.stats().reads["ram"]

        def in_ram():
            tierd.read(path)
            return tierd.stats().reads["ram"] > before

        self.eventually(in_ram)
        self.assertEqual(tierd.evict([path]), 1)
        self.assertRaises(FileNotFoundError, tierd.prefetch, "/nowhere/at/all")

    def in_ram(self, path):
        before = tierd.stats().reads["ram"]
        tierd.read(path)
        return tierd.stats().reads["ram"] > before

    def test_directories_stand_for_all_below_them(self):
        paths = [self.rig.write(f"tree/{i % 3}/{i}", 5000) for i in range(12)]
        tree = str(self.rig.source / "tree")
        self.assertEqual(tierd.prefetch(tree), 1)
        for path in paths:
            self.eventually(lambda path=path: self.in_ram(path))
        self.assertGreaterEqual(tierd.evict(tree), 12)
        self.assertEqual(tierd.pin([tree]), 1)
        for path in paths:
            self.eventually(lambda path=path: self.in_ram(path))
        self.assertGreaterEqual(tierd.unpin(tree), 12)
        for advise in (tierd.prefetch, tierd.pin):
            self.assertRaises(IsADirectoryError, advise, tree, recursive=False)

    def test_advice_that_cannot_be_taken_says_why(self):
        for advise in (tierd.prefetch, tierd.pin):
            self.assertRaises(FileNotFoundError, advise, self.rig.source / "missing")
        for advise in (tierd.prefetch, tierd.pin, tierd.evict, tierd.unpin):
            for paths in ("/etc", ["/etc", self.paths[7]]):
                with self.assertRaisesRegex(FileNotFoundError, f"below no source of tierd .*{self.rig.source}"):
                    advise(paths)
        self.assertEqual(tierd.evict(self.rig.source / "missing"), 0)

    def test_job_stats_count_other_processes(self):
        """As a DataLoader's parent asks, which reads nothing itself."""
        before = tierd.job_stats()
        script = f"import tierd\nfor _ in range(20): tierd.read({self.paths[7]!r})"
        subprocess.run([sys.executable, "-c", script], check=True)
        self.eventually(lambda: sum(tierd.job_stats().reads.values()) == sum(before.reads.values()) + 20)
        self.assertGreaterEqual(tierd.job_stats().bytes["ram"], before.bytes["ram"] + 19 * 7)
        self.assertGreaterEqual(tierd.job_stats().processes, 1)

    def test_client_of_its_own(self):
        with tierd.Client(self.rig.socket, timeout=0.5, require_daemon=True) as own:
            view = own.view(self.paths[4096])
            self.assertEqual(own.read(self.paths[7]), self.expected(7))
            again = pickle.loads(pickle.dumps(own))
            self.assertEqual(again.read(self.paths[7]), self.expected(7))
        self.assertEqual(bytes(view), self.expected(4096))  # outlives close()
        for call in (own.read, own.view, own.open, own.stat, own.scandir, own.prefetch):
            self.assertRaises(ValueError, call, self.paths[7])
        self.assertRaises(ValueError, own.get_batch, [self.paths[7]])
        own.close()
        for call in (tierd.Client.get_batch, tierd.Client.prefetch, tierd.Client.evict):  # a path that closes it: the process's client is another one
            own = tierd.Client(self.rig.socket)
            self.assertRaisesRegex(ValueError, "closed", call, own, (own.close() or path for path in self.paths.values()))
        with self.assertRaises(ConnectionRefusedError):
            tierd.Client(self.rig.base / "none.sock", require_daemon=True)
        for timeout in (5, 0, -1, 2**32 / 1000 + 0.001, float("nan"), float("inf")):
            self.assertRaisesRegex(ValueError, "0.001 to 1", tierd.Client, timeout=timeout)
        self.assertIs(tierd.client(), tierd.client())
        tierd.client().close()  # nothing happens
        self.assertEqual(tierd.read(self.paths[7]), self.expected(7))


class WithoutDaemonTest(unittest.TestCase):
    def setUp(self):
        self.rig = rig.Rig()
        self.addCleanup(self.rig.close)
        self.path = self.rig.write("file", 300 << 10)
        self.expected = rig.content("file", 300 << 10)

    def test_everything_comes_from_the_source(self):
        with tierd.Client(self.rig.socket) as alone:
            self.assertEqual(alone.read(self.path), self.expected)
            self.assertEqual(bytes(alone.view(self.path)), self.expected)
            self.assertEqual([bytes(view) for view in alone.get_batch([self.path] * 2)], [self.expected] * 2)
            with alone.open(self.path) as file:
                self.assertEqual(file.read(), self.expected)
            self.assertEqual(alone.stat(self.path).st_size, 300 << 10)
            self.assertEqual([entry.name for entry in alone.scandir(self.rig.source)], ["file"])
            self.assertEqual((alone.prefetch(self.path), alone.evict(self.path), alone.invalidate(self.path)), (0, 0, 0))
            counted = alone.stats()
        self.assertEqual((counted.connected, counted.reads["bypass"]), (False, 5))
        self.assertEqual(set(counted.fallback), {"no_daemon"})

    def test_other_threads_run_while_a_call_waits(self):
        other = self.rig.write("other", 1000)
        self.rig.start()
        with tierd.Client(self.rig.socket, timeout=1) as own:
            own.read(self.path)
            own.read(self.path)  # a hit: the next call takes the way that does not wait, and has to leave it
            os.kill(self.rig.daemon.pid, signal.SIGSTOP)
            ticks, done = [time.monotonic()], threading.Event()

            def tick():
                while not done.wait(0.005):
                    ticks.append(time.monotonic())

            ticker = threading.Thread(target=tick)
            ticker.start()
            start = time.monotonic()
            self.assertEqual(own.read(other), rig.content("other", 1000))
            waited = time.monotonic() - start
            done.set()
            ticker.join()
            os.kill(self.rig.daemon.pid, signal.SIGCONT)
        gaps = [b - a for a, b in zip(ticks, ticks[1:])]
        self.assertGreater(waited, 0.5)
        self.assertLess(max(gaps), waited / 2)

    def test_other_threads_run_while_stats_waits_for_a_connection(self):
        events, called = [], threading.Event()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, tierd.Client(self.rig.socket) as own:
            listener.bind(self.rig.socket)
            listener.listen()
            reader = threading.Thread(target=lambda: events.append(own.read(self.path) == self.expected))

            def count():
                called.set()
                own.stats()
                events.append("counted")

            counter = threading.Thread(target=count)
            interval = sys.getswitchinterval()
            sys.setswitchinterval(10)  # who has the interpreter's lock keeps it until it waits
            self.addCleanup(sys.setswitchinterval, interval)
            reader.start()
            with listener.accept()[0]:  # it waits to be greeted
                counter.start()
                called.wait()
                events.append("another thread")
            reader.join()
            counter.join()
        self.assertEqual(events[0], "another thread")
        self.assertCountEqual(events[1:], [True, "counted"])

    def test_daemon_may_die_and_come_back(self):
        self.rig.start()
        with tierd.Client(self.rig.socket) as own:
            view = own.view(self.path)
            self.rig.kill()
            self.assertEqual(bytes(view), self.expected)
            for _ in range(20):
                self.assertEqual(own.read(self.path), self.expected)
            del view
            self.rig.start()
            self.assertEqual(own.read(self.path), self.expected)


if __name__ == "__main__":
    unittest.main()
