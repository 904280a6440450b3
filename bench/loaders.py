"""Ordinary loaders, run bare and under the preload library by bench/loaders.cc. Prints numbers in one line.

  make KIND DIRECTORY COUNT        files for `patterns`: npz (16 MB, 8 arrays), h5 (1 MB, one data set), jpg (some 68 KB)
  suffix DIRECTORY TEXT            the files below it get names that end so
  patterns KIND DIRECTORY EPOCHS   a DataLoader with two forked workers that opens each file as such loaders do: samples per second, CPU seconds per sample.
                                   KIND h5lock: a lock of each file alone; none: the same without opening anything
  epochs DIRECTORY EPOCHS          a data set of images (PNG) or of raw bytes, two workers, shuffled: seconds of each epoch
  listing DIRECTORY TIMES CHECKED  seconds of the last of several ImageFolder(DIRECTORY), how many files it has, and the seconds of one more
                                  with the names in Python's memory. CHECKED 1: with an is_valid_file that looks at the size
"""

import fcntl
import os
import pathlib
import resource
import sys
import time
import zipfile  # noqa: F401 (numpy's own use of it is what is measured)

import numpy as np


def make(kind, directory, count):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True)
    dice = np.random.default_rng(1)
    for number in range(int(count)):
        path = directory / f"{number:05}.{kind}"
        if kind == "npz":
            np.savez(path, **{f"array{i}": dice.random(2_000_000 // 8) for i in range(8)})
        elif kind == "h5":
            import h5py
            with h5py.File(path, "w") as file:
                file["x"] = dice.random(1_000_000 // 8)
        else:
            from PIL import Image
            Image.fromarray(dice.integers(0, 255, (190, 190, 3), np.uint8)).save(path, quality=92)


def suffix(directory, text):
    for parent, _, names in os.walk(directory):
        for name in names:
            os.rename(os.path.join(parent, name), os.path.join(parent, name + text))


def read_npz(path):
    with np.load(path) as arrays:
        return sum(float(arrays[name][-1]) for name in arrays.files)


def read_h5(path):
    import h5py
    with h5py.File(path, "r") as file:
        return float(file["x"][:][-1])


def lock_h5(path):
    """What h5py's lock of a file takes."""
    file = os.open(path, os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(file)
    return 0.0


def read_jpg(path):
    from PIL import Image
    with Image.open(path) as image:
        return float(image.convert("RGB").getpixel((0, 0))[0])


def read_png(path):
    from PIL import Image
    with Image.open(path) as image:
        return np.asarray(image.convert("L"), np.float32) / 255


def read_bytes(path):
    with open(path, "rb") as file:
        return float(np.frombuffer(file.read(), np.uint8)[-1])


READERS = {"npz": read_npz, "h5": read_h5, "h5lock": lock_h5, "jpg": read_jpg, "png": read_png, "none": lambda path: 0.0}


class Files:
    def __init__(self, paths, read):
        self.paths, self.read = paths, read

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.read(self.paths[index])


def loader_over(paths, read, batch):
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return torch.utils.data.DataLoader(Files(paths, read), batch_size=batch, shuffle=True, num_workers=2)


def cpu_seconds():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def patterns(kind, directory, epochs):
    paths = sorted(str(path) for path in pathlib.Path(directory).iterdir())
    loader = loader_over(paths, READERS[kind], 8)
    READERS[kind](paths[0])  # the parent of the workers has what they import
    cpu, start = cpu_seconds(), time.perf_counter()
    for _ in range(int(epochs)):
        for _batch in loader:
            pass
    samples = len(paths) * int(epochs)
    print(samples / (time.perf_counter() - start), (cpu_seconds() - cpu) / samples)


def epochs(directory, count):
    paths = sorted(os.path.join(parent, name) for parent, _, names in os.walk(directory) for name in names)
    loader = loader_over(paths, read_png if paths[0].endswith(".png") else read_bytes, 64)
    seconds = []
    for _ in range(int(count)):
        start = time.perf_counter()
        for _batch in loader:
            pass
        seconds.append(time.perf_counter() - start)
    print(*seconds)


def listing(directory, times, checked):
    from torchvision.datasets import ImageFolder
    options = {"is_valid_file": lambda path: os.path.getsize(path) > 0} if checked == "1" else {}
    names = {}

    def remembered(top, **_):
        return names[top]

    def seconds():
        start = time.perf_counter()
        dataset = ImageFolder(directory, **options)
        return time.perf_counter() - start, len(dataset)

    for _ in range(int(times)):
        listed, count = seconds()
    walk = os.walk
    for entry in os.scandir(directory):
        names[entry.path] = list(walk(entry.path, followlinks=True))
    os.walk = remembered
    print(listed, count, seconds()[0])


if __name__ == "__main__":
    {"make": make, "suffix": suffix, "patterns": patterns, "epochs": epochs, "listing": listing}[sys.argv[1]](*sys.argv[2:])
