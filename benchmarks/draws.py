"""Draws from a range: uniform, or Zipf with alpha 1, where rank k weighs 1/k."""

from __future__ import annotations

from bisect import bisect
from functools import cache
from itertools import accumulate
from random import Random
from typing import Literal

Distribution = Literal["uniform", "zipf"]


class Draw:
    """Numbers below a size, distributed as asked, the same for the same seed."""

    def __init__(self, seed: str, distribution: Distribution) -> None:
        self.random = Random(seed)
        self._is_zipf = distribution == "zipf"

    def below(self, size: int) -> int:
        if not self._is_zipf:
            return self.random.randrange(size)
        shares = _cumulated(size)
        return bisect(shares, self.random.random() * shares[-1], hi=size - 1)

    def distinct(self, size: int, count: int) -> list[int]:
        """`count` different numbers, ascending."""
        if not self._is_zipf:
            return sorted(self.random.sample(range(size), count))
        found: set[int] = set()
        while len(found) < count:
            found.add(self.below(size))
        return sorted(found)


@cache
def _cumulated(size: int) -> list[float]:
    return list(accumulate(1 / rank for rank in range(1, size + 1)))
