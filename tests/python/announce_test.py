"""announce: the order stays, the files are there before they are read, and it ends with the loader."""

import collections.abc
import contextlib
import copy
import gc
import os
import pathlib
import pickle
import signal
import socket
import tempfile
import threading
import types
import unittest
import warnings
import weakref
from unittest import mock

import numpy as np
import pandas
import rig
import tierd
import torch
from tierd import _control
from tierd._mt19937 import Mt19937
from tierd.plan import digest_of
from tierd.torch import FileDataset, _announce, _telling, announce, plan_of
from tierd.torch._draws import TorchDraws
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, DistributedSampler, RandomSampler, SequentialSampler, Subset

FILES = 96


def threads():
    return [thread for thread in threading.enumerate() if thread.name in ("tierd-announce", "tierd-plan")]


class Recorder:
    """Stands in for a client: what it is asked to prefetch, in order."""

    def __init__(self, takes=1000):
        self.asked = []
        self.takes = takes  # of one call

    def prefetch(self, paths):
        taken = paths[:self.takes]
        self.asked += taken
        return len(taken)

    def stats(self):
        return types.SimpleNamespace(connected=True)


class Shrunk(collections.abc.Sequence):
    """A list of paths that has lost most of them since it was counted."""

    def __init__(self, paths):
        self._kept = paths

    def __len__(self):
        return len(self._kept)

    def __getitem__(self, index):
        return self._kept[:1][index]


class Kept(RandomSampler):
    """Says what its copies are made of: a generator cannot be pickled."""

    def __getstate__(self):
        return {**vars(self), "generator": self.generator.get_state()}

    def __setstate__(self, state):
        vars(self).update(state)
        self.generator = torch.Generator()
        self.generator.set_state(state["generator"])


class Rebuilt(RandomSampler):
    def __reduce__(self):
        return rebuild, (type(self), self.__class__, self.data_source)


class Named(RandomSampler):
    def __new__(cls, *_, named=False):
        if not named:
            raise TypeError
        return super().__new__(cls)

    def __init__(self, source, named):
        super().__init__(source)

    def __getnewargs_ex__(self):
        return (), {"named": True}


def rebuild(of, also, source):
    return of(source)


class OrderTest(rig.DaemonTest):
    default = True

    @classmethod
    def fill(cls):
        cls.paths = [cls.rig.write(f"files/{i:03}", 2000 + i) for i in range(FILES)]  # the size says which file it is

    def tearDown(self):
        gc.collect()
        self.eventually(lambda: not threads())

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
        del loader
        gc.collect()
        self.assertFalse(told.active)
        self.assertRaises(ReferenceError, lambda: told.plan)
        told.stop()

    def test_stop_and_announce_again(self):
        sampler = RandomSampler(self.paths)
        first = announce(sampler, self.paths)
        second = announce(sampler, self.paths)
        self.assertEqual((first.active, second.active), (False, True))
        self.assertIsNot(type(sampler), RandomSampler)
        self.assertIsInstance(sampler, RandomSampler)
        for other in (copy.copy(sampler), copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
            self.assertIs(type(other), RandomSampler)
            self.assertEqual(sorted(other), list(range(FILES)))
        second.stop()
        second.stop()
        self.assertIs(type(sampler), RandomSampler)
        self.assertEqual(set(vars(sampler)), set(vars(RandomSampler(self.paths))))

    def test_copies_by_the_samplers_own_rules(self):
        for sampler in Kept(self.paths, generator=torch.Generator().manual_seed(6)), Rebuilt(self.paths), Named(self.paths, named=True), RandomSampler(self.paths):
            with self.subTest(type(sampler).__name__), announce(sampler, self.paths, client=Recorder()) as told:
                kind = type(sampler)
                for protocol in range(0 if kind.__base__ is not Named else 2, pickle.HIGHEST_PROTOCOL + 1):
                    pickled = pickle.dumps(sampler, protocol)
                    self.assertNotIn(b"tierd", pickled.replace(b"tierd-py", b""))  # for who has none
                    again = pickle.loads(pickled)
                    self.assertEqual((type(again), set(vars(again))), (kind.__base__, set(vars(sampler))))
                    if again.generator is not None:
                        self.assertEqual(next(plan_of(again).orders()), next(plan_of(sampler).orders()))
                self.assertIs(type(sampler), kind)
                self.assertEqual(sorted(sampler), list(range(FILES)))
                self.assertTrue(told.active)

    def test_who_is_made_like_an_announced_one_is_not(self):
        sampler = SequentialSampler(self.paths)
        with announce(sampler, self.paths, epochs=1, client=Recorder()) as told:
            like, alike = type(sampler)(self.paths), type(sampler).__new__(type(sampler))
            vars(alike).update(vars(sampler))
            for other in like, alike, like:
                self.assertEqual(list(other), list(range(FILES)))
                self.assertTrue(told.active)
            with announce(like, self.paths, client=Recorder()) as second:
                self.assertEqual((told.active, second.active), (True, True))
            list(sampler)
            self.assertFalse(told.active)
        self.assertEqual(list(alike), list(range(FILES)))

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

    def test_which_files(self):
        data = FileDataset(self.paths, len)
        views = ConcatDataset([Subset(data, [5, 6, 7]), data])
        recorder = Recorder()
        sampler = SequentialSampler(views)
        with announce(sampler, views, window=5, client=recorder):
            next(iter(sampler))
            self.eventually(lambda: len(recorder.asked) >= 5)
        self.assertEqual(recorder.asked[:5], [*self.paths[5:8], *self.paths[:2]])
        counted = Subset(ConcatDataset([Subset(data, [0, 1]), Subset(data, [2, 3, 4])]), [-1, 0, -4, -5, 4, -2])
        paths = _announce._paths_of(counted)
        self.assertEqual([paths.of(i) for i in range(paths.count)], [self.paths[i] for i in (4, 0, 1, 0, 4, 3)])
        self.assertEqual(list(counted), [2000 + i for i in (4, 0, 1, 0, 4, 3)])  # as PyTorch reads them
        self.assertRaisesRegex(TypeError, "which files", announce, SequentialSampler([1]), [1])
        self.assertRaisesRegex(ValueError, "96", announce, SequentialSampler([1]), self.paths)
        self.assertRaisesRegex(ValueError, "window", announce, SequentialSampler(self.paths), self.paths, window=0)

    def test_lists_that_are_no_lists(self):
        sampler = SequentialSampler(range(FILES))
        for paths in (np.array(self.paths), np.array(self.paths, object), np.array(self.paths, "S"), pandas.Series(self.paths, index=range(5, FILES + 5)), tuple(self.paths)):
            with announce(sampler, FileDataset(paths)) as told, announce(sampler, paths) as also:
                self.assertEqual(told.plan.list_sha256, also.plan.list_sha256)
        table = types.SimpleNamespace(samples=pandas.DataFrame({"path": self.paths}), paths=self.paths)
        for samples in (table.samples, np.array([[path, 0] for path in self.paths], object), np.array(self.paths)):
            table.samples = samples
            announce(sampler, table).stop()
        for other in (pandas.DataFrame({"path": self.paths}), np.arange(FILES), "x" * FILES, b"x" * FILES, 5, types.SimpleNamespace(samples=[(torch.zeros(2), 0)] * FILES),
                      types.SimpleNamespace(samples={path: 0 for path in self.paths})):
            self.assertRaisesRegex(TypeError, "which files", announce, sampler, other)
        for empty in (FileDataset([]), [], types.SimpleNamespace(samples=[]), np.array([]), Subset(self.paths, [])):
            self.assertRaisesRegex(ValueError, "is empty", announce, sampler, empty)

    def test_what_is_refused_changes_nothing(self):
        sampler = SequentialSampler(self.paths)
        for wrong in (dict(epochs=-1), dict(epochs=3.0), dict(epochs="3"), dict(epochs=2**63), dict(position=-1), dict(position=1.5), dict(position=None), dict(window=0),
                      dict(window=1.5), dict(window="1"), dict(window=None)):
            with self.subTest(wrong):
                self.assertRaisesRegex((TypeError, ValueError), next(iter(wrong)), announce, sampler, self.paths, client=Recorder(), **wrong)
                self.assertIs(type(sampler), SequentialSampler)
                self.assertEqual(threads(), [])
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
            self.assertRaises(RuntimeError, announce, sampler, self.paths)
        self.assertIs(type(sampler), SequentialSampler)
        told = announce(sampler, self.paths, epochs=np.int64(2), position=np.int64(3), window=np.uint8(8), client=Recorder())
        for _ in range(2):
            self.assertEqual(list(sampler), list(range(FILES)))
        self.assertFalse(told.active)

    def test_numbers_that_pytorch_takes(self):
        for shuffle in (True, False):
            sampler = DistributedSampler(self.paths, np.int64(3), np.int64(1), shuffle=shuffle, seed=2 if shuffle else np.int64(2))
            with announce(sampler, self.paths, client=Recorder()) as told, warnings.catch_warnings():
                warnings.simplefilter("error")
                for epoch in (-7, -1, 0, True, 2) if shuffle else (np.int64(3), np.uint8(4), -1):
                    sampler.set_epoch(epoch)
                    plan = plan_of(sampler)
                    order = list(sampler)
                    self.assertEqual([next(plan.orders()), next(plan.orders(Mt19937))], [order] * 2, epoch)
                self.assertEqual((told.mismatches, told.active), (0, True))

    @contextlib.contextmanager
    def quiet(self, warned):
        """No thread dies, and so many times it is said that an announcement has ended."""
        with mock.patch.object(threading, "excepthook") as hook, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield
            self.assertEqual(hook.call_args_list, [])
            self.assertEqual([str(each.message)[:32] for each in said], ["tierd.torch.announce has ended, "] * warned)

    def test_nothing_reaches_the_loop(self):
        data = FileDataset(self.paths, len)
        sampler = SequentialSampler(data)
        with self.quiet(1):
            told = announce(sampler, data, client=Recorder())
            list(sampler)
            data.paths.clear()
            self.assertEqual((list(sampler), list(sampler)), ([], []))
            self.assertFalse(told.active)
        sampler = DistributedSampler(self.paths, 2, 1, shuffle=False)
        with self.quiet(1):
            told = announce(sampler, self.paths, client=Recorder())
            sampler.set_epoch("seven")
            self.assertEqual(list(sampler), list(range(1, FILES, 2)))
            self.assertFalse(told.active)

    def test_a_path_that_is_none_ends_it(self):
        for path in "a\0b", "/a/../b\0":
            for client in tierd.client(), Recorder(), types.SimpleNamespace(prefetch=tierd.prefetch, _off=True):  # by both threads, by each alone
                sampler = SequentialSampler(range(FILES))
                with self.subTest(path), self.quiet(1):
                    told = announce(sampler, [*self.paths[:3], path, *self.paths[4:]], client=client)
                    self.eventually(lambda: not told.active and not threads())

    @unittest.skipUnless(os.geteuid() == 0, "only root can be somebody else")
    def test_a_socket_of_somebody_else_hears_nothing(self):
        with tempfile.TemporaryDirectory() as planted:
            path = os.path.join(planted, "control.sock")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
                listening.bind(path)
                os.seteuid(65534)  # who listens is who the connection is with
                try:
                    listening.listen()
                finally:
                    os.seteuid(0)
                with self.assertRaisesRegex(PermissionError, "served by uid 65534"):
                    _control.Control(path).tell(plan_of(SequentialSampler(range(1))), ["/x"])
                self.assertEqual(listening.accept()[0].recv(100), b"")

    def test_the_list_names_the_files_that_are_read(self):
        top = str(self.rig.source)
        os.makedirs(top + "/deep/inner")
        os.symlink("deep/inner", top + "/link")
        before = os.getcwd()
        os.chdir(top)
        self.addCleanup(os.chdir, before)
        told = [top + "/link/../f", "link/../f", b"link/../inner/../f", pathlib.Path("./deep/f"), top + "/deep//f", top + "/deep/inner/.."]
        meant = [top + "/deep/f"] * 5 + [top + "/deep"]
        control = _control.Control(str(self.rig.base / "run" / "control.sock"))
        for files, taken in (meant, True), ([top + "/f"] * 5 + [top], False):  # the daemon takes a list for what its digest says
            number = control.tell(plan_of(SequentialSampler(told), list_sha256=digest_of(files)), told)
            self.assertEqual(number is not None, taken)
            if number is not None:
                control.forget(number)
        with mock.patch.object(os, "O_TMPFILE", 0):  # a file system that does not know it
            control.forget(control.tell(plan_of(SequentialSampler(told)), told))
        self.assertEqual(list((self.rig.base / "run").glob("plan-*")), [])

    def test_a_list_that_shrank_ends_it_quietly(self):
        self.assertRaises(IndexError, _control.Control(str(self.rig.base / "run" / "control.sock")).tell, plan_of(SequentialSampler(range(2))), map(Shrunk(self.paths).__getitem__, range(2)))
        self.assertEqual(list((self.rig.base / "run").glob("plan-*")), [])
        for paths in (Shrunk(self.paths), [*self.paths[:1], *range(FILES - 1)]):
            for given in (tierd.client(), Recorder()):
                sampler = SequentialSampler(range(FILES))
                with self.quiet(1):
                    told = announce(sampler, paths, client=given)
                    self.eventually(lambda: not told.active)
                    self.assertEqual(list(sampler), list(range(FILES)))
                    self.eventually(lambda: not threads())
        self.assertEqual(list((self.rig.base / "run").glob("plan-*")), [])

    def test_a_daemon_that_dies_while_it_answers(self):
        asked = []
        folder = self.rig.base / "half"
        folder.mkdir()
        with socket.socket(socket.AF_UNIX) as listener, mock.patch.object(_telling, "_AGAIN_S", 0.0), mock.patch.object(_telling, "_LOOK_S", 0.01), self.quiet(0):
            listener.bind(str(folder / "control.sock"))
            listener.listen()

            def answer():
                for half in (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", b"HTTP/1.1 2", b"\0\n", b""):
                    with listener.accept()[0] as peer:
                        peer.recv(65536)
                        peer.sendall(half)
                        asked.append(half)

            server = threading.Thread(target=answer, daemon=True)
            server.start()
            recorder = Recorder()
            recorder._settings = {"socket": folder / "tierd.sock"}
            sampler = SequentialSampler(self.paths)
            with announce(sampler, self.paths, client=recorder) as told:
                self.eventually(lambda: len(asked) == 5)
                server.join()
                self.assertTrue(told.active)

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
