"""What type checkers take a tierd.open for: python_types_test checks it, file_test.py does the same."""

from __future__ import annotations

import io
import tarfile
import zipfile
from typing import IO, BinaryIO, Union

import tierd


def text(path: str) -> str:
    return io.TextIOWrapper(tierd.open(path)).read()


def members(path: str) -> list[str]:
    with tierd.open(path) as file, zipfile.ZipFile(file) as archive:
        return archive.namelist()


def packed(path: str) -> list[str]:
    with tarfile.open(fileobj=tierd.open(path)) as archive:
        return archive.getnames()


def kinds(path: str, buffering: int) -> tuple[tierd.TierFile, tierd.RawTierFile, IO[bytes], io.RawIOBase]:
    buffered: tierd.TierFile = tierd.open(path, "rb")
    raw: tierd.RawTierFile = tierd.open(path, buffering=0)
    either: BinaryIO = tierd.open(path, "rb", buffering)
    return buffered, raw, either, buffered.raw


def batch(paths: list[str]) -> tuple[list[memoryview], list[Union[memoryview, OSError]]]:
    sizes = [view.nbytes for view in tierd.get_batch(paths)]
    views: list[memoryview] = tierd.get_batch(paths[:len(sizes)], errors="raise")
    for each in tierd.get_batch(paths, errors="return"):
        if isinstance(each, OSError):
            raise each
        views.append(each)
    return views, tierd.get_batch(paths, errors="return")


def view(path: str) -> memoryview:
    with tierd.Client() as client, client.open(path) as file:
        return memoryview(file.read(file.size))
