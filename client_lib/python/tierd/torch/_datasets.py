"""Data sets of files that are read through tierd. They hold paths and functions only: picklable, and at home in any worker process."""

from __future__ import annotations

import io
import os
from typing import Any, Callable, Iterable, Optional, Sequence, Union

from torch.utils.data import Dataset

from .. import client
from ._listing import find_classes, make_dataset

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

Decode = Callable[[memoryview], Any]
Path = Union[str, "os.PathLike[str]"]


def pil_decode(data: memoryview) -> Any:
    """The image in the bytes of a file, as an RGB PIL.Image: what torchvision's default loader makes of it."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


class FileDataset(Dataset[Any]):
    """One sample per file: `decode` makes it from the file's bytes.

    `decode` gets a read-only memoryview of the cache's own memory. What it keeps of it (np.frombuffer, torch.frombuffer) keeps the memory in the cache as long: copy what is to
    live longer than the batch, and before anything is written into it (torch.frombuffer(...).clone()): a write into the cache's memory ends the process. The default, bytes, copies.
    With `targets`, a sample is (decoded, targets[index]). `__getitems__` gets all files of a batch with one wait; a subclass with a __getitem__ of its own is asked for each sample.
    """

    def __init__(self, paths: Sequence[Path], decode: Decode = bytes, targets: Optional[Sequence[Any]] = None) -> None:
        if isinstance(paths, (str, bytes)):
            raise TypeError(f"FileDataset wants a list of paths, not one path: {paths!r}")
        if targets is not None and len(targets) != len(paths):
            raise ValueError(f"{len(paths)} paths, but {len(targets)} targets")
        self.paths = list(paths)
        self.decode = decode
        self.targets = targets

    def __len__(self) -> int:
        return len(self.paths)

    def _sample(self, index: int, data: memoryview) -> Any:
        decoded = self.decode(data)
        return decoded if self.targets is None else (decoded, self.targets[index])

    def __getitem__(self, index: int) -> Any:
        return self._sample(index, client().view(self.paths[index]))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        if type(self).__getitem__ is not FileDataset.__getitem__:
            return [self[index] for index in indices]
        return [self._sample(index, data) for index, data in zip(indices, client().get_batch([self.paths[index] for index in indices]))]


class DatasetFolder(Dataset[Any]):
    """torchvision.datasets.DatasetFolder over tierd: root/class/.../file, same classes, samples and order.

    `loader(path)`, when given, makes the sample from a path, as torchvision's does (then how the file is read is its business); otherwise `decode` makes it from the
    file's bytes (see FileDataset), and `__getitems__` gets all files of a batch with one wait, unless a subclass has a __getitem__ of its own. Listing is done through tierd too.
    `allow_empty`, as torchvision has it from 0.17 on: a class without a valid file is no FileNotFoundError.
    """

    def __init__(self, root: Path, loader: Optional[Callable[[str], Any]] = None, extensions: Optional[Union[str, Iterable[str]]] = None,
                 transform: Optional[Callable[[Any], Any]] = None, target_transform: Optional[Callable[[int], Any]] = None,
                 is_valid_file: Optional[Callable[[str], bool]] = None, allow_empty: bool = False, *, decode: Decode = bytes) -> None:
        self.root: Path = os.path.expanduser(root) if isinstance(root, str) else root
        self._loader = loader
        self.decode = decode
        self.extensions = extensions
        self.transform = transform
        self.target_transform = target_transform
        self.classes, self.class_to_idx = self.find_classes(os.fspath(self.root))
        # A subclass may have a make_dataset from before torchvision 0.17, which knows no `allow_empty`.
        more = {"allow_empty": True} if allow_empty else {}
        self.samples = self.make_dataset(os.fspath(self.root), self.class_to_idx, extensions, is_valid_file, **more)
        self.targets = [target for _, target in self.samples]

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        """Class names and their indices; to be overridden for other layouts."""
        return find_classes(directory)

    @staticmethod
    def make_dataset(directory: str, class_to_idx: dict[str, int], extensions: Optional[Union[str, Iterable[str]]] = None,
                     is_valid_file: Optional[Callable[[str], bool]] = None, allow_empty: bool = False) -> list[tuple[str, int]]:
        """The list of (path, class index)."""
        return make_dataset(directory, class_to_idx, extensions, is_valid_file, allow_empty)

    @property
    def loader(self) -> Callable[[str], Any]:
        """Makes a sample, not transformed yet, from a path: the one that was given, else what reads through tierd and decodes."""
        return self._decoded if self._loader is None else self._loader

    @loader.setter
    def loader(self, loader: Optional[Callable[[str], Any]]) -> None:
        self._loader = loader

    @property
    def transforms(self) -> Optional[Callable[[Any, Any], tuple[Any, Any]]]:
        """Both transforms in one, as torchvision's; None: there are none."""
        return None if self.transform is None and self.target_transform is None else self._transformed

    def __len__(self) -> int:
        return len(self.samples)

    def __repr__(self) -> str:
        """As torchvision's, with what extra_repr says."""
        body = [f"Number of datapoints: {len(self)}", f"Root location: {self.root}", *self.extra_repr().splitlines()]
        if self.transforms is not None:
            body.append("StandardTransform")
        lines = [f"Dataset {type(self).__name__}", *("    " + line for line in body)]
        for head, transform in (("Transform: ", self.transform), ("Target transform: ", self.target_transform)):
            if transform is not None:
                lines.append(head + repr(transform).replace("\n", "\n" + " " * len(head)))
        return "\n".join(lines)

    def extra_repr(self) -> str:
        """More lines of repr(): for subclasses."""
        return ""

    def _decoded(self, path: str) -> Any:
        return self.decode(client().view(path))

    def _transformed(self, sample: Any, target: Any) -> tuple[Any, Any]:
        if self.transform is not None:
            sample = self.transform(sample)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return sample, target

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._transformed(self.loader(path), target)

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Any]]:
        if self._loader is not None or type(self).__getitem__ is not DatasetFolder.__getitem__:
            return [self[index] for index in indices]
        chosen = [self.samples[index] for index in indices]
        views = client().get_batch([path for path, _ in chosen])
        return [self._transformed(self.decode(view), target) for view, (_, target) in zip(views, chosen)]


class ImageFolder(DatasetFolder):
    """torchvision.datasets.ImageFolder over tierd: same arguments, classes, samples and order. Samples are RGB PIL images unless `loader` or `decode` says otherwise."""

    def __init__(self, root: Path, transform: Optional[Callable[[Any], Any]] = None, target_transform: Optional[Callable[[int], Any]] = None,
                 loader: Optional[Callable[[str], Any]] = None, is_valid_file: Optional[Callable[[str], bool]] = None, allow_empty: bool = False, *,
                 decode: Decode = pil_decode) -> None:
        super().__init__(root, loader, IMG_EXTENSIONS if is_valid_file is None else None, transform, target_transform, is_valid_file, allow_empty, decode=decode)
        self.imgs = self.samples
