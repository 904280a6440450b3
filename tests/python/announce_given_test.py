"""announce: what it is given. Which samplers and which files it takes, what it refuses; what goes wrong later ends it, and nothing of it reaches the loop."""

import collections.abc
import copy
import os
import pathlib
import pickle
import socket
import tempfile
import threading
import types
import unittest
import warnings
from unittest import mock

import numpy as np
import pandas
import tierd
import torch
from announce_rig import FILES, AnnounceTest, Recorder, threads
from tierd import _control
from tierd._mt19937 import Mt19937
from tierd.plan import digest_of
from tierd.torch import FileDataset, _announce, _telling, announce, plan_of
from torch.utils.data import ConcatDataset, DistributedSampler, RandomSampler, SequentialSampler, Subset


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


class GivenTest(AnnounceTest):
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


if __name__ == "__main__":
    unittest.main()
