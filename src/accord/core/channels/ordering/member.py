"""A member of an ordered channel: hands events over by growing stamps, and never goes back.

What follows directly on the last event is handed over at once. Where places are missing in between
the member asks the sequencer who has them, and those sources whether they will come. It waits for
what will come, and for nothing else; not even for that if it takes too long. What comes after all
is too late here, and left out: better missing than in another order than elsewhere. So is what a
source had sent before it was started again, after something that it has sent since.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from accord.core.channels.ordering.stamps import (
    Between,
    Epoch,
    Held,
    Holders,
    Stamp,
    Void,
    epoch_of,
)
from accord.core.channels.streams.stream import HELD_US, NEVER, Kept

PATIENCE_US: Final = 25_000_000
FIRST_ASK_US: Final = 100_000
ASK_US: Final = 400_000
_MOST: Final = 4_096  # waiting
_SOURCES: Final = 4_096


class Gap:
    """Between the last event that was handed over and the lowest that waits."""

    __slots__ = ("asked_us", "high", "outstanding", "since_us")

    def __init__(self, high: Stamp, now_us: int) -> None:
        self.high = high
        self.since_us = now_us
        self.asked_us = now_us + FIRST_ASK_US - ASK_US
        self.outstanding: dict[Held, bool] | None = None  # None: not known yet


class Member:
    """`late` counts what came too late, `given_up` gaps that were not waited for."""

    def __init__(self) -> None:
        self.position: Stamp | None = None
        self.late = 0
        self.given_up = 0
        self.held_us = NEVER  # when to ask again whether this node has room
        self.gap: Gap | None = None
        self._waiting: dict[Stamp, Kept] = {}
        self._heap: list[Stamp] = []
        self._incarnations: dict[str, int] = {}  # of sources

    def put(self, stamp: Stamp, kept: Kept) -> bool:
        """False where it is too late for it."""
        if self.position is not None and stamp <= self.position:
            self.late += 1
            return False
        if stamp not in self._waiting:
            self._waiting[stamp] = kept
            heappush(self._heap, stamp)
        return True

    def ready(self, now_us: int, most: int = _MOST) -> list[Kept]:
        """Events whose turn it is, at most so many."""
        found: list[Kept] = []
        while self._heap and len(found) < most:
            lowest = self._heap[0]
            if not self._is_next(lowest):
                if self.gap is None or not self._is_open(lowest):
                    self._look(lowest, now_us)
                    break
                if self._is_waited_for(lowest):
                    break
            found.append(self._waiting.pop(heappop(self._heap)))
            self.position = lowest
        gap = self.gap
        if gap is not None and self.position is not None and self.position >= gap.high:
            self.gap = None
        return found

    def hold(self, now_us: int) -> None:
        """This node has no room: nothing is waited for in vain meanwhile."""
        self.held_us = now_us + HELD_US if self._heap else NEVER
        if self.gap is not None:
            self.gap.since_us = now_us

    def is_outdated(self, kept: Kept) -> bool:
        """Whether its source was started again, and something that it sent since was ready."""
        source, incarnation = kept.event.source, kept.event.incarnation
        if self._incarnations.get(source, 0) > incarnation:
            return True
        self._incarnations.pop(source, None)
        while len(self._incarnations) >= _SOURCES:
            del self._incarnations[next(iter(self._incarnations))]
        self._incarnations[source] = incarnation
        return False

    def holders(self, message: Holders) -> None:
        """The sequencer's answer."""
        gap = self.gap
        if gap is None or gap.high != message.high or message.low != self.position:
            return
        if gap.outstanding is None:
            gap.outstanding = dict.fromkeys(message.held, True)

    def void(self, message: Void) -> None:
        """A source's answer: nothing more will come of that."""
        gap = self.gap
        if gap is not None and gap.outstanding is not None:
            gap.outstanding.pop(message.held, None)

    def wait_less(self, is_lost: Callable[[str], bool], now_us: int) -> None:
        """Give up what takes too long, sooner if its source is lost."""
        gap = self.gap
        if gap is None:
            return
        if now_us - gap.since_us >= PATIENCE_US or len(self._waiting) > _MOST:
            self.given_up += 1
            gap.outstanding = {}
        for held in list(gap.outstanding or ()):
            if is_lost(held.source):
                assert gap.outstanding is not None
                del gap.outstanding[held]

    def question(self, latest: Epoch, now_us: int) -> Between | None:
        """What to ask the sequencer now, if that is the latest epoch."""
        gap = self.gap
        if gap is None or gap.outstanding is not None or now_us - gap.asked_us < ASK_US:
            return None
        gap.asked_us = now_us
        return Between(self.position, gap.high, latest)

    def questions(self, now_us: int) -> list[Held]:
        """Of which places to ask their sources now."""
        gap = self.gap
        if gap is None or gap.outstanding is None or now_us - gap.asked_us < ASK_US:
            return []
        gap.asked_us = now_us
        return list(gap.outstanding)

    def next_due_us(self) -> int:
        return self.held_us if self.gap is None else min(self.held_us, self.gap.asked_us + ASK_US)

    def is_empty(self) -> bool:
        return not self._waiting

    def check_invariants(self) -> None:
        assert len(self._heap) == len(self._waiting)
        assert len(self._incarnations) <= _SOURCES
        assert all(stamp in self._waiting for stamp in self._heap)
        assert self.position is None or all(stamp > self.position for stamp in self._heap)

    def _is_next(self, stamp: Stamp) -> bool:
        position = self.position
        return (
            position is not None
            and epoch_of(stamp) == epoch_of(position)
            and stamp[3] == position[3] + 1
        )

    def _is_open(self, lowest: Stamp) -> bool:
        """Whether the gap that was looked into is that before `lowest`."""
        return self.gap is not None and lowest <= self.gap.high

    def _look(self, lowest: Stamp, now_us: int) -> None:
        self.gap = Gap(lowest, now_us)

    def _is_waited_for(self, lowest: Stamp) -> bool:
        """Whether something is to come that goes before it."""
        gap = self.gap
        assert gap is not None
        if gap.outstanding is None:
            return True
        return any(self._is_missing(held, lowest) for held in gap.outstanding)

    def _is_missing(self, held: Held, below: Stamp) -> bool:
        return any(
            stamp < below
            and stamp not in self._waiting
            and (self.position is None or stamp > self.position)
            for stamp in held.stamps()
        )
