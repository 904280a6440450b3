"""tierd.torch's data sets: torchvision's order, batches, and every kind of worker."""

import os
import pickle
import unittest
import unittest.mock

import numpy as np
import rig
import tierd
import torch
from PIL import Image
from tierd.torch import DatasetFolder, FileDataset, ImageFolder
from torch.utils.data import DataLoader

def to_array(image):
    return torch.from_numpy(np.asarray(image).copy())


def first_bytes(view):
    return torch.tensor(list(view[:4]))


def length(view):
    return len(view)


def first_bytes_and_from_ram(view):
    reads = tierd.stats().reads  # of this process: a worker's begin at 0
    return torch.tensor([*view[:4], reads["ram"] > 0 and reads["bypass"] == reads["source"] == 0])


class WithPaths(ImageFolder):
    def __getitem__(self, index):
        return (*super().__getitem__(index), self.samples[index][0])


class ByLoader(ImageFolder):
    def __getitem__(self, index):
        path, target = self.samples[index]
        return self.loader(path).size, target


class ListedOtherwise(ImageFolder):
    @staticmethod
    def make_dataset(directory, class_to_idx, extensions=None, is_valid_file=None):  # as it was before torchvision 0.17
        return [(os.path.join(directory, "listed"), 0)]


class Numbered(FileDataset):
    def __getitem__(self, index):
        return len(super().__getitem__(index)), index


class DatasetTest(rig.DaemonTest):
    default = True

    @classmethod
    def fill(cls):
        root = cls.rig.source / "images"
        for group, names in {"b": ["2.png", "10.PNG", "sub/z.png", "sub-a/y.png", "notes.txt"], "a": ["x.jpg", "deep/er/w.bmp"], "C": ["one.png"]}.items():
            for name in names:
                (root / group / name).parent.mkdir(parents=True, exist_ok=True)
                if name.endswith("txt"):
                    (root / group / name).write_text("no image")
                else:
                    Image.fromarray(np.frombuffer(rig.content(name, 8 * 8), np.uint8).reshape(8, 8)).save(root / group / name)
        (root / "file.png").write_bytes(b"not a class")
        os.symlink(root / "a", root / "link")  # a class too, as os.walk(followlinks=True) has it
        os.symlink(root / "b" / "2.png", root / "C" / "linked.png")
        os.symlink(root / "nowhere", root / "C" / "dangling")
        cls.root = str(root)
        cls.paths = [cls.rig.write(f"files/{i:03}", 3000 + i) for i in range(60)]
        cls.heads = [list(rig.content(f"files/{i:03}", 4)) for i in range(60)]

    def test_image_folder_is_torchvisions(self):
        from torchvision.datasets import ImageFolder as TheirImageFolder  # here: spawned workers load this file too

        for options in ({}, {"is_valid_file": lambda path: path.endswith(("txt", "w.bmp", "one.png"))}):
            ours, theirs = ImageFolder(self.root, **options), TheirImageFolder(self.root, **options)
            for name in ("root", "classes", "class_to_idx", "samples", "imgs", "targets", "extensions"):
                self.assertEqual(getattr(ours, name), getattr(theirs, name), name)
        ours, theirs = ImageFolder(self.root), TheirImageFolder(self.root)
        self.assertEqual(len(ours), len(theirs))
        for index in range(len(ours)):
            self.assertEqual((ours[index][0].mode, ours[index][0].tobytes(), ours[index][1]), (theirs[index][0].mode, theirs[index][0].tobytes(), theirs[index][1]))

    def test_image_folder_errors_are_torchvisions(self):
        empty = self.rig.source / "empty"
        (empty / "class").mkdir(parents=True, exist_ok=True)
        self.assertRaisesRegex(FileNotFoundError, "Found no valid file for the classes class. Supported extensions are: .jpg", ImageFolder, empty)
        self.assertRaisesRegex(FileNotFoundError, "Couldn't find any class folder", ImageFolder, empty / "class")
        self.assertRaises(FileNotFoundError, ImageFolder, empty / "missing")

    def test_allow_empty_is_torchvisions(self):  # of 0.17
        root = self.rig.source / "sparse"
        (root / "empty").mkdir(parents=True)
        (root / "notes").mkdir()
        (root / "notes" / "a.png").write_bytes(b"")
        self.assertRaises(FileNotFoundError, ImageFolder, root)
        for folder in (ImageFolder(root, allow_empty=True), DatasetFolder(root, extensions=".png", allow_empty=True)):
            self.assertEqual((folder.classes, folder.samples), (["empty", "notes"], [(str(root / "notes" / "a.png"), 1)]))
        self.assertRaises(FileNotFoundError, ImageFolder, root / "empty", allow_empty=True)
        self.assertEqual(len(ListedOtherwise(root, allow_empty=False)), 1)

    def test_transforms_loader_and_decode(self):
        folder = ImageFolder(self.root, transform=to_array, target_transform=lambda target: target + 100)
        sample, target = folder[0]
        self.assertEqual((tuple(sample.shape), target), ((8, 8, 3), 100))
        for index, (batched, target) in enumerate(folder.__getitems__(range(len(folder)))):
            self.assertTrue(torch.equal(batched, folder[index][0]))
            self.assertEqual(target, folder[index][1])
        self.assertEqual(ImageFolder(self.root, loader=os.path.basename).__getitems__([0])[0][0], os.path.basename(folder.samples[0][0]))
        self.assertEqual(ImageFolder(self.root, decode=length)[0][0], os.path.getsize(folder.samples[0][0]))

    def test_files(self):
        data = FileDataset(self.paths)
        self.assertEqual((len(data), data[3]), (60, rig.content("files/003", 3003)))
        labelled = FileDataset(self.paths, first_bytes, targets=range(60))
        self.assertEqual([(head.tolist(), target) for head, target in labelled.__getitems__([5, 7])], [(self.heads[5], 5), (self.heads[7], 7)])
        self.assertRaises(ValueError, FileDataset, self.paths, targets=[1])
        for one in (self.paths[0], os.fsencode(self.paths[0])):
            self.assertRaisesRegex(TypeError, "one path", FileDataset, one)
        with self.assertRaises(FileNotFoundError):
            FileDataset([*self.paths, self.rig.source / "gone"]).__getitems__([0, 60])
        again = pickle.loads(pickle.dumps(labelled))
        self.assertEqual(again[9][1], 9)

    def test_a_batch_is_one_wait(self):
        for data in (FileDataset(self.paths, length), ImageFolder(self.root, decode=length)):
            with unittest.mock.patch.object(tierd.Client, "get_batch", autospec=True, side_effect=tierd.Client.get_batch) as batches, \
                    unittest.mock.patch.object(tierd.Client, "view", autospec=True, side_effect=tierd.Client.view) as views:
                list(DataLoader(data, batch_size=8))
            self.assertEqual([len(call.args[1]) for call in batches.call_args_list], [min(8, len(data) - first) for first in range(0, len(data), 8)])
            self.assertEqual(views.call_count, 0)

    def test_what_a_subclass_makes_of_a_sample_is_in_the_batch(self):
        folder = WithPaths(self.root, transform=to_array)
        for workers in (0, 1):
            self.assertEqual([path for _, _, paths in DataLoader(folder, batch_size=3, num_workers=workers) for path in paths], [path for path, _ in folder.samples])
            self.assertEqual([number for _, numbers in DataLoader(Numbered(self.paths), batch_size=7, num_workers=workers) for number in numbers.tolist()], list(range(60)))
        self.assertEqual(ByLoader(self.root).__getitems__([0, 1]), [((8, 8), 0), ((8, 8), 0)])

    def test_attributes_are_torchvisions(self):
        from torchvision.datasets import DatasetFolder as TheirDatasetFolder, ImageFolder as TheirImageFolder
        from torchvision.transforms import Compose

        for extensions in ("g", (".png", ".jpg"), [".png", ".jpg"]):
            self.assertEqual(DatasetFolder(self.root, extensions=extensions).samples, TheirDatasetFolder(self.root, str, tuple(extensions)).samples)
        class More(ImageFolder):
            def extra_repr(self):
                return "Split: train\nKept: all"

        class TheirMore(TheirImageFolder):
            extra_repr = More.extra_repr

        TheirMore.__name__ = "More"
        several = Compose([to_array, torch.nn.Identity()])
        for options in ({}, dict(transform=several), dict(target_transform=torch.nn.Identity()), dict(transform=to_array, target_transform=several)):
            self.assertEqual(repr(ImageFolder(self.root, **options)), repr(TheirImageFolder(self.root, **options)))
            self.assertEqual(repr(More(self.root, **options)), repr(TheirMore(self.root, **options)))
        folder = pickle.loads(pickle.dumps(ImageFolder(self.root)))
        self.assertEqual((folder.loader(folder.samples[0][0]).size, folder.transforms), ((8, 8), None))
        folder.loader, folder.target_transform = os.path.basename, str
        self.assertEqual((folder[0], folder.transforms("x", 5)), (("linked.png", "0"), ("x", "5")))

    def test_every_kind_of_worker(self):
        for path in self.paths:
            tierd.read(path)
        data = FileDataset(self.paths, first_bytes_and_from_ram, targets=list(range(60)))
        expected = {i: [*head, 1] for i, head in enumerate(self.heads)}
        held = tierd.view(self.paths[0])  # over the forks
        for context, persistent, epochs in (("fork", False, 2), ("fork", True, 2), ("spawn", False, 1), ("spawn", True, 2), ("forkserver", False, 2), ("forkserver", True, 2)):
            loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2, multiprocessing_context=context, persistent_workers=persistent)
            for _ in range(epochs):
                seen = {int(target): head.tolist() for heads, targets in loader for head, target in zip(heads, targets)}
                self.assertEqual(seen, expected, (context, persistent))
            del loader
        self.assertEqual(bytes(held[:4]), bytes(self.heads[0]))

    def test_pin_memory_is_accepted(self):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without a GPU torch says that it does nothing
            loader = DataLoader(FileDataset(self.paths, first_bytes), batch_size=20, pin_memory=True, num_workers=1)
            self.assertEqual([head for batch in loader for head in batch.tolist()], self.heads)


if __name__ == "__main__":
    unittest.main()
