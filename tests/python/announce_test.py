"""announce: the order stays, the files are there before they are read, and it ends with the loader."""

import gc
import os
import signal
import threading
import types
import unittest
import warnings
import weakref
from unittest import mock

import rig
import tierd
import torch
from announce_rig import FILES, AnnounceTest, Recorder
from tierd.torch import FileDataset, _telling, announce, plan_of
from tierd.torch._draws import TorchDraws
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler


class OrderTest(AnnounceTest):
    def loaders(self):
        """Every kind, made anew in the same state each time."""
        data = FileDataset(self.paths, len)
        own = torch.Generator().manual_seed(4)
        return {
            "sequential": DataLoader(data, batch_size=7),
            "shuffle": DataLoader(data, batch_size=7, shuffle=True),
            "shuffle, generator": DataLoader(data, batch_size=7, shuffle=True, generator=own),
            "generator of the sampler": DataLoader(data, batch_size=7, sampler=RandomSampler(data, generator=torch.Generator().manual_seed(4))),
            "replacement": DataLoader(data, sampler=RandomSampler(data, replacement=True, num_samples=130), batch_size=7, drop_last=True),
            "distributed": DataLoader(data, batch_size=7, sampler=DistributedSampler(data, 4, 1, seed=3)),
            "distributed, drop_last": DataLoader(data, batch_size=7, sampler=DistributedSampler(data, 5, 4, drop_last=True), drop_last=True),
            "batch_sampler": DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 5, True)),
            "workers": DataLoader(data, batch_size=7, shuffle=True, num_workers=2),
            "persistent workers": DataLoader(data, batch_size=7, shuffle=True, num_workers=2, persistent_workers=True),
            "spawned workers": DataLoader(data, batch_size=30, shuffle=True, num_workers=1, persistent_workers=True, multiprocessing_context="spawn"),
        }

    def run_epochs(self, name, announced):
        torch.manual_seed(11)
        loader = self.loaders()[name]
        order, mismatches = [], 0
        told = announce(loader, loader.dataset, epochs=3, window=40) if announced else None
        sampler = loader.batch_sampler.sampler
        for epoch in range(3):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            predicted = next(plan_of(loader).orders())
            order.append([size - 2000 for batch in loader for size in batch.tolist()])
            self.assertEqual(order[-1], predicted, name)
            order.append(sampler.epoch if hasattr(sampler, "epoch") else torch.get_rng_state().sum().item())
            torch.rand(3)  # somebody else draws, too
        state = torch.get_rng_state()
        if told is not None:
            self.assertFalse(told.active)  # three epochs are over
            mismatches = told.mismatches
        indices = [list(sampler) for _ in range(2)]
        return order, indices, state.tolist(), mismatches

    def test_changes_neither_order_nor_generators(self):
        for name in self.loaders():
            bare, told = self.run_epochs(name, False), self.run_epochs(name, True)
            self.assertEqual(bare[:3], told[:3], name)
            self.assertEqual(told[3], 0, name)

    def test_asks_in_the_order_of_use_and_within_the_window(self):
        for name, kind in (("distributed", DistributedSampler(self.paths, 4, 1, seed=3)), ("sequential", SequentialSampler(self.paths)),
                           ("generator", RandomSampler(self.paths, generator=torch.Generator().manual_seed(8)))):
            recorder = Recorder()
            expected = [self.paths[index] for order, _ in zip(plan_of(kind).orders(), range(2)) for index in order]
            told = announce(kind, self.paths, epochs=2, window=20, client=recorder)
            self.eventually(lambda: told.prefetched >= 16)  # before anything was read
            taken = []
            for epoch in range(2):
                if hasattr(kind, "set_epoch"):
                    kind.set_epoch(epoch)
                for index in kind:
                    taken.append(self.paths[index])
                    self.eventually(lambda: len(recorder.asked) >= min(len(taken) + 15, len(expected)))
                    self.assertLessEqual(len(recorder.asked), len(taken) + 20)
            self.assertEqual(taken, expected, name)
            self.assertEqual(recorder.asked, expected, name)
            self.eventually(lambda: told.prefetched == len(expected))
            self.assertEqual(told.mismatches, 0, name)

    def test_the_daemon_follows_the_plan(self):
        sampler = DistributedSampler(self.paths, 2, 1, seed=5)
        loader = DataLoader(FileDataset(self.paths, len), batch_size=4, sampler=sampler, num_workers=2)
        with announce(loader, loader.dataset, epochs=3):
            self.eventually(lambda: [plan["state"] for plan in self.rig.control("GET", "/v1/plans")["plans"]] == ["waiting"])
            for epoch in range(2):
                sampler.set_epoch(epoch)
                list(loader)
            self.eventually(lambda: self.rig.control("GET", "/v1/plans")["plans"][0]["epochs_begun"] == 2)
            plan = self.rig.control("GET", "/v1/plans")["plans"][0]
            self.assertEqual((plan["state"], plan["plan"]["kind"], plan["plan"]["rank"], plan["epochs_begun"]), ("followed", "torch.distributed", 1, 2))
            self.assertGreater(plan["recall_ratio"], 0.95)
        self.eventually(lambda: not self.rig.control("GET", "/v1/plans")["plans"])

    def plans(self):
        return self.rig.control("GET", "/v1/plans")["plans"]

    def test_the_processes_generator_is_told_for_all_epochs_until_others_draw(self):
        torch.manual_seed(31)
        loader = DataLoader(FileDataset(self.paths, len), batch_size=4, shuffle=True, num_workers=2)
        with announce(loader, loader.dataset, epochs=8):
            list(loader)
            self.eventually(lambda: [plan["state"] for plan in self.plans()] in (["waiting"], ["followed"]))
            first = self.plans()[0]
            self.assertEqual((first["plan"]["kind"], first["plan"]["epochs"], first["plan"]["shared"]), ("torch.random", 8, True))
            for epoch in range(1, 4):
                list(loader)
                self.eventually(lambda: self.plans()[0]["epochs_begun"] == epoch + 1 and self.plans()[0]["position"] == FILES)
                self.assertEqual((self.plans()[0]["id"], self.plans()[0]["state"]), (first["id"], "followed"))
            for _ in range(2):  # a model that draws: each epoch is told when it has begun
                torch.rand(3)
                before = max([plan["id"] for plan in self.plans()], default=0)
                iterator = iter(loader)
                next(iterator)
                self.eventually(lambda: [plan["plan"]["epochs"] for plan in self.plans() if plan["id"] != before and plan["state"] != "mapping"] == [1])
                list(iterator)
                self.eventually(lambda: [plan["state"] for plan in self.plans()] in ([], ["followed"]))
        self.eventually(lambda: not self.plans())

    def test_another_epoch_is_told_anew(self):
        sampler = DistributedSampler(self.paths, 2, 1, seed=5)
        loader = DataLoader(FileDataset(self.paths, len), batch_size=4, sampler=sampler)
        with announce(loader, loader.dataset, epochs=9), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.eventually(lambda: [plan["state"] for plan in self.plans()] == ["waiting"])
            first = self.plans()[0]["id"]
            sampler.set_epoch(6)  # a resumed training
            list(loader)
            self.eventually(lambda: [plan["id"] for plan in self.plans()] not in ([first], []))
            second = self.plans()[0]
            self.assertEqual((second["plan"]["epoch"], second["plan"].get("set_epoch", True)), (6, True))
            list(loader)  # and set_epoch is not called
            self.eventually(lambda: [plan["plan"].get("set_epoch", True) for plan in self.plans()] == [False])
            for _ in range(4):  # told when any part of one had been read
                list(loader)
            self.eventually(lambda: [plan["state"] for plan in self.plans()] == ["followed"])

    def test_a_new_daemon_is_told_where_the_job_stands(self):
        own = rig.Rig()
        self.addCleanup(own.close)
        paths = [own.write(f"files/{i:03}", 100) for i in range(FILES)]
        own.start()

        def epochs():
            return [(plan["plan"].get("epoch", 0), plan["plan"]["epochs"]) for plan in own.control("GET", "/v1/plans")["plans"]]

        sampler = DistributedSampler(paths, 2, 0)
        with mock.patch.object(_telling, "_AGAIN_S", 0.1), tierd.Client(own.socket) as client, announce(sampler, paths, epochs=9, client=client):
            self.eventually(lambda: epochs() == [(0, 9)])
            for epoch in range(4):
                sampler.set_epoch(epoch)
                list(sampler)
            own.kill()
            own.start()
            self.eventually(lambda: epochs() == [(3, 6)])

    def test_what_the_daemon_had_no_room_for_comes_again(self):
        sampler = DistributedSampler(self.paths, 1, 0)
        recorder = Recorder(takes=7)
        with announce(sampler, self.paths, window=FILES, client=recorder) as told:
            self.eventually(lambda: len(recorder.asked) >= FILES)
            self.assertEqual(recorder.asked, [self.paths[index] for index in sampler])
            self.eventually(lambda: told.prefetched == FILES)

    def test_without_a_daemon_none_is_prefetched(self):
        asked = threading.Event()
        nobody = types.SimpleNamespace(prefetch=lambda paths: asked.set() or 0, stats=lambda: types.SimpleNamespace(connected=False))
        sampler = SequentialSampler(self.paths)
        with announce(sampler, self.paths, client=nobody) as told:
            self.assertTrue(asked.wait(10))
            self.assertEqual(told.prefetched, 0)

    def test_process_generator_is_looked_at_when_the_epoch_begins(self):
        recorder = Recorder()
        sampler = RandomSampler(self.paths)
        told = announce(sampler, self.paths, window=1000, client=recorder)
        for _ in range(3):
            torch.rand(5)
            recorder.asked.clear()
            iterator = iter(sampler)
            order = [self.paths[next(iterator)]]
            self.eventually(lambda: len(recorder.asked) >= FILES - 1)  # perhaps without the one that was taken before
            order += [self.paths[index] for index in iterator]
            self.assertEqual(recorder.asked, order[FILES - len(recorder.asked):])
        self.assertEqual(told.mismatches, 0)
        told.stop()

    def test_nobody_waits_for_the_order_of_the_next_epoch(self):
        drawn, computing, go_on = [], threading.Event(), threading.Event()
        real = TorchDraws.randperm

        def draw(draws, n):
            drawn.append(n)
            if len(drawn) == 3:  # before the first epoch, when it begins, and behind it
                computing.set()
                go_on.wait()
            return real(draws, n)

        recorder, sampler = Recorder(), DistributedSampler(self.paths, 1, 0)
        with mock.patch.object(TorchDraws, "randperm", draw), announce(sampler, self.paths, epochs=2, window=FILES, client=recorder) as told:
            self.eventually(lambda: len(recorder.asked) == FILES)
            iterator = iter(sampler)
            order = [next(iterator)]
            self.assertTrue(computing.wait(10))
            free = told._lookahead._wake.acquire(timeout=5)
            if free:
                told._lookahead._wake.release()
            go_on.set()
            self.assertTrue(free)
            order += iterator
            self.eventually(lambda: len(recorder.asked) == 2 * FILES)
            sampler.set_epoch(1)
            self.assertEqual([self.paths[index] for index in [*order, *sampler]], recorder.asked)
            self.assertEqual(told.mismatches, 0)

    def test_a_child_goes_on_with_the_iterator(self):
        sampler = SequentialSampler(self.paths)
        with announce(sampler, self.paths, window=20, client=Recorder()) as told:
            iterator = iter(sampler)
            next(iterator)
            self.eventually(lambda: told.prefetched >= 16)
            with told._lookahead._wake:  # another thread's, as the child sees it
                pid = os.fork()
                if pid == 0:
                    signal.alarm(10)
                    os._exit(0 if list(iterator) == list(range(1, FILES)) else 1)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            self.assertEqual(list(iterator), list(range(1, FILES)))
            self.assertEqual(told.mismatches, 0)

    def test_resume(self):
        recorder = Recorder()
        sampler = DistributedSampler(self.paths, 2, 0)
        sampler.set_epoch(5)
        order = [self.paths[index] for index in next(plan_of(sampler).orders())]
        told = announce(sampler, self.paths, epochs=1, position=30, window=FILES, client=recorder)
        self.assertEqual([self.paths[index] for index in next(told.plan.orders())], order[30:])
        iterator = iter(sampler)
        next(iterator)
        self.eventually(lambda: len(recorder.asked) == len(order) - 30)
        self.assertEqual(recorder.asked, order[30:])
        told.stop()

    def test_files_are_in_ram_before_they_are_read(self):
        tierd.evict(self.paths)
        loader = DataLoader(FileDataset(self.paths, len), batch_size=8, shuffle=True)
        with announce(loader, loader.dataset, window=FILES) as told:
            iterator = iter(loader)
            next(iterator)
            self.eventually(lambda: told.prefetched >= FILES - 8)
            self.eventually(lambda: self.rig.status()["tiers"]["ram"]["objects"] >= FILES)
            before = tierd.stats().reads
            list(iterator)
            after = tierd.stats().reads
        self.assertEqual((after["ram"] - before["ram"], after["source"] - before["source"]), (FILES - 8, 0))

    def test_ends_with_the_loader(self):
        loader = DataLoader(FileDataset(self.paths, len), shuffle=True)
        told = announce(loader, loader.dataset)
        list(loader)
        self.assertTrue(told.active)
        self.assertRegex(repr(told), rf"of {FILES} samples, all epochs: active, \d+ prefetched, 0 mismatches")
        del loader
        gc.collect()
        self.assertFalse(told.active)
        self.assertRegex(repr(told), "ended")
        self.assertRaises(ReferenceError, lambda: told.plan)
        told.stop()

    def test_what_has_ended_keeps_nothing(self):
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        sampler = SequentialSampler(self.paths)
        for stopped in True, False:
            told = announce(sampler, self.paths, client=Recorder())
            kept = weakref.ref(told), weakref.ref(told._lookahead)
            if stopped:
                told.stop()
            else:
                del sampler
            del told
            self.eventually(lambda: [each() for each in kept] == [None, None])

    def test_forgotten_set_epoch_is_said_once_an_epoch(self):
        sampler = DistributedSampler(self.paths, 2, 0)
        with announce(sampler, self.paths) as told, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            list(sampler)
            self.assertEqual(said, [])
            list(sampler)
            self.assertIn("set_epoch", str(said[0].message))
            self.assertEqual(told.mismatches, 0)

    def test_epochs_that_are_cut_short_count(self):
        for workers in (0, 2):
            loader = DataLoader(FileDataset(self.paths, len), batch_size=4, shuffle=True, num_workers=workers)
            told = announce(loader, loader.dataset, epochs=2, client=Recorder())
            for left in (True, False):
                for _, _ in zip(range(3), loader):
                    self.assertTrue(told.active)
                gc.collect()
                self.assertEqual(told.active, left)
        sampler = RandomSampler(self.paths)
        told = announce(sampler, self.paths, epochs=2, client=Recorder())
        kept = []
        for _ in range(2):
            kept.append(iter(sampler))
            next(kept[-1])
        del kept[0]  # an older one ends beside the last
        self.assertTrue(told.active)
        next(iter(sampler))
        self.assertFalse(told.active)
        self.assertIs(type(sampler), RandomSampler)

    def test_without_a_daemon_nothing_happens(self):
        sampler = SequentialSampler(self.paths)
        with tierd.Client(self.rig.base / "none.sock") as alone, announce(sampler, self.paths, client=alone) as told:
            self.assertEqual(list(sampler), list(range(FILES)))
            self.assertTrue(told.active)

    def test_ends_with_its_client(self):
        sampler = SequentialSampler(self.paths)
        own = tierd.Client(self.rig.socket)
        own.close()
        told = announce(sampler, self.paths, client=own)
        self.eventually(lambda: not told.active)
        self.assertEqual(list(sampler), list(range(FILES)))


if __name__ == "__main__":
    unittest.main()
