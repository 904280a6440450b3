"""Watches a sampler give its indices, without changing them.

Python looks special methods up on the type, so the sampler is given a subclass of its own type with another __iter__; everything else of it stays: isinstance, attributes,
set_epoch. Copies and pickles of it are plain samplers again.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Protocol


class Watcher(Protocol):
    """Told by the thread that iterates."""

    def epoch_begins(self) -> Callable[[Any], None]:
        """Before the sampler has drawn anything of an epoch; what it returns is called with each index."""

    def epoch_ends(self, begun: Callable[[Any], None]) -> None:
        """The sampler has no more indices, or nobody asks for them any more. `begun`: what epoch_begins returned. Twice, and on any thread."""


class _Watched:
    """An epoch's iterator. `epoch_begins` runs before the first index is asked for, when the order has not been drawn yet."""

    def __init__(self, plain: Iterator[Any], watcher: Watcher) -> None:
        self._plain, self._watcher = plain, watcher
        self._take: Any = None

    def __iter__(self) -> "_Watched":
        return self

    def __next__(self) -> Any:
        if self._take is None:
            self._take = self._watcher.epoch_begins()
        try:
            index = next(self._plain)
        except StopIteration:
            self._watcher.epoch_ends(self._take)
            raise
        self._take(index)
        return index

    def __del__(self) -> None:
        if self._take is not None:
            self._watcher.epoch_ends(self._take)


def _iterate(self: Any) -> Iterator[Any]:
    return _Watched(self._tierd_plain.__iter__(self), self._tierd_watcher)


def _reduce(self: Any, protocol: Any) -> Any:
    state = {name: value for name, value in self.__dict__.items() if name != "_tierd_watcher"}
    return (_bare, (self._tierd_plain,), state)


def _bare(of: type) -> Any:
    return object.__new__(of)


def watch(sampler: Any, watcher: Watcher) -> None:
    """From now on `watcher` is told. It takes the place of one that was told before."""
    plain = getattr(type(sampler), "_tierd_plain", type(sampler))
    sampler._tierd_watcher = watcher
    names = {"__iter__": _iterate, "__reduce_ex__": _reduce, "_tierd_plain": plain, "__module__": plain.__module__, "__qualname__": plain.__qualname__,
             "__doc__": plain.__doc__}
    sampler.__class__ = type(plain.__name__, (plain,), names)


def unwatch(sampler: Any, watcher: Watcher) -> None:
    """The sampler is as it was. Iterators of it that are under way go on and tell `watcher`."""
    if getattr(sampler, "_tierd_watcher", None) is watcher:
        sampler.__class__ = type(sampler)._tierd_plain
        del sampler._tierd_watcher
