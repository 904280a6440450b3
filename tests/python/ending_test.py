"""A program that announced its order may end at any time: nobody is waited for, nothing is left lying about, and the exit code is its own."""

import glob
import socket
import time
import unittest

import rig

BEGINNING = """
import os, sys, time, threading, torch
from tierd.torch import _draws, announce
from torch.utils.data import DataLoader, SequentialSampler
paths = [f"{sys.argv[1]}/{i}" for i in range(100_000)]
sampler = SequentialSampler(paths)
"""


class EndingTest(rig.DaemonTest):
    def ends(self, code, seconds=60):
        begun = time.monotonic()
        ended = rig.run_python(BEGINNING + code, str(self.rig.source), env={"TIERD_SOCKET": self.rig.socket})
        self.assertLess(time.monotonic() - begun, seconds)
        return ended

    def test_while_an_order_is_drawn(self):
        drawing = """
begun = threading.Event()
def draw(self, n):
    begun.set()
    for _ in range(60): order = torch.randperm(n)
    return order.tolist()
_draws.TorchDraws.randperm = draw
loader = DataLoader(paths, shuffle=True, generator=torch.Generator())
told = announce(loader, paths, epochs=3)
begun.wait()
"""
        for end, code in ("raise SystemExit(7)", 7), ("raise RuntimeError", 1):
            with self.subTest(end):
                self.assertEqual(self.ends(drawing + end).returncode, code)

    def test_while_the_list_is_written(self):
        for end, code in ("", 0), ("os.kill(os.getpid(), 9)", -9):
            with self.subTest(end):
                ended = self.ends("""
class Slow(list):
    def __getitem__(self, index):
        if index == 1000: begun.set()
        time.sleep(0.001)
        return super().__getitem__(index)
begun = threading.Event()
told = announce(sampler, Slow(paths))
begun.wait()
""" + end, seconds=50)  # the list takes twice as long
                self.assertEqual((ended.returncode, ended.stderr), (code, ""))
                self.assertEqual(glob.glob(f"{self.rig.base}/run/plan-*"), [])

    def test_while_a_daemon_does_not_answer(self):
        (self.rig.base / "hung").mkdir()
        with socket.socket(socket.AF_UNIX) as hung:
            hung.bind(str(self.rig.base / "hung" / "control.sock"))
            hung.listen()
            code = "import tierd\ntold = announce(sampler, paths, client=tierd.Client(sys.argv[1] + '/../hung/tierd.sock'))\n"
            for when in "", "time.sleep(0.5)":  # as it is about to ask, and when it has asked
                with self.subTest(when):
                    ended = self.ends(code + when, seconds=40)
                    self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_a_child_leaves_the_parents_alone(self):
        ended = self.ends("""
told = announce(sampler, paths)
if os.fork() == 0:
    sys.exit(0)  # all of an exit, unlike os._exit
assert os.wait()[1] == 0
assert told.active and {"tierd-announce", "tierd-plan"} <= {thread.name for thread in threading.enumerate()}
assert list(sampler) == list(range(len(paths)))
""")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
