"""The thread that tells the daemon the plan of an announcement, takes it back at the end, and tells it again to a new daemon."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Iterator, Optional

from .._control import Control, control_socket
from ..plan import Plan
from ._prefetch import Lookahead
from ._thread import EndingThread

_LOOK_S = 0.5  # at whether it is over, where that could not be said at once
_AGAIN_S = 30.0  # after a daemon that was not there, or had no time for it; and to see whether there is a new one


class Telling:
    """What the daemon is to know. The iterating thread says it (`tell`, `stands_at`), the thread behind it does it; it ends with lookahead.stop()."""

    # The thread keeps neither the sampler nor the data set alive.

    def __init__(self, lookahead: Lookahead, count: int, path_of: Callable[[int], Any], client: Any) -> None:
        settings = getattr(client, "_settings", None) or {}
        self._path = control_socket(None if settings.get("socket") is None else os.fsdecode(settings["socket"]))
        self._control = Control(self._path)
        self._off = getattr(client, "_off", False)
        self._lookahead, self._count, self._path_of = lookahead, count, path_of
        self._wake = threading.Condition(threading.Lock())
        self._plan: Optional[Plan] = None
        self._new = False
        lookahead.wakes(self._wake)

    def tell(self, plan: Plan) -> None:
        """In place of what was told before. Nothing is told for a client that is switched off: a plan has the daemon bring all of it up."""
        if self._off:
            return
        with self._wake:
            first = self._plan is None
            self._plan, self._new = plan, True
            self._wake.notify()
        if first:
            EndingThread("tierd-plan", self._run, self._hang_up).start()

    def stands_at(self, plan: Plan) -> None:
        """What was told goes on with that: so a daemon that is new is told it."""
        with self._wake:
            self._plan = plan

    def _hang_up(self) -> None:
        """The process ends, and its plan with it: nothing is waited for."""
        self._lookahead.stop()
        self._control.hang_up()

    def _listed(self) -> Iterator[Any]:
        for index in range(self._count):
            if self._lookahead.stopped:
                raise InterruptedError
            yield self._path_of(index)

    def _run(self) -> None:
        told: Optional[int] = None
        to = None
        again = 0.0
        while not self._lookahead.stopped:
            with self._wake:
                if not self._new and not self._lookahead.stopped:
                    self._wake.wait(_LOOK_S)
                plan, new, self._new = self._plan, self._new, False
            now = time.monotonic()
            if plan is None or not new and now < again:
                continue
            again = now + _AGAIN_S
            there = _identity(self._path)
            if there is None or not new and there == to:
                continue
            if there == to:
                self._forget(told)
            told = to = None
            try:
                told, to = self._control.tell(plan, self._listed()), there
            except OSError:
                pass
            except Exception as error:  # of the program's list of paths
                self._lookahead.give_up(error)
        self._forget(told)

    def _forget(self, told: Optional[int]) -> None:
        if told is None:
            return
        try:
            self._control.forget(told)
        except OSError:
            pass


def _identity(path: str) -> Optional[tuple[int, int]]:
    """Another one for each daemon."""
    try:
        info = os.stat(path)
        return info.st_ino, info.st_ctime_ns
    except OSError:
        return None
