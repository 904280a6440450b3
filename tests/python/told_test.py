"""announce: what is told as certain is what is read, whichever generator sampler and loader draw from, and where it turns out otherwise that is noticed."""

import collections
import itertools
import types
import unittest
from unittest import mock

import torch
from tierd.torch import _announce, _draws, announce, plan_of
from torch.utils.data import DataLoader, RandomSampler

SAMPLES = 40
EPOCHS = 3


class Told:
    """Stands in for the thread that tells the daemon: the orders that it would have, of the epoch that begins and those behind it."""

    def __init__(self, *_):
        self.orders, self.epochs = iter(()), []
        Told.last = self

    def tell(self, plan):
        self.orders, self.plan = plan.orders(), plan
        self.epochs.append(plan.epochs)

    def stands_at(self, plan):
        self.epochs.append(None)


NOBODY = types.SimpleNamespace(prefetch=lambda paths: 0, stats=lambda: types.SimpleNamespace(connected=False))


class ToldTest(unittest.TestCase):
    def setUp(self):
        patched = mock.patch.object(_announce, "Telling", Told)
        patched.start()
        self.addCleanup(patched.stop)
        torch.manual_seed(5)
        self.paths = [f"/none/{i}" for i in range(SAMPLES)]

    def loader(self, of_sampler, of_loader, workers=0, persistent=False, **of_random):
        sampler = RandomSampler(self.paths, generator=of_sampler, **of_random)
        return DataLoader(range(SAMPLES), sampler=sampler, batch_size=6, generator=of_loader, num_workers=workers, persistent_workers=persistent)

    def read(self, loader, batches=None):
        return [index for batch in itertools.islice(loader, batches) for index in batch.tolist()]

    def each_pair(self):
        process, own, other = torch.default_generator, torch.Generator().manual_seed(7), torch.Generator().manual_seed(8)
        return itertools.product((None, process, own), (None, process, own, other))

    def test_every_pair_of_generators(self):
        for of_sampler, of_loader in self.each_pair():
            for workers, persistent in ((0, False), (2, False), (2, True)):
                with self.subTest(of_sampler=of_sampler, of_loader=of_loader, workers=workers, persistent=persistent):
                    loader = self.loader(of_sampler, of_loader, workers, persistent)
                    with announce(loader, self.paths, epochs=EPOCHS, client=NOBODY) as told:
                        daemon = Told.last
                        for epoch in range(EPOCHS):
                            self.assertEqual(next(told.plan.orders()), next(plan_of(loader).orders()))
                            order = self.read(loader)
                            self.assertEqual(next(daemon.orders), order, epoch)
                        self.assertEqual((told.mismatches, daemon.epochs), (0, [EPOCHS, *([None] * (EPOCHS - (of_sampler in (None, torch.default_generator))))]))

    def test_who_else_draws_from_the_processes_generator(self):
        for of_sampler in (None, torch.default_generator):
            for more in ({}, dict(num_samples=15), dict(num_samples=95), dict(replacement=True, num_samples=30)):
                with self.subTest(of_sampler=of_sampler, more=more):
                    loader = self.loader(of_sampler, None, **more)
                    with announce(loader, self.paths, epochs=EPOCHS, client=NOBODY) as told:
                        daemon = Told.last
                        for _ in range(EPOCHS):
                            order = self.read(loader)
                            self.assertEqual(next(daemon.orders), order)
                            torch.rand(3)
                        self.assertEqual((told.mismatches, daemon.epochs), (0, [EPOCHS, 1, 1]))

    def test_a_generator_of_its_own_that_others_draw_from(self):
        own = torch.Generator().manual_seed(7)
        loader = self.loader(own, own)
        with announce(loader, self.paths, epochs=4, client=NOBODY) as told:
            daemon = Told.last
            for mismatches in (0, 1, 2, 2):
                order = self.read(loader)
                self.assertEqual((next(daemon.orders), told.mismatches), (order, mismatches))
                torch.rand(3, generator=own)
            self.assertEqual(daemon.epochs, [4, None, 3, 1, 1])

    def test_an_epoch_that_is_cut_short_draws_less(self):
        for of_sampler, mismatches, said in ((None, 0, [5, None, None, None]), (torch.Generator().manual_seed(7), 1, [5, None, 4, None, None])):
            loader = self.loader(of_sampler, of_sampler)
            with announce(loader, self.paths, epochs=5, client=NOBODY) as told:
                daemon = Told.last
                self.read(loader, 2)  # a look at a batch
                next(daemon.orders)
                for _ in range(3):
                    order = self.read(loader)
                    self.assertEqual(next(daemon.orders), order)
                self.assertEqual((told.mismatches, daemon.epochs), (mismatches, said))

    def test_how_many_numbers_an_order_takes(self):
        for samples, more in ((1, {}), (2, {}), (700, {}), (700, dict(num_samples=7)), (700, dict(num_samples=2000)), (700, dict(replacement=True, num_samples=64)),
                              (700, dict(replacement=True, num_samples=65)), (1_500_000, {})):
            for generator in (None, torch.Generator().manual_seed(7)):
                sampler = RandomSampler(range(samples), generator=generator, **more)
                plan = plan_of(sampler)
                collections.deque(sampler, 0)
                self.assertEqual(_draws.behind(plan.start, plan.order_draws), plan_of(sampler).start, (samples, more))


if __name__ == "__main__":
    unittest.main()
