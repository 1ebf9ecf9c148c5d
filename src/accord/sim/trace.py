"""What happened, as one line each, and a hash over all of them.

Two runs with the same seed have the same hash, whatever process, machine or hash seed they ran
under: a difference means that something looked at the clock, at chance or at the order of a set.
Times are virtual, messages are given by the checksum of what they say.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

_BATCH: Final = 1_024


class Trace:
    """`keep` of the last lines can be looked at; `sink` gets all of them."""

    def __init__(self, *, keep: int = 50, sink: Callable[[str], object] | None = None) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._waiting: list[str] = []
        self._last: deque[str] = deque(maxlen=keep)
        self._sink = sink
        self.length = 0

    def note(self, line: str) -> None:
        self._waiting.append(line)
        if len(self._waiting) >= _BATCH:
            self._flush()

    def last(self) -> list[str]:
        self._flush()
        return list(self._last)

    def digest(self) -> str:
        """Of all lines until now."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        waiting = self._waiting
        if not waiting:
            return
        text = "\n".join([*waiting, ""])
        self._hash.update(text.encode())
        self._last.extend(waiting)
        if self._sink is not None:
            self._sink(text)
        self.length += len(waiting)
        waiting.clear()
