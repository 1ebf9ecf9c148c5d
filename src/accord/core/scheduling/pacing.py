"""A configured limit, kept by letting bytes go only when the limit's own clock allows it.

The pacer knows the moment from which on it is free. What is sent moves that moment on by the time
it takes at the limit, so the average is exact whatever the sizes. Idling earns nothing beyond
`_CREDIT_US`, which only makes up for timers that are late: over any stretch of time no more goes
out than the limit allows for it, plus one portion, plus what the last event has beyond it, because
an event once begun is sent whole.

A portion is one segment, so that small events share one, and more only where the limit is so high
that more than one goes out per timer. Below 233 kbit/s it is less, so that nobody waits for long.
"""

from __future__ import annotations

from typing import Final

_CREDIT_US: Final = 10_000
_SEGMENT: Final = 1_460
_LONGEST_US: Final = 50_000
_MOST_OWED_US: Final = 100_000


class Pacer:
    """One limit; times are those of any clock that does not jump, in microseconds."""

    def __init__(self, limit_bps: int) -> None:
        self.free_us = 0
        self.limit_bps = 1
        self.portion = 1
        # What the rounding of times left over, in bits times 10^6.
        self._rest = 0
        self.set_limit(limit_bps, 0)

    def set_limit(self, limit_bps: int, now_us: int) -> None:
        """From now on: what is still to be made up for is made up for at the new limit."""
        limit_bps = max(limit_bps, 1)
        if self.free_us > now_us:
            self.free_us = now_us + (self.free_us - now_us) * self.limit_bps // limit_bps
        self.limit_bps = limit_bps
        self._rest = 0
        self.portion = max(
            self._bytes_in(_CREDIT_US), min(_SEGMENT, self._bytes_in(_LONGEST_US)), 1
        )

    def room(self, now_us: int) -> int:
        """How many bytes may go now; 0 before `free_us`."""
        if now_us < self.free_us:
            return 0
        return self.portion

    def sent(self, size: int, now_us: int) -> None:
        """`size` bytes go now, allowed or not: what had to go at once is made up for later."""
        start_us = max(self.free_us, now_us - _CREDIT_US)
        self._rest += size * 8_000_000
        took_us = self._rest // self.limit_bps
        self._rest -= took_us * self.limit_bps
        self.free_us = start_us + took_us

    def answered(self, size: int, now_us: int) -> None:
        """As `sent`, for answers, which nobody orders: they do not take from events for long.

        Nor do they make up for events: otherwise who pings would be free of its limit.
        """
        free_us = self.free_us
        self.sent(size, now_us)
        self.free_us = max(free_us, min(self.free_us, now_us + _MOST_OWED_US))

    def _bytes_in(self, duration_us: int) -> int:
        return self.limit_bps * duration_us // 8_000_000
