"""Class folders and their files, in torchvision's order, listed through tierd: from the index where it knows the directories."""

from __future__ import annotations

import os
from stat import S_ISDIR
from typing import Callable, Iterable, Iterator, Optional, Union

from .. import client

_DIRECTORY, _REGULAR = 4, 8  # DT_*


def _is_directory(path: str, kind: int) -> bool:
    if kind in (_DIRECTORY, _REGULAR):
        return kind == _DIRECTORY
    try:  # a link, or a file system that does not say
        return S_ISDIR(client().stat(path).st_mode)
    except OSError:
        return False


def find_classes(directory: Union[str, "os.PathLike[str]"]) -> tuple[list[str], dict[str, int]]:
    """Sorted names of the directories in `directory`, and the index of each. FileNotFoundError when there is none."""
    top = os.fspath(directory)
    classes = sorted(name for name, _, kind in client().scandir(top) if _is_directory(os.path.join(top, name), kind))
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: index for index, name in enumerate(classes)}


def _walk(top: str) -> Iterator[tuple[str, list[str]]]:
    """Each directory at and below `top`, links followed, with the names of what is no directory; what cannot be listed is left out, as os.walk does."""
    try:
        entries = client().scandir(top)
    except OSError:
        return
    below, files = [], []
    for name, _, kind in entries:
        path = os.path.join(top, name)
        if _is_directory(path, kind):
            below.append(path)
        else:
            files.append(name)
    yield top, files
    for path in below:
        yield from _walk(path)


def make_dataset(directory: Union[str, "os.PathLike[str]"], class_to_idx: dict[str, int], extensions: Optional[Union[str, Iterable[str]]] = None,
                 is_valid_file: Optional[Callable[[str], bool]] = None, allow_empty: bool = False) -> list[tuple[str, int]]:
    """(path, class) of each valid file: classes sorted, in each the directories sorted, in each the files sorted. Errors as torchvision's make_dataset."""
    if not class_to_idx:
        raise ValueError("'class_to_index' must have at least one entry to collect any samples.")
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
    endings = (extensions,) if isinstance(extensions, str) else tuple(extensions or ())
    valid = is_valid_file or (lambda path: path.lower().endswith(endings))
    top = os.path.expanduser(os.fspath(directory))
    samples, empty = [], []
    for name in sorted(class_to_idx):
        found = [(path, class_to_idx[name]) for folder, files in sorted(_walk(os.path.join(top, name))) for path in (os.path.join(folder, file) for file in sorted(files))
                 if valid(path)]
        samples += found
        if not found:
            empty.append(name)
    if empty and not allow_empty:
        text = f"Found no valid file for the classes {', '.join(empty)}. "
        raise FileNotFoundError(text + (f"Supported extensions are: {', '.join(endings)}" if endings else ""))
    return samples
