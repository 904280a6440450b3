"""announce beside files and settings that tierd has no part in: the look-ahead goes on with the rest at speed, and a program that switched tierd off is told of nowhere."""

import os
import threading
import unittest
from unittest import mock

import rig
import tierd
from tierd.torch import FileDataset, _prefetch, announce
from torch.utils.data import DataLoader, SequentialSampler

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

    def test_nothing_is_told_for_who_switched_tierd_off(self):
        for value, off in ("1", True), ("no", True), ("0", False), ("", False):
            with self.subTest(value), mock.patch.dict(os.environ, TIERD_DISABLE=value), tierd.Client(self.rig.socket) as client:
                loader = DataLoader(FileDataset(self.inside, len), batch_size=10)
                with announce(loader, loader.dataset, client=client):
                    list(loader)
                    if off:
                        self.assertFalse([thread for thread in threading.enumerate() if thread.name == "tierd-plan"])
                    self.eventually(lambda: len(self.rig.control("GET", "/v1/plans")["plans"]) == (0 if off else 1))
            self.eventually(lambda: not self.rig.control("GET", "/v1/plans")["plans"])


if __name__ == "__main__":
    unittest.main()
