"""Plans: the future order in which one consumer (a training rank) reads its samples, as a recipe of some 200 bytes instead of a list. PLAN.md has the format.

A plan says which sampler draws the order (PyTorch's, NumPy's, Python's, DALI's, or none), from which seed or generator state, and where the consumer stands; `Plan.orders` gives the exact order of each epoch,
as the sampler will. Needs neither PyTorch nor NumPy. Values are immutable; any thread.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import math
import os
import random
import struct
from dataclasses import asdict, dataclass, replace
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Type, Union

from . import _shuffles
from ._mt19937 import WORDS, Draws, Mt19937

FORMAT = 1
KINDS = ("torch.sequential", "torch.random", "torch.distributed", "block", "strided", "numpy.legacy", "numpy.pcg64", "python.random", "dali.file")
RULES = ("reseed", "continue", "in_place", "same")
_SEEDED = ("numpy.legacy", "numpy.pcg64", "python.random")


class PlanError(ValueError):
    """A document that is no plan of this format; says which field."""


@dataclass(frozen=True)
class Start:
    """Where a generator stands: freshly seeded with `seed`, or in a state of 624 words (`words`, little-endian bytes) of which `index` is drawn next."""

    seed: Optional[int] = None
    words: Optional[bytes] = None
    index: int = WORDS

    def draws(self, engine: Type[Draws]) -> Draws:
        if self.words is None:
            return engine.from_seed(self.seed or 0)
        return engine.from_state(struct.unpack(f"<{WORDS}I", self.words), self.index)


@dataclass(frozen=True)
class Plan:
    """The recipe. Fields as in PLAN.md; those of other kinds keep their defaults."""

    kind: str
    samples: int  # n: indices are 0..n-1
    epoch: int = 0  # number of the first epoch that is described
    epochs: Optional[int] = None  # how many from there on; None: nobody knows
    position: int = 0  # samples of the first epoch that have been taken already
    batch_size: int = 0  # 0: no batches
    batch_drop_last: bool = False  # the incomplete batch at the end of an epoch is not read
    list_sha256: Optional[str] = None  # of the list that maps indices to paths: digest_of
    # torch.distributed
    seed: int = 0
    shuffle: bool = True
    world: int = 1
    rank: int = 0
    drop_last: bool = False
    set_epoch: bool = True  # the epoch's number goes into the seed; False: it stays as it is in the first
    # torch.random
    replacement: bool = False
    draws: int = 0  # samples per epoch
    shared: bool = False  # the generator is the process's: others may draw from it between epochs
    start: Optional[Start] = None
    skip_first: int = 0  # 64-bit draws that somebody else (the DataLoader) takes before the order of the first epoch
    skip_later: int = 0  # and of each later one
    # numpy.*, python.random, dali.file
    rule: str = "reseed"  # how epochs follow from one another: RULES
    stick: bool = True  # dali.file: each epoch the same shard
    uniform: str = "multiply"  # dali.file: "divide" where it was built with GCC 10 or older

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            raise PlanError(problem)

    def orders(self, engine: Type[Draws] = Mt19937) -> Iterator[list[int]]:
        """The indices of each epoch from `epoch` on, in order, as this consumer reads them; the first without what is taken already. Endless when `epochs` is None."""
        epochs = {"torch.sequential": self._sequential, "torch.random": self._random, "torch.distributed": self._distributed, "block": self._block,
                  "strided": self._strided, "dali.file": self._dali}.get(self.kind, self._seeded)(engine)
        for number, order in enumerate(epochs if self.epochs is None else itertools.islice(epochs, self.epochs)):
            if self.batch_drop_last and self.batch_size:
                del order[len(order) // self.batch_size * self.batch_size:]
            if number == 0 and self.position:
                del order[:self.position]
            yield order

    def _sequential(self, _: Type[Draws]) -> Iterator[list[int]]:
        while True:
            yield list(range(self.samples))

    def _distributed(self, engine: Type[Draws]) -> Iterator[list[int]]:
        n, world = self.samples, self.world
        each = (n - world + world - 1) // world if self.drop_last and n % world else math.ceil(n / world)
        total = each * world
        for epoch in itertools.count(self.epoch):
            order = engine.from_seed(self.seed + (epoch if self.set_epoch else self.epoch)).randperm(n) if self.shuffle else list(range(n))
            while len(order) < total:
                order += order[:total - len(order)] if total - len(order) <= n else order[:n]
            yield order[self.rank:total:world]

    def _random(self, engine: Type[Draws]) -> Iterator[list[int]]:
        assert self.start is not None
        source = self.start.draws(engine)
        for skip in itertools.chain((self.skip_first,), itertools.repeat(self.skip_later)):
            for _ in range(skip):
                source.random63()
            yield self._draw(engine.from_seed(source.random63()) if self.shared else source)

    def _draw(self, source: Draws) -> list[int]:
        order: list[int] = []
        if self.replacement:
            for count in [*([32] * (self.draws // 32)), self.draws % 32]:
                order += source.integers(self.samples, count)
            return order
        for _ in range(self.draws // self.samples):
            order += source.randperm(self.samples)
        # Drawn even when nothing of it is used: the next epoch starts behind it.
        return order + source.randperm(self.samples)[:self.draws % self.samples]

    @property
    def order_draws(self) -> int:
        """Of torch.random: how many 32-bit numbers the order of an epoch takes from the generator."""
        if self.shared:
            return 2
        return self.draws if self.replacement else (self.draws // self.samples + 1) * (self.samples - 1)

    def _block(self, _: Type[Draws]) -> Iterator[list[int]]:
        while True:
            yield list(self._shard(self.rank))

    def _shard(self, rank: int) -> range:
        return range(self.samples * rank // self.world, self.samples * (rank + 1) // self.world)

    def _strided(self, _: Type[Draws]) -> Iterator[list[int]]:
        while True:
            yield list(range(self.rank, self.samples, self.world))

    def _seeded(self, _: Type[Draws]) -> Iterator[list[int]]:
        follows, kept = self.rule in ("continue", "in_place"), list(range(self.samples))
        shuffle = self._shuffler(self.seed)
        for epoch in itertools.count(0 if follows else self.epoch):  # epochs that follow from one another are drawn from the first on
            if not follows:
                shuffle = self._shuffler(self.seed + (epoch if self.rule == "reseed" else 0))
            if self.rule != "in_place":
                kept = list(range(self.samples))
            shuffle(kept)
            if epoch >= self.epoch:
                yield kept[self.rank::self.world]

    def _shuffler(self, seed: int) -> Callable[[list[int]], None]:
        if self.kind == "python.random":
            return functools.partial(_shuffles.python_shuffle, random.Random(seed))
        return functools.partial(_shuffles.numpy_shuffle, _shuffles.pcg64(seed) if self.kind == "numpy.pcg64" else _shuffles.mt19937(seed))

    def _dali(self, _: Type[Draws]) -> Iterator[list[int]]:
        kept = list(range(self.samples))
        for epoch in itertools.count(0 if self.rule == "in_place" else self.epoch):
            if self.rule != "in_place":
                kept = list(range(self.samples))
            if self.shuffle:  # DALI counts its epochs from 1
                draw = _shuffles.mt19937(self.seed + (0 if self.rule == "same" else epoch + 1))
                _shuffles.std_shuffle(draw, kept, self.uniform == "divide")
            if epoch >= self.epoch:
                yield [kept[i] for i in self._shard(self.rank if self.stick else (self.rank + epoch) % self.world)]

    def at(self, *, epoch: int, position: int = 0, epochs: Optional[int] = None) -> "Plan":
        """The same with the consumer somewhere else. Not for torch.random, whose plan begins with the state of a generator."""
        if self.kind == "torch.random":
            raise ValueError("a random order starts from a generator's state: make a plan of that")
        return replace(self, epoch=epoch, position=position, epochs=epochs)

    def to_json(self) -> str:
        """The document of PLAN.md, on one line."""
        always = _ALWAYS[self.kind]
        fields = {name: value for name, value in asdict(self).items() if name in always or value != _DEFAULTS[name]}
        if self.start is not None:
            words = self.start.words
            fields["start"] = {"seed": self.start.seed} if words is None else {"words": base64.b64encode(words).decode(), "index": self.start.index}
        return json.dumps({"tierd_plan": FORMAT, **fields}, separators=(",", ":"))

    @staticmethod
    def from_json(text: Union[str, bytes]) -> "Plan":
        """The plan in a document. PlanError when it is none, of another format, or has a field that is unknown or out of range."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PlanError(f"not JSON: {error}") from None
        if not isinstance(document, dict) or not _whole(document.pop("tierd_plan", None), FORMAT, FORMAT):
            raise PlanError(f"not a plan of format {FORMAT}")
        unknown = set(document) - set(Plan.__dataclass_fields__)
        if unknown:
            raise PlanError(f"unknown field {sorted(unknown)[0]!r}")
        start = document.get("start")
        if start is not None:
            document["start"] = _start_of(start)
        try:
            return Plan(**document)
        except TypeError as error:
            raise PlanError(str(error)) from None


# Named in a document whatever their value; others only when they differ from their default.
_ALWAYS = {"torch.sequential": ("kind", "samples"), "torch.random": ("kind", "samples", "draws", "shared"),
           "torch.distributed": ("kind", "samples", "seed", "world", "rank"), "block": ("kind", "samples", "world", "rank"),
           "strided": ("kind", "samples", "world", "rank"), **{kind: ("kind", "samples", "seed", "rule") for kind in (*_SEEDED, "dali.file")}}
_DEFAULTS = {name: field.default for name, field in Plan.__dataclass_fields__.items()}


def _start_of(document: Any) -> Start:
    """What is in it is looked at with the rest of the plan."""
    try:
        if "seed" in document:
            return Start(seed=document["seed"])
        return Start(words=base64.b64decode(document["words"], validate=True), index=document["index"])
    except (TypeError, KeyError, ValueError) as error:
        raise PlanError(f"start: {error}") from None


def _whole(value: Any, low: int, high: int = 2**63 - 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _problem(plan: Plan) -> str:
    """What is wrong with it, or ""."""
    if not isinstance(plan.kind, str) or plan.kind not in KINDS:
        return "kind is missing or out of range"
    checks = (
        (_whole(plan.samples, 1, 2**32 // 20 if plan.kind.startswith("torch.") else 2**30), "samples"), (_whole(plan.epoch, 0), "epoch"),
        (plan.epochs is None or _whole(plan.epochs, 0), "epochs"), (_whole(plan.position, 0), "position"), (_whole(plan.batch_size, 0), "batch_size"),
        (_whole(plan.seed, 0 if plan.kind.startswith("numpy.") else -2**63, 2**32 - 1 if plan.kind == "numpy.legacy" else 2**63 - 1), "seed"), (_whole(plan.world, 1, 2**31), "world"), (_whole(plan.rank, 0) and plan.rank < plan.world, "rank"),
        (_whole(plan.draws, 1 if plan.kind == "torch.random" else 0), "draws"), (_whole(plan.skip_first, 0, 64), "skip_first"), (_whole(plan.skip_later, 0, 64), "skip_later"),
        (all(isinstance(b, bool) for b in (plan.batch_drop_last, plan.shuffle, plan.drop_last, plan.set_epoch, plan.replacement, plan.shared, plan.stick)), "a flag"),
        (plan.rule in RULES and not (plan.kind == "dali.file" and plan.rule == "continue"), "rule"), (plan.uniform in ("multiply", "divide"), "uniform"),
        (plan.list_sha256 is None or (isinstance(plan.list_sha256, str) and len(plan.list_sha256) == 64), "list_sha256"),
    )
    for good, name in checks:
        if not good:
            return f"{name} is missing or out of range"
    # Epochs that follow from one another are drawn from the first on: some 20 s of drawing at most where C++ does it.
    if plan.rule in ("continue", "in_place") and plan.epoch > 2**32 // plan.samples:
        return "epoch is missing or out of range"
    start = plan.start
    if plan.kind == "torch.random" and start is None:
        return "start is missing or out of range"
    if start is not None and not (isinstance(start, Start) and _whole(start.index, 1, WORDS) and (
            _whole(start.seed, -2**63, 2**64 - 1) if start.words is None else isinstance(start.words, bytes) and len(start.words) == 4 * WORDS)):
        return "start is missing or out of range"
    return ""


def digest_of(paths: Iterable[Union[str, bytes, "os.PathLike[str]"]]) -> str:
    """SHA-256 of a list of paths, each followed by a NUL: two consumers with the same digest mean the same files by the same indices."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(os.fsencode(path) + b"\0")
    return digest.hexdigest()


__all__: Sequence[str] = ("Plan", "PlanError", "Start", "digest_of")
