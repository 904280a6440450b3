"""The daemon's control plane (CONTROL.md), as far as the package needs it: telling it a plan."""

from __future__ import annotations

import base64
import contextlib
import errno
import http.client
import json
import os
import socket
import stat
import struct
from typing import Any, Iterable, Optional, Union

from ._errors import encode
from ._list import PlanList
from ._paths import resolved
from .plan import Plan

_TIMEOUT_S = 60.0  # a list of millions of paths takes seconds
_LATER = (429, 500, 503)  # not now: CONTROL.md


def _is_runtime_directory(path: str) -> bool:
    """As daemon and libtier see it: one that is not there, or not the user's, was passed on by a batch system or by su."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return False
    return path.startswith("/") and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def control_socket(client_socket: Optional[str]) -> str:
    """Where tierctl would look: beside the client socket, of the environment or the default one."""
    found = client_socket or os.environ.get("TIERD_SOCKET")
    if found:
        return os.path.join(os.path.dirname(found), "control.sock")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return os.path.join(runtime, "tierd", "control.sock") if _is_runtime_directory(runtime) else f"/tmp/tierd-{os.geteuid()}/control.sock"


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, wait_s: float) -> None:
        super().__init__("tierd", timeout=wait_s)
        self._path = path
        self._wait_s = wait_s

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._wait_s)
        self.sock.connect(self._path)
        # Somebody else's socket planted where ours is looked for hears of no path, and names no directory that the list is written to.
        _, uid, _ = struct.unpack("3i", self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        if uid != os.geteuid():
            raise PermissionError(errno.EACCES, f"served by uid {uid}, not by you", self._path)


def _path(name: bytes) -> Any:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(name).decode()}


class Control:
    """The daemon behind the control socket `path`; waits at most `wait_s` for each step of an answer. One thread asks; hang_up is for any."""

    def __init__(self, path: str, wait_s: float = _TIMEOUT_S) -> None:
        self._path = path
        self._wait_s = wait_s
        self._hung_up = False
        self._asking: Optional[socket.socket] = None

    def tell(self, plan: Plan, samples: Iterable[Union[str, bytes, "os.PathLike[str]"]]) -> Optional[int]:
        """Tells the daemon that this process is going to read `samples` by `plan`; the plan's number there. None: it does not want it. OSError, also when it might later; besides it
        what `samples` raises.
        """
        directory = self.status().get("runtime_directory")
        if not isinstance(directory, str):
            raise OSError(errno.EPROTO, "GET /v1/status: no runtime_directory", self._path)
        first: Optional[bytes] = None
        with PlanList(directory) as out:
            for sample in samples:
                name = encode(resolved(os.fsdecode(sample)))
                first = name if first is None else first
                out.file.write(name + b"\0")
            if first is None:
                return None
            body = {"plan": json.loads(plan.to_json()), "list": out.publish(), "path": _path(first), "follow": True}
            status, answer = self._ask("POST", "/v1/plans", body)
            if status in _LATER:
                raise OSError(errno.EAGAIN, f"POST /v1/plans: {status}", self._path)
            number = answer.get("plan")
            return number if status == 201 and isinstance(number, int) else None

    def status(self) -> dict[str, Any]:
        """The answer of GET /v1/status. OSError."""
        status, answer = self._ask("GET", "/v1/status")
        if status != 200:
            raise OSError(errno.EPROTO, f"GET /v1/status: {status}", self._path)
        return answer

    def sources(self) -> list[str]:
        """The roots of the daemon's sources. OSError."""
        return [source["path"] for source in self.status().get("sources", ()) if isinstance(source, dict) and "path" in source]

    def forget(self, number: int) -> None:
        """Takes a plan back. OSError."""
        self._ask("DELETE", f"/v1/plans/{number}")

    def hang_up(self) -> None:
        """For good: what is asked now or later ends with an OSError at once."""
        self._hung_up = True
        asking = self._asking
        if asking is not None:
            with contextlib.suppress(OSError):  # it was over
                asking.shutdown(socket.SHUT_RDWR)

    def _ask(self, method: str, target: str, body: Optional[dict[str, Any]] = None) -> tuple[int, dict[str, Any]]:
        """OSError, also for an answer that broke off or is none."""
        connection = _Connection(self._path, self._wait_s)
        try:
            connection.connect()
            self._asking = connection.sock
            if self._hung_up:  # looked at when hang_up can see what to shut down
                raise ConnectionAbortedError(errno.ECONNABORTED, os.strerror(errno.ECONNABORTED), self._path)
            connection.request(method, target, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = json.loads(answer.read() or "{}")
            return answer.status, said if isinstance(said, dict) else {}
        except (http.client.HTTPException, ValueError, RecursionError) as error:
            raise OSError(errno.EPROTO, f"{method} {target}: {error!r}", self._path) from None
        finally:
            self._asking = None
            connection.close()
