"""Trace of a run (a line per step, and a hash over all lines), and errors of the simulator.

Two runs with the same seed have the same hash, in any process, on any machine, with any hash seed:
a difference means that something depended on the clock, on randomness or on the order of a set.
Times are virtual; messages are represented by the checksum of their contents.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

from accord.core.model.errors import AccordError

_BATCH: Final = 1_024


class Trace:
    """Keeps the last `keep` lines; `sink` gets all of them."""

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
        """Hash of all lines so far."""
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


class SimulationError(AccordError):
    """A simulation can't be set up, or a machine breaks its contract."""


class GraphError(AccordError):
    """A topology or latency file can't be used: `place` is the location in it."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")
