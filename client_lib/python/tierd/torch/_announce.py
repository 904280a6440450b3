"""announce: tells tierd the order that a DataLoader or sampler is going to read its data set in."""

from __future__ import annotations

import bisect
import contextlib
import operator
import os
import warnings
import weakref
from dataclasses import replace
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from torch.utils.data import ConcatDataset, Subset

from .. import Client, client
from ..plan import Plan, Start, digest_of
from ._draws import behind
from ._prefetch import Lookahead, start
from ._sampler import draws_from_process, plan_from, source_of
from ._telling import Telling
from ._watch import unwatch, watch, watcher_of

PathOf = Callable[[int], Union[str, "os.PathLike[str]"]]


def announce(loader_or_sampler: Any, dataset: Any, *, epochs: Optional[int] = None, position: int = 0, window: int = 512,
             client: Optional[Client] = None) -> "Announcement":
    """Declares the exact order in which `loader_or_sampler` will read `dataset`. Changes neither the order nor the state of any random generator.

    `loader_or_sampler`: DataLoader (also with shuffle=True), BatchSampler, DistributedSampler, RandomSampler with or without a generator, SequentialSampler, or a subclass that
    keeps their __iter__; TypeError for others. `dataset`: one of tierd.torch, torchvision's ImageFolder, a Subset or ConcatDataset of such, or a sequence of paths; TypeError for
    others. `epochs`: how many will be read, None: not known. `position`: samples of the first epoch that the program will not read because it read them before it was
    interrupted; a program that iterates over them anyway needs nothing.

    Where the order of the epochs to come is certain (sequential, distributed, a generator of its own), the daemon is told the plan: its policy then keeps what is read soonest, and
    it brings ahead what is not there. Of a RandomSampler that draws from the process's generator (None, torch.default_generator) it is told when the first epoch begins, for all
    epochs; if something else has drawn from that by the time that a later one begins, then each epoch when it begins. A generator of its own that does not stand where it was told
    to, as an epoch was cut short or something else draws from it, is counted (`mismatches`): what is to come is told anew, from the second time on each epoch when it begins. The
    daemon compares what is read with the plan by itself, and does without it where they differ; the plan ends with this process.
    Beside that, a background thread of this process has the daemon prefetch the files in the order of their use, at most `window` samples ahead of what the loader has
    asked for; before the first epoch, and over the end of one into the next, where the order is certain by then. The order of an epoch is computed again when it begins,
    from the state that the sampler draws from, and compared with each index; a difference ends the look-ahead for that epoch (`mismatches`).

    Works in the process that iterates (workers need nothing), with resumed epochs, and until the loader is gone, `epochs` are over, or `stop` is called. An epoch that is cut short
    counts. Without a daemon it does nothing; one whose control_socket is not control.sock beside the clients' socket is told no plan. Announcing a sampler again ends its
    earlier announcement.

    What cannot be announced is refused here and changes nothing: ValueError for an empty data set, another number of files than the sampler draws from, or a number out of
    range. Afterwards nothing reaches the loop: what goes wrong (a data set that shrank) ends the announcement with a RuntimeWarning.
    """
    return Announcement(loader_or_sampler, _paths_of(dataset), epochs, position, window, client)


class Announcement:
    """Of announce. A context manager: leaving it stops. Its methods may be called from any thread; it need not be kept."""

    # The sampler holds its announcement, the announcement the sampler only weakly, and the thread neither: the sampler's end is the end of all.

    def __init__(self, loader_or_sampler: Any, paths: "_Paths", epochs: Optional[int], position: int, window: int, of_client: Optional[Client]) -> None:
        source = source_of(loader_or_sampler)
        if paths.count == 0:
            raise ValueError("the data set is empty")
        plan = plan_from(source)
        window, position, epochs = _whole(window, "window"), _whole(position, "position"), None if epochs is None else _whole(epochs, "epochs")
        told = replace(plan, epochs=epochs, position=position)
        if window < 1:
            raise ValueError(f"window is at least one sample, not {window}")
        if plan.samples != paths.count:
            raise ValueError(f"the sampler draws from {plan.samples} samples, the data set has {paths.count} files")
        of_client = of_client or client()
        self._process = os.getpid()
        self._sampler = weakref.ref(source.sampler)
        self._source = replace(source, sampler=None)
        self._paths = paths
        self._digest: Optional[str] = None
        self._epochs_left = epochs
        self._position = position
        # Of a DistributedSampler: seed + epoch, of which the order is drawn; the next one by what was told.
        self._last_seed: Optional[int] = None
        self._next_seed = plan.seed + plan.epoch
        self._set_epoch = True
        self._begun: Optional[Callable[[Any], None]] = None  # the newest epoch
        self._of_process = draws_from_process(source.sampler)
        self._foretold: Optional[Start] = None  # of torch.random, told: where its generator will stand when the next order is drawn, if nobody else draws
        self._doubts = 0  # how often it stood elsewhere
        self._lookahead = Lookahead(window)
        self._telling = Telling(self._lookahead, paths.count, paths.of, of_client)
        self._end = weakref.finalize(source.sampler, self._lookahead.stop)
        self._end.atexit = False
        earlier: Any = watcher_of(source.sampler)
        if earlier is not None:
            earlier.stop()
        try:
            if not self._of_process:
                if plan.start is not None:
                    self._foretold = behind(plan.start, 2 * plan.skip_first)
                self._lookahead.foresee(plan, position)
                self._telling.tell(told)
            start(self._lookahead, paths.of, of_client)
            watch(source.sampler, self)
        except BaseException:
            self._end()
            raise

    @property
    def plan(self) -> Plan:
        """The recipe of the epochs to come (PLAN.md), from the next iterator on, as things are now. ReferenceError when the sampler is gone."""
        if self._digest is None:
            self._digest = digest_of(map(self._paths.of, range(self._paths.count)))
        return replace(self._plan(False), epochs=self._epochs_left, position=self._position, list_sha256=self._digest)

    def _plan(self, started: bool) -> Plan:
        sampler = self._sampler()
        if sampler is None:
            raise ReferenceError("the announced sampler is gone")
        return replace(plan_from(replace(self._source, sampler=sampler), started=started), set_epoch=self._set_epoch)

    @property
    def prefetched(self) -> int:
        """Samples that the daemon has taken up to bring; none without a daemon."""
        return self._lookahead.accepted

    @property
    def mismatches(self) -> int:
        """Epochs in which the sampler gave another index than was computed, or for which a generator of its own stood elsewhere than was told (the first two of these: from then on no epoch is told before it begins)."""
        return self._lookahead.mismatches

    @property
    def active(self) -> bool:
        """False once it was stopped, the epochs are over, or the sampler is gone."""
        return not self._lookahead.stopped

    def __repr__(self) -> str:
        epochs = "all epochs" if self._epochs_left is None else f"{self._epochs_left} more epochs"
        state = "active" if self.active else "ended"
        return f"<tierd.torch.Announcement of {self._paths.count} samples, {epochs}: {state}, {self.prefetched} prefetched, {self.mismatches} mismatches>"

    def stop(self) -> None:
        """Ends the look-ahead and lets go of the sampler. Twice does no harm."""
        self._end()
        sampler = self._sampler()
        if sampler is not None:
            unwatch(sampler, self)

    def __enter__(self) -> "Announcement":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- told by the sampler (_watch.Watcher)

    def epoch_begins(self) -> Callable[[Any], None]:
        if self._lookahead.stopped or os.getpid() != self._process:
            return _ignore
        try:
            if self._epochs_left == 0:  # the last one was cut short
                self.stop()
                return _ignore
            self._begun = begun = self._begin()
            return begun
        except Exception as error:
            self._lookahead.give_up(error)
            return _ignore

    def _begin(self) -> Callable[[Any], None]:
        plan = self._plan(True)
        foretold = True
        if plan.kind == "torch.distributed" and plan.shuffle:
            seed = plan.seed + plan.epoch
            self._set_epoch = seed != self._last_seed
            if not self._set_epoch:
                with contextlib.suppress(Warning):  # `-W error`
                    warnings.warn("DistributedSampler gives the same order as in the epoch before: call its set_epoch(epoch) before each epoch", RuntimeWarning, stacklevel=5)
            self._last_seed = seed
            plan = replace(plan, set_epoch=self._set_epoch)
            foretold = seed == self._next_seed
            self._next_seed = seed + (1 if self._set_epoch else 0)
        skip, self._position = self._position, 0
        self._source = replace(self._source, skip_first=self._source.skip_later)  # persistent workers have their seed
        now = replace(plan, epochs=self._epochs_left, position=skip)
        if plan.start is not None:
            self._tell_drawn(now, plan.start)
        elif foretold:
            self._telling.stands_at(now)
        else:  # set_epoch was not called, or went on to another one
            self._telling.tell(now)
        if self._epochs_left is not None:
            self._epochs_left -= 1
        certain = not self._of_process and self._alone and self._epochs_left != 0
        return self._lookahead.begin(plan, certain, skip)

    @property
    def _alone(self) -> bool:
        """Nobody else seems to draw from its generator. Its own may once be elsewhere: after a look at the first batch."""
        return self._doubts < (1 if self._of_process else 2)

    def _tell_drawn(self, plan: Plan, stands: Start) -> None:
        """Of a generator the epoch that begins is certain, and those behind it if nobody else draws in between: as long as nobody has, that is what is told."""
        foretold, self._foretold = self._foretold, None
        if foretold is not None and foretold != stands:
            self._doubts += 1
            if not self._of_process:
                self._lookahead.mismatches += 1
        if self._alone:
            self._foretold = behind(stands, plan.order_draws + 2 * plan.skip_later)
        if foretold == stands:
            self._telling.stands_at(plan)
        else:
            self._telling.tell(plan if self._alone else replace(plan, epochs=1))

    def epoch_ends(self, begun: Callable[[Any], None]) -> None:
        if self._epochs_left == 0 and begun is self._begun and os.getpid() == self._process:
            with contextlib.suppress(Exception):  # of a sampler that somebody else took apart; the announcement has ended
                self.stop()


def _ignore(_: Any) -> None:
    pass


def _whole(number: Any, name: str) -> int:
    try:
        return int(operator.index(number))
    except TypeError:
        raise TypeError(f"{name} is a whole number, not {number!r}") from None


class _Paths:
    """Index to path."""

    def __init__(self, count: int, of: PathOf) -> None:
        self.count, self.of = count, of


_PATH = (str, bytes, os.PathLike)


def _begins_with_path(sample: Any) -> bool:
    return isinstance(sample, tuple) and len(sample) > 0 and isinstance(sample[0], _PATH)


def _paths_of(dataset: Any) -> _Paths:
    if isinstance(dataset, Subset):
        inner, chosen = _paths_of(dataset.dataset), dataset.indices
        return _Paths(len(chosen), lambda index: inner.of(chosen[index]))
    if isinstance(dataset, ConcatDataset):
        parts, ends = [_paths_of(part) for part in dataset.datasets], list(dataset.cumulative_sizes)

        def of(index: int) -> Union[str, "os.PathLike[str]"]:
            if index < 0:  # of a Subset: counted from the end
                index += ends[-1]
            part = bisect.bisect_right(ends, index)
            return parts[part].of(index - (ends[part - 1] if part else 0))

        return _Paths(ends[-1], of)
    samples: Any = getattr(dataset, "samples", None)
    if hasattr(samples, "__getitem__") and not isinstance(samples, Mapping) and not hasattr(samples, "ndim") and (len(samples) == 0 or _begins_with_path(samples[0])):  # arrays and tables have no rows of tuples
        return _Paths(len(samples), lambda index: samples[index][0])  # type: ignore[no-any-return]
    paths = getattr(dataset, "paths", dataset)
    if getattr(paths, "ndim", 0) == 1:  # a NumPy array, or a column of a table, which counts its rows otherwise
        paths = paths.tolist()
    if isinstance(paths, Sequence) and not isinstance(paths, (str, bytes)) and (len(paths) == 0 or isinstance(paths[0], _PATH)):
        return _Paths(len(paths), paths.__getitem__)
    raise TypeError(f"tierd.torch cannot tell which files {type(dataset).__qualname__} reads: give it `paths` or `samples`, or announce(loader, paths)")
