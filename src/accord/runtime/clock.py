"""Time for the node: starts at the wall clock's and never goes back or jumps."""

from __future__ import annotations

import time


class Clock:
    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since 1970 in UTC, as of the start."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000
