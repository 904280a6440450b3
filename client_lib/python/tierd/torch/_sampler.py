"""From a DataLoader or sampler to the plan of its order. Looks only: no random number is drawn, nothing is changed."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any, Optional, Sized

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from ..plan import Plan
from ._draws import start_of
from ._watch import plain_type


@dataclass(frozen=True)
class Source:
    """The sampler that an order comes from, and what happens around it."""

    sampler: Any
    batch_size: int = 0
    batch_drop_last: bool = False
    skip_first: int = 0
    skip_later: int = 0


def _same_iter(thing: Any, of: type) -> bool:
    return isinstance(thing, of) and plain_type(thing).__iter__ is of.__iter__  # type: ignore[attr-defined]


def _generator_of(loader_or_sampler: Any) -> torch.Generator:
    """None is another name of the process's."""
    generator: Optional[torch.Generator] = getattr(loader_or_sampler, "generator", None)
    return torch.default_generator if generator is None else generator


def draws_from_process(sampler: Any) -> bool:
    """Others draw from its generator, too."""
    return isinstance(sampler, RandomSampler) and _generator_of(sampler) is torch.default_generator


def source_of(loader_or_sampler: Any) -> Source:
    """TypeError, which names it, for a sampler whose order nobody here can tell."""
    if isinstance(loader_or_sampler, DataLoader):
        loader = loader_or_sampler
        inner = source_of(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
        # The loader draws a seed for its workers from its generator whenever it makes an iterator; persistent workers have one iterator for all epochs.
        drawn = 1 if _generator_of(inner.sampler) is _generator_of(loader) else 0
        kept = loader.persistent_workers and loader.num_workers > 0
        made = kept and getattr(loader, "_iterator", None) is not None
        return replace(inner, skip_first=0 if made else drawn, skip_later=0 if kept else drawn)
    if _same_iter(loader_or_sampler, BatchSampler):
        batches = loader_or_sampler
        return replace(source_of(batches.sampler), batch_size=batches.batch_size, batch_drop_last=bool(batches.drop_last))
    if any(_same_iter(loader_or_sampler, known) for known in (SequentialSampler, RandomSampler, DistributedSampler)):
        return Source(loader_or_sampler)
    raise TypeError(f"tierd.torch cannot tell the order of {plain_type(loader_or_sampler).__qualname__}: it knows DataLoader, BatchSampler, SequentialSampler, RandomSampler and "
                    "DistributedSampler, and subclasses that keep their __iter__")


def plan_of(loader_or_sampler: Any, *, epochs: Optional[int] = None, position: int = 0, list_sha256: Optional[str] = None) -> Plan:
    """The plan of what a DataLoader, BatchSampler or sampler will give from its next iterator on. Read-only.

    A RandomSampler without a generator of its own takes its seeds from the process's generator (`shared`), one that was given torch.default_generator its orders: the plan then
    holds only if nobody else draws from that in between. TypeError for other samplers, ValueError for an empty data set.
    """
    return plan_from(source_of(loader_or_sampler), epochs=epochs, position=position, list_sha256=list_sha256)


def _whole(number: Any) -> int:
    """Of NumPy's integers and of bools, too, which PyTorch takes."""
    return int(operator.index(number))


def plan_from(source: Source, *, started: bool = False, epochs: Optional[int] = None, position: int = 0, list_sha256: Optional[str] = None) -> Plan:
    """plan_of; `started`: the iterator is made, its order comes next."""
    sampler: Any = source.sampler
    common = dict(epochs=epochs, position=position, list_sha256=list_sha256, batch_size=source.batch_size, batch_drop_last=source.batch_drop_last)
    if isinstance(sampler, DistributedSampler):
        held: Sized = sampler.dataset  # type: ignore[assignment]
        epoch, seed = _whole(sampler.epoch), _whole(sampler.seed)
        if epoch < 0:  # which a plan has none of: the order is that of the sum
            epoch, seed = 0, seed + epoch
        return Plan("torch.distributed", len(held), epoch=epoch, seed=seed, shuffle=bool(sampler.shuffle), world=_whole(sampler.num_replicas), rank=_whole(sampler.rank),
                    drop_last=bool(sampler.drop_last), **common)  # type: ignore[arg-type]
    if isinstance(sampler, RandomSampler):
        shared = sampler.generator is None
        state = torch.get_rng_state() if shared else sampler.generator.get_state()
        return Plan("torch.random", len(sampler.data_source), replacement=sampler.replacement, draws=sampler.num_samples, shared=shared, start=start_of(state),
                    skip_first=0 if started else source.skip_first, skip_later=source.skip_later, **common)  # type: ignore[arg-type]
    return Plan("torch.sequential", len(sampler.data_source), **common)  # type: ignore[arg-type]
