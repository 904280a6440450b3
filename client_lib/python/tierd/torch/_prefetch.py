"""The thread behind announce: has the daemon bring files up ahead of the loader, in the order of their use and no further than the window."""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import threading
import warnings
from typing import Any, Callable, Iterator, Optional, Sequence

from .. import Client
from .._client import ClosedError
from ..plan import Plan
from ._draws import TorchDraws
from ._thread import EndingThread

_MESSAGE = 64  # paths per call at most: the daemon takes 256 at a time, from everybody
_PAUSE_S = 5.0  # after a call that reached no daemon; libtier looks for one as often
_BUSY_S = 0.005  # after one that the daemon took only a part of; doubled while it takes none
_BACKSTOP_S = 1.0  # a stop that could not take the lock is seen this late at most


class Lookahead:
    """What the iterating thread says (begin, take, stop) and what the prefetching thread does about it (next_indices).

    Guarded by `_wake`, but for `stopped`, `taken` and `accepted`, which have one writer each. Orders are lists of a few MB per million samples, at most two.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._step = max(1, min(_MESSAGE, window // 4))
        self._wake = threading.Condition(threading.Lock())
        self._waiting = [self._wake]  # who is told of the end
        self._process = os.getpid()
        self.stopped = False
        self.accepted = 0  # paths that prefetch took
        self.mismatches = 0
        self._taken = 0  # of the current epoch
        self._wake_at: float = math.inf
        self._plan: Optional[Plan] = None  # begun, and its order not computed yet
        self._certain = False
        self._skip = 0
        self._foreseen: tuple[Optional[list[int]], int] = (None, 0)  # order and how much of it was sent
        self._following: Optional[Iterator[list[int]]] = None  # orders of the epochs behind this one
        self._order: Optional[list[int]] = None
        self._next: Optional[list[int]] = None
        self._at = 0  # sent of _order, and of _next behind it
        self._epoch = 0

    # -- the iterating thread

    def foresee(self, plan: Plan, skip: int) -> None:
        """Before any epoch: the first one will be that of `plan`."""
        with self._wake:
            self._plan, self._certain, self._skip = plan, False, skip
            self._wake.notify()

    def begin(self, plan: Plan, certain: bool, skip: int) -> Callable[[Any], None]:
        """An epoch begins: the first of `plan`. `certain`: what the plan says of the next one will hold. `skip`: indices that will be drawn and not read."""
        with self._wake:
            order = self._order
            if self._epoch == 0:
                self._foreseen = (order, self._at)
            else:
                self._foreseen = (self._next, max(self._at - len(order or ()), 0))
            self._plan, self._certain, self._skip = plan, certain, skip
            self._order = self._next = self._following = None
            self._taken = 0
            self._epoch += 1
            epoch = self._epoch
            self._wake.notify()

        def take(index: Any) -> None:
            at = self._taken
            order = self._order
            if epoch != self._epoch:
                return  # an older iterator goes on beside the newest one
            self._taken = at + 1
            if order is not None and at < len(order) and order[at] != index:
                self._differs()
            if at >= self._wake_at and not self._forked():
                with self._wake:
                    self._wake_at = math.inf
                    self._wake.notify()

        return take

    def _differs(self) -> None:
        if self._forked():
            return
        with self._wake:
            self.mismatches += 1
            self._order, self._next, self._following = [], None, None

    def _forked(self) -> bool:
        """In a child that goes on with the parent's iterator: nobody listens there, and nobody gives `_wake` back that another thread had at the fork."""
        return os.getpid() != self._process

    def wakes(self, waiting: threading.Condition) -> None:
        """Before anything else: who waits for that condition, at most _BACKSTOP_S at a time, looks at `stopped` as soon as it is set."""
        self._waiting.append(waiting)

    def stop(self) -> None:
        """Any thread, also the garbage collector's, also in a forked child: never waits."""
        self.stopped = True
        if self._forked():
            return
        for waiting in self._waiting:
            if waiting.acquire(blocking=False):
                waiting.notify()
                waiting.release()

    def give_up(self, error: Exception) -> None:
        """Any thread: stops with the one warning that says why. The training has nothing to do with what went wrong."""
        with self._wake:
            first, self.stopped = not self.stopped, True
        self.stop()
        if first:
            with contextlib.suppress(Warning):  # `-W error`
                warnings.warn(f"tierd.torch.announce has ended, the order is not told any more: {error!r}", RuntimeWarning, stacklevel=4)

    # -- the prefetching thread

    def next_indices(self) -> Optional[tuple[list[int], int]]:
        """Waits for the next ones to bring up, and for what `refused` wants to know; None: it is over."""
        while not self.stopped:
            with self._wake:
                plan, self._plan, epoch = self._plan, None, self._epoch
                following = self._wanted() if plan is None else None
                if plan is None and following is None:
                    chosen = self._choose()
                    if chosen:
                        return chosen, epoch
                    self._wake.wait(_BACKSTOP_S)
                    continue
            # Orders are computed outside the lock: the loader goes on meanwhile.
            if plan is not None:
                self._compute(plan, epoch)
            elif following is not None:
                self._compute_next(following, epoch)
        return None

    def refused(self, count: int, epoch: int) -> None:
        """The last `count` indices were not taken: they come again, those that the loader has not reached by then."""
        with self._wake:
            if epoch == self._epoch and self._order:
                self._at -= count

    def pause(self, seconds: float) -> None:
        with self._wake:
            while not self.stopped and seconds > 0 and not self._wake.wait(min(seconds, _BACKSTOP_S)):
                seconds -= _BACKSTOP_S

    def _compute(self, plan: Plan, epoch: int) -> None:
        orders = plan.orders(TorchDraws)
        order = next(orders)
        foreseen, sent = self._foreseen
        same = foreseen == order
        with self._wake:
            if epoch != self._epoch:
                return  # another one has begun meanwhile
            self._at = sent if same else self._skip
            self._order = order
            self._foreseen = (None, 0)
            self._following = orders if self._certain else None

    def _wanted(self) -> Optional[Iterator[list[int]]]:
        """Where the next epoch's order comes from, once, when the window reaches into that epoch. Under the lock."""
        if not self._order or self._taken + self._window <= len(self._order):
            return None
        following, self._following = self._following, None
        return following

    def _compute_next(self, following: Iterator[list[int]], epoch: int) -> None:
        order = next(following, None)
        with self._wake:
            if epoch == self._epoch and self._order:  # neither over nor turned out otherwise meanwhile
                self._next = order

    def _choose(self) -> list[int]:
        """The next indices within the window, a step of them or what is left of the epoch; [] when it is too early. Under the lock."""
        order = self._order
        if not order:
            return []
        self._at = max(self._at, self._taken)
        limit = self._taken + self._window
        end = len(order) + (len(self._next) if self._next else 0)
        room = min(limit, end) - self._at
        if room < self._step and (min(limit, end) < end or self._following is not None):
            self._wake_at = self._at + self._step - self._window - 1
            return []
        if room <= 0:
            return []
        upper = self._at + min(room, _MESSAGE)
        chosen = order[self._at:upper]
        if self._next and upper > len(order):
            chosen += self._next[max(self._at - len(order), 0):upper - len(order)]
        self._at = upper
        return chosen


def _run(lookahead: Lookahead, path_of: Callable[[int], Any], client: Client) -> None:
    try:
        _bring_up(lookahead, path_of, client)
    except Exception as error:  # of the program's list of paths
        lookahead.give_up(error)


def _tell(client: Client, paths: Sequence[Any]) -> tuple[int, int]:
    """How many the daemon took up, and how many it never will: below no source, or no path that it could be told. Of the first ones, when it has no room for the rest."""
    try:
        return client.prefetch(paths), 0
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EINVAL):
            raise
    # One such path hides what became of the others. Those of a directory are below a source together.
    parts = [list(part) for _, part in itertools.groupby(paths, os.path.dirname)]
    if len(parts) == 1:
        return 0, len(paths)
    taken = foreign = 0
    for part in parts:
        of_part = _tell(client, part)
        taken, foreign = taken + of_part[0], foreign + of_part[1]
        if sum(of_part) < len(part):
            break
    return taken, foreign


def _bring_up(lookahead: Lookahead, path_of: Callable[[int], Any], client: Client) -> None:
    busy = _BUSY_S
    while (found := lookahead.next_indices()) is not None:
        indices, epoch = found
        paths = [path_of(index) for index in indices]
        try:
            taken, foreign = _tell(client, paths)
            lookahead.accepted += taken
            there = taken + foreign > 0 or client.stats().connected
        except OSError:  # a daemon that does not answer
            there = False
        except ClosedError:
            return lookahead.stop()
        if not there:
            lookahead.pause(_PAUSE_S)
        elif taken + foreign < len(indices):
            lookahead.refused(len(indices) - taken - foreign, epoch)
            busy = _BUSY_S if taken else min(2 * busy, 0.2)
            lookahead.pause(busy)


def start(lookahead: Lookahead, path_of: Callable[[int], Any], client: Client) -> None:
    """Starts the thread; it ends with lookahead.stop()."""
    EndingThread("tierd-announce", lambda: _run(lookahead, path_of, client), lookahead.stop).start()
