"""Histogram of times with bounded memory: quantiles exact to one in a hundred."""

from __future__ import annotations

from typing import Final

_BITS: Final = 7  # significant bits of a value


class Histogram:
    __slots__ = ("_counts", "count", "least", "most", "total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.total = 0
        self.least = 0
        self.most = 0

    def add(self, value: int) -> None:
        assert value >= 0
        shift = max(value.bit_length() - _BITS, 0)
        bucket = value >> shift << shift
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.least = value if not self.count else min(value, self.least)
        self.most = max(value, self.most)
        self.count += 1
        self.total += value

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> int | None:
        """The value that this share does not exceed; None if empty."""
        if not self.count:
            return None
        missing = share * self.count
        for bucket in sorted(self._counts):
            missing -= self._counts[bucket]
            if missing <= 0:
                width = 1 << max(bucket.bit_length() - _BITS, 0)
                return min(max(bucket + width // 2, self.least), self.most)
        return self.most
