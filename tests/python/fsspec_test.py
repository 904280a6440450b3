"""tierd:// and tierd:: in fsspec, pandas, zarr and h5py. The file system is found by the entry point of the build tree's package."""

import errno
import os
import pickle
import tempfile
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
        for url in ("tierd://" + self.path, "tierd::" + self.path, "tierd::file://" + self.path):
            with fsspec.open(url) as file:
                self.assertEqual(file.read(), self.expected, url)
        self.assertRaisesRegex(ValueError, "not memory", fsspec.open, "tierd::memory://x")

    def test_chained_names_are_of_the_chained_path(self):
        top = str(self.rig.source)
        for chained in ("tierd::" + top + "/dir", "tierd::file://" + top + "/dir"):
            mapped = fsspec.get_mapper(chained)
            self.assertEqual((mapped["data"], sorted(mapped)), (self.expected, ["data", "sub/other"]))
            self.assertEqual(pickle.loads(pickle.dumps(mapped))["data"], self.expected)
            self.assertEqual([file.path for file in fsspec.open_files(chained + "/d*")], [self.path])
        fs, path = fsspec.core.url_to_fs("tierd::" + top + "/dir")
        self.assertEqual((fs.ls(path, detail=False), fs.find("sub")), ([self.path, top + "/dir/sub"], [top + "/dir/sub/other"]))
        with fsspec.open_files(["tierd::" + self.path, "tierd::" + self.csv]) as files:
            self.assertEqual([file.read() for file in files], [self.expected, b"a,b\n1,2\n3,4\n"])
        for name in ("tierd::file://" + self.path, "tierd::tierd://" + self.path, "tierd://" + self.path):
            self.assertEqual(tierd.fsspec.TierdFileSystem._strip_protocol(name), self.path)
        array = np.arange(12).reshape(3, 4)
        zarr.save(top + "/chained.zarr", array)
        np.testing.assert_array_equal(zarr.open("tierd::" + top + "/chained.zarr")[:], array)

    def test_the_parent_of_where_a_link_leads(self):
        self.rig.write("f", data=b"beside the link")
        self.rig.write("deep/f", data=b"behind the link")
        top = str(self.rig.source)
        os.makedirs(top + "/deep/inner")
        os.symlink("deep/inner", top + "/link")
        before = os.getcwd()
        os.chdir(top)
        self.addCleanup(os.chdir, before)
        for name in (top + "/link/../f", "link/../f", top + "//link/./..//f/"):
            for start in ("tierd://", "tierd::", "tierd::file://"):
                with self.subTest(start + name), fsspec.open(start + name) as file:
                    self.assertEqual(file.read(), b"behind the link")
        fs, path = fsspec.core.url_to_fs("tierd::" + top + "/link/..")
        self.assertEqual((fs.cat_file("f"), sorted(os.path.basename(each) for each in fs.ls(path, detail=False))), (b"behind the link", ["f", "inner"]))

    def test_a_bad_link_hides_nothing(self):
        top = self.rig.source / "links"
        good = self.rig.write("links/good", 10)
        os.symlink("circle", top / "circle")
        os.symlink(self.path + "/below", top / "through a file")
        os.symlink("nowhere", top / "nowhere")
        fs = fsspec.filesystem("tierd")
        self.assertEqual({os.path.basename(entry["name"]): entry["type"] for entry in fs.ls(str(top))},
                         {"good": "file", "circle": "link", "through a file": "link", "nowhere": "link"})
        for name, there in ("good", True), ("nowhere", True), ("circle", True), ("none", False), ("good/below", False), ("a\0b", False):
            self.assertEqual((fs.lexists(f"tierd://{top}/{name}"), os.path.lexists(f"{top}/{name}")), (there, there), name)
        self.assertIn(good, fs.find(str(top)))
        self.assertEqual(fs.glob(str(top) + "/g*"), [good])
        self.assertIn("good", next(fs.walk(str(top)))[2])

    def test_links_to_directories_are_not_gone_through(self):
        top = self.rig.source / "turning"
        good = self.rig.write("turning/good", 10)
        for name in "ab":
            os.symlink(".", top / name)
        os.symlink("good", top / "same")
        fs = fsspec.filesystem("tierd")
        self.assertEqual({os.path.basename(entry["name"]): (entry["type"], entry["islink"]) for entry in fs.ls(str(top))},
                         {"good": ("file", False), "a": ("link", True), "b": ("link", True), "same": ("file", True)})
        self.assertEqual(fs.find(str(top)), sorted([good, *(str(top / name) for name in ("a", "b", "same"))]))
        self.assertEqual([where for where, _, _ in fs.walk(str(top))], [str(top)])
        self.assertEqual((fs.info(str(top / "a"))["type"], fs.info(str(top / "a"))["islink"]), ("directory", True))  # asked by name it is followed

    def test_what_would_write_is_refused(self):
        fs, new = fsspec.filesystem("tierd"), str(self.rig.source / "new")
        with tempfile.TemporaryDirectory() as local:
            calls = {"mkdir": lambda: fs.mkdir(new), "makedirs": lambda: fs.makedirs(new, exist_ok=True), "mkdirs": lambda: fs.mkdirs(new), "rmdir": lambda: fs.rmdir(new),
                     "put": lambda: fs.put(local, new, recursive=True), "mapper": lambda: fsspec.get_mapper("tierd://" + new, create=True),
                     "rm": lambda: fs.rm(self.path), "rm_file": lambda: fs.rm_file(self.path), "mv": lambda: fs.mv(self.path, new),
                     "copy": lambda: fs.copy(self.path, new), "touch": lambda: fs.touch(new), "open": lambda: fs.open(new, "wb"), "open_files": lambda: fsspec.open_files("tierd://" + new + "/*", "wb"), "pipe": lambda: fs.pipe_file(new, b"x")}
            for name, call in calls.items():
                with self.subTest(name):
                    with self.assertRaises(OSError) as got:
                        call()
                    self.assertEqual(got.exception.errno, errno.EROFS)
        with fs.open(self.path, "br") as file:
            self.assertEqual(file.read(), self.expected)

    def test_what_zarr_would_write_says_what_to_do(self):
        new, old = str(self.rig.source / "new.zarr"), str(self.rig.source / "old.zarr")
        zarr.save(old, np.arange(3))
        opened = zarr.open("tierd://" + old)
        calls = {"new": lambda: zarr.open("tierd://" + new, mode="w", shape=3), "new, chained": lambda: zarr.open("tierd::" + new, mode="w", shape=3),
                 "new group": lambda: zarr.open("tierd://" + new, mode="a"), "over an old one": lambda: zarr.open("tierd://" + old, mode="w", shape=3),
                 "into an old one": lambda: opened.__setitem__(0, 5)}
        for name, call in calls.items():
            with self.subTest(name), self.assertRaises((OSError, KeyError)) as got:
                call()
            why = got.exception if isinstance(got.exception, OSError) else got.exception.__cause__  # zarr makes a KeyError of any OSError of a store
            self.assertEqual(why.errno, errno.EROFS)
            self.assertIn("write to the path itself", str(why))
        np.testing.assert_array_equal(zarr.open(old)[:], np.arange(3))

    def test_below_other_caches_of_fsspec(self):
        for kind in ("simplecache", "filecache", "blockcache"):
            for name in (f"{kind}::tierd://{self.path}", f"{kind}::tierd::{self.path}"):
                for _ in range(2):
                    with self.subTest(name), fsspec.open(name, **{kind: {"cache_storage": str(self.rig.base / kind)}}) as file:
                        file.seek(9_000)
                        self.assertEqual(file.read(), self.expected[9_000:])
                        file.seek(0)
                        self.assertEqual(file.read(), self.expected)
                        file.close()
                        self.assertTrue(file.closed)
        with fsspec.filesystem("tierd").open(self.path) as file:
            file.seek(5)
            self.assertEqual((file._fetch_range(100, 200), file.tell(), file.path), (self.expected[100:200], 5, self.path))

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
        with h5py.File(top + "/a.h5", "w") as made:
            made["x"] = array
        for start in ("tierd://", "tierd::", "tierd::file://"):
            with self.subTest(start):
                np.testing.assert_array_equal(zarr.open(start + top + "/a.zarr", mode="r")[:], array)
                with fsspec.open(start + top + "/a.h5") as file, h5py.File(file, "r") as read:
                    np.testing.assert_array_equal(read["x"][:], array)
                with fsspec.open(start + self.csv) as file:  # this pandas takes no chain itself
                    self.assertEqual(pandas.read_csv(file)["b"].tolist(), [2, 4])

    def test_registration_without_installation(self):
        tierd.fsspec.register()
        tierd.fsspec.register()
        self.assertIs(fsspec.get_filesystem_class("tierd"), tierd.fsspec.TierdFileSystem)

    def test_another_daemon(self):
        fs = fsspec.filesystem("tierd", socket=self.rig.socket)
        self.assertEqual(fs.cat_file(self.path), self.expected)


if __name__ == "__main__":
    unittest.main()
