"""Exponential backoff between connection attempts."""

from __future__ import annotations

from collections.abc import Callable


class Backoff:
    """Backoff that doubles from `first_ms` to `limit_ms`, with jitter.

    Each wait is between half of the current value and all of it. The jitter keeps clients that lost
    the same server from reconnecting all at once.
    """

    def __init__(
        self, random: Callable[[], float], *, first_ms: int = 100, limit_ms: int = 30_000
    ) -> None:
        if not 0 < first_ms <= limit_ms:
            raise ValueError(f"expected 0 < first_ms <= limit_ms, got {first_ms} and {limit_ms}")
        self._random = random
        self._first_ms = first_ms
        self._limit_ms = limit_ms
        self._ceiling_ms = first_ms

    def next_ms(self) -> int:
        ceiling_ms = self._ceiling_ms
        self._ceiling_ms = min(2 * ceiling_ms, self._limit_ms)
        return round(ceiling_ms * (1 + self._random()) / 2)

    def reset(self) -> None:
        """Start from `first_ms` again, after a success."""
        self._ceiling_ms = self._first_ms
