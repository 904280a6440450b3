"""tierd.open: a file of the cache as a binary file object; it has no descriptor."""

from __future__ import annotations

import ctypes
import functools
import io
import operator
import os
from typing import TYPE_CHECKING, Any, Optional

from . import _library
from ._errors import PathLike, encode, error_of
from ._view import uncollected

if TYPE_CHECKING:
    from typing import BinaryIO

    from ._client import Client

    # To type checkers each is an IO[bytes] as well, which io.TextIOWrapper, zipfile and tarfile ask for; no file is an instance of that.
    class _RawIOBase(io.RawIOBase, BinaryIO):  # type: ignore[misc]
        name: Any
        mode: str

    class _BufferedIOBase(io.BufferedIOBase, BinaryIO):  # type: ignore[misc]
        name: Any
        mode: str
else:
    _RawIOBase, _BufferedIOBase = io.RawIOBase, io.BufferedIOBase

BUFFER_BYTES = 64 << 10

_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
_new_bytes.restype = ctypes.py_object
_bytes_address = ctypes.pythonapi.PyBytes_AsString
_bytes_address.argtypes = (ctypes.py_object,)
_bytes_address.restype = ctypes.c_void_p


class _Handle:
    """A tier_file: closed with the last reference, so that no close can run beside a read of another thread.

    It is there before the file is opened, and closes it without Python code: see _view.py.
    """

    __slots__ = ("pointer", "_client", "__del__")

    def __init__(self, close: Any, client: object) -> None:
        self.pointer, self._client = ctypes.c_void_p(), client
        self.__del__ = functools.partial(close, self.pointer)  # NULL is left alone


class RawTierFile(_RawIOBase):
    """An open regular file, unbuffered and read-only: what tierd.open(path, buffering=0) gives, and TierFile.raw.

    Bound to the version the file had when it was opened: bytes of two versions never mix; a file rewritten in place gives OSError(ESTALE). Read by one
    thread at a time (the position is shared); close() beside a read of another thread is safe. A forked child may go on reading. It has no
    descriptor: fileno() raises io.UnsupportedOperation.
    """

    def __init__(self, client: "Client", path: PathLike) -> None:
        self.name = os.fspath(path)
        self._position = 0
        self._handle: Optional[_Handle] = None
        calls = client._library.free
        owner = client._live()
        handle = uncollected(_Handle(calls.close, owner))
        result = calls.open(owner.pointer, encode(path), handle.pointer, 0)
        if result != 0:
            super().close()
            raise error_of(result, path)
        self._handle = handle
        self._pread = calls.file_pread
        attr = _library.Attr(size=ctypes.sizeof(_library.Attr))
        calls.fstat(handle.pointer, attr)
        self.size: int = attr.bytes  # of the file, in bytes, when it was opened
        self.mtime_ns: int = attr.mtime_ns

    mode = "rb"

    def _opened(self) -> _Handle:
        handle = self._handle
        if handle is None:
            raise ValueError("I/O operation on closed file.")
        return handle

    def _read_at(self, address: Optional[int], count: int) -> int:
        handle = self._opened()
        got: int = self._pread(handle.pointer, address, count, self._position)
        if got < 0:
            raise error_of(got, self.name)
        self._position += got
        return got

    def readable(self) -> bool:
        self._opened()
        return True

    def seekable(self) -> bool:
        self._opened()
        return True

    def writable(self) -> bool:
        self._opened()
        return False

    def write(self, _: Any, /) -> int:
        self._opened()
        raise io.UnsupportedOperation("write")

    def truncate(self, _: Optional[int] = None, /) -> int:
        self._opened()
        raise io.UnsupportedOperation("truncate")

    def read(self, size: Optional[int] = -1, /) -> bytes:
        return self.readall() if size is None else super().read(size)  # type: ignore[return-value]

    def readinto(self, buffer: Any, /) -> int:
        with memoryview(buffer) as given:
            if given.nbytes == 0:  # which may have a shape that cannot be cast
                self._opened()
                return 0
            with given.cast("B") as flat:
                return self._read_at(ctypes.addressof(ctypes.c_char.from_buffer(flat)), len(flat))

    def readall(self) -> bytes:
        self._opened()
        wanted = max(self.size - self._position, 0)
        if wanted <= 1:  # bytes that short are shared by the interpreter: never written into
            parts = []
            while part := self.read(BUFFER_BYTES):
                parts.append(part)
            return b"".join(parts)
        data: bytes = _new_bytes(None, wanted)
        done = 0
        while done < wanted:
            got = self._read_at(_bytes_address(data) + done, wanted - done)
            if got == 0:
                return data[:done]
            done += got
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._opened()
        offset = operator.index(offset)
        if not -2**63 <= offset < 2**63:
            raise OverflowError(f"{offset} is no offset of a file")
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}.get(whence)
        if base is None:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        if not 0 <= base + offset < 2**63:
            raise error_of(-22, self.name)
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        self._opened()
        return self._position

    def close(self) -> None:
        self._handle = None
        super().close()

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle an open file: open the path again where it is needed")


class TierFile(_BufferedIOBase):
    """What tierd.open gives: an io.BufferedReader over a RawTierFile (`raw`) in everything but its type.

    Neither is it a file with a descriptor, which NumPy takes every io.BufferedReader for: what finds one (NumPy, PIL of TIFF, torch.load of the old format) reads behind the cache's back,
    and nobody counts it. The methods are those of the C object itself: no layer between.
    """

    def __init__(self, raw: RawTierFile, buffer_bytes: int) -> None:
        self.raw = raw
        self._buffered = buffered = io.BufferedReader(raw, buffer_bytes)
        for name in ("read", "read1", "readinto", "readinto1", "readline", "readlines", "peek", "seek", "tell", "truncate", "flush", "readable", "seekable", "writable", "isatty", "fileno", "detach"):
            setattr(self, name, getattr(buffered, name))
        self.name = raw.name
        self.mode = raw.mode
        self.size = raw.size  # of the file, in bytes, when it was opened

    @property
    def closed(self) -> bool:
        return self._buffered.closed

    def close(self) -> None:
        self._buffered.close()

    def __del__(self) -> None:
        """Not close(), as io.IOBase has it: in `tierd.open(path).read()` this object ends before its read does. The reader closes itself."""

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle an open file: open the path again where it is needed")
