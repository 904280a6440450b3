"""tierd as a file system of fsspec: pandas.read_csv("tierd:///pfs/table.csv"), zarr.open("tierd:///pfs/array.zarr"), h5py.File(fsspec.open(...).open()).

An installed tierd is found by its entry point (group fsspec.specs); tierd.fsspec.register() does the same for one that is only on sys.path.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import errno
import functools
import os
import stat
from typing import Any, Optional

import fsspec
from fsspec.spec import AbstractFileSystem

from . import Client, client
from ._file import BUFFER_BYTES, RawTierFile, TierFile
from ._paths import absolute

_TYPES = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "link"}
# A listing of so many names is looked at by so many threads.
_MANY, _TOGETHER = 256, 8
_LOCAL = ("file", "local", "tierd")
_STARTS = tuple(protocol + mark for protocol in _LOCAL for mark in ("://", "::"))


def _bare(path: Any) -> str:
    """A name without its protocols, of which a chain has several; "" is what is left of the tierd:// of one, whose path comes with the target."""
    text: str = os.fspath(path)
    while start := next((start for start in _STARTS if text.startswith(start)), ""):
        text = text[len(start):]
    return text


def _below(chained: Any, path: Any) -> Any:
    """_strip_protocol of a chained instance: "" is the chained path or the list of them, and a relative name is below that, wherever the process works."""
    if isinstance(path, list):
        return [_below(chained, each) for each in path]
    text = _bare(path)
    if isinstance(chained, list):
        return list(chained) if text == "" else absolute(text)
    return absolute(os.path.join(chained, text))


class _Opened(TierFile):
    """With what fsspec asks of a file: blockcache:: wants to take over its close and to fetch ranges. Reads do not go through such a cache: tierd is one."""

    def __init__(self, raw: RawTierFile, blocksize: int) -> None:
        super().__init__(raw, BUFFER_BYTES)
        self.path, self.blocksize = raw.name, blocksize

    @property
    def closed(self) -> bool:
        return super().closed

    @closed.setter
    def closed(self, _: bool) -> None:
        """Said by blockcache:: after it closed the file."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        before = self.tell()
        try:
            self.seek(start)
            return self.read(end - start)
        finally:
            self.seek(before)


def _read_only(_: Any, path: Any = None, *__: Any, **___: Any) -> Any:
    raise OSError(errno.EROFS, f"{os.strerror(errno.EROFS)} (tierd:// only reads: write to the path itself, without tierd://, then tierd.invalidate it)", path)


class TierdFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Read-only file system over the paths of the node, read through the cache: tierd:///absolute/path, or chained: tierd::/absolute/path, tierd::file:///absolute/path.

    `socket`: of another daemon than the default one. Writing raises OSError(EROFS), which zarr's stores pass on as the cause of a KeyError: write to the path itself, then
    tierd.invalidate it. Errors of reading as those of tierd.read. find, walk and glob do not go through links to directories, as those of fsspec's local file system. Thread rule: any.
    """

    protocol = "tierd"
    root_marker = "/"
    local_file = False
    cachable = True

    def __init__(self, fo: Optional[str] = None, target_protocol: Optional[str] = None, target_options: Optional[dict[str, Any]] = None,
                 socket: Optional[str] = None, **options: Any) -> None:
        super().__init__(**options)
        if target_protocol not in (None, *_LOCAL):
            raise ValueError(f"tierd:: reads paths of this node, not {target_protocol}")
        if fo is not None:
            self._strip_protocol = functools.partial(_below, self._strip_protocol(fo))  # type: ignore[assignment]
        self._client = client() if socket is None else Client(socket)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = _bare(path)
        return text if text in ("", "/") else absolute(text)

    def _path(self, path: Any) -> str:
        return self._strip_protocol(path) or "/"

    def _info(self, path: str, listed: bool = False) -> dict[str, Any]:
        """Links are followed. `listed`: but those to directories, below which find and walk might never end, and those that lead nowhere."""
        facts = self._client.stat(path, follow_symlinks=False)
        link = stat.S_ISLNK(facts.st_mode)
        if link:
            try:
                target = self._client.stat(path)
            except OSError:
                if not listed:
                    raise
            else:
                facts = facts if listed and stat.S_ISDIR(target.st_mode) else target
        kind = _TYPES.get(stat.S_IFMT(facts.st_mode), "other")
        return {"name": path, "size": facts.st_size, "type": kind, "mtime": facts.st_mtime, "ino": facts.st_ino, "mode": facts.st_mode, "islink": link}

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return self._info(self._path(path))

    def lexists(self, path: str, **_: Any) -> bool:
        """Also of a link that leads nowhere."""
        try:
            self._client.stat(self._path(path), follow_symlinks=False)
        except (OSError, ValueError):  # no name of a file, either
            return False
        return True

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        top = self._path(path)
        facts = self._info(top)
        if facts["type"] != "directory":
            return [facts] if detail else [top]
        names = sorted(os.path.join(top, entry.name) for entry in self._client.scandir(top))
        if not detail:
            return names
        if len(names) < _MANY:
            return [found for found in map(self._listed, names) if found]
        with concurrent.futures.ThreadPoolExecutor(_TOGETHER) as pool:  # names that nobody has asked about yet cost a round trip to the source each
            return [found for found in pool.map(self._listed, names) if found]

    def _listed(self, path: str) -> Optional[dict[str, Any]]:
        try:
            return self._info(path, listed=True)
        except OSError:  # gone meanwhile
            return None

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, cache_options: Any = None, **_: Any) -> Any:
        if mode not in ("rb", "br"):
            _read_only(self, self._path(path))
        return _Opened(self._client.open(self._path(path), buffering=0), block_size or self.blocksize)  # type: ignore[arg-type]

    mkdir = makedirs = rmdir = _read_only  # fsspec's own do nothing and say nothing
    rm = rm_file = _rm = cp_file = mv = _read_only  # nor do these say why not

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **_: Any) -> bytes:
        if start is None and end is None:
            return self._client.read(self._path(path))
        with self._client.open(self._path(path), buffering=0) as file:
            size: int = file.size
            first, last = slice(start, end).indices(size)[:2]
            file.seek(first)
            return file.read(max(last - first, 0)) or b""

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    created = modified

    def invalidate_cache(self, path: Optional[str] = None) -> None:
        """Of fsspec's own listings, of which there are none here; what tierd holds: tierd.invalidate."""


def register() -> None:
    """Makes fsspec know tierd:// in this process. Twice does no harm."""
    fsspec.register_implementation("tierd", TierdFileSystem, clobber=True)
