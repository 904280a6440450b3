"""tierd.open: a binary file object like any other."""

import gc
import io
import os
import random
import subprocess
import tarfile
import threading
import unittest
import zipfile

import h5py
import numpy as np
import rig
import tierd
import torch
from PIL import Image


class FileTest(rig.DaemonTest):
    default = True

    @classmethod
    def fill(cls):
        cls.small = cls.rig.write("small", 10_000)
        cls.large = cls.rig.write("large", (9 << 20) + 17)
        cls.empty = cls.rig.write("empty", 0)
        cls.lines = cls.rig.write("lines", data=b"one\ntwo\n\nfour")

    def test_random_steps_as_a_real_file(self):
        for path in (self.small, self.large, self.empty):
            for buffering in (-1, 0, 100):
                dice = random.Random(buffering)
                with open(path, "rb", buffering=buffering) as real, tierd.open(path, buffering=buffering) as ours:
                    for _ in range(200):
                        self.step(dice, real, ours)

    def test_interrupts_lose_no_file(self):
        """As in read_test: ^C comes between any two bytecodes. Outside the source an open file is a descriptor."""
        outside = str(self.rig.base / "outside")
        with open(outside, "wb") as out:
            out.write(b"x")
        tierd.open(outside).close()
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        rig.interrupt_often(500, lambda: tierd.open(outside, buffering=0))
        gc.collect()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def step(self, dice, real, ours):
        kind = dice.randrange(6)
        if kind == 0:
            where = (dice.randrange(12_000), dice.choice([os.SEEK_SET, os.SEEK_CUR, os.SEEK_END]))
            if where[1] == os.SEEK_END:
                where = (-min(where[0], os.fstat(real.fileno()).st_size), where[1])
            self.assertEqual(real.seek(*where), ours.seek(*where))
        elif kind == 1:
            size = dice.choice([0, 1, 10, 5000, 70_000])
            self.assertEqual(real.read(size), ours.read(size))
        elif kind == 2:
            a, b = bytearray(dice.randrange(9000)), None
            b = bytearray(len(a))
            self.assertEqual((real.readinto(a), a), (ours.readinto(b), b))
        elif kind == 3:
            self.assertEqual(real.tell(), ours.tell())
        elif kind == 4:
            self.assertEqual(real.read(), ours.read())
        else:
            self.assertEqual(real.readline(300), ours.readline(300))

    def test_attributes_and_protocol(self):
        with tierd.open(self.lines) as file:
            self.assertIsInstance(file, io.BufferedIOBase)
            self.assertEqual((file.name, file.mode, file.raw.size, file.closed), (self.lines, "rb", 13, False))
            self.assertEqual((file.readable(), file.writable(), file.seekable(), file.isatty()), (True, False, True, False))
            self.assertEqual(list(file), [b"one\n", b"two\n", b"\n", b"four"])
            self.assertRaises(io.UnsupportedOperation, file.fileno)
            self.assertRaises(io.UnsupportedOperation, file.write, b"x")
            self.assertRaises(OSError, file.seek, -1)
            with self.assertRaises(ValueError):
                file.raw.seek(0, 9)
            with io.TextIOWrapper(file) as text:
                text.seek(0)
                self.assertEqual(text.read(), "one\ntwo\n\nfour")
        self.assertTrue(file.closed)
        for call in (file.read, file.tell, file.raw.tell, file.raw.readall, file.raw.readable):
            self.assertRaises(ValueError, call)
        file.close()
        for mode in ("wb", "r+b", "ab", "rt"):
            self.assertRaises(ValueError, tierd.open, self.lines, mode)
        for mode in ("r", "rt", "tr"):
            self.assertRaisesRegex(ValueError, r"binary.*io\.TextIOWrapper\(tierd\.open\(path\)\)", tierd.open, self.lines, mode)
        for mode in ("w", "rb+", "x"):
            self.assertRaisesRegex(ValueError, "for reading only", tierd.open, self.lines, mode)

    def outcome(self, file, name, *arguments):
        """What a call gives, or which exception it raises."""
        try:
            return getattr(file, name)(*arguments)
        except Exception as error:
            return type(error)

    def test_odd_calls_as_of_a_real_file(self):
        open_calls = [("seek", offset) for offset in (2**64 + 4, -2**70, 2**63, 1.5, "1", True, -1)] + [("seek", 2**63 - 1, 1), ("seek", 2**63 - 1, 2)]
        open_calls += [("seek", 0), ("read", None), ("seek", 0), ("read", True), ("read", 1.5), ("write", b"x"), ("writelines", [b"x"]), ("truncate",), ("flush",), ("writable",)]
        open_calls += [("readinto", np.empty(shape, np.uint8)) for shape in ((0, 3), (3, 0), (0,), (2, 2))] + [("readinto", b"x")]
        closed_calls = [("flush",), ("writable",), ("readable",), ("seekable",), ("isatty",), ("tell",), ("seek", 1.5), ("read",), ("read", None), ("write", b"x"), ("truncate",), ("__enter__",)]
        for buffering in (-1, 0):
            with open(self.lines, "rb", buffering=buffering) as real, tierd.open(self.lines, buffering=buffering) as ours:
                for call in ("seek", 5), ("tell",), *open_calls:
                    with self.subTest(buffering=buffering, call=call):
                        self.assertEqual(self.outcome(ours, *call), self.outcome(real, *call))
            for call in closed_calls:
                with self.subTest(buffering=buffering, closed=call):
                    self.assertEqual(self.outcome(ours, *call), self.outcome(real, *call))
        for buffering in (1.5, "1", None):
            self.assertRaises(TypeError, tierd.open, self.lines, buffering=buffering)

    def test_without_a_descriptor_libraries_read_by_it(self):
        """What finds a descriptor reads the source's own file; np.fromfile and subprocess cannot do without one."""
        tif = str(self.rig.source / "a.tif")
        Image.fromarray(np.arange(65536, dtype=np.uint8).reshape(256, 256)).save(tif, compression="tiff_lzw")
        torch.save({"x": torch.arange(50_000)}, str(self.rig.source / "old.pt"), _use_new_zipfile_serialization=False)
        tierd.read(tif)
        before = sum(tierd.stats().bytes.values())
        with tierd.open(tif) as file, Image.open(file) as image:
            self.assertEqual(np.asarray(image)[255, 255], 255)
        with tierd.open(self.rig.source / "old.pt") as file:
            self.assertEqual(int(torch.load(file)["x"].sum()), 50_000 * 49_999 // 2)
        self.assertGreaterEqual(sum(tierd.stats().bytes.values()) - before, os.path.getsize(tif) + os.path.getsize(self.rig.source / "old.pt"))
        with tierd.open(self.small) as file:
            self.assertRaises(io.UnsupportedOperation, np.fromfile, file, np.uint8)
            self.assertRaises(io.UnsupportedOperation, subprocess.run, ["cat"], stdin=file)
            self.assertEqual(file.read(), rig.content("small", 10_000))
        np.testing.assert_array_equal(np.frombuffer(tierd.view(self.small), np.uint8), np.fromfile(self.small, np.uint8))

    def test_detach(self):
        for file in (open(self.lines, "rb"), tierd.open(self.lines)):
            self.assertEqual(file.readline(), b"one\n")
            with file.detach() as raw:
                for call in (file.read, file.close, file.detach):
                    self.assertRaises(ValueError, call)
                raw.seek(4)
                self.assertEqual(raw.read(), b"two\n\nfour")

    def test_handles_are_given_back(self):
        tierd.read(self.small)
        for _ in range(3000):
            tierd.open(self.small).read(10)
        self.assertEqual(tierd.stats().leases, 0)

    def test_stays_with_its_version(self):
        path = self.rig.write("replaced", 50_000)
        with tierd.open(path, buffering=0) as file:
            first = file.read(100)
            new = self.rig.write("replaced.new", 50_000, version=2)
            os.rename(new, path)
            tierd.invalidate(path)
            self.assertEqual(first + file.read(), rig.content("replaced", 50_000))
        self.assertEqual(tierd.read(path), rig.content("replaced.new", 50_000, 2))

    def test_close_beside_a_read(self):
        for _ in range(50):
            file = tierd.open(self.large, buffering=0)
            reader = threading.Thread(target=self.read_until_closed, args=(file,))
            reader.start()
            file.close()
            reader.join()

    @staticmethod
    def read_until_closed(file):
        try:
            while file.read(1 << 20):
                pass
        except ValueError:
            pass

    def test_libraries_read_through_it(self):
        array = np.arange(30_000, dtype=np.float32)
        with h5py.File(self.rig.source / "a.h5", "w") as made:
            made["x"] = array
        np.save(self.rig.source / "a.npy", array)
        np.savez(self.rig.source / "a.npz", x=array)
        Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(self.rig.source / "a.png")
        with zipfile.ZipFile(self.rig.source / "a.zip", "w") as made:
            made.writestr("inner", b"z" * 5000)
        with tarfile.open(self.rig.source / "a.tar", "w") as made:
            made.add(self.rig.source / "a.zip", "inner")
        for _ in range(2):
            with tierd.open(self.rig.source / "a.h5") as file, h5py.File(file, "r") as read:
                np.testing.assert_array_equal(read["x"][:], array)
            with tierd.open(self.rig.source / "a.npy") as file:
                np.testing.assert_array_equal(np.load(file), array)
            with tierd.open(self.rig.source / "a.npz") as file, np.load(file) as read:
                np.testing.assert_array_equal(read["x"], array)
            with tierd.open(self.rig.source / "a.png") as file, Image.open(file) as image:
                self.assertEqual(np.asarray(image)[7, 7], 63)
            with tierd.open(self.rig.source / "a.zip") as file, zipfile.ZipFile(file) as archive:
                self.assertEqual(archive.read("inner"), b"z" * 5000)
            with tierd.open(self.rig.source / "a.tar") as file, tarfile.open(fileobj=file) as archive:
                self.assertEqual(archive.getnames(), ["inner"])


if __name__ == "__main__":
    unittest.main()
