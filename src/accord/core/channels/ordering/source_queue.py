"""A source of an ordered channel: its events wait until they have their places.

It asks for no more places than it can send events at once, so that nobody waits for a place whose
source is itself held up; what has none yet waits here, up to a fixed number and size. Also what any
node knows of the order: the latest epoch it has heard of, and the last place it has taken.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from accord.core.channels.ordering.messages import (
    MAX_PLACES,
    NO_EPOCH,
    Epoch,
    PositionGrant,
    PositionRange,
    PositionRequest,
)
from accord.core.channels.streams.source_stream import NEVER, size_of
from accord.core.channels.streams.stream_sender import MAX_BYTES
from accord.core.overlay.signalling import Carried

_ASK_US: Final = 500_000
_ENOUGH: Final = 1_024
_MORE: Final = 8  # times as much is taken of those that could not be held back in time
_TELL_US: Final = 500_000


class SourceQueue:
    """Of one channel. `pending` are events without a place, with when they came."""

    def __init__(self, incarnation: int, now_us: int) -> None:
        self.latest: Epoch = NO_EPOCH
        self.pending: deque[tuple[Carried, int]] = deque()
        self.used_us = now_us
        self.asks_us = NEVER  # when to ask again; never while there is no room to send more
        self.bytes = 0  # of what is pending
        self._taken: tuple[Epoch, int] = (NO_EPOCH, 0)  # the last place
        self._told_us = -_TELL_US  # when somebody was told of the latest epoch
        self._incarnation = incarnation
        # Later than all of one that was forgotten: its places would be no answer.
        self._request = now_us
        self._count = 0  # that were asked for

    def has_room(self) -> bool:
        return len(self.pending) < _ENOUGH and self.bytes < MAX_BYTES

    def put(self, event: Carried, now_us: int) -> bool:
        """False where too much waits already, from publishers that were not held back in time."""
        if len(self.pending) >= _MORE * _ENOUGH or self.bytes >= _MORE * MAX_BYTES:
            return False
        self.pending.append((event, now_us))
        self.bytes += size_of(event)
        self.go_on(now_us)
        return True

    def go_on(self, now_us: int) -> None:
        """There may be room to send more."""
        if self.pending and self.asks_us == NEVER:
            self.asks_us = now_us

    def next_events(self) -> list[Carried]:
        """For which to ask, if there is room for them."""
        return [event for event, _ in islice(self.pending, MAX_PLACES)]

    def ask(self, room: int, now_us: int) -> PositionRequest | None:
        """What to ask the sequencer: the same until there is an answer; nothing without room."""
        assert self.pending
        if not self._count:
            self._count = min(len(self.pending), MAX_PLACES, room)
            self._request += 1
        if not self._count:
            self.asks_us = NEVER
            return None
        self.asks_us = now_us + _ASK_US
        return PositionRequest(self._incarnation, self._request, self._count, self.latest)

    def next_place(self, held: PositionRange) -> int | None:
        """The first of these places that may be on its way here."""
        if not self._count or held.epoch < self.latest:
            return None
        epoch, last = self._taken
        place = max(held.first, last + 1) if epoch == held.epoch else held.first
        return place if place <= held.last else None

    def granted(self, grant: PositionGrant, now_us: int) -> list[tuple[Carried, int]]:
        """The events that have their places now; none where the answer is not to be taken."""
        held = grant.held
        if grant.request != self._request or not self._count:
            return []
        if held.epoch < self.latest or held.last - held.first + 1 != self._count:
            self._request += 1  # of an epoch that is over: others would not wait for it
            self.asks_us = now_us
            return []
        self.latest = held.epoch
        self._taken = (held.epoch, held.last)
        events = [self.pending.popleft() for _ in range(self._count)]
        self.bytes -= sum(size_of(event) for event, _ in events)
        self._count = 0
        self.asks_us = now_us if self.pending else NEVER
        return events

    def heard_of(self, epoch: Epoch, now_us: int) -> None:
        if epoch > self.latest:
            self.latest = epoch
            if self.pending:
                self.asks_us = now_us  # another sequencer than the one that was asked

    def is_to_tell(self, now_us: int) -> bool:
        """Whether it is time to tell somebody of the latest epoch who does not know it."""
        if now_us - self._told_us < _TELL_US:
            return False
        self._told_us = now_us
        return True

    def check_invariants(self) -> None:
        assert len(self.pending) <= _MORE * _ENOUGH
        assert self.bytes == sum(size_of(event) for event, _ in self.pending)
        assert self._count <= min(len(self.pending), MAX_PLACES)
        assert self.pending or self.asks_us == NEVER
        assert not self._count or self.asks_us < NEVER
