"""A member of an ordered channel: hands events over by growing stamps, and never goes back.

What follows directly on the last event is handed over at once. Where places are missing in between
the member asks the sequencer who has them, and those sources whether they will come. It waits for
what will come, and for nothing else; not even for that if it takes too long, or if a source does
not wait for this member any more. What comes after all is too late here, and left out: better
missing than in another order than elsewhere. So is what a source had sent before it was started
again, after something that it has sent since.

When parts of a divided overlay meet, the sequencer may be of the other part and not know what was
published in this one. So a member also asks the sources that the sequencer has left out, if it is
in touch with them itself.

What waits is not acknowledged to its source: so no more waits than the windows of all streams have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final

import msgspec

from accord.core.channels.ordering.messages import (
    MAX_SHOWN,
    Epoch,
    HolderQuery,
    HolderReply,
    OrderPosition,
    PositionRange,
    PositionVoid,
    epoch_of,
)
from accord.core.channels.streams.source_stream import HELD_US, NEVER, BufferedEvent

FIRST_ASK_US: Final = 100_000
ASK_US: Final = 400_000
_SOURCES: Final = 4_096


class Gap:
    """Between the last event that was handed over and the lowest that waits.

    Who has its places the sequencer says in several parts, by the names of sources.
    """

    __slots__ = ("after", "asked_us", "high", "is_known", "low", "outstanding")

    def __init__(self, low: OrderPosition | None, high: OrderPosition, now_us: int) -> None:
        self.low = low
        self.high = high
        self.after = ""  # the last source that is known
        self.is_known = False  # all are
        self.outstanding: list[PositionRange] = []
        self.asked_us = now_us + FIRST_ASK_US - ASK_US


class OrderedReceiver:
    """Nothing waits for longer than `patience_us`."""

    def __init__(self, patience_us: int, position: OrderPosition | None = None) -> None:
        self.position = position
        self.patience_us = patience_us
        self.held_us = NEVER  # when to ask again whether this node has room
        self.gap: Gap | None = None
        self._waiting: dict[OrderPosition, tuple[BufferedEvent, int]] = {}  # with since when
        self._heap: list[OrderPosition] = []
        self._hurry: OrderPosition | None = None  # up to there nothing is waited for
        self._had_no_room_us = 0  # when this node was last asked
        self._incarnations: dict[str, int] = {}  # of sources

    def put(self, stamp: OrderPosition, kept: BufferedEvent, now_us: int) -> bool:
        """False where it is too late for it, or another has its place."""
        if stamp in self._waiting or (self.position is not None and stamp <= self.position):
            return False
        self._waiting[stamp] = (kept, now_us)
        heappush(self._heap, stamp)
        return True

    def ready(self, now_us: int, most: int = 1 << 62) -> list[BufferedEvent]:
        """Events whose turn it is, at most so many."""
        found: list[BufferedEvent] = []
        while self._heap and len(found) < most:
            lowest = self._heap[0]
            if not self._is_next(lowest) and self._has_to_wait(lowest, now_us):
                break
            kept, _ = self._waiting.pop(heappop(self._heap))
            found.append(kept)
            self.position = lowest
        gap = self.gap
        if gap is not None and self.position is not None and self.position >= gap.high:
            self.gap = None
        return found

    def hold(self, now_us: int) -> None:
        """This node has no room: nothing is waited for in vain meanwhile."""
        self.held_us = now_us + HELD_US if self._heap else NEVER
        self._had_no_room_us = now_us

    def hurry(self, stamp: OrderPosition) -> None:
        """Its source waits no more until it is handed over: so it waits for nothing."""
        self._hurry = stamp if self._hurry is None else max(self._hurry, stamp)

    def is_in_a_hurry(self) -> bool:
        """Whether the next must not wait."""
        return bool(self._heap) and self._hurry is not None and self._heap[0] <= self._hurry

    def is_outdated(self, kept: BufferedEvent) -> bool:
        """Whether its source was started again, and something that it sent since was ready."""
        source, incarnation = kept.event.source, kept.event.incarnation
        if self._incarnations.get(source, 0) > incarnation:
            return True
        self._incarnations.pop(source, None)
        while len(self._incarnations) >= _SOURCES:
            del self._incarnations[next(iter(self._incarnations))]
        self._incarnations[source] = incarnation
        return False

    def holders(self, message: HolderReply, others: Iterable[PositionRange] = ()) -> None:
        """The sequencer's answer, and what `others` may have that it does not know of."""
        gap = self.gap
        if gap is None or gap.is_known:
            return
        if (gap.low, gap.high, gap.after) != (message.low, message.high, message.after):
            return
        gap.outstanding += message.held
        gap.is_known = message.is_all
        if message.is_all:
            gap.outstanding += others
        if message.held and not message.is_all:
            gap.after = message.held[-1].source
            gap.asked_us -= ASK_US  # for the next at once

    def void(self, message: PositionVoid) -> None:
        """A source's answer: nothing more will come of that."""
        if self.gap is not None:
            left = [_without(held, message.held) for held in self.gap.outstanding]
            self.gap.outstanding = [held for held in left if held.first <= held.last]

    def wait_less(self, is_lost: Callable[[str], bool]) -> None:
        """Give up what sources have that are lost."""
        gap = self.gap
        if gap is not None:
            gap.outstanding = [held for held in gap.outstanding if not is_lost(held.source)]

    def question(self, latest: Epoch, now_us: int) -> HolderQuery | None:
        """What to ask the sequencer now, if that is the latest epoch."""
        gap = self.gap
        if gap is None or gap.is_known or now_us - gap.asked_us < ASK_US:
            return None
        gap.asked_us = now_us
        return HolderQuery(gap.low, gap.high, latest, gap.after)

    def questions(self, now_us: int) -> list[PositionRange]:
        """Of which places to ask their sources now."""
        gap = self.gap
        if gap is None or not gap.is_known or now_us - gap.asked_us < ASK_US:
            return []
        gap.asked_us = now_us
        return self._missing(gap)[:MAX_SHOWN]

    def next_due_us(self) -> int:
        return self.held_us if self.gap is None else min(self.held_us, self.gap.asked_us + ASK_US)

    def leave(self) -> list[BufferedEvent]:
        """Wait for nothing; gives what has waited, in no order."""
        waiting = [kept for kept, _ in self._waiting.values()]
        self._waiting.clear()
        self._heap.clear()
        self.gap = None
        self._hurry = None
        self.held_us = NEVER
        return waiting

    def __contains__(self, stamp: OrderPosition) -> bool:
        return stamp in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def check_invariants(self) -> None:
        assert len(self._heap) == len(self._waiting)
        assert len(self._incarnations) <= _SOURCES
        assert all(stamp in self._waiting for stamp in self._heap)
        assert self.position is None or all(stamp > self.position for stamp in self._heap)
        assert self.gap is None or self.gap.high in self._waiting

    def _is_next(self, stamp: OrderPosition) -> bool:
        position = self.position
        return (
            position is not None
            and epoch_of(stamp) == epoch_of(position)
            and stamp[3] == position[3] + 1
        )

    def _has_to_wait(self, lowest: OrderPosition, now_us: int) -> bool:
        """Whether something is to come that goes before it, as far as is known."""
        since_us = max(self._waiting[lowest][1], self._had_no_room_us)
        if self.is_in_a_hurry() or now_us - since_us >= self.patience_us:
            return False
        gap = self.gap
        if gap is None or lowest > gap.high:
            self.gap = Gap(self.position, lowest, now_us)
            return True
        return not gap.is_known or bool(self._missing(gap))

    def _missing(self, gap: Gap) -> list[PositionRange]:
        """What is to come before all that waits."""
        lowest = self._heap[0]
        return [held for held in gap.outstanding if held.is_between(self.position, lowest)]


def _without(held: PositionRange, void: PositionRange) -> PositionRange:
    """What is left of `held`; where nothing is, its first is behind its last."""
    of = (held.epoch, held.source, held.incarnation)
    if of == (void.epoch, void.source, void.incarnation) and void.first <= held.first <= void.last:
        return msgspec.structs.replace(held, first=void.last + 1)
    return held
