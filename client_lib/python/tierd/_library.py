"""Finds libtier.so and binds its C ABI (tier/tier.h) with ctypes.

Two bindings of the same library: `held` keeps the interpreter's lock during the call (for what never waits: a hit costs less than letting go of the lock and
taking it again), `free` lets other Python threads run (for what may wait for the daemon or the source).
Thread rule: everything here is made once, at first use, and never changes.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import sysconfig
from typing import Any, Iterator

SONAME = "libtier.so.1"
ABI_VERSION = 1  # of tier.h that this package is written for

# Flags of tier.h
CACHED, NOWAIT, NOFOLLOW, COPY, RECURSIVE = 1, 2, 4, 8, 16
REQUIRE_DAEMON, CHECK_OPEN, POPULATE = 1, 2, 4

NO_TIMES = frozenset((-(2**63), 2**63 - 1))  # instead of a time that lies before 1677 or after 2262

ORIGINS = ("ram", "ssd", "source", "bypass")
FALLBACKS = 32


_AT_SECURE = 23  # of <elf.h>


class LibraryNotFound(ImportError):
    """libtier.so is nowhere to be found, or is not usable; the text names every place that was looked at."""


class View(ctypes.Structure):
    """struct tier_view."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("origin", ctypes.c_uint32), ("kind_", ctypes.c_uint32),
        ("opaque_", ctypes.c_uint64 * 3),
    ]


class Attr(ctypes.Structure):
    """struct tier_attr."""

    _fields_ = [
        ("size", ctypes.c_uint64), ("dev", ctypes.c_uint64), ("ino", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("mode", ctypes.c_uint32),
        ("nlink", ctypes.c_uint32), ("uid", ctypes.c_uint32), ("gid", ctypes.c_uint32), ("blksize", ctypes.c_uint64), ("blocks", ctypes.c_uint64),
        ("atime_ns", ctypes.c_int64), ("mtime_ns", ctypes.c_int64), ("ctime_ns", ctypes.c_int64), ("origin", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class Entry(ctypes.Structure):
    """struct tier_entry."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("name_bytes", ctypes.c_size_t), ("ino", ctypes.c_uint64), ("type", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32), ("position", ctypes.c_uint64),
    ]


class Options(ctypes.Structure):
    """struct tier_options."""

    _fields_ = [("size", ctypes.c_size_t), ("socket", ctypes.c_char_p), ("timeout_ms", ctypes.c_uint32), ("flags", ctypes.c_uint32)]


class Statistics(ctypes.Structure):
    """struct tier_statistics."""

    _fields_ = [
        ("size", ctypes.c_uint64), ("reads", ctypes.c_uint64 * 4), ("bytes", ctypes.c_uint64 * 4), ("fallback", ctypes.c_uint64 * FALLBACKS),
        ("leases", ctypes.c_uint64), ("frozen_leases", ctypes.c_uint64), ("leased_bytes", ctypes.c_uint64), ("mapped_bytes", ctypes.c_uint64),
        ("sessions", ctypes.c_uint64), ("connected", ctypes.c_uint32), ("hung", ctypes.c_uint32), ("page_kind", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


_P, _S, _U, _V = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint, ctypes.POINTER(View)
_SS, _I64 = ctypes.c_ssize_t, ctypes.c_int64
_PATHS = ctypes.POINTER(ctypes.c_char_p)
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "tier_abi_version": (ctypes.c_uint32, ()),
    "tier_version": (_S, ()),
    "tier_default": (_P, ()),
    "tier_connect": (ctypes.c_int, (ctypes.POINTER(Options), ctypes.POINTER(_P))),
    "tier_disconnect": (None, (_P,)),
    "tier_get": (ctypes.c_int, (_P, _S, _V, _U)),
    "tier_release": (None, (_V,)),
    "tier_get_batch": (_SS, (_P, _PATHS, ctypes.c_size_t, _V, ctypes.POINTER(ctypes.c_int), _U)),
    "tier_open": (ctypes.c_int, (_P, _S, ctypes.POINTER(_P), _U)),
    "tier_close": (None, (_P,)),
    "tier_fstat": (ctypes.c_int, (_P, ctypes.POINTER(Attr))),
    "tier_file_pread": (_SS, (_P, _P, ctypes.c_size_t, _I64)),
    "tier_stat": (ctypes.c_int, (_P, _S, ctypes.POINTER(Attr), _U)),
    "tier_list": (ctypes.c_int, (_P, _S, ctypes.POINTER(_P), _U)),
    "tier_list_next": (ctypes.c_int, (_P, ctypes.POINTER(Entry))),
    "tier_list_close": (None, (_P,)),
    "tier_prefetch": (_I64, (_P, _PATHS, ctypes.c_size_t, _U)),
    "tier_evict": (_I64, (_P, _PATHS, ctypes.c_size_t, _U)),
    "tier_pin": (_I64, (_P, _PATHS, ctypes.c_size_t, _U)),
    "tier_unpin": (_I64, (_P, _PATHS, ctypes.c_size_t, _U)),
    "tier_invalidate": (_I64, (_P, _PATHS, ctypes.c_size_t, _U)),
    "tier_stats": (ctypes.c_int, (_P, ctypes.POINTER(Statistics))),
    "tier_fallback_name": (_S, (ctypes.c_uint32,)),
}


class Binding:
    """The functions of tier.h without their prefix: `binding.get` is tier_get."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name, (result, arguments) in _SIGNATURES.items():
            function = library[name]
            function.restype, function.argtypes = result, arguments
            setattr(self, name[len("tier_"):], function)

    def __getattr__(self, name: str) -> Any:  # for type checkers: everything is set above
        raise AttributeError(name)


class Library:
    """libtier, loaded. `path` is what the loader was given."""

    def __init__(self, path: str) -> None:
        self.path = path
        # ctypes binds per object: two of them give two sets of functions over one loaded library.
        self.free = Binding(ctypes.CDLL(path))
        held = ctypes.PyDLL(path)
        self.held = Binding(held)
        # tier_release by address, for finalizers: no conversion of its argument runs Python code.
        self.end = held["tier_release"]
        self.end.restype, self.end.argtypes = None, (_P,)
        self.version: str = self.held.version().decode()


def _near_package() -> Iterator[pathlib.Path]:
    """Where libtier lies beside this package: in its own directory, in the build tree, or installed under one prefix with it."""
    package = pathlib.Path(os.path.abspath(__file__)).parent
    yield package / SONAME
    yield package.parent.parent / "src" / SONAME
    multiarch = sysconfig.get_config_var("MULTIARCH")
    for prefix in list(package.parents)[1:5]:
        for folder in ("lib", *([f"lib/{multiarch}"] if multiarch else []), "lib64"):
            yield prefix / folder / SONAME


def candidates() -> Iterator[str]:
    """Names for the loader, first choice first. TIERD_LIBTIER, when set, is the only one."""
    named = os.environ.get("TIERD_LIBTIER")
    if named:
        yield named
        return
    for path in _near_package():
        if path.is_file():
            yield str(path)
    yield SONAME


@functools.lru_cache(maxsize=1)
def library() -> Library:
    """libtier, loaded at the first call. LibraryNotFound when there is none or it is older than this package."""
    failures = []
    for name in candidates():
        try:
            found = Library(name)
        except (OSError, AttributeError) as error:
            failures.append(f"  {name}: {error}")
            continue
        if found.held.abi_version() < ABI_VERSION:
            failures.append(f"  {name}: ABI version {found.held.abi_version()}, wanted {ABI_VERSION}")
            continue
        return found
    raise LibraryNotFound(
        "tierd: libtier cannot be loaded. Install it (cmake --install), or name it: TIERD_LIBTIER=/path/to/libtier.so.1\n" + "\n".join(failures))


def switched_off() -> bool:
    """Whether a client that is made now has nothing to do with any daemon: TIERD_DISABLE, or a program with more rights than its caller. As libtier decides it."""
    auxiliary = ctypes.CDLL(None).getauxval
    auxiliary.restype, auxiliary.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
    return os.environ.get("TIERD_DISABLE", "") not in ("", "0") or auxiliary(_AT_SECURE) != 0
