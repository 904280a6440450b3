"""PyTorch's own generator behind the interface that plans draw from: 25 times as fast as the one in Python, and without its lock."""

from __future__ import annotations

import struct
from typing import Sequence

import torch

from .._mt19937 import WORDS
from ..plan import Start

# torch.Generator.get_state() on the CPU: u64 seed; i32 left, seeded; u64 next; u64 words[624]; then the cache of the normal distribution.
_BYTES = 5056
_ALL = struct.Struct(f"<QiiQ{WORDS}Q")


def start_of(state: torch.Tensor) -> Start:
    """Where a generator with this get_state() stands. ValueError for a state that is laid out otherwise (a generator of a GPU)."""
    raw = bytes(state.tolist())
    if len(raw) != _BYTES:
        raise ValueError(f"a generator state of {len(raw)} bytes: only those of the CPU are known")
    _, left, seeded, following, *words = _ALL.unpack_from(raw)
    if not seeded or not 1 <= left <= WORDS or following > WORDS:
        raise ValueError("a generator state of an unknown layout")
    return Start(words=struct.pack(f"<{WORDS}I", *words), index=WORDS if left == 1 else following)


class TorchDraws:
    """A generator of PyTorch's on the CPU. One thread at a time; the process's own generator is not touched."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    @classmethod
    def from_seed(cls, seed: int) -> "TorchDraws":
        return cls(torch.Generator().manual_seed(seed))

    @classmethod
    def from_state(cls, words: Sequence[int], index: int) -> "TorchDraws":
        generator = torch.Generator()
        raw = bytearray(_BYTES)
        _ALL.pack_into(raw, 0, 0, WORDS + 1 - index, 1, index, *words)
        generator.set_state(torch.tensor(list(raw), dtype=torch.uint8))
        return cls(generator)

    def random63(self) -> int:
        return int(torch.empty((), dtype=torch.int64).random_(generator=self._generator).item())

    def integers(self, n: int, count: int) -> list[int]:
        return torch.randint(high=n, size=(count,), dtype=torch.int64, generator=self._generator).tolist()

    def randperm(self, n: int) -> list[int]:
        return torch.randperm(n, generator=self._generator).tolist()


_AT_ONCE = 1 << 20  # bytes


def behind(start: Start, count: int) -> Start:
    """Where a generator that stands at `start` stands when `count` 32-bit numbers have been drawn from it. A small part of what it takes to draw an order."""
    generator = start.draws(TorchDraws)._generator  # type: ignore[attr-defined]
    while count > 0:
        torch.empty(min(count, _AT_ONCE), dtype=torch.uint8).random_(generator=generator)  # one number each
        count -= _AT_ONCE
    return start_of(generator.get_state())
