"""Permutations as NumPy, Python and libstdc++ draw them, bit by bit, without any of them: what the recipes of plan.py other than PyTorch's need.

Slow beside their libraries (0.5 s for a million), and meant for whom has to know an order, not for whom trains by it.
"""

from __future__ import annotations

import random
from typing import Callable, Optional

from ._mt19937 import WORDS, seeded_words

Draw32 = Callable[[], int]
_M32, _M64, _M128 = 2**32 - 1, 2**64 - 1, 2**128 - 1


def mt19937(seed: int) -> Draw32:
    """init_genrand: numpy.random.RandomState(seed), std::mt19937(seed)."""
    generator = random.Random()
    generator.setstate((3, (*seeded_words(seed), WORDS), None))
    return lambda: generator.getrandbits(32)


def pcg64(seed: int) -> Draw32:
    """numpy.random.default_rng(seed) for 0 <= seed < 2^64, 32 bits at a time: the low half of an output, then its high half."""
    words = _seed_sequence(seed)
    increment = ((words[2] << 64 | words[3]) << 1 | 1) & _M128
    multiplier = 2549297995355413924 << 64 | 4865540595714422341
    state = ((increment + (words[0] << 64 | words[1])) * multiplier + increment) & _M128
    half: Optional[int] = None

    def draw() -> int:
        nonlocal state, half
        if half is not None:
            low, half = half, None
            return low
        state = (state * multiplier + increment) & _M128
        folded, turn = (state >> 64) ^ (state & _M64), state >> 122
        word = (folded >> turn | folded << (64 - turn)) & _M64
        half = word >> 32
        return word & _M32

    return draw


def _seed_sequence(seed: int) -> list[int]:
    """numpy.random.SeedSequence(seed).generate_state(4, uint64)."""
    constant = 0x43B0D7E5

    def hashed(value: int) -> int:
        nonlocal constant
        value ^= constant
        constant = constant * 0x931E8875 & _M32
        value = value * constant & _M32
        return value ^ value >> 16

    pool = [hashed(digit) for digit in (seed & _M32, seed >> 32 & _M32, 0, 0)]
    for source in range(4):
        for target in range(4):
            if source != target:
                mixed = (0xCA01F9DD * pool[target] - 0x4973F715 * hashed(pool[source])) & _M32
                pool[target] = mixed ^ mixed >> 16
    words, constant = [0] * 4, 0x8B51F9DD
    for i in range(8):
        value = pool[i % 4] ^ constant
        constant = constant * 0x58F38DED & _M32
        value = value * constant & _M32
        words[i // 2] |= (value ^ value >> 16) << (i % 2 * 32)
    return words


def numpy_shuffle(draw: Draw32, order: list[int]) -> None:
    """RandomState.shuffle and Generator.shuffle: downward, draws of just enough bits until one is not too large."""
    for i in range(len(order) - 1, 0, -1):
        mask = (1 << i.bit_length()) - 1
        while (j := draw() & mask) > i:
            pass
        order[i], order[j] = order[j], order[i]


def python_shuffle(generator: random.Random, order: list[int]) -> None:
    """random.Random.shuffle, as it has been since Python 3.2, whatever this one's does."""
    for i in range(len(order) - 1, 0, -1):
        bits = (i + 1).bit_length()
        while (j := generator.getrandbits(bits)) > i:
            pass
        order[i], order[j] = order[j], order[i]


def std_shuffle(draw: Draw32, order: list[int], divides: bool) -> None:
    """std::shuffle of libstdc++ with std::mt19937; `divides`: as it drew before GCC 11."""
    upto = _by_division if divides else _by_multiplication
    n, i = len(order), 1

    def swap(other: int) -> None:
        nonlocal i
        order[i], order[other] = order[other], order[i]
        i += 1

    if n >= 2 and _M32 // n >= n:  # short sequences get two positions out of each draw
        if n % 2 == 0:
            swap(upto(draw, 1))
        while i < n:
            first, second = divmod(upto(draw, (i + 1) * (i + 2) - 1), i + 2)
            swap(first)
            swap(second)
    while i < n:
        swap(upto(draw, i))


def _by_multiplication(draw: Draw32, largest: int) -> int:
    count = largest + 1
    product = draw() * count
    if product & _M32 < count:
        threshold = (2**32 - count) % count
        while product & _M32 < threshold:
            product = draw() * count
    return product >> 32


def _by_division(draw: Draw32, largest: int) -> int:
    scaling = _M32 // (largest + 1)
    past = (largest + 1) * scaling
    while (value := draw()) >= past:
        pass
    return value // scaling
