"""The node's clock: starts at wall-clock time and is monotonic from then on."""

from __future__ import annotations

import time


class Clock:
    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since 1970 in UTC, by the wall clock at the start."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000
