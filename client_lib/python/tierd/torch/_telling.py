"""The thread that tells the daemon the plan of an announcement, takes it back at the end, and tells it again to a new daemon."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Optional

from .._control import control_socket, forget, tell
from ..plan import Plan
from ._prefetch import Lookahead

_LOOK_S = 0.5  # at whether it is over
_AGAIN_S = 30.0  # after a daemon that was not there, or did not want it; and to see whether there is a new one


def start(lookahead: Lookahead, plan: Plan, count: int, path_of: Callable[[int], Any], client: Any) -> None:
    """Starts it; it ends with lookahead.stop(). Keeps neither the sampler nor the data set alive."""
    settings = getattr(client, "_settings", None) or {}
    path = control_socket(None if settings.get("socket") is None else os.fsdecode(settings["socket"]))
    threading.Thread(target=_run, args=(lookahead, plan, count, path_of, path), name="tierd-plan", daemon=True).start()


def _identity(path: str) -> Optional[tuple[int, int]]:
    """Another one for each daemon."""
    try:
        info = os.stat(path)
        return info.st_ino, info.st_ctime_ns
    except OSError:
        return None


def _run(lookahead: Lookahead, plan: Plan, count: int, path_of: Callable[[int], Any], path: str) -> None:
    told: Optional[int] = None
    to = None
    again = 0.0
    while not lookahead.stopped:
        now = time.monotonic()
        if now >= again:
            again = now + _AGAIN_S
            there = _identity(path)
            if there is not None and (told is None or there != to):
                try:
                    told, to = tell(path, plan, map(path_of, range(count))), there
                except (OSError, ValueError, KeyError):
                    told = None
        time.sleep(_LOOK_S)
    if told is not None:
        try:
            forget(path, told)
        except (OSError, ValueError):
            pass
