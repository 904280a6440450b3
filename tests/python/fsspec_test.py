"""tierd:// and tierd:: in fsspec, pandas, zarr and h5py. The file system is found by the entry point of the build tree's package."""

import unittest

import fsspec
import h5py
import numpy as np
import pandas
import rig
import tierd.fsspec
import zarr


class FsspecTest(rig.DaemonTest):
    default = True

    @classmethod
    def fill(cls):
        cls.path = cls.rig.write("dir/data", 10_000)
        cls.expected = rig.content("dir/data", 10_000)
        cls.rig.write("dir/sub/other", 10)
        cls.csv = cls.rig.write("table.csv", data=b"a,b\n1,2\n3,4\n")

    def test_paths_and_chains(self):
        for url in ("tierd://" + self.path, "tierd::" + self.path, "tierd::file://" + self.path, "simplecache::tierd://" + self.path):
            with fsspec.open(url) as file:
                self.assertEqual(file.read(), self.expected, url)
        self.assertRaisesRegex(ValueError, "not memory", fsspec.open, "tierd::memory://x")

    def test_file_system(self):
        fs = fsspec.filesystem("tierd")
        top = str(self.rig.source)
        self.assertIs(type(fs), tierd.fsspec.TierdFileSystem)
        self.assertEqual(fs.ls(top + "/dir", detail=False), [top + "/dir/data", top + "/dir/sub"])
        self.assertEqual([(e["name"], e["type"], e["size"]) for e in fs.ls(top + "/dir") if e["type"] == "file"], [(self.path, "file", 10_000)])
        self.assertEqual(fs.ls(self.path, detail=False), [self.path])
        self.assertEqual((fs.size(self.path), fs.isfile(self.path), fs.isdir(top), fs.exists(top + "/none")), (10_000, True, True, False))
        self.assertEqual(sorted(fs.find(top + "/dir")), [self.path, top + "/dir/sub/other"])
        self.assertEqual(fs.glob(top + "/di*/da*"), [self.path])
        self.assertEqual(fs.cat_file(self.path), self.expected)
        for start, end in ((5, 10), (None, 10), (-10, None), (-10, -5), (9_990, 20_000), (10, 5)):
            self.assertEqual(fs.cat_file(self.path, start, end), self.expected[start:end], (start, end))
        self.assertEqual(fs.cat([self.path, self.csv]), {self.path: self.expected, self.csv: b"a,b\n1,2\n3,4\n"})
        self.assertEqual(fs.head(self.path, 5), self.expected[:5])
        self.assertRaises(FileNotFoundError, fs.open, top + "/none")
        self.assertRaises(FileNotFoundError, fs.ls, top + "/none")
        self.assertRaises(OSError, fs.open, self.path, "wb")
        self.assertGreater(fs.modified(self.path).year, 2000)

    def test_libraries(self):
        top = str(self.rig.source)
        self.assertEqual(pandas.read_csv("tierd://" + self.csv)["b"].tolist(), [2, 4])
        array = np.arange(1000).reshape(10, 100)
        zarr.save(top + "/a.zarr", array)
        np.testing.assert_array_equal(zarr.open("tierd://" + top + "/a.zarr", mode="r")[:], array)
        with h5py.File(top + "/a.h5", "w") as made:
            made["x"] = array
        with fsspec.open(f"tierd://{top}/a.h5") as file, h5py.File(file, "r") as read:
            np.testing.assert_array_equal(read["x"][:], array)

    def test_registration_without_installation(self):
        tierd.fsspec.register()
        tierd.fsspec.register()
        self.assertIs(fsspec.get_filesystem_class("tierd"), tierd.fsspec.TierdFileSystem)

    def test_another_daemon(self):
        fs = fsspec.filesystem("tierd", socket=self.rig.socket)
        self.assertEqual(fs.cat_file(self.path), self.expected)


if __name__ == "__main__":
    unittest.main()
