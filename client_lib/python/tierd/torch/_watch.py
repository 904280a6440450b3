"""Watches a sampler give its indices, without changing them.

Python looks special methods up on the type, so the sampler is given a subclass of its own type with another __iter__; everything else of it stays: isinstance, attributes,
set_epoch. Copies and pickles of it are plain samplers again.
"""

from __future__ import annotations

import copyreg
import functools
import weakref
from typing import Any, Callable, Iterator, Optional, Protocol


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


def plain_type(thing: Any) -> Any:
    """The type of a sampler as its owner knows it, also while it is watched."""
    return getattr(type(thing), "_tierd_plain", type(thing))


def _iterate(self: Any) -> Iterator[Any]:
    plain, watcher = plain_type(self).__iter__(self), watcher_of(self)
    return plain if watcher is None else _Watched(plain, watcher)


def _reduce(self: Any, protocol: Any) -> Any:
    """By the sampler's own rules, whatever they are, but of the plain type."""
    watched = type(self)
    plain: Any = getattr(watched, "_tierd_plain", watched)
    made = plain.__reduce_ex__(self, protocol)
    if not isinstance(made, tuple):
        return made
    make, *arguments = (plain if part is watched else part for part in (made[0], *made[1]))
    # These two pickle takes for an object of the same type only; so as it does itself for old protocols.
    if make is copyreg.__newobj__:  # type: ignore[attr-defined]
        make, arguments = functools.partial(plain.__new__, *arguments), []
    elif make is copyreg.__newobj_ex__:  # type: ignore[attr-defined]
        _, positional, named = arguments
        make, arguments = functools.partial(plain.__new__, plain, *positional, **named), []
    return (make, tuple(arguments), *made[2:])


def watcher_of(sampler: Any) -> Optional[Watcher]:
    """Who was told last; None: nobody is. What somebody makes by the type of a watched one is a sampler of its own."""
    watched = type(sampler)
    return watched._tierd_watcher if getattr(watched, "_tierd_sampler", _nobody)() is sampler else None  # type: ignore[attr-defined, no-any-return]


def _nobody() -> None:
    return None


def watch(sampler: Any, watcher: Watcher) -> None:
    """From now on `watcher` is told. It takes the place of one that was told before."""
    plain = plain_type(sampler)
    # All of it in the type: the sampler's own attributes are as they were, for whoever copies them.
    names = {"__iter__": _iterate, "__reduce_ex__": _reduce, "_tierd_plain": plain, "_tierd_watcher": watcher, "_tierd_sampler": weakref.ref(sampler),
             "__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    sampler.__class__ = watched = type(plain.__name__, (plain,), names)
    end = weakref.finalize(sampler, _let_go, watched)  # a type waits for the garbage collector, and would keep the watcher until then
    end.atexit = False
    watched._tierd_end = end  # type: ignore[attr-defined]


def _let_go(watched: Any) -> None:
    watched._tierd_watcher = None


def unwatch(sampler: Any, watcher: Watcher) -> None:
    """The sampler is as it was. Iterators of it that are under way go on and tell `watcher`."""
    if watcher_of(sampler) is watcher:
        watched, sampler.__class__ = type(sampler), plain_type(sampler)
        watched._tierd_end()
