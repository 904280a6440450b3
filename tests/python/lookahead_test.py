"""announce beside files and settings that tierd has no part in: the look-ahead goes on with the rest at speed, and a program that switched tierd off is told of nowhere."""

import threading
import unittest
from unittest import mock

import rig
import tierd
from tierd.torch import _prefetch, announce
from torch.utils.data import SequentialSampler

SAMPLES = 1000


class LookaheadTest(rig.DaemonTest):
    @classmethod
    def fill(cls):
        cls.inside = [cls.rig.write(f"files/{i:03}", 100) for i in range(SAMPLES // 2)]

    def tearDown(self):
        self.eventually(lambda: not any(thread.name in ("tierd-announce", "tierd-plan") for thread in threading.enumerate()))

    def test_what_is_below_no_source_stops_nothing(self):
        beside = [f"{self.rig.base}/beside/{i}" for i in range(SAMPLES // 2)]
        no_names = [f"{self.rig.source}/files/../files/{i:03}" for i in range(SAMPLES // 2)]
        for name, foreign in ("beside", beside), ("no names", no_names):
            for order in self.inside + foreign, [path for pair in zip(foreign, self.inside) for path in pair]:
                pauses, sampler = [], SequentialSampler(order)
                with self.subTest(name), tierd.Client(self.rig.socket) as client, mock.patch.object(_prefetch.Lookahead, "pause", lambda _, seconds: pauses.append(seconds)):
                    with announce(sampler, order, window=SAMPLES, client=client) as told:
                        self.eventually(lambda: told.prefetched >= SAMPLES // 2)
                    self.assertEqual(told.prefetched, SAMPLES // 2)
                    self.assertNotIn(_prefetch._PAUSE_S, pauses)


if __name__ == "__main__":
    unittest.main()
