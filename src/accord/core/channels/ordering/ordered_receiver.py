"""Receiver side of the total order at a member: delivers by increasing position, never going back.

The direct successor of the last delivered event is delivered at once. If positions are missing in
between, the member asks the sequencer who holds them, and those sources whether their events will
arrive. It waits only for events that will, and not beyond a timeout, nor when a source has stopped
waiting for this member. An event that arrives after its successors is dropped: missing it is better
than an order that differs between members. An event that a source sent before a restart is dropped
after a later one of the new incarnation.

When the parts of a divided overlay merge, the sequencer may come from the other part and not know
the positions used in this one. A member therefore also asks the sources that the sequencer
excluded, if it has contact with them.

Waiting events are not acknowledged to their source, so their number is bounded by the windows of
all streams.
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
from accord.core.channels.streams.source_stream import RETRY_US, BufferedEvent
from accord.core.model.units import NEVER_US

FIRST_QUERY_US: Final = 100_000
QUERY_US: Final = 400_000
_SOURCES: Final = 4_096


class Gap:
    """The interval between the last delivered event and the lowest waiting one.

    The sequencer lists its holders in several replies, ordered by source.
    """

    __slots__ = ("after", "high", "is_known", "low", "outstanding", "queried_us")

    def __init__(self, low: OrderPosition | None, high: OrderPosition, now_us: int) -> None:
        self.low = low
        self.high = high
        self.after = ""  # last source received so far
        self.is_known = False  # all holders have been received
        self.outstanding: list[PositionRange] = []
        self.queried_us = now_us + FIRST_QUERY_US - QUERY_US


class OrderedReceiver:
    """Queue of waiting events by position; none waits longer than `timeout_us`."""

    def __init__(self, timeout_us: int, position: OrderPosition | None = None) -> None:
        self.position = position
        self.timeout_us = timeout_us
        self.retry_us = NEVER_US  # when to check again whether this node has room
        self.gap: Gap | None = None
        self._waiting: dict[OrderPosition, tuple[BufferedEvent, int]] = {}  # with time of arrival
        self._heap: list[OrderPosition] = []
        self._no_wait_through: OrderPosition | None = None  # positions up to here wait for nothing
        self._had_no_room_us = 0  # when this node last had no room
        self._incarnations: dict[str, int] = {}  # by source

    def put(self, position: OrderPosition, kept: BufferedEvent, now_us: int) -> bool:
        """Queue an event; False if it is too late or its position is taken."""
        if position in self._waiting or (self.position is not None and position <= self.position):
            return False
        self._waiting[position] = (kept, now_us)
        heappush(self._heap, position)
        return True

    def ready(self, now_us: int, most: int = 1 << 62) -> list[BufferedEvent]:
        """Remove and return up to `most` events whose turn it is."""
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
        """Note that this node has no room; the time without room does not count as waiting."""
        self.retry_us = now_us + RETRY_US if self._heap else NEVER_US
        self._had_no_room_us = now_us

    def stop_waiting_before(self, position: OrderPosition) -> None:
        """Stop waiting before `position`: its source no longer waits for this member."""
        self._no_wait_through = (
            position if self._no_wait_through is None else max(self._no_wait_through, position)
        )

    def must_not_wait(self) -> bool:
        """Whether the next event must be delivered without waiting."""
        return (
            bool(self._heap)
            and self._no_wait_through is not None
            and self._heap[0] <= self._no_wait_through
        )

    def is_outdated(self, kept: BufferedEvent) -> bool:
        """Whether an event of a later incarnation of its source was delivered before."""
        source, incarnation = kept.event.source, kept.event.incarnation
        if self._incarnations.get(source, 0) > incarnation:
            return True
        self._incarnations.pop(source, None)
        while len(self._incarnations) >= _SOURCES:
            del self._incarnations[next(iter(self._incarnations))]
        self._incarnations[source] = incarnation
        return False

    def on_holders(self, message: HolderReply, others: Iterable[PositionRange] = ()) -> None:
        """Apply the sequencer's reply; `others` are ranges of sources that it excluded."""
        gap = self.gap
        if gap is None or gap.is_known:
            return
        if (gap.low, gap.high, gap.after) != (message.low, message.high, message.after):
            return
        gap.outstanding += message.held
        gap.is_known = message.is_complete
        if message.is_complete:
            gap.outstanding += others
        if message.held and not message.is_complete:
            gap.after = message.held[-1].source
            gap.queried_us -= QUERY_US  # request the next part at once

    def on_void(self, message: PositionVoid) -> None:
        """Apply a source's reply: no event will arrive at these positions."""
        if self.gap is not None:
            left = [_without(held, message.held) for held in self.gap.outstanding]
            self.gap.outstanding = [held for held in left if held.first <= held.last]

    def skip_suspected(self, is_suspected: Callable[[str], bool]) -> None:
        """Stop waiting for suspected sources."""
        gap = self.gap
        if gap is not None:
            gap.outstanding = [held for held in gap.outstanding if not is_suspected(held.source)]

    def holder_query(self, latest: Epoch, now_us: int) -> HolderQuery | None:
        """The query to send to the sequencer now, if any."""
        gap = self.gap
        if gap is None or gap.is_known or now_us - gap.queried_us < QUERY_US:
            return None
        gap.queried_us = now_us
        return HolderQuery(gap.low, gap.high, latest, gap.after)

    def position_queries(self, now_us: int) -> list[PositionRange]:
        """The ranges to query at their sources now."""
        gap = self.gap
        if gap is None or not gap.is_known or now_us - gap.queried_us < QUERY_US:
            return []
        gap.queried_us = now_us
        return self._missing(gap)[:MAX_SHOWN]

    def next_due_us(self) -> int:
        return (
            self.retry_us
            if self.gap is None
            else min(self.retry_us, self.gap.queried_us + QUERY_US)
        )

    def leave(self) -> list[BufferedEvent]:
        """Stop waiting; return the waiting events in no particular order."""
        waiting = [kept for kept, _ in self._waiting.values()]
        self._waiting.clear()
        self._heap.clear()
        self.gap = None
        self._no_wait_through = None
        self.retry_us = NEVER_US
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
        """Whether an event before `lowest` may still arrive, as far as is known."""
        since_us = max(self._waiting[lowest][1], self._had_no_room_us)
        if self.must_not_wait() or now_us - since_us >= self.timeout_us:
            return False
        gap = self.gap
        if gap is None or lowest > gap.high:
            self.gap = Gap(self.position, lowest, now_us)
            return True
        return not gap.is_known or bool(self._missing(gap))

    def _missing(self, gap: Gap) -> list[PositionRange]:
        """Outstanding ranges before the lowest waiting event."""
        lowest = self._heap[0]
        return [held for held in gap.outstanding if held.is_between(self.position, lowest)]


def _without(held: PositionRange, void: PositionRange) -> PositionRange:
    """Remove `on_void` from `held`; an empty result has `first` > `last`."""
    of = (held.epoch, held.source, held.incarnation)
    if of == (void.epoch, void.source, void.incarnation) and void.first <= held.first <= void.last:
        return msgspec.structs.replace(held, first=void.last + 1)
    return held
