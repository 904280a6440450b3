"""PyTorch's CPU random generator without PyTorch: MT19937 and what samplers draw from it, bit by bit.

CPython's random.Random is the same generator behind another seeding, so its state is set and its C code does the work: 0.3 s for a permutation of 1.28 M.
"""

from __future__ import annotations

import random
from typing import Protocol, Sequence

WORDS = 624


class Draws(Protocol):
    """A generator as samplers use one. Two implementations: Mt19937 here, TorchDraws in tierd.torch."""

    @classmethod
    def from_seed(cls, seed: int) -> "Draws": ...

    @classmethod
    def from_state(cls, words: Sequence[int], index: int) -> "Draws": ...

    def random63(self) -> int: ...

    def integers(self, n: int, count: int) -> list[int]: ...

    def randperm(self, n: int) -> list[int]: ...


def seeded_words(seed: int) -> list[int]:
    """The 624 words after manual_seed(seed), of which only the low 32 bits count; nothing of them has been drawn yet (index 624)."""
    word = seed & 0xFFFFFFFF
    words = [word]
    for i in range(1, WORDS):
        word = (1812433253 * (word ^ (word >> 30)) + i) & 0xFFFFFFFF
        words.append(word)
    return words


class Mt19937:
    """torch.Generator(device="cpu"), as far as samplers use it. One thread at a time."""

    def __init__(self, words: Sequence[int], index: int) -> None:
        """`words`: the 624 words of state; `index`: the next one to be drawn, 624 when new ones must be made first."""
        if len(words) != WORDS or not 1 <= index <= WORDS:
            raise ValueError("a state of MT19937 is 624 words and an index from 1 to 624")
        self._random = random.Random()
        self._random.setstate((3, (*words, index), None))

    @classmethod
    def from_seed(cls, seed: int) -> "Mt19937":
        return cls(seeded_words(seed), WORDS)

    @classmethod
    def from_state(cls, words: Sequence[int], index: int) -> "Mt19937":
        return cls(words, index)

    def random63(self) -> int:
        """torch.empty((), dtype=torch.int64).random_(generator=self): two draws, high word first, without the sign."""
        high = self._random.getrandbits(32)
        return ((high << 32) | self._random.getrandbits(32)) & 0x7FFFFFFFFFFFFFFF

    def integers(self, n: int, count: int) -> list[int]:
        """torch.randint(high=n, size=(count,), generator=self), for n below 2^32."""
        draw = self._random.getrandbits
        return [draw(32) % n for _ in range(count)]

    def randperm(self, n: int) -> list[int]:
        """torch.randperm(n, generator=self), for n below 2^32 / 20."""
        draw = self._random.getrandbits
        order = list(range(n))
        for i in range(n - 1):
            j = i + draw(32) % (n - i)
            order[i], order[j] = order[j], order[i]
        return order
