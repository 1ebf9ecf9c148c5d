"""The network of the last hour: its rows as they were at the beginning, and all changes since.

Bounded in time, in changes and in bytes: what is too old, or too much, is applied to the rows at
the beginning. So the rows of any moment in between can be told. Changes within a tenth of a second
are one step. Counts of arrivals change all the time, and are taken every ten seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from accord.core.overlay.net_map import Change, Key, Row
from accord.core.overlay.status_publisher import ARRIVED

KEPT_MS: Final = 3_600_000
MAX_CHANGES: Final = 20_000
MAX_BYTES: Final = 8 << 20
STEP_MS: Final = 100
ARRIVALS_MS: Final = 10_000
_OVERHEAD: Final = 300  # bytes of a change besides its text

_encode: Final = msgspec.msgpack.Encoder().encode


class NetStep:
    """What changed at one moment; `number` grows."""

    __slots__ = ("at_ms", "bytes", "changes", "number")

    def __init__(self, number: int, at_ms: int) -> None:
        self.number = number
        self.at_ms = at_ms
        self.changes: dict[Key, Row | None] = {}
        self.bytes = 0


class NetHistory:
    """Rows at `from_ms`, and the steps since; the newest may still grow for `STEP_MS`."""

    def __init__(self, now_ms: int) -> None:
        self.from_ms = now_ms
        self.rows: dict[Key, Row] = {}
        self.changes = 0
        self.bytes = 0
        self.number = 0  # of the last step
        self._steps: deque[NetStep] = deque()
        self._arrivals: dict[Key, Row | None] = {}  # not taken yet
        self._arrivals_ms = now_ms

    def add(self, changes: Iterable[Change], *, now_ms: int) -> None:
        """Take what changed; times that run backwards count as no time."""
        if self._steps:
            now_ms = max(now_ms, self._steps[-1].at_ms)
        taken = []
        for key, row in changes:
            if key[0] == ARRIVED:
                self._arrivals[key] = row
            else:
                taken.append((key, row))
        if self._arrivals and not 0 <= now_ms - self._arrivals_ms < ARRIVALS_MS:
            taken += self._arrivals.items()
            self._arrivals.clear()
            self._arrivals_ms = now_ms
        if taken:
            self._add(taken, now_ms)
        self._limit(now_ms)

    def steps_after(self, number: int, *, now_ms: int, limit: int) -> list[NetStep]:
        """The first `limit` steps after that number which can't change any more."""
        found = []
        first = 0 if not self._steps else max(0, number + 1 - self._steps[0].number)
        for step in islice(self._steps, first, first + limit):
            if step is self._steps[-1] and 0 <= now_ms - step.at_ms < STEP_MS:
                break
            found.append(step)
        return found

    def rows_at(self, at_ms: int) -> tuple[dict[Key, Row], int]:
        """The rows at a moment, and the number of the last step that they include."""
        rows = dict(self.rows)
        number = self._steps[0].number - 1 if self._steps else self.number
        for step in self._steps:
            if step.at_ms > at_ms:
                break
            _apply(rows, step)
            number = step.number
        return rows, number

    def check_invariants(self) -> None:
        assert self.changes == sum(len(each.changes) for each in self._steps) <= MAX_CHANGES
        assert self.bytes == sum(each.bytes for each in self._steps) <= MAX_BYTES
        numbers = [each.number for each in self._steps]
        assert numbers == list(range(self.number - len(numbers) + 1, self.number + 1))

    def _add(self, changes: list[Change], now_ms: int) -> None:
        step = self._steps[-1] if self._steps else None
        if step is None or now_ms - step.at_ms >= STEP_MS:
            self.number += 1
            step = NetStep(self.number, now_ms)
            self._steps.append(step)
        for key, row in changes:
            if key not in step.changes:
                self.changes += 1
            step.changes[key] = row
            size = _OVERHEAD + (0 if row is None else len(_encode(row)))
            step.bytes += size
            self.bytes += size

    def _limit(self, now_ms: int) -> None:
        while self._steps and (
            self._steps[0].at_ms < now_ms - KEPT_MS
            or self.changes > MAX_CHANGES
            or self.bytes > MAX_BYTES
        ):
            step = self._steps.popleft()
            _apply(self.rows, step)
            self.from_ms = step.at_ms
            self.changes -= len(step.changes)
            self.bytes -= step.bytes


def _apply(rows: dict[Key, Row], step: NetStep) -> None:
    for key, row in step.changes.items():
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row
