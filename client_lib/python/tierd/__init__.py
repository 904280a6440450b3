"""tierd: read files through the cache of the node: shared memory, and the daemon `tierd` for what is not there yet.

    import tierd
    data = tierd.read("/pfs/train/img_0001.jpg")             # bytes, as open(path, "rb").read()
    array = np.frombuffer(tierd.view(path), np.uint8)        # the cache's own memory: no copy
    with tierd.open(path) as file: ...                       # a binary file object
    views = tierd.get_batch(paths)                           # one wait for all of them

Paths are those of the source. Without a daemon each call reads the source itself, so that code written with tierd runs anywhere. Errors are the OSErrors that
open() raises. All functions may be called from any thread, and after fork(). Linux only. `tierd.torch` has data sets for PyTorch, `tierd.fsspec` the protocol
tierd:// for fsspec, pandas, zarr and others; either is loaded when it is first named.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from ._client import Client, DirEntry
from ._file import RawTierFile, TierFile
from ._library import LibraryNotFound
from ._stats import JobStats, Stats

__version__ = "0.1.0"

__all__ = [
    "Client", "DirEntry", "JobStats", "LibraryNotFound", "RawTierFile", "Stats", "TierFile", "client", "evict", "get_batch", "invalidate", "job_stats", "open", "pin", "prefetch",
    "read", "scandir", "stat", "stats", "unpin", "view",
]

_OF_CLIENT = frozenset((
    "evict", "get_batch", "invalidate", "job_stats", "open", "pin", "prefetch", "read", "scandir", "stat", "stats", "unpin", "view"))
_NEEDED_BY = {"torch": "PyTorch", "fsspec": "fsspec"}  # submodules that importing tierd does not load

if TYPE_CHECKING:
    from . import fsspec, torch

    _default = Client.default()
    evict, get_batch, invalidate, open, pin = _default.evict, _default.get_batch, _default.invalidate, _default.open, _default.pin
    job_stats = _default.job_stats
    prefetch, read, scandir, stat, stats = _default.prefetch, _default.read, _default.scandir, _default.stat, _default.stats
    unpin, view = _default.unpin, _default.view


def client() -> Client:
    """The process-wide client, which the functions of this module use. LibraryNotFound when libtier is not there."""
    if "read" not in globals():
        __getattr__("read")
    return globals()["read"].__self__  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    # The functions are bound methods of the default client, made at first use: importing tierd loads nothing, and a call has no layer in between.
    if name in _NEEDED_BY:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"tierd.{name} needs {_NEEDED_BY[name]}: {error}", name=error.name) from error
    if name not in _OF_CLIENT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    default = Client.default()
    for each in _OF_CLIENT:
        globals().setdefault(each, getattr(default, each))
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *(name for name in _NEEDED_BY if importlib.util.find_spec(name) is not None)})
