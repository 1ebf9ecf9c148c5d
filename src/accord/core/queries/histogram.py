"""Buckets of time, all of the same width, which begin at round times."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from msgspec import Struct

MAX_BUCKETS: Final = 500
_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_WIDTHS: Final = (
    *(step * unit for unit in (1, 10, 100) for step in (1, 2, 5)),
    *(step * _SECOND for step in (1, 2, 5, 10, 15, 30)),
    *(step * _MINUTE for step in (1, 2, 5, 10, 15, 30)),
    *(step * _HOUR for step in (1, 2, 3, 6, 12)),
    *(step * _DAY for step in (1, 2, 7, 14, 28, 91, 364)),
)


class TimeBuckets(Struct, frozen=True):
    """The times from `since_ms` up to but excluding `until_ms`, in buckets of `width_ms`."""

    since_ms: int
    until_ms: int
    width_ms: int

    @property
    def first(self) -> int:
        """Number of the first bucket; it may begin before `since_ms`."""
        return self.since_ms // self.width_ms

    @property
    def count(self) -> int:
        if self.until_ms <= self.since_ms:
            return 0
        return (self.until_ms - 1) // self.width_ms - self.first + 1

    @property
    def first_ms(self) -> int:
        return self.first * self.width_ms

    def place_of(self, ms: int) -> int:
        return ms // self.width_ms - self.first


def time_buckets(since_ms: int, until_ms: int, most: int) -> TimeBuckets:
    """Buckets of a round width, `most` of them at most."""
    span = max(1, until_ms - since_ms)
    at = bisect_left(_WIDTHS, -(-span // most))
    for width in _WIDTHS[at:]:
        found = TimeBuckets(since_ms, until_ms, width)
        if found.count <= most:
            return found
    longest = _WIDTHS[-1]
    found = TimeBuckets(since_ms, until_ms, longest * (span // (longest * most) + 1))
    while found.count > most:
        found = TimeBuckets(since_ms, until_ms, found.width_ms + longest)
    return found
