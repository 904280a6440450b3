"""tierd.Client: a connection to the daemon; the module's functions are those of the process-wide one."""

from __future__ import annotations

import collections
import ctypes
import errno
import operator
import os
import stat
import weakref
from typing import Any, Iterable, Literal, NamedTuple, Optional, Sequence, Union, overload

from . import _library
from ._control import Control, control_socket
from ._errors import PathLike, encode, error_of
from ._file import BUFFER_BYTES, RawTierFile, TierFile
from ._stats import JobStats, Stats, job_stats_of, stats_of
from ._view import OwnedView, lend, own, uncollected

_NOWAIT = _library.NOWAIT
_LARGE = 256 << 10  # from here on other Python threads run while bytes are copied
_ASK_WAIT_S = 10.0
_ERROR_WAIT_S = 1.0  # for what an error's text has besides
_QUICK = 1 << 20  # a file larger than this may have to be put together

_copy_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_copy_bytes.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
_copy_bytes.restype = ctypes.py_object


class DirEntry(NamedTuple):
    """An entry of Client.scandir: its name, inode number and type (DT_* of <dirent.h>; 0 unknown, 4 directory, 8 regular file, 10 symbolic link)."""

    name: str
    inode: int
    type: int


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _cool() -> None:
    for client in list(_clients):
        client._warm = False


os.register_at_fork(after_in_child=_cool)  # the first call of a child opens its session


class _Owner:
    """A tier_client: disconnected when client, views and files of it are gone."""

    __slots__ = ("pointer", "_disconnect")

    def __init__(self, pointer: int, disconnect: Any) -> None:
        self.pointer, self._disconnect = pointer, disconnect

    def __del__(self) -> None:
        self._disconnect(self.pointer)  # libtier leaves its default client alone


def _bytes_of(view: _library.View) -> bytes:
    if view.size < _LARGE:
        return _copy_bytes(view.data, view.size)  # type: ignore[no-any-return]
    data: bytes = _copy_bytes(None, view.size)
    ctypes.memmove(data, view.data, view.size)  # type: ignore[arg-type]
    return data


def _plain(result: int, path: PathLike) -> bytes:
    """What libtier has refused with `result`: of a device and the like open() says what it gives; OSError of all else. libtier has opened a pipe for a moment, so that
    who writes to it may have given up: there would be nobody to wait for."""
    if result != -errno.EINVAL or stat.S_ISFIFO(os.stat(path).st_mode):
        raise error_of(result, path)
    with open(path, "rb") as file:
        return file.read()


def _paths(paths: Union[PathLike, Iterable[PathLike]]) -> list[PathLike]:
    return [paths] if isinstance(paths, (str, bytes, os.PathLike)) else list(paths)


class Client:
    """Reads files through tierd. Cheap to call from any thread; a forked child goes on with it; pickled, it is connected anew where it is unpickled.

    Without a daemon, or where it cannot serve, everything is read from the source as open() would, and counted (`stats`). Most programs need none of their own:
    tierd.read, tierd.view ... use the process-wide client, which the environment sets up (TIERD_SOCKET, TIERD_PREFIX, TIERD_DISABLE=1, TIERD_LOG=1).
    """

    def __init__(self, socket: Optional[PathLike] = None, *, timeout: float = 1.0, require_daemon: bool = False, check_open: bool = False,
                 populate: bool = False) -> None:
        """`socket`: of the daemon; None: the environment's or the default one. `timeout`: longest wait for the daemon per call before the source is read, in seconds,
        0.001 to 1. `require_daemon`: ConnectionRefusedError (or another OSError) when there is none now. `check_open`: ask the source with this process's
        rights at each access (stat, and open). `populate`: fault the cache's memory in at once: a slower start, no page fault at first hits.
        """
        if not 0.001 <= timeout <= 1:
            raise ValueError(f"timeout is 0.001 to 1 seconds, not {timeout}")
        flags = (_library.REQUIRE_DAEMON * require_daemon) | (_library.CHECK_OPEN * check_open) | (_library.POPULATE * populate)
        options = _library.Options(ctypes.sizeof(_library.Options), None if socket is None else encode(socket), round(timeout * 1000), flags)
        pointer = ctypes.c_void_p()
        result = _library.library().free.connect(options, pointer)
        if result != 0:
            raise error_of(result, socket if socket is not None else os.environ.get("TIERD_SOCKET", "tierd"))
        self._settings: Optional[dict[str, Any]] = dict(
            socket=socket, timeout=timeout, require_daemon=require_daemon, check_open=check_open, populate=populate)
        self._attach(pointer.value)

    @classmethod
    def default(cls) -> "Client":
        """A handle of the process-wide client; close() of it does nothing."""
        client = cls.__new__(cls)
        client._settings = None
        client._attach(_library.library().held.default())
        return client

    def _attach(self, pointer: Any) -> None:
        library = _library.library()
        self._library = library
        self._off = _library.switched_off()
        self._owner: Optional[_Owner] = uncollected(_Owner(pointer, library.free.disconnect))
        self._pointer = pointer
        self._get_now = library.held.get
        self._get = library.free.get
        self._release = library.held.release
        self._end = library.end
        self._spare: collections.deque[OwnedView] = collections.deque()
        # The last file was a small hit, so the next one is tried without letting go of the interpreter's lock, which costs more than a hit. Else other threads
        # run, since the call may wait: for the daemon, the source, a connection, or a large copy.
        self._warm = False
        _clients.add(self)

    def __reduce__(self) -> Any:
        return (_connect_again, (self._settings,))

    def close(self) -> None:
        """Lets go of the connection; it ends when the last view and file of it is gone. Calls that follow raise ValueError. Twice does no harm."""
        if self._settings is None or self._owner is None:
            return
        # Other threads may be in any of them: each takes the owner first, which it then keeps, and its call to the library after that.
        for name in ("_get_now", "_get"):
            setattr(self, name, _closed)
        self._spare = collections.deque(maxlen=0)  # they hold the connection; a read under way leaves its own there
        self._owner = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- whole files ----------------------------------------------------------------------------------------------------------------

    def read(self, path: PathLike) -> bytes:
        """The whole file, as open(path, "rb").read() gives it; errors likewise (FileNotFoundError, IsADirectoryError ...). A device is opened so; a pipe is refused (OSError(EINVAL))."""
        raw = os.fsencode(path)
        if b"\0" in raw:
            raise ValueError("embedded null byte")
        try:
            view = self._spare.pop()
        except IndexError:
            view = own(OwnedView(), self._end, self._owner)
        if not self._warm or self._get_now(self._pointer, raw, view, _NOWAIT) != 0:
            result = self._fetch(raw, view)
            if result != 0:
                return _plain(result, path)
        try:
            if view.size > _QUICK:
                self._warm = False
            return _bytes_of(view)
        finally:
            self._release(view)
            self._spare.append(view)

    def view(self, path: PathLike) -> memoryview:
        """The whole file without a copy: a read-only memoryview of the cache's own memory, for np.frombuffer, torch.frombuffer, PIL ... Tensors know of no read-only memory: a write into
        one over a view ends the process, clone() first.

        The cache keeps the bytes as they are until the last reference is gone: the view, a slice of it, or an array over it. So hold views shortly; past a share of
        the RAM tier per process they are private copies. A view held at a fork stays valid in the child, and keeps its memory in the cache until parent and child have
        ended. Never hand one to sendfile, splice, MSG_ZEROCOPY or io_uring's zero-copy send. Errors as of read().
        """
        raw = os.fsencode(path)
        if b"\0" in raw:
            raise ValueError("embedded null byte")
        view = own(OwnedView(), self._end, self._owner)
        if not self._warm or self._get_now(self._pointer, raw, view, _NOWAIT) != 0:
            result = self._fetch(raw, view)
            if result != 0:
                return memoryview(_plain(result, path))
        if view.size > _QUICK:
            self._warm = False
        return lend(view)

    def _fetch(self, raw: bytes, view: _library.View) -> int:
        self._warm = False
        result: int = self._get(self._pointer, raw, view, 0)
        if result == 0:
            self._warm = view.origin == 0
        return result

    @overload
    def get_batch(self, paths: Iterable[PathLike], *, errors: Literal["raise"] = ...) -> list[memoryview]: ...

    @overload
    def get_batch(self, paths: Iterable[PathLike], *, errors: Literal["return"]) -> list[Union[memoryview, OSError]]: ...

    def get_batch(self, paths: Iterable[PathLike], *, errors: Literal["raise", "return"] = "raise") -> Any:
        """A view of each file, in the order of `paths`, with one wait for all that are not in RAM: the daemon brings them up in parallel.

        errors="raise": the OSError of the first path that cannot be read; "return": it stands in that path's place.
        """
        if isinstance(paths, (str, bytes, os.PathLike)):
            raise TypeError("get_batch wants several paths; for one there is view")
        if errors not in ("raise", "return"):
            raise ValueError(f'errors is "raise" or "return", not {errors!r}')
        wanted = list(paths)
        count = len(wanted)
        names = (ctypes.c_char_p * count)(*map(encode, wanted))
        views = (_library.View * count)()
        # Each owns its part of the array alone, so that one does not keep the memory of the others.
        size = ctypes.sizeof(_library.View)
        owner = self._live()
        owned = [own(OwnedView.from_buffer(views, i * size), self._end, owner) for i in range(count)]
        results = (ctypes.c_int * count)()
        got = self._library.free.get_batch(owner.pointer, names, count, views, results, 0)
        if got < 0:
            raise OSError(-got, os.strerror(-got))
        others: dict[int, Union[memoryview, OSError]] = {}
        for i in range(count):
            if results[i] == 0:
                continue
            try:
                others[i] = memoryview(_plain(results[i], wanted[i]))
            except OSError as error:
                if errors == "raise":
                    owned.clear()  # the traceback keeps this frame
                    raise
                others[i] = error.with_traceback(None)
        return [others[i] if i in others else lend(owned[i]) for i in range(count)]

    @overload
    def open(self, path: PathLike, mode: str = ..., buffering: Literal[-1, 1] = ...) -> TierFile: ...

    @overload
    def open(self, path: PathLike, mode: str = ..., *, buffering: Literal[0]) -> RawTierFile: ...

    @overload
    def open(self, path: PathLike, mode: str, buffering: Literal[0]) -> RawTierFile: ...

    @overload
    def open(self, path: PathLike, mode: str = ..., buffering: int = ...) -> Union[TierFile, RawTierFile]: ...

    def open(self, path: PathLike, mode: str = "rb", buffering: int = -1) -> Union[TierFile, RawTierFile]:
        """A binary file object for reading: seek, readinto, iteration, `with`. `buffering`: bytes of its buffer, -1: 64 KiB, 0: none (an io.RawIOBase).

        Bound to the version the file has now, and without a descriptor (see RawTierFile). Errors as of open(); ValueError for another mode than "rb": tierd never writes.
        """
        if mode not in ("rb", "br"):
            if set(mode) <= {"r", "t"}:
                raise ValueError(f"tierd opens files in binary only, not in mode {mode!r}: for text io.TextIOWrapper(tierd.open(path))")
            raise ValueError(f"tierd opens files for reading only: mode {mode!r}")
        buffering = operator.index(buffering)
        raw = RawTierFile(self, path)
        if buffering == 0:
            return raw
        return TierFile(raw, BUFFER_BYTES if buffering < 2 else buffering)

    # -- metadata -------------------------------------------------------------------------------------------------------------------

    def stat(self, path: PathLike, *, follow_symlinks: bool = True) -> os.stat_result:
        """As os.stat, from the shared index where it knows the path (st_atime is then what it was when the source was last asked, st_blocks what the size takes in blocks of 4 KiB; st_rdev is 0, of devices too).
        That a file is missing is always asked of the source."""
        attr = _library.Attr(size=ctypes.sizeof(_library.Attr))
        self._call("stat", path, attr, 0 if follow_symlinks else _library.NOFOLLOW)
        times = (attr.atime_ns, attr.mtime_ns, attr.ctime_ns)
        if not _library.NO_TIMES.isdisjoint(times):
            return os.stat(path, follow_symlinks=follow_symlinks)
        named = dict(zip(("st_atime_ns", "st_mtime_ns", "st_ctime_ns"), times), st_blksize=attr.blksize, st_blocks=attr.blocks, st_rdev=0)
        # Rounded as os.stat does: t / 1e9 is another float for some.
        named.update(zip(("st_atime", "st_mtime", "st_ctime"), (t // 10**9 + 1e-9 * (t % 10**9) for t in times)))
        whole = (attr.mode, attr.ino, attr.dev, attr.nlink, attr.uid, attr.gid, attr.bytes, *(t // 10**9 for t in times))
        return os.stat_result(whole, named)

    def scandir(self, path: PathLike = ".") -> list[DirEntry]:
        """The entries of a directory without "." and "..", in no particular order: from the index, else from the source."""
        listing = ctypes.c_void_p()
        self._call("list", path, listing, 0)
        calls, entry, found = self._library.held, _library.Entry(), []
        try:
            while calls.list_next(listing, entry) == 1:
                found.append(DirEntry(os.fsdecode(entry.name), entry.ino, entry.type))
        finally:
            calls.list_close(listing)
        return found

    def _call(self, name: str, path: PathLike, out: Any, flags: int) -> None:
        owner, raw = self._live(), encode(path)
        result = getattr(self._library.free, name)(owner.pointer, raw, out, flags)
        if result != 0:
            raise error_of(result, path)

    # -- advice ---------------------------------------------------------------------------------------------------------------------

    def prefetch(self, paths: Union[PathLike, Iterable[PathLike]], *, recursive: bool = True) -> int:
        """Asks the daemon to bring files up in the background; of a directory, everything below it.

        Returns the number of paths that the daemon accepted, 0 without a daemon. With `recursive=False`, directories are
        refused. A single path is checked first: the OSError of os.stat(path) is raised (FileNotFoundError ...), and
        IsADirectoryError for a refused directory. Of several paths, those that cannot be brought up are skipped;
        `tierctl jobs` counts them. FileNotFoundError for a path below no source, with the sources in its text.
        TimeoutError when the daemon does not answer.
        """
        self._check_one(paths, recursive)
        return self._advise("prefetch", paths, recursive)

    def evict(self, paths: Union[PathLike, Iterable[PathLike]], *, recursive: bool = True) -> int:
        """Drops files from RAM and SSD, of a directory everything below it. The source is never touched.

        Returns the number of cached files and directories concerned, 0 for a path that is not cached. Errors as of prefetch, but no path is checked.
        """
        return self._advise("evict", paths, recursive)

    def pin(self, paths: Union[PathLike, Iterable[PathLike]], *, recursive: bool = True) -> int:
        """Brings files up and keeps them in the cache until unpin. Otherwise as prefetch."""
        self._check_one(paths, recursive)
        return self._advise("pin", paths, recursive)

    def unpin(self, paths: Union[PathLike, Iterable[PathLike]], *, recursive: bool = True) -> int:
        """Releases pinned files, of a directory everything below it. Result and errors as of evict."""
        return self._advise("unpin", paths, recursive)

    def invalidate(self, paths: Union[PathLike, Iterable[PathLike]], *, recursive: bool = False) -> int:
        """Says that files changed (written, renamed, removed, truncated): after this no process of the node is served the old bytes. The number of files concerned.

        TimeoutError when the daemon could not confirm: this process then reads the source until it could be told.
        """
        return self._advise("invalidate", paths, recursive)

    def _advise(self, verb: str, paths: Union[PathLike, Iterable[PathLike]], recursive: bool) -> int:
        self._live()
        wanted = _paths(paths)
        names = (ctypes.c_char_p * len(wanted))(*map(encode, wanted))
        owner = self._live()  # `paths` is the caller's code
        result: int = getattr(self._library.free, verb)(owner.pointer, names, len(wanted), _library.RECURSIVE if recursive else 0)
        if result == -errno.ENOTCONN:
            return 0
        if result == -errno.ENOENT:  # libtier says this only of a path below no source
            raise FileNotFoundError(errno.ENOENT, self._below_no_source(), *(os.fspath(path) for path in wanted[:1] if len(wanted) == 1))
        if result < 0:
            raise error_of(result, wanted[0]) if len(wanted) == 1 else OSError(-result, os.strerror(-result))
        return result

    def _check_one(self, paths: Union[PathLike, Iterable[PathLike]], recursive: bool) -> None:
        """The OSError that a single path deserves. Nobody waits for what becomes of an accepted path, so it is checked before."""
        if not isinstance(paths, (str, bytes, os.PathLike)) or self._off:
            return
        if stat.S_ISDIR(self.stat(paths).st_mode) and not recursive:
            raise error_of(-errno.EISDIR, paths)

    def _below_no_source(self) -> str:
        try:
            sources = self._control(_ERROR_WAIT_S).sources()
        except OSError:
            return "below no source of tierd"
        return f"below no source of tierd ({', '.join(sources)})"

    def _control(self, wait_s: float) -> Control:
        socket = (self._settings or {}).get("socket")
        return Control(control_socket(None if socket is None else os.fsdecode(socket)), wait_s)

    def _live(self) -> _Owner:
        """The connection, for as long as who asked keeps it. ValueError when the client is closed."""
        owner = self._owner
        if owner is None:
            raise _is_closed()
        return owner

    def stats(self) -> Stats:
        """What this process read through this client, and from where. Workers of a DataLoader are processes of their own: see job_stats."""
        owner = self._live()
        return stats_of(self._library.free, owner.pointer)  # waits for a thread that is connecting

    def job_stats(self) -> JobStats:
        """What all processes read through the daemon since it started, ended ones included: the whole job, if the daemon is that of `tierctl run`.

        A process's last reads appear within a second. ConnectionRefusedError, FileNotFoundError or another OSError without a daemon.
        """
        self._live()
        return job_stats_of(self._control(_ASK_WAIT_S).status())


class ClosedError(ValueError):
    """Unlike other ValueErrors not of what was asked for."""


def _is_closed() -> ClosedError:
    return ClosedError("the tierd.Client is closed")


def _closed(*_: Any, **__: Any) -> Any:
    raise _is_closed()


def _connect_again(settings: Optional[dict[str, Any]]) -> Client:
    return Client.default() if settings is None else Client(**settings)


__all__: Sequence[str] = ("Client", "DirEntry")
