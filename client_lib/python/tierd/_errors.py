"""From results of libtier to Python's exceptions."""

from __future__ import annotations

import os
from typing import Union

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def encode(path: PathLike) -> bytes:
    """The bytes of a path as the file system has them. TypeError for what is no path, ValueError for one with a NUL in it, both as of open()."""
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise ValueError("embedded null byte")
    return raw


def error_of(result: int, path: PathLike) -> OSError:
    """The OSError (FileNotFoundError, PermissionError ...) that open(path) would raise for this errno; `result` is a negative errno."""
    return OSError(-result, os.strerror(-result), os.fspath(path))
